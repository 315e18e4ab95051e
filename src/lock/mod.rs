//! The locks: the trait, its comfortable forms, what is the same for all kinds, and a file for each kind.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `mod.rs` | [`RedLock`], the trait of every kind |
//! | `forms.rs` | [`RedLockExt`], the forms with closures and guards |
//! | `guard.rs` | [`Guard`], which is [`LockGuard`] and [`OwnedGuard`], [`Request`] and [`LockAction`] |
//! | `forward.rs` | the verbs of what asks another: a kind its engine, a pointer what it points to |
//! | `patience.rs` | [`Terms`], and how long a call goes on asking |
//! | `acquire.rs` | how a thread acquires a lock: in the line of its process, then with a bid for a tenure |
//! | `waiting.rs` and `waiting/` | how a call waits for what is taken, whatever that is |
//! | `engine.rs` | the accounting of acquire and re-entry |
//! | `ending.rs` | how a hold is given up, and how its tenure ends: a table |
//! | `keeping.rs` | what background threads do to what is held |
//! | `primitive.rs` | the contract of a kind: what one command does at its store |
//! | `keys.rs` and `keys/` | the primitive of locks that are keys of a store, also of a quorum's node; its scripts |
//! | `kinds/reentrant.rs` | [`ReentrantLock`] at one store |
//! | `kinds/fair.rs` and `kinds/fair/` | [`FairLock`], which goes to waiting threads in order of arrival |
//! | `kinds/fenced.rs` and `kinds/fenced/` | [`FencedLock`], the same with a token for each hold |
//! | `kinds/read_write.rs` and `kinds/read_write/` | [`ReadWriteLock`], readers together or a writer alone |
//! | `kinds/quorum.rs` and `kinds/quorum/` | [`QuorumLock`], the Redlock algorithm over several stores |
//! | `permits.rs` and `permits/` | how a call waits for permits of a semaphore, and [`Permits`], the guard |
//! | `operation.rs` | what changes a counter once, however often its command is executed |
//! | `kinds/semaphore.rs` and `kinds/semaphore/` | [`Semaphore`], a counter of permits |
//! | `kinds/leased.rs` and `kinds/leased/` | [`LeasedSemaphore`], whose permits have leases |
//! | `kinds/latch.rs` and `kinds/latch/` | [`CountDownLatch`], for which one waits until many have counted it down |
//! | `kinds/local.rs` and `kinds/local/` | [`LocalRedLock`] and [`LocalReadWriteLock`] in memory, and what their calls are told to meet |
//! | `multi.rs` and `multi/` | [`MultiLock`], several of any kinds taken as one |
//! | `while_held.rs` and `command.rs` | commands of a caller's that are run only while a lock is held |
//! | `batch.rs` | several locks of one store, taken and released by one command |
//!
//! A call goes down once and comes back: a verb of the trait (`forward.rs`), the line and the bid (`acquire.rs`), the belief
//! (`engine.rs`, `ending.rs`), one attempt after the other (`patience.rs`), the commands of the kind (`keys.rs`), and from
//! there to the [store](crate::store).
//!
//! # A new kind
//! It is one file in `kinds/`, which knows no other kind:
//!
//! * A `Kind`: what it is to the parts that all kinds share.
//! * Its commands as a `Primitive`. A kind whose locks are keys as those of [`keys`] hands on to `Keys` what it does not do by itself.
//!   Its acquire goes by `Keys::acquire` with a script of its own, and `Keys::took` reads what that says. Its `sweep_all` frees many locks
//!   by one command, or a shutdown frees one lock a round trip: it may be that of `Keys` only if its release does what the script of
//!   groups does. Its `group` is `None` if its acquire does anything that the script of groups does not do. What an acquire
//!   brings back besides the time of sending is noted at the tenure (`lease/tenure/notes.rs`).
//! * Its scripts, declared there (`scripts!`), in a folder of its name beside it. Tests find them. An acquire is one Lua file: its
//!   `ARGV[1]` to `[3]` are deadline, lease and owner. It answers an integer if it grants nothing, else nil or text. What goes around a
//!   script is declared with it: `queued: IN_TURN` around an acquire that may wait among processes, `strict: QUARANTINE` around what
//!   grants, `strict: SERVING` around what prolongs.
//! * A key beside the lock is named by `Key::ours`. If the kind promises something by it, the key goes into KEYS. While the slot is half
//!   moved, it can happen that no node of a cluster has both keys (`Failure::is_apart`). Then the kind acts in parts, as `fenced.rs`
//!   and `reads.rs` do. An acquire first writes what means nothing without the lock. A release first takes away what lies beside the lock,
//!   by a script with a deadline, while the lock is still held.
//! * If the key is only advice, its name is an `Arg::Beside`: the script does without it where that is empty. A script touches such a key
//!   inside `pcall`, or before its first write. At a half moved slot the server raises an error in the middle of the script, and the command
//!   is sent again.
//! * The public type, which asks its client for the engine of its kind (`Client::of_kind`) and has it answer the verbs by
//!   one line (`answered_by!`). A kind that adds to the answers writes its verbs out, as `local.rs` does.
//!
//! A kind whose store keeps an order of all waiting threads sets `in_line` to false in its `Kind`: each thread of a process contends with
//! a bid of its own, as those of `fair.rs`. Its acquire has a wrapper of its own in place of `IN_TURN`.
//!
//! What its scripts do to keys besides what those of each lock do goes into its `Kind` (`touches`): a handshake asks whether the user
//! may. Where else a kind is named is found by `tests/it/tidy/named.rs`, which says in one line each what is missing. What those lines do
//! not see: its rules in `docs/protocol.md`, its rows in `tests/faults/rows.txt` and `tests/permissions/rows.rs`, its place in `tests/torture` or
//! `tests/model` with mutants, and, if it leaves a key on a server by design, a word in `tests/harness/server.rs`.
//!
//! Whether a test of waiting threads can fail depends on how long locks are passed on in memory: `HandOff` sets that.

