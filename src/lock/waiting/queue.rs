//! The queue beside a lock, of processes (docs/protocol.md, 8) or of threads (17): which tickets wait, in which order, and which one is given the lock.
//!
//! The queue is advice among our clients. The lock's own key alone says who holds the lock, so errors in the queue cost time, never safety.
//! A script that gives the lock writes the owner of the first ticket into that key. Its message names the ticket.

use super::Take;
use super::company::Company;
use super::policy::{
    FOREIGN, LONGEST_GIVE_WAY, LONGEST_MARK, LONGEST_TTL, MANY_EARS, OFFER, POLL_CAPS, ROUNDING, SHORTEST_OFFER, TO_ALL,
};
use crate::base::config::Config;
use crate::base::key::Key;
use crate::base::say::say;
use crate::base::script::Count::Exactly;
use crate::base::script::scripts;
use crate::base::signal::{Deaf, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::store::Store;
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Reply, Request};
use arrayvec::ArrayVec;
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use uuid::Uuid;

mod ears;
#[cfg(test)]
mod tests;
mod ticket;

use ears::{Ears, OwnEar};
use ticket::Channel;
pub(crate) use ticket::{Given, Ticket};

scripts! {
    /// Reply: how many names of the ticket were in the queue.
    LEAVE = "queue/leave.lua", Exactly(1), Exactly(3);
    /// Reply: how many fields of the wait were in the queue.
    LEAVE_ORDER = "queue/leave_order.lua", Exactly(1), Exactly(5);
}

/// How a call asks for a lock.
#[derive(Clone, Copy)]
pub(crate) enum Manner<'a> {
    /// A try: it takes a free lock and never waits.
    Try,
    /// The first ask of a call that may wait.
    Newcomer,
    /// A call that waits.
    Queued(&'a Arc<Ticket>),
    /// The caller's deadline has passed: the call takes a free lock, or else leaves the queue.
    Last(&'a Arc<Ticket>),
}

impl<'a> Manner<'a> {
    pub(crate) fn ticket(self) -> Option<&'a Arc<Ticket>> {
        match self {
            Self::Queued(ticket) | Self::Last(ticket) => Some(ticket),
            Self::Try | Self::Newcomer => None,
        }
    }
}

/// Who has a place in a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each process, for the first in its line. The queue is of ours alone.
    Processes,
    /// Each thread, in order of arrival. Redisson shares the queue.
    Threads,
}

/// What a client knows of the queues of its locks.
pub(crate) struct Queue {
    order: Order,
    store: Arc<dyn Store>,
    clock: Clock,
    company: Company,
    client: Uuid,
    ears: Arc<Ears>,
    /// Whether each lock has ears of its own, for a script may reach no channel of another slot. A new client does not know yet whether its
    /// cluster has shards, and a ticket of its first ask names its ear: so also where there is none.
    in_cluster: bool,
    /// In a cluster: the ears for each lock that calls wait for, by its key.
    ears_of: Mutex<HashMap<SmolStr, Arc<Ears>>>,
    /// For how long a place counts after a join, ms.
    ttl: u64,
    /// As in [`HandOff`](crate::HandOff), ms.
    give_way: u64,
    /// Moving average of the round-trip time, us.
    trip: AtomicU64,
    /// The server refuses the queue, and the log says so.
    refused: AtomicBool,
    /// False for a strict client and one with `sync_replicas`: a release confirms no replicas and checks no epoch.
    believes_given: bool,
}

/// The offer of a call that wants this lease.
pub(crate) fn offer(lease: Lease) -> Lease {
    lease.min(OFFER).max(SHORTEST_OFFER)
}

/// The arguments that an ask and a release in turn have besides those of the plain scripts.
pub(crate) type Asking<'a> = ArrayVec<Arg<'a>, 7>;
pub(crate) type Releasing<'a> = [Arg<'a>; 5];

/// In place of the queue's TTL: this ask leaves the queue.
const LEAVES: &str = "-1";

/// The rank in the reply to such an ask.
const LEFT: i64 = -2;

/// PTTL of a lock that is free.
const FREE: i64 = -2;

/// In the reply to a release in turn, in place of a count.
const LEFT_TO_FOREIGNERS: i64 = -1;
const REFUSED: i64 = -2;

