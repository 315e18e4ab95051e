//! What a client does: the accounting of src/lock/engine.rs around the crate's own tenures, one step at a time.

use crate::belief::{self, Word};
use crate::state::{Answer, Belief, Command, Doing, Fault, Field, From, Id, Message, Past, Stale, State, Thread, Tick};

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// How many threads each client has.
    pub(crate) clients: &'static [u8],
    /// How many times each thread comes to the lock.
    pub(crate) acquires: u8,
    /// How many attempts it makes each time.
    pub(crate) tries: u8,
    /// The last tick.
    pub(crate) end: Tick,
    /// The lease of an acquire, and of a renewal or a re-entry.
    pub(crate) leases: (Tick, Tick),
    /// How long an attempt may be executed.
    pub(crate) response: Tick,
    pub(crate) renewals: u8,
    pub(crate) reentries: u8,
    pub(crate) forces: u8,
    /// How many attempts are broken off before their answer comes.
    pub(crate) breaks: u8,
    pub(crate) passing: bool,
}

/// A rule of docs/protocol.md that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    OwnerIsThread,
    ValidFromReply,
    TtlWithoutMax,
    RenewalWithoutMax,
    RenewalAfterRelease,
    RenewalAfterLoss,
    RenewalAfterDeadline,
    PassesAfterUnknown,
    GuardReleasesByName,
    PassedGuardReleases,
    DeadIdAgain,
    ReenterCreates,
    RelativeCounts,
    ReleasesAnyones,
    RenewsAnyones,
    SweepsTooEarly,
    NoAttemptDeadline,
    NeverSweeps,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) setup: Setup,
    pub(crate) mutant: Option<Mutant>,
}

impl Protocol {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn field(&self, state: &State, id: Id) -> Field {
        if self.has(Mutant::OwnerIsThread) { state.tenure(id).thread } else { id }
    }

    pub(crate) fn start(&self) -> State {
        let clients = self.setup.clients.iter().zip(0..);
        let clients = clients.flat_map(|(threads, client)| std::iter::repeat_n(client, usize::from(*threads)));
        let left = self.setup.acquires;
        let threads = clients.map(|client| Thread { client, doing: Doing::Idle, left, stale: None }).collect();
        let Setup { renewals, reentries, forces, breaks, .. } = self.setup;
        let (wire, tenures) = (Vec::new(), Vec::new());
        State { now: 0, key: None, wire, tenures, threads, renewals, reentries, forces, breaks, fault: None }
    }

    /// Changes what is believed, by the crate's code.
    fn believe<T>(&self, state: &mut State, id: Id, act: impl FnOnce(&crate::lease::tenure::Tenure) -> T) -> T {
        let (now, tenure) = (state.now, state.tenure_mut(id));
        let (word, result) = belief::step(tenure.word, now, act);
        self.set(state, id, word);
        result
    }

    fn set(&self, state: &mut State, id: Id, word: Word) {
        let tenure = state.tenure_mut(id);
        tenure.word = word;
        let revived = tenure.was_lost && word != Word::Lost;
        tenure.was_lost |= word == Word::Lost;
        if revived {
            state.fault = Some(Fault::LostCameBack);
        }
    }

    /// Books an answer that something was acquired or prolonged. False when there is nothing to believe in.
    fn confirm(&self, state: &mut State, message: &Message) -> bool {
        let (id, now) = (message.id, state.now);
        let sent = if self.has(Mutant::ValidFromReply) { now } else { message.sent };
        let until = belief::moment(sent).plus(belief::lease(message.lease).validity()).0;
        let blind = match state.tenure(id).word {
            Word::Ended => self.has(Mutant::RenewalAfterRelease),
            Word::Lost => self.has(Mutant::RenewalAfterLoss),
            Word::Until(_) if self.has(Mutant::RenewalWithoutMax) => state.is_valid(id),
            Word::Until(_) => self.has(Mutant::RenewalAfterDeadline),
            Word::Pending => false,
        };
        if blind {
            self.set(state, id, Word::Until(until));
        }
        let confirmed = blind
            || self.believe(state, id, |tenure| tenure.confirm(belief::moment(sent), belief::lease(message.lease)));
        if confirmed && message.over && !state.tenure(id).forced_open() {
            state.fault = Some(Fault::Spanned);
        }
        confirmed
    }

