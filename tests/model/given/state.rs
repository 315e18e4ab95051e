//! The model's state: the lock and its queue, what is on the wire, and the processes.

use crate::state::Tick;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    pub(super) lock: Option<Held>,
    /// The last hold ended by its TTL: nobody is told of that, and whoever waits comes by a timer.
    pub(super) lapsed: bool,
    pub(super) queue: Vec<Ticket>,
    /// Sorted, as the messages are.
    pub(super) wire: Vec<Request>,
    pub(super) messages: Vec<Message>,
    pub(super) clients: Vec<Client>,
    /// A release gave the lock to a process that was dead.
    pub(super) gave_to_the_dead: bool,
    pub(super) limits: Limits,
}

/// How often something may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Limits {
    /// An ask gets no answer in its time.
    pub(super) breaks: u8,
    pub(super) renewals: u8,
    /// A process that waits gives up.
    pub(super) leaves: u8,
    pub(super) stops: u8,
    pub(super) deaths: u8,
    /// A message arrives twice.
    pub(super) twice: u8,
}

/// An owner id: `life` counts those of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) client: usize,
    pub(super) life: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) owner: Owner,
    pub(super) ask: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) until: Tick,
    /// Given to this ask, and neither asked for nor prolonged since.
    pub(super) given: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    /// `before`: the ticket whose place it takes.
    Ask {
        ticket: Ticket,
        before: Option<Ticket>,
        deadline: Tick,
        awaited: bool,
    },
    Renew {
        owner: Owner,
        deadline: Tick,
    },
    Release(Owner),
    /// A ticket and the one before it are taken out, and then its owner id is released. `half`: the first of both is done.
    Quit {
        ticket: Ticket,
        before: Option<Ticket>,
        due: Tick,
        half: bool,
    },
}

/// What a process hears on its ear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Given(Ticket),
    /// The lock is free, or it was passed over.
    Look(Ticket),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) doing: Doing,
    pub(super) life: u8,
    /// How many more waits it may begin, and how often it may ask.
    pub(super) waits: u8,
    pub(super) asks: u8,
    /// The number of its last ask, and when that was sent.
    pub(super) ask: u8,
    pub(super) sent: Tick,
    /// The tickets of this wait's last ask and of the one before.
    pub(super) words: [Option<Ticket>; 2],
    pub(super) stopped: bool,
    pub(super) dead: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Idle,
    /// The answer that is on its way: whether it is granted.
    Asking(Option<bool>),
    Waiting,
    /// It believes until then. The renewal under way: when it was sent, and its answer.
    Holding(Tick, Option<(Tick, Option<bool>)>),
}

impl Message {
    pub(super) fn ticket(&self) -> Ticket {
        let (Self::Given(ticket) | Self::Look(ticket)) = self;
        *ticket
    }
}

impl Client {
    pub(super) fn is_awake(&self) -> bool {
        !self.stopped && !self.dead
    }

    pub(super) fn waits(&self) -> bool {
        self.is_awake() && self.doing == Doing::Waiting
    }
}

impl State {
    pub(super) fn owner(&self, client: usize) -> Owner {
        Owner { client, life: self.clients[client].life }
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|held| held.owner == owner)
    }

    pub(super) fn believes(&self, client: usize) -> bool {
        matches!(self.clients[client].doing, Doing::Holding(until, _) if self.now < until)
    }
}
