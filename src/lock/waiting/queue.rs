//! The queue of processes beside a lock (docs/protocol.md, 8): who waits, in order, and to whom the lock is given.
//!
//! It is advice among clients of ours. Who holds the lock is said by the lock's own key alone, so that whatever happens to
//! the queue costs time, and never safety. A script that gives the lock writes the first of the queue there. Its message names the ticket.

use super::Take;
use super::bid::Told;
use super::company::Company;
use super::policy::{
    FOREIGN, LONGEST_GIVE_WAY, LONGEST_MARK, LONGEST_TTL, MANY_EARS, NAMES, OFFER, POLL_CAPS, ROUNDING, SHARES,
    SHORTEST_OFFER, TO_ALL,
};
use super::wait::News;
use crate::base::config::Config;
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::signal::{Deaf, Ear, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::store::Store;
use crate::store::node::{Answer, Arg, Failure, Reply};
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
use uuid::Uuid;

mod ears;
#[cfg(test)]
mod tests;

use ears::Ears;

/// How a call comes to a lock.
#[derive(Clone, Copy)]
pub(crate) enum Manner<'a> {
    /// It tries, and takes what is free.
    Try,
    /// It would wait, and has not had to yet.
    Newcomer,
    /// It waits.
    Queued(&'a Arc<Ticket>),
    /// Its time is over: it takes what is free, and else goes without a place.
    Last(&'a Arc<Ticket>),
}

impl<'a> Manner<'a> {
    fn ticket(self) -> Option<&'a Arc<Ticket>> {
        match self {
            Self::Queued(ticket) | Self::Last(ticket) => Some(ticket),
            Self::Try | Self::Newcomer => None,
        }
    }
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
    /// What a release gives is not confirmed by replicas, and says nothing of the epoch of a strict client.
    believes_given: bool,
}

/// The offer of a call that wants the lock for so long.
pub(crate) fn offer(lease: Lease) -> Lease {
    lease.min(OFFER).max(SHORTEST_OFFER)
}

/// What an ask in turn and a release in turn hand over besides what the plain scripts get.
pub(crate) type Asking<'a> = [Arg<'a>; 5];
pub(crate) type Releasing<'a> = [Arg<'a>; 5];

/// Instead of the TTL that an ask in turn gives the queue: who asks leaves it.
const LEAVES: &str = "-1";

/// What such an ask says instead of its rank.
const LEFT: i64 = -2;

/// What PTTL says of a lock that is free.
const FREE: i64 = -2;

/// What a release in turn says instead of how many were told.
const LEFT_TO_FOREIGNERS: i64 = -1;
const REFUSED: i64 = -2;

/// A release in turn was answered.
pub(crate) struct Released {
    /// What `tell` said.
    pub(crate) all: i64,
    /// Whether there is an order in which others come.
    pub(crate) in_order: bool,
}