/// The answer to a release in turn.
pub(crate) struct Released {
    /// The reply of `tell`.
    pub(crate) all: i64,
    /// Whether the lock goes to others in an order.
    pub(crate) in_order: bool,
}

impl Queue {
    pub(crate) fn new(client: Uuid, store: Arc<dyn Store>, config: &Config) -> Self {
        let ttl = config.poll_cap.saturating_mul(POLL_CAPS).as_millis();
        let give_way = config.hand_off.give_way.as_micros().div_ceil(1_000);
        Self {
            order: Order::Processes,
            store,
            clock: Clock::Boot,
            company: Company::default(),
            client,
            ears: Arc::new(Ears::new(client)),
            in_cluster: config.in_cluster,
            ears_of: Mutex::default(),
            ttl: u64::try_from(ttl).unwrap_or(u64::MAX).min(LONGEST_TTL),
            give_way: u64::try_from(give_way).unwrap_or(u64::MAX).min(LONGEST_GIVE_WAY),
            trip: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            believes_given: !config.strict && config.replicas.is_none(),
        }
    }

    /// The same for a queue of all threads that wait.
    pub(crate) fn of_threads(self) -> Self {
        Self { order: Order::Threads, ..self }
    }

    /// Whether each thread has a place of its own. Then a call joins with its first ask, before it has subscribed: else those who subscribe
    /// faster would come before it.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.order == Order::Threads
    }

    /// Whether a hold that a release wrote is enough for this client. If not, a call that was given the lock asks for it: the answer has
    /// what is missing.
    pub(crate) fn believes_given(&self) -> bool {
        self.believes_given
    }

    /// A ticket for one wait. Its news release this semaphore.
    pub(crate) fn ticket(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Arc<Ticket> {
        let number = Uuid::new_v4().as_u64_pair().0;
        Arc::new(Ticket::new(key.clone(), number, Arc::clone(semaphore), self.clock.clone()))
    }

    /// Whether a call is likely to wait, and is subscribed already or cannot be: then it can join with its first ask.
    pub(crate) fn expects_a_wait(&self, key: &Key) -> bool {
        let had_to_wait = self.company.had_to_wait(key, self.clock.now());
        self.company.was_unheard(key) || had_to_wait && self.store.hears(&key.channel())
    }

    /// Subscribes to all channels of a ticket.
    pub(crate) fn listen(&self, ticket: &Arc<Ticket>) -> io::Result<Box<dyn Listening>> {
        let key = ticket.key();
        let all = self.store.listen(&key.channel(), Arc::<Ticket>::clone(ticket))?;
        if all.is_confirmed() {
            ticket.is_heard_on(Channel::All);
        }
        let may_wait_outside = !self.is_of_threads();
        let subscribed = Subscribed { ears: self.ears(key), ticket: Arc::clone(ticket), all, may_wait_outside };
        subscribed.ears.open(ticket, &*self.store)?;
        // A queue of threads knows Redisson's by their fields.
        if !self.is_of_threads() {
            self.count(ticket);
        }
        Ok(Box::new(subscribed))
    }

    /// The ears on which this client is told that it was given this lock.
    fn ears(&self, key: &Key) -> Arc<Ears> {
        if !self.in_cluster {
            return Arc::clone(&self.ears);
        }
        let mut all = self.ears_of.lock();
        if all.len() >= MANY_EARS && all.len().is_power_of_two() {
            // A thread that still has a clone is about to subscribe. New clones need the lock on `ears_of`.
            all.retain(|_, ears| Arc::strong_count(ears) > 1 || !ears.is_idle());
        }
        Arc::clone(all.entry(key.shared()).or_insert_with(|| Arc::new(Ears::of(self.client, key))))
    }

    /// Whether to ask for the lock in turn. A client without company need not.
    pub(crate) fn matters(&self, key: &Key, manner: Manner<'_>) -> bool {
        match manner {
            // Those that have places keep the lock among themselves: a call that was refused one asks for it again at each look.
            _ if self.is_of_threads() => true,
            Manner::Try => false,
            Manner::Newcomer => self.has_company(key),
            // A call that can have no place must not wait for those that have one: it takes a free lock, as a foreigner does. First it
            // leaves the place that it got when it heard nothing at all.
            Manner::Queued(ticket) | Manner::Last(ticket) => {
                !ticket.is_outside() && (ticket.may_be_queued() || !self.is_told_with_all(key))
            }
        }
    }

    /// Whether the client's calls hear the lock's channel while the server refuses the ear.
    fn is_told_with_all(&self, key: &Key) -> bool {
        !self.is_of_threads() && self.ears(key).are_refused() && self.store.hears(&key.channel())
    }

    /// Whether others may wait for a lock: then it is released in turn.
    pub(crate) fn has_company(&self, key: &Key) -> bool {
        self.is_of_threads() || self.company.is_expected(key, self.clock.now())
    }
}

