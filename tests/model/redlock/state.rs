//! The model's state: the masters with what is on the wire to each, what each client believes, and the store that a fenced lock protects.

use crate::belief::Word;
use crate::state::Tick;

pub(super) type Token = u8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    /// Sorted: no client prefers one, so states which differ in nothing but the order are one.
    pub(super) masters: Vec<Master>,
    pub(super) clients: Vec<Client>,
    pub(super) store: Store,
    /// The clock of the server that mints tokens. It goes on with each token: a script takes longer than its unit.
    pub(super) clock: Token,
    /// How often a fenced lock was taken.
    pub(super) takes: u8,
    pub(super) restarts: u8,
    /// How many more answers may fail to come.
    pub(super) breaks: u8,
    pub(super) renewals: u8,
    pub(super) unlocks: u8,
    /// How often the clock of the server may step back.
    pub(super) steps: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Master {
    pub(super) key: Option<Entry>,
    pub(super) memory: Memory,
    pub(super) counter: Token,
    /// Sorted. The answers are on it, too.
    pub(super) wire: Vec<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) owner: Id,
    pub(super) until: Tick,
}

/// Whether a master knows what it granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Memory {
    Whole,
    /// It restarted without its data, and no strict client has asked it since.
    Lost,
    /// It grants nothing until then.
    Quiet(Tick),
    /// It executes nothing until then.
    Down(Tick),
    /// It restarted without its data, and grants.
    Again,
}

/// An owner id: each round of an acquire takes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) client: usize,
    pub(super) round: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) command: Command,
    pub(super) deadline: Tick,
    /// Whether its round is not over.
    pub(super) waited: bool,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Command {
    Acquire,
    Renew,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Answer {
    Yes(Grant),
    No,
    Stale,
}

/// The token of a hold, and by which take it has the lock, which only the model knows. Without fencing both are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) token: Token,
    pub(super) take: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// How many more rounds it may begin.
    pub(super) left: u8,
    pub(super) round: u8,
    pub(super) word: Word,
    /// The round under way, and when it began.
    pub(super) asking: Option<(Command, Tick)>,
    pub(super) yes: usize,
    pub(super) no: usize,
    pub(super) grant: Grant,
    /// How many more writes it may send to the store.
    pub(super) writes: u8,
}

/// What a fenced lock protects: it keeps the greatest token that it has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    /// Writes under way, sorted.
    pub(super) wire: Vec<Grant>,
    pub(super) greatest: Token,
    /// The latest take that has written.
    pub(super) latest: u8,
    /// It refused a stale write.
    pub(super) refused: bool,
    pub(super) fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    StaleAccepted,
    FreshRefused,
}

impl Master {
    pub(super) fn is_held_by(&self, id: Id) -> bool {
        self.key.is_some_and(|key| key.owner == id)
    }

    fn may_yet_hold(&self, id: Id) -> bool {
        let is_acquire = |at: &Message| at.id == id && at.command == Command::Acquire && at.answer.is_none();
        self.is_held_by(id) || self.wire.iter().any(is_acquire)
    }

    /// Forgets what can change nothing: a request that would be found stale or find nothing, an answer that nobody waits for.
    pub(super) fn forget(&mut self, now: Tick) {
        let acts = |at: &Message| match at.command {
            Command::Release => self.may_yet_hold(at.id),
            _ => at.waited || (at.answer.is_none() && now < at.deadline),
        };
        let wire = self.wire.iter().copied().filter(acts).collect();
        self.wire = wire;
        self.wire.sort_unstable();
        self.wire.dedup();
    }
}

impl Client {
    /// Each looked at its hold when the time was the present one first, so no deadline has passed.
    pub(super) fn believes(&self) -> bool {
        matches!(self.word, Word::Until(_))
    }
}

impl State {
    pub(super) fn id_of(&self, client: usize) -> Id {
        Id { client, round: self.clients[client].round }
    }

    pub(super) fn believers(&self) -> usize {
        self.clients.iter().filter(|client| client.believes()).count()
    }

    /// Whether a master that had forgotten its grants is one that a believer counts on.
    pub(super) fn counts_a_restarted(&self) -> bool {
        let believed =
            |key: &Entry| self.id_of(key.owner.client) == key.owner && self.clients[key.owner.client].believes();
        self.masters.iter().any(|master| master.memory == Memory::Again && master.key.as_ref().is_some_and(believed))
    }
}

impl Store {
    /// A write arrives. It is stale if a later take has written.
    pub(super) fn write(&mut self, write: Grant, compares: bool) {
        let (is_stale, is_taken) = (write.take < self.latest, write.token >= self.greatest || !compares);
        self.refused |= is_stale && !is_taken;
        match (is_stale, is_taken) {
            (true, true) => self.fault = Some(Fault::StaleAccepted),
            (false, false) => self.fault = Some(Fault::FreshRefused),
            (false, true) => (self.greatest, self.latest) = (write.token, write.take),
            (true, false) => {}
        }
    }
}