mod acquire;
mod batch;
mod command;
mod ending;
mod engine;
mod forms;
mod forward;
mod guard;
mod keeping;
mod keys;
mod kinds;
mod multi;
mod operation;
mod patience;
mod permits;
mod primitive;
mod waiting;
mod while_held;

use crate::base::error::{Error, Result};
use crate::base::signal::CancelToken;
use crate::lease::hold::Hold;
use crate::registry::current_thread;
use engine::Engine;
use std::thread::ThreadId;
use std::time::Duration;

pub use command::Command;
pub use forms::RedLockExt;
pub use guard::{Guard, LockAction, LockGuard, OwnedGuard, Request};
pub use kinds::fair::FairLock;
pub use kinds::fenced::FencedLock;
pub use kinds::latch::CountDownLatch;
pub use kinds::leased::LeasedSemaphore;
pub use kinds::local::{LocalReadWriteLock, LocalRedLock};
pub use kinds::quorum::QuorumLock;
pub use kinds::read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use kinds::reentrant::{RedisRedLock, ReentrantLock};
pub use kinds::semaphore::Semaphore;
pub use multi::{GroupGuard, GroupHold, GroupRequest, MultiLock};
pub use patience::Terms;
pub use permits::Permits;

/// A blocking lock on resources that are known by name. A name has 1 to 1,024 bytes, any characters. It may not end
/// with `redlatch:epoch`, which [strict](crate::ClientBuilder::strict) clients need.
///
/// Object-safe, and implemented for `&T`, `Box<T>` and `Arc<T>` too.
///
/// A thread that holds a resource may lock it again; the resource is free after as many unlocks. A watchdog renews a
/// hold without a lease of its own until it is unlocked. All leases are 10 ms to 365 days. A wait of zero tries once;
/// [`Duration::MAX`] waits for ever.
///
/// # Wrappers
/// A type may wrap these locks, but not replace them: nobody outside of this crate can make a [`Hold`]. A wrapper
/// changes [`acquire`](Self::acquire) and [`release`](Self::release), on which all other forms rest. It makes errors of
/// its own by [`Error::unavailable`] and its like:
///
/// ```
/// use redlatch::{Error, Hold, LocalRedLock, RedLock, RedLockExt, Result, Terms};
/// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
/// use std::{thread::ThreadId, time::Duration};
///
/// /// Takes no lock while it is open.
/// struct Breaker<L> {
///     locks: L,
///     open: AtomicBool,
/// }
///
/// impl<L: RedLock> RedLock for Breaker<L> {
///     fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
///         if self.open.load(SeqCst) {
///             return Err(Error::unavailable(resource, "the breaker is open"));
///         }
///         self.locks.acquire(resource, terms)
///     }
///
///     fn release(&self, hold: &Hold) -> Result<()> {
///         self.locks.release(hold)
///     }
///
///     fn verify(&self, hold: &Hold) -> Result<bool> {
///         self.locks.verify(hold)
///     }
///
///     fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
///         self.locks.hold_of(resource, thread)
///     }
///
///     fn force_unlock(&self, resource: &str) -> Result<bool> {
///         self.locks.force_unlock(resource)
///     }
///
///     fn is_locked(&self, resource: &str) -> Result<bool> {
///         self.locks.is_locked(resource)
///     }
///
///     fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
///         self.locks.remaining_time_to_live(resource)
///     }
/// }
///
/// let locks = Breaker { locks: LocalRedLock::new(), open: AtomicBool::new(false) };
/// assert_eq!(locks.execute_in_lock("order:42", || 40 + 2)?, 42);
/// locks.open.store(true, SeqCst);
/// assert!(matches!(locks.guard("order:42"), Err(Error::Unavailable { .. })));
/// # Ok::<(), Error>(())
/// ```
///
/// # Answers that are easily lost
/// The compiler warns if nobody looks at a [`Result`], a guard or a request. It does not warn of what a `?` leaves of
/// an answer: after `locks.try_lock(name)?;` the program goes on with or without the lock. So test the answer:
///
/// ```
/// use redlatch::{LocalRedLock, RedLock, RedLockExt};
///
/// let locks = LocalRedLock::new();
/// if locks.try_lock("order:42")? {
///     locks.unlock("order:42")?;
/// }
/// let Some(guard) = locks.try_guard("order:42")? else { return Ok(()) };
/// guard.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// `let _ = locks.guard(name)?;` keeps no guard, so it releases at once: write `let _guard`. The lints `unused_results`
/// and `let_underscore_drop` of rustc, which are off by default, find both mistakes.
///
/// # Errors
/// Every method that returns a [`Result`] may fail with [`Error::Config`] (a name or lease out of range),
/// [`Error::Unavailable`], [`Error::OutcomeUnknown`], [`Error::Refused`] or [`Error::Closed`]. A method with other
/// errors names them. Contention is not an error.
pub trait RedLock: Send + Sync {
    /// Acquires a resource on the given terms; `None` when the wait ended without it.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Lost`] when the current thread lost the resource and has not unlocked
    /// it since.
    #[must_use = "`None` means that the lock is not held: write `let Some(hold) = .. else {`"]
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>>;

