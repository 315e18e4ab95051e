//! Guards, requests and actions: comfortable ways to hold a lock, all on top of the trait alone.

use super::{RedLock, Terms};
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::signal::CancelToken;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A std guard may be looked at but not dropped by other threads, and so may ours: `!Send` and `Sync`.
pub(super) type OfThisThread = PhantomData<MutexGuard<'static, ()>>;

/// Holds one level of a lock, and releases it when dropped, also in a panic. It derefs to its [`Hold`].
///
/// A drop makes one attempt, at most one response time-out long, and logs what it could not do; the lease ends
/// what is left. [`unlock`](Self::unlock) says it instead. The guard of a hold that was lost never frees a
/// later one. It stays on its thread, but others may ask it:
///
/// ```compile_fail
/// use redlatch::{LocalRedLock, RedLockExt};
///
/// let locks = LocalRedLock::new();
/// let guard = locks.guard("order:42").unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard)); // error: a guard cannot be sent to another thread
/// });
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard<'l, L: RedLock + ?Sized> {
    lock: &'l L,
    hold: Hold,
    armed: bool,
    thread: OfThisThread,
}

impl<'l, L: RedLock + ?Sized> LockGuard<'l, L> {
    fn new(lock: &'l L, hold: Hold) -> Self {
        Self { lock, hold, armed: true, thread: PhantomData }
    }

    /// Releases the level now.
    ///
    /// # Errors
    /// As [`RedLock::release`]. The guard is gone in any case.
    pub fn unlock(mut self) -> Result<()> {
        self.armed = false;
        self.lock.release(&self.hold)
    }

    /// The hold, as the deref gives it; a clone of it outlives the guard.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl<L: RedLock + ?Sized> Deref for LockGuard<'_, L> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl<L: RedLock + ?Sized> fmt::Debug for LockGuard<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.hold).finish()
    }
}

impl<L: RedLock + ?Sized> Drop for LockGuard<'_, L> {
    fn drop(&mut self) {
        if self.armed {
            release_in_drop(self.lock, &self.hold);
        }
    }
}

/// A [`LockGuard`] that owns its share of the lock instead of borrowing it. It stays on its thread too, and so does
/// a struct that keeps it.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct OwnedGuard<L: RedLock + ?Sized> {
    lock: Arc<L>,
    hold: Hold,
    armed: bool,
    thread: OfThisThread,
}

impl<L: RedLock + ?Sized> OwnedGuard<L> {
    /// Acquires on the given terms; `None` when the wait ended without the lock.
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    pub fn acquire(lock: &Arc<L>, resource: &str, terms: &Terms<'_>) -> Result<Option<Self>> {
        let hold = lock.acquire(resource, terms)?;
        Ok(hold.map(|hold| Self { lock: Arc::clone(lock), hold, armed: true, thread: PhantomData }))
    }

    /// Releases the level now.
    ///
    /// # Errors
    /// As [`RedLock::release`]. The guard is gone in any case.
    pub fn unlock(mut self) -> Result<()> {
        self.armed = false;
        self.lock.release(&self.hold)
    }

    /// The hold, as the deref gives it; a clone of it outlives the guard.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl<L: RedLock + ?Sized> Deref for OwnedGuard<L> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl<L: RedLock + ?Sized> fmt::Debug for OwnedGuard<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedGuard").field(&self.hold).finish()
    }
}

impl<L: RedLock + ?Sized> Drop for OwnedGuard<L> {
    fn drop(&mut self) {
        if self.armed {
            release_in_drop(&*self.lock, &self.hold);
        }
    }
}

/// One attempt; what it could not do is logged.
fn release_in_drop<L: RedLock + ?Sized>(lock: &L, hold: &Hold) {
    log_drop(hold.in_haste(|| lock.release(hold)));
}

/// Says how the release in a drop failed. A loss was logged when it was found, and after a shutdown there is nothing
/// left to do.
pub(super) fn log_drop(released: Result<()>) {
    match released {
        Ok(()) | Err(Error::Closed { .. } | Error::Lost { .. }) => {}
        Err(error) => log::warn!("a guard was dropped: {error}"),
    }
}

/// A lock to be acquired on terms that are spelled out; see [`RedLockExt::request`](super::RedLockExt::request).
#[must_use = "a request does nothing until `guard`, `execute` or `run`"]
pub struct Request<'l, 'r, L: RedLock + ?Sized> {
    lock: &'l L,
    resource: &'r str,
    terms: Terms<'r>,
}

