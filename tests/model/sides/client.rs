//! What a client does: the accounting of src/lock/engine.rs around the crate's own tenures, one step at a time, for both sides.

use super::state::{Belief, Command, Doing, Fault, From, Message, Past, Side, State, Thread};
use crate::belief::{self, Word};
use crate::lease::tenure::Tenure;
use crate::state::{Answer, Id, Tick};

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// Of each thread its client, and how often it comes to read and to write.
    pub(super) threads: &'static [(u8, u8, u8)],
    /// How many attempts it makes each time.
    pub(super) tries: u8,
    /// The last tick.
    pub(super) end: Tick,
    /// The leases of the sides.
    pub(super) leases: [Tick; 2],
    /// How long an attempt may be executed.
    pub(super) response: Tick,
    pub(super) renewals: u8,
    pub(super) forces: u8,
    pub(super) evictions: u8,
    /// How many attempts are broken off before their answer comes.
    pub(super) breaks: u8,
    /// Threads of a client share read tenures.
    pub(super) shares: bool,
}

/// A rule of docs/protocol.md, 16, that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A renewal counts though the time-out is gone.
    RenewsWithoutTimeOut,
    /// It prolongs the lock though the time-out is gone.
    RenewsForTheDead,
    /// A renewal prolongs the time-out and not the lock.
    RenewsTheTimeOutAlone,
    /// A reader's time-out is not made with its field.
    ReadsWithoutTimeOut,
    /// What gives a lease sets the lock's TTL, as Redisson's renewal of a reader does.
    TtlWithoutMax,
    /// A release of a reader deletes the lock though others are in.
    FreesBesideReaders,
    /// It cuts the lock's TTL to that of the readers though a writer is in, as Redisson's does.
    CutsTheWriter,
    /// It cuts the TTL to the least that a reader has left.
    CutsToTheShortest,
    /// A field without a time-out keeps the lock.
    KeepsTheDead,
    /// A release does not delete its time-out.
    LeavesItsTimeOut,
    /// Who gives the write side up leaves the mode as it is, or who forces it open does.
    LeavesTheMode,
    ForceLeavesTheMode,
    /// A write hold that is shown as proof is not looked for.
    TrustsTheProof,
    /// A writer comes in beside readers.
    WritesBesideReaders,
    /// A read tenure that was acquired under a write hold is shared.
    SharesUnderAWriter,
    /// A write hold under which somebody reads is swept no longer than its own lease lasts.
    SweepsForALease,
    /// It is not swept when that has ended.
    LeavesWhatIsLost,
    /// The server does not look at an attempt's deadline.
    NoAttemptDeadline,
    /// The best-effort release goes out before the open deadline, or never.
    SweepsTooEarly,
    NeverSweeps,
    /// A renewal counts whose hold's deadline had passed when the answer came.
    RenewalAfterDeadline,
    /// Validity counts from the reply.
    ValidFromReply,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sides {
    pub(super) setup: Setup,
    pub(super) mutant: Option<Mutant>,
}

impl Sides {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn start(&self) -> State {
        let thread = |&(client, reads, writes): &(u8, u8, u8)| {
            let (doing, holds, left) = (Doing::Idle, [None; 2], [reads, writes]);
            Thread { client, doing, holds, left }
        };
        let threads = self.setup.threads.iter().map(thread).collect();
        let Setup { renewals, forces, evictions, breaks, .. } = self.setup;
        let (lock, timeouts, wire, tenures, fault) = (None, Vec::new(), Vec::new(), Vec::new(), None);
        State { now: 0, lock, timeouts, wire, tenures, threads, renewals, forces, evictions, breaks, fault }
    }

    /// Changes what is believed, by the crate's code.
    fn believe<T>(state: &mut State, id: Id, act: impl FnOnce(&Tenure) -> T) -> T {
        let (now, tenure) = (state.now, state.tenure_mut(id));
        let (word, result) = belief::step(tenure.word, now, act);
        Self::set(state, id, word);
        result
    }

    fn set(state: &mut State, id: Id, word: Word) {
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
        let (moment, lease) = (belief::moment(sent), belief::lease(message.lease));
        let blind = self.has(Mutant::RenewalAfterDeadline) && matches!(state.tenure(id).word, Word::Until(_));
        if blind {
            Self::set(state, id, Word::Until(moment.plus(lease.validity()).0));
        }
        let confirmed = blind || Self::believe(state, id, |tenure| tenure.confirm(moment, lease));
        if confirmed && message.over && !state.tenure(id).came_back_open() {
            state.fault = Some(Fault::Spanned);
        }
        confirmed
    }