    /// Gives up one level of this very hold, never of a later one under the same name. The hold must come from these
    /// locks, or from others of the same client; else this is [`Error::Config`].
    ///
    /// The level is the one that this hold was acquired with, whatever was acquired after it: the lock is renewed while
    /// a level that asked for it is open. A hold from [`hold`](Self::hold) gives up the innermost level.
    ///
    /// The last level asks until the server has answered, until its lock is surely over, or for one outage budget. `Ok` means: the hold was
    /// believed until the call began, and no answer speaks against that.
    ///
    /// # Errors
    /// [`Error::NotHeld`] from another thread or after the last level; [`Error::Lost`] if the hold was lost before.
    /// After the outermost level the hold is over, whatever this returns. If the server did not answer, or refused, the background asks on, and
    /// may [report a loss](Hold::lost) later.
    fn release(&self, hold: &Hold) -> Result<()>;

    /// Asks the server whether this hold is still there, for at most one response time-out. `false` is final: the hold
    /// is lost or released.
    ///
    /// # Errors
    /// As of the trait; the hold stays as it was.
    fn verify(&self, hold: &Hold) -> Result<bool>;

    /// The hold of a thread of this process, as this process sees it, without a round trip. A lost hold counts until it
    /// is unlocked.
    #[must_use]
    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold>;

    /// Frees the resource whoever holds it; true if it was locked. A holder in this process knows at once, a holder in
    /// another process at its next renewal.
    ///
    /// This call does not take the lock over: a waiter may get it before the caller's own [`lock`](Self::lock). One
    /// command for both would not help, because the former holder may still be at work. So end its process, or let the
    /// protected data refuse it by the token of a [`FencedLock`].
    ///
    /// # Errors
    /// As of the trait.
    fn force_unlock(&self, resource: &str) -> Result<bool>;

    /// Whether anyone holds the resource, asked of the server.
    ///
    /// # Errors
    /// As of the trait.
    fn is_locked(&self, resource: &str) -> Result<bool>;

    /// How long the server keeps the lock if its holder does nothing: `None` if it is free, [`Duration::MAX`] for a key
    /// without TTL (another program made it, or an administrator persisted it).
    ///
    /// # Errors
    /// As of the trait.
    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>>;