impl<'l, 'r, L: RedLock + ?Sized> Request<'l, 'r, L> {
    pub(super) fn new(lock: &'l L, resource: &'r str) -> Self {
        Self { lock, resource, terms: Terms::new() }
    }

    /// Waits at most so long: zero tries once. Default: for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms = self.terms.wait(wait);
        self
    }

    /// Takes the lock for so long, 10 ms to 365 days, without renewing it. Default: renewed by the watchdog.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms = self.terms.lease(lease);
        self
    }

    /// Ends the wait when the token is cancelled. Default: nothing does.
    pub fn cancelled_by(mut self, token: &'r CancelToken) -> Self {
        self.terms = self.terms.cancelled_by(token);
        self
    }

    /// Acquires and gives a guard; `None` when the wait ended without the lock.
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    pub fn guard(self) -> Result<Option<LockGuard<'l, L>>> {
        let hold = self.lock.acquire(self.resource, &self.terms)?;
        Ok(hold.map(|hold| LockGuard::new(self.lock, hold)))
    }

    /// Acquires, runs the work, releases, also when the work panics; `None` when the wait ended without the lock.
    ///
    /// # Errors
    /// As [`RedLockExt::execute_in_lock`](super::RedLockExt::execute_in_lock).
    pub fn execute<T>(self, work: impl FnOnce(&LockGuard<'l, L>) -> T) -> Result<Option<T>> {
        let Some(guard) = self.guard()? else { return Ok(None) };
        let value = work(&guard);
        after_work(guard.unlock())?;
        Ok(Some(value))
    }

    /// Acquires, runs the action between its hooks, releases; `None` when the wait ended without the lock, and
    /// then no hook is called.
    ///
    /// # Errors
    /// As [`RedLockExt::execute_in_lock`](super::RedLockExt::execute_in_lock).
    pub fn run<A: LockAction + ?Sized>(self, action: &mut A) -> Result<Option<A::Output>> {
        let resource = self.resource;
        let Some(guard) = self.guard()? else { return Ok(None) };
        // Declared before the guard moves on, so that in a panic it is dropped after the release.
        let exit = OnExit { action, resource };
        let guard = guard;
        exit.action.on_acquire(&guard);
        let value = exit.action.do_in_lock(&guard);
        after_work(guard.unlock())?;
        Ok(Some(value))
    }
}

impl<L: RedLock + ?Sized> fmt::Debug for Request<'_, '_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("resource", &self.resource).field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// The work is done: a release that failed on the wire ends with the lease and is only logged, but work that
/// may not have been alone is an error.
pub(super) fn after_work(released: Result<()>) -> Result<()> {
    match released {
        Err(error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. } | Error::Refused { .. })) => {
            log::warn!("the work is done, but its release failed: {error}");
            Ok(())
        }
        released => released,
    }
}

/// Work with hooks around it, as the Jedis version's `LockAction`.
///
/// ```
/// use redlatch::{Hold, LocalRedLock, LockAction, RedLockExt};
///
/// struct Count(Vec<&'static str>);
///
/// impl LockAction for Count {
///     type Output = usize;
///
///     fn on_acquire(&mut self, _: &Hold) {
///         self.0.push("acquired");
///     }
///
///     fn do_in_lock(&mut self, hold: &Hold) -> usize {
///         self.0.push("working");
///         hold.count()
///     }
///
///     fn on_exit(&mut self, _: &str) {
///         self.0.push("released");
///     }
/// }
///
/// let mut count = Count(Vec::new());
/// assert_eq!(LocalRedLock::new().run_in_lock("order:42", &mut count)?, 1);
/// assert_eq!(count.0, ["acquired", "working", "released"]);
/// # Ok::<(), redlatch::Error>(())
/// ```
pub trait LockAction {
    /// What the work gives.
    type Output;

    /// After the lock is held, before the work.
    fn on_acquire(&mut self, _hold: &Hold) {}

    /// The work.
    fn do_in_lock(&mut self, hold: &Hold) -> Self::Output;

    /// After the release, also when the work panicked. Called once for each time the lock was acquired.
    fn on_exit(&mut self, _resource: &str) {}
}

/// Calls the last hook when it is dropped.
struct OnExit<'a, A: LockAction + ?Sized> {
    action: &'a mut A,
    resource: &'a str,
}

impl<A: LockAction + ?Sized> Drop for OnExit<'_, A> {
    fn drop(&mut self) {
        self.action.on_exit(self.resource);
    }
}
