//! The waiting loop, one for every kind, and how long a call is patient with its store.
//!
//! try -> busy -> listen -> (confirmed) -> try -> sleep until a hint, the holder's TTL, the caller's deadline or
//! the poll cap -> try -> ... A message is a hint, never a proof. A hint that comes between a try and the sleep
//! is kept by the semaphore; so it is emptied *before* a try, which covers whatever the hint was about.

use super::engine::{Engine, Place, Take};
use crate::backend::Failure;
use crate::error::{Cause, Error, Result};
use crate::hold::Hold;
use crate::key::Key;
use crate::pubsub::Subscription;
use crate::registry::{Entered, Waiter, registry};
use crate::signal::{CancelToken, Semaphore};
use crate::tenure::Tenure;
use crate::time::{Lease, Moment};
use std::sync::Arc;
use std::time::Duration;

/// The terms of one acquire: how long to wait, for which lease, and who may end the wait.
///
/// ```
/// use redlatch::{LocalRedLock, RedLock, Terms};
/// use std::time::Duration;
///
/// let locks = LocalRedLock::new();
/// let terms = Terms::new().wait(Duration::from_millis(500)).lease(Duration::from_secs(10));
/// let hold = locks.acquire("order:42", &terms)?.expect("it is free");
/// locks.release(&hold)?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Terms<'t> {
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) token: Option<&'t CancelToken>,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'t> Terms<'t> {
    /// Wait for ever, for a lease that the watchdog renews; not to be cancelled.
    pub fn new() -> Self {
        Self { wait: Duration::MAX, lease: None, token: None }
    }

    /// Waits at most so long: zero tries once, [`Duration::MAX`] waits for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Takes the lock for so long, 10 ms to 365 days, without renewing it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Ends the wait when the token is cancelled.
    pub fn cancelled_by(mut self, token: &'t CancelToken) -> Self {
        self.token = Some(token);
        self
    }
}

/// How long a call goes on asking its store, and what makes it stop.
pub(crate) struct Patience<'a> {
    engine: &'a Engine,
    resource: &'a str,
    own_deadline: Option<Moment>,
    limit: Option<Moment>,
    token: Option<&'a CancelToken>,
    semaphore: Option<&'a Arc<Semaphore>>,
    attempts: usize,
}

