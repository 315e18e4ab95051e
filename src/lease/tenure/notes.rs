//! What only some kinds of locks, some clients or some callers note at a tenure.

use super::Tenure;
use crate::base::lives::Lives;
use crate::base::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use crate::base::time::Moment;
use crate::lease::nodes::Nodes;
use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Of a quorum.
    nodes: OnceBox<Nodes>,
    lives: Lives,
    token: Token,
    /// How many replicas confirmed the tenure last, and how many had to, in one word. Zero if none has to.
    replicas: AtomicU64,
    /// Until when the server may still execute commands of the holder.
    commands_until: AtomicU64,
    audience: AtomicU8,
    ticket: OnceCell<Box<[String; 2]>>,
}

/// Nobody knows who was told of the release.
const UNKNOWN: u8 = 0;

/// Who was told of the release of a tenure, besides this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Audience {
    Nobody = 1,
    /// Somebody who may wait, and has no turn.
    Others = 2,
    /// Those who wait, in order.
    Queue = 3,
}

impl Tenure {
    /// At which nodes of a quorum the key is.
    pub(crate) fn nodes(&self) -> &Nodes {
        self.notes.nodes.get_or_init(Box::default)
    }

    /// How many nodes or replicas have it, and how many there are of these nodes, or how many replicas had to confirm.
    pub(crate) fn confirmed(&self) -> Option<(usize, usize)> {
        self.notes.nodes.get().and_then(Nodes::confirmed).or_else(|| self.replicas())
    }

    /// A release of it is under way elsewhere, and may be executed before another one.
    pub(crate) fn note_release_under_way(&self) {
        match self.notes.nodes.get() {
            Some(nodes) => nodes.note_release_under_way(),
            None => self.notes.lives.leave_where_it_was(),
        }
    }

    /// Whether a release was told that the tenure was gone, and nothing explained that.
    pub(crate) fn is_gone(&self) -> bool {
        self.notes.nodes.get().map_or_else(|| self.notes.lives.is_gone(), Nodes::is_gone)
    }

    /// The lives of its server, or of a node of a quorum.
    pub(crate) fn lives(&self, node: Option<usize>) -> &Lives {
        node.and_then(|node| self.nodes().lives(node)).unwrap_or(&self.notes.lives)
    }

    /// The token that came with the lock, of a kind that gives tokens. It is noted before the word says that the tenure is held.
    pub(crate) fn token(&self) -> &Token {
        &self.notes.token
    }

    /// How many replicas confirmed the tenure, and how many had to.
    pub(crate) fn note_replicas(&self, confirmed: Option<(usize, usize)>) {
        if let Some((confirmed, required)) = confirmed {
            self.notes.replicas.store((confirmed as u64) << 32 | required as u64, SeqCst);
        }
    }

    pub(crate) fn replicas(&self) -> Option<(usize, usize)> {
        let word = self.notes.replicas.load(SeqCst);
        (word != 0).then_some(((word >> 32) as usize, (word & u64::from(u32::MAX)) as usize))
    }

    /// Commands of the holder were not answered. The server may still execute them until then, and within that last millisecond.
    pub(crate) fn leave_commands_open(&self, until: Moment) {
        self.notes.commands_until.fetch_max(until.plus(Duration::from_millis(1)).0, SeqCst);
    }

    /// For how much longer the server may execute commands of the holder. The next holder in memory has the same owner id,
    /// so the server would execute them under its hold.
    pub(crate) fn commands_open_for(&self) -> Option<Duration> {
        let until = self.notes.commands_until.load(SeqCst);
        // Most tenures never had commands, and do not look at the clock.
        let left = (until != 0).then(|| Moment(until).since(self.now()));
        left.filter(|left| !left.is_zero())
    }

    /// The wait for this tenure had a place in a queue, which counts until then. These are the names that its ticket may have there.
    pub(crate) fn note_ticket(&self, names: [String; 2], until: Moment) {
        self.may_last(until);
        let _ = self.notes.ticket.set(Box::new(names));
    }

    pub(crate) fn ticket(&self) -> Option<&[String; 2]> {
        self.notes.ticket.get().map(|names| &**names)
    }

    /// The final release was answered. In a quorum one node that told others is enough.
    pub(crate) fn note_audience(&self, audience: Audience) {
        self.notes.audience.fetch_max(audience as u8, SeqCst);
    }

    /// Who was told of the release; `None` while that is not known.
    pub(crate) fn audience(&self) -> Option<Audience> {
        match self.notes.audience.load(SeqCst) {
            UNKNOWN => None,
            1 => Some(Audience::Nobody),
            2 => Some(Audience::Others),
            _ => Some(Audience::Queue),
        }
    }
}

/// The token of a tenure: greater than the token of each earlier tenure of the lock. Zero: there is none.
#[derive(Debug, Default)]
pub(crate) struct Token(AtomicU64);

/// The next token of a lock in memory. All locks share one count, so it grows for each of them.
static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Token {
    /// A store gave it.
    pub(crate) fn note(&self, token: u64) {
        self.0.store(token, SeqCst);
    }

    /// This process gives it.
    pub(crate) fn mint(&self) {
        self.note(NEXT.fetch_add(1, SeqCst));
    }

    /// The tenure is passed on, and the next hold gets a token of its own. A tenure with a token of a store is never passed on.
    pub(crate) fn pass_on(&self) {
        if self.get().is_some() {
            self.mint();
        }
    }

    pub(crate) fn get(&self) -> Option<u64> {
        let token = self.0.load(SeqCst);
        (token != 0).then_some(token)
    }
}
