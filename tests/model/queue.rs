//! A model of the advisory queue: one lock, the queue and the mark beside it, processes of ours with one wait each, and
//! a foreign client that is only told on the common channel. Time has no numbers here but an order of urgency:
//! docs/model.md, 3.

mod bounds;
mod client;
mod fair;
mod mutants;
mod search;
mod server;

/// A rule of the queue that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Whose turn it is takes the lock without a look at the hash.
    TurnIsHold,
    /// Who is told that it is the first does not ask.
    HeadNeverAsks,
    /// A turn that nobody takes does not end.
    MarkNeverEnds,
    /// A ticket whose ear has no listener is told all the same.
    DeadNeverSkipped,
    /// Such a ticket is skipped, and stays where it is.
    DeadSkippedOnly,
    /// The common channel is left out when it has no more subscribers than the queue has tickets.
    CountsSubscribers,
    /// It joins before it can hear.
    JoinsUnconfirmed,
    /// Who takes removes its own ticket only.
    LeavesThoseBefore,
    /// Who is removed by a taker is not told.
    SkippedUntold,
    /// A leave tells nobody, though the lock is free.
    LeavesSilently,
    /// Who hears of a ticket that it does not wait with does not have it removed.
    KeepsStrangeTickets,
    /// Members wait to be told, whatever their rank.
    NotArmed,
    /// The head waits to be told without an end, and all others come unasked.
    HeadNotArmed,
    /// A member comes unasked once, after the reply with which it joined, and not again.
    ArmedOnce,
    /// Who comes back with an earlier arrival is refused for a head that it is about to precede.
    RefusedBeforeJoin,
    /// Who comes to a free lock without a mark takes it, though others are queued.
    PassesTheQueue,
    /// What is heard while an ask is open is judged by the rank that was known before.
    JudgesByOldRank,
    /// It gives the turn to foreigners twice in succession.
    YieldsAgain,
    /// That the process had company is forgotten while it holds the lock.
    ForgetsInHold,
    /// A client of ours that waits without a ticket counts as a member.
    BystanderIsMember,
    /// A process takes the lock again as long as it likes.
    TurnNeverEnds,
    /// What is taken again within a turn begins another one.
    TurnBeginsAnew,
    /// Within its turn it takes the lock with the script that leaves no place, though it may have one.
    LeavesItsPlace,
}

/// What is searched, and how often what is not the rule may happen. A limit is for all clients together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Processes of ours that queue up.
    pub(crate) clients: u8,
    /// Processes of ours that wait without a ticket: the last ones.
    pub(crate) bystanders: u8,
    /// How often each comes to the lock; without a limit the search must end by itself.
    pub(crate) comes: Option<u8>,
    /// Whether they had company before.
    pub(crate) company: bool,
    /// Whether a process that waits no longer keeps its subscriptions.
    pub(crate) lingers: bool,
    /// Whether every hold outlasts a message.
    pub(crate) prompt: bool,
    /// How often the foreign client comes.
    pub(crate) foreign: u8,
    /// A release may give the turn to foreigners.
    pub(crate) yields: bool,
    /// A turn may outlast a hold: then its process may take the lock again.
    pub(crate) turns: bool,
    pub(crate) limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Limits {
    pub(crate) deaths: u8,
    pub(crate) stops: u8,
    /// Subscriptions that end early, with what was on its way to them.
    pub(crate) breaks: u8,
    /// Requests without an answer, and leaves that do not arrive.
    pub(crate) lost: u8,
    pub(crate) leaves: u8,
    /// Turns that end, and timers that ring, before what is more urgent is done.
    pub(crate) late: u8,
    /// How often the queue is deleted or forged.
    pub(crate) wipes: u8,
    /// How often a process that is away forgets that it had company.
    pub(crate) lapses: u8,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) setup: Setup,
    pub(crate) mutants: &'static [Mutant],
}

impl Crowd {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutants.contains(&mutant)
    }

    fn joins(&self, client: u8) -> bool {
        client < self.setup.clients
    }
}

/// A client of no process: the owner of a forged ticket.
const STRANGER: u8 = u8::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    lock: Lock,
    /// In the order of arrival.
    queue: Vec<Ticket>,
    mark: Mark,
    clients: Vec<Client>,
    foreigner: Foreigner,
    /// Requests that the server has not executed yet, sorted; those of a client that waits, and late ones.
    wire: Vec<Request>,
    limits: Limits,
    /// How often each client passed over the first one since that has had an arrival.
    passed: Vec<u8>,
    /// What went wrong in a step, where no look at a state can tell it.
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lock {
    Free,
    Ours(u8),
    Foreign,
    /// Taken by a request whose sender waits for it no longer.
    Orphan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    None,
    Head,
    Foreigners,
}

