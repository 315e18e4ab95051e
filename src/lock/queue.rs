//! The queue of processes beside a lock (docs/protocol.md, 8): who waits, in order, and to whom the lock is given.
//!
//! It is advice among clients of ours. Who holds the lock is said by the lock's own key alone, so that whatever happens to
//! the queue costs time, and never safety. A script that gives the lock writes the first of the queue there. Its message names the ticket.

mod company;
mod ears;
mod foreigners;
#[cfg(test)]
mod tests;
mod ticket;

use super::primitive::Take;
use crate::base::config::Config;
use crate::base::key::Key;
use crate::base::say::say;
use crate::base::signal::{Deaf, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::store::Store;
use crate::store::node::{Answer, Arg, Failure, Reply};
use company::Company;
use ears::Ears;
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use ticket::Channel;
use uuid::Uuid;

pub(crate) use ticket::{Given, Ticket};

/// How a call comes to a lock.
#[derive(Clone, Copy)]
pub(crate) enum Manner<'a> {
    /// It tries, and takes what is free.
    Try,
    /// It would wait, and has not had to yet.
    Newcomer,
    /// It waits.
    Queued(&'a Arc<Ticket>),
}

/// What a client knows of the queues of its locks.
pub(crate) struct Queue {
    store: Arc<dyn Store>,
    clock: Clock,
    company: Company,
    client: Uuid,
    ears: Arc<Ears>,
    /// In a cluster of shards those of each lock that is waited for, by its key.
    ears_of: Mutex<HashMap<SmolStr, Arc<Ears>>>,
    /// TTL of a queue that nobody joins any more, ms.
    ttl: u64,
    /// As in [`HandOff`](crate::HandOff), ms.
    give_way: u64,
    /// What a round trip takes lately, us.
    trip: AtomicU64,
    /// The server refuses the queue, and that was said.
    refused: AtomicBool,
}

/// Whoever waits looks at the lock once a poll cap, and so joins again: after so many of them nobody waits.
const POLL_CAPS: u32 = 3;

/// For how long the first of the queue has a lock that was given to it, and has not asked for. A machine that stands still for .6 s keeps
/// what it was given; whoever was given a lock and is stopped keeps the others waiting for so long.
const OFFER: Lease = Lease::of_millis(1_500);
/// A shorter one is none.
const SHORTEST_OFFER: Lease = Lease::of_millis(10);

/// The offer of a call that wants the lock for so long.
pub(super) fn offer(lease: Lease) -> Lease {
    lease.min(OFFER).max(SHORTEST_OFFER)
}

/// So many times as long as another process of ours may need to come is left to a JVM.
const FOREIGN: u64 = 4;

/// One release in turn of so many is told to all, and gives the lock to nobody: it is counted by lock, or of two that are always taken
/// together one would never be free.
const TO_ALL: u64 = 32;

/// What an ask in turn and a release in turn hand over besides what the plain scripts get.
pub(super) type Asking<'a> = [Arg<'a>; 5];
pub(super) type Releasing<'a> = [Arg<'a>; 5];

/// What PTTL says of a lock that is free.
const FREE: i64 = -2;

/// What a release in turn says instead of how many were told.
const LEFT_TO_FOREIGNERS: i64 = -1;
const REFUSED: i64 = -2;

/// A release in turn was answered.
pub(super) struct Told {
    /// What `tell` said.
    pub(super) all: i64,
    /// Whether there is an order in which others come.
    pub(super) in_order: bool,
}

impl Queue {
    pub(super) fn new(client: Uuid, store: Arc<dyn Store>, config: &Config) -> Self {
        let ttl = config.poll_cap.saturating_mul(POLL_CAPS).as_millis();
        let give_way = config.hand_off.give_way.as_micros().div_ceil(1_000);
        Self {
            store,
            clock: Clock::Boot,
            company: Company::default(),
            client,
            ears: Arc::new(Ears::new(client)),
            ears_of: Mutex::default(),
            ttl: u64::try_from(ttl).unwrap_or(u64::MAX).min(LONGEST_TTL),
            give_way: u64::try_from(give_way).unwrap_or(u64::MAX).min(LONGEST_GIVE_WAY),
            trip: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        }
    }

