//! A ticket: one wait's place in the queue of a lock, and when it looks at the lock next.

use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::signal::{Ear, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// What a ticket was told, and what follows from it.
///
/// Each wait has one, from the moment it has to listen. Its rank is where the queue of processes had it when last told: the
/// head asks as soon as it is told that the lock is free; one of a later rank only if those before it do not, so that a
/// release is followed by one acquire and not by as many as wait.
pub(crate) struct Ticket {
    key: Key,
    number: u64,
    semaphore: Arc<Semaphore>,
    clock: Clock,
    /// It asked to be in the queue: ever, and when it asked last.
    joined: AtomicBool,
    joins: AtomicBool,
    /// The server does not let it in, or not listen, as far as it said since the subscriptions were last answered.
    outside: AtomicBool,
    /// The server answered to both subscriptions, that of everybody and that of its own client.
    answered: [AtomicBool; 2],
    place: Mutex<Place>,
    offer: Mutex<Offer>,
    /// On the channel by which ours are counted.
    counted: Mutex<Option<Box<dyn Listening>>>,
}

/// As what a release may give the lock to it.
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
    given: bool,
}

#[derive(Default)]
struct Place {
    /// By the server's clock, in microseconds; zero: not in the queue yet.
    arrival: u64,
    rank: Option<u32>,
    /// News since the last look, and when it wants to look because of them.
    news: bool,
    /// They were for all.
    told_all: bool,
    due: Option<Moment>,
    /// When it wants to look though there are none.
    next: Option<Moment>,
    /// How long a turn took in earlier waits.
    turn: Duration,
    /// When it joined, and at which rank.
    joined: Option<(Moment, u32)>,
    /// Looks without news, one after the other; whether there were any.
    idle: u32,
    slow: bool,
    asleep_until: Option<Moment>,
}

/// On which a ticket is told.
#[derive(Clone, Copy)]
pub(super) enum Channel {
    All,
    Own,
}

/// What a wait was like.
pub(super) struct Waited {
    /// How long each turn took that it waited for.
    pub(super) turn: Option<Duration>,
    /// It asked in vain at least once, so that turns took longer than it had expected.
    pub(super) slow: bool,
}

/// What the server said to one who asked in turn and did not get the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) rank: Option<u32>,
    /// So long the turn is another's, though the lock is free.
    pub(super) promised: Duration,
    pub(super) arrival: u64,
}

/// One that is not the head comes unasked when its turn should be over: so long after it, and after one turn more and an
/// eighth than there are before it. By then the head is not coming. If that was in vain, twice as long after that.
pub(super) const MARGIN: Duration = Duration::from_millis(8);

/// One that knows that the lock is free gives those before it no longer than this each, however long turns take: the head
/// may be stopped. It is more than a turn of 10 ms, so that where turns are short it is told before it comes in vain.
const UNTAKEN: Duration = Duration::from_millis(25);

/// Told, like everybody, that the lock is free, a ticket gives those before it so long, four times as long for each rank.
const STEP: Duration = Duration::from_millis(2);
const LAST_STEP: u32 = 4;

/// So many earlier names are kept in mind: each look of a wait has another one.
const NAMES: usize = 8;

/// A mark of so many ms on the server may live for one more.
pub(super) const ROUNDING: Duration = Duration::from_millis(1);

impl Place {
    fn look_at(&mut self, moment: Moment) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Told, like everybody, that the lock is free.
    fn told_as_all(&mut self, now: Moment) {
        self.told_all = true;
        let step = |rank: u32| STEP * 4_u32.pow(rank.min(LAST_STEP));
        self.look_at(now.plus(self.behind().map_or(Duration::ZERO, step)));
    }

    /// Told its rank alone.
    fn told(&mut self, rank: Option<u32>, now: Moment) {
        (self.rank, self.idle) = (rank, 0);
        self.look_at(now.plus(self.behind().map_or(Duration::ZERO, |rank| self.armed_beside(rank, Duration::ZERO))));
    }

    /// Its rank, if others are before it.
    fn behind(&self) -> Option<u32> {
        self.rank.filter(|rank| *rank > 0)
    }

