//! What ends a call that waits: its own time, its token, a shutdown, a circle of waiting.

use crate::base::error::{Error, Result};
use crate::base::signal::{CancelToken, Semaphore, Shutdown};
use crate::base::sync::thread;
use crate::base::time::{Clock, Moment};
use std::sync::Arc;
use std::time::Duration;

/// Looks after a call that waits: those who ask are told of it, and a circle of waiting is found.
pub(crate) trait Lookout: Sync {
    /// The call found its lock busy: it waits from now on, until its deadline at most.
    fn begins(&self, now: Moment, deadline: Option<Moment>);

    /// The call has subscribed.
    fn listens(&self);

    /// When the call has to look for a circle next.
    fn due(&self) -> Moment;

    /// Has somebody look for a circle, if it is time. Returns the circle that the call has to break, if one was found.
    fn look(&self, now: Moment) -> Option<Arc<str>>;
}

/// When a call stops, and what it sleeps on until then.
pub(crate) struct Stop<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) resource: &'a str,
    /// The caller's deadline; `None` waits for ever.
    pub(crate) deadline: Option<Moment>,
    pub(crate) token: Option<&'a CancelToken>,
    shutdown: &'a Shutdown,
    semaphore: Option<&'a Arc<Semaphore>>,
    lookout: Option<&'a dyn Lookout>,
}

/// The least time that a call without a deadline takes if it fails in an outage.
const LEAST_IN_OUTAGE: Duration = Duration::from_millis(100);

impl<'a> Stop<'a> {
    /// Stopped by a shutdown alone.
    pub(crate) fn new(clock: &'a Clock, shutdown: &'a Shutdown, resource: &'a str) -> Self {
        Self { clock, resource, deadline: None, token: None, shutdown, semaphore: None, lookout: None }
    }

    pub(crate) fn at(self, deadline: Option<Moment>) -> Self {
        Self { deadline, ..self }
    }

    pub(crate) fn cancelled_by(self, token: Option<&'a CancelToken>) -> Self {
        Self { token, ..self }
    }

    /// A release of the semaphore ends sleeps early. The token releases it, too.
    pub(crate) fn woken_by(self, semaphore: &'a Arc<Semaphore>) -> Self {
        if let Some(token) = self.token {
            token.wake(semaphore);
        }
        Self { semaphore: Some(semaphore), ..self }
    }

    pub(crate) fn watched_by(self, lookout: &'a dyn Lookout) -> Self {
        Self { lookout: Some(lookout), ..self }
    }

    /// The call found its lock busy.
    pub(crate) fn begins_to_wait(&self) {
        self.lookout.into_iter().for_each(|lookout| lookout.begins(self.clock.now(), self.deadline));
    }

    /// The call has subscribed.
    pub(crate) fn has_subscribed(&self) {
        self.lookout.into_iter().for_each(|lookout| lookout.listens());
    }

    /// The end of a sleep that should last until `until`: the call may have to look for a circle before.
    pub(crate) fn sleeps_until(&self, until: Moment) -> Moment {
        self.lookout.map_or(until, |lookout| lookout.due().min(until))
    }

    /// Looks for a circle of waiting, if it is time.
    ///
    /// # Errors
    /// `Deadlock` if the call has to break one.
    pub(crate) fn look_out(&self) -> Result<()> {
        let circle = self.lookout.and_then(|lookout| lookout.look(self.clock.now()));
        circle.map_or(Ok(()), |circle| Err(Error::deadlock(self.resource, circle)))
    }

    /// # Errors
    /// `Closed` after a shutdown, `Cancelled` by the token.
    pub(crate) fn check(&self) -> Result<()> {
        self.shutdown.check(self.resource)?;
        match self.token {
            Some(token) if token.is_cancelled() => Err(Error::cancelled(self.resource)),
            _ => Ok(()),
        }
    }

    /// Whether the caller's time is up.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// The time left to the caller, no more than `cap`.
    pub(crate) fn at_most(&self, cap: Duration) -> Duration {
        let left = self.deadline.map(|deadline| deadline.since(self.clock.now()));
        left.map_or(cap, |left| left.min(cap))
    }

    /// A call without a deadline that failed in an outage takes [`LEAST_IN_OUTAGE`] from `since`. Else a program that repeats retryable
    /// calls would spin.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn take_least(&self, since: Moment) -> Result<()> {
        while self.deadline.is_none() {
            let left = LEAST_IN_OUTAGE.saturating_sub(self.clock.now().since(since));
            if left.is_zero() {
                break;
            }
            self.rest(left);
            self.check()?;
        }
        Ok(())
    }

    /// A semaphore for the call's sleeps. The token releases it, and so does a shutdown.
    pub(crate) fn bed(&self) -> Arc<Semaphore> {
        self.semaphore.map_or_else(|| self.own_bed(), Arc::clone)
    }

    fn own_bed(&self) -> Arc<Semaphore> {
        let bed = Arc::default();
        if let Some(token) = self.token {
            token.wake(&bed);
        }
        bed
    }

    /// A semaphore that wakes the call, for as long as its owner keeps it.
    pub(crate) fn ear(&self) -> Arc<Semaphore> {
        self.semaphore.map_or_else(Arc::default, |semaphore| Arc::new(Semaphore::relay(semaphore)))
    }

    /// Sleeps for `span` on the call's semaphore, or on `ear` if the call has none. A wake ends the sleep early.
    pub(crate) fn pause(&self, span: Duration, ear: &Semaphore) {
        self.semaphore.map_or(ear, |semaphore| semaphore).acquire(span);
    }

    /// Sleeps for `span`. A wake of the call ends the sleep early.
    pub(crate) fn rest(&self, span: Duration) {
        match self.semaphore {
            Some(semaphore) => drop(semaphore.acquire(span)),
            // A release, a try or a look: nothing could wake it.
            None => thread::sleep(span),
        }
    }
}
