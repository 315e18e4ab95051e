//! Shuttle's primitives behind the names of src/base/sync.rs, and a time that passes only when a test says so.

pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread;
pub(crate) use shuttle::thread_local;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// A mutex with parking_lot's signatures.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// It is empty only while a condition variable has it.
pub(crate) struct MutexGuard<'a, T> {
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { held: self.0.lock().ok() }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("the mutex is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("the mutex is locked")
    }
}

type Inner = shuttle::sync::Condvar;

/// A condition variable whose time-outs are those of [`advance`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(Arc<Inner>);

pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.held.take().expect("the mutex is locked");
        guard.held = self.0.wait(locked).ok();
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> TimedOut {
        let until = boot_nanos().saturating_add(nanos(limit));
        if !limit.is_zero() {
            let timer = Timer::start(until, &self.0);
            self.wait(guard);
            drop(timer);
        }
        TimedOut(boot_nanos() >= until)
    }

    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut goes_on: impl FnMut(&mut T) -> bool,
        limit: Duration,
    ) -> TimedOut {
        let until = boot_nanos().saturating_add(nanos(limit));
        while goes_on(guard) {
            if self.wait_for(guard, Duration::from_nanos(until.saturating_sub(boot_nanos()))).timed_out() {
                return TimedOut(goes_on(guard));
            }
        }
        TimedOut(false)
    }
}

// One execution runs on one thread of the system, whatever threads it has.
std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static TIMERS: RefCell<Timers> = RefCell::default();
}

#[derive(Default)]
struct Timers {
    started: u64,
    running: Vec<(u64, u64, Arc<Inner>)>,
}

/// A sleep that ends at a time.
struct Timer(u64);

impl Timer {
    fn start(until: u64, sleeps_on: &Arc<Inner>) -> Self {
        TIMERS.with_borrow_mut(|timers| {
            timers.started += 1;
            timers.running.push((timers.started, until, Arc::clone(sleeps_on)));
            Self(timers.started)
        })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        TIMERS.with_borrow_mut(|timers| timers.running.retain(|(number, ..)| *number != self.0));
    }
}

pub(crate) fn boot_nanos() -> u64 {
    NOW.get()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A new execution, in which no time has passed.
pub(crate) fn begin() {
    NOW.set(1_000_000_000);
    TIMERS.with_borrow_mut(|timers| timers.running.clear());
}

/// Time passes: every sleep that is over by then ends. One that has begun but does not sleep yet is not missed.
pub(crate) fn advance(by: Duration) {
    let now = boot_nanos() + nanos(by);
    NOW.set(now);
    loop {
        let due = TIMERS.with_borrow(|timers| {
            let due = timers.running.iter().filter(|(_, until, _)| *until <= now);
            due.map(|(.., sleeps_on)| Arc::clone(sleeps_on)).collect::<Vec<_>>()
        });
        if due.is_empty() {
            return;
        }
        due.iter().for_each(|sleeps_on| sleeps_on.notify_all());
        thread::yield_now();
    }
}

/// A queue with the part of crossbeam's interface that the crate uses; its own would block the whole execution.
pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Queue { state: Mutex::new((VecDeque::new(), false)), changed: Condvar::new() });
    (Sender(Arc::clone(&queue)), Receiver(queue))
}

struct Queue<T> {
    /// What is queued, and whether the sender is gone.
    state: Mutex<(VecDeque<T>, bool)>,
    changed: Condvar,
}

pub(crate) struct Sender<T>(Arc<Queue<T>>);

pub(crate) struct Receiver<T>(Arc<Queue<T>>);

impl<T> Sender<T> {
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        self.0.state.lock().0.push_back(item);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().1 = true;
        self.0.changed.notify_all();
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, ()> {
        let mut state = self.0.state.lock();
        loop {
            match state.0.pop_front() {
                Some(item) => return Ok(item),
                None if state.1 => return Err(()),
                None => self.0.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.0.state.lock().0.pop_front())
    }
}
