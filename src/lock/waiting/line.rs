//! The line: the threads of one process that wait for the same lock. The first of them contends at the store, and the others are parked
//! behind it. An unlock may pass the lock on to the next in line.
//!
//! A kind whose threads all wait at the store has no line: each of them contends at once.

use super::bid::Call;
use crate::base::error::{Error, Result};
use crate::base::sync::thread;
use crate::lease::hold::Hold;
use crate::registry::{Entered, LeftBehind, Registry, Waiter};
use smol_str::SmolStr;
use std::sync::Arc;
use uuid::Uuid;

/// The lock that the threads of a line wait for. `Siblings` in `acquire.rs` implements it.
///
/// It is a trait so that the tests of thread orders (tests/interleavings) run this very line without an engine.
pub(crate) trait Backing: Sync {
    /// Takes over a hold that was passed on to the caller. False if the hold has ended meanwhile.
    fn accept(&self, hold: &Hold) -> Result<bool>;

    /// Handles what a waiter left behind when it went.
    fn take_back(&self, left: LeftBehind);

    /// Fails a parked call with the same outage as the call that contends.
    fn check_outage(&self) -> Result<()>;
}

/// The line as one call sees it.
pub(crate) struct Line<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) space: Uuid,
    /// The name of the lock.
    pub(crate) name: SmolStr,
    pub(crate) waiter: &'a Arc<Waiter>,
    pub(crate) call: &'a Call<'a>,
    pub(crate) backing: &'a dyn Backing,
}

/// How waiting behind the others of this process ended.
enum Queued {
    /// This call is first in line: it contends.
    First,
    /// The hold was passed on to this call.
    Granted(Hold),
    /// The caller's deadline passed.
    Late,
}

impl Line<'_> {
    /// Waits in line, and contends at its head. The current thread does not hold the lock. `passed` makes what the call wins of a hold that
    /// was passed on to it.
    pub(crate) fn wait<T>(
        &self,
        contend: impl FnOnce() -> Result<Option<T>>,
        passed: impl Fn(Hold) -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            let entered = self.registry.enter(self.space, self.name.clone(), self.waiter);
            let place = Place(self);
            let queued = self.queue(entered);
            if queued.as_ref().is_err_and(Error::is_retryable) {
                // Leave the line first: then the others see the outage too, and the next caller asks the server.
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
                Queued::Granted(hold) if self.backing.accept(&hold)? => return Ok(passed(hold)),
                // The hold ended meanwhile: go back into the line.
                Queued::Granted(_) => {}
            }
        }
    }

    /// Contends past the others in line. Its place is there only for a shutdown to find it. It can use no hold that is passed on to it.
    pub(crate) fn go_past<T>(&self, contend: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        drop(self.registry.enter(self.space, self.name.clone(), self.waiter));
        let _place = Place(self);
        contend()
    }

    /// Waits behind the others of this process.
    fn queue(&self, mut entered: Entered) -> Result<Queued> {
        let Call { config, stop, semaphore, .. } = *self.call;
        loop {
            match entered {
                Entered::Head => return Ok(Queued::First),
                Entered::Granted(hold) => return Ok(Queued::Granted(hold)),
                Entered::Mine(_) | Entered::Sibling | Entered::Parked => self.call.found_busy(),
            }
            semaphore.woken.in_vain();
            if stop.is_over() {
                return Ok(Queued::Late);
            }
            // After the waiter can be woken and before it sleeps: no cancel falls in between.
            stop.check()?;
            let now = stop.clock.now();
            semaphore.acquire(stop.sleeps_until(now.plus(stop.at_most(config.poll_cap))).since(now));
            stop.look_out()?;
            self.backing.check_outage()?;
            entered = self.registry.turn(self.space, &self.name, self.waiter);
        }
    }

    /// Lets other processes ask first for a lock that this process gave up for them: they must be woken, and this thread is awake.
    fn give_way(&self) {
        if self.waiter.gives_way() {
            // Not on the semaphore: this process hears the message of its own release, which would end the pause.
            thread::sleep(self.call.stop.at_most(self.call.config.hand_off.give_way));
        }
    }
}

/// A place in line, kept until it is dropped.
pub(crate) struct Place<'a>(pub(crate) &'a Line<'a>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Line { registry, space, name, waiter, backing, .. } = self.0;
        backing.take_back(registry.leave(*space, name, waiter));
    }
}
