//! One wait's place in a queue.

use super::super::bid::Told;
use super::super::policy::NAMES;
use super::super::wait::News;
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Clock, Lease};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use uuid::Uuid;

/// One wait's place in the queue of a lock, and the news for it. A thread has its place from its first ask on, a process from the first
/// subscription on.
///
/// A release gives the lock to the first of the queue and tells it. So does an ask of any other ticket that finds the lock free: it makes
/// no difference which waiter asks first.
pub(crate) struct Ticket {
    key: Key,
    pub(super) number: u64,
    semaphore: Arc<Semaphore>,
    pub(super) clock: Clock,
    told: Told,
    /// Its rank in the queue, by the last answer.
    pub(super) rank: Mutex<Option<u32>>,
    /// Whether the ticket has asked to join: ever, before its last ask, and with its last ask.
    joined: AtomicBool,
    had_joined: AtomicBool,
    joins: AtomicBool,
    /// Its last ask was answered by the node that a slot moves to.
    elsewhere: AtomicBool,
    /// The server refuses it a place, by an answer since its subscriptions were last confirmed.
    pub(super) outside: AtomicBool,
    /// Whether the server has answered to the subscriptions of the lock's channel and of the ear.
    answered: [AtomicBool; 2],
    offer: Mutex<Offer>,
    /// The subscription of the members channel, which counts it as one of ours.
    counted: Mutex<Option<Box<dyn Listening>>>,
    /// The channel on which Redisson tells this wait alone, and its subscription.
    own: Mutex<Option<(String, Box<dyn Listening>)>>,
}

/// The end of the name of a ticket that polls.
const POLLS: &str = "p";

/// The names under which a script may give the lock to a ticket.
///
/// Each ask has a new name with 62 random bits. Only the queue and the message that gives the lock have it. So a message with this name
/// proves that the lock was given after that ask had been sent.
#[derive(Default)]
struct Offer {
    name: String,
    /// An ask with this name was sent, so the name may be in the queue.
    sent: bool,
    /// Earlier names of that kind. The last of them need not be in the queue: no master, or a replaced one, may have executed that ask.
    before: VecDeque<String>,
    given: Option<Given>,
}

/// The lock was given to a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    /// The token that was minted for it.
    pub(crate) token: Option<u64>,
}

/// The channels of a ticket.
#[derive(Clone, Copy)]
pub(super) enum Channel {
    All,
    Own,
}

