//! What can happen next, what must never be so, and the searches of the protocol as it is.

use crate::belief::Word;
use crate::protocol::{Mutant, Protocol, Setup};
use crate::state::{Command, Doing, Fault, From, Id, State};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// The server executes a request, awaited or not.
    Execute(usize),
    /// An answer arrives.
    Deliver(usize),
    /// The sender waits no longer: a time-out, or an early end of the connection.
    BreakOff(usize),
    /// A thread comes to the lock, or tries once more.
    Try(usize),
    Park(usize),
    /// It stops waiting.
    GiveUp(usize),
    Reenter(usize),
    Unlock(usize),
    PassOn(usize, usize),
    Wake(usize),
    /// A guard of an earlier hold is dropped.
    DropStale(usize),
    Renew(Id),
    Sweep(Id),
    Force,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        if state.now < self.setup.end {
            actions.push(Action::Tick);
        }
        if state.forces > 0 && state.key.is_some() {
            actions.push(Action::Force);
        }
        self.actions_of_wire(state, actions);
        for thread in 0..state.threads.len() {
            self.actions_of_thread(state, thread, actions);
        }
        self.actions_of_background(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Self::expire_key(&mut state);
        // Without a sender that waits, a request that would be found stale does nothing.
        let (now, forgets) = (state.now, !self.has(Mutant::NoAttemptDeadline));
        let is_release = |command| matches!(command, Command::Release(_));
        state.wire.retain(|at| at.waited || is_release(at.command) || !forgets || now < at.deadline);
        // A late copy more of what a late copy does already is left out: a stated bound.
        state.wire.sort_unstable();
        state.wire.dedup_by(|one, other| !one.waited && one == other);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one belief at a time", |_, state: &State| state.beliefs().count() <= 1),
            Property::always("a release frees nothing but its own hold", |_, state: &State| {
                state.fault != Some(Fault::StrangerFreed)
            }),
            Property::always("a key has someone who will free it", |model: &Self, state: &State| {
                state.key.is_none_or(|key| state.is_cared_for(key.owner, |id| model.field(state, id)))
            }),
            Property::always("what was unlocked is not valid", |_, state: &State| state.unlocked_are_over()),
            Property::always("lost is for good", |_, state: &State| state.fault != Some(Fault::LostCameBack)),
            Property::always("a hold that was interrupted is not prolonged", |_, state: &State| {
                state.fault != Some(Fault::Spanned)
            }),
        ]
    }
}

impl State {
    fn unlocked_are_over(&self) -> bool {
        let stale = self.threads.iter().filter_map(|thread| thread.stale);
        stale.filter(|stale| !stale.passed).all(|stale| !self.is_valid(stale.id))
    }

    fn siblings(&self, thread: usize) -> impl Iterator<Item = usize> {
        let same = move |other: &usize| *other != thread && self.threads[*other].client == self.threads[thread].client;
        (0..self.threads.len()).filter(same)
    }

    /// Whether a sibling has the lock, or is just giving it up: then nobody of the client contends.
    fn is_occupied(&self, thread: usize) -> bool {
        self.siblings(thread).any(|sibling| match self.threads[sibling].doing {
            Doing::Unlocking { .. } => true,
            doing => doing.held().is_some_and(|id| self.is_valid(id)),
        })
    }

    fn parked_sibling(&self, thread: usize) -> Option<usize> {
        self.siblings(thread).find(|sibling| self.threads[*sibling].doing == Doing::Parked)
    }
}

