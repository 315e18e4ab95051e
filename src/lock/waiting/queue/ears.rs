//! Where one client is told which of its tickets has the lock or may take it.

use super::super::policy::SHARES;
use super::super::wait::News;
use super::{Channel, Given, Ticket};
use crate::base::key::Key;
use crate::base::signal::{Ear, Listening};
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use uuid::Uuid;

/// The ear of a client: a channel of its own, on which scripts tell which of its tickets has the lock or may take it.
///
/// It has all tickets of the client by their numbers, and subscribes while there is any.
///
/// Two locks, against a deadlock: the subscriber holds a lock of its own while it calls `hear` and while a subscription begins or ends.
/// `hear` takes only `tickets`, and no thread calls the subscriber with `tickets` locked.
#[derive(Default)]
pub(super) struct Ears {
    /// The end of the channel's name and the start of each ticket's: the client. In a cluster of shards the lock stands before it, so that
    /// the channel is in the lock's slot.
    client: String,
    tickets: Mutex<HashMap<u64, Arc<Ticket>>>,
    subscription: Mutex<Subscription>,
    /// The server refuses the channel, and the log says so.
    pub(super) refused: AtomicBool,
}

#[derive(Default)]
struct Subscription {
    wanted: usize,
    listening: Option<Box<dyn Listening>>,
}

/// Reads a message: the client, the ticket's name, its number, and whether the lock was given to it, or is free and the ticket is first in
/// the queue. `None`: no client of ours published this.
pub(super) fn understood(payload: &[u8]) -> Option<(&str, &str, u64, Option<Given>)> {
    let (ticket, news) = std::str::from_utf8(payload).ok()?.rsplit_once(' ')?;
    let (client, name) = ticket.rsplit_once(':')?;
    let number = name.split_once('.').map_or(name, |(number, _)| number);
    let given = match news {
        "free" => None,
        "given" => Some(Given { token: None }),
        _ => Some(Given { token: Some(news.strip_prefix("given:")?.parse().ok()?) }),
    };
    Some((client, name, u64::from_str_radix(number, 16).ok()?, given))
}

impl Ears {
    pub(super) fn new(client: Uuid) -> Self {
        Self::named(client.hyphenated().to_string())
    }

    /// The ears for one lock alone.
    pub(super) fn of(client: Uuid, key: &Key) -> Self {
        Self::named(format!("{}:{}", key.tag_parts().concat(), client.hyphenated()))
    }

    fn named(client: String) -> Self {
        Self { client, ..Self::default() }
    }

    /// The member of the queue for a ticket of this name.
    pub(super) fn member(&self, name: &str) -> String {
        format!("{}:{name}", self.client)
    }

    /// From now on the ticket gets its messages.
    pub(super) fn open(self: &Arc<Self>, ticket: &Arc<Ticket>, store: &dyn Store) -> io::Result<()> {
        self.tickets.lock().insert(ticket.number, Arc::clone(ticket));
        let mut subscription = self.subscription.lock();
        subscription.wanted += 1;
        if subscription.listening.is_none() {
            subscription.listening =
                Some(store.listen(&format!("redlatch_ear:{}", self.client), Arc::<Self>::clone(self))?);
        }
        if subscription.listening.as_ref().is_some_and(|listening| listening.is_confirmed()) {
            ticket.is_heard_on(Channel::Own);
        }
        Ok(())
    }

    pub(super) fn close(&self, ticket: &Ticket) {
        self.tickets.lock().remove(&ticket.number);
        let mut subscription = self.subscription.lock();
        subscription.wanted -= 1;
        if subscription.wanted == 0 {
            subscription.listening = None;
        }
    }

    /// Whether no ticket waits here.
    pub(super) fn is_idle(&self) -> bool {
        self.subscription.lock().wanted == 0
    }

    pub(super) fn all(&self) -> Vec<Arc<Ticket>> {
        self.tickets.lock().values().map(Arc::clone).collect()
    }

    /// Whether the server refuses this client's subscription.
    pub(super) fn are_refused(&self) -> bool {
        self.refused.load(Relaxed) && !self.are_open()
    }

    /// Whether all messages from now on arrive.
    pub(super) fn are_open(&self) -> bool {
        self.subscription.lock().listening.as_ref().is_some_and(|listening| listening.is_confirmed())
    }
}

impl Ear for Ears {
    /// The tickets hear the lock's channel alone, as foreigners do: so none is counted as one of ours. One log line a client is enough.
    fn refused(&self) -> Option<&'static str> {
        let is_known = self.refused.swap(true, Relaxed);
        self.all().iter().for_each(|ticket| ticket.count_as(None));
        (!is_known).then_some("so this client waits out of turn")
    }

    fn hear(&self, payload: &[u8]) {
        let Some((client, name, number, given)) = understood(payload) else { return };
        let ticket = self.tickets.lock().get(&number).filter(|_| client == self.client).map(Arc::clone);
        ticket.into_iter().for_each(|ticket| ticket.hear_own(name, given));
    }

    fn missed(&self) {
        self.all().iter().for_each(|ticket| ticket.missed_on(Channel::Own));
    }
}

/// The ear on a ticket's own channel, where Redisson says that the lock is free and the ticket first.
pub(super) struct OwnEar(pub(super) Arc<Ticket>);

impl Ear for OwnEar {
    fn hear(&self, _: &[u8]) {
        self.0.hear_that(News::ForIt);
    }

    fn missed(&self) {
        self.0.hear_that(News::ForIt);
    }
}

/// The ear on the lock's channel.
impl Ear for Ticket {
    fn hear(&self, _: &[u8]) {
        self.hear_that(News::ForAll { at: self.clock.now(), share: self.number as u32 % SHARES });
    }

    fn missed(&self) {
        self.missed_on(Channel::All);
    }

    /// The ticket hears nothing, so it must not count as one of ours: scripts give the lock to those.
    fn refused(&self) -> Option<&'static str> {
        self.count_as(None);
        Some("its waiters poll instead")
    }
}
