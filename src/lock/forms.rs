//! [`RedLockExt`]: the comfortable forms, each on top of the trait.

use super::{LockAction, LockGuard, OwnedGuard, RedLock, Request, acquired};
use crate::base::error::Result;
use std::time::Duration;

/// The comfortable forms, for every [`RedLock`], also behind `dyn`.
pub trait RedLockExt: RedLock {
    /// Locks, and unlocks when the guard is dropped.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// let guard = locks.guard("order:42")?;
    /// assert!(guard.is_valid());
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    fn guard(&self, resource: &str) -> Result<LockGuard<'_, Self>> {
        acquired(self.request(resource).guard()?, resource)
    }

    /// A guard if the resource is free. `None`: it is busy ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    #[must_use = "`None` means that the lock is not held: write `let Some(guard) = .. else {`"]
    fn try_guard(&self, resource: &str) -> Result<Option<LockGuard<'_, Self>>> {
        self.request(resource).wait(Duration::ZERO).guard()
    }

    /// A guard that owns a clone of these locks, for structs that keep it. A clone of each kind, and of an `Arc<dyn
    /// RedLock>`, is cheap. For a bounded wait or a lease see [`Request::owned_guard`].
    ///
    /// ```
    /// use redlatch::{LocalRedLock, OwnedGuard, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// let guard: OwnedGuard<LocalRedLock> = locks.owned_guard("order:42")?;
    /// drop(locks);
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    fn owned_guard(&self, resource: &str) -> Result<OwnedGuard<Self>>
    where
        Self: Clone,
    {
        acquired(self.request(resource).owned_guard()?, resource)
    }

    /// Any form with its terms spelled out.
    ///
    /// ```
    /// use redlatch::{CancelToken, LocalRedLock, RedLockExt};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let token = CancelToken::new();
    /// let sum = locks
    ///     .request("order:42")
    ///     .wait(Duration::from_millis(500))
    ///     .lease(Duration::from_secs(10))
    ///     .cancelled_by(&token)
    ///     .execute(|guard| guard.count() + 1)?;
    /// assert_eq!(sum, Some(2));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    fn request<'l, 'r>(&'l self, resource: &'r str) -> Request<'l, 'r, Self> {
        Request::new(self, resource)
    }

    /// Locks, runs the work, unlocks, also when the work panics.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLockExt};
    ///
    /// let total = LocalRedLock::new().execute_in_lock("order:42", || 40 + 2)?;
    /// assert_eq!(total, 42);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`]; then the work did not run. After the work only
    /// [`Error::Unprotected`](crate::Error::Unprotected): the hold was lost meanwhile, or the client was shut down, so
    /// the work may not have been alone ([`Error::work_ran`](crate::Error::work_ran)). If you need the work's value in
    /// any case, use [`guard`](Self::guard).
    ///
    /// `Ok` means: the hold was believed until its release began, and no answer speaks against that. A release that was not answered, or was
    /// refused, is logged. The background asks on, and a loss that it finds is told to [`on_lost`](crate::ClientBuilder::on_lost) and to the log
    /// (docs/protocol.md, 6).
    fn execute_in_lock<T>(&self, resource: &str, work: impl FnOnce() -> T) -> Result<T> {
        acquired(self.request(resource).execute(|_| work())?, resource)
    }

    /// The same with a bounded wait and a lease; `None` when not acquired in time, and then the work did not run
    /// ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`execute_in_lock`](Self::execute_in_lock).
    #[must_use = "`None` means that the work did not run: write `if let Some(value) = ..`"]
    fn execute_in_lock_for<T>(
        &self,
        resource: &str,
        wait: Duration,
        lease: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Option<T>> {
        self.request(resource).wait(wait).lease(lease).execute(|_| work())
    }

    /// The same with hooks around the work.
    ///
    /// # Errors
    /// As [`execute_in_lock`](Self::execute_in_lock).
    fn run_in_lock<A: LockAction + ?Sized>(&self, resource: &str, action: &mut A) -> Result<A::Output> {
        acquired(self.request(resource).run(action)?, resource)
    }
}

impl<L: RedLock + ?Sized> RedLockExt for L {}
