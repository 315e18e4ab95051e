//! redlatch is a re-entrant distributed lock on Redis for Rust programs that use plain threads. It works like the
//! `RLock` of Redisson, a Java library. Rust programs with redlatch and Java programs with Redisson can share a lock: they wait for each
//! other.
//!
//! Calls block, and the library needs no async runtime. Your code needs only threads and types of `std`.
//!
//! ```no_run
//! use redlatch::{RedLock, RedLockExt, RedisRedLock};
//! use std::time::Duration;
//!
//! let locks = RedisRedLock::connect("redis://127.0.0.1/")?;    // one per program; clones are cheap
//!
//! locks.lock("order:42")?;                                     // by name, renewed until the unlock
//! locks.unlock("order:42")?;
//!
//! let guard = locks.guard("order:42")?;                        // a guard, whose drop unlocks
//! println!("held: {}", guard.is_valid());                      // no round trip
//! guard.unlock()?;                                             // returns the error that a drop only logs
//!
//! let total = locks.execute_in_lock("order:42", || 40 + 2)?;   // a closure, unlocked also in a panic
//!
//! let left = locks.request("order:42")                         // a request: with a wait and a lease
//!     .wait(Duration::from_millis(500))
//!     .lease(Duration::from_secs(10))
//!     .execute(|guard| guard.remaining())?;                    // None: not acquired in time
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! [`RedisRedLock`] is another name of [`ReentrantLock`]. [`RedLock`] is the trait that all kinds of locks share. Its name comes from an
//! older Java library on Jedis, which has an interface `RedLock`. The *Redlock algorithm* over several masters is [`QuorumLock`].
//!
//! # Kinds
//!
//! | kind | what it is |
//! | --- | --- |
//! | [`ReentrantLock`] | Redisson's `RLock`: one holder at a time, and the holder may lock again |
//! | [`FairLock`] | Redisson's `RFairLock`: it goes to the waiting threads in order of arrival |
//! | [`FencedLock`] | Redisson's `RFencedLock`: each hold has a token that is greater than all earlier tokens |
//! | [`ReadWriteLock`] | Redisson's `RReadWriteLock`: many readers at once, or one writer alone |
//! | [`QuorumLock`] | the Redlock algorithm over several independent masters |
//! | [`MultiLock`] | several locks of any kinds and servers, taken together as one lock |
//! | [`LeasedSemaphore`] | Redisson's `RPermitExpirableSemaphore`: at most N at once, and the permits of a dead process come back |
//! | [`Semaphore`] | Redisson's `RSemaphore`: a counter of permits that have no leases |
//! | [`CountDownLatch`] | Redisson's `RCountDownLatch`: it opens when N parties have counted it down |
//! | [`LocalRedLock`], [`LocalReadWriteLock`] | the same calls in memory, for unit tests and programs of one process |
//!
//! `ReentrantLock`, `FairLock`, `FencedLock`, `QuorumLock` and `LocalRedLock` implement [`RedLock`]. If a type `T` implements it, then
//! `&T`, `Box<T>` and `Arc<T>` implement it, too; `T` may be `dyn RedLock`. The read side and the write side of a read-write lock are
//! `RedLock`s, and so is each member of a [`MultiLock`]. The trait [`RedLockExt`] adds closures, guards and requests. Semaphores and latches
//! are no locks: they have calls of their own, and any thread may give [`Permits`] back. For tests they have a form in memory, such as
//! [`LeasedSemaphore::in_memory`].
//!
//! The URL for [`Client::builder`] says where the locks are: at one server, at the master of a group, or in a cluster. The rest of the
//! code stays the same.
//!
//! # Guarantees
//!
//! These guarantees hold while the server keeps its data, and while the speeds of all clocks differ by less than 1 %.
//!
//! * **One holder at a time.** Each acquire at the server has its own identity. So a delayed command, such as an old unlock, never
//!   releases a lock that was acquired after the command was sent.
//! * **The holder learns of a loss.** [`Hold::is_valid`] answers without a round trip. Its answer turns `false` before another
//!   holder can get the lock, unless somebody frees the lock by force. [`Hold::lost`] and
//!   [`ClientBuilder::on_lost`] report each loss once. After a loss, the thread must unlock before it can lock the same name again. Until then each acquire of that lock by that thread is an error. If
//!   another process calls [`force_unlock`](RedLock::force_unlock), the holder learns of it at its next renewal.
//! * **No call hangs.** A call with a wait ends at most 225 ms after that wait. If the server is unreachable, a call without a wait
//!   keeps trying for [`ClientBuilder::outage_budget`], and then returns an error. One thing has no time limit: the system's look-up of
//!   a host name.
//! * **Nothing is left behind** on the server when a wait ends or is cancelled. If a holder dies, the others wait until its lease ends, 30 s
//!   by default.
//! * **Waiters sleep until the message of an unlock wakes them.** A message can be lost. So each waiter also looks at the lock without a
//!   message. The longest time between two looks is [`ClientBuilder::poll_cap`].
//!
//! # Limits
//!
//! * **A server that loses its data frees its locks.** That happens in a restart without persistence, in an eviction, and in a failover to
//!   a replica that lags behind. The library tells the old holder, but another holder may have the lock by then.
//!   [`ClientBuilder::strict`] prevents a second holder after a restart, but it has costs. Together with
//!   [`ClientBuilder::sync_replicas`] for all replicas, it also prevents a second holder after a failover.
//! * **Paused code does not notice the pause.** A process that was stopped for longer than its lease continues as if it held the lock.
//!   Ask [`Hold::is_valid`] before each step that must not happen twice. If a late write must be impossible, use the token of a
//!   [`FencedLock`], or [`while_held`](ReentrantLock::while_held).
//! * **A release without an answer leaves a doubt.** `Ok` of an unlock or a closure means: the hold was believed until its release began, and no
//!   answer speaks against that. If a lock was freed by hand and the answer to its release is lost, too, nobody may learn of it:
//!   [`docs::errors`].
//! * **Fairness has limits.** Waiting threads and processes get the lock in order of arrival, with these exceptions:
//!   * A `try_lock` can take a free lock, even if other threads or processes wait.
//!   * A process may keep a lock for some milliseconds for its own threads: [`HandOff`].
//!   * A waiting process that is stopped when it is given the lock keeps it for 1.5 s, once, or for its lease if that is shorter.
//!   * Programs on Redisson do not queue. A [`QuorumLock`] has no queue.
//!
//!   A [`FairLock`] has a stricter order: each thread has a place of its own, also threads of Redisson, and no `try_lock` comes first.
//! * **A forked child has no locks.** Its operations return [`Error::Closed`]. A program can also make a child by a direct
//!   system call `fork` or `clone`, without the C library. redlatch does not notice such a child.
//!
//! # When not to use it
//!
//! * **In async tasks.** A hold belongs to its thread, and a thread that holds a lock may lock it again. So two tasks of one thread
//!   both get the lock:
//!
//!   ```
//!   # use redlatch::{LocalRedLock, RedLock};
//!   let locks = LocalRedLock::new();
//!   assert!(locks.try_lock("order:42")?);    // one task, which then awaits something
//!   assert!(locks.try_lock("order:42")?);    // another task of this thread gets it, too
//!   # locks.unlock("order:42").and_then(|()| locks.unlock("order:42"))?;
//!   # Ok::<(), redlatch::Error>(())
//!   ```
//!
//!   Lock, work and unlock in one call that may block, such as tokio's `spawn_blocking`: [async programs](docs::async_programs).
//! * **For a lock that spans requests or threads.** If another thread unlocks, it gets [`Error::NotHeld`]. Suppose that a user
//!   reserves a document to edit it. Store this reservation in a field of your data, with its owner and its end.
//! * **Where no lock is needed.** A unique constraint allows only one row of a kind. A conditional update fails if the row was changed since
//!   you read it. A queue with one consumer runs one job after the other. None of these three
//!   has a lease that can expire during the work.
//!
//! # More
//!
//! | to | read |
//! | --- | --- |
//! | choose a kind, also of a semaphore or a latch, or find cron and a rate limit | [`docs::kinds`] |
//! | see all calls and settings | [`docs::calls`] |
//! | connect to Sentinel, replicas, a cluster, TLS | [`docs::deployments`] |
//! | choose a lease, and see what a dead process leaves | [`docs::leases`] |
//! | handle errors and time-outs | [`docs::errors`], [`Error`] |
//! | test your own code | [`docs::testing`] |
//! | change from Redisson, Jedis, `rslock` or `redlock` to redlatch | [`docs::coming_from`] |
//! | understand a line of the log, or end an outage | [`docs::on_call`] |
//! | record metrics, and get alerts | [`docs::metrics`] |
//! | find threads that wait for each other | [`docs::calls`], [`ClientBuilder::on_deadlock`] |
//! | give a Redis user its permissions | [`docs::permissions`] |
//! | understand why the lock is safe | [`docs::protocol`], [`docs::faults`], [`docs::model`], [`docs::torture`] |
//! | work on redlatch itself | [`docs::architecture`] |
//!
//! # Logs
//!
//! The crate logs through [`log`]:
//!
//! | level | meaning |
//! | --- | --- |
//! | error | a background thread or a callback panicked or could not be started. The library may have given up holds as lost |
//! | warn | someone should look: a hold was lost, renewals fail, a master was replaced, a server refuses something. Each of these warnings is logged once for each lock or outage |
//! | info | the reason of an earlier warning is over; or the program made a client, and the line has its id |
//! | debug | nobody has to act: repeated attempts, late releases |
//!
//! [`docs::on_call`] explains each line. If a server is unreachable, calls return an [`Error`], and [`Client::stats`] shows the
//! [`outage`](Stats::outage). The log reports an outage only if no caller can get that error. An example is a renewal that fails.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
// What a feature gives is marked in the documentation, where the compiler can do that.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod base;
mod census;
mod client;
#[cfg(doc)]
pub mod docs;
pub mod inspect;
mod lease;
mod lock;
mod registry;
mod store;

pub use base::config::{HandOff, Reentry, ShardedPubsub};
pub use base::credentials::Credentials;
pub use base::error::{Applied, Cause, Error, Result};
pub use base::key::Naming;
pub use base::signal::CancelToken;
pub use base::stats::Stats;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use base::tls::Tls;
pub use base::value::Value;
pub use census::{Deadlock, Member};
pub use client::{Client, ClientBuilder};
pub use lease::hold::{Hold, HoldState, LostHold, LostReceiver};
pub use lease::tenure::LossCause;
pub use lock::{
    Command, FairLock, FencedLock, LocalReadWriteLock, LocalRedLock, QuorumLock, RedisRedLock, ReentrantLock,
};
pub use lock::{CountDownLatch, LeasedSemaphore, Permits, Semaphore};
pub use lock::{GroupGuard, GroupHold, GroupRequest, MultiLock};
pub use lock::{Guard, LockAction, LockGuard, OwnedGuard, RedLock, RedLockExt, Request, Terms};
pub use lock::{ReadLock, ReadWriteLock, WriteLock};

/// The README's example is compiled with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