/// A wait of a client, as others know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    client: u8,
    /// Of an earlier wait than the present one.
    old: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    arrival: u8,
    name: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Ask(Ask),
    Leave {
        name: Name,
        /// An ask was open when it was sent: so it is sent once more when that is void.
        again: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ask {
    name: Name,
    awaited: bool,
    /// Without company: of the lock alone.
    plain: bool,
    /// Within a turn: of the lock alone, and then as else.
    again: bool,
    join: bool,
    arrival: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    at: At,
    stopped: bool,
    company: bool,
    link: Link,
    /// What is on its way to its subscriptions, each word once: one is as good as many.
    inbox: Vec<Word>,
    /// It asks as soon as it sleeps.
    permit: bool,
    /// A timer runs: of a member, or of a promise.
    soon: bool,
    /// As it was last answered, or 0 as it was told; without one it is no member.
    rank: Option<u8>,
    arrival: Option<u8>,
    /// It asked to be queued.
    joined: bool,
    /// Its last release gave the turn to foreigners.
    yielded: bool,
    /// It has a turn, which goes on after a release.
    turn: bool,
    comes: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum At {
    Away,
    Asking,
    Answered(Reply),
    Asleep,
    Holding,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Taken,
    Busy { place: Option<Place> },
    Promised { place: Option<Place> },
}

/// Where an ask that joined stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    rank: u8,
    arrival: u8,
}

/// The subscriptions: the common channel, the ear, and that of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Down,
    Asked,
    Up,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    Common,
    /// It is the head, and the lock is free.
    Told {
        old: bool,
    },
    Skipped {
        old: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Foreigner {
    Away { comes: u8 },
    Waiting { told: bool, comes: u8 },
    Holding { comes: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A client that was there to hear was removed as dead.
    TakenForDead,
    /// Who was told that it is the first was not.
    NotTheHead,
    /// The turn was given to someone without an ear.
    TurnForTheDead,
    /// Someone who waits without a ticket was not told of a release.
    Untold,
}

impl State {
    fn client(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    fn get(&self, client: u8) -> &Client {
        &self.clients[usize::from(client)]
    }

    /// Whether a subscriber is there, as the server sees it.
    fn listens(&self, client: u8) -> bool {
        client != STRANGER && self.get(client).link == Link::Up
    }

    fn rank(&self, name: Name) -> Option<usize> {
        self.queue.iter().position(|ticket| ticket.name == name)
    }

    /// Nobody who can ask waits with the ticket.
    fn is_stale(&self, name: Name) -> bool {
        name.client == STRANGER || name.old || !self.get(name.client).waits() || self.get(name.client).stopped
    }

    /// Arrivals count only against each other: so the states are finite in number.
    fn renumber(&mut self) {
        let mut used = self.arrivals().map(|arrival| *arrival).collect::<Vec<_>>();
        used.sort_unstable();
        used.dedup();
        let place = |arrival: &u8| used.binary_search(arrival).expect("it was collected") as u8;
        self.arrivals().for_each(|arrival| *arrival = place(arrival));
        self.wire.sort_unstable();
        self.wire.dedup();
    }

    fn arrivals(&mut self) -> impl Iterator<Item = &mut u8> {
        let asked = self.wire.iter_mut().filter_map(|request| match request {
            Request::Ask(ask) => ask.arrival.as_mut(),
            Request::Leave { .. } => None,
        });
        let kept = self.clients.iter_mut().flat_map(|client| {
            let replied = match &mut client.at {
                At::Answered(Reply::Busy { place } | Reply::Promised { place }) => place.as_mut(),
                _ => None,
            };
            client.arrival.as_mut().into_iter().chain(replied.map(|place| &mut place.arrival))
        });
        self.queue.iter_mut().map(|ticket| &mut ticket.arrival).chain(asked).chain(kept)
    }
}

impl Client {
    fn waits(&self) -> bool {
        matches!(self.at, At::Asking | At::Answered(_) | At::Asleep)
    }

    fn is_awake(&self) -> bool {
        !self.stopped && self.at != At::Dead
    }

    fn believes(&self) -> bool {
        matches!(self.at, At::Holding | At::Answered(Reply::Taken))
    }

    /// It does something at once, if nothing keeps it from running.
    fn is_urgent(&self) -> bool {
        let hears = self.link == Link::Up && !self.inbox.is_empty();
        let asks = self.at == At::Asleep && self.permit;
        self.is_awake() && (hears || asks || self.link == Link::Asked || matches!(self.at, At::Answered(_)))
    }
}
