//! The model's state: the lock, its queue and the mark beside it, what is on the wire, and the processes.

use crate::lock::waiting::wait::Wait;
use crate::state::Tick;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    pub(super) lock: Option<Held>,
    /// The lock is free, and of that nobody needs to be told: a TTL ended, or a mark that was seen will. Whoever waits comes by a timer.
    pub(super) is_timed: bool,
    pub(super) queue: Vec<Ticket>,
    /// When the TTL of the queue ends.
    pub(super) queue_ends: Tick,
    /// Until when a lock that is free is left to the foreigner.
    pub(super) mark: Option<Tick>,
    /// For so long nobody waits.
    pub(super) deserted: Tick,
    /// Sorted, as the messages are.
    pub(super) wire: Vec<Request>,
    pub(super) messages: Vec<Message>,
    pub(super) clients: Vec<Client>,
    /// A foreigner listens, and takes the lock when it finds that free.
    pub(super) foreigner_waits: bool,
    /// What went wrong in a step, where no look at a state can tell it.
    pub(super) fault: Option<Fault>,
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
    /// A message that gives never arrives. Where no pace is kept there is no limit to that.
    pub(super) losses: u8,
    /// A release in turn that gives the lock to nobody, and tells everybody.
    pub(super) to_all: u8,
    /// A release by one who knows of no company.
    pub(super) plain: u8,
    /// An ask without a ticket: a try, or the first of a wait.
    pub(super) newcomers: u8,
    /// The foreigner comes.
    pub(super) foreign: u8,
    /// A release leaves the lock to the foreigner.
    pub(super) yields: u8,
    /// The server fails while it gives the lock.
    pub(super) failures: u8,
}

/// An owner id: `life` counts those of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) client: usize,
    pub(super) life: u8,
}

/// That of a client which has no queue.
pub(super) const FOREIGNER: Owner = Owner { client: usize::MAX, life: 0 };

/// Each ask of a process has a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) owner: Owner,
    pub(super) ask: u8,
}

/// The last ticket of a wait, and the number of the first ask whose place it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Names {
    pub(super) last: Ticket,
    pub(super) first: u8,
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
    Ask(Ask),
    Renew {
        owner: Owner,
        deadline: Tick,
    },
    Release(Owner),
    /// The names are taken out of the queue, and then the owner id is released. `half`: the first of both is done.
    Quit {
        names: Names,
        due: Tick,
        half: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) names: Names,
    pub(super) manner: Manner,
    pub(super) deadline: Tick,
    pub(super) awaited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Manner {
    /// Of the lock alone.
    Plain,
    /// In turn, without a ticket.
    Newcomer,
    Queued,
    /// It goes if it does not get the lock.
    Last,
}

/// How the server executes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Usual,
    /// A release that gives to nobody.
    ToAll,
    /// A release that does not look at the queue.
    Plain,
    /// A release that leaves the lock to the foreigner.
    Yields,
    /// It has no memory left when it writes the next owner.
    Fails,
}

/// What a process hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Given(Ticket),
    /// The lock is free: told to the first of the queue, or to all.
    Free(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) doing: Doing,
    /// Whether a message that gives may be more than a hint.
    pub(super) believes: bool,
    /// It hears nothing and looks in each tick.
    pub(super) polls: bool,
    pub(super) life: u8,
    /// How many more waits it may begin, and how often it may ask.
    pub(super) waits: u8,
    pub(super) asks: u8,
    /// The number of its last ask, how and when that was sent, and the number of the first of this wait.
    pub(super) ask: u8,
    pub(super) manner: Manner,
    pub(super) sent: Tick,
    pub(super) first: u8,
    /// Where a pace is kept: what it waits by, and for how long it has been waiting.
    pub(super) wait: Option<Wait>,
    pub(super) waited: Tick,
    pub(super) stopped: bool,
    pub(super) dead: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Idle,
    /// The answer that is on its way.
    Asking(Option<Answer>),
    Waiting,
    /// It believes until then. The renewal under way: when it was sent, and its answer.
    Holding(Tick, Option<(Tick, Option<bool>)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Granted,
    /// The lock is another's for so many ticks, if they are known. So many are before it in the queue.
    Busy(Option<Tick>, u8),
    /// It is free, and for so many ticks left to the foreigner.
    Left(Tick, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// A process of ours that asked in turn took a lock that was free, and was not the first of the queue.
    Past,
    /// The lock was given to a process that was dead.
    GivenToTheDead,
    /// One that asked in turn took a lock that was left to the foreigner, or had it given to another.
    NotLeft,
}

impl Message {
    pub(super) fn client(&self) -> usize {
        match self {
            Self::Given(ticket) => ticket.owner.client,
            Self::Free(client) => *client,
        }
    }
}

impl Names {
    pub(super) fn have(&self, ticket: &Ticket) -> bool {
        let asks = self.first..=self.last.ask;
        ticket.owner.client == self.last.owner.client && asks.contains(&ticket.ask)
    }
}

impl Client {
    pub(super) fn is_awake(&self) -> bool {
        !self.stopped && !self.dead
    }

    pub(super) fn waits(&self) -> bool {
        self.is_awake() && self.doing == Doing::Waiting
    }

    /// It waits, or asks.
    pub(super) fn wants(&self) -> bool {
        matches!(self.doing, Doing::Waiting | Doing::Asking(_))
    }
}

impl State {
    pub(super) fn owner(&self, client: usize) -> Owner {
        Owner { client, life: self.clients[client].life }
    }

    /// The names of its present wait.
    pub(super) fn names(&self, client: usize) -> Names {
        let Client { ask, first, .. } = self.clients[client];
        Names { last: Ticket { owner: self.owner(client), ask }, first }
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|held| held.owner == owner)
    }

    pub(super) fn believes(&self, client: usize) -> bool {
        matches!(self.clients[client].doing, Doing::Holding(until, _) if self.now < until)
    }

    /// As the server sees it: whether one lives that polls it does not know.
    pub(super) fn is_dead(&self, ticket: &Ticket) -> bool {
        let client = &self.clients[ticket.owner.client];
        client.dead && !client.polls
    }

    pub(super) fn tell(&mut self, message: Message) {
        self.messages.extend(Some(message).filter(|message| !self.clients[message.client()].polls));
    }

    /// The first of the queue that is not dead.
    pub(super) fn first(&self) -> Option<Ticket> {
        self.queue.iter().find(|ticket| !self.is_dead(ticket)).copied()
    }

    /// Whether one that is not dead is in the queue before these names.
    pub(super) fn is_past(&self, names: Names) -> bool {
        let mut before = self.queue.iter().take_while(|ticket| !names.have(ticket));
        before.any(|ticket| !self.is_dead(ticket))
    }

    /// Whether a lock that is free is left to the foreigner.
    pub(super) fn is_left(&self) -> bool {
        self.lock.is_none() && self.mark.is_some()
    }
}
