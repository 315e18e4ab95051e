//! A timer: jobs by due time, and the sleep of the thread that takes them.
//!
//! The watchdog and the sweeper have a timer and a thread each: a server that answers no sweep must not keep the watchdog from renewing.

use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::base::time::{Clock, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// Jobs `J`, and under the same lock a state `S` of whoever uses the timer.
pub(super) struct Timer<J, S = ()> {
    pub(super) clock: Clock,
    pub(super) schedule: Mutex<Schedule<J, S>>,
    pub(super) changed: Condvar,
}

pub(super) struct Schedule<J, S> {
    /// By due time and number.
    pub(super) jobs: BTreeMap<(Moment, u64), J>,
    /// How many jobs have been added.
    added: u64,
    /// When the thread wakes by itself. A job that is due later need not wake it.
    /// Zero while the thread does a job: it looks at the schedule again before it sleeps.
    wakes_at: Moment,
    runs: bool,
    pub(super) closed: bool,
    pub(super) state: S,
}

impl<J, S> Schedule<J, S> {
    /// Calls `start`, which starts the thread, unless the thread runs.
    pub(super) fn start(&mut self, start: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        if !self.runs {
            start()?;
            self.runs = true;
        }
        Ok(())
    }

    /// Takes the first job if it is due.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<J> {
        self.jobs.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove())
    }

    /// How many jobs have been added, if all of them are done.
    pub(super) fn all_done(&self) -> Option<u64> {
        (self.jobs.is_empty() && self.wakes_at > Moment(0)).then_some(self.added)
    }
}

impl<J, S> Timer<J, S> {
    pub(super) fn new(clock: Clock, state: S) -> Self {
        let jobs = BTreeMap::new();
        let schedule = Schedule { jobs, added: 0, wakes_at: Moment::MAX, runs: false, closed: false, state };
        Self { clock, schedule: Mutex::new(schedule), changed: Condvar::new() }
    }

    /// Adds a job. Returns its key in the schedule.
    pub(super) fn add(&self, schedule: &mut Schedule<J, S>, due: Moment, job: J) -> (Moment, u64) {
        schedule.added += 1;
        let key = (due, schedule.added);
        schedule.jobs.insert(key, job);
        if due < schedule.wakes_at {
            self.changed.notify_one();
        }
        key
    }

    /// Sleeps until `pop`, which is told the time, takes a job from the schedule.
    /// `None` if the timer is closed and no job is left: then the thread ends, and the next job starts another one.
    pub(super) fn next(&self, pop: impl Fn(&mut Schedule<J, S>, Moment) -> Option<J>) -> Option<J> {
        const LONGEST: Duration = Duration::from_secs(3_600);
        let mut schedule = self.schedule.lock();
        loop {
            let now = self.clock.now();
            if let Some(job) = pop(&mut schedule, now) {
                schedule.wakes_at = Moment(0);
                return Some(job);
            }
            schedule.wakes_at = schedule.jobs.first_key_value().map_or(Moment::MAX, |((due, _), _)| *due);
            if schedule.closed && schedule.jobs.is_empty() {
                schedule.runs = false;
                return None;
            }
            let sleep = schedule.wakes_at.since(now).min(LONGEST);
            self.changed.wait_for(&mut schedule, sleep);
        }
    }

    /// Has the thread end as soon as no job is left.
    pub(super) fn close(&self) -> MutexGuard<'_, Schedule<J, S>> {
        let mut schedule = self.schedule.lock();
        schedule.closed = true;
        self.changed.notify_one();
        schedule
    }
}
