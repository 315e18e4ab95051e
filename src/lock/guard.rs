//! Guards, requests and actions: comfortable ways to hold a lock, all on top of the trait alone.

use super::patience::setters_of_terms;
use super::{RedLock, Terms};
use crate::base::error::{Error, Result};
use crate::base::say::say;
use crate::base::signal::CancelToken;
use crate::lease::hold::Hold;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::slice;
use std::time::Duration;

/// Marks guards: other threads may look at a guard, but it cannot be sent to one; the compiler's error names this
/// trait. A trait object has only the auto traits that are written here, so it is `Sync` and not `Send`.
pub(crate) trait StaysOnItsThread: Sync + Unpin + UnwindSafe + RefUnwindSafe {}

/// Marks a guard.
pub(super) type OfThisThread = PhantomData<dyn StaysOnItsThread>;

/// Holds one level of a lock, and releases it when dropped, also in a panic. It derefs to its [`Hold`].
///
/// A drop makes one attempt, at most one response time-out long, and logs a failure. The background asks on until the lock is surely over, and
/// reports a loss that it finds. [`unlock`](Self::unlock) returns the failure instead. The guard of a hold that was lost never frees a later hold. A
/// guard stays on its thread, but other threads may ask it.
///
/// `P` is the lock, or what points to it: a [`LockGuard`] borrows its lock, an [`OwnedGuard`] owns it.
#[must_use = "a guard that is not kept releases its lock at once: write `let _guard = ..`, not `let _ = ..`"]
pub struct Guard<P: RedLock> {
    lock: P,
    hold: Hold,
    armed: bool,
    thread: OfThisThread,
}

/// The [`Guard`] that borrows its lock. It stays on its thread, but others may ask it:
///
/// ```compile_fail
/// use redlatch::{LocalRedLock, RedLockExt};
///
/// let locks = LocalRedLock::new();
/// let guard = locks.guard("order:42").unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard)); // error: `dyn StaysOnItsThread` cannot be sent between threads
/// });
/// ```
///
/// A guard that is not kept releases its lock at once: write `let _guard = ..`, not `let _ = ..`.
pub type LockGuard<'l, L> = Guard<&'l L>;

/// The [`Guard`] that owns its lock instead of borrowing it: a clone of the locks, which is cheap for each kind, or an
/// `Arc` of them. It stays on its thread too, and so does a struct that keeps it. A guard that is not kept releases its
/// lock at once.
///
/// ```
/// use redlatch::{LocalRedLock, OwnedGuard, RedLock, RedLockExt};
/// use std::sync::Arc;
///
/// struct Report {
///     guard: OwnedGuard<LocalRedLock>,
/// }
///
/// struct Job {
///     guard: OwnedGuard<Arc<dyn RedLock>>,
/// }
///
/// let locks = LocalRedLock::new();
/// let report = Report { guard: locks.owned_guard("report")? };
/// let shared: Arc<dyn RedLock> = Arc::new(locks);
/// let job = Job { guard: shared.owned_guard("job")? };
/// assert!(report.guard.is_valid() && job.guard.is_valid());
/// # Ok::<(), redlatch::Error>(())
/// ```
pub type OwnedGuard<L> = Guard<L>;

impl<P: RedLock> Guard<P> {
    /// Acquires on the given terms; `None` when the wait ended without the lock. The lock need not be `Clone`; if it
    /// is, see [`Request::owned_guard`].
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    #[must_use = "`None` means that the lock is not held: write `let Some(guard) = .. else {`"]
    pub fn acquire(lock: P, resource: &str, terms: &Terms<'_>) -> Result<Option<Self>> {
        let hold = lock.acquire(resource, terms)?;
        Ok(hold.map(|hold| Self { lock, hold, armed: true, thread: PhantomData }))
    }

    /// Releases the level now.
    ///
    /// # Errors
    /// As [`RedLock::release`]. The guard is gone in any case.
    pub fn unlock(mut self) -> Result<()> {
        self.armed = false;
        self.lock.release(&self.hold)
    }

    /// The hold that the deref gives; a clone of it outlives the guard.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl<P: RedLock> Deref for Guard<P> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl<P: RedLock> fmt::Debug for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold).finish()
    }
}

