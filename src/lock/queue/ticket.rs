//! A ticket: one wait's place in the queue of a lock, and when it looks at the lock next.

use super::OFFER;
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
/// Each wait has one, from the moment it has to listen. A release gives the lock to the first of the queue and tells it. Whoever asks for a
/// lock that is free has it given to the first likewise, so that it makes no difference who of those who wait looks first.
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

#[derive(Default)]
struct Place {
    /// In the queue of processes, when it last looked.
    rank: Option<u32>,
    /// News since the last look, and when it wants to look because of them.
    news: bool,
    /// They were for all.
    told_all: bool,
    due: Option<Moment>,
    /// When it wants to look though there are none.
    next: Option<Moment>,
    asleep_until: Option<Moment>,
}

/// On which a ticket is told.
#[derive(Clone, Copy)]
pub(super) enum Channel {
    All,
    Own,
}

/// Told, like everybody, that the lock is free, one of `n` that wait looks after up to `n` times this, and from four on so many times more
/// as there are fours among them: one look is enough, for it has the lock given to the first.
const STEP: Duration = Duration::from_millis(2);
const FEW: u32 = 4;

/// So many earlier names are kept in mind: each look of a wait has another one.
const NAMES: usize = 8;

impl Place {
    fn look_at(&mut self, moment: Moment) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Told, like everybody, that the lock is free. Each ticket has a share of its own of the time in which it may look.
    fn told_as_all(&mut self, now: Moment, share: u32) {
        self.told_all = true;
        let others = self.rank.unwrap_or(0);
        let all = others.saturating_add(1);
        let span = STEP.saturating_mul(all).saturating_mul(all.div_ceil(FEW)) / SHARES * share;
        self.look_at(now.plus(if others == 0 { Duration::ZERO } else { span }));
    }

    /// What it saw, and when it looks without news. If others are before it, as often as an offer ends: whoever is given the lock and is
    /// stopped keeps the others waiting for no longer than that.
    fn saw(&mut self, rank: Option<u32>, now: Moment) {
        self.rank = rank;
        // What was told to all meanwhile was judged by a rank that is no longer its own.
        if self.told_all && rank.unwrap_or(0) == 0 {
            self.look_at(now);
        }
        self.next = rank.filter(|rank| *rank > 0).map(|_| now.plus(OFFER.span()));
    }
}

/// Into so many the time is divided in which those who are told like everybody look.
const SHARES: u32 = 1 << 10;

impl Ticket {
    pub(super) fn new(key: Key, number: u64, semaphore: Arc<Semaphore>, clock: Clock) -> Self {
        Self {
            key,
            number,
            semaphore,
            clock,
            joined: AtomicBool::default(),
            joins: AtomicBool::default(),
            outside: AtomicBool::default(),
            answered: Default::default(),
            place: Mutex::default(),
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
        offer.given = None;
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

    /// Told on the ear of its client that the lock was given to a name of it. That of an earlier ask is no proof, for its owner may have
    /// been given up since: it is a reason to ask.
    pub(super) fn hear_given(&self, name: &str, given: Given) {
        let mut offer = self.offer.lock();
        if offer.name == name || mutant::is(Mutant::BelievesAnyName) {
            offer.given = Some(given);
        }
        drop(offer);
        self.hear_that(Place::look_at);
    }

    /// Told on the ear of its client that it is the first of the queue, and that the lock is free.
    pub(super) fn hear_free(&self) {
        self.hear_that(Place::look_at);
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
        self.is_outside() && self.may_be_queued()
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
        (place.news, place.told_all, place.due, place.next) = (false, false, None, None);
        // Until it sleeps again it is not woken: it looks for news before that.
        place.asleep_until = Some(Moment(0));
    }

    /// What it saw, if not that the lock is its own: its rank, if it has a place.
    pub(super) fn saw(&self, rank: Option<u32>) {
        self.place.lock().saw(rank, self.clock.now());
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
        let share = self.number as u32 % SHARES;
        self.hear_that(|place, now| place.told_as_all(now, share));
    }

    fn missed(&self) {
        self.missed_on(Channel::All);
    }

    /// It hears nothing, and so must not count as one of ours, who are given the lock.
    fn refused(&self) -> Option<&'static str> {
        self.outside.store(true, Relaxed);
        self.count_as(None);
        Some("its waiters poll instead")
    }
}