    fn mint(state: &mut State, thread: usize, side: Side) -> Id {
        let (word, past, thread) = (Word::Pending, Past::NeverHad, thread as u8);
        let (open, sweeps, lease_until) = (0, Vec::new(), 0);
        let (is_shared, was_lost, forced, evicted) = (false, false, false, false);
        let fresh =
            Belief { side, thread, word, open, sweeps, lease_until, is_shared, was_lost, forced, evicted, past };
        state.tenures.push(fresh);
        state.timeouts.push(0);
        (state.tenures.len() - 1) as Id
    }

    pub(super) fn send(&self, state: &mut State, command: Command, id: Id, from: From) {
        let lease = self.setup.leases[state.tenure(id).side as usize];
        let (mut sent, mut deadline) = (state.now, state.now + self.setup.response);
        if command == Command::Release {
            (sent, deadline) = (0, 0);
        } else {
            // What is executed at the last moment.
            Self::may_last(state, id, deadline.saturating_sub(1) + lease);
        }
        let (waited, answer, over) = (true, None, false);
        state.wire.push(Message { command, id, from, lease, sent, deadline, waited, answer, over });
    }

    /// Until when the key may be there.
    fn may_last(state: &mut State, id: Id, until: Tick) {
        let tenure = state.tenure_mut(id);
        tenure.lease_until = tenure.lease_until.max(until);
    }

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

    fn sweep_now(&self, state: &mut State, id: Id) {
        let now = state.now;
        self.sweep_at(state, id, now);
        self.sweep_open(state, id);
    }

    /// An attempt was broken off.
    fn note_open(&self, state: &mut State, message: &Message) {
        let tenure = state.tenure_mut(message.id);
        tenure.open = tenure.open.max(message.deadline);
        if tenure.word == Word::Lost {
            self.sweep_open(state, message.id);
        }
    }

    /// Someone noticed that it is lost, or that its time is over.
    pub(super) fn lost(&self, state: &mut State, id: Id) {
        Self::believe(state, id, Tenure::lose);
        if state.tenure(id).word != Word::Lost {
            return;
        }
        self.sweep_open(state, id);
        let stays = state.tenure(id).lease_until == Tick::MAX || self.has(Mutant::SweepsForALease);
        if stays && !self.has(Mutant::LeavesWhatIsLost) {
            let now = state.now;
            self.sweep_at(state, id, now);
        }
    }

    /// Books the answer to a renewal.
    fn book(&self, state: &mut State, message: &Message, held: bool) {
        if held && self.confirm(state, message) {
            return;
        }
        if held && state.tenure(message.id).word == Word::Lost {
            let now = state.now;
            self.sweep_at(state, message.id, now);
        }
        self.lost(state, message.id);
    }

    /// The thread sends an acquire. A reader shows the write hold of its thread, if it believes in it; a writer ends the sharing.
    pub(super) fn try_take(&self, state: &mut State, thread: usize, side: Side, id: Option<Id>, tries: u8) {
        let id = id.unwrap_or_else(|| Self::mint(state, thread, side));
        state.threads[thread].doing = Doing::Acquiring { id, tries: tries - 1 };
        let proof =
            state.threads[thread].hold(Side::Write).filter(|write| side == Side::Read && state.is_valid(*write));
        // Its field stays for as long as the reader keeps the lock.
        if let Some(write) = proof.filter(|_| !self.has(Mutant::SweepsForALease)) {
            Self::may_last(state, write, Tick::MAX);
        }
        if side == Side::Write {
            Self::shut(state, thread);
        }
        self.send(state, Command::Acquire(proof), id, From::Thread(thread as u8));
    }

    fn shut(state: &mut State, thread: usize) {
        let client = state.threads[thread].client;
        let of_client: Vec<_> = state.threads.iter().map(|thread| thread.client == client).collect();
        let is_of = |tenure: &&mut Belief| of_client[usize::from(tenure.thread)];
        state.tenures.iter_mut().filter(is_of).for_each(|tenure| tenure.is_shared = false);
    }

    /// The thread gives its acquire up.
    pub(super) fn abandon(&self, state: &mut State, thread: usize, id: Option<Id>) {
        state.threads[thread].doing = Doing::Idle;
        if let Some(id) = id {
            self.sweep_open(state, id);
        }
    }

