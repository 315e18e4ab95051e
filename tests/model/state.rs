//! The model's state: one server with one key, what is on the wire, and what each thread of each client is doing.

use crate::belief::{self, Word};

pub(crate) type Tick = u8;

/// The index of a tenure.
pub(crate) type Id = u8;

/// An owner field on the wire.
pub(crate) type Field = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: Tick,
    pub(crate) key: Option<Entry>,
    /// Sorted, so that states which differ in nothing but the order are one.
    pub(crate) wire: Vec<Message>,
    pub(crate) tenures: Vec<Belief>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) renewals: u8,
    pub(crate) reentries: u8,
    pub(crate) forces: u8,
    /// How many more answers may fail to come.
    pub(crate) breaks: u8,
    /// What went wrong in a step, where no look at a state can tell it.
    pub(crate) fault: Option<Fault>,
}

/// The key on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) owner: Field,
    pub(crate) count: u8,
    pub(crate) until: Tick,
}

/// A request that the server may execute at any time, or its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) command: Command,
    /// The tenure in whose name it was sent.
    pub(crate) id: Id,
    pub(crate) field: Field,
    pub(crate) from: From,
    pub(crate) lease: Tick,
    pub(crate) sent: Tick,
    pub(crate) deadline: Tick,
    /// Whether its sender still waits for the reply.
    pub(crate) waited: bool,
    pub(crate) answer: Option<Answer>,
    /// It was executed as if nothing had happened, though someone else had the key meanwhile.
    pub(crate) over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    Acquire,
    Reenter(u8),
    Renew,
    Release(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum From {
    Thread(u8),
    Watchdog,
    Sweeper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Yes,
    No,
    Stale,
}

/// A tenure: what its client believes, and (the last three) what only the model knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) thread: u8,
    pub(crate) word: Word,
    /// The latest deadline of an attempt that was broken off; zero: none.
    pub(crate) open: Tick,
    /// When best-effort releases of it are due.
    pub(crate) sweeps: Vec<Tick>,
    pub(crate) was_lost: bool,
    /// A force unlock removed its key: it may believe for a while what is not so.
    pub(crate) forced: bool,
    /// Whether someone else had the key since it had it.
    pub(crate) past: Past,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Past {
    NeverHad,
    Had,
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    pub(crate) client: u8,
    pub(crate) doing: Doing,
    /// How many more times it will come to the lock.
    pub(crate) left: u8,
    /// The tenure of its last hold or acquire, to which it may still have a guard.
    pub(crate) stale: Option<Stale>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stale {
    pub(crate) id: Id,
    pub(crate) passed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Idle,
    /// Between two attempts; with the id if it may be sent again.
    Contending {
        id: Option<Id>,
        tries: u8,
    },
    Acquiring {
        id: Id,
        tries: u8,
    },
    /// Waits behind a sibling that holds the lock.
    Parked,
    /// A sibling passed its tenure on, and this thread was not woken yet.
    Granted {
        id: Id,
        count: u8,
    },
    Holding {
        id: Id,
        count: u8,
    },
    Reentering {
        id: Id,
        count: u8,
    },
    /// An inner unlock waits for its answer.
    Lowering {
        id: Id,
        count: u8,
    },
    /// The outermost unlock; `doubt`: an attempt of it was not answered.
    Unlocking {
        id: Id,
        doubt: bool,
        tries: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    StrangerFreed,
    LostCameBack,
    Spanned,
}

impl Doing {
    /// The tenure that it is concerned with.
    pub(crate) fn id(self) -> Option<Id> {
        match self {
            Self::Idle | Self::Parked => None,
            Self::Contending { id, .. } => id,
            Self::Acquiring { id, .. }
            | Self::Granted { id, .. }
            | Self::Holding { id, .. }
            | Self::Reentering { id, .. }
            | Self::Lowering { id, .. }
            | Self::Unlocking { id, .. } => Some(id),
        }
    }

    /// The tenure that it possesses, believed in or not.
    pub(crate) fn held(self) -> Option<Id> {
        match self {
            Self::Granted { id, .. }
            | Self::Holding { id, .. }
            | Self::Reentering { id, .. }
            | Self::Lowering { id, .. } => Some(id),
            _ => None,
        }
    }
}

impl State {
    pub(crate) fn tenure(&self, id: Id) -> &Belief {
        &self.tenures[usize::from(id)]
    }

    pub(crate) fn tenure_mut(&mut self, id: Id) -> &mut Belief {
        &mut self.tenures[usize::from(id)]
    }

    pub(crate) fn is_valid(&self, id: Id) -> bool {
        belief::is_valid(self.tenure(id).word, self.now)
    }

    /// The holds in which some thread believes right now, but those that a force unlock has ended: they are told
    /// at their next renewal.
    pub(crate) fn beliefs(&self) -> impl Iterator<Item = (usize, Id)> {
        let held = self.threads.iter().enumerate().filter_map(|(thread, actor)| Some((thread, actor.doing.held()?)));
        held.filter(|(_, id)| !self.tenure(*id).forced && self.is_valid(*id))
    }

    /// Whether anyone will free a key with this field.
    pub(crate) fn is_cared_for(&self, field: Field, field_of: impl Fn(Id) -> Field) -> bool {
        let cares = |id: Id| {
            let release = |message: &&Message| message.id == id && message.command == Command::Release(0);
            let concerned = self.threads.iter().any(|thread| thread.doing.id() == Some(id));
            let releasing = self.wire.iter().filter(release).any(|message| message.waited && message.answer.is_none());
            concerned || releasing || !self.tenure(id).sweeps.is_empty()
        };
        (0..self.tenures.len()).map(|id| id as Id).filter(|id| field_of(*id) == field).any(cares)
    }
}
