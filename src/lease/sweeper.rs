//! The sweeper: frees keys that nobody holds any more, and gives up places in queues. A broken attempt may have taken
//! such a key, or a failed release may have left it behind.
//!
//! Its thread starts with the first chore. Once closed, it tries each chore that is left once more when that is due, and then ends.

use crate::base::error::{Error, Result};
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::lease::tenure::{Keeper, Tenure};
use crate::lease::timer::{Schedule, Timer};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How soon a failed sweep is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A lease may end sooner than that. Then there is an attempt before its end, but not one after the other without a pause.
const SOONEST: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(crate) struct Sweeper {
    timer: Arc<Timer<Job>>,
    /// No lease ends what these leave undone.
    needed: Arc<Needed>,
    /// First attempts: other processes wait behind what these leave undone.
    first: Arc<Needed>,
}

/// Chores that a shutdown waits for. Nothing is sent: the channel is closed when each of them is gone.
struct Needed {
    each: Mutex<Option<Sender<()>>>,
    gone: Receiver<()>,
}

impl Needed {
    fn new() -> Arc<Self> {
        let (each, gone) = bounded(0);
        Arc::new(Self { each: Mutex::new(Some(each)), gone })
    }

    /// What a chore holds until it is done. `None` after a shutdown.
    fn hold(&self) -> Option<Sender<()>> {
        self.each.lock().clone()
    }

    fn wait(&self, longest: Duration) {
        drop(self.each.lock().take());
        // Nothing comes: it waits for the channel to be closed.
        let _ = self.gone.recv_timeout(longest);
    }
}

/// What may be left at a store when a call has ended. One attempt takes it away.
pub(crate) trait Chore: Send {
    fn run(&self) -> Result<()>;

    /// Until when a failed attempt is repeated: each second, or sooner, when half of the time is over. After that, what is left ends by itself.
    fn until(&self) -> Moment;

    /// What stays until its lease ends if the chore is not done, as the log names it.
    fn whereabouts(&self) -> String;

    /// Says that no further attempt is made, and why the last one failed.
    fn give_up(&self, error: &Error) {
        say!(debug, "{} ends with its lease: {error}", self.whereabouts());
    }
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

/// A chore whose first attempt a shutdown waits for.
struct Awaited {
    chore: Job,
    need: Mutex<Option<Sender<()>>>,
}

impl Chore for Awaited {
    fn run(&self) -> Result<()> {
        let done = self.chore.run();
        drop(self.need.lock().take());
        done
    }

    fn until(&self) -> Moment {
        self.chore.until()
    }

    fn whereabouts(&self) -> String {
        self.chore.whereabouts()
    }

    fn give_up(&self, error: &Error) {
        self.chore.give_up(error);
    }
}

impl Sweeper {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { timer: Arc::new(Timer::new(clock, ())), needed: Needed::new(), first: Needed::new() }
    }

    /// Frees the key of a tenure that is over, at `due` and again until its last lease has ended.
    pub(crate) fn sweep(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>, due: Moment) {
        self.run_at(Box::new(Sweep { tenure: Arc::clone(tenure), keeper }), due);
    }

    /// Does a chore at `due`, and again while it fails, until [`Chore::until`].
    pub(crate) fn run_at(&self, chore: Box<dyn Chore>, due: Moment) {
        let mut schedule = self.timer.schedule.lock();
        let start = || {
            let sweeper = self.clone();
            spawn("redlatch-sweeper", move || sweeper.run())
        };
        if let Err(error) = schedule.start(start) {
            drop(schedule);
            say!(warn, "{} may stay until its lease ends: {error}", chore.whereabouts());
            return;
        }
        self.timer.add(&mut schedule, due, chore);
    }

    /// Does a chore now, and again as above. A shutdown waits for its first attempt: a place that a process leaves in a queue is in the way of
    /// other processes.
    pub(crate) fn run_now(&self, chore: Box<dyn Chore>) {
        let need = Mutex::new(self.first.hold());
        self.run_at(Box::new(Awaited { chore, need }), self.timer.clock.now());
    }

    /// How many attempts there have been, if none is left to do.
    pub(crate) fn all_done(&self) -> Option<u64> {
        self.timer.schedule.lock().all_done()
    }

    /// What a chore holds for a shutdown to wait until it is dropped. `None` after a shutdown.
    pub(crate) fn need(&self) -> Option<Sender<()>> {
        self.needed.hold()
    }

    /// Waits until first attempts are over, for `first` at most, and until the chores that are needed are gone, for `longest` at most. Then it
    /// lets the thread end as soon as no chore is left.
    pub(crate) fn close(&self, first: Duration, longest: Duration) {
        self.first.wait(first);
        self.needed.wait(longest);
        drop(self.timer.close());
    }

    fn run(&self) {
        while let Some(job) = self.timer.next(Schedule::pop_due) {
            match catch_unwind(AssertUnwindSafe(|| job.run())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.repeat(job, &error),
                Err(_) => say!(error, "a sweep panicked: {} ends with its lease", job.whereabouts()),
            }
        }
    }

    fn repeat(&self, job: Job, error: &Error) {
        let now = self.timer.clock.now();
        let again = now.plus(AGAIN.min(job.until().since(now) / 2).max(SOONEST));
        let mut schedule = self.timer.schedule.lock();
        if again < job.until() && !schedule.closed {
            self.timer.add(&mut schedule, again, job);
        } else {
            // A logger is foreign code, which may lock and unlock: it runs when the schedule is not locked.
            drop(schedule);
            job.give_up(error);
        }
    }
}