    fn contend(&self, state: &mut State, thread: usize, side: Side, id: Option<Id>, tries: u8) {
        state.threads[thread].doing = Doing::Contending { side, id, tries };
        if tries == 0 {
            self.abandon(state, thread, id);
        }
    }

    /// The outermost unlock of a side. Of a tenure that others share nothing is sent.
    pub(super) fn unlock(&self, state: &mut State, thread: usize, side: Side) {
        let Some(id) = state.threads[thread].holds[side as usize].take() else { return };
        if state.threads.iter().any(|other| other.hold(side) == Some(id)) {
            return;
        }
        state.tenure_mut(id).is_shared = false;
        if Self::believe(state, id, Tenure::end) {
            state.threads[thread].doing = Doing::Unlocking { id, tries: 1 };
            self.send(state, Command::Release, id, From::Thread(thread as u8));
        } else {
            self.sweep_now(state, id);
        }
    }

    /// No answer came to the one who waited for it.
    pub(super) fn break_off(&self, state: &mut State, message: &Message) {
        let (id, now) = (message.id, state.now);
        match message.from {
            From::Sweeper if now < state.tenure(id).lease_until => self.sweep_at(state, id, now),
            From::Sweeper => {}
            From::Watchdog => self.note_open(state, message),
            From::Thread(thread) => self.answer_thread(state, thread.into(), message, None),
        }
    }

    /// An answer arrives.
    pub(super) fn deliver(&self, state: &mut State, message: &Message, answer: Answer) {
        match (message.from, answer) {
            (From::Sweeper, _) | (From::Watchdog, Answer::Stale) => {}
            (From::Watchdog, answer) => self.book(state, message, answer == Answer::Yes),
            (From::Thread(thread), answer) => self.answer_thread(state, thread.into(), message, Some(answer)),
        }
    }

    /// `None`: it was broken off.
    fn answer_thread(&self, state: &mut State, thread: usize, message: &Message, answer: Option<Answer>) {
        match state.threads[thread].doing {
            Doing::Acquiring { id, tries } => {
                if answer.is_none() {
                    self.note_open(state, message);
                }
                self.answer_acquire(state, thread, (id, tries), message, answer);
            }
            Doing::Unlocking { id, tries } => self.answer_unlock(state, thread, (id, tries), answer),
            doing => unreachable!("{doing:?} got the answer to {message:?}"),
        }
    }

    fn answer_acquire(&self, state: &mut State, thread: usize, now: (Id, u8), at: &Message, answer: Option<Answer>) {
        let (id, tries) = now;
        let (side, open) = (state.tenure(id).side, state.tenure(id).open > 0);
        match answer {
            Some(Answer::Yes) if self.confirm(state, at) => self.settle(state, thread, id),
            Some(Answer::Yes) => {
                Self::believe(state, id, Tenure::end);
                self.sweep_now(state, id);
                self.contend(state, thread, side, None, tries);
            }
            Some(Answer::No) if open => {
                self.sweep_open(state, id);
                self.contend(state, thread, side, None, tries);
            }
            _ => self.contend(state, thread, side, Some(id), tries),
        }
    }

    /// The thread has it. What was acquired beside a write hold of the same thread is not shared.
    fn settle(&self, state: &mut State, thread: usize, id: Id) {
        let side = state.tenure(id).side;
        if side == Side::Write {
            Self::shut(state, thread);
        }
        let alone = state.threads[thread].hold(Side::Write).is_none() || self.has(Mutant::SharesUnderAWriter);
        let tenure = state.tenure_mut(id);
        tenure.past = Past::Had;
        tenure.is_shared = self.setup.shares && side == Side::Read && alone;
        state.threads[thread].holds[side as usize] = Some(id);
        state.threads[thread].doing = Doing::Idle;
    }

    fn answer_unlock(&self, state: &mut State, thread: usize, now: (Id, u8), answer: Option<Answer>) {
        let (id, tries) = now;
        if answer.is_none() && tries > 0 {
            state.threads[thread].doing = Doing::Unlocking { id, tries: tries - 1 };
            self.send(state, Command::Release, id, From::Thread(thread as u8));
            return;
        }
        if answer.is_none() {
            self.sweep_now(state, id);
        }
        self.sweep_open(state, id);
        state.threads[thread].doing = Doing::Idle;
    }
}

impl Belief {
    /// The one case in which a hold may come back unnoticed: its key was taken away while an early copy of its acquire could still be
    /// executed (docs/protocol.md, 3).
    fn came_back_open(&self) -> bool {
        self.forced && self.open > 0
    }
}
