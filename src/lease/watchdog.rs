//! The watchdog: a scheduled thread pool that renews every watched tenure each third of its lease, and notices
//! every deadline that passes.
//!
//! It has one timer thread, which never does I/O, and a few workers, which do. A job is removed when its tenure ends,
//! so the schedule has only tenures that have not ended. Each thread starts with the first job that needs it.

use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::sync::{Receiver, Sender, unbounded};
use crate::base::threads::spawn;
use crate::base::time::{Clock, Lease, Moment};
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use crate::lease::timer::{self, Timer};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Renewals of the usual lease have one lane, and those of shorter leases have another, with a thread of its own.
/// At a slow server or over dead connections each usual batch takes the time of an answer. A short lease would end in that time.
const LANES: usize = 2;
const USUAL: usize = 0;
const SHORT: usize = 1;

/// How many threads renew in each lane. There are as many connections for them.
const WORKERS: [usize; LANES] = [2, 1];

/// How soon a tenure is prolonged that was granted for less than its lease. A hold that ends before that costs nothing.
const YOUNG: Duration = Duration::from_millis(2);

/// With less than this left of a lease no renewal is sent: its answer would come too late.
const TOO_LATE: Duration = Duration::from_millis(5);

/// At most so many tenures go into one command.
const BATCH: usize = 100;

/// Has the server asked for every hold whose key is meant.
pub(crate) type Alarm = Arc<dyn Fn(&dyn Fn(&str) -> bool) + Send + Sync>;

pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

struct Shared {
    lease: Duration,
    max_hold: Duration,
    timer: Timer<Job, State>,
    queues: [Receiver<Job>; LANES],
}

/// A tenure has one job at most.
type Schedule = timer::Schedule<Job, State>;

/// What the watchdog keeps under the lock of the schedule.
struct State {
    /// The key of each tenure's job in the schedule, by the serial of the tenure.
    planned: HashMap<u64, (Moment, u64), RandomState>,
    /// Renewals that are due until then go with those that are due now, in the same commands.
    burst_until: Moment,
    /// The last alarm: every hold had to be asked for again. Answers to earlier commands may be those of a master that was replaced.
    alarmed_at: Moment,
    /// Whether a worker of each lane runs.
    workers_run: [bool; LANES],
    /// `None` once closed. The workers end when no sender is left.
    work: Option<[Sender<Job>; LANES]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Prolong the tenure.
    Renew,
    /// Ask whether the server still has it, and prolong it if it is watched.
    Verify,
    /// Find it lost, unless its deadline was moved meanwhile.
    Expire,
}

/// What a tenure needs before its deadline, and how soon.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    /// A renewal, if the tenure is watched.
    Renew(Duration),
    Verify(Duration),
}

#[derive(Clone)]
struct Job {
    task: Task,
    tenure: Arc<Tenure>,
    keeper: Arc<dyn Keeper>,
}

impl Watchdog {
    /// Each renewal gives `lease` to a tenure that asks for no other. No renewal is sent whose lease would end later than
    /// `max_hold` after the hold began.
    pub(crate) fn new(lease: Lease, max_hold: Duration, clock: Clock) -> Self {
        let ((usual, usual_jobs), (short, short_jobs)) = (unbounded(), unbounded());
        let state = State {
            planned: HashMap::default(),
            burst_until: Moment(0),
            alarmed_at: Moment(0),
            workers_run: [false; LANES],
            work: Some([usual, short]),
        };
        let timer = Timer::new(clock, state);
        let shared = Shared { lease: lease.span(), max_hold, timer, queues: [usual_jobs, short_jobs] };
        Self { shared: Arc::new(shared) }
    }

    /// Takes care of a tenure until [`forget`](Self::forget). It is called when the tenure is acquired, and whenever the tenure
    /// begins or ceases to be watched.
    ///
    /// # Errors
    /// When the timer thread cannot be started.
    pub(crate) fn keep(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>) -> std::io::Result<()> {
        self.shared.timer.schedule.lock().start(|| {
            let shared = Arc::clone(&self.shared);
            spawn("redlatch-timer", move || shared.run_timer())
        })?;
        self.shared.plan(tenure, keeper, Next::Renew(self.shared.first_interval(tenure)), tenure.acquire_sent());
        Ok(())
    }

