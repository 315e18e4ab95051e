//! The locks: the trait, its comfortable forms, and one file for each kind.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `mod.rs` | [`RedLock`], the trait of every kind, and [`RedLockExt`], the forms with closures and guards |
//! | `guard.rs` | [`LockGuard`], [`OwnedGuard`], [`Request`] and [`LockAction`] |
//! | `primitive.rs` | the contract of a kind: what one command does at its store |
//! | `patience.rs` | [`Terms`], and how long a call goes on asking |
//! | `engine.rs` | the accounting of acquire, re-entry and release |
//! | `keeping.rs` | what background threads do to what is held |
//! | `wait.rs` | the waiting loop |
//! | `reentrant.rs` | [`ReentrantLock`] on one Redis server |
//! | `keys.rs` | its commands, also those of a quorum's node |
//! | `quorum.rs` and `quorum/` | [`QuorumLock`], the Redlock algorithm over several Redis masters |
//! | `local.rs` | [`LocalRedLock`] in memory |
//! | `multi.rs` and `multi/` | [`MultiLock`], several of them taken as one |
//! | `batch.rs` | several locks of one store, taken and released by one command |
//!
//! A new kind is one file here with the same verbs in the same order: its commands as a `Primitive`, and the
//! public type that hands an `Engine` what it is asked. What its acquire brings back besides the time of sending
//! has to be added to `Take`. The registry knows locks by client and key, not by kind: a second kind on one client
//! has to refuse a key that the other holds. One that mints something for each hold must not be passed on in memory
//! (`Engine::pass_on`).
//!
//! Besides its file it touches: its scripts in `src/lua`, listed in `script.rs`; `mod` and `pub use` here, and the
//! table above; the re-exports and the table of kinds in `lib.rs` and the README; a line in `tests/it/conformance.rs`,
//! which fails until the kind is there; its rows in `docs/protocol.md`, `docs/coming-from.md` and
//! `tests/faults/rows.txt`; the changelog.

mod batch;
mod engine;
mod guard;
mod keeping;
mod keys;
mod local;
mod multi;
mod patience;
mod primitive;
mod quorum;
mod reentrant;
mod wait;

use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::registry::current_thread;
use crate::signal::CancelToken;
use batch::Batch;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

pub use guard::{LockAction, LockGuard, OwnedGuard, Request};
pub use local::LocalRedLock;
pub use multi::{GroupGuard, GroupHold, GroupRequest, MultiLock};
pub use patience::Terms;
pub use quorum::QuorumLock;
pub use reentrant::{RedisRedLock, ReentrantLock};

/// A blocking lock on resources that are known by name: 1 to 1,024 bytes, any characters.
///
/// Object-safe, and implemented for `&T`, `Box<T>` and `Arc<T>` too. It can be wrapped but not written from
/// scratch: a [`Hold`] cannot be made outside of this crate. A wrapper changes behaviour in
/// [`acquire`](Self::acquire) and [`release`](Self::release), on which all other forms rest.
///
/// A thread that holds a resource may lock it again; it is free after as many unlocks. A hold without a lease
/// of its own is renewed by a watchdog until it is unlocked. All leases are 10 ms to 365 days; zero as a wait
/// tries once, [`Duration::MAX`] waits for ever.
///
/// # Errors
/// Every method that returns a [`Result`] may fail with [`Error::Config`] (a name or lease out of range),
/// [`Error::Unavailable`], [`Error::OutcomeUnknown`], [`Error::Refused`] or [`Error::Closed`]; what else a
/// method returns is said there. Contention is not an error.
pub trait RedLock: Send + Sync {
    /// Acquires a resource on the given terms; `None` when the wait ended without it.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Lost`] when the current thread lost the resource and has not unlocked
    /// it since.
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>>;

    /// Gives up one level of this very hold, never of a later one under the same name. Only of a hold that these
    /// locks, or others of the same client, acquired: of another it is [`Error::Config`].
    ///
    /// # Errors
    /// [`Error::NotHeld`] from another thread or after the last level; [`Error::Lost`] when it had been lost.
    /// After the outermost level the hold is over, whatever this returns.
    fn release(&self, hold: &Hold) -> Result<()>;

    /// Asks the server whether this hold is still there, for at most one response time-out. False is for good: the
    /// hold is then lost or released.
    ///
    /// # Errors
    /// As of the trait; the hold stays as it was.
    fn verify(&self, hold: &Hold) -> Result<bool>;

    /// The hold of a thread of this process, as this process sees it: no round trip. Also a lost one that was
    /// not unlocked yet.
    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold>;

    /// Frees the resource whoever holds it; true if it was locked. A holder in this process knows at once, one
    /// in another process at its next renewal.
    ///
    /// # Errors
    /// As of the trait.
    fn force_unlock(&self, resource: &str) -> Result<bool>;

    /// Whether anyone holds the resource, asked of the server.
    ///
    /// # Errors
    /// As of the trait.
    fn is_locked(&self, resource: &str) -> Result<bool>;

    /// How long the server keeps the lock without news of its holder: `None` when it is free,
    /// [`Duration::MAX`] for a key without TTL (which something else made, or an administrator persisted).
    ///
    /// # Errors
    /// As of the trait.
    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>>;

