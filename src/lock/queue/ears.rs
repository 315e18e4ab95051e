//! The ear of a client: the channel on which others tell it, and nobody else, which of its tickets has the lock, or may have it.

use super::ticket::{self, Given, Ticket};
use crate::base::key::Key;
use crate::base::signal::{Ear, Listening};
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// All tickets of a client by their numbers. It listens while there is any.
///
/// Two locks, because the subscriber tells while it keeps its own, under which listening begins and ends: `tickets` is the
/// one that it takes, and nobody calls the subscriber with it.
pub(super) struct Ears {
    /// What the channel's name ends and each ticket begins with: the client, in a cluster of shards behind the lock, whose slot
    /// the channel has to share.
    client: String,
    tickets: Mutex<HashMap<u64, Arc<Ticket>>>,
    channel: Mutex<Channel>,
    /// The server refuses the channel, and that was said.
    refused: AtomicBool,
}

#[derive(Default)]
struct Channel {
    wanted: usize,
    listening: Option<Box<dyn Listening>>,
}

/// What a ticket is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// The lock is free, and it is the first of the queue.
    Free,
    /// It has the lock.
    Given(Given),
}

/// A message: the client, the name of the ticket, its number, and the news. What nobody of ours published is nothing.
fn understood(payload: &[u8]) -> Option<(&str, &str, u64, News)> {
    let (ticket, news) = std::str::from_utf8(payload).ok()?.rsplit_once(' ')?;
    let (client, name) = ticket.rsplit_once(':')?;
    let number = name.split_once('.').map_or(name, |(number, _)| number);
    let news = match news {
        "free" => News::Free,
        "given" => News::Given(Given { token: None }),
        _ => News::Given(Given { token: Some(news.strip_prefix("given:")?.parse().ok()?) }),
    };
    Some((client, name, u64::from_str_radix(number, 16).ok()?, news))
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
        Self { client, tickets: Mutex::default(), channel: Mutex::default(), refused: AtomicBool::default() }
    }

    /// A ticket of that name as the queue has it.
    pub(super) fn member(&self, name: &str) -> String {
        format!("{}:{name}", self.client)
    }

    /// From now on the ticket hears what is told to it.
    pub(super) fn open(self: &Arc<Self>, ticket: &Arc<Ticket>, store: &dyn Store) -> io::Result<()> {
        self.tickets.lock().insert(ticket.number(), Arc::clone(ticket));
        let mut channel = self.channel.lock();
        channel.wanted += 1;
        if channel.listening.is_none() {
            channel.listening = Some(store.listen(&format!("redlatch_ear:{}", self.client), Arc::<Self>::clone(self))?);
        }
        if channel.listening.as_ref().is_some_and(|listening| listening.is_confirmed()) {
            ticket.is_heard_on(ticket::Channel::Own);
        }
        Ok(())
    }

    pub(super) fn close(&self, ticket: &Ticket) {
        self.tickets.lock().remove(&ticket.number());
        let mut channel = self.channel.lock();
        channel.wanted -= 1;
        if channel.wanted == 0 {
            channel.listening = None;
        }
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.channel.lock().wanted == 0
    }

    fn all(&self) -> Vec<Arc<Ticket>> {
        self.tickets.lock().values().map(Arc::clone).collect()
    }

    /// Whether the server does not let this client listen.
    pub(super) fn are_refused(&self) -> bool {
        self.refused.load(Relaxed) && !self.are_open()
    }

    /// Whether what is told from now on will be heard.
    pub(super) fn are_open(&self) -> bool {
        self.channel.lock().listening.as_ref().is_some_and(|listening| listening.is_confirmed())
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
        let Some((client, name, number, news)) = understood(payload) else { return };
        let ticket = self.tickets.lock().get(&number).filter(|_| client == self.client).map(Arc::clone);
        ticket.into_iter().for_each(|ticket| match news {
            News::Free => ticket.hear_free(),
            News::Given(given) => ticket.hear_given(name, given),
        });
    }

    fn missed(&self) {
        self.all().iter().for_each(|ticket| ticket.missed_on(ticket::Channel::Own));
    }
}