    /// The alarm that makes the watchdog ask at once for every hold of some keys: a master was replaced, and the new one may
    /// not have their locks. It does not keep the watchdog alive.
    pub(crate) fn alarm(&self) -> Alarm {
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        Arc::new(move |is_meant| shared.upgrade().into_iter().for_each(|shared| shared.alarm(is_meant)))
    }

    /// Whether there was an alarm at that moment or later.
    pub(crate) fn was_alarmed_since(&self, moment: Moment) -> bool {
        self.shared.timer.schedule.lock().state.alarmed_at >= moment
    }

    /// Forgets a tenure that ended.
    pub(crate) fn forget(&self, tenure: &Tenure) {
        self.shared.timer.schedule.lock().forget(tenure.serial());
    }

    /// Ends the threads, at the latest when the command under way is answered.
    pub(crate) fn close(&self) {
        let mut schedule = self.shared.timer.close();
        schedule.state.work = None;
        schedule.state.planned.clear();
        let jobs = std::mem::take(&mut schedule.jobs);
        drop(schedule);
        drop(jobs);
    }
}

impl Schedule {
    fn forget(&mut self, serial: u64) {
        if let Some(key) = self.state.planned.remove(&serial) {
            self.jobs.remove(&key);
        }
    }
}

impl Shared {
    /// The lease that each renewal of a tenure gives.
    fn lease_of(&self, tenure: &Tenure) -> Duration {
        tenure.renewed_lease().map_or(self.lease, |own| own.span())
    }

    fn interval(&self, tenure: &Tenure) -> Duration {
        self.lease_of(tenure) / 3
    }

    /// The time from the acquire to the first renewal. A tenure that was granted for less than its lease is prolonged soon,
    /// because its holder may be stopped for a while.
    fn first_interval(&self, tenure: &Tenure) -> Duration {
        if self.is_young(tenure) { YOUNG } else { self.interval(tenure) }
    }

    /// Whether a tenure was granted for less than its lease, and has not been prolonged yet.
    fn is_young(&self, tenure: &Tenure) -> bool {
        tenure.granted_for() < self.lease_of(tenure)
    }

    /// How much earlier than due a renewal may go, to share a command with others.
    fn slack(&self, tenure: &Tenure) -> Duration {
        // A young tenure is not renewed early: most of them end before they are due.
        if self.is_young(tenure) { Duration::ZERO } else { self.lease_of(tenure) / 60 }
    }

    /// How soon a failed renewal is tried again.
    fn again(&self, tenure: &Tenure) -> Duration {
        (self.lease_of(tenure) / 10).min(Duration::from_secs(1))
    }

    /// Takes the first job if it is due, or if it is a renewal that can go with those that are due. A renewal that failed before
    /// waits until it is due, else it would be repeated without a pause.
    fn pop(&self, schedule: &mut Schedule, now: Moment) -> Option<Job> {
        let (&(due, _), job) = schedule.jobs.first_key_value()?;
        let burst_until = now.plus(self.slack(&job.tenure));
        let goes_early = job.task == Task::Renew && !job.tenure.is_suspect();
        if due <= now {
            schedule.state.burst_until = burst_until;
        } else if !goes_early || due > burst_until.min(schedule.state.burst_until) {
            return None;
        }
        schedule.state.planned.remove(&job.tenure.serial());
        schedule.jobs.pop_first().map(|(_, job)| job)
    }

