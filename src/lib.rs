//! A re-entrant distributed lock on Redis for plain-threaded Rust programs: what Redisson's `RLock` is to Java,
//! sharing its locks with it on the wire.
//!
//! [`RedLock`] is the trait of every lock here, named after the Jedis version's interface. The *Redlock
//! algorithm* over several masters is something else: that is [`QuorumLock`].
//!
//! It blocks, on purpose: a program of plain threads should not need an async runtime to take a lock. Threads
//! and `std` types are all it asks for.
//!
//! ```no_run
//! use redlatch::{RedLock, RedLockExt, RedisRedLock};
//! use std::time::Duration;
//!
//! let locks = RedisRedLock::connect("redis://127.0.0.1/")?;    // cheap to clone, one per program
//!
//! locks.lock("order:42")?;                                     // by name, renewed until the unlock
//! locks.unlock("order:42")?;
//!
//! let guard = locks.guard("order:42")?;                        // a guard, released when dropped
//! if guard.is_valid() { /* still surely mine: no round trip */ }
//! guard.unlock()?;                                             // says what a drop could only log
//!
//! let total = locks.execute_in_lock("order:42", || 40 + 2)?;   // a closure, released also in a panic
//!
//! let done = locks.request("order:42")                         // any of them with its terms spelled out
//!     .wait(Duration::from_millis(500))
//!     .lease(Duration::from_secs(10))
//!     .execute(|guard| guard.remaining())?;                    // None: not acquired in time
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! # Kinds
//!
//! | kind | what it is |
//! | --- | --- |
//! | [`ReentrantLock`] = [`RedisRedLock`] | Redisson's `RLock` on one Redis server |
//! | [`QuorumLock`] | the Redlock algorithm over several independent masters |
//! | [`LocalRedLock`] | the same in memory, for unit tests and single-process use |
//! | [`MultiLock`] | several of them, of any kinds and servers, taken as one |
//!
//! All but the last are a [`RedLock`], also as `&T`, `Box<T>`, `Arc<T>` and `dyn RedLock`; closures, guards and
//! requests come from [`RedLockExt`].
//!
//! # What it guarantees
//!
//! * **One holder at a time**, as long as the server keeps its data and clocks run at the same speed within
//!   1 %. Each acquire at the server has an identity of its own, so a command that arrives late can never free
//!   what was acquired later.
//! * **The holder learns of a loss**: [`Hold::is_valid`] answers without a round trip and is never true after
//!   another could hold the lock; [`Hold::lost`] and [`ClientBuilder::on_lost`] tell it once. A lost hold stays
//!   lost: locking again is an error until it is unlocked, and its guard never frees a later one.
//! * **No call hangs**: a call with a wait is over when the wait is, and at most 225 ms later; one without rides
//!   out an unreachable server for [`ClientBuilder::outage_budget`]. Two things cannot be bounded: the look-up of a
//!   host name, which is the system's, and an answer that trickles in, whose every piece gets the response
//!   time-out anew.
//! * **Nothing is left behind** when a wait ends or is cancelled, and a holder that dies blocks others only until
//!   its lease ends.
//! * **Waiters are woken** by the unlock's message within a few round trips, and look by themselves at least
//!   every [`ClientBuilder::poll_cap`] in case a message is lost.
//!
//! # What it never promises
//!
//! * **Safety across a server that loses its data.** A restart without persistence, an eviction or a failover to a
//!   replica that had not heard of the lock frees it. The holder is told at its next renewal, at the latest after
//!   a third of the lease. Run locks on a server with `maxmemory-policy noeviction`; [`ClientBuilder::strict`] closes
//!   the gap for a price.
//! * **That paused code notices.** A process that was stopped for longer than its lease goes on where it was: ask
//!   [`Hold::is_valid`] before each step that must not happen twice.
//! * **Strict fairness.** Threads of one process are served in order of arrival, but one that runs may take a lock
//!   again for half a millisecond. Between processes whoever asks first after an unlock gets it; a process whose
//!   threads wait for a lock keeps it for some milliseconds at a time, and then lets others ask first ([`HandOff`]).
//! * **Locks for the children of a fork.** Operations there return [`Error::Closed`]; a child that was made behind the
//!   C library's back, by the bare system call, is not noticed.
//!
//! # Questions
//!
//! *Which lease should I choose?* None: then the watchdog renews the lock every third of 30 s while its thread
//! lives, and a crash frees it within 30 s. Give a lease to work that must end by itself.
//!
//! *May I unlock on another thread?* No. A hold belongs to its thread; a [`Hold`] may be asked from anywhere.
//!
//! *What if the unlock fails?* The hold is over in any case. The key is released in the background where that
//! can be done, and ends with its lease otherwise.
//!
//! *How do I test code that locks?* Let it take `&dyn RedLock` and give it a [`LocalRedLock`].
//!
//! *Why does the first call take ten seconds to fail?* It rides out an outage, and a server that was never there
//! looks like one. `try_lock` tells of a wrong address after one response time-out, 2 s by default; a wrong
//! password shows at once. Or set a shorter [`ClientBuilder::outage_budget`].
//!
//! *May a job run once a period?* A lock only keeps runs from overlapping. Keep a mark of the last run beside the
//! work, and look at it under the lock.
//!
//! *My work can fail.* Then there are two results: `locks.execute_in_lock(name, work)??`.
//!
//! *Which permissions does a Redis user need?* `~<prefix>* &redisson_lock__channel:* +eval +evalsha +time +hlen +pttl
//! +hexists +hset +pexpire +del +publish +subscribe +unsubscribe +ping +select`, and `+client|setinfo` from Redis 7.2
//! on. Without the channels locks work all the same, but waiters poll. A user who may `+hset` but neither `+pexpire`
//! nor `+del` leaves a lock that never ends. With [`Naming::Jedis`] the channels are `&__red__lock:*`. A
//! [`strict`](ClientBuilder::strict) client needs `+get +set +info` too.
//!
//! # Logs
//!
//! Through the [`log`] crate:
//!
//! | level | meaning |
//! | --- | --- |
//! | error | a background thread or a callback panicked, or could not be started: holds may have been given up |
//! | warn | someone should look: a hold was lost or reached its [`max_hold`](ClientBuilder::max_hold), a thread ended while it held a lock, renewals fail, a node of a quorum is out of reach or lost a lock, the subscriber has no connection or is refused a channel, a publish is refused, a strict server grants nothing for a while, a release in a drop, after a closure or at shutdown failed, an inner level could not be given back on the server, a waiter met a key without TTL; once a lock or an outage each |
//! | info | what was warned of is over: renewals are confirmed again, a node or the subscriber is connected again |
//! | debug | what ends by itself: repeated attempts, late releases |
//!
//! An unreachable server is logged only where no caller can be told: calls return it as an [`Error`], and
//! [`Client::stats`] has it as [`outage`](Stats::outage).

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend;
mod client;
mod config;
mod error;
mod hold;
mod key;
mod lock;
mod mutant;
mod nodes;
mod owner;
mod pubsub;
mod registry;
mod script;
mod signal;
mod stats;
mod sweeper;
mod sync;
mod tenure;
mod time;
mod watchdog;

pub use client::{Client, ClientBuilder};
pub use config::{HandOff, Reentry};
pub use error::{Applied, Cause, Error, Result};
pub use hold::{Hold, HoldState, LostHold};
pub use key::Naming;
pub use lock::{GroupGuard, GroupHold, GroupRequest, MultiLock};
pub use lock::{LocalRedLock, QuorumLock, RedisRedLock, ReentrantLock};
pub use lock::{LockAction, LockGuard, OwnedGuard, RedLock, RedLockExt, Request, Terms};
pub use signal::CancelToken;
pub use stats::Stats;
pub use tenure::LossCause;

/// The README's example is compiled with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
