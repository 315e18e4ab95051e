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
//! | [`ReentrantLock`] = [`RedisRedLock`] | Redisson's `RLock` on one Redis server, on the master of a group, or in a cluster |
//! | [`FencedLock`] | Redisson's `RFencedLock`: the same with a token for each hold, greater than all before it |
//! | [`ReadWriteLock`] | Redisson's `RReadWriteLock`: readers together or a writer alone, each side a [`RedLock`] |
//! | [`QuorumLock`] | the Redlock algorithm over several independent masters |
//! | [`LocalRedLock`], [`LocalReadWriteLock`] | the same in memory, for unit tests and single-process use |
//! | [`MultiLock`] | several of them, of any kinds and servers, taken as one |
//!
//! Each is a [`RedLock`], also as `&T`, `Box<T>`, `Arc<T>` and `dyn RedLock`, but for two: of a read-write lock each side is one, and of a
//! [`MultiLock`] each member. Closures, guards and requests come from [`RedLockExt`]. Which of them is for what, and when none is:
//! `docs/kinds.md`.
//!
//! Where they are is said by the URL that [`Client::builder`] is given, and changes nothing else: a server, the sentinels
//! of a group, a master and its [`replicas`](ClientBuilder::replicas), or a cluster; masters and slots are followed.
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
//!   out an unreachable server for [`ClientBuilder::outage_budget`]. One thing cannot be bounded: the look-up of a
//!   host name, which is the system's.
//! * **Nothing is left behind** when a wait ends or is cancelled, and a holder that dies blocks others only until
//!   its lease ends.
//! * **Waiters are woken** by the unlock's message within a few round trips, and look by themselves at least
//!   every [`ClientBuilder::poll_cap`] in case a message is lost.
//!
//! # What it never promises
//!
//! * **Safety across a server that loses its data.** A restart without persistence, an eviction or a failover to a
//!   replica that had not heard of the lock frees it. The holder is told at its next renewal, at the latest after
//!   a third of the lease; where sentinels replace a master, as soon as one of them names the new one, and where it
//!   was found by its address, or is one of a cluster, within a second. Run locks on a server with
//!   `maxmemory-policy noeviction`.
//!   [`ClientBuilder::strict`] closes the gap of a restart for a price, and that of a failover only together with
//!   [`ClientBuilder::sync_replicas`] for all replicas, which says under which conditions.
//! * **That paused code notices.** A process that was stopped for longer than its lease goes on where it was: ask
//!   [`Hold::is_valid`] before each step that must not happen twice.
//! * **Strict fairness.** Threads of one process are served in order of arrival, but one that runs may take a lock
//!   again for half a millisecond. Processes that wait are served in order of arrival, too, but a try takes what is free,
//!   a process whose threads wait for a lock keeps it for some milliseconds at a time ([`HandOff`]), one that was stopped is
//!   passed over, and programs on Redisson stand in no queue. A [`QuorumLock`] has none: whoever asks first gets it.
//! * **Locks for the children of a fork.** Operations there return [`Error::Closed`]; a child that was made behind the
//!   C library's back, by the bare system call, is not noticed.
//!
//! # When not to use it
//!
//! * **In async tasks.** A hold belongs to its thread, and a thread that holds a lock may lock it again. So two
//!   tasks that one thread runs by turns both get it, which no lock for threads can tell from a re-entry:
//!
//!   ```
//!   # use redlatch::{LocalRedLock, RedLock};
//!   let locks = LocalRedLock::new();
//!   assert!(locks.try_lock("order:42")?);    // one task, which then awaits something
//!   assert!(locks.try_lock("order:42")?);    // another task of this thread: it is in, too
//!   # locks.unlock("order:42").and_then(|()| locks.unlock("order:42"))?;
//!   # Ok::<(), redlatch::Error>(())
//!   ```
//!
//!   A task that goes on at another thread cannot unlock there. The compiler sees some of it, for a [`LockGuard`]
//!   is not `Send`, but neither locks by name nor tasks that stay on their thread. Do the whole of it, lock, work
//!   and unlock, in one call that may block, such as tokio's `spawn_blocking`.
//! * **For a lock that spans requests or threads**: taken in one request, given up in a later one, or locked here
//!   and unlocked there. The other thread gets [`Error::NotHeld`]. What a user has "checked out" is a field of your
//!   data with an owner and an end, changed under a lock that is held for that change only.
//! * **Where only a token is safe.** A holder that was paused between [`Hold::is_valid`] and its write may write
//!   after the next one did. If that must not happen, the resource itself has to refuse it: it keeps the greatest
//!   token that it saw, and takes no write with a smaller one. A [`FencedLock`] hands out such tokens; a version
//!   that the resource checks in each write does the same. What lies beside the lock, in the same Redis, is written
//!   [while it is held](ReentrantLock::while_held) or not at all.
//! * **Where no lock is needed.** Work that may run twice without harm needs none. "Only one row of this kind" is a
//!   unique constraint, "nobody changed it since I read it" a conditional update, and "one after the other" a queue
//!   with one consumer: each holds where a lease can end.
//!
//! # Questions
//!
//! *Which lease should I choose?* None: then the watchdog renews the lock every third of 30 s while its thread
//! lives, and a crash frees it within 30 s. Give a lease to work that must end by itself. How soon others take over
//! with which lease, and which pauses it survives, was measured: `docs/leases.md`.
//!
//! *What does a process leave behind when it ends?* Whoever drops its guards, or the last clone of its [`Client`],
//! leaves nothing. `process::exit`, an abort, a signal, a client in a `static` and a detached thread that still
//! holds leave the lock until its lease ends, 30 s by default: `docs/leases.md` has them all.
//!
//! *How do I end on Ctrl-C?* Cancel a [`CancelToken`] that the workers' waits share, join the workers, then
//! [`Client::shutdown`]: the example `shutdown`. The example `leader` does it in a leader election.
//!
//! *May I unlock on another thread?* No. A hold belongs to its thread; a [`Hold`] may be asked from anywhere.
//!
//! *May I lock inside `catch_unwind`?* Yes: what is shared stays whole, and what a panic unwinds through is given back.
//! Only a `dyn RedLock` may be anybody's wrapper: write `dyn RedLock + RefUnwindSafe` for one that bears it.
//!
//! *Is the server there?* [`Client::ping`] asks it, within a time of yours, and so does [`QuorumLock::ping`].
//!
//! *What does a failover do?* Calls that meet it ask on at the new master, within their own time, and waiters are woken there.
//! Holds are asked for there at once: those that were replicated go on, the others are lost. Between the promotion and that, two
//! may hold a lock that was not replicated. Make [`ClientBuilder::outage_budget`] longer than sentinels need, which is their
//! `down-after-milliseconds` and some seconds. The example `sentinel` shows it.
//!
//! *What if the unlock fails?* The hold is over in any case. The key is released in the background where that
//! can be done, and ends with its lease otherwise.
//!
//! *How do I test code that locks?* Let it take `&dyn RedLock` and give it a [`LocalRedLock`], or the sides of a
//! [`LocalReadWriteLock`], which can be told what goes wrong.
//!
//! *Why does the first call take ten seconds to fail?* It rides out an outage, and a server that was never there
//! looks like one. `try_lock` tells of a wrong address after one response time-out, 2 s by default; a wrong
//! password shows at once. Or set a shorter [`ClientBuilder::outage_budget`].
//!
//! *How do I go on in an outage?* Call again: whatever [`Error::is_retryable`] says of may pass by itself. Such a loop
//! does not spin: a try or a timed wait asks until its time is over, and once the outage budget is spent any other call
//! fails after 100 ms at the earliest.
//!
//! ```no_run
//! # use redlatch::{Error, RedLock, RedLockExt, RedisRedLock};
//! # fn work(_: &impl RedLock) {}
//! # let locks = RedisRedLock::connect("redis://127.0.0.1/")?;
//! let guard = loop {
//!     match locks.guard("order:42") {
//!         Ok(guard) => break guard,
//!         Err(error) if error.is_retryable() => log::warn!("{error}"),
//!         Err(error) => return Err(error),
//!     }
//! };
//! # drop(guard);
//! # Ok::<(), Error>(())
//! ```
//!
//! *May what I write to the same Redis come too late?* Not by [`while_held`](ReentrantLock::while_held): it runs commands at the server if the
//! hold is still there, and none if it is not.
//!
//! *May a job run once a period?* A lock only keeps runs from overlapping. Keep a mark of the last run beside the
//! work, and look at it under the lock.
//!
//! *My work can fail.* Then there are two results: `locks.execute_in_lock(name, work)??`.
//!
//! *Which permissions does a Redis user need?* These, with a name, password and key prefix of your own; for each other kind,
//! deployment and feature `docs/permissions.md` has a line, and what is said without each rule:
//!
//! ```text
//! Redis 6.0:
//! ACL SETUSER app reset on >secret ~shop:* ~redlatch_queue:{shop:* ~redlatch_turn:{shop:* +eval +evalsha +time +hlen +pttl +hexists +hset +pexpire +del +publish +subscribe +unsubscribe +ping +select +get +set +exists +hkeys +zadd +zrank +zrange +zrem +zremrangebyrank +pubsub
//! Redis 6.2 and 7.0:
//! ACL SETUSER app reset on >secret ~shop:* ~redlatch_queue:{shop:* ~redlatch_turn:{shop:* resetchannels &redisson_lock__channel:* &redlatch_* +eval +evalsha +time +hlen +pttl +hexists +hset +pexpire +del +publish +subscribe +unsubscribe +ping +select +get +set +exists +hkeys +zadd +zrank +zrange +zrem +zremrangebyrank +pubsub
//! Redis 7.2 and later, Valkey:
//! ACL SETUSER app reset on >secret ~shop:* ~redlatch_queue:{shop:* ~redlatch_turn:{shop:* resetchannels &redisson_lock__channel:* &redlatch_* +eval +evalsha +time +hlen +pttl +hexists +hset +pexpire +del +publish +subscribe +unsubscribe +ping +select +get +set +exists +hkeys +zadd +zrank +zrange +zrem +zremrangebyrank +pubsub +client|setinfo
//! ```
//!
//! Redis 6.0 has no rules for channels, and up to 6.2 they do not count for what a script publishes. The last rule is
//! for the library's name in `CLIENT LIST`, nothing else. Without the channels locks work all the same, but waiters
//! poll. Without the keys and channels that begin with `redlatch_` and the commands from `+get` on, processes that wait
//! are served in no order, which is logged once; a name with braces of its own has its queue at `redlatch_queue:shop:..`,
//! without another pair, and its counter of tokens at `redisson_lock_token:shop:..`. A user who may `+hset` but neither `+pexpire` nor `+del` leaves a lock
//! that never ends. Nodes that sentinels keep or that were given as replicas want `+role`, too, or each connection is refused; an
//! [`app_name`](ClientBuilder::app_name) shows with `+client|setname`. Sentinels with users of their own:
//! `+sentinel|master +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master &+promoted-slave`.
//! In a cluster `+cluster|slots +cluster|nodes +cluster|info +asking`, and with [sharded pub/sub](ClientBuilder::sharded_pubsub) `+ssubscribe
//! +sunsubscribe +spublish`. With [`Naming::Jedis`] the channels are `&__red__lock:*`. A [`FencedLock`] needs
//! `~redisson_lock_token:{shop:* +get +set` in any case, a [`ReadWriteLock`] `~{shop:* ~redlatch_writer:{shop:* ~redlatch_readers:{shop:*
//! &redisson_rwlock:* +get +set +hget +hdel +hgetall +hkeys +zadd +zrem +zrevrange +zscore`. A [`strict`](ClientBuilder::strict) client
//! needs `+get +set +info` in any case, and [`sync_replicas`](ClientBuilder::sync_replicas) `+wait`. With `+info` a [`QuorumLock`] finds out
//! that two of its addresses are one server.
//!
//! # Logs
//!
//! Through the [`log`] crate:
//!
//! | level | meaning |
//! | --- | --- |
//! | error | a background thread or a callback panicked, or could not be started: holds may have been given up |
//! | warn | someone should look: a hold was lost or reached its [`max_hold`](ClientBuilder::max_hold), a thread ended while it held a lock, renewals fail, the master was replaced or is used no more, sentinels do not let the client listen, a node of a quorum is out of reach or lost a lock, the subscriber has no connection or is refused a channel, a publish or the queue is refused, a strict server grants nothing for a while, a release in a drop, after a closure or at shutdown failed, an inner level could not be given back on the server, a waiter met a key without TTL; once a lock or an outage each |
//! | info | what was warned of is over: renewals are confirmed again, a node or the subscriber is connected again |
//! | debug | what ends by itself: repeated attempts, late releases |
//!
//! An unreachable server is logged only where no caller can be told: calls return it as an [`Error`], and
//! [`Client::stats`] has it as [`outage`](Stats::outage).