impl<P: RedLock> Drop for Guard<P> {
    fn drop(&mut self) {
        if self.armed {
            release_in_drop(slice::from_ref(&self.hold), || self.lock.release(&self.hold));
        }
    }
}

/// Releases the holds of a dropped guard by one attempt, and logs a failure. A loss was logged when it was found, and after a
/// shutdown there is nothing left to do.
pub(super) fn release_in_drop(holds: &[Hold], release: impl FnOnce() -> Result<()>) {
    holds.iter().for_each(|hold| hold.hurry(true));
    let released = release();
    holds.iter().for_each(|hold| hold.hurry(false));
    match released {
        Ok(()) | Err(Error::Closed { .. } | Error::Lost { .. }) => {}
        Err(error) => {
            let locks: Vec<_> = holds.iter().map(Hold::whereabouts).collect();
            say!(warn, "a guard of lock {} was dropped: {error}", locks.join(", "));
        }
    }
}

/// A lock to be acquired on terms that are spelled out; see [`RedLockExt::request`](super::RedLockExt::request).
#[must_use = "a request does nothing until `.guard()?`, `.owned_guard()?`, `.execute(work)?` or `.run(&mut action)?`"]
pub struct Request<'l, 'r, L: RedLock + ?Sized> {
    lock: &'l L,
    resource: &'r str,
    terms: Terms<'r>,
}

impl<'l, 'r, L: RedLock + ?Sized> Request<'l, 'r, L> {
    pub(super) fn new(lock: &'l L, resource: &'r str) -> Self {
        Self { lock, resource, terms: Terms::new() }
    }

    setters_of_terms!('r, self.terms);

    /// Acquires and gives a guard; `None` when the wait ended without the lock.
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    #[must_use = "`None` means that the lock is not held: write `let Some(guard) = .. else {`"]
    pub fn guard(self) -> Result<Option<LockGuard<'l, L>>> {
        Guard::acquire(self.lock, self.resource, &self.terms)
    }

    /// The same with a guard that owns a clone of the locks.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLockExt};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let guard = locks.request("order:42").wait(Duration::from_millis(500)).owned_guard()?.expect("it is free");
    /// drop(locks);
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    #[must_use = "`None` means that the lock is not held: write `let Some(guard) = .. else {`"]
    pub fn owned_guard(self) -> Result<Option<OwnedGuard<L>>>
    where
        L: Clone,
    {
        Guard::acquire(self.lock.clone(), self.resource, &self.terms)
    }

    /// Acquires, runs the work, releases, also when the work panics; `None` when the wait ended without the lock, and
    /// then the work did not run ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`RedLockExt::execute_in_lock`](super::RedLockExt::execute_in_lock).
    #[must_use = "`None` means that the work did not run: write `if let Some(value) = ..`"]
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
    #[must_use = "`None` means that the work did not run: write `if let Some(value) = ..`"]
    pub fn run<A: LockAction + ?Sized>(self, action: &mut A) -> Result<Option<A::Output>> {
        let resource = self.resource;
        let Some(guard) = self.guard()? else { return Ok(None) };
        // Declared before `guard`: in a panic the last hook is called after the release.
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

/// The work is done. The verdict of its release decides (docs/protocol.md, 6). *Unknown* is only logged: the hold was believed until the release
/// began, and the background tells a loss that it finds. After any other failure the work may not have been alone, so the caller gets an error
/// that says that the work ran.
pub(super) fn after_work(released: Result<()>) -> Result<()> {
    let why = match &released {
        Ok(()) => return Ok(()),
        Err(error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. } | Error::Refused { .. })) => {
            say!(warn, "the work is done, but its release failed: {error}");
            return Ok(());
        }
        Err(Error::Lost { .. }) => "the lock was lost meanwhile",
        Err(Error::Closed { .. }) => "the client was shut down meanwhile",
        Err(Error::NotHeld { .. }) => "the lock was unlocked meanwhile",
        Err(_) => "its release failed",
    };
    released.map_err(|error| Error::unprotected(error.resource().unwrap_or_default(), why))
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