/// The pause before an attempt is repeated, doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl<'a> Patience<'a> {
    /// Until the store has been out of reach for the outage budget.
    pub(crate) fn outage(engine: &'a Engine, resource: &'a str) -> Self {
        let attempts = usize::MAX;
        Self { engine, resource, own_deadline: None, limit: None, token: None, semaphore: None, attempts }
    }

    /// The same, but not beyond a point in time.
    pub(crate) fn until(engine: &'a Engine, resource: &'a str, limit: Moment) -> Self {
        Self { limit: Some(limit), ..Self::outage(engine, resource) }
    }

    /// One attempt.
    pub(crate) fn once(engine: &'a Engine, resource: &'a str) -> Self {
        Self { attempts: 1, ..Self::until(engine, resource, engine.one_answer()) }
    }

    /// As an acquire's terms say. A try waits for no lock, but it does wait for the server's answer.
    fn of(engine: &'a Engine, key: &'a Key, terms: &Terms<'a>, semaphore: Option<&'a Arc<Semaphore>>) -> Self {
        let own_deadline = match terms.wait {
            Duration::MAX => None,
            Duration::ZERO => Some(engine.one_answer()),
            wait => Some(engine.space.clock.now().plus(wait)),
        };
        Self { own_deadline, token: terms.token, semaphore, ..Self::outage(engine, key.resource()) }
    }

    /// Repeats an attempt until it is answered, refused for good, or the patience ends. With the answer comes
    /// whether any attempt before it was left unanswered.
    pub(crate) fn persist<T>(&self, mut attempt: impl FnMut(Moment) -> Result<T, Failure>) -> Result<(T, bool)> {
        let mut doubt = None;
        let mut pause = FIRST_PAUSE;
        for number in 1.. {
            let failure = match attempt(self.ends()) {
                Ok(answer) => return Ok((answer, doubt.is_some())),
                Err(failure) => failure,
            };
            let stop = number >= self.attempts || !failure.may_pass() || self.engine.space.clock.now() >= self.ends();
            let first_doubt = doubt.is_none() && matches!(failure, Failure::Unknown { .. });
            if first_doubt {
                doubt = Some(failure.clone());
            }
            if stop {
                return Err(doubt.unwrap_or(failure).into_error(self.resource));
            }
            // An idle connection that the server closed looks like this: a fresh one is tried at once.
            if !first_doubt {
                self.sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            self.check_stopped()?;
        }
        unreachable!("the attempts are numbered without end")
    }

    /// When asking ends: the caller's deadline, or else the outage's; never beyond the limit.
    fn ends(&self) -> Moment {
        let ends = self.own_deadline.unwrap_or_else(|| self.engine.primitive.outage_ends());
        self.limit.map_or(ends, |limit| limit.min(ends))
    }

    /// Sleeps at most so long, at most until the patience ends, and less when the call is woken.
    fn sleep(&self, span: Duration) {
        let span = span.min(self.ends().since(self.engine.space.clock.now()));
        match self.semaphore {
            Some(semaphore) => drop(semaphore.acquire(span)),
            None => std::thread::sleep(span),
        }
    }

    /// # Errors
    /// `Closed` after a shutdown, `Cancelled` by the token.
    fn check_stopped(&self) -> Result<()> {
        self.engine.space.check_open(self.resource)?;
        match self.token {
            Some(token) if token.is_cancelled() => Err(Error::cancelled(self.resource)),
            _ => Ok(()),
        }
    }

    /// Whether the caller's time is up.
    fn is_over(&self) -> bool {
        self.own_deadline.is_some_and(|deadline| deadline <= self.engine.space.clock.now())
    }

    /// A call that is queued fails with the outage, as the one that contends does.
    fn check_outage(&self) -> Result<()> {
        if self.own_deadline.is_none() && self.ends() <= self.engine.space.clock.now() {
            let cause = Cause::new("the outage budget is spent");
            return Err(Error::Unavailable { resource: self.resource.to_owned(), cause });
        }
        Ok(())
    }

    /// The time left to the caller, no more than `cap`.
    fn at_most(&self, cap: Duration) -> Duration {
        let left = self.own_deadline.map(|deadline| deadline.since(self.engine.space.clock.now()));
        left.map_or(cap, |left| left.min(cap))
    }
}

/// Acquires a lock for the current thread; `None` when the wait ended without it.
pub(crate) fn acquire(
    engine: &Engine,
    key: &Arc<Key>,
    terms: &Terms<'_>,
    lease: Option<Lease>,
) -> Result<Option<Hold>> {
    if terms.wait.is_zero() {
        return try_now(engine, key, &Patience::of(engine, key, terms, None), lease);
    }
    let waiter = Arc::new(Waiter::default());
    let patience = Patience::of(engine, key, terms, Some(&waiter.semaphore));
    if let Some(token) = terms.token {
        token.wake(&waiter.semaphore);
    }
    if let Entered::Mine(hold) = registry().enter(engine.space.id, key.full(), &waiter) {
        return engine.reenter(&hold, lease, &patience).map(Some);
    }
    let place = Place::new(engine, key, Arc::clone(&waiter));
    if !queue(&place, &patience)? {
        return Ok(None);
    }
    Contender { engine, key, waiter: &waiter, patience: &patience, lease }.run()
}

/// One look, without a place in the queue. What a sibling surely holds is busy without a round trip.
fn try_now(engine: &Engine, key: &Arc<Key>, patience: &Patience<'_>, lease: Option<Lease>) -> Result<Option<Hold>> {
    patience.check_stopped()?;
    match registry().glance(engine.space.id, key.full()) {
        Some(Entered::Mine(hold)) => return engine.reenter(&hold, lease, patience).map(Some),
        Some(_) => return Ok(None),
        None => {}
    }
    let tenure = engine.space.tenure(key);
    match engine.take(&tenure, engine.lease_or_watchdog(lease), patience)? {
        Take::Acquired(sent) => engine.hold(&tenure, sent, lease),
        Take::Busy(_) => Ok(None),
    }
}

