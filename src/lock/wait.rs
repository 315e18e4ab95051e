//! The waiting loop, one for every kind.
//!
//! try -> busy -> listen -> (confirmed) -> try -> sleep until a hint, the holder's TTL, the caller's deadline or
//! the poll cap -> try -> ... A message is a hint, never a proof. A hint that comes between a try and the sleep
//! is kept by the semaphore; so it is emptied *before* a try, which covers whatever the hint was about.

use super::engine::Engine;
use super::patience::{Patience, Terms};
use super::primitive::{Listening, Taken};
use crate::error::{Cause, Error, Result};
use crate::hold::Hold;
use crate::key::Key;
use crate::mutant::{self, Mutant};
use crate::registry::{Entered, Left, Lent, Waiter, registry};
use crate::time::{Lease, Moment};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Acquires a lock for the current thread; `None` when the wait ended without it.
///
/// A first look tells what needs neither the wire nor a place in the queue, so that it allocates nothing.
pub(super) fn acquire(engine: &Engine, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
    let name = engine.space.full_key(resource)?;
    let lease = terms.lease.map(|lease| engine.space.config.lease(lease)).transpose()?;
    let patience = engine.patience(resource).on(terms);
    patience.check_stopped()?;
    let tries = terms.wait.is_zero();
    match registry().glance(engine.space.id, &name, lease.is_none()) {
        Some(Entered::Mine(hold)) => return deepen(engine, &hold, lease, patience).map(|()| Some(hold)),
        Some(Entered::Granted(hold)) if engine.accept(&hold)? => return Ok(Some(hold)),
        Some(Entered::Sibling) if tries => return Ok(busy(engine)),
        _ => {}
    }
    let key = &engine.space.key_of(name);
    if tries { try_now(engine, key, &patience, lease) } else { wait(engine, key, patience, lease) }
}

/// One more level. Nothing but its token can wake such a call.
fn deepen(engine: &Engine, hold: &Hold, lease: Option<Lease>, patience: Patience<'_>) -> Result<()> {
    let semaphore = patience.token().map(|_| Arc::default());
    match &semaphore {
        Some(semaphore) => engine.reenter(hold, lease, &patience.woken_by(semaphore)),
        None => engine.reenter(hold, lease, &patience),
    }
}

/// One attempt, without a place in the queue.
fn try_now(engine: &Engine, key: &Key, patience: &Patience<'_>, lease: Option<Lease>) -> Result<Option<Hold>> {
    let mut tenure = engine.space.tenure(key);
    match engine.try_take(&mut tenure, lease, patience)? {
        Taken::Held(hold) => Ok(Some(hold)),
        Taken::Disbelieved | Taken::Busy(_) => Ok(busy(engine)),
    }
}

/// Waits in the queue of this process, and at its head contends. The current thread does not hold the lock.
fn wait(engine: &Engine, key: &Key, patience: Patience<'_>, lease: Option<Lease>) -> Result<Option<Hold>> {
    let waiter = Lent::new(lease.is_none());
    let patience = patience.woken_by(&waiter.semaphore);
    patience.check_stopped()?;
    loop {
        let entered = registry().enter(engine.space.id, key.shared(), &waiter);
        let place = Place::new(engine, key, Arc::clone(&waiter));
        match queue(&place, &patience, entered)? {
            Queued::Late => return Ok(None),
            Queued::First => {
                let hints_paid = Cell::new(Moment(0));
                return Contender { engine, key, place: &place, patience: &patience, lease, hints_paid }.run();
            }
            Queued::Granted(hold) if engine.accept(&hold)? => return Ok(Some(hold)),
            // It ended on the way: come again.
            Queued::Granted(_) => {}
        }
    }
}

fn busy(engine: &Engine) -> Option<Hold> {
    engine.space.counters.contended.add(1);
    None
}

/// How waiting behind the others of this process ended.
enum Queued {
    /// Nobody of this process is before it: it contends.
    First,
    /// The tenure was passed on to it.
    Granted(Hold),
    /// The caller's time ended.
    Late,
}

/// Waits behind the others of this process.
fn queue(place: &Place<'_>, patience: &Patience<'_>, mut entered: Entered) -> Result<Queued> {
    loop {
        match entered {
            Entered::Head => return Ok(Queued::First),
            Entered::Granted(hold) => return Ok(Queued::Granted(hold)),
            Entered::Mine(_) | Entered::Sibling | Entered::Parked if patience.is_over() => return Ok(Queued::Late),
            Entered::Mine(_) | Entered::Sibling | Entered::Parked => {}
        }
        place.count_contended();
        // Asked after the waiter can be woken and before it sleeps, so that no cancel falls in between.
        patience.check_stopped()?;
        place.waiter.semaphore.acquire(patience.at_most(place.engine.space.config.poll_cap));
        patience.check_outage()?;
        entered = registry().turn(place.engine.space.id, place.key.full(), &place.waiter);
    }
}

/// The one thread of its process that contends for a lock at the store.
struct Contender<'a> {
    engine: &'a Engine,
    key: &'a Key,
    place: &'a Place<'a>,
    patience: &'a Patience<'a>,
    lease: Option<Lease>,
    /// Runs ahead of the clock by [`HINT_EVERY`] for each hint that was followed.
    hints_paid: Cell<Moment>,
}