impl Queue {
    pub(crate) fn new(client: Uuid, store: Arc<dyn Store>, config: &Config) -> Self {
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
            believes_given: !config.strict && config.replicas.is_none(),
        }
    }

    /// Whether a hold that a release wrote is all that its client needs. Else a call that was given the lock asks for it, which is answered
    /// by what is missing.
    pub(crate) fn believes_given(&self) -> bool {
        self.believes_given
    }

    /// A ticket for one wait, which may be told through this semaphore.
    pub(crate) fn ticket(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Arc<Ticket> {
        let number = Uuid::new_v4().as_u64_pair().0;
        Arc::new(Ticket::new(key.clone(), number, Arc::clone(semaphore), self.clock.clone()))
    }

    /// Whether a call is likely to have to wait, and listens already, or cannot: then it can join with its first ask.
    pub(crate) fn expects_a_wait(&self, key: &Key) -> bool {
        let had_to_wait = self.company.had_to_wait(key, self.clock.now());
        self.company.was_unheard(key) || had_to_wait && self.store.hears(&key.channel())
    }

    /// Listens to all that a ticket can be told.
    pub(crate) fn listen(&self, ticket: &Arc<Ticket>) -> io::Result<Box<dyn Listening>> {
        let key = ticket.key();
        let all = self.store.listen(&key.channel(), Arc::<Ticket>::clone(ticket))?;
        if all.is_confirmed() {
            ticket.is_heard_on(Channel::All);
        }
        let subscribed = Subscribed { ears: self.ears(key), ticket: Arc::clone(ticket), all };
        subscribed.ears.open(ticket, &*self.store)?;
        self.count(ticket);
        Ok(Box::new(subscribed))
    }

    /// Where a client is told that it was given a lock.
    fn ears(&self, key: &Key) -> Arc<Ears> {
        if !self.store.is_sharded() {
            return Arc::clone(&self.ears);
        }
        let mut all = self.ears_of.lock();
        if all.len() >= MANY_EARS && all.len().is_power_of_two() {
            // Who has them in hand is about to listen. Nobody gets them but under this lock.
            all.retain(|_, ears| Arc::strong_count(ears) > 1 || !ears.is_idle());
        }
        Arc::clone(all.entry(key.shared()).or_insert_with(|| Arc::new(Ears::of(self.client, key))))
    }

    /// Whether the lock is to be asked for in turn. Who is alone need not.
    pub(crate) fn matters(&self, key: &Key, manner: Manner<'_>) -> bool {
        match manner {
            Manner::Try => false,
            Manner::Newcomer => self.has_company(key),
            // Whoever cannot have a place is not to wait for those who have: it takes what is free, as a foreigner does. First it
            // leaves the place that it had when it heard less.
            Manner::Queued(ticket) | Manner::Last(ticket) => {
                !ticket.is_outside() && (ticket.may_be_queued() || !self.is_told_with_all(key))
            }
        }
    }

    /// Whether its calls hear what everybody is told, and the server does not let them hear more.
    fn is_told_with_all(&self, key: &Key) -> bool {
        self.ears(key).are_refused() && self.store.hears(&key.channel())
    }

    /// Whether others may wait for a lock, so that it is given up in turn.
    pub(crate) fn has_company(&self, key: &Key) -> bool {
        self.company.is_expected(key, self.clock.now())
    }
}

/// Asking.
impl Queue {
    /// A ticket as the queue has it, and the names that it may have there still.
    pub(crate) fn members_of(&self, key: &Key, [name, before]: &[String; 2]) -> [String; 2] {
        [self.ears(key).member(name), before.clone()]
    }

    /// The same of a call; nothing for who has none.
    pub(crate) fn members(&self, manner: Manner<'_>) -> [String; 2] {
        manner.ticket().map(|ticket| self.members_of(ticket.key(), &ticket.names())).unwrap_or_default()
    }