    /// A ticket for one wait, which may be told through this semaphore.
    pub(crate) fn ticket(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Arc<Ticket> {
        let number = Uuid::new_v4().as_u64_pair().0;
        Arc::new(Ticket::new(key.clone(), number, Arc::clone(semaphore), self.clock.clone()))
    }

    /// Whether a call is likely to have to wait, and listens already: then it can join with its first ask.
    pub(crate) fn expects_a_wait(&self, key: &Key) -> bool {
        self.company.had_to_wait(key, self.clock.now()) && self.store.hears(&key.channel())
    }

    /// Listens to all that a ticket can be told.
    pub(crate) fn listen(&self, ticket: &Arc<Ticket>) -> io::Result<Box<dyn Listening>> {
        let key = ticket.key();
        let all = self.store.listen(&key.channel(), Arc::<Ticket>::clone(ticket))?;
        if all.is_confirmed() {
            ticket.is_heard_on(Channel::All);
        }
        let own = Own { ears: self.ears(key), ticket: Arc::clone(ticket) };
        own.ears.open(ticket, &*self.store)?;
        self.count(ticket);
        Ok(Box::new(Subscribed { _own: own, all }))
    }

    /// Where a client is told that it was given a lock.
    fn ears(&self, key: &Key) -> Arc<Ears> {
        if !self.store.is_sharded() {
            return Arc::clone(&self.ears);
        }
        let mut all = self.ears_of.lock();
        if all.len() >= MANY && all.len().is_power_of_two() {
            all.retain(|_, ears| !ears.is_idle());
        }
        Arc::clone(all.entry(key.shared()).or_insert_with(|| Arc::new(Ears::of(self.client, key))))
    }

    /// Whether the lock is to be asked for in turn. Who is alone need not.
    pub(super) fn matters(&self, key: &Key, manner: Manner<'_>) -> bool {
        match manner {
            Manner::Try => false,
            Manner::Newcomer => self.has_company(key),
            // Whoever cannot have a place is not to wait for those who have: it takes what is free, as a foreigner does.
            Manner::Queued(ticket) => !ticket.is_outside() && !self.ears(key).are_refused(),
        }
    }

    /// Whether others may wait for a lock, so that it is given up in turn.
    pub(super) fn has_company(&self, key: &Key) -> bool {
        self.company.is_expected(key, self.clock.now())
    }
}

/// From so many locks on those are forgotten whom nobody waits for.
const MANY: usize = 64;

/// Beyond this a mark would not be believed, ms.
const LONGEST_GIVE_WAY: u64 = 200;

/// No queue outlives its waiters for longer, ms: a day.
const LONGEST_TTL: u64 = 86_400_000;

/// Asking.
impl Queue {
    /// A ticket as the queue has it, and the names that it may have there still.
    pub(super) fn members_of(&self, key: &Key, [name, before]: &[String; 2]) -> [String; 2] {
        [self.ears(key).member(name), before.clone()]
    }

    /// The same of a call; nothing for who has none.
    pub(super) fn members(&self, manner: Manner<'_>) -> [String; 2] {
        match manner {
            Manner::Queued(ticket) => self.members_of(ticket.key(), &ticket.names()),
            Manner::Try | Manner::Newcomer => Default::default(),
        }
    }