/// Whether a subscription tells the contender when to look.
enum News {
    NotAsked,
    Asked(Option<Box<dyn Listening>>),
}

impl News {
    fn is_confirmed(&self) -> bool {
        matches!(self, Self::Asked(Some(listening)) if listening.is_confirmed())
    }
}

/// How often to look while no subscription is confirmed.
const UNTOLD: Duration = Duration::from_secs(1);

/// Whoever may publish can wake a waiter as often as he likes, and each look is a command. So many hints in a row
/// are followed at once, more than a lock in demand gives in that time; in the long run one each 2 ms is.
const HINTS_AT_ONCE: u32 = 32;
const HINT_EVERY: Duration = Duration::from_millis(2);

impl Contender<'_> {
    fn run(&self) -> Result<Option<Hold>> {
        self.give_way();
        let mut tenure = self.engine.space.tenure(self.key);
        let mut news = News::NotAsked;
        let give_up = self.engine.space.clock.now().plus(self.engine.space.config.outage_budget);
        loop {
            // If the time ends while asleep, it is tried one more time.
            let last = self.patience.is_over();
            self.place.waiter.semaphore.acquire(Duration::ZERO);
            self.patience.check_stopped()?;
            match self.engine.try_take(&mut tenure, self.lease, self.patience)? {
                Taken::Held(hold) => return Ok(Some(hold)),
                // The answer itself may have taken longer than the caller waits.
                _ if last || self.patience.is_over() => return Ok(None),
                Taken::Disbelieved => self.check_too_slow(give_up)?,
                Taken::Busy(left) => self.await_news(&mut news, left),
            }
            if !tenure.is_unused() {
                tenure = self.engine.space.tenure(self.key);
            }
        }
    }

    /// Lets others ask first for what this process gave up for them: they have to be woken, and this thread is awake.
    fn give_way(&self) {
        if self.place.waiter.gives_way() {
            // Not on the semaphore: the message of that very release, which comes back to this process, would end it.
            std::thread::sleep(self.patience.at_most(self.engine.space.config.hand_off.give_way));
        }
    }

    /// Sleeps until there is a reason to look again.
    fn await_news(&self, news: &mut News, left: Option<Duration>) {
        if let News::NotAsked = news {
            *news = News::Asked(self.listen(left));
            if news.is_confirmed() && !mutant::is(Mutant::NoTryAfterConfirm) {
                return;
            }
        }
        let poll_cap = self.engine.space.config.poll_cap;
        let told = news.is_confirmed() || self.engine.primitive.is_of_this_process();
        let cap = if told { poll_cap } else { UNTOLD.min(poll_cap) };
        let jitter = Duration::from_micros(1_000 + self.engine.space.clock.now().micros() % 4_000);
        let left = left.map_or(cap, |left| left.saturating_add(jitter).min(cap));
        if self.place.waiter.semaphore.acquire(self.patience.at_most(left)) {
            self.pace(jitter);
        }
    }

    /// Puts off the look that a hint asks for when there were too many; what comes meanwhile asks for the same look.
    fn pace(&self, jitter: Duration) {
        let now = self.engine.space.clock.now();
        let paid = self.hints_paid.get().max(now).plus(HINT_EVERY);
        self.hints_paid.set(paid);
        let ahead = paid.since(now).saturating_sub(HINT_EVERY * HINTS_AT_ONCE);
        if !ahead.is_zero() {
            // A few milliseconds, and not on the semaphore: the next hint, which it puts off, would end it.
            std::thread::sleep(self.patience.at_most(ahead + jitter / 4));
        }
    }

    fn listen(&self, left: Option<Duration>) -> Option<Box<dyn Listening>> {
        self.place.count_contended();
        if left.is_none() {
            let name = self.key.resource();
            log::warn!("lock {name:?} is a key without TTL: it is polled until someone deletes it");
        }
        self.engine.primitive.listen(self.key, &self.place.waiter.semaphore)
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

/// A waiter that keeps its place in the queue of its process until it is dropped.
struct Place<'a> {
    engine: &'a Engine,
    key: &'a Key,
    waiter: Arc<Waiter>,
    contended: Cell<bool>,
}

impl<'a> Place<'a> {
    fn new(engine: &'a Engine, key: &'a Key, waiter: Arc<Waiter>) -> Self {
        Self { engine, key, waiter, contended: Cell::new(false) }
    }

    /// The call found its lock busy: counted once, however often it does.
    fn count_contended(&self) {
        if !self.contended.replace(true) {
            self.engine.space.counters.contended.add(1);
        }
    }
}

impl Drop for Place<'_> {
    /// What was passed on to a call that goes all the same is given to the next, or released in the background: its
    /// caller's time is up.
    fn drop(&mut self) {
        match registry().leave(self.engine.space.id, self.key.full(), &self.waiter) {
            Left::Nothing => {}
            Left::Granted(hold) if self.engine.pass_on(&hold) => {}
            Left::Granted(hold) | Left::Unclaimed(hold) => self.engine.give_back(&hold),
        }
    }
}
