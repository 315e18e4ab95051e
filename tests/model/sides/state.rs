//! The model's state: one lock with two sides, the time-outs of its readers, what is on the wire, and what each thread is doing.

use crate::belief::{self, Word};
use crate::state::{Answer, Id, Tick};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Side {
    Read,
    Write,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    pub(super) lock: Option<Lock>,
    /// On the server, by the id of the read hold: until when; zero: there is none.
    pub(super) timeouts: Vec<Tick>,
    /// Sorted, so that states which differ in nothing but the order are one.
    pub(super) wire: Vec<Message>,
    pub(super) tenures: Vec<Belief>,
    pub(super) threads: Vec<Thread>,
    pub(super) renewals: u8,
    pub(super) forces: u8,
    pub(super) evictions: u8,
    /// How many more answers may fail to come.
    pub(super) breaks: u8,
    /// What went wrong in a step, where no look at a state can tell it.
    pub(super) fault: Option<Fault>,
}

/// The hash on the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    /// Its mode is `write`, else `read`.
    pub(super) writes: bool,
    /// Sorted, of either side.
    pub(super) fields: Vec<Id>,
    pub(super) until: Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) command: Command,
    /// The tenure in whose name it was sent.
    pub(super) id: Id,
    pub(super) from: From,
    pub(super) lease: Tick,
    pub(super) sent: Tick,
    pub(super) deadline: Tick,
    /// Whether its sender still waits for the reply.
    pub(super) waited: bool,
    pub(super) answer: Option<Answer>,
    /// It was executed as if nothing had happened, though somebody whom it excludes had the lock meanwhile.
    pub(super) over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Command {
    /// Of a reader with the write hold of its thread, if that has one.
    Acquire(Option<Id>),
    Renew,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum From {
    Thread(u8),
    Watchdog,
    Sweeper,
}

/// A tenure: what its client believes, and (the last four) what only the model knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Belief {
    pub(super) side: Side,
    pub(super) thread: u8,
    pub(super) word: Word,
    /// The latest deadline of an attempt that was broken off; zero: none.
    pub(super) open: Tick,
    /// When best-effort releases of it are due, and until when they are made again.
    pub(super) sweeps: Vec<Tick>,
    pub(super) lease_until: Tick,
    /// Whether other threads of its client may have it, too.
    pub(super) is_shared: bool,
    pub(super) was_lost: bool,
    /// A force unlock removed its field: it may believe for a while what is not so.
    pub(super) forced: bool,
    /// Its time-out was evicted, and the server has not been asked since.
    pub(super) evicted: bool,
    pub(super) past: Past,
}

