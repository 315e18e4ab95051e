//! The watchdog: a scheduled thread pool that renews every watched tenure each third of its lease, and notices
//! every deadline that passes.
//!
//! One timer thread, which never does I/O, and a few workers, which do. A job is removed when its tenure ends,
//! so the schedule holds only what is alive. Threads start with the first job that needs them.

use crate::sync::{Condvar, Mutex, Receiver, Sender, thread, unbounded};
use crate::tenure::{Keeper, LossCause, Standing, Tenure};
use crate::time::{Clock, Lease, Moment};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Threads that renew; each has a connection of its own lane.
const WORKERS: usize = 2;

/// At most so many tenures in one command.
const BATCH: usize = 100;

pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    lease: Duration,
    max_hold: Duration,
    schedule: Mutex<Schedule>,
    changed: Condvar,
    queue: Receiver<Job>,
}

/// Jobs by due time, and the due time of each tenure's own job, so that it can be found again.
struct Schedule {
    due: BTreeMap<(Moment, u64, Task), Job>,
    kept: HashMap<u64, (Moment, Task), RandomState>,
    /// Renewals due until then go with those that are due now, in the same commands.
    burst_until: Moment,
    /// When the timer thread wakes by itself; a job due later need not wake it.
    wakes_at: Moment,
    timer_runs: bool,
    workers_run: bool,
    /// Gone once closed: the workers end when nothing can come any more.
    work: Option<Sender<Job>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Prolong it.
    Renew,
    /// Find it lost, unless its deadline was moved meanwhile.
    Expire,
}

#[derive(Clone)]
struct Job {
    task: Task,
    tenure: Arc<Tenure>,
    keeper: Arc<dyn Keeper>,
}

impl Watchdog {
    /// `lease` is what each renewal gives; none is made whose lease would end later than `max_hold` after the acquire.
    pub(crate) fn new(lease: Lease, max_hold: Duration, clock: Clock) -> Self {
        let (work, queue) = unbounded();
        let schedule = Schedule {
            due: BTreeMap::new(),
            kept: HashMap::default(),
            burst_until: Moment(0),
            wakes_at: Moment::MAX,
            timer_runs: false,
            workers_run: false,
            work: Some(work),
        };
        let lease = Duration::from_millis(lease.millis());
        let shared = Shared { clock, lease, max_hold, schedule: Mutex::new(schedule), changed: Condvar::new(), queue };
        Self { shared: Arc::new(shared) }
    }

    /// Takes care of a tenure until [`release`](Self::release): called when it is acquired, and whenever it
    /// begins or ceases to be watched.
    ///
    /// # Errors
    /// When the timer thread cannot be started.
    pub(crate) fn keep(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>) -> std::io::Result<()> {
        self.shared.start(&mut self.shared.schedule.lock())?;
        self.shared.plan(tenure, keeper, self.shared.interval());
        Ok(())
    }

    /// Forgets a tenure that ended.
    pub(crate) fn release(&self, tenure: &Tenure) {
        self.shared.schedule.lock().forget(tenure.serial());
    }

    /// Ends the threads, at the latest when the command under way is answered.
    pub(crate) fn close(&self) {
        let mut schedule = self.shared.schedule.lock();
        schedule.work = None;
        schedule.kept.clear();
        let jobs = std::mem::take(&mut schedule.due);
        drop(schedule);
        drop(jobs);
        self.shared.changed.notify_all();
    }
}

impl Schedule {
    fn forget(&mut self, serial: u64) {
        if let Some((due, task)) = self.kept.remove(&serial) {
            self.due.remove(&(due, serial, task));
        }
    }

    /// The next job if it is due, or a renewal that can go with those that are.
    fn pop(&mut self, now: Moment, slack: Duration) -> Option<Job> {
        let (due, serial, task) = *self.due.first_key_value()?.0;
        if due <= now {
            self.burst_until = now.plus(slack);
        } else if task != Task::Renew || due > self.burst_until {
            return None;
        }
        self.kept.remove(&serial);
        self.due.pop_first().map(|(_, job)| job)
    }
}

impl Shared {
    fn interval(&self) -> Duration {
        self.lease / 3
    }

    /// How much earlier than due a renewal may go, to share a command with others.
    fn slack(&self) -> Duration {
        self.lease / 60
    }

    /// How soon a failed renewal is tried again.
    fn again(&self) -> Duration {
        (self.lease / 10).min(Duration::from_secs(1))
    }

    fn start(self: &Arc<Self>, schedule: &mut Schedule) -> std::io::Result<()> {
        if !schedule.timer_runs {
            let shared = Arc::clone(self);
            spawn("redlatch-timer", move || shared.run_timer())?;
            schedule.timer_runs = true;
        }
        Ok(())
    }

    /// Sets a tenure's next job: its renewal when it is watched, but at the latest its deadline.
    ///
    /// Whether it ended is asked under the lock of the schedule, and whoever ends a tenure removes its job
    /// after that; so a job that comes too late is either not planned or removed.
    fn plan(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>, renew_in: Duration) {
        let mut schedule = self.schedule.lock();
        schedule.forget(tenure.serial());
        if matches!(tenure.standing(), Standing::Ended | Standing::Pending) {
            return;
        }
        let now = self.clock.now();
        let deadline = tenure.deadline().unwrap_or(now);
        let renewal = now.plus(renew_in);
        let renews = tenure.is_watched() && renewal < deadline;
        let (due, task) = if renews { (renewal, Task::Renew) } else { (deadline, Task::Expire) };
        self.insert(&mut schedule, due, Job { task, tenure: Arc::clone(tenure), keeper });
    }