impl Protocol {
    fn actions_of_wire(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, message) in
            state.wire.iter().enumerate().filter(|(at, message)| *at == 0 || state.wire[at - 1] != **message)
        {
            match message.answer {
                None => actions.push(Action::Execute(at)),
                Some(_) => actions.push(Action::Deliver(at)),
            }
            if message.waited && state.breaks > 0 {
                actions.push(Action::BreakOff(at));
            }
        }
    }

    fn actions_of_thread(&self, state: &State, thread: usize, actions: &mut Vec<Action>) {
        let free = !state.is_occupied(thread);
        match state.threads[thread].doing {
            Doing::Idle if state.threads[thread].left == 0 => {}
            Doing::Idle if free => actions.push(Action::Try(thread)),
            Doing::Idle if self.setup.passing => actions.push(Action::Park(thread)),
            Doing::Idle | Doing::Acquiring { .. } | Doing::Reentering { .. } | Doing::Lowering { .. } => {}
            Doing::Contending { .. } | Doing::Parked => {
                if free {
                    actions.push(Action::Try(thread));
                }
                actions.push(Action::GiveUp(thread));
            }
            Doing::Granted { .. } => actions.extend([Action::Wake(thread), Action::GiveUp(thread)]),
            Doing::Holding { id, count } => self.actions_of_holder(state, (thread, id, count), actions),
            Doing::Unlocking { doubt, .. } => {
                let sibling = state.parked_sibling(thread).filter(|_| doubt && self.has(Mutant::PassesAfterUnknown));
                actions.extend(sibling.map(|sibling| Action::PassOn(thread, sibling)));
            }
        }
        if state.threads[thread].stale.is_some() && self.drops_matter() {
            actions.push(Action::DropStale(thread));
        }
    }

    /// A guard of a hold that ended does nothing when it is dropped; but for those who get that wrong.
    fn drops_matter(&self) -> bool {
        self.has(Mutant::GuardReleasesByName) || self.has(Mutant::PassedGuardReleases)
    }

    fn actions_of_holder(&self, state: &State, (thread, id, count): (usize, Id, u8), actions: &mut Vec<Action>) {
        actions.push(Action::Unlock(thread));
        if state.reentries > 0 && state.is_valid(id) {
            actions.push(Action::Reenter(thread));
        }
        let sibling = state.parked_sibling(thread).filter(|_| count == 1 && state.is_valid(id));
        actions.extend(sibling.map(|sibling| Action::PassOn(thread, sibling)));
    }

    fn actions_of_background(&self, state: &State, actions: &mut Vec<Action>) {
        for (id, tenure) in state.tenures.iter().enumerate() {
            let id = id as Id;
            let under_way = |from| state.wire.iter().any(|at| at.id == id && at.from == from && at.waited);
            if state.renewals > 0 && matches!(tenure.word, Word::Until(_)) && !under_way(From::Watchdog) {
                actions.push(Action::Renew(id));
            }
            if tenure.sweeps.first().is_some_and(|due| *due <= state.now) && !under_way(From::Sweeper) {
                actions.push(Action::Sweep(id));
            }
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.now += 1,
            Action::Force => {
                state.forces -= 1;
                self.force(state);
            }
            Action::Execute(at) => {
                let mut message = state.wire.remove(at);
                message.answer = Some(self.execute(state, &mut message));
                state.wire.extend(Some(message).filter(|message| message.waited));
            }
            Action::Deliver(at) => {
                let message = state.wire.remove(at);
                self.deliver(state, &message, message.answer.expect("only answers are delivered"));
            }
            Action::BreakOff(at) => {
                state.breaks -= 1;
                let mut message = state.wire.remove(at);
                message.waited = false;
                state.wire.extend(Some(message).filter(|message| message.answer.is_none()));
                self.break_off(state, &message);
            }
            Action::Renew(id) => {
                state.renewals -= 1;
                self.send(state, Command::Renew, id, From::Watchdog);
            }
            Action::Sweep(id) => {
                state.tenure_mut(id).sweeps.remove(0);
                self.send(state, Command::Release(0), id, From::Sweeper);
            }
            _ => self.act_of_thread(state, action),
        }
    }

    fn act_of_thread(&self, state: &mut State, action: Action) {
        match action {
            Action::Try(thread) => self.come(state, thread),
            Action::Park(thread) => {
                state.threads[thread].left -= 1;
                state.threads[thread].doing = Doing::Parked;
            }
            Action::GiveUp(thread) => match state.threads[thread].doing {
                Doing::Granted { id, .. } => self.unlock(state, thread, id),
                doing => self.abandon(state, thread, doing.id()),
            },
            Action::Unlock(thread) => self.close_level(state, thread),
            Action::Reenter(thread) => {
                if let Doing::Holding { id, count } = state.threads[thread].doing {
                    state.reentries -= 1;
                    state.threads[thread].doing = Doing::Reentering { id, count };
                    self.send(state, Command::Reenter(count + 1), id, From::Thread(thread as u8));
                }
            }
            Action::PassOn(thread, sibling) => {
                let id = state.threads[thread].doing.id().expect("only a hold is passed on");
                state.wire.retain(|at| at.from != From::Thread(thread as u8) || !at.waited);
                self.pass_on(state, thread, id, sibling);
            }
            Action::Wake(thread) => {
                if let Doing::Granted { id, count } = state.threads[thread].doing {
                    self.wake(state, thread, id, count);
                }
            }
            Action::DropStale(thread) => self.drop_stale(state, thread),
            _ => unreachable!("{action:?} is of no thread"),
        }
    }

    /// A thread comes to the lock, or tries again.
    fn come(&self, state: &mut State, thread: usize) {
        let actor = &mut state.threads[thread];
        match actor.doing {
            Doing::Contending { id, tries } => self.try_take(state, thread, id, tries),
            doing => {
                actor.left -= u8::from(doing == Doing::Idle);
                let dead = actor.stale.filter(|_| self.has(Mutant::DeadIdAgain)).map(|stale| stale.id);
                let dead = dead.filter(|id| state.tenure(*id).word == Word::Pending);
                self.try_take(state, thread, dead, self.setup.tries);
            }
        }
    }

    /// An unlock: of an inner level, which is mirrored on the server, or of the outermost.
    fn close_level(&self, state: &mut State, thread: usize) {
        match state.threads[thread].doing {
            Doing::Holding { id, count } if count > 1 => {
                state.threads[thread].doing = Doing::Lowering { id, count: count - 1 };
                self.send(state, Command::Release(count - 1), id, From::Thread(thread as u8));
            }
            Doing::Holding { id, .. } => self.unlock(state, thread, id),
            doing => unreachable!("{doing:?} is not unlocked"),
        }
    }

    fn drop_stale(&self, state: &mut State, thread: usize) {
        let stale = state.threads[thread].stale.take();
        let Some(stale) = stale else { return };
        let by_name = state.threads[thread].doing.held().filter(|_| self.has(Mutant::GuardReleasesByName));
        let by_owner = Some(stale.id).filter(|_| stale.passed && self.has(Mutant::PassedGuardReleases));
        if let Some(freed) = by_name.or(by_owner) {
            let field = self.field(state, freed);
            self.send(state, Command::Release(0), stale.id, From::Sweeper);
            state.wire.last_mut().expect("it was just sent").field = field;
        }
    }
}

