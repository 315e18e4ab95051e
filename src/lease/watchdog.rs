//! The watchdog: a scheduled thread pool that renews every watched tenure each third of its lease, and notices
//! every deadline that passes.
//!
//! One timer thread, which never does I/O, and a few workers, which do. A job is removed when its tenure ends,
//! so the schedule holds only what is alive. Threads start with the first job that needs them.

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

/// Renewals of the usual lease, and of shorter ones: those have a thread of their own, which starts with the first of them.
/// A server that is slow, or connections that are dead, cost each usual batch an answer's time, of which a short lease
/// would be over.
const LANES: usize = 2;
const USUAL: usize = 0;
const SHORT: usize = 1;

/// Threads that renew, by lane; there are as many connections for them.
const WORKERS: [usize; LANES] = [2, 1];

/// How soon a tenure is prolonged that was given for less than its lease. A hold that is shorter costs nothing.
const YOUNG: Duration = Duration::from_millis(25);

/// With less than this left of a lease no renewal is begun: its answer would come too late.
const TOO_LATE: Duration = Duration::from_millis(5);

/// At most so many tenures in one command.
const BATCH: usize = 100;

/// Has every hold asked for whose key is one of those meant.
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
    /// Renewals due until then go with those that are due now, in the same commands.
    burst_until: Moment,
    /// When every hold had last to be asked for anew. What was asked before that may have been said by a master that is none.
    alarmed_at: Moment,
    /// Whether a worker of each lane runs.
    workers_run: [bool; LANES],
    /// Gone once closed: the workers end when nothing can come any more.
    work: Option<[Sender<Job>; LANES]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Prolong it.
    Renew,
    /// Ask whether it is still there, and prolong it if that is wanted.
    Verify,
    /// Find it lost, unless its deadline was moved meanwhile.
    Expire,
}

/// What a tenure needs before its deadline, and how soon.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    /// If it is watched.
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
    /// `lease` is what each renewal gives to a tenure that asks for no other; none is made whose lease would end later than `max_hold` after the hold began.
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

    /// Takes care of a tenure until [`forget`](Self::forget): called when it is acquired, and whenever it
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

    /// What makes it ask at once for every hold of some keys: locks may have been lost, by a master that gave way to another
    /// one. It does not keep the watchdog alive.
    pub(crate) fn alarm(&self) -> Alarm {
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        Arc::new(move |is_meant| shared.upgrade().into_iter().for_each(|shared| shared.alarm(is_meant)))
    }

    /// Whether that was since then.
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
    /// What each renewal of a tenure gives.
    fn lease_of(&self, tenure: &Tenure) -> Duration {
        tenure.renewed_lease().map_or(self.lease, |own| own.span())
    }

    fn interval(&self, tenure: &Tenure) -> Duration {
        self.lease_of(tenure) / 3
    }

    /// The same from its acquire on. What was given for less than its lease is prolonged soon: its holder may be stopped for a while.
    fn first_interval(&self, tenure: &Tenure) -> Duration {
        if self.is_young(tenure) { YOUNG } else { self.interval(tenure) }
    }

    /// Whether it has been given for less than its lease, and not prolonged yet.
    fn is_young(&self, tenure: &Tenure) -> bool {
        tenure.granted_for() < self.lease_of(tenure)
    }

    /// How much earlier than due a renewal may go, to share a command with others.
    fn slack(&self, tenure: &Tenure) -> Duration {
        // One that was given is not asked for early: most are over by then.
        if self.is_young(tenure) { Duration::ZERO } else { self.lease_of(tenure) / 60 }
    }

    /// How soon a failed renewal is tried again.
    fn again(&self, tenure: &Tenure) -> Duration {
        (self.lease_of(tenure) / 10).min(Duration::from_secs(1))
    }

    /// The next job if it is due, or a renewal that can go with those that are. One that failed before waits until it is
    /// due: it would be repeated on and on.
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

    /// Sets a tenure's next job: its renewal when it is watched, at the latest when half of what is left of its lease is
    /// over (its acquire or its last renewal may have been answered late), or else its deadline. What is known of it was
    /// asked for then: if there was an alarm since, it is verified at once.
    ///
    /// Whether it ended is asked under the lock of the schedule, and whoever ends a tenure removes its job
    /// after that; so a job that comes too late is either not planned or removed.
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

    /// Has every tenure of such keys verified now. Those whose command is under way, or that are just being booked, are not in
    /// the schedule: [`plan`](Self::plan) sees that they were asked for before, whatever their keys are.
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

    /// Whether a renewal then is within the cap; says once when it no longer is.
    fn may_renew(&self, job: &Job, at: Moment) -> bool {
        loop {
            let since = job.tenure.hold_began();
            if at.plus(self.lease_of(&job.tenure)) <= since.plus(self.max_hold) {
                return true;
            }
            // Passed on meanwhile: asked anew for the next hold.
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

    /// Has a worker ask the store for a tenure, if there is reason to.
    fn ask(self: &Arc<Self>, job: Job) {
        // Until that is answered, the next thing to happen is the deadline.
        self.plan(&job.tenure, Arc::clone(&job.keeper), Next::Nothing, Moment::MAX);
        // A deadline that was moved meanwhile, by an extension, is a reason to renew too.
        let renews = job.tenure.is_watched() && self.may_renew(&job, self.timer.clock.now());
        let task = if renews { Task::Renew } else { job.task };
        if (renews || task == Task::Verify) && !self.dispatch(Job { task, ..job.clone() }) {
            job.tenure.suspect();
            self.plan(&job.tenure, job.keeper, Next::Renew(self.again(&job.tenure)), Moment::MAX);
        }
    }

    /// Hands a job to the workers of its lane, and starts them with the first one. False when none can be started.
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

    /// Why those that cannot be started cannot: said when nothing is locked, because a logger is foreign code.
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

    /// The first attempt that fails is repeated at once: it may have met a connection that the server had closed, or this
    /// process was stopped for longer than an answer is waited for.
    fn next(&self, task: Task, tenure: &Tenure, doubted: bool) -> Next {
        let again = if doubted { self.again(tenure) } else { Duration::ZERO };
        match tenure.state() {
            TenureState::Suspect if task == Task::Verify => Next::Verify(again),
            TenureState::Suspect => Next::Renew(again),
            _ => Next::Renew(self.interval(tenure)),
        }
    }
}

/// Tenures that one command can ask for, by one lease, with their keeper.
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

/// A panic on the way to a renewal: nobody knows what was done, so the holds are over. The thread goes on, also when
/// what panicked does so again.
fn fail_closed(keeper: &dyn Keeper, tenures: &[Arc<Tenure>]) {
    for tenure in tenures {
        tenure.lose();
        let _ = catch_unwind(AssertUnwindSafe(|| keeper.lost(tenure, LossCause::Unwatched)));
    }
    say!(error, "a watchdog thread panicked: {} holds are given up as lost", tenures.len());
}
