//! A model of operations on a counter (docs/protocol.md, 19): what the scripts of a semaphore do with numbers and results, what a client does when
//! no answer comes, and what its background does later. Time is in ticks.

mod mutants;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// How long an attempt may be executed, and is waited for.
const RESPONSE: u8 = 1;

/// How long all attempts of an operation may take.
const WITHIN: u8 = 2;

/// For how long the background goes on after that.
const LATER: u8 = 2;

/// How long a result is kept after it was written.
const KEPT: u8 = WITHIN + LATER + RESPONSE;

const NEVER_MORE: &str = "no more permits than there are";
const NONE_LOST: &str = "when all is quiet, no permit is lost";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// No attempt looks for a result.
    EachAttemptCounts,
    /// An acquire is undone while a copy of it may come.
    UndoesTooEarly,
    NeverUndoes,
    /// The lane of an operation in doubt is used again.
    KeepsTheLane,
    /// A result is forgotten while copies may come.
    ForgetsTooEarly,
    /// The background gives permits back by an operation of its own.
    GivesAnew,
    /// A copy may be executed at any time.
    NoDeadline,
    /// A copy with a smaller number than the last is executed.
    ForgetsNumbers,
    /// The background begins attempts at any time, as one of a process that was stopped before it sent.
    GoesOnForEver,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Operations {
    /// How many permits there are.
    total: i8,
    /// How many threads there are, and how often each takes a permit.
    threads: usize,
    turns: u8,
    /// How many attempts are broken off.
    breaks: u8,
    /// The last tick.
    end: u8,
    mutant: Option<Mutant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Operation {
    lane: u8,
    number: u8,
    ends: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    Take,
    Give,
    Undo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum From {
    Thread(usize),
    Background,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Said {
    Done,
    Busy,
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    operation: Operation,
    what: What,
    from: From,
    /// `None`: it may be executed at any time.
    deadline: Option<u8>,
    waited: bool,
    said: Option<Said>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Doing {
    Idle,
    /// It makes attempts. `open`: until when one without an answer may be executed; `asks`: one is under way.
    Taking {
        operation: Operation,
        open: Option<u8>,
        asks: bool,
    },
    Holding,
    Giving {
        operation: Operation,
        asks: bool,
    },
}

/// What the background does until it is answered, or until its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Chore {
    operation: Operation,
    what: What,
    due: u8,
    until: u8,
    asks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kept {
    number: u8,
    what: What,
    until: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    left: i8,
    /// The result in each lane.
    lanes: Vec<Option<Kept>>,
    free: Vec<u8>,
    numbers: u8,
    wire: Vec<Message>,
    threads: Vec<(Doing, u8)>,
    chores: Vec<Chore>,
    breaks: u8,
    /// The background's time was over before an answer came: what it should have given back stays out.
    gave_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Begin(usize),
    /// One more attempt.
    Again(usize),
    GiveUp(usize),
    Release(usize),
    Work(usize),
    Execute(usize),
    Deliver(usize),
    BreakOff(usize),
    /// A message that nobody waits for never arrives.
    Vanish(usize),
}

impl State {
    fn begin(&mut self) -> Operation {
        let lane = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() as u8 - 1
        });
        self.numbers += 1;
        Operation { lane, number: self.numbers, ends: self.now + WITHIN }
    }

    fn holding(&self) -> i8 {
        self.threads.iter().filter(|(doing, _)| *doing == Doing::Holding).count() as i8
    }

    fn is_quiet(&self) -> bool {
        let rests = |doing: &Doing| matches!(doing, Doing::Idle | Doing::Holding);
        self.wire.is_empty() && self.chores.is_empty() && self.threads.iter().all(|(doing, _)| rests(doing))
    }
}

/// The server.
impl Operations {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn execute(&self, state: &mut State, at: usize) {
        let Message { operation, what, deadline, .. } = state.wire[at];
        let is_late = deadline.is_some_and(|deadline| state.now >= deadline) && !self.has(Mutant::NoDeadline);
        let said = match what {
            _ if is_late => Said::Stale,
            What::Undo => self.undo(state, operation),
            what => self.once(state, operation, what),
        };
        let message = &mut state.wire[at];
        message.said = Some(said);
        if !message.waited {
            state.wire.remove(at);
        }
    }

    fn once(&self, state: &mut State, operation: Operation, what: What) -> Said {
        let last = state.lanes[operation.lane as usize].filter(|_| !self.has(Mutant::EachAttemptCounts));
        match last {
            Some(last) if last.number == operation.number => return Said::Done,
            // Nobody waits for this copy.
            Some(last) if last.number > operation.number && !self.has(Mutant::ForgetsNumbers) => return Said::Busy,
            _ => {}
        }
        if what == What::Take && state.left < 1 {
            return Said::Busy;
        }
        state.left += if what == What::Take { -1 } else { 1 };
        let until = state.now + if self.has(Mutant::ForgetsTooEarly) { 1 } else { KEPT };
        state.lanes[operation.lane as usize] = Some(Kept { number: operation.number, what, until });
        Said::Done
    }

    fn undo(&self, state: &mut State, operation: Operation) -> Said {
        // Its answer does not come before the background's time is over.
        state.gave_up |= state.now >= operation.ends + LATER;
        let last = &mut state.lanes[operation.lane as usize];
        if last.is_some_and(|last| last.number == operation.number && last.what == What::Take) {
            *last = None;
            state.left += 1;
        }
        Said::Done
    }
}

/// The client.
impl Operations {
    fn send(&self, state: &mut State, operation: Operation, what: What, from: From) {
        let deadline = (what != What::Undo).then_some(state.now + RESPONSE);
        state.wire.push(Message { operation, what, from, deadline, waited: true, said: None });
    }

    fn attempt(&self, state: &mut State, thread: usize) {
        let (operation, what) = match &mut state.threads[thread].0 {
            Doing::Taking { operation, asks, .. } => {
                *asks = true;
                (*operation, What::Take)
            }
            Doing::Giving { operation, asks } => {
                *asks = true;
                (*operation, What::Give)
            }
            doing => unreachable!("{doing:?} asks for nothing"),
        };
        self.send(state, operation, what, From::Thread(thread));
    }

    /// The call ends without permits, or without an answer to its release.
    fn give_up(&self, state: &mut State, thread: usize) {
        let now = state.now;
        match std::mem::replace(&mut state.threads[thread].0, Doing::Idle) {
            Doing::Taking { operation, open, .. } => self.leave(state, operation, open),
            Doing::Giving { operation, .. } => {
                let operation = if self.has(Mutant::GivesAnew) { state.begin() } else { operation };
                let until = if self.has(Mutant::GoesOnForEver) { u8::MAX } else { operation.ends + LATER };
                state.chores.push(Chore { operation, what: What::Give, due: now, until, asks: false });
            }
            doing => unreachable!("{doing:?} does not end"),
        }
    }

    /// An acquire in doubt is undone when no copy of it can be executed any more, and nobody uses its lane again.
    fn leave(&self, state: &mut State, operation: Operation, open: Option<u8>) {
        if open.is_none() || self.has(Mutant::KeepsTheLane) {
            state.free.push(operation.lane);
        }
        if let Some(open) = open.filter(|_| !self.has(Mutant::NeverUndoes)) {
            let due = if self.has(Mutant::UndoesTooEarly) { state.now } else { open };
            let until = operation.ends + LATER;
            state.chores.push(Chore { operation, what: What::Undo, due, until, asks: false });
        }
    }

    fn deliver(&self, state: &mut State, message: Message) {
        let said = message.said.expect("an answer");
        match message.from {
            From::Background => self.answer_chore(state, message, said),
            From::Thread(thread) => self.answer_thread(state, thread, said),
        }
    }

    fn answer_chore(&self, state: &mut State, message: Message, said: Said) {
        let is_it = |chore: &Chore| chore.operation == message.operation && chore.what == message.what;
        if said == Said::Stale {
            state.chores.iter_mut().filter(|chore| is_it(chore)).for_each(|chore| chore.asks = false);
        } else {
            state.chores.retain(|chore| !is_it(chore));
        }
    }

    fn answer_thread(&self, state: &mut State, thread: usize, said: Said) {
        match (&mut state.threads[thread].0, said) {
            (Doing::Taking { asks, .. } | Doing::Giving { asks, .. }, Said::Stale) => *asks = false,
            (Doing::Taking { operation, .. }, Said::Done) => {
                state.free.push(operation.lane);
                state.threads[thread].0 = Doing::Holding;
            }
            (Doing::Taking { .. }, Said::Busy) => self.give_up(state, thread),
            (Doing::Giving { operation, .. }, _) => {
                state.free.push(operation.lane);
                state.threads[thread].0 = Doing::Idle;
            }
            (doing, _) => unreachable!("{doing:?} is told nothing"),
        }
    }

    fn break_off(&self, state: &mut State, at: usize) {
        state.breaks -= 1;
        let message = state.wire[at];
        match message.from {
            From::Background => {
                let is_it = |chore: &&mut Chore| chore.operation == message.operation && chore.what == message.what;
                state.chores.iter_mut().filter(is_it).for_each(|chore| chore.asks = false);
            }
            From::Thread(thread) => match &mut state.threads[thread].0 {
                Doing::Taking { open, asks, .. } => (*open, *asks) = ((*open).max(message.deadline), false),
                Doing::Giving { asks, .. } => *asks = false,
                doing => unreachable!("{doing:?} waits for nothing"),
            },
        }
        // An answer on its way is lost with the connection.
        match message.said {
            Some(_) => drop(state.wire.remove(at)),
            None => state.wire[at].waited = false,
        }
    }

    fn tick(state: &mut State) {
        state.now += 1;
        let now = state.now;
        state.lanes.iter_mut().for_each(|kept| *kept = kept.filter(|kept| kept.until > now));
        let all = state.chores.len();
        state.chores.retain(|chore| chore.until > now || chore.asks);
        state.gave_up |= state.chores.len() < all;
    }
}

impl Model for Operations {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            left: self.total,
            lanes: Vec::new(),
            free: Vec::new(),
            numbers: 0,
            wire: Vec::new(),
            threads: vec![(Doing::Idle, self.turns); self.threads],
            chores: Vec::new(),
            breaks: self.breaks,
            gave_up: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::Tick);
        }
        for (thread, (doing, turns)) in state.threads.iter().enumerate() {
            match *doing {
                Doing::Idle if *turns > 0 => actions.push(Action::Begin(thread)),
                Doing::Holding => actions.push(Action::Release(thread)),
                Doing::Taking { operation, asks: false, .. } | Doing::Giving { operation, asks: false } => {
                    let may_ask = state.now < operation.ends;
                    actions.extend(may_ask.then_some(Action::Again(thread)));
                    actions.push(Action::GiveUp(thread));
                }
                _ => {}
            }
        }
        let works = |chore: &Chore| !chore.asks && (chore.due..chore.until).contains(&state.now);
        actions.extend((0..state.chores.len()).filter(|at| works(&state.chores[*at])).map(Action::Work));
        for (at, message) in state.wire.iter().enumerate() {
            match message.said {
                None => actions.push(Action::Execute(at)),
                Some(_) => actions.push(Action::Deliver(at)),
            }
            if message.waited && state.breaks > 0 {
                actions.push(Action::BreakOff(at));
            }
            if !message.waited {
                actions.push(Action::Vanish(at));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => Self::tick(&mut state),
            Action::Begin(thread) => {
                let operation = state.begin();
                state.threads[thread].1 -= 1;
                state.threads[thread].0 = Doing::Taking { operation, open: None, asks: false };
                self.attempt(&mut state, thread);
            }
            Action::Again(thread) => self.attempt(&mut state, thread),
            Action::GiveUp(thread) => self.give_up(&mut state, thread),
            Action::Release(thread) => {
                let operation = state.begin();
                state.threads[thread].0 = Doing::Giving { operation, asks: false };
                self.attempt(&mut state, thread);
            }
            Action::Work(at) => {
                state.chores[at].asks = true;
                let Chore { operation, what, .. } = state.chores[at];
                self.send(&mut state, operation, what, From::Background);
            }
            Action::Execute(at) => self.execute(&mut state, at),
            Action::Deliver(at) => {
                let message = state.wire.remove(at);
                self.deliver(&mut state, message);
            }
            Action::BreakOff(at) => self.break_off(&mut state, at),
            Action::Vanish(at) => drop(state.wire.remove(at)),
        }
        state.wire.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_MORE, |model: &Self, state: &State| state.left + state.holding() <= model.total),
            Property::always(NONE_LOST, |model: &Self, state: &State| {
                !state.is_quiet() || state.gave_up || state.left + state.holding() == model.total
            }),
        ]
    }
}

const BASE: Operations = Operations { total: 1, threads: 1, turns: 2, breaks: 2, end: 6, mutant: None };

/// Searches; what was found, and in how many states.
fn search(model: Operations) -> (usize, Vec<String>) {
    let found = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let steps = |path: stateright::Path<State, Action>| format!("{:?}", path.into_actions());
    let what = found.discoveries().into_iter().map(|(name, path)| format!("{name}: {}", steps(path))).collect();
    (found.unique_state_count(), what)
}

#[test]
fn no_permit_is_lost_or_doubled_within_the_bounds() {
    let large = std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large");
    let two = Operations { threads: 2, turns: 1, breaks: 1, end: 4, ..BASE };
    let wide = Operations { threads: 2, turns: 2, breaks: 2, end: 5, ..BASE };
    let more = Operations { total: 2, breaks: 1, end: 5, ..BASE };
    for model in [BASE, two, more].into_iter().chain(large.then_some(wide)) {
        let (states, found) = search(model);
        println!("operations, {model:?}: {states} states");
        assert!(found.is_empty(), "{model:?}: {}", found.join("\n"));
    }
}