/// Asking.
impl Queue {
    /// A ticket's member of the queue, and its earlier names, which may still be there.
    pub(crate) fn members_of(&self, key: &Key, [name, before]: &[String; 2]) -> [String; 2] {
        [self.ears(key).member(name), before.clone()]
    }

    /// The same for a call; empty without a ticket.
    pub(crate) fn members(&self, manner: Manner<'_>) -> [String; 2] {
        manner.ticket().map(|ticket| self.members_of(ticket.key(), &ticket.names())).unwrap_or_default()
    }

    /// The arguments of an ask in turn. A ticket joins if all its messages from now on arrive, or if it polls.
    pub(crate) fn asking<'a>(&self, key: &'a Key, manner: Manner<'_>, members: &'a [String; 2]) -> Asking<'a> {
        let leaves = matches!(manner, Manner::Last(_)) || self.is_told_with_all(key);
        let joins = matches!(manner, Manner::Queued(ticket) if !leaves && (ticket.polls() || self.is_heard(ticket)));
        manner.ticket().into_iter().for_each(|ticket| ticket.asks(joins));
        let ttl = match manner {
            Manner::Queued(_) if joins => Arg::Number(self.ttl),
            Manner::Queued(_) | Manner::Last(_) if leaves => Arg::Text(LEAVES),
            _ => Arg::Number(0),
        };
        let [member, before] = members.each_ref().map(|member| Arg::Text(member));
        match self.order {
            Order::Processes => {
                Asking::from_iter([Arg::Parts(key.queue_parts()), Arg::Parts(key.mark_parts()), member, before, ttl])
            }
            Order::Threads => {
                let places = key.order_parts().map(Arg::Parts);
                places.into_iter().chain([Arg::Parts(key.channel_parts()), member, before, ttl]).collect()
            }
        }
    }

    /// From the ticket's next ask on, a script may give the lock to this owner for this lease.
    pub(crate) fn offers(&self, ticket: &Ticket, owner: &str, lease: Lease) {
        let (key, hears) = (ticket.key(), self.is_heard(ticket));
        self.ears(key).refused.fetch_and(!hears, Relaxed);
        let polls = match self.order {
            Order::Processes => self.company.is_unheard(key, self.clock.now(), hears),
            Order::Threads => !hears || !self.store.counts_listeners(key.full()),
        };
        ticket.offers(owner, lease, polls);
    }

    /// Whether all messages to a ticket from now on arrive.
    fn is_heard(&self, ticket: &Ticket) -> bool {
        self.ears(ticket.key()).are_open() && self.store.hears(&ticket.key().channel())
    }

    /// The lock was granted to this call, or given to its ticket.
    pub(crate) fn won(&self, key: &Key, manner: Manner<'_>) {
        if manner.ticket().is_some() {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for by the plain script and not granted.
    pub(crate) fn not_won(&self, key: &Key, manner: Manner<'_>) {
        if !matches!(manner, Manner::Try) {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for in turn and not granted.
    pub(crate) fn not_won_in_turn(&self, key: &Key, manner: Manner<'_>, said: &[Reply]) -> Result<Take, Failure> {
        let [left, rank, promised, foreign] = said else { return Err(Failure::not_understood()) };
        if let Reply::Text(error) = promised {
            self.say_refused(key, error);
        }
        let (left, promised) = (left.number()?, promised.number().map_or(0, |ms| u64::try_from(ms).unwrap_or(0)));
        if foreign.number()? == 1 {
            self.company.note_foreign_hold(key, self.clock.now());
        }
        if let Some(ticket) = manner.ticket() {
            self.note_rank(ticket, rank.number()?);
            if self.is_of_threads() && foreign.number()? == 1 {
                self.listen_to_redisson(ticket);
            }
        }
        self.company.note_wait(key, self.clock.now());
        let promised = Duration::from_millis(promised) + ROUNDING;
        Ok(if left == FREE { Take::Reserved(promised) } else { Take::busy(left) })
    }

    /// A thread of Redisson's tells the first of the queue on a channel of that waiter alone.
    fn listen_to_redisson(&self, ticket: &Arc<Ticket>) {
        let [name, _] = ticket.names();
        let field = self.field_of(&name).unwrap_or_default();
        let channel = format!("{}:{field}", ticket.key().channel());
        ticket.listens_on(&channel, || self.store.listen(&channel, Arc::new(OwnEar(Arc::clone(ticket)))));
    }

    /// Counts a ticket as one of ours, which can be given the lock. A refusal may have come while this subscribed: so look again.
    fn count(&self, ticket: &Ticket) {
        ticket.count_as(self.store.listen(&ticket.key().members(), Arc::new(Deaf(None))).ok());
        if ticket.is_outside() || self.ears(ticket.key()).are_refused() {
            ticket.count_as(None);
        }
    }

    /// A ticket without a place hears the lock's channel alone, as foreigners do, so it must not count as one of ours. Nor must one that
    /// polls: it does not hear all its channels.
    fn note_rank(&self, ticket: &Ticket, rank: i64) {
        *ticket.rank.lock() = u32::try_from(rank).ok();
        match rank {
            0.. if self.is_of_threads() => ticket.outside.store(false, Relaxed),
            0.. if ticket.polls() => ticket.count_as(None),
            0.. if ticket.is_counted() => {}
            0.. => self.count(ticket),
            _ => {
                ticket.count_as(None);
                ticket.has_no_place(rank == LEFT);
                if !ticket.is_outside() && !self.is_heard(ticket) && !self.is_told_with_all(ticket.key()) {
                    self.company.note_unheard(ticket.key(), self.clock.now());
                }
            }
        }
    }
}

/// Giving up.
impl Queue {
    /// The arguments of a release in turn.
    pub(crate) fn releasing<'a>(&self, key: &'a Key) -> Releasing<'a> {
        let now = self.clock.now();
        let (queue, mark) = (Arg::Beside(key.queue_parts()), Arg::Beside(key.mark_parts()));
        let to_all = Arg::Number(u64::from(self.company.count_release(key, now) % TO_ALL == TO_ALL - 1));
        let foreign_turn = if self.company.owes_foreigners(key, now) { self.foreign_turn() } else { 0 };
        [queue, mark, Arg::Parts(key.members_parts()), Arg::Number(foreign_turn), to_all]
    }

    /// Takes a ticket out of the queue, by its names. Not sent to the node that a slot is moving to: the queue stays where it was until
    /// the slot has arrived.
    pub(crate) fn leave(&self, key: &Key, names: &[String; 2], answer_by: Moment) -> Result<(), Failure> {
        if self.is_of_threads() {
            return self.leave_order(key, names, answer_by);
        }
        let ([member, before], keys) = (self.members_of(key, names), [key.full()]);
        let args = [Arg::Parts(key.queue_parts()), Arg::Text(&member), Arg::Text(&before)];
        let request = Request { may_ask: false, ..Request::of(&LEAVE, &keys, &args) };
        self.store.attempt(Lane::Releases, &request, Limits::any_time(answer_by)).map(drop)
    }

    /// The same for a queue of threads.
    fn leave_order(&self, key: &Key, names: &[String; 2], answer_by: Moment) -> Result<(), Failure> {
        let fields = names.iter().flat_map(|names| names.split(' ')).filter_map(|name| self.field_of(name));
        let (fields, keys) = (fields.collect::<Vec<_>>().join(" "), [key.full()]);
        let [list, ends, tickets] = key.order_parts().map(Arg::Parts);
        let args = [list, ends, tickets, Arg::Parts(key.channel_parts()), Arg::Text(&fields)];
        let request = Request { may_ask: false, ..Request::of(&LEAVE_ORDER, &keys, &args) };
        self.store.attempt(Lane::Releases, &request, Limits::any_time(answer_by)).map(drop)
    }

    /// The owner field in a ticket's name.
    fn field_of(&self, name: &str) -> Option<String> {
        let mut parts = name.split('.').skip(2);
        Some(format!("{}:{}:{}", self.client.hyphenated(), parts.next()?, parts.next()?))
    }

    /// Reads the reply to a release in turn.
    pub(crate) fn told(&self, key: &Key, said: &[Reply]) -> Result<Released, Failure> {
        let [all, queued, more] = said else { return Err(Failure::not_understood()) };
        let queued = queued.number()?;
        if let (REFUSED, Reply::Text(error)) = (queued, more) {
            self.say_refused(key, error);
        }
        let now = self.clock.now();
        match (queued, more) {
            (LEFT_TO_FOREIGNERS, Reply::Number(ours)) => {
                // `tell` returns the number of listeners + 2.
                self.company.note_left_to_foreigners(key, now, [*ours, all.number()? - 2 - ours]);
            }
            (0, _) => self.company.note_no_queue(key, now),
            _ => self.company.note_queue(key, now),
        }
        Ok(Released { all: all.number()?, in_order: queued > 0 || queued == LEFT_TO_FOREIGNERS })
    }

    /// A release reached `told` others, which may wait.
    pub(crate) fn note_told(&self, key: &Key, told: i64) {
        self.company.note_told(key, self.clock.now(), told);
    }

    /// A release reached nobody.
    pub(crate) fn note_alone(&self, key: &Key) {
        self.company.note_alone(key);
    }

    /// A release in turn reached `told` others, none of them in the queue.
    pub(crate) fn note_bystanders(&self, key: &Key, told: i64) {
        self.company.note_bystanders(key, self.clock.now(), told);
    }

    fn say_refused(&self, key: &Key, error: &[u8]) {
        if !self.refused.swap(true, Relaxed) {
            let queue = match self.order {
                Order::Processes => key.queue_parts(),
                Order::Threads => key.order_parts()[0],
            };
            let (queue, error) = (queue.concat(), String::from_utf8_lossy(error));
            say!(warn, "the server refuses the queue {queue:?}, so waiters are served in no order: {error}");
        }
    }

    /// For how long to leave the lock to foreigners, ms; zero: do not.
    fn foreign_turn(&self) -> u64 {
        if self.give_way == 0 { 0 } else { (self.give_way * FOREIGN + self.trips()).min(LONGEST_MARK) }
    }

    /// Two round trips, ms.
    fn trips(&self) -> u64 {
        (2 * self.trip.load(Relaxed)).div_ceil(1_000)
    }

    /// Updates the round-trip time: trip = (7 * trip + took) / 8.
    pub(crate) fn note_trip(&self, answer: &Answer) {
        let (known, took) = (self.trip.load(Relaxed), self.clock.now().since(answer.sent).as_micros() as u64);
        self.trip.store(if known == 0 { took } else { (7 * known + took) / 8 }, Relaxed);
    }
}

/// The subscriptions of a ticket. Their end also takes the ticket out of the count of ours.
struct Subscribed {
    ears: Arc<Ears>,
    ticket: Arc<Ticket>,
    all: Box<dyn Listening>,
    /// While the server refuses the ear, the lock's channel is enough: the ticket waits outside of the queue.
    may_wait_outside: bool,
}

impl Listening for Subscribed {
    fn is_confirmed(&self) -> bool {
        let has_its_ear = self.ears.are_open() || self.may_wait_outside && self.ears.are_refused();
        self.all.is_confirmed() && self.ticket.hears_its_own() && has_its_ear
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.ticket.count_as(None);
        self.ears.close(&self.ticket);
    }
}

/// The latest end of a place in a queue that was taken at `now`.
pub(crate) fn stays(config: &Config, now: Moment) -> Moment {
    now.plus(config.poll_cap.saturating_mul(POLL_CAPS).min(Duration::from_millis(LONGEST_TTL)))
}