    /// Waits for the resource as long as it takes; the watchdog renews it until [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock(&self, resource: &str) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new())?, resource)
    }

    /// Waits as long as it takes, for a lease that is not renewed.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock_with_lease(&self, resource: &str, lease: Duration) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new().lease(lease))?, resource)
    }

    /// Waits until the resource is acquired or the token is cancelled (Java's `lockInterruptibly`).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock_cancellable(&self, resource: &str, token: &CancelToken) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new().cancelled_by(token))?, resource)
    }

    /// Takes the resource if it is free. It waits for the server's answer, at most one response time-out; a
    /// resource that another thread of this process surely holds is busy without a round trip.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn try_lock(&self, resource: &str) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(Duration::ZERO))?.is_some())
    }

    /// Waits at most so long.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn try_lock_for(&self, resource: &str, wait: Duration) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(wait))?.is_some())
    }

    /// Waits at most `wait`, for a lease that is not renewed.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn try_lock_for_with_lease(&self, resource: &str, wait: Duration, lease: Duration) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(wait).lease(lease))?.is_some())
    }

    /// Gives up one level of the current thread's hold.
    ///
    /// # Errors
    /// [`Error::NotHeld`] when it holds none; otherwise as [`release`](Self::release).
    fn unlock(&self, resource: &str) -> Result<()> {
        match self.hold(resource) {
            Some(hold) => self.release(&hold),
            None => Err(Error::not_held(resource)),
        }
    }

    /// What a [`MultiLock`] has to know of its members, where the locks can say it. A wrapper does not pass it on,
    /// so that its `acquire` and `release` are called.
    #[doc(hidden)]
    fn batch(&self) -> Option<Batch<'_>> {
        None
    }

    /// The current thread's hold, also a lost one that was not unlocked yet.
    fn hold(&self, resource: &str) -> Option<Hold> {
        self.hold_of(resource, current_thread())
    }

    /// How many unlocks the current thread owes, also of a hold that was lost.
    fn hold_count(&self, resource: &str) -> usize {
        self.hold(resource).map_or(0, |hold| hold.count())
    }

    /// Whether the current thread still surely holds the resource.
    fn is_held_by_current_thread(&self, resource: &str) -> bool {
        self.is_held_by_thread(resource, current_thread())
    }

    /// Whether that thread of this process still surely holds the resource.
    fn is_held_by_thread(&self, resource: &str, thread: ThreadId) -> bool {
        self.hold_of(resource, thread).is_some_and(|hold| hold.is_valid())
    }
}

/// Without a deadline there is no `None`, but a wrapper may have brought its own.
fn acquired(hold: Option<Hold>, resource: &str) -> Result<()> {
    hold.map(drop).ok_or_else(|| Error::cancelled(resource))
}

macro_rules! forward_red_lock {
    ($($pointer:ty),*) => {$(
        impl<L: RedLock + ?Sized> RedLock for $pointer {
            fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
                (**self).acquire(resource, terms)
            }

            fn release(&self, hold: &Hold) -> Result<()> {
                (**self).release(hold)
            }

            fn verify(&self, hold: &Hold) -> Result<bool> {
                (**self).verify(hold)
            }

            fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
                (**self).hold_of(resource, thread)
            }

            fn force_unlock(&self, resource: &str) -> Result<bool> {
                (**self).force_unlock(resource)
            }

            fn is_locked(&self, resource: &str) -> Result<bool> {
                (**self).is_locked(resource)
            }

            fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
                (**self).remaining_time_to_live(resource)
            }

            fn unlock(&self, resource: &str) -> Result<()> {
                (**self).unlock(resource)
            }

            fn batch(&self) -> Option<Batch<'_>> {
                (**self).batch()
            }
        }
    )*};
}

forward_red_lock!(&L, Box<L>, Arc<L>);

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
        self.request(resource).guard()?.ok_or_else(|| Error::cancelled(resource))
    }

    /// A guard if the resource is free.
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    fn try_guard(&self, resource: &str) -> Result<Option<LockGuard<'_, Self>>> {
        self.request(resource).wait(Duration::ZERO).guard()
    }

    /// A guard that owns its share of the lock, for structs that keep both. It needs the lock in an `Arc`; for a
    /// bounded wait or a lease use [`OwnedGuard::acquire`].
    ///
    /// ```
    /// use redlatch::{LocalRedLock, OwnedGuard, RedLockExt};
    /// use std::sync::Arc;
    ///
    /// let locks = Arc::new(LocalRedLock::new());
    /// let guard: OwnedGuard<LocalRedLock> = locks.owned_guard("order:42")?;
    /// drop(locks);
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::acquire`].
    fn owned_guard(self: &Arc<Self>, resource: &str) -> Result<OwnedGuard<Self>> {
        OwnedGuard::acquire(self, resource, &Terms::new())?.ok_or_else(|| Error::cancelled(resource))
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
    /// As [`RedLock::acquire`], then without having run the work; and after it [`Error::Lost`] when the hold
    /// was lost meanwhile, because the work may not have been alone. A release that failed on the wire is only
    /// logged. Whoever needs the work's value in any case uses [`guard`](Self::guard).
    fn execute_in_lock<T>(&self, resource: &str, work: impl FnOnce() -> T) -> Result<T> {
        self.request(resource).execute(|_| work())?.ok_or_else(|| Error::cancelled(resource))
    }

    /// The same with a bounded wait and a lease; `None` when not acquired in time.
    ///
    /// # Errors
    /// As [`execute_in_lock`](Self::execute_in_lock).
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
        self.request(resource).run(action)?.ok_or_else(|| Error::cancelled(resource))
    }
}

impl<L: RedLock + ?Sized> RedLockExt for L {}