    /// The arguments of an ask in turn. A ticket joins once whatever it is told will be heard.
    pub(super) fn asking<'a>(&self, key: &'a Key, manner: Manner<'_>, members: &'a [String; 2]) -> Asking<'a> {
        let joins = matches!(manner, Manner::Queued(ticket) if self.joins(ticket));
        let ttl = Arg::Number(if joins { self.ttl } else { 0 });
        let (queue, mark) = (Arg::Parts(key.queue_parts()), Arg::Parts(key.mark_parts()));
        let [member, before] = members.each_ref().map(|member| Arg::Text(member));
        [queue, mark, member, before, ttl]
    }

    /// Whether a ticket joins with the ask that is about to be sent.
    fn joins(&self, ticket: &Ticket) -> bool {
        let joins = self.ears(ticket.key()).are_open() && self.store.hears(&ticket.key().channel());
        ticket.asks(joins);
        joins
    }

    /// The lock was asked for and granted, or given to who had asked.
    pub(super) fn won(&self, key: &Key, manner: Manner<'_>) {
        if let Manner::Queued(_) = manner {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for and not granted, without a word of the queue.
    pub(super) fn not_won(&self, key: &Key, manner: Manner<'_>) {
        if !matches!(manner, Manner::Try) {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for in turn and not granted.
    pub(super) fn not_won_in_turn(&self, key: &Key, manner: Manner<'_>, said: &[Reply]) -> Result<Take, Failure> {
        let [left, rank, promised, foreign] = said else { return Err(Failure::not_understood()) };
        let (left, promised) = (left.number()?, u64::try_from(promised.number()?).unwrap_or(0));
        if foreign.number()? == 1 {
            self.company.note_foreign_hold(key, self.clock.now());
        }
        if let Manner::Queued(ticket) = manner {
            self.note_rank(ticket, u32::try_from(rank.number()?).ok());
        }
        self.company.note_wait(key, self.clock.now());
        let promised = Duration::from_millis(promised) + ROUNDING;
        Ok(if left == FREE { Take::Left(promised) } else { Take::busy(left) })
    }
}

/// What a server says is left of so many ms may last for one more.
const ROUNDING: Duration = Duration::from_millis(1);

impl Queue {
    /// One more of ours listens to a lock's channel, and can be given the lock. If it cannot, because it is refused to listen,
    /// that may have been said before it counted.
    fn count(&self, ticket: &Ticket) {
        ticket.count_as(self.store.listen(&ticket.key().members(), Arc::new(Deaf(None))).ok());
        if ticket.is_outside() || self.ears(ticket.key()).are_refused() {
            ticket.count_as(None);
        }
    }

    /// Who has a place is given the lock. Who has none, because the server refuses the queue or the ear, is told with everybody,
    /// and so must not be counted as one of ours.
    fn note_rank(&self, ticket: &Ticket, rank: Option<u32>) {
        ticket.saw(rank);
        match rank {
            Some(_) if ticket.is_counted() => {}
            Some(_) => self.count(ticket),
            None => {
                ticket.count_as(None);
                ticket.has_no_place();
            }
        }
    }
}

/// Giving up.
impl Queue {
    /// The arguments of a release in turn.
    pub(super) fn releasing<'a>(&self, key: &'a Key) -> Releasing<'a> {
        let now = self.clock.now();
        let (queue, mark) = (Arg::Parts(key.queue_parts()), Arg::Parts(key.mark_parts()));
        let to_all = self.company.count_release(key, now) % TO_ALL == TO_ALL - 1;
        let foreign_turn = if self.company.owes_foreigners(key, now) { self.foreign_turn() } else { 0 };
        let to_all = Arg::Number(u64::from(to_all));
        [queue, mark, Arg::Parts(key.members_parts()), Arg::Number(foreign_turn), to_all]
    }

    /// The arguments of a leave.
    pub(super) fn leaving<'a>(&self, key: &'a Key, [member, before]: &'a [String; 2]) -> [Arg<'a>; 3] {
        [Arg::Parts(key.queue_parts()), Arg::Text(member), Arg::Text(before)]
    }

    /// What a release in turn said.
    pub(super) fn told(&self, key: &Key, said: &[Reply]) -> Result<Told, Failure> {
        let [all, queued, more] = said else { return Err(Failure::not_understood()) };
        let queued = queued.number()?;
        if let (REFUSED, Reply::Text(error)) = (queued, more) {
            self.say_refused(key, error);
        }
        let now = self.clock.now();
        match (queued, more) {
            (LEFT_TO_FOREIGNERS, Reply::Number(ours)) => self.company.note_left_to_foreigners(key, now, *ours),
            (0, _) => self.company.note_no_queue(key, now),
            _ => self.company.note_queue(key, now),
        }
        Ok(Told { all: all.number()?, in_order: queued > 0 || queued == LEFT_TO_FOREIGNERS })
    }

    /// A release reached so many others that may wait.
    pub(super) fn note_told(&self, key: &Key, told: i64) {
        self.company.note_told(key, self.clock.now(), told);
    }

    /// A release reached nobody.
    pub(super) fn note_alone(&self, key: &Key) {
        self.company.note_alone(key);
    }

    /// A release in turn reached so many others, and none of them is in the queue.
    pub(super) fn note_bystanders(&self, key: &Key, told: i64) {
        self.company.note_bystanders(key, self.clock.now(), told);
    }

    fn say_refused(&self, key: &Key, error: &[u8]) {
        if !self.refused.swap(true, Relaxed) {
            let (queue, error) = (key.queue_parts().concat(), String::from_utf8_lossy(error));
            say!(warn, "the server refuses the queue {queue:?}, so processes are served in no order: {error}");
        }
    }

    /// For how long the lock is left to foreigners, ms; zero: it is not.
    fn foreign_turn(&self) -> u64 {
        if self.give_way == 0 { 0 } else { self.give_way * FOREIGN + self.trips() }
    }

    /// What two round trips take, ms.
    fn trips(&self) -> u64 {
        (2 * self.trip.load(Relaxed)).div_ceil(1_000)
    }

    /// An answer came: what a round trip takes follows, an eighth of the way each time.
    pub(super) fn note_trip(&self, answer: &Answer) {
        let (known, took) = (self.trip.load(Relaxed), self.clock.now().since(answer.sent).as_micros() as u64);
        self.trip.store(if known == 0 { took } else { (7 * known + took) / 8 }, Relaxed);
    }
}

/// All that a ticket listens to, until it is dropped: it is counted as one of ours no longer than it listens to all.
struct Subscribed {
    _own: Own,
    all: Box<dyn Listening>,
}

impl Listening for Subscribed {
    fn is_confirmed(&self) -> bool {
        self.all.is_confirmed()
    }
}

struct Own {
    ears: Arc<Ears>,
    ticket: Arc<Ticket>,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.ticket.count_as(None);
        self.ears.close(&self.ticket);
    }
}

/// Until when a place in a queue may last that was taken at `now`.
pub(crate) fn stays(config: &Config, now: Moment) -> Moment {
    now.plus(config.poll_cap.saturating_mul(POLL_CAPS))
}
