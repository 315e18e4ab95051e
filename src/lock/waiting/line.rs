//! The line: the threads of one process that wait for the same lock. One of them contends, the others are parked
//! behind it, and what one unlocks may be passed on to the next.
//!
//! A kind whose threads all wait at the store has no line, and contends at once.

use super::bid::Call;
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::sync::thread;
use crate::lease::hold::Hold;
use crate::registry::{Entered, LeftBehind, Registry, Waiter};
use std::sync::Arc;
use uuid::Uuid;

/// What stands behind a line: the lock that its threads wait for. `Siblings` in `acquire.rs` is that of locks.
///
/// It is a trait so that the tests of thread orders (tests/interleavings) run this very line without an engine.
pub(crate) trait Backing: Sync {
    /// Takes over what was passed on to the caller. False when it ended on the way.
    fn accept(&self, hold: &Hold) -> Result<bool>;

    /// Sees to what was left by a waiter that went.
    fn take_back(&self, left: LeftBehind);

    /// A call that is parked fails with the outage, as the one that contends does.
    fn check_outage(&self) -> Result<()>;
}

/// The line as one call sees it.
pub(crate) struct Line<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) space: Uuid,
    pub(crate) key: &'a Key,
    pub(crate) waiter: &'a Arc<Waiter>,
    pub(crate) call: &'a Call<'a>,
    pub(crate) backing: &'a dyn Backing,
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

impl Line<'_> {
    /// Waits in line, and at its head contends. The current thread does not hold the lock.
    pub(crate) fn wait(&self, contend: impl FnOnce() -> Result<Option<Hold>>) -> Result<Option<Hold>> {
        loop {
            let entered = self.registry.enter(self.space, self.key.shared(), self.waiter);
            let place = Place(self);
            let queued = self.queue(entered);
            if queued.as_ref().is_err_and(Error::is_retryable) {
                // Out of the queue, so that the others hear of the outage too, and whoever comes next asks the server.
                drop(place);
                self.call.stop.take_least(self.call.stop.clock.now())?;
                return queued.map(|_| None);
            }
            match queued? {
                Queued::Late => return Ok(None),
                Queued::First => {
                    self.give_way();
                    return contend();
                }
                Queued::Granted(hold) if self.backing.accept(&hold)? => return Ok(Some(hold)),
                // It ended on the way: come again.
                Queued::Granted(_) => {}
            }
        }
    }

    /// Contends whoever is before it in line. It stands there to be found by a shutdown, and can go on with nothing that is granted.
    pub(crate) fn go_past(&self, contend: impl FnOnce() -> Result<Option<Hold>>) -> Result<Option<Hold>> {
        drop(self.registry.enter(self.space, self.key.shared(), self.waiter));
        let _place = Place(self);
        contend()
    }

    /// Waits behind the others of this process.
    fn queue(&self, mut entered: Entered) -> Result<Queued> {
        let Call { config, stop, contention, semaphore } = *self.call;
        loop {
            match entered {
                Entered::Head => return Ok(Queued::First),
                Entered::Granted(hold) => return Ok(Queued::Granted(hold)),
                Entered::Mine(_) | Entered::Sibling | Entered::Parked => contention.found(),
            }
            if stop.is_over() {
                return Ok(Queued::Late);
            }
            // Asked after the waiter can be woken and before it sleeps, so that no cancel falls in between.
            stop.check()?;
            semaphore.acquire(stop.at_most(config.poll_cap));
            self.backing.check_outage()?;
            entered = self.registry.turn(self.space, self.key.full(), self.waiter);
        }
    }

    /// Lets others ask first for what this process gave up for them: they have to be woken, and this thread is awake.
    fn give_way(&self) {
        if self.waiter.gives_way() {
            // Not on the semaphore: the message of that very release, which comes back to this process, would end it.
            thread::sleep(self.call.stop.at_most(self.call.config.hand_off.give_way));
        }
    }
}

/// A place in line, kept until it is dropped.
pub(crate) struct Place<'a>(pub(crate) &'a Line<'a>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Line { registry, space, key, waiter, backing, .. } = self.0;
        backing.take_back(registry.leave(*space, key.full(), waiter));
    }
}
