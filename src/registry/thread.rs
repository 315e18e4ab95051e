//! What the registry keeps of each thread: its number, how many holds it has, and the destructor that notices its end.

use super::registry;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::thread_local;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// Numbers of threads. They are never reused, unlike those of the system.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl CurrentThread {
    fn new() -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { number, thread: thread::current().id(), holds: Cell::new(0), fork: forkguard::new() }
    }
}

impl Drop for CurrentThread {
    /// Looks through the map only if the thread took more holds than it gave back. Not in a forked child: there the
    /// map may be locked for ever, and the holds are those of the parent.
    fn drop(&mut self) {
        if self.holds.get() > 0 && !self.fork.detected_fork() {
            registry().thread_ended(self.thread);
        }
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

pub(super) fn count_holds(change: isize) {
    let _ = CURRENT.try_with(|current| current.holds.set(current.holds.get() + change));
}