/// Whether somebody had the lock whom it excludes, since it had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Past {
    NeverHad,
    Had,
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pub(super) client: u8,
    pub(super) doing: Doing,
    /// What it has to unlock, believed in or not.
    pub(super) holds: [Option<Id>; 2],
    /// How many more times it will come to each side.
    pub(super) left: [u8; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Idle,
    /// Between two attempts; with the id if it may be sent again.
    Contending {
        side: Side,
        id: Option<Id>,
        tries: u8,
    },
    Acquiring {
        id: Id,
        tries: u8,
    },
    Unlocking {
        id: Id,
        tries: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    StrangerFreed,
    LostCameBack,
    Spanned,
}

impl Doing {
    fn id(self) -> Option<Id> {
        match self {
            Self::Idle => None,
            Self::Contending { id, .. } => id,
            Self::Acquiring { id, .. } | Self::Unlocking { id, .. } => Some(id),
        }
    }
}

impl Thread {
    pub(super) fn hold(&self, side: Side) -> Option<Id> {
        self.holds[side as usize]
    }
}

impl State {
    pub(super) fn tenure(&self, id: Id) -> &Belief {
        &self.tenures[usize::from(id)]
    }

    pub(super) fn tenure_mut(&mut self, id: Id) -> &mut Belief {
        &mut self.tenures[usize::from(id)]
    }

    pub(super) fn is_valid(&self, id: Id) -> bool {
        belief::is_valid(self.tenure(id).word, self.now)
    }

    pub(super) fn has_field(&self, id: Id) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.fields.contains(&id))
    }

    pub(super) fn timeout(&self, id: Id) -> Tick {
        self.timeouts[usize::from(id)]
    }

    /// Whether a field keeps others out: that of a reader does as long as there is its time-out.
    pub(super) fn is_live(&self, id: Id) -> bool {
        self.tenure(id).side == Side::Write || self.timeout(id) > 0
    }

    /// The holds in which some thread believes right now, but those that a force unlock or an eviction has ended: they are told at
    /// their next renewal.
    fn beliefs(&self) -> impl Iterator<Item = (usize, Id)> {
        let of = |(thread, actor): (usize, &Thread)| actor.holds.map(|id| Some((thread, id?)));
        let held = self.threads.iter().enumerate().flat_map(of).flatten();
        held.filter(|(_, id)| !self.tenure(*id).forced && !self.tenure(*id).evicted && self.is_valid(*id))
    }

    pub(super) fn writers_are_alone(&self) -> bool {
        let excludes = |(one, id): (usize, Id)| {
            let is_writer = self.tenure(id).side == Side::Write;
            is_writer && self.beliefs().any(|(other, _)| other != one)
        };
        !self.beliefs().any(excludes)
    }

    /// A reader has a field and a time-out, a writer a field and the mode.
    pub(super) fn beliefs_are_grounded(&self) -> bool {
        let is_there = |(_, id): (usize, Id)| {
            let writes = self.lock.as_ref().is_some_and(|lock| lock.writes);
            self.has_field(id) && self.is_live(id) && (writes || self.tenure(id).side == Side::Read)
        };
        self.beliefs().all(is_there)
    }

    /// The lock lasts as long as each who believes in it, and as each time-out that it has a field of.
    pub(super) fn lock_outlives_holds(&self) -> bool {
        let Some(lock) = &self.lock else { return true };
        let lasts = |(_, id): (usize, Id)| match self.tenure(id).word {
            Word::Until(deadline) => deadline <= belief::moment(lock.until).0,
            _ => true,
        };
        self.beliefs().all(lasts) && lock.fields.iter().all(|id| self.timeout(*id) <= lock.until)
    }

    /// A lock that is read lasts no longer than the last reader.
    pub(super) fn lock_ends_with_its_readers(&self) -> bool {
        self.lock
            .as_ref()
            .is_none_or(|lock| lock.writes || lock.fields.iter().any(|id| self.timeout(*id) >= lock.until))
    }

    pub(super) fn mode_is_true(&self) -> bool {
        let has_writer = |lock: &Lock| lock.fields.iter().any(|id| self.tenure(*id).side == Side::Write);
        self.lock.as_ref().is_none_or(|lock| lock.writes == has_writer(lock))
    }

    /// Whether anyone will take a field out that keeps others out.
    pub(super) fn fields_are_cared_for(&self) -> bool {
        let mut fields = self.lock.iter().flat_map(|lock| &lock.fields);
        fields.all(|id| !self.is_live(*id) || self.is_cared_for(*id))
    }

    fn is_cared_for(&self, id: Id) -> bool {
        let tenure = self.tenure(id);
        // A thread need not unlock what its lease has ended.
        let is_over = tenure.side == Side::Write && tenure.word == Word::Lost;
        let held = self.threads.iter().any(|thread| thread.holds.contains(&Some(id))) && !is_over;
        let concerned = self.threads.iter().any(|thread| thread.doing.id() == Some(id));
        let is_release = |at: &&Message| at.id == id && at.command == Command::Release;
        let releasing = self.wire.iter().filter(is_release).any(|at| at.waited && at.answer.is_none());
        // The answer to a renewal, or that it does not come, has what it prolonged swept.
        let renewing = self.wire.iter().any(|at| at.id == id && at.from == From::Watchdog && at.waited);
        held || concerned || releasing || renewing || !tenure.sweeps.is_empty()
    }
}