/// Waits behind the others of this process. False when the caller's time ended first.
fn queue(place: &Place<'_>, patience: &Patience<'_>) -> Result<bool> {
    let cap = patience.engine.space.config.poll_cap;
    loop {
        patience.check_stopped()?;
        if place.is_head() {
            return Ok(true);
        }
        if patience.is_over() {
            return Ok(false);
        }
        patience.check_outage()?;
        place.waiter.semaphore.acquire(patience.at_most(cap));
    }
}

/// The one thread of its process that contends for a lock at the store.
struct Contender<'a> {
    engine: &'a Engine,
    key: &'a Arc<Key>,
    waiter: &'a Waiter,
    patience: &'a Patience<'a>,
    lease: Option<Lease>,
}

/// Whether a subscription tells the contender when to look.
enum News {
    NotAsked,
    Asked(Option<Subscription>),
}

/// How often to look while no subscription is confirmed.
const UNTOLD: Duration = Duration::from_secs(1);

impl Contender<'_> {
    fn run(&self) -> Result<Option<Hold>> {
        let mut tenure = self.engine.space.tenure(self.key);
        let mut news = News::NotAsked;
        let give_up = self.engine.space.clock.now().plus(self.engine.space.config.outage_budget);
        loop {
            // If the time ends while asleep, it is tried one more time.
            let last = self.patience.is_over();
            self.waiter.semaphore.acquire(Duration::ZERO);
            self.patience.check_stopped()?;
            match self.engine.take(&tenure, self.engine.lease_or_watchdog(self.lease), self.patience)? {
                Take::Acquired(sent) => match self.engine.hold(&tenure, sent, self.lease)? {
                    Some(hold) => return Ok(Some(hold)),
                    None => self.check_too_slow(give_up)?,
                },
                Take::Busy(_) if last => return Ok(None),
                Take::Busy(left) => self.await_news(&mut news, left),
            }
            if last {
                return Ok(None);
            }
            if !tenure.is_unused() {
                tenure = self.engine.space.tenure(self.key);
            }
        }
    }

    /// Sleeps until there is a reason to look again.
    fn await_news(&self, news: &mut News, left: Option<Duration>) {
        if let News::NotAsked = news {
            let subscription = self.engine.primitive.listen(self.key, &self.waiter.semaphore);
            let confirmed = subscription.as_ref().is_some_and(Subscription::is_confirmed);
            *news = News::Asked(subscription);
            if confirmed {
                return;
            }
        }
        let told = !matches!(news, News::Asked(Some(subscription)) if !subscription.is_confirmed());
        let cap = if told { self.engine.space.config.poll_cap } else { UNTOLD.min(self.engine.space.config.poll_cap) };
        let jitter = Duration::from_micros(1_000 + self.engine.space.clock.now().micros() % 4_000);
        let left = left.map_or(cap, |left| left.saturating_add(jitter).min(cap));
        self.waiter.semaphore.acquire(self.patience.at_most(left));
    }

    /// A lease that is over before the server's answer arrives is never held: not asked for without end.
    fn check_too_slow(&self, give_up: Moment) -> Result<()> {
        if self.engine.space.clock.now() >= give_up {
            let cause = Cause::new("the lease is shorter than the server's answers take: ask for a longer one");
            return Err(Error::Unavailable { resource: self.key.resource().to_owned(), cause });
        }
        Ok(())
    }
}

impl Tenure {
    /// Whether its owner id may be sent in another acquire: nothing of it was acquired or left unanswered.
    fn is_unused(&self) -> bool {
        self.standing() == crate::tenure::Standing::Pending && self.open_until().is_none()
    }
}