    pub(crate) fn mint(&self, state: &mut State, thread: usize) -> Id {
        let (word, sweeps) = (Word::Pending, Vec::new());
        let thread = thread as u8;
        let past = Past::NeverHad;
        state.tenures.push(Belief { thread, word, open: 0, sweeps, was_lost: false, forced: false, past });
        (state.tenures.len() - 1) as Id
    }

    pub(crate) fn send(&self, state: &mut State, command: Command, id: Id, from: From) {
        let lease = if command == Command::Acquire { self.setup.leases.0 } else { self.setup.leases.1 };
        let (field, mut sent, mut deadline) = (self.field(state, id), state.now, self.deadline(state.now));
        if matches!(command, Command::Release(_)) {
            (sent, deadline) = (0, 0);
        }
        let (waited, answer, over) = (true, None, false);
        state.wire.push(Message { command, id, field, from, lease, sent, deadline, waited, answer, over });
    }

    /// The crate's sweep, at a tick.
    fn sweep_at(&self, state: &mut State, id: Id, due: Tick) {
        let tenure = state.tenure_mut(id);
        if !tenure.sweeps.contains(&due) && !self.has(Mutant::NeverSweeps) {
            tenure.sweeps.push(due);
            tenure.sweeps.sort_unstable();
        }
    }

    fn sweep_open(&self, state: &mut State, id: Id) {
        let open = state.tenure(id).open;
        if open > 0 {
            let due = if self.has(Mutant::SweepsTooEarly) { state.now } else { open };
            self.sweep_at(state, id, due);
        }
    }

    /// An attempt was broken off.
    fn note_open(&self, state: &mut State, message: &Message) {
        let tenure = state.tenure_mut(message.id);
        tenure.open = tenure.open.max(message.deadline);
        if tenure.word == Word::Lost {
            self.sweep_open(state, message.id);
        }
    }

    /// Someone noticed that it is lost.
    fn lost(&self, state: &mut State, id: Id) {
        self.believe(state, id, |tenure| tenure.lose());
        if state.tenure(id).word == Word::Lost {
            self.sweep_open(state, id);
        }
    }

    /// Books the answer to a renewal or a re-entry; false: lost.
    fn book(&self, state: &mut State, message: &Message, held: bool) -> bool {
        if held && self.confirm(state, message) {
            return true;
        }
        if held && state.tenure(message.id).word == Word::Lost {
            let now = state.now;
            self.sweep_at(state, message.id, now);
        }
        self.lost(state, message.id);
        false
    }

    /// The thread sends an acquire.
    pub(crate) fn try_take(&self, state: &mut State, thread: usize, id: Option<Id>, tries: u8) {
        let id = id.unwrap_or_else(|| self.mint(state, thread));
        state.threads[thread].doing = Doing::Acquiring { id, tries: tries - 1 };
        self.send(state, Command::Acquire, id, From::Thread(thread as u8));
    }

    /// The thread gives its acquire up.
    pub(crate) fn abandon(&self, state: &mut State, thread: usize, id: Option<Id>) {
        let actor = &mut state.threads[thread];
        actor.doing = Doing::Idle;
        if let Some(id) = id {
            actor.stale = Some(Stale { id, passed: false });
            self.sweep_open(state, id);
        }
    }

    fn contend(&self, state: &mut State, thread: usize, id: Option<Id>, tries: u8) {
        state.threads[thread].doing = Doing::Contending { id, tries };
        if tries == 0 {
            self.abandon(state, thread, id);
        }
    }

    /// The outermost unlock begins, or a granted thread gives back what it no longer wants.
    pub(crate) fn unlock(&self, state: &mut State, thread: usize, id: Id) {
        let ends = !self.has(Mutant::PassesAfterUnknown);
        let valid = self.believe(state, id, |tenure| if ends { tenure.end() } else { tenure.is_valid() });
        if valid {
            state.threads[thread].doing = Doing::Unlocking { id, doubt: false, tries: 1 };
            self.send(state, Command::Release(0), id, From::Thread(thread as u8));
        } else {
            self.sweep_now(state, id);
            self.done(state, thread, id);
        }
    }

    fn sweep_now(&self, state: &mut State, id: Id) {
        let now = state.now;
        self.sweep_at(state, id, now);
        self.sweep_open(state, id);
    }

    fn done(&self, state: &mut State, thread: usize, id: Id) {
        let actor = &mut state.threads[thread];
        actor.stale = Some(Stale { id, passed: false });
        actor.doing = Doing::Idle;
    }

