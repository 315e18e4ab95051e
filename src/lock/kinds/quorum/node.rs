//! One node of a quorum: its store, and the threads that ask it.
//!
//! A round waits for several nodes, so each node has threads of its own that wait for it. They also connect to a slow node, read answers
//! that come after the round was decided, and send releases that nobody waits for (docs/stream.md). Each starts with its first job: one
//! thread for renewals, and one for each connection that calls may use. Jobs for one key take turns on one thread, in order: a release
//! never overtakes the acquire whose key it frees.
//!
//! A node that hangs delays nobody else. Its jobs do not pile up either: the queue is short, and a job whose time is over when its turn
//! comes is told so and not run.

use crate::base::config::Config;
use crate::base::say::say;
use crate::base::threads::spawn;
use crate::base::time::{Clock, Moment};
use crate::lock::keys::Keys;
use crate::store::Store;
use crate::store::node::{Broken, Failure, Lane};
use crossbeam_channel::{Receiver, Sender, bounded};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How long a node is left alone that could not be connected to: connecting costs more than a command.
const LEFT_ALONE: Duration = Duration::from_millis(100);

/// The most jobs that are kept for a thread.
const QUEUE: usize = 64;

/// What the threads of a node have.
pub(super) struct At {
    /// Its number in the quorum.
    pub(super) node: usize,
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: Keys,
    clock: Clock,
    /// Until when it is left alone, and why.
    down: Mutex<Option<(Moment, Failure)>>,
    /// The node is out of reach, and the log says so.
    out: AtomicBool,
}

/// Is told whether its turn came in time on a live connection; returns whether the node answered.
type Run = Box<dyn FnOnce(&At, Result<(), Failure>) -> bool + Send>;

pub(super) struct Job {
    /// When nobody waits for it any more.
    pub(super) begin_by: Moment,
    /// Run the job on a thread of the node even while the node is left alone.
    pub(super) whenever: bool,
    pub(super) run: Run,
}

/// Which thread of a node runs a job.
#[derive(Clone, Copy)]
pub(super) enum Turn<'a> {
    Renewals,
    Of(&'a str),
}

pub(super) struct Node {
    at: Arc<At>,
    renewals: OnceCell<Sender<Job>>,
    calls: Vec<OnceCell<Sender<Job>>>,
}

impl Node {
    pub(super) fn new(node: usize, store: Arc<dyn Store>, config: &Config) -> Self {
        let keys = Keys::new(Arc::clone(&store), config).of_node(node);
        let at =
            Arc::new(At { node, store, keys, clock: Clock::Boot, down: Mutex::default(), out: AtomicBool::default() });
        let calls = std::iter::repeat_with(OnceCell::new).take(config.pool_size as usize).collect();
        Self { at, renewals: OnceCell::new(), calls }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.at.store
    }

    /// Has a thread of the node run the job. If none can, this thread tells the job so at once.
    pub(super) fn submit(&self, turn: Turn<'_>, job: Job) {
        if let Some(failure) = self.at.down().filter(|_| !job.whenever) {
            (job.run)(&self.at, Err(failure));
            return;
        }
        let refused = match self.queue(turn) {
            Ok(queue) => {
                queue.try_send(job).err().map(|full| (full.into_inner(), "too many commands wait for it".into()))
            }
            Err(error) => Some((job, format!("no thread for it: {error}"))),
        };
        if let Some((job, why)) = refused {
            (job.run)(&self.at, Err(self.at.unreached(&why)));
        }
    }

    /// Has each thread that makes calls drop a clone of `turn` after the jobs before it had their turn. Waits for room in
    /// a full queue.
    pub(super) fn after_calls(&self, turn: &Sender<()>, left: impl Fn() -> Duration) {
        for queue in self.calls.iter().filter_map(OnceCell::get) {
            let turn = turn.clone();
            let run = move |_: &At, _: Result<(), Failure>| {
                drop(turn);
                false
            };
            // The job's time is over from the beginning, so that nobody connects for it.
            let job = Job { begin_by: Moment(0), whenever: false, run: Box::new(run) };
            let _ = queue.send_timeout(job, left());
        }
    }

    /// Which of its threads runs the jobs of a key; the same at every node.
    pub(super) fn thread_of(&self, key: &str) -> usize {
        hash(key) as usize % self.calls.len()
    }

    fn queue(&self, turn: Turn<'_>) -> std::io::Result<&Sender<Job>> {
        let (queue, lane) = match turn {
            Turn::Renewals => (&self.renewals, Lane::Renewals),
            Turn::Of(key) => (&self.calls[self.thread_of(key)], Lane::Calls),
        };
        queue.get_or_try_init(|| start(Arc::clone(&self.at), lane))
    }
}

/// The same text has the same hash in one process.
pub(super) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A thread that ends when its node is dropped and every job had its turn.
fn start(at: Arc<At>, lane: Lane) -> std::io::Result<Sender<Job>> {
    let (queue, jobs) = bounded(QUEUE);
    spawn(format!("redlatch-node-{}", at.node), move || at.work(lane, jobs))?;
    Ok(queue)
}

impl At {
    fn work(&self, lane: Lane, jobs: Receiver<Job>) {
        let mut cold = true;
        for job in jobs {
            let ready = self.ready(lane, (job.begin_by, job.whenever), cold);
            let reached = ready.is_ok();
            match catch_unwind(AssertUnwindSafe(|| (job.run)(self, ready))) {
                Ok(answered) if reached => cold = !answered,
                Ok(_) => {}
                // No answer is sent: for the quorum the node did not give one.
                Err(_) => say!(error, "a thread of node {} panicked and goes on", self.store.address()),
            }
        }
    }

    /// After a failure this thread connects anew, within the connect time-out: a node that is slow to connect to would
    /// otherwise never be reached in a caller's time.
    fn ready(&self, lane: Lane, (until, whenever): (Moment, bool), cold: bool) -> Result<(), Failure> {
        self.in_time(until)?;
        if cold {
            if !whenever {
                self.down().map_or(Ok(()), Err)?;
            }
            let warm = self.store.warm(lane);
            self.leave_alone(warm.as_ref().err());
            warm?;
            self.in_time(until)?;
        }
        Ok(())
    }

    /// Leaves the node alone for 100 ms after this failure; `None`: no more.
    fn leave_alone(&self, failure: Option<&Failure>) {
        self.say(failure);
        *self.down.lock() = failure.map(|failure| (self.clock.now().plus(LEFT_ALONE), failure.clone()));
    }

    /// Logs once that the node is out of reach, and once that it is back: no call fails while a majority answers.
    fn say(&self, failure: Option<&Failure>) {
        let node = self.store.address();
        match (failure, self.out.swap(failure.is_some(), SeqCst)) {
            (Some(failure), false) => {
                let error = failure.clone().into_error("");
                let cause = error.source().map(ToString::to_string).unwrap_or_default();
                say!(warn, "node {node} cannot be connected to, the others go on without it: {cause}");
            }
            (None, true) => say!(info, "node {node} is connected to again"),
            _ => {}
        }
    }

    fn down(&self) -> Option<Failure> {
        let mut down = self.down.lock();
        down.take_if(|(until, _)| *until <= self.clock.now());
        down.as_ref().map(|(_, failure)| failure.clone())
    }

    fn in_time(&self, until: Moment) -> Result<(), Failure> {
        if self.clock.now() < until { Ok(()) } else { Err(self.unreached("no answer in time to an earlier command")) }
    }

    pub(super) fn unreached(&self, why: &str) -> Failure {
        Failure::Unreached(Broken::new(format!("{}: {why}", self.store.address())))
    }
}