    /// Sets the next job of a tenure: a renewal if it is watched, else its deadline. A renewal comes at the latest when half of
    /// what is left of the lease is over, because the acquire or the last renewal may have been answered late.
    /// `asked` is when the last command for the tenure was sent. If there was an alarm since then, the tenure is verified at once.
    ///
    /// This looks under the lock of the schedule whether the tenure ended. A thread that ends a tenure removes the job
    /// after that. So a job that comes too late is either not planned or removed.
    fn plan(&self, tenure: &Arc<Tenure>, keeper: Arc<dyn Keeper>, next: Next, asked: Moment) {
        let mut schedule = self.timer.schedule.lock();
        schedule.forget(tenure.serial());
        if matches!(tenure.state(), TenureState::Ended | TenureState::Pending) {
            return;
        }
        let now = self.timer.clock.now();
        let deadline = tenure.deadline().unwrap_or(now);
        let left = deadline.since(now);
        let (due, task) = match next {
            _ if left <= TOO_LATE => (deadline, Task::Expire),
            _ if asked < schedule.state.alarmed_at => (now, Task::Verify),
            Next::Renew(span) if tenure.is_watched() => (now.plus(span.min(left / 2)), Task::Renew),
            Next::Verify(span) => (now.plus(span.min(left / 2)), Task::Verify),
            _ => (deadline, Task::Expire),
        };
        self.insert(&mut schedule, due, Job { task, tenure: Arc::clone(tenure), keeper });
    }

    /// Has every tenure of the keys that are meant verified now. A tenure whose command is under way, or whose answer is just being
    /// booked, is not in the schedule. [`plan`](Self::plan) sees that it was asked for before the alarm, whatever its key is.
    fn alarm(&self, is_meant: &dyn Fn(&str) -> bool) {
        if mutant::is(Mutant::StaysWithOldMaster) {
            return;
        }
        let mut schedule = self.timer.schedule.lock();
        let now = self.timer.clock.now();
        schedule.state.alarmed_at = now;
        for (key, job) in std::mem::take(&mut schedule.jobs) {
            if is_meant(job.tenure.key().full()) {
                self.insert(&mut schedule, now, Job { task: Task::Verify, ..job });
            } else {
                schedule.jobs.insert(key, job);
            }
        }
    }

    /// Whether a renewal at that moment is within the cap. Logs once that it no longer is.
    fn may_renew(&self, job: &Job, at: Moment) -> bool {
        loop {
            let since = job.tenure.hold_began();
            if at.plus(self.lease_of(&job.tenure)) <= since.plus(self.max_hold) {
                return true;
            }
            // The tenure was passed on meanwhile: the question is now of the next hold.
            let Some(news) = job.tenure.renew_no_more(since) else { continue };
            if news {
                let lock = job.keeper.whereabouts(&job.tenure);
                say!(warn, "lock {lock} is held for as long as max_hold allows: it is not renewed any more");
            }
            return false;
        }
    }

    fn insert(&self, schedule: &mut Schedule, due: Moment, job: Job) {
        if !schedule.closed {
            let serial = job.tenure.serial();
            let key = self.timer.add(schedule, due, job);
            schedule.state.planned.insert(serial, key);
        }
    }

    fn run_timer(self: &Arc<Self>) {
        while let Some(job) = self.timer.next(|schedule, now| self.pop(schedule, now)) {
            if catch_unwind(AssertUnwindSafe(|| self.run(job.clone()))).is_err() {
                fail_closed(&*job.keeper, std::slice::from_ref(&job.tenure));
            }
        }
    }

    fn run(self: &Arc<Self>, job: Job) {
        if job.tenure.is_found_abandoned() {
            let lock = job.keeper.whereabouts(&job.tenure);
            say!(warn, "a thread ended while it held lock {lock}: it is no longer renewed");
        }
        match job.tenure.state() {
            TenureState::Ended | TenureState::Pending => {}
            TenureState::Lost => job.keeper.lost(&job.tenure, job.tenure.expiry()),
            TenureState::Held | TenureState::Suspect => self.ask(job),
        }
    }

    /// Has a worker ask the store for a tenure, if it is to be renewed or verified.
    fn ask(self: &Arc<Self>, job: Job) {
        // Until the worker has an answer, the deadline is the next job.
        self.plan(&job.tenure, Arc::clone(&job.keeper), Next::Nothing, Moment::MAX);
        // An extension may have moved the deadline that this job was for. A watched tenure is renewed then, too.
        let renews = job.tenure.is_watched() && self.may_renew(&job, self.timer.clock.now());
        let task = if renews { Task::Renew } else { job.task };
        if (renews || task == Task::Verify) && !self.dispatch(Job { task, ..job.clone() }) {
            job.tenure.suspect();
            self.plan(&job.tenure, job.keeper, Next::Renew(self.again(&job.tenure)), Moment::MAX);
        }
    }

