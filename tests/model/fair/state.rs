//! The model's state: the lock, the three keys of its queue, what is on the wire, and the threads.

use crate::lock::waiting::wait::{Hearing, Wait};
use crate::state::Tick;
use std::collections::BTreeMap;

/// When a place ends. Redisson takes time off, so it may be before the first tick.
pub(super) type End = i16;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    pub(super) lock: Option<Held>,
    /// The lock is free, and of that no thread of ours needs to be told: they come by a timer.
    pub(super) is_timed: bool,
    /// The queue: the list, until when each place counts, and the tickets, which Redisson does not know.
    pub(super) list: Vec<Owner>,
    pub(super) ends: BTreeMap<Owner, End>,
    pub(super) tickets: BTreeMap<Owner, Ticket>,
    /// When list and ends are gone with their TTL, and when the tickets are.
    pub(super) ttl: Option<End>,
    pub(super) ttl_of_tickets: Option<End>,
    /// Who joined, in order, and has had a place ever since.
    pub(super) arrivals: Vec<usize>,
    /// For so long nobody waits.
    pub(super) deserted: Tick,
    /// Sorted, as the messages are.
    pub(super) wire: Vec<Request>,
    pub(super) messages: Vec<Message>,
    pub(super) clients: Vec<Client>,
    /// What went wrong in a step, where no look at a state can tell it.
    pub(super) fault: Option<Fault>,
    pub(super) limits: Limits,
}

/// How often something may still happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Limits {
    /// An ask gets no answer in its time.
    pub(super) breaks: u8,
    /// A thread that waits gives up.
    pub(super) leaves: u8,
    pub(super) stops: u8,
    pub(super) deaths: u8,
    /// Where a pace is kept: a message never arrives.
    pub(super) losses: u8,
    /// A thread tries, without a place.
    pub(super) tries: u8,
    /// The subscriptions of a thread of ours are cut.
    pub(super) cuts: u8,
    /// The server fails while it gives the lock.
    pub(super) failures: u8,
    /// The tickets are evicted.
    pub(super) evictions: u8,
}

/// An owner field: `life` counts those of a thread of ours. A thread of Redisson's has one for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) client: usize,
    pub(super) life: u8,
}

/// Each ask of a thread has a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) owner: Owner,
    pub(super) ask: u8,
    /// It is given the lock though nobody listens.
    pub(super) polls: bool,
}

/// The last ticket of a wait, and the life with which the wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Names {
    pub(super) last: Ticket,
    pub(super) first: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) until: Tick,
    /// Given to this ask, and not asked for since.
    pub(super) given: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    Ask(Ask),
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
    Try,
    Queued,
    /// It goes if it does not get the lock.
    Last,
}

/// What a thread hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Given(Ticket),
    /// The lock is free: told on its own channel, or to all.
    Free(usize),
}

/// When a thread of ours hears what is told to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Hears {
    /// Its process listens already.
    AtOnce,
    /// Once its subscriptions are confirmed, after its first ask. It polls until then.
    Later,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// How much the clock of a thread of Redisson's is ahead. Else it is one of ours.
    pub(super) ahead: Option<End>,
    pub(super) doing: Doing,
    /// Whether a message that gives may be more than a hint.
    pub(super) believes: bool,
    pub(super) hears: Hears,
    /// Whether the present wait has subscribed; whether its ear is confirmed; of its own channel the one that it wants and the one that is
    /// confirmed.
    pub(super) listens: bool,
    pub(super) ear: bool,
    pub(super) own: [Option<u8>; 2],
    pub(super) life: u8,
    /// How many more waits it may begin, and how often it may ask.
    pub(super) waits: u8,
    pub(super) asks: u8,
    /// The number of its last ask, how and when that was sent, when the server executed one that queues, and the first life of this wait.
    pub(super) ask: u8,
    pub(super) manner: Manner,
    pub(super) sent: Tick,
    pub(super) looked: Tick,
    pub(super) first: u8,
    /// Where a pace is kept: what it waits by; when one of Redisson's looks; and for how long it has been waiting.
    pub(super) wait: Option<Wait>,
    pub(super) wakes: Tick,
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
    /// It believes until then.
    Holding(Tick),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Granted,
    /// The lock is another's for so many ticks, if they are known, or left to one of Redisson's. Its rank, and whether one of Redisson's
    /// has the lock or comes before.
    Busy(Option<Tick>, u8, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// A thread got the lock though another had come before it.
    Past,
    /// The lock was given to a process that was dead.
    GivenToTheDead,
    /// A thread that waits, and looked in time, lost its place.
    Lost,
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
    /// The fields of its earlier asks by other owner ids, the last one first.
    pub(super) fn earlier(self) -> impl Iterator<Item = Owner> {
        let Owner { client, life } = self.last.owner;
        (self.first..life).rev().map(move |life| Owner { client, life })
    }
}