    /// A sibling gets the tenure in memory.
    pub(crate) fn pass_on(&self, state: &mut State, thread: usize, id: Id, sibling: usize) {
        state.threads[thread].stale = Some(Stale { id, passed: true });
        state.threads[thread].doing = Doing::Idle;
        state.threads[sibling].doing = Doing::Granted { id, count: 1 };
    }

    /// A granted thread wakes: too late, it goes to the wire.
    pub(crate) fn wake(&self, state: &mut State, thread: usize, id: Id, count: u8) {
        if self.believe(state, id, |tenure| tenure.is_valid()) {
            state.threads[thread].doing = Doing::Holding { id, count };
        } else {
            self.lost(state, id);
            self.sweep_now(state, id);
            self.contend(state, thread, None, self.setup.tries);
        }
    }

    /// No answer came to the one who waited for it.
    pub(crate) fn break_off(&self, state: &mut State, message: &Message) {
        let id = message.id;
        match (message.from, message.command) {
            (From::Sweeper, _) => {
                let now = state.now;
                self.sweep_at(state, id, now);
            }
            (From::Watchdog, _) => self.note_open(state, message),
            (From::Thread(thread), command) => self.answer_thread(state, thread.into(), command, message, None),
        }
    }

    /// An answer arrives.
    pub(crate) fn deliver(&self, state: &mut State, message: &Message, answer: Answer) {
        match (message.from, answer) {
            (From::Sweeper, _) | (From::Watchdog, Answer::Stale) => {}
            (From::Watchdog, answer) => drop(self.book(state, message, answer == Answer::Yes)),
            (From::Thread(thread), answer) => {
                self.answer_thread(state, thread.into(), message.command, message, Some(answer));
            }
        }
    }

    /// `None`: it was broken off.
    fn answer_thread(&self, state: &mut State, thread: usize, command: Command, at: &Message, answer: Option<Answer>) {
        if answer.is_none() && !matches!(command, Command::Release(_)) {
            self.note_open(state, at);
        }
        match (state.threads[thread].doing, command) {
            (Doing::Acquiring { id, tries }, Command::Acquire) => {
                self.answer_acquire(state, thread, (id, tries), at, answer);
            }
            (Doing::Reentering { id, count }, _) => {
                let done = matches!(answer, Some(Answer::Yes | Answer::No))
                    && self.book(state, at, answer == Some(Answer::Yes));
                state.threads[thread].doing = Doing::Holding { id, count: count + u8::from(done) };
            }
            (Doing::Lowering { id, count }, _) => {
                if answer == Some(Answer::No) {
                    self.lost(state, id);
                }
                state.threads[thread].doing = Doing::Holding { id, count };
            }
            (Doing::Unlocking { id, doubt, tries }, _) => {
                self.answer_unlock(state, thread, (id, doubt, tries), answer);
            }
            (doing, _) => unreachable!("{doing:?} got the answer to {at:?}"),
        }
    }

    fn answer_acquire(
        &self,
        state: &mut State,
        thread: usize,
        (id, tries): (Id, u8),
        at: &Message,
        answer: Option<Answer>,
    ) {
        let open = state.tenure(id).open > 0;
        match answer {
            Some(Answer::Yes) if self.confirm(state, at) => {
                state.tenure_mut(id).past = Past::Had;
                state.threads[thread].doing = Doing::Holding { id, count: 1 };
            }
            Some(Answer::Yes) => {
                self.believe(state, id, |tenure| tenure.end());
                self.sweep_now(state, id);
                self.contend(state, thread, None, tries);
            }
            Some(Answer::No) if open => {
                self.sweep_open(state, id);
                self.contend(state, thread, None, tries);
            }
            _ => self.contend(state, thread, Some(id), tries),
        }
    }

    fn answer_unlock(&self, state: &mut State, thread: usize, now: (Id, bool, u8), answer: Option<Answer>) {
        let (id, _, tries) = now;
        if answer.is_none() && tries > 0 {
            state.threads[thread].doing = Doing::Unlocking { id, doubt: true, tries: tries - 1 };
            self.send(state, Command::Release(0), id, From::Thread(thread as u8));
            return;
        }
        if answer.is_none() {
            self.sweep_now(state, id);
        }
        self.sweep_open(state, id);
        self.done(state, thread, id);
    }
}

impl Belief {
    /// The one case in which a hold may come back unnoticed: a force unlock, while an early copy of its acquire
    /// could still be executed (docs/protocol.md, 3).
    fn forced_open(&self) -> bool {
        self.forced && self.open > 0
    }
}