    /// Whether a renewal then is within the cap; says once when it no longer is.
    fn may_renew(&self, tenure: &Tenure, at: Moment) -> bool {
        let within = at.plus(self.lease) <= tenure.held_since().plus(self.max_hold);
        if !within && tenure.renew_no_more() {
            let name = tenure.key().resource();
            log::warn!("lock {name:?} is held for as long as max_hold allows: it is not renewed any more");
        }
        within
    }

    fn insert(&self, schedule: &mut Schedule, due: Moment, job: Job) {
        if schedule.work.is_none() {
            return;
        }
        let serial = job.tenure.serial();
        schedule.kept.insert(serial, (due, job.task));
        schedule.due.insert((due, serial, job.task), job);
        if due < schedule.wakes_at {
            self.changed.notify_one();
        }
    }

    fn run_timer(self: &Arc<Self>) {
        while let Some(job) = self.next_due() {
            if catch_unwind(AssertUnwindSafe(|| self.run(job.clone()))).is_err() {
                fail_closed(&*job.keeper, std::slice::from_ref(&job.tenure));
            }
        }
    }

    /// Sleeps until a job is due; `None` when closed.
    fn next_due(&self) -> Option<Job> {
        let mut schedule = self.schedule.lock();
        while schedule.work.is_some() {
            let now = self.clock.now();
            if let Some(job) = schedule.pop(now, self.slack()) {
                // It looks again before it sleeps: nobody need wake it.
                schedule.wakes_at = Moment(0);
                return Some(job);
            }
            let first = schedule.due.first_key_value().map(|((due, ..), _)| *due);
            schedule.wakes_at = first.unwrap_or(Moment::MAX);
            self.changed.wait_for(&mut schedule, sleep_until(first, now));
        }
        None
    }

    fn run(self: &Arc<Self>, job: Job) {
        match job.tenure.standing() {
            Standing::Ended | Standing::Pending => {}
            Standing::Lost => job.keeper.lost(&job.tenure, job.tenure.expiry()),
            Standing::Held | Standing::Suspect => {
                // Until a renewal is answered, the next thing to happen is the deadline.
                self.plan(&job.tenure, Arc::clone(&job.keeper), Duration::MAX);
                let renews = job.task == Task::Renew && job.tenure.is_watched();
                if renews && self.may_renew(&job.tenure, self.clock.now()) && !self.dispatch(job.clone()) {
                    job.tenure.suspect();
                    self.plan(&job.tenure, job.keeper, self.again());
                }
            }
        }
    }

    /// Hands a job to the workers, and starts them with the first one. False when none can be started.
    fn dispatch(self: &Arc<Self>, job: Job) -> bool {
        let mut schedule = self.schedule.lock();
        if !schedule.workers_run {
            for _ in 0..WORKERS {
                let shared = Arc::clone(self);
                match spawn("redlatch-watchdog", move || shared.run_worker()) {
                    Ok(()) => schedule.workers_run = true,
                    Err(error) => log::error!("a watchdog thread cannot be started: {error}"),
                }
            }
        }
        if let Some(work) = schedule.work.as_ref().filter(|_| schedule.workers_run) {
            let _ = work.send(job);
        }
        schedule.workers_run
    }

    fn run_worker(&self) {
        while let Ok(first) = self.queue.recv() {
            let jobs = std::iter::once(first).chain(self.queue.try_iter().take(BATCH - 1));
            for (keeper, tenures) in by_keeper(jobs.collect()) {
                self.renew(&keeper, &tenures);
            }
        }
    }

    fn renew(&self, keeper: &Arc<dyn Keeper>, tenures: &[Arc<Tenure>]) {
        if catch_unwind(AssertUnwindSafe(|| keeper.renew(tenures))).is_err() {
            fail_closed(&**keeper, tenures);
        }
        for tenure in tenures {
            let suspect = tenure.standing() == Standing::Suspect;
            self.plan(tenure, Arc::clone(keeper), if suspect { self.again() } else { self.interval() });
        }
    }
}

fn sleep_until(first: Option<Moment>, now: Moment) -> Duration {
    const LONGEST: Duration = Duration::from_secs(3_600);
    first.map_or(LONGEST, |due| due.since(now).min(LONGEST))
}

/// Tenures that one command can renew, with their keeper.
type Group = (Arc<dyn Keeper>, Vec<Arc<Tenure>>);

fn by_keeper(jobs: Vec<Job>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for job in jobs {
        match groups.iter_mut().find(|(keeper, _)| Arc::ptr_eq(keeper, &job.keeper)) {
            Some((_, tenures)) => tenures.push(job.tenure),
            None => groups.push((job.keeper, vec![job.tenure])),
        }
    }
    groups
}

/// A panic on the way to a renewal: nobody knows what was done, so the holds are over. The thread goes on, also when
/// what panicked does so again: it may be the program's logger.
fn fail_closed(keeper: &dyn Keeper, tenures: &[Arc<Tenure>]) {
    for tenure in tenures {
        tenure.lose();
        let _ = catch_unwind(AssertUnwindSafe(|| keeper.lost(tenure, LossCause::Unwatched)));
    }
    let _ = catch_unwind(|| {
        log::error!("a watchdog thread panicked: {} holds are given up as lost", tenures.len());
    });
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