    /// What it saw: how far it came since it joined, and when it looks without news.
    fn saw(&mut self, standing: Standing, now: Moment) {
        if standing.arrival > 0 {
            self.arrival = standing.arrival;
        }
        self.idle = if standing.rank < self.rank { 0 } else { self.idle };
        self.rank = standing.rank;
        self.joined = self.joined.or(standing.rank.map(|rank| (now, rank)));
        self.turn = self.turn_until(now).unwrap_or(self.turn);
        // What was told to all meanwhile was judged by a rank that is no longer its own.
        if self.told_all && self.behind().is_none() {
            self.look_at(now);
        }
        let wait = match (self.behind(), standing.promised) {
            (Some(rank), Duration::ZERO) => self.armed(rank),
            (Some(rank), promised) => self.armed_beside(rank, promised),
            (None, Duration::ZERO) => Duration::MAX,
            (None, promised) => promised + ROUNDING,
        };
        self.next = Some(now.plus(wait));
    }

    /// How long a turn took so far: of those that were before it when it joined.
    fn turn_until(&self, now: Moment) -> Option<Duration> {
        let ((joined, first), rank) = (self.joined?, self.rank?);
        let turns = first.checked_sub(rank).filter(|turns| *turns > 0)?;
        Some(now.since(joined) / turns)
    }

    /// The same of a lock that is free, and left to another for so long.
    fn armed_beside(&self, rank: u32, promised: Duration) -> Duration {
        self.armed(rank).min(promised.saturating_add(UNTAKEN.saturating_mul(rank)))
    }

    /// How long until it comes unasked.
    fn armed(&self, rank: u32) -> Duration {
        let turns = self.turn.saturating_mul(rank.saturating_add(1).saturating_add(rank / 8));
        (MARGIN + turns).saturating_mul(1 << self.idle.min(16))
    }
}

