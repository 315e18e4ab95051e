//! The sweeper: frees keys that nobody holds any more, which a broken attempt may have taken or a failed release
//! left behind, and gives up places in queues.
//!
//! A thread of its own, so that a server which answers none of them does not keep the watchdog from renewing. It
//! starts with the first sweep. Once closed it still does what is due, each once, and then ends.

use crate::base::error::{Error, Result};
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::lease::tenure::{Keeper, Tenure};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How soon a failed sweep is tried again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Sweeper {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: BTreeMap<(Moment, u64), Job>,
    jobs: u64,
    runs: bool,
    /// A chore is under way.
    busy: bool,
    closed: bool,
}

/// What may be left at a store when a call has ended, to be taken away by one attempt.
pub(crate) trait Chore: Send {
    fn run(&self) -> Result<()>;

    /// A failed attempt is made again each second until then: what is left ends by itself.
    fn until(&self) -> Moment;

    /// What stays if it is not done, as the log names it: a lock, until its lease ends.
    fn whereabouts(&self) -> String;
}

type Job = Box<dyn Chore>;

/// The key of a tenure that is over.
struct Sweep {
    tenure: Arc<Tenure>,
    keeper: Arc<dyn Keeper>,
}

impl Chore for Sweep {
    fn run(&self) -> Result<()> {
        self.keeper.sweep(&self.tenure)
    }

    fn until(&self) -> Moment {
        self.tenure.lease_until()
    }

    fn whereabouts(&self) -> String {
        format!("lock {}", self.keeper.whereabouts(&self.tenure))
    }
}

impl Sweeper {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { shared: Arc::new(Shared { clock, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Frees the key of a tenure that is over, at `due` and again each second until its last lease has ended.
    pub(crate) fn sweep(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>, due: Moment) {
        self.run_at(Box::new(Sweep { tenure: Arc::clone(tenure), keeper }), due);
    }

    /// Does a chore at `due`, and again each second while it fails and is worth it.
    pub(crate) fn run_at(&self, chore: Box<dyn Chore>, due: Moment) {
        let mut state = self.shared.state.lock();
        if let Err(error) = self.shared.start(&mut state) {
            drop(state);
            say!(warn, "{} may stay until its lease ends: {error}", chore.whereabouts());
            return;
        }
        state.add(due, chore);
        self.shared.changed.notify_one();
    }

    /// How many chores there have been, if all are done.
    pub(crate) fn all_done(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        (state.due.is_empty() && !state.busy).then_some(state.jobs)
    }

    /// Lets the thread end as soon as nothing is due any more.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl State {
    fn add(&mut self, due: Moment, job: Job) {
        self.jobs += 1;
        self.due.insert((due, self.jobs), job);
    }
}

impl Shared {
    fn start(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        if !state.runs {
            let shared = Arc::clone(self);
            spawn("redlatch-sweeper", move || shared.run())?;
            state.runs = true;
        }
        Ok(())
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            match catch_unwind(AssertUnwindSafe(|| job.run())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.repeat(job, &error),
                Err(_) => say!(error, "a sweep panicked: {} ends with its lease", job.whereabouts()),
            }
        }
    }

    /// Sleeps until a job is due; `None` when closed and nothing is left. Whoever comes after that starts anew.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        state.busy = false;
        loop {
            let now = self.clock.now();
            match state.due.first_key_value().map(|((due, _), _)| *due) {
                Some(due) if due <= now => {
                    state.busy = true;
                    return state.due.pop_first().map(|(_, job)| job);
                }
                Some(due) => drop(self.changed.wait_for(&mut state, due.since(now).min(AGAIN))),
                None if state.closed => {
                    state.runs = false;
                    return None;
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn repeat(&self, job: Job, error: &Error) {
        let again = self.clock.now().plus(AGAIN);
        let mut state = self.state.lock();
        if again < job.until() && !state.closed {
            state.add(again, job);
        } else {
            // A logger is foreign code, which may lock and unlock.
            drop(state);
            say!(debug, "{} ends with its lease: {error}", job.whereabouts());
        }
    }
}
