//! What the registry keeps of each thread: its number, how many holds it has, and the destructor that notices its end.

use super::registry;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::thread_local;
use crate::lease::hold::Hold;
use once_cell::sync::Lazy;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The destructor notices the end of the thread.
struct CurrentThread {
    number: u64,
    thread: ThreadId,
    holds: Cell<isize>,
    fork: forkguard::Guard,
}

thread_local! {
    static CURRENT: CurrentThread = CurrentThread::new();
}

/// The number and the name of each thread that has used a lock, for those who ask who holds or waits. The name is kept as it was then.
static KNOWN: Lazy<Mutex<HashMap<ThreadId, Known>>> = Lazy::new(Mutex::default);

/// The letters that are kept of a name: a message with a claim has it, and has to stay short.
const LONGEST_NAME: usize = 128;

/// In a forked child the map may be locked for ever. A thread that is not in the map is not told of.
const LONGEST: Duration = Duration::from_secs(1);

/// A number, and a name if the thread has one.
type Known = (u64, Option<String>);

/// Numbers of threads. They are never reused, unlike those of the system.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl CurrentThread {
    fn new() -> Self {
        let (number, thread) = (NUMBERS.fetch_add(1, Relaxed), thread::current());
        if let Some(mut known) = KNOWN.try_lock_for(LONGEST) {
            let name = thread.name().map(|name| name.chars().take(LONGEST_NAME).collect());
            known.insert(thread.id(), (number, name));
        }
        Self { number, thread: thread.id(), holds: Cell::new(0), fork: forkguard::new() }
    }
}

impl Drop for CurrentThread {
    /// Looks through the registry only if the thread took more holds than it gave back. Not in a forked child: there the
    /// map may be locked for ever, and the holds are those of the parent.
    fn drop(&mut self) {
        if self.fork.detected_fork() {
            return;
        }
        if self.holds.get() > 0 {
            registry().thread_ended(self.thread);
        }
        KNOWN.try_lock_for(LONGEST).map(|mut known| known.remove(&self.thread));
    }
}

/// The number of the current thread. Zero while the thread is being torn down.
pub(crate) fn thread_number() -> u64 {
    CURRENT.try_with(|current| current.number).unwrap_or(0)
}

/// Whether the current thread is being torn down, so that nothing will notice its end any more. Destructors of thread-locals that
/// are older than [`CURRENT`] run after it.
pub(crate) fn is_ending() -> bool {
    CURRENT.try_with(|_| ()).is_err()
}

/// The id of the current thread. It is kept here, because the standard library counts a reference each time it is asked.
pub(crate) fn current_thread() -> ThreadId {
    CURRENT.try_with(|current| current.thread).unwrap_or_else(|_| thread::current().id())
}

/// Whether the current thread has a hold, by its count.
pub(crate) fn holds_any() -> bool {
    CURRENT.try_with(|current| current.holds.get() > 0).unwrap_or(false)
}

/// The number and the name of a thread; `None`: it has ended. Who asks has a shard of the registry, which others need.
pub(crate) fn known(thread: ThreadId) -> Option<Known> {
    KNOWN.try_lock_for(LONGEST)?.get(&thread).cloned()
}

/// Since when a thread takes a group. What it acquires meanwhile has no caller yet.
static TAKING: Lazy<Mutex<HashMap<ThreadId, Instant>>> = Lazy::new(Mutex::default);

/// The current thread takes a group, until this is dropped.
pub(crate) struct TakesGroup {
    since: Instant,
    /// It takes one within another, which counts.
    is_inner: bool,
}

impl TakesGroup {
    pub(crate) fn begin() -> Self {
        let is_inner = TAKING.try_lock_for(LONGEST).is_some_and(|taking| taking.contains_key(&current_thread()));
        let begun = Self { since: Instant::now(), is_inner };
        begun.goes_on(true);
        begun
    }

    /// Whether it still takes it. Else the group may be whole, and its caller is told of each loss from now on.
    pub(crate) fn goes_on(&self, does: bool) {
        let thread = current_thread();
        let change = |mut taking: MutexGuard<'_, HashMap<ThreadId, Instant>>| match does {
            true => taking.insert(thread, self.since),
            false => taking.remove(&thread),
        };
        let _ = TAKING.try_lock_for(LONGEST).filter(|_| !self.is_inner).and_then(change);
    }
}

impl Drop for TakesGroup {
    fn drop(&mut self) {
        self.goes_on(false);
    }
}

/// Whether the thread of a hold acquired it for a group that it still takes, or has given it back since. What the thread had before, by an outer
/// level, is its caller's.
pub(crate) fn is_part_of_group(hold: &Hold) -> bool {
    if hold.is_disowned() {
        return true;
    }
    let taking = TAKING.try_lock_for(LONGEST).and_then(|taking| taking.get(&hold.thread()).copied());
    taking.is_some_and(|since| hold.acquired_at() >= since)
}

pub(super) fn count_holds(change: isize) {
    let _ = CURRENT.try_with(|current| current.holds.set(current.holds.get() + change));
}
