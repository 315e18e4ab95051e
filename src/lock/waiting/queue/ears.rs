//! Where a client is told, alone, which of its tickets has the lock or may have it.

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

/// The ear of a client: the channel on which others tell it, and nobody else, which of its tickets has the lock, or may have it.
///
/// All tickets of a client by their numbers. It listens while there is any.
///
/// Two locks, because the subscriber tells while it keeps its own, under which listening begins and ends: `tickets` is the
/// one that it takes, and nobody calls the subscriber with it.
#[derive(Default)]
pub(super) struct Ears {
    /// What the channel's name ends and each ticket begins with: the client, in a cluster of shards behind the lock, whose slot
    /// the channel has to share.
    client: String,
    tickets: Mutex<HashMap<u64, Arc<Ticket>>>,
    subscription: Mutex<Subscription>,
    /// The server refuses the channel, and that was said.
    pub(super) refused: AtomicBool,
}

#[derive(Default)]
struct Subscription {
    wanted: usize,
    listening: Option<Box<dyn Listening>>,
}

/// A message: the client, the name of the ticket, its number, and whether it was given the lock or is the first of the queue of one that is
/// free. What nobody of ours published is nothing.
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

    /// Those for one lock alone.
    pub(super) fn of(client: Uuid, key: &Key) -> Self {
        Self::named(format!("{}:{}", key.tag_parts().concat(), client.hyphenated()))
    }

    fn named(client: String) -> Self {
        Self { client, ..Self::default() }
    }

    /// A ticket of that name as the queue has it.
    pub(super) fn member(&self, name: &str) -> String {
        format!("{}:{name}", self.client)
    }

    /// From now on the ticket hears what is told to it.
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

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.subscription.lock().wanted == 0
    }

    pub(super) fn all(&self) -> Vec<Arc<Ticket>> {
        self.tickets.lock().values().map(Arc::clone).collect()
    }

    /// Whether the server does not let this client listen.
    pub(super) fn are_refused(&self) -> bool {
        self.refused.load(Relaxed) && !self.are_open()
    }

    /// Whether what is told from now on will be heard.
    pub(super) fn are_open(&self) -> bool {
        self.subscription.lock().listening.as_ref().is_some_and(|listening| listening.is_confirmed())
    }
}

impl Ear for Ears {
    /// Whoever waits is told with everybody, and so no ticket counts as one of ours. Worth one line for each client.
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