    /// Hands a job to the workers of its lane, and starts them with the first job. False if none can be started.
    fn dispatch(self: &Arc<Self>, job: Job) -> bool {
        let lane = if self.lease_of(&job.tenure) < self.lease { SHORT } else { USUAL };
        let mut schedule = self.timer.schedule.lock();
        let state = &mut schedule.state;
        let failed = if state.workers_run[lane] { Vec::new() } else { self.start_workers(lane) };
        state.workers_run[lane] |= failed.len() < WORKERS[lane];
        let runs = state.workers_run[lane];
        if let Some(work) = state.work.as_ref().filter(|_| runs) {
            let _ = work[lane].send(job);
        }
        drop(schedule);
        failed.iter().for_each(|error| say!(error, "a watchdog thread cannot be started: {error}"));
        runs
    }

    /// Starts the workers of a lane. Returns the errors; the caller logs them when nothing is locked, because a logger is foreign code.
    fn start_workers(self: &Arc<Self>, lane: usize) -> Vec<std::io::Error> {
        let start = |_| {
            let shared = Arc::clone(self);
            spawn("redlatch-watchdog", move || shared.run_worker(lane)).err()
        };
        (0..WORKERS[lane]).filter_map(start).collect()
    }

    fn run_worker(&self, lane: usize) {
        let queue = &self.queues[lane];
        while let Ok(first) = queue.recv() {
            let jobs = std::iter::once(first).chain(queue.try_iter().take(BATCH - 1));
            for group in by_keeper(jobs.collect()) {
                self.carry_out(&group);
            }
        }
    }

    fn carry_out(&self, Group { keeper, task, tenures }: &Group) {
        let doubted: Vec<_> = tenures.iter().map(|tenure| tenure.state() == TenureState::Suspect).collect();
        let asked = self.timer.clock.now();
        let ask = || if *task == Task::Verify { keeper.verify(tenures) } else { keeper.renew(tenures) };
        if catch_unwind(AssertUnwindSafe(ask)).is_err() {
            fail_closed(&**keeper, tenures);
        }
        for (tenure, doubted) in tenures.iter().zip(doubted) {
            self.plan(tenure, Arc::clone(keeper), self.next(*task, tenure, doubted), asked);
        }
    }

    /// The first attempt that fails is repeated at once: the server may have closed its connection, or this process was
    /// stopped for longer than it waits for an answer.
    fn next(&self, task: Task, tenure: &Tenure, doubted: bool) -> Next {
        let again = if doubted { self.again(tenure) } else { Duration::ZERO };
        match tenure.state() {
            TenureState::Suspect if task == Task::Verify => Next::Verify(again),
            TenureState::Suspect => Next::Renew(again),
            _ => Next::Renew(self.interval(tenure)),
        }
    }
}

/// Tenures of one keeper that one command can ask for, by one lease.
struct Group {
    keeper: Arc<dyn Keeper>,
    task: Task,
    tenures: Vec<Arc<Tenure>>,
}

impl Group {
    fn takes(&self, job: &Job) -> bool {
        let is_alike = self.task == job.task && self.tenures[0].renewed_lease() == job.tenure.renewed_lease();
        is_alike && Arc::ptr_eq(&self.keeper, &job.keeper)
    }
}

fn by_keeper(jobs: Vec<Job>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for job in jobs {
        match groups.iter_mut().find(|group| group.takes(&job)) {
            Some(group) => group.tenures.push(job.tenure),
            None => groups.push(Group { keeper: job.keeper, task: job.task, tenures: vec![job.tenure] }),
        }
    }
    groups
}

/// A keeper panicked on the way to a renewal. Nobody knows what it did, so the holds are over. The thread goes on, also if
/// the keeper panics again.
fn fail_closed(keeper: &dyn Keeper, tenures: &[Arc<Tenure>]) {
    for tenure in tenures {
        tenure.lose();
        let _ = catch_unwind(AssertUnwindSafe(|| keeper.lost(tenure, LossCause::Unwatched)));
    }
    say!(error, "a watchdog thread panicked: {} holds are given up as lost", tenures.len());
}