impl Client {
    pub(super) fn is_java(&self) -> bool {
        self.ahead.is_some()
    }

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

    pub(super) fn hearing(&self) -> Hearing {
        match self.listens {
            false => Hearing::NotYet,
            true if self.ear && self.own[0] == self.own[1] => Hearing::Open,
            true => Hearing::Deaf,
        }
    }

    /// A subscription is under way. What is told while it asks is heard after the answer.
    pub(super) fn may_be_confirmed(&self) -> bool {
        self.waits() && self.asks > 0 && self.hears != Hears::Never && self.hearing() == Hearing::Deaf
    }
}

impl State {
    pub(super) fn owner(&self, client: usize) -> Owner {
        Owner { client, life: self.clients[client].life }
    }

    /// The names of its present wait. A ticket polls until its subscriptions are confirmed.
    pub(super) fn names(&self, client: usize) -> Names {
        let Client { ask, first, ear, .. } = self.clients[client];
        Names { last: Ticket { owner: self.owner(client), ask, polls: !ear }, first }
    }

    pub(super) fn time(&self) -> End {
        End::from(self.now)
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|held| held.owner == owner)
    }

    pub(super) fn is_java(&self, owner: Owner) -> bool {
        self.clients[owner.client].is_java()
    }

    pub(super) fn believes(&self, client: usize) -> bool {
        matches!(self.clients[client].doing, Doing::Holding(until) if self.now < until)
    }

    /// Whether this field is an earlier one of a wait that goes on.
    fn is_earlier(&self, owner: Owner) -> bool {
        let client = &self.clients[owner.client];
        client.is_awake() && client.wants() && (client.first..client.life).contains(&owner.life)
    }

    /// Whether this field is that of a thread which lives and waits.
    pub(super) fn is_waiting(&self, owner: Owner) -> bool {
        let client = &self.clients[owner.client];
        client.is_awake() && client.wants() && client.life == owner.life
    }

    pub(super) fn tell(&mut self, client: usize) {
        let hears = self.clients[client].is_java() || self.clients[client].ear;
        self.messages.extend(hears.then_some(Message::Free(client)));
    }

    /// On the channel of a field.
    pub(super) fn tell_field(&mut self, owner: Owner) {
        let client = &self.clients[owner.client];
        if client.is_java() || client.own[1] == Some(owner.life) {
            self.messages.push(Message::Free(owner.client));
        }
    }
}

/// Who came in which order.
impl State {
    pub(super) fn arrives(&mut self, client: usize) {
        let is_new = !self.arrivals.contains(&client);
        self.arrivals.extend(is_new.then_some(client));
    }

    /// One of its places was taken out, or its hold by an earlier owner id ended. It has no place by its present owner id.
    pub(super) fn forget(&mut self, client: usize) {
        let has_none = !self.list.contains(&self.owner(client));
        self.arrivals.retain(|arrived| *arrived != client || !has_none);
    }

    /// Whoever came before it, and still waits, was passed. A place with which nobody waits any more costs an offer and counts for nobody.
    /// A wait that has the lock by an earlier owner id takes it over with its next ask. Until then its turn is not over.
    pub(super) fn gets_it(&mut self, owner: Owner) {
        let mut before = self.arrivals.iter().take_while(|arrived| **arrived != owner.client);
        let is_past = before.any(|arrived| self.clients[*arrived].is_awake() && self.clients[*arrived].wants());
        let is_past = is_past && (self.is_java(owner) || self.is_waiting(owner));
        self.fault = self.fault.or(is_past.then_some(Fault::Past));
        if self.clients[owner.client].life == owner.life {
            self.arrivals.retain(|arrived| *arrived != owner.client);
        }
        if !self.is_earlier(owner) {
            self.forget(owner.client);
        }
    }
}