impl Ticket {
    /// `turn`: how long one took in earlier waits.
    pub(super) fn new(key: Key, number: u64, semaphore: Arc<Semaphore>, clock: Clock, turn: Duration) -> Self {
        let place = Mutex::new(Place { turn, ..Place::default() });
        Self {
            key,
            number,
            semaphore,
            clock,
            joined: AtomicBool::default(),
            joins: AtomicBool::default(),
            outside: AtomicBool::default(),
            answered: Default::default(),
            place,
            offer: Mutex::new(Offer { name: format!("{number:x}"), ..Offer::default() }),
            counted: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next ask is for a lock that may be given to this owner, for so long.
    pub(crate) fn offers(&self, owner: &str, lease: Lease) {
        let owner = owner.split(':').skip(1).collect::<Vec<_>>().join(".");
        let (nobody_knows, mut offer) = (Uuid::new_v4().as_u64_pair().1, self.offer.lock());
        let name = format!("{:x}.{nobody_knows:x}.{owner}.{}", self.number, lease.millis());
        let last = std::mem::replace(&mut offer.name, name);
        if std::mem::take(&mut offer.sent) {
            offer.before.truncate(NAMES - 1);
            offer.before.push_front(last);
        }
        offer.given = false;
    }

    /// As what the queue has it, and as what it may have it still: any number of names, with spaces in between.
    pub(crate) fn names(&self) -> [String; 2] {
        let offer = self.offer.lock();
        [offer.name.clone(), offer.before.iter().map(String::as_str).collect::<Vec<_>>().join(" ")]
    }

    /// Whether the lock was given to the last ask. True once.
    pub(crate) fn takes_what_was_given(&self) -> bool {
        std::mem::take(&mut self.offer.lock().given)
    }

    /// Told on the ear of its client that the lock was given to a name of it. That of an earlier ask is no proof, for its owner may have
    /// been given up since: it is a reason to ask.
    pub(super) fn hear_given(&self, name: &str) {
        let mut offer = self.offer.lock();
        offer.given |= offer.name == name || mutant::is(Mutant::BelievesAnyName);
        drop(offer);
        self.hear_that(Place::look_at);
    }

    /// Told that the lock was given to the one before it, for so long: if that one is stopped, it is free then.
    pub(super) fn hear_after(&self, span: Duration) {
        self.hear_that(|place, now| {
            (place.rank, place.idle) = (Some(0), 0);
            place.look_at(now.plus(span + ROUNDING));
        });
    }

    /// When it came to the queue; zero before.
    pub(super) fn arrival(&self) -> u64 {
        self.place.lock().arrival
    }

    /// It is about to ask for the lock, and for a place if it `joins`.
    pub(super) fn asks(&self, joins: bool) {
        self.joined.fetch_or(joins, Relaxed);
        self.joins.store(joins, Relaxed);
        self.offer.lock().sent = true;
    }

    /// It was answered, and has no place. If it asked for one, it gets none.
    pub(super) fn has_no_place(&self) {
        self.outside.fetch_or(self.joins.load(Relaxed), Relaxed);
    }

    /// Whether it waits without a place.
    pub(super) fn is_outside(&self) -> bool {
        self.outside.load(Relaxed)
    }

    /// Whether it takes the lock as one without a place, and so leaves the one that it had.
    pub(crate) fn leaves_a_place(&self) -> bool {
        self.is_outside() && self.arrival() > 0
    }

    /// Whether it may be in the queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.joined.load(Relaxed)
    }

    /// Whether it is counted as one of ours.
    pub(super) fn is_counted(&self) -> bool {
        self.counted.lock().is_some()
    }

    pub(super) fn count_as(&self, counted: Option<Box<dyn Listening>>) {
        *self.counted.lock() = counted;
    }

    /// Looks at the lock now: what it was told before is about what it will see.
    pub(crate) fn looks(&self) {
        let mut place = self.place.lock();
        let in_vain = !place.news && place.rank.is_some();
        place.idle = if in_vain { place.idle.saturating_add(1) } else { 0 };
        place.slow |= in_vain;
        (place.news, place.told_all, place.due, place.next) = (false, false, None, None);
        // Until it sleeps again it is not woken: it looks for news before that.
        place.asleep_until = Some(Moment(0));
    }

    /// What it saw, if not that the lock is its own.
    pub(super) fn saw(&self, standing: Standing) {
        self.place.lock().saw(standing, self.clock.now());
    }

    /// What its wait was like, which is over.
    pub(super) fn waited(&self) -> Waited {
        let place = self.place.lock();
        let turn = place.joined.map(|(joined, rank)| self.clock.now().since(joined) / rank.saturating_add(1));
        Waited { turn, slow: place.slow }
    }

    /// Until when it sleeps, if not that it looks now. Whoever woke it without news has a reason of his own, and it looks.
    pub(crate) fn sleeps_until(&self, woken: bool) -> Moment {
        let mut place = self.place.lock();
        if woken && !place.news {
            return Moment(0);
        }
        let until = place.due.unwrap_or(Moment::MAX).min(place.next.unwrap_or(Moment::MAX));
        place.asleep_until = Some(until);
        until
    }

    /// News: its sleep ends early if it has to look before it gets up.
    fn hear_that(&self, note: impl FnOnce(&mut Place, Moment)) {
        let mut place = self.place.lock();
        note(&mut place, self.clock.now());
        place.news = true;
        let wakes = place.asleep_until.is_none_or(|until| place.due.is_some_and(|due| due < until));
        drop(place);
        if wakes {
            self.semaphore.release();
        }
    }

    /// Told on the ear of its client that the lock is free, and which rank it has: the head comes at once, and so does one
    /// that was passed over, which has none.
    pub(super) fn hear_rank(&self, rank: Option<u32>) {
        if rank == Some(0) && mutant::is(Mutant::HeadNeverAsks) {
            return;
        }
        self.hear_that(|place, now| place.told(rank, now));
    }

    /// One of its subscriptions began or was cut, so that messages may have been missed. Both begin together, and one look
    /// is enough for them. What was refused before may be allowed now.
    pub(super) fn missed_on(&self, channel: Channel) {
        self.outside.store(false, Relaxed);
        self.answered[channel as usize].store(true, SeqCst);
        if self.answered.iter().all(|answered| answered.load(SeqCst)) {
            self.hear_that(Place::look_at);
        }
    }

    /// This subscription was there before it.
    pub(super) fn is_heard_on(&self, channel: Channel) {
        self.answered[channel as usize].store(true, SeqCst);
    }
}

/// Of the channel on which everybody is told.
impl Ear for Ticket {
    fn hear(&self, _: &[u8]) {
        self.hear_that(Place::told_as_all);
    }

    fn missed(&self) {
        self.missed_on(Channel::All);
    }

    /// It hears nothing, and so must not count as one of ours, who are told in turn.
    fn refused(&self) -> Option<&'static str> {
        self.outside.store(true, Relaxed);
        self.count_as(None);
        Some("its waiters poll instead")
    }
}