impl Ticket {
    pub(super) fn new(key: Key, number: u64, semaphore: Arc<Semaphore>, clock: Clock) -> Self {
        Self {
            key,
            number,
            semaphore,
            clock,
            told: Told::default(),
            rank: Mutex::default(),
            joined: AtomicBool::default(),
            had_joined: AtomicBool::default(),
            elsewhere: AtomicBool::default(),
            joins: AtomicBool::default(),
            outside: AtomicBool::default(),
            answered: Default::default(),
            offer: Mutex::new(Offer { name: format!("{number:x}"), ..Offer::default() }),
            counted: Mutex::default(),
            own: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn offers(&self, owner: &str, lease: Lease, polls: bool) {
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
        // No answer has told the rank of this name yet.
        *self.rank.lock() = None;
    }

    /// Its name now, and its earlier names, separated by spaces.
    pub(crate) fn names(&self) -> [String; 2] {
        let offer = self.offer.lock();
        [offer.name.clone(), offer.before.iter().map(String::as_str).collect::<Vec<_>>().join(" ")]
    }

    /// What the last ask was given, if the lock was given to it. Once.
    pub(crate) fn takes_what_was_given(&self) -> Option<Given> {
        self.offer.lock().given.take()
    }

    /// A message on the ear: the lock was given to `name`, or is free and this ticket is first. A lock given to an earlier name proves
    /// nothing, for the sweeper may have released that owner since: it is a reason to ask.
    pub(super) fn hear_own(&self, name: &str, given: Option<Given>) {
        let mut offer = self.offer.lock();
        if offer.name == name || mutant::is(Mutant::BelievesAnyName) {
            offer.given = given.or(offer.given);
        }
        drop(offer);
        self.hear_that(News::ForIt);
    }

    /// The ticket is about to ask for the lock, and for a place if it `joins`.
    pub(super) fn asks(&self, joins: bool) {
        self.had_joined.store(self.joined.fetch_or(joins, Relaxed), Relaxed);
        self.joins.store(joins, Relaxed);
        self.elsewhere.store(false, Relaxed);
        self.offer.lock().sent = true;
    }

    /// Whether it polls: it has a place without hearing anything. Scripts give it the lock all the same, and its next ask finds that.
    pub(super) fn polls(&self) -> bool {
        self.offer.lock().name.ends_with(POLLS)
    }

    /// By its last answer it has no place: under none of its names if it `left`. If it asked for a place, it gets none.
    pub(super) fn has_no_place(&self, left: bool) {
        self.joined.fetch_and(!left, Relaxed);
        self.outside.fetch_or(self.joins.load(Relaxed), Relaxed);
    }

    /// Whether it waits without a place.
    pub(super) fn is_outside(&self) -> bool {
        self.outside.load(Relaxed)
    }

    /// The last ask was answered by the node that a slot moves to, whose scripts touch no queue. So it took no place and left none: an
    /// earlier place is in the queue still, and arrives with the slot.
    pub(crate) fn asked_elsewhere(&self) {
        self.joined.store(self.had_joined.load(Relaxed), Relaxed);
        self.elsewhere.store(true, Relaxed);
    }

    /// Whether it took the lock without a place and has to leave an earlier one. Else a release gives the lock to that place, for an
    /// offer, and nobody comes.
    pub(crate) fn leaves_a_place(&self) -> bool {
        (self.is_outside() || self.elsewhere.load(Relaxed)) && self.may_be_queued()
    }

    /// Whether it may be in the queue.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.joined.load(Relaxed)
    }

    /// The same, or whether it was there before its last ask.
    pub(crate) fn may_have_been_queued(&self) -> bool {
        self.may_be_queued() || self.had_joined.load(Relaxed)
    }

    /// Whether it is counted as one of ours.
    pub(super) fn is_counted(&self) -> bool {
        self.counted.lock().is_some()
    }

    pub(super) fn count_as(&self, counted: Option<Box<dyn Listening>>) {
        *self.counted.lock() = counted;
    }

    /// Subscribes to its own channel, unless it listens there. The end of the last one is told to the subscriber outside of the lock.
    pub(super) fn listens_on(&self, channel: &str, listen: impl FnOnce() -> io::Result<Box<dyn Listening>>) {
        if self.own.lock().as_ref().is_some_and(|(known, _)| known == channel) {
            return;
        }
        let own = listen().ok().map(|listening| (channel.to_owned(), listening));
        let last = std::mem::replace(&mut *self.own.lock(), own);
        drop(last);
    }

    /// Its wait is over. The channel has a clone of the ticket, which would else stay subscribed for ever.
    pub(crate) fn listens_no_more(&self) {
        let last = self.own.lock().take();
        drop(last);
    }

    /// False while it has an own channel whose messages may be lost.
    pub(super) fn hears_its_own(&self) -> bool {
        self.own.lock().as_ref().is_none_or(|(_, listening)| listening.is_confirmed())
    }

    pub(crate) fn told(&self) -> &Told {
        &self.told
    }

    /// Its rank by the last answer, if it has a place.
    pub(crate) fn rank(&self) -> Option<u32> {
        *self.rank.lock()
    }

    pub(super) fn hear_that(&self, news: News) {
        if self.told.put(news) {
            self.semaphore.release();
        }
    }

    /// A subscription began or was cut, so messages may be lost. Both subscriptions begin together, so one ask covers both. The server may
    /// allow now what it refused before.
    pub(super) fn missed_on(&self, channel: Channel) {
        self.outside.store(false, Relaxed);
        self.answered[channel as usize].store(true, SeqCst);
        if self.answered.iter().all(|answered| answered.load(SeqCst)) {
            self.hear_that(News::ForIt);
        }
    }

    /// This subscription was confirmed before the ticket came.
    pub(super) fn is_heard_on(&self, channel: Channel) {
        self.answered[channel as usize].store(true, SeqCst);
    }
}