    /// The arguments of an ask in turn. A ticket joins once whatever it is told will be heard, or if it polls.
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
        [Arg::Parts(key.queue_parts()), Arg::Parts(key.mark_parts()), member, before, ttl]
    }

    /// The next ask of a ticket is for a lock that may be given to this owner, for so long.
    pub(crate) fn offers(&self, ticket: &Ticket, owner: &str, lease: Lease) {
        let (key, hears) = (ticket.key(), self.is_heard(ticket));
        self.ears(key).refused.fetch_and(!hears, Relaxed);
        ticket.offers(owner, lease, self.company.is_unheard(key, self.clock.now(), hears));
    }

    /// Whether a ticket will hear whatever it is told from now on.
    fn is_heard(&self, ticket: &Ticket) -> bool {
        self.ears(ticket.key()).are_open() && self.store.hears(&ticket.key().channel())
    }

    /// The lock was asked for and granted, or given to who had asked.
    pub(crate) fn won(&self, key: &Key, manner: Manner<'_>) {
        if manner.ticket().is_some() {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for and not granted, without a word of the queue.
    pub(crate) fn not_won(&self, key: &Key, manner: Manner<'_>) {
        if !matches!(manner, Manner::Try) {
            self.company.note_wait(key, self.clock.now());
        }
    }

    /// The lock was asked for in turn and not granted.
    pub(crate) fn not_won_in_turn(&self, key: &Key, manner: Manner<'_>, said: &[Reply]) -> Result<Take, Failure> {
        let [left, rank, promised, foreign] = said else { return Err(Failure::not_understood()) };
        let (left, promised) = (left.number()?, u64::try_from(promised.number()?).unwrap_or(0));
        if foreign.number()? == 1 {
            self.company.note_foreign_hold(key, self.clock.now());
        }
        if let Some(ticket) = manner.ticket() {
            self.note_rank(ticket, rank.number()?);
        }
        self.company.note_wait(key, self.clock.now());
        let promised = Duration::from_millis(promised) + ROUNDING;
        Ok(if left == FREE { Take::Reserved(promised) } else { Take::busy(left) })
    }

    /// One more of ours, which can be given the lock. If it cannot, because it is refused a place, that may have been said before.
    fn count(&self, ticket: &Ticket) {
        ticket.count_as(self.store.listen(&ticket.key().members(), Arc::new(Deaf(None))).ok());
        if ticket.is_outside() || self.ears(ticket.key()).are_refused() {
            ticket.count_as(None);
        }
    }

    /// Who has no place, because the server refuses the queue or the ear, is told with everybody, and so must not be counted as one of
    /// ours. Nor must one that polls: it does not listen to all that it could be told on.
    fn note_rank(&self, ticket: &Ticket, rank: i64) {
        *ticket.rank.lock() = u32::try_from(rank).ok();
        match rank {
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

    /// The arguments of a leave.
    pub(crate) fn leaving<'a>(&self, key: &'a Key, [member, before]: &'a [String; 2]) -> [Arg<'a>; 3] {
        [Arg::Parts(key.queue_parts()), Arg::Text(member), Arg::Text(before)]
    }

    /// What a release in turn said.
    pub(crate) fn told(&self, key: &Key, said: &[Reply]) -> Result<Released, Failure> {
        let [all, queued, more] = said else { return Err(Failure::not_understood()) };
        let queued = queued.number()?;
        if let (REFUSED, Reply::Text(error)) = (queued, more) {
            self.say_refused(key, error);
        }
        let now = self.clock.now();
        match (queued, more) {
            (LEFT_TO_FOREIGNERS, Reply::Number(ours)) => {
                // All who listen were told: two more than that is what `tell` says.
                self.company.note_left_to_foreigners(key, now, [*ours, all.number()? - 2 - ours]);
            }
            (0, _) => self.company.note_no_queue(key, now),
            _ => self.company.note_queue(key, now),
        }
        Ok(Released { all: all.number()?, in_order: queued > 0 || queued == LEFT_TO_FOREIGNERS })
    }

    /// A release reached so many others that may wait.
    pub(crate) fn note_told(&self, key: &Key, told: i64) {
        self.company.note_told(key, self.clock.now(), told);
    }

    /// A release reached nobody.
    pub(crate) fn note_alone(&self, key: &Key) {
        self.company.note_alone(key);
    }

    /// A release in turn reached so many others, and none of them is in the queue.
    pub(crate) fn note_bystanders(&self, key: &Key, told: i64) {
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
        if self.give_way == 0 { 0 } else { (self.give_way * FOREIGN + self.trips()).min(LONGEST_MARK) }
    }

    /// What two round trips take, ms.
    fn trips(&self) -> u64 {
        (2 * self.trip.load(Relaxed)).div_ceil(1_000)
    }

    /// An answer came: what a round trip takes follows, an eighth of the way each time.
    pub(crate) fn note_trip(&self, answer: &Answer) {
        let (known, took) = (self.trip.load(Relaxed), self.clock.now().since(answer.sent).as_micros() as u64);
        self.trip.store(if known == 0 { took } else { (7 * known + took) / 8 }, Relaxed);
    }
}

/// All that a ticket listens to, until it is dropped: it is counted as one of ours no longer than it listens to all.
struct Subscribed {
    ears: Arc<Ears>,
    ticket: Arc<Ticket>,
    all: Box<dyn Listening>,
}

impl Listening for Subscribed {
    fn is_confirmed(&self) -> bool {
        self.all.is_confirmed() && (self.ears.are_open() || self.ears.are_refused())
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.ticket.count_as(None);
        self.ears.close(&self.ticket);
    }
}

/// Until when a place in a queue may last that was taken at `now`.
pub(crate) fn stays(config: &Config, now: Moment) -> Moment {
    now.plus(config.poll_cap.saturating_mul(POLL_CAPS))
}

/// One wait's place in the queue of a lock, from the moment it has to listen, and what it was told.
///
/// A release gives the lock to the first of the queue and tells it. Whoever asks for a
/// lock that is free has it given to the first likewise, so that it makes no difference who of those who wait looks first.
pub(crate) struct Ticket {
    key: Key,
    number: u64,
    semaphore: Arc<Semaphore>,
    clock: Clock,
    told: Told,
    /// In the queue of processes, when it was last answered.
    rank: Mutex<Option<u32>>,
    /// It asked to be in the queue: ever, and when it asked last.
    joined: AtomicBool,
    joins: AtomicBool,
    /// The server does not let it in, as far as it said since the subscriptions were last answered.
    outside: AtomicBool,
    /// The server answered to both subscriptions, that of everybody and that of its own client.
    answered: [AtomicBool; 2],
    offer: Mutex<Offer>,
    /// On the channel by which ours are counted.
    counted: Mutex<Option<Box<dyn Listening>>>,
}

/// Ends the name of a ticket that polls.
const POLLS: &str = "p";

/// As what a script may give the lock to it.
///
/// Each ask has a name of its own with 62 random bits, which are in the queue and in the message that gives, and nowhere else. So who is
/// told that this name was given the lock knows that this was after that ask had been sent.
#[derive(Default)]
struct Offer {
    name: String,
    /// An ask with this name was sent, so that it may be in the queue.
    sent: bool,
    /// Such names before it. The last one need not be there: that ask may have been executed by no master, or by one that was replaced.
    before: VecDeque<String>,
    given: Option<Given>,
}

/// The lock was given to a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    /// What was minted for it.
    pub(crate) token: Option<u64>,
}

/// On which a ticket is told.
#[derive(Clone, Copy)]
enum Channel {
    All,
    Own,
}

impl Ticket {
    fn new(key: Key, number: u64, semaphore: Arc<Semaphore>, clock: Clock) -> Self {
        Self {
            key,
            number,
            semaphore,
            clock,
            told: Told::default(),
            rank: Mutex::default(),
            joined: AtomicBool::default(),
            joins: AtomicBool::default(),
            outside: AtomicBool::default(),
            answered: Default::default(),
            offer: Mutex::new(Offer { name: format!("{number:x}"), ..Offer::default() }),
            counted: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    fn offers(&self, owner: &str, lease: Lease, polls: bool) {
        let owner = owner.split(':').skip(1).collect::<Vec<_>>().join(".");
        let polls = if polls { POLLS } else { "" };
        let (nobody_knows, mut offer) = (Uuid::new_v4().as_u64_pair().1, self.offer.lock());
        let name = format!("{:x}.{nobody_knows:x}.{owner}.{}{polls}", self.number, lease.millis());
        let last = std::mem::replace(&mut offer.name, name);
        if std::mem::take(&mut offer.sent) {
            offer.before.truncate(NAMES - 1);
            offer.before.push_front(last);
        }
        offer.given = None;
        // Nobody said yet what rank it has by this name.
        *self.rank.lock() = None;
    }

    /// As what the queue has it, and as what it may have it still: any number of names, with spaces in between.
    pub(crate) fn names(&self) -> [String; 2] {
        let offer = self.offer.lock();
        [offer.name.clone(), offer.before.iter().map(String::as_str).collect::<Vec<_>>().join(" ")]
    }

    /// With what the lock was given to the last ask, if it was. Once.
    pub(crate) fn takes_what_was_given(&self) -> Option<Given> {
        self.offer.lock().given.take()
    }

    /// Told on the ear of its client that it is the first of the queue of a lock that is free, or that the lock was given to a name of it.
    /// That of an earlier ask is no proof, for its owner may have been given up since: it is a reason to ask.
    fn hear_own(&self, name: &str, given: Option<Given>) {
        let mut offer = self.offer.lock();
        if offer.name == name || mutant::is(Mutant::BelievesAnyName) {
            offer.given = given.or(offer.given);
        }
        drop(offer);
        self.hear_that(News::ForIt);
    }

    /// It is about to ask for the lock, and for a place if it `joins`.
    fn asks(&self, joins: bool) {
        self.joined.fetch_or(joins, Relaxed);
        self.joins.store(joins, Relaxed);
        self.offer.lock().sent = true;
    }

    /// Whether it has a place in the queue though it hears nothing: it is given the lock all the same, and finds that when it looks.
    fn polls(&self) -> bool {
        self.offer.lock().name.ends_with(POLLS)
    }

    /// It was answered, and has no place: by none of its names, if it left. If it asked for one, it gets none.
    fn has_no_place(&self, left: bool) {
        self.joined.fetch_and(!left, Relaxed);
        self.outside.fetch_or(self.joins.load(Relaxed), Relaxed);
    }

    /// Whether it waits without a place.
    fn is_outside(&self) -> bool {
        self.outside.load(Relaxed)
    }

    /// Whether it takes the lock as one without a place, and so leaves the one that it had.
    pub(crate) fn leaves_a_place(&self) -> bool {
        self.is_outside() && self.may_be_queued()
    }

    /// Whether it may be in the queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.joined.load(Relaxed)
    }

    /// Whether it is counted as one of ours.
    fn is_counted(&self) -> bool {
        self.counted.lock().is_some()
    }

    fn count_as(&self, counted: Option<Box<dyn Listening>>) {
        *self.counted.lock() = counted;
    }

    pub(crate) fn told(&self) -> &Told {
        &self.told
    }

    /// Its rank when it was last answered, if it has a place.
    pub(crate) fn rank(&self) -> Option<u32> {
        *self.rank.lock()
    }

    fn hear_that(&self, news: News) {
        if self.told.put(news) {
            self.semaphore.release();
        }
    }

    /// One of its subscriptions began or was cut, so that messages may have been missed. Both begin together, and one look
    /// is enough for them. What was refused before may be allowed now.
    fn missed_on(&self, channel: Channel) {
        self.outside.store(false, Relaxed);
        self.answered[channel as usize].store(true, SeqCst);
        if self.answered.iter().all(|answered| answered.load(SeqCst)) {
            self.hear_that(News::ForIt);
        }
    }

    /// This subscription was there before it.
    fn is_heard_on(&self, channel: Channel) {
        self.answered[channel as usize].store(true, SeqCst);
    }
}

/// Of the channel on which everybody is told.
impl Ear for Ticket {
    fn hear(&self, _: &[u8]) {
        self.hear_that(News::ForAll { at: self.clock.now(), share: self.number as u32 % SHARES });
    }

    fn missed(&self) {
        self.missed_on(Channel::All);
    }

    /// It hears nothing, and so must not count as one of ours, who are given the lock.
    fn refused(&self) -> Option<&'static str> {
        self.count_as(None);
        Some("its waiters poll instead")
    }
}