/// What is explored with each change of the crate.
const SMALL: [(&str, Setup); 5] = [
    ("late copies", Setup { breaks: 2, tries: 2, clients: &[1], ..BASE }),
    ("two clients", Setup { breaks: 1, ..BASE }),
    ("renewals", Setup { renewals: 1, ..BASE }),
    ("re-entry and force unlock", Setup { reentries: 1, forces: 1, ..BASE }),
    ("passing on", Setup { clients: &[2, 1], passing: true, end: 2, ..BASE }),
];

/// What is explored by hand, some hours of one core: docs/model.md.
const LARGE: [(&str, Setup); 6] = [
    ("late copies", Setup { breaks: 2, tries: 2, end: 4, ..BASE }),
    ("twice each", Setup { acquires: 2, breaks: 1, end: 4, ..BASE }),
    ("renewals", Setup { breaks: 1, renewals: 2, end: 4, leases: (3, 2), ..BASE }),
    ("re-entry and force unlock", Setup { breaks: 1, reentries: 1, forces: 1, renewals: 1, ..BASE }),
    ("three clients", Setup { clients: &[1, 1, 1], breaks: 1, ..BASE }),
    ("passing on", Setup { clients: &[2, 1], breaks: 1, renewals: 1, passing: true, ..BASE }),
];

pub(crate) const BASE: Setup = Setup {
    clients: &[1, 1],
    acquires: 1,
    tries: 1,
    end: 3,
    leases: (2, 2),
    response: 1,
    renewals: 0,
    reentries: 0,
    forces: 0,
    breaks: 0,
    passing: false,
};

/// Searches; what was found, with the steps that led there.
pub(crate) fn search(protocol: Protocol, threads: usize, until: HasDiscoveries) -> (usize, Vec<String>) {
    let found = protocol.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let steps = |path: stateright::Path<State, Action>| {
        path.into_vec().iter().map(|(state, action)| format!("{state:?}\n  -> {action:?}")).collect::<Vec<_>>()
    };
    let found_what = found.discoveries().into_iter();
    let found_what = found_what.map(|(name, path)| format!("{name}:\n{}", steps(path).join("\n"))).collect();
    (found.unique_state_count(), found_what)
}

fn assert_holds(name: &str, setup: Setup, threads: usize) {
    let started = Instant::now();
    let (states, found) = search(Protocol { setup, mutant: None }, threads, HasDiscoveries::AnyFailures);
    assert!(found.is_empty(), "{name}: {}", found.join("\n"));
    println!("{name}: {states} states in {:.1} s", started.elapsed().as_secs_f64());
}

#[test]
fn the_protocol_holds_within_its_bounds() {
    let large = std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large");
    let setups: &[_] = if large { &LARGE } else { &SMALL };
    for (name, setup) in setups {
        assert_holds(name, *setup, if large { 2 } else { 1 });
    }
}
