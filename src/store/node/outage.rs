//! How long a server has been out of reach, as far as anyone tried.

use super::Failure;
use crate::base::config::Config;
use crate::base::meters::OutageMeter;
use crate::base::stats::Counters;
use crate::base::time::{Clock, Moment};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// An outage that is going on, or none.
pub(crate) struct Outage {
    clock: Clock,
    budget: Duration,
    /// How long a failure says something of the server: the longest time of one more attempt, plus 1 s.
    telling: Duration,
    since: AtomicU64,
    failed_at: AtomicU64,
    last_failure: Mutex<Option<Failure>>,
    meter: OutageMeter,
}

impl Outage {
    pub(crate) fn new(config: &Config, counters: &Counters) -> Self {
        let attempt = config.connect_timeout.saturating_add(config.response_timeout);
        Self {
            clock: Clock::Boot,
            budget: config.outage_budget,
            telling: attempt.saturating_add(Duration::from_secs(1)),
            since: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            last_failure: Mutex::new(None),
            meter: counters.meters.outage(),
        }
    }

    /// Notes that an attempt failed which began at `start`.
    pub(crate) fn note(&self, start: Moment, failure: &Failure) {
        let now = self.clock.now();
        // Two attempts that fail at once begin one outage.
        let mut last_failure = self.last_failure.lock();
        let known = self.since(now);
        self.failed_at.store(now.0, SeqCst);
        self.since.store(known.unwrap_or(start).0, SeqCst);
        *last_failure = Some(failure.clone());
        // The next attempt makes another connection. If that is refused, or not answered, it is an outage.
        let is_closed = matches!(failure, Failure::Unknown { .. }) && !failure.is_timeout();
        let lasted = if is_closed { Duration::ZERO } else { now.since(known.unwrap_or(start)) };
        self.meter.fails(known.is_none(), lasted);
    }

    /// Ends the outage, since there was an answer.
    pub(crate) fn end(&self) {
        if self.since.load(SeqCst) != 0 {
            self.since.store(0, SeqCst);
        }
    }

    /// The failure of the last attempt that failed.
    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().clone()
    }

    pub(crate) fn lasted(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.since(now).map(|since| now.since(since))
    }

    /// When the present outage began. If no attempt has failed for `telling`, nobody knows that it goes on.
    fn since(&self, now: Moment) -> Option<Moment> {
        let since = self.since.load(SeqCst);
        let failed_at = Moment(self.failed_at.load(SeqCst));
        (since != 0 && now.since(failed_at) <= self.telling).then_some(Moment(since))
    }

    /// When calls without a deadline of their own give up: one budget after the outage began, or after `now` if there is none.
    pub(crate) fn ends(&self, now: Moment) -> Moment {
        self.since(now).unwrap_or(now).plus(self.budget)
    }
}