// # Rooms: each knows only those above it, which a test watches
//
// | room | has |
// | --- | --- |
// | `base/` | errors, time, names, settings, threads, scripts, the zero-permit semaphore (`signal.rs`) |
// | `store/` | the `Store` that kinds talk to and the table of deployments; below it a node: the r2d2 pool (`node/`), and the subscriber's thread |
// | `lease/` | tenure and hold: belief; watchdog (the scheduled thread pool) and sweeper, which keep it true |
// | `registry/` | the process-wide `ThreadEntry` map: who of this process has a lock, and who waits |
// | `client/` | what a user makes, and what its locks share |
// | `lock/` | the trait `RedLock`, `execute_in_lock`, and what is the same for all kinds |
// | `lock/kinds/` | the kinds, a file each, which do not know each other |
//
// # Words, for those who work on it: one for each thing, and each for one thing
//
// | word | means |
// | --- | --- |
// | client, space | what a user makes; the namespace behind it, with its id, settings, counters and background threads |
// | kind, primitive, engine | a sort of lock; what one command of it does at a store; what is believed after each answer |
// | store, node, address | where keys are; one server of it; how the log names it |
// | group, generation | in `store`: a master with its replicas, and sentinels if it has them; the time for which a client takes one node for the master |
// | slot, place, guest | a part of a cluster's keys, which one master has; where a process is; a node that is asked for keys of a slot on its way there |
// | attempt, answer, failure | one command, sent once; what the server said; why it said nothing. *Unknown*: it may have been executed |
// | open attempt | one that was not answered and that the server may still execute, until its own deadline |
// | tenure, owner id | from the acquire that took the key to the release that freed it; its field in the lock's hash |
// | hold, level | one thread's possession, on a tenure that others may have had before; one acquire inside of another |
// | word | the one atomic number of a tenure that all belief rests on; `tenure.rs` has its table |
// | side, proof, time-out | readers or writer of one lock; the write hold of who asks to read, too; a key that keeps one read hold |
// | ground, open | where the map of threads has holds that are shared, or those that are not; who comes may share the tenure |
// | token, counter, mint | a number for one hold, greater than all before; where the last is kept; make the next |
// | command, word | what a caller has run while a lock is held; its name, a key or an argument. Of our own scripts it is a plain word |
// | lease, validity, deadline | what the server keeps; what its holder may believe of that; when that belief ends |
// | held, suspect, lost, ended | surely ours; a renewal failed; it ended under its holder; its holder ended it. `ending.rs` has the table |
// | renew, watch, cap | prolong a tenure; want that, by a level; how long one hold is renewed at most |
// | seat, kept, shared | who of this process has a lock; released, for the next thread of it; several threads have it. `seat.rs` has the table |
// | line, head, parked | who of this process waits; the one that contends at the store; the others, in order of arrival |
// | queue, ticket, rank | the processes that wait, in order of arrival, at the store; one wait in it; how many are before it |
// | ear, members | the channel on which a client alone is told; that on which ours are counted. *Foreigners* listen to a lock and are not among them |
// | mark, promise | says that a free lock is left to the head of the queue, or to foreigners, for some ms |
// | company, bystanders | others that may wait for a lock, as far as this client saw; who listens and never waits |
// | armed | of a ticket: it comes unasked, for those before it may not |
// | grant | in memory: give the first parked one the tenure. Of a server it is a plain word |
// | pass on, give way | hand a tenure to another thread in memory; let other processes ask first |
// | bid, call, stop | what a wait is for; who waits; what ends its wait |
// | hint, news, poll | a message that says: look again; whether one is to be expected; a look without one |
// | answer_by, begin_by, connect_by, execute_within | when an answer, a turn, a connection is not waited for any more; how long after its sending the server may execute an attempt |
// | patience, outage, budget | how long a call goes on asking; no answers from a store; how long that is borne |
// | sweep | free the key of a tenure that is over, in the background, until its last lease has ended |
// | audience | the other clients that were told of a release |
// | quarantine, epoch | strict mode grants nothing for one lease; the key that says which process of the server granted before |
// | round, ballot, tally | of a quorum: all nodes asked at once; one node's answer; what the answers add up to |
// | group, member | of a `MultiLock`: several locks taken as one; one of them |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod base;
mod client;
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
pub use base::tls::Tls;
pub use base::value::Value;
pub use client::{Client, ClientBuilder};
pub use lease::hold::{Hold, HoldState, LostHold, LostReceiver};
pub use lease::tenure::LossCause;
pub use lock::{Command, FencedLock, LocalReadWriteLock, LocalRedLock, QuorumLock, RedisRedLock, ReentrantLock};
pub use lock::{GroupGuard, GroupHold, GroupRequest, MultiLock};
pub use lock::{Guard, LockAction, LockGuard, OwnedGuard, RedLock, RedLockExt, Request, Terms};
pub use lock::{ReadLock, ReadWriteLock, WriteLock};

/// The README's example is compiled with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