    /// Waits for the resource as long as it takes; the watchdog renews it until [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock(&self, resource: &str) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new())?, resource).map(drop)
    }

    /// Waits as long as it takes, for a lease that is not renewed. [Unlock](Terms::lease) it also when the lease is over.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock_with_lease(&self, resource: &str, lease: Duration) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new().lease(lease))?, resource).map(drop)
    }

    /// Waits until the resource is acquired or the token is cancelled (Java's `lockInterruptibly`).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    fn lock_cancellable(&self, resource: &str, token: &CancelToken) -> Result<()> {
        acquired(self.acquire(resource, &Terms::new().cancelled_by(token))?, resource).map(drop)
    }

    /// Takes the resource if it is free. The call waits for the server's answer, at most one response time-out. A
    /// resource that another thread of this process surely holds is busy without a round trip.
    ///
    /// `false`: the resource is busy, and not held here ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the lock is not held: write `if locks.try_lock(..)? {`"]
    fn try_lock(&self, resource: &str) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(Duration::ZERO))?.is_some())
    }

    /// [`try_lock`](Self::try_lock) for a lease that is not renewed: takes the resource if it is free. The hold ends with
    /// its lease. The form with a guard is [`request`](RedLockExt::request)`(..).wait(Duration::ZERO).lease(..).guard()`.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let minute = Duration::from_secs(60);
    /// if locks.try_lock_with_lease("order:42", minute)? {
    ///     assert!(locks.remaining_time_to_live("order:42")?.is_some_and(|left| left <= minute));
    ///     locks.unlock("order:42")?;
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// `false`: the resource is busy, and not held here ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the lock is not held: write `if locks.try_lock_with_lease(..)? {`"]
    fn try_lock_with_lease(&self, resource: &str, lease: Duration) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(Duration::ZERO).lease(lease))?.is_some())
    }

    /// Waits at most `wait`. `false`: the wait [ended without the lock](Terms#when-the-time-is-over), which is not held here
    /// ([easily lost](RedLock#answers-that-are-easily-lost)).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the lock is not held: write `if locks.try_lock_for(..)? {`"]
    fn try_lock_for(&self, resource: &str, wait: Duration) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(wait))?.is_some())
    }

    /// Waits at most `wait`, for a lease that is not renewed. `false`: the wait [ended without the
    /// lock](Terms#when-the-time-is-over), which is not held here ([easily lost](RedLock#answers-that-are-easily-lost)).
    /// [Unlock](Terms::lease) it also when the lease is over.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the lock is not held: write `if locks.try_lock_for_with_lease(..)? {`"]
    fn try_lock_for_with_lease(&self, resource: &str, wait: Duration, lease: Duration) -> Result<bool> {
        Ok(self.acquire(resource, &Terms::new().wait(wait).lease(lease))?.is_some())
    }

    /// Gives up the innermost level of the current thread's hold.
    ///
    /// # Errors
    /// [`Error::NotHeld`] when it holds none; otherwise as [`release`](Self::release).
    fn unlock(&self, resource: &str) -> Result<()> {
        match self.hold(resource) {
            Some(hold) => self.release(&hold),
            None => Err(Error::not_held(resource)),
        }
    }

    /// The engine by which a [`MultiLock`] takes several members at once, if these locks have one. A wrapper has none, so
    /// the group calls its `acquire` and `release`. Nobody outside of this crate can call this.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn engine(&self) -> Option<&Engine> {
        None
    }

    /// The current thread's hold. A lost hold counts until it is unlocked.
    #[must_use]
    fn hold(&self, resource: &str) -> Option<Hold> {
        self.hold_of(resource, current_thread())
    }

    /// How many unlocks the current thread owes, also of a hold that was lost.
    #[must_use]
    fn hold_count(&self, resource: &str) -> usize {
        self.hold(resource).map_or(0, |hold| hold.count())
    }

    /// Whether the current thread still surely holds the resource.
    #[must_use]
    fn is_held_by_current_thread(&self, resource: &str) -> bool {
        self.is_held_by_thread(resource, current_thread())
    }

    /// Whether that thread of this process still surely holds the resource.
    #[must_use]
    fn is_held_by_thread(&self, resource: &str, thread: ThreadId) -> bool {
        self.hold_of(resource, thread).is_some_and(|hold| hold.is_valid())
    }
}

/// Without a deadline an acquire never answers `None`, but a wrapper may have a deadline of its own.
fn acquired<T>(answer: Option<T>, resource: &str) -> Result<T> {
    answer.ok_or_else(|| Error::cancelled(resource))
}
