//! The settings of a client, as its user gives them.

use super::events::Listeners;
use super::{Client, Handle, Space};
use crate::base::config::{AddressMap, HandOff, Reentry, Settings, ShardedPubsub, SyncReplicas};
use crate::base::credentials::{Credentials, Source};
use crate::base::error::{Error, Result};
use crate::base::key::Naming;
use crate::base::say::say;
#[cfg(feature = "tls")]
use crate::base::tls::Tls;
use crate::base::unwind::survives_a_panic;
use crate::census::Deadlock;
use crate::lease::hold::LostHold;
use crate::store;
use parking_lot::Mutex;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a [`Client`], or of another type with servers. `build` checks them together.
#[must_use]
pub struct ClientBuilder<T = Client> {
    pub(crate) urls: Vec<String>,
    /// The other nodes beside the client's URL.
    replicas: Option<Vec<String>>,
    pub(crate) settings: Settings,
    pub(crate) listeners: Listeners,
    makes: PhantomData<fn() -> T>,
}

survives_a_panic!(ClientBuilder<T>, of T);

impl<T> ClientBuilder<T> {
    pub(crate) fn for_servers(urls: Vec<String>) -> Self {
        Self {
            urls,
            replicas: None,
            settings: Settings::default(),
            listeners: Listeners::default(),
            makes: PhantomData,
        }
    }

    /// Reads from the schemes whether all URLs ask for TLS, and replaces them by the schemes of the same servers without TLS.
    ///
    /// # Errors
    /// `Config` when some ask for TLS and others do not.
    pub(crate) fn read_schemes(&mut self) -> Result<()> {
        let mut all: Vec<_> = self.urls.iter_mut().chain(self.replicas.iter_mut().flatten()).collect();
        let sealed = all.iter().filter(|url| store::is_sealed(url)).count();
        if sealed > 0 && sealed < all.len() {
            return Err(Error::config(
                "some of the servers' URLs ask for TLS and some do not: give all rediss://, or none",
            ));
        }
        if self.settings.credentials.is_some() && all.iter().any(|url| names_user(url)) {
            return Err(Error::config(
                "credentials are given by a callback and in a server's URL: leave one of them out",
            ));
        }
        all.iter_mut().for_each(|url| **url = store::unsealed(url));
        self.settings.tls.is_sealed = sealed > 0;
        self.settings.in_cluster = self.urls.iter().any(|url| store::is_cluster(url));
        Ok(())
    }

    /// Whether the first connection to each server tests the user's permissions for all that locks need. The test is part of the
    /// handshake's round trip and writes nothing. Default: on. Missing permissions are logged once, as the words for `ACL SETUSER` that
    /// grant them, and each refused call tells them. The test uses a lock with the [key prefix](Self::key_prefix) and a name that no other
    /// client has. If the user's rules allow names rather than a prefix, and the client has no prefix, switch the test off.
    pub fn self_test(mut self, on: bool) -> Self {
        self.settings.skips_self_test = !on;
        self
    }

    /// The client asks this callback for user and password, or a token in place of the password, for each new connection. The URL has none
    /// then. So credentials may change, or expire, while the client runs. An open connection stays logged in.
    ///
    /// While the server refuses the callback's credentials (`WRONGPASS`, `NOAUTH`), calls repeat the login:
    ///
    /// | call | for how long |
    /// | --- | --- |
    /// | with a wait of its own | until that is over |
    /// | a try, [`verify`](crate::RedLock::verify) | one [`response_timeout`](Self::response_timeout) |
    /// | an outermost unlock | [`outage_budget`](Self::outage_budget), until the lease ends at most |
    /// | every other | `outage_budget`, from the first refusal that the client met |
    /// | [`Client::ping`], [`Client::shutdown`], a guard that is dropped | not at all |
    ///
    /// Then the call returns [`Refused`](Error::Refused), which [is retryable](Error::is_retryable). So the callback may learn a new
    /// password some seconds after the server, and no call fails. Renewals go on until the lease ends. Each refusal doubles a pause from 20
    /// to 500 ms; after it one thread of the client logs in at that server. A deleted or disabled user is refused in the same way. A wrong
    /// password in the URL is different: the call ends at once.
    ///
    /// If the callback fails, its error becomes [`Unavailable`](Error::Unavailable), and the client asks it again as it does a server that
    /// is out of reach. The callback may block: it runs on a thread of its own, one call at a time, and all that connect meanwhile share
    /// its answer. A connection waits for it within [`connect_timeout`](Self::connect_timeout), and a call no longer than its own time;
    /// then the call ends as at a server that does not answer. A later answer is kept for the next connection, for 10 s.
    ///
    /// While the callback blocks, no connection is made, and holds with a broken connection are lost when their lease ends: so set a
    /// time-out inside it. It must use no lock of this client. The client does not use it to log in to sentinels.
    ///
    /// ```no_run
    /// use redlatch::{Client, Credentials};
    ///
    /// let client = Client::builder("redis://10.0.0.1/")
    ///     .credentials(|| std::fs::read_to_string("/run/secrets/redis").map(|text| Credentials::new("app", text.trim())))
    ///     .build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn credentials<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        mut self,
        ask: impl Fn() -> std::result::Result<Credentials, E> + Send + Sync + 'static,
    ) -> Self {
        self.settings.credentials = Some(Source::new(ask));
        self
    }

    /// TLS settings for `rediss://`, `rediss+sentinel://` and `rediss+cluster://`: how to verify servers, and which certificate to show.
    /// Default: the system's authorities, and no certificate of its own. The connect time-out includes the handshake.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.tls.settings = Some(tls);
        self
    }

    /// The lease of a lock without an explicit one; it is renewed every third of it. Default 30 s, at least 100 ms.
    pub fn watchdog_timeout(mut self, lease: Duration) -> Self {
        self.settings.watchdog_timeout = Some(lease);
        self
    }

    /// Whose names are used on the wire. Default [`Naming::Redisson`].
    pub fn naming(mut self, naming: Naming) -> Self {
        self.settings.naming = naming;
        self
    }

    /// Put before every name on the server; at most 1,024 bytes. Default none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.key_prefix = prefix.into();
        self
    }

    /// How many connections calls may use at once, at each server that has locks: 1 to 10,000. Default 8. Renewals and messages have
    /// connections of their own.
    ///
    /// A call has a connection from its command to the answer, not while it waits for a lock and not while it holds one. If all are in use,
    /// calls wait in order of arrival, and releases before all others. A call that got none within its time, or within the
    /// [`outage_budget`](Self::outage_budget), ends with [`Error::Unavailable`], which names the pool. It waits at least 25 ms.
    ///
    /// A call waits in line for about (threads that call at once / connections) x (time of one command). A server nearby executes one
    /// script at a time, so more connections shorten no line. For a server far away each command keeps its connection for a round trip:
    /// take as many connections as threads that call at once. `docs/performance.md` has figures.
    pub fn pool_size(mut self, connections: u32) -> Self {
        self.settings.pool_size = Some(connections);
        self
    }

    /// How long connecting may take, handshake included, at least 10 ms. Default 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = Some(timeout);
        self
    }

    /// How long a command's answer may take: 10 ms to half of the watchdog's lease. Default 2 s, or a third of
    /// a watchdog lease below 6 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = Some(timeout);
        self
    }

    /// For how long calls without a deadline repeat their attempts at an unreachable server, before [`Error::Unavailable`]. It counts from
    /// the first attempt that failed in this outage. Default 10 s.
    pub fn outage_budget(mut self, budget: Duration) -> Self {
        self.settings.outage_budget = Some(budget);
        self
    }

    /// A waiter asks for the lock at least this often, even without a message; at least 10 ms. Default 5 s. A waiter with others before it
    /// in the queue asks each 1.5 s besides.
    pub fn poll_cap(mut self, cap: Duration) -> Self {
        self.settings.poll_cap = Some(cap);
        self
    }

    /// Whether inner levels are written at the server. Default [`Reentry::Mirrored`].
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.settings.reentry = reentry;
        self
    }

    /// How threads of this process pass locks on in memory. Default [`HandOff::default`].
    pub fn hand_off(mut self, hand_off: HandOff) -> Self {
        self.settings.hand_off = hand_off;
        self
    }

    /// How long a lock may be held under the watchdog. At least the watchdog's lease. Default: no cap. The watchdog makes no renewal whose
    /// lease would end after the cap. So the hold is lost with [`LossCause::Overheld`](crate::LossCause::Overheld) before the cap: by a
    /// third of the watchdog's lease and the margin of [`is_valid`](crate::Hold::is_valid) at most.
    ///
    /// The cap counts for each hold: a thread that takes a lock over in memory has all of it. It frees what a stuck thread would keep for
    /// ever. An explicit lease, [`Hold::extend`](crate::Hold::extend) and the lease that an inner level asks for are not capped: each is
    /// one acquire's own wish.
    ///
    /// ```
    /// use redlatch::Client;
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let client = Client::builder("redis://127.0.0.1/").max_hold(10 * minute).build()?;
    /// assert!(Client::builder("redis://127.0.0.1/").watchdog_timeout(minute).max_hold(minute / 2).build().is_err());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn max_hold(mut self, cap: Duration) -> Self {
        self.settings.max_hold = Some(cap);
        self
    }

    /// Strict mode, or loss quarantine. After the server lost its data (a restart, a failover, FLUSHALL), no lock is granted for one
    /// `watchdog_timeout`: until every hold that the server forgot is over. Default off.
    ///
    /// It closes the gap in which a server that forgot a lock grants it a second time. Its price:
    /// - one GET in each acquire;
    /// - locks wait for one `watchdog_timeout` after such a loss, and when a server is used for the first time;
    /// - a lease, also one by [`Hold::extend`](crate::Hold::extend), is at most `watchdog_timeout`;
    /// - a key without TTL, `redlatch:epoch` after the prefix. The user needs access to it, GET, SET and INFO.
    ///
    /// It works only if all clients are strict and have the same `watchdog_timeout`. The first client writes its time-out at the server. A
    /// client with another one gets no lock there: its call is refused with code `MISMATCH`, and the text names both. `build` asks no
    /// server and finds no such client, so let all programs read one value. To change it, stop all clients, delete `redlatch:epoch`, and
    /// start them.
    ///
    /// A client that is not strict, or Redisson, takes locks during the quarantine too. Strict mode cannot see the loss of single keys, by
    /// eviction or DEL. Nor can it see grants that were not replicated by an old master which still answers its clients: see
    /// [`sync_replicas`](Self::sync_replicas).
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/").strict(true).build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn strict(mut self, strict: bool) -> Self {
        self.settings.strict = strict;
        self
    }

    /// A lock is granted and renewed only if `replicas` of the master's replicas confirm it within `timeout`. With one fewer nothing is
    /// granted or renewed, and holds are lost when their leases end. Default off.
    ///
    /// Replication is asynchronous: a master that fails may have granted a lock that the promoted replica does not know. With this setting
    /// WAIT follows each grant, re-entry and renewal in the same write. A grant counts only if `replicas` replicas confirmed it. Else the
    /// client repeats it for [`outage_budget`](Self::outage_budget), as in an outage, then gives it back and is refused with code
    /// `NOREPLICAS`. A renewal without confirmation moves no deadline: the hold is [`Suspect`](crate::HoldState::Suspect), and
    /// [`Lost`](crate::HoldState::Lost) when its lease ends. A release needs no confirmation. If the master fails then, the lock may still be held
    /// at the new one until this client frees it there.
    ///
    /// A failover is safe if all clients have this setting for *all* replicas that may be promoted or can be connected at all, together
    /// with [`strict`](Self::strict) mode: [`failover_safe`](Self::failover_safe) sets both. WAIT counts replicas and does not name them:
    /// with fewer than all, a replica without the lock may be promoted. Gaps remain with only one of the two settings, with clients that
    /// have neither, and with a force unlock. They remain, too, if clocks of servers disagree by more than a hundredth of a lease. The last
    /// gap is a replica that is added later without a change of `replicas`.
    ///
    /// `replicas`: 1 to 100. `timeout`: 1 ms to half of [`response_timeout`](Self::response_timeout), in whole ms. The user needs the
    /// command WAIT: the client tests that when it connects.
    ///
    /// ```
    /// use redlatch::Client;
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis+sentinel://sentinel-0,sentinel-1,sentinel-2/mymaster")
    ///     .sync_replicas(2, Duration::from_millis(250))
    ///     .strict(true)
    ///     .build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn sync_replicas(mut self, replicas: usize, timeout: Duration) -> Self {
        self.settings.replicas = Some(SyncReplicas { count: replicas, timeout });
        self
    }

    /// A failover that loses no lock: [`strict`](Self::strict) mode, and [`sync_replicas`](Self::sync_replicas) within 100 ms. Each
    /// of the two has a gap that the other closes. Default off.
    ///
    /// `replicas`, 1 to 100, is the number of *all* replicas of a master that can be connected to it or promoted. All clients need
    /// the same number and the same [`watchdog_timeout`](Self::watchdog_timeout); the docs of the two settings say what else has to
    /// hold, and the permissions. What it costs:
    /// - while one replica is missing, nothing is granted or renewed: a call that locks is refused with code `NOREPLICAS`, and holds
    ///   are lost when their leases end. After a failover the old master is missing until it is back as a replica;
    /// - a new master grants nothing for one `watchdog_timeout`, and a lease is at most so long;
    /// - each acquire and each renewal waits until the last of the replicas has it.
    ///
    /// `build` refuses a [`response_timeout`](Self::response_timeout) below 200 ms. For that, or for replicas that need more than 100 ms,
    /// call `sync_replicas` after this with another time.
    ///
    /// ```no_run
    /// use redlatch::{Client, RedLockExt, RedisRedLock};
    ///
    /// let client = Client::builder("redis+sentinel://sentinel-0,sentinel-1,sentinel-2/mymaster")
    ///     .failover_safe(2)    // the master has two replicas
    ///     .build()?;
    /// let guard = RedisRedLock::new(&client).owned_guard("order:42")?;
    /// assert_eq!(guard.confirmed_by(), Some((2, 2)));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn failover_safe(self, replicas: usize) -> Self {
        self.strict(true).sync_replicas(replicas, Duration::from_millis(100))
    }

    /// How long the counter of a [`FencedLock`](crate::FencedLock)'s tokens stays on the server, after the lease of the last hold that a
    /// client with this setting acquired: a day to 36,500 days. Default: for ever, as in Redisson.
    ///
    /// This is for names that come and go without end: their counters would fill the server. Tokens follow the server's clock, so they grow
    /// even if the counter is gone. The exception is a clock that was put back by more than this meanwhile, or a new master whose clock is
    /// so far behind. It is off by default because Redisson's tokens do not follow the clock: a Java client that locks next begins at 1,
    /// and a resource that compares tokens refuses it. Do not set it if Redisson takes the same locks.
    ///
    /// If a lock is renewed for longer than this, its counter may be gone, and [`last_token`](crate::FencedLock::last_token) knows none.
    ///
    /// ```
    /// use redlatch::{Client, FencedLock};
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis://127.0.0.1/").token_ttl(Duration::from_secs(30 * 24 * 60 * 60)).build()?;
    /// let locks = FencedLock::new(&client);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn token_ttl(mut self, ttl: Duration) -> Self {
        self.settings.token_ttl = Some(ttl);
        self
    }

    /// What the program is called in `CLIENT LIST`, 1 to 256 visible ASCII characters, without spaces. Default: the file name of the program.
    ///
    /// It is the first part of the name of each connection, those to sentinels too: `redlatch:<app>@<host>:<pid>:<client id>`. So whoever
    /// looks at a lock can tell which process holds it: [`ReentrantLock::holder`](crate::ReentrantLock::holder).
    ///
    /// A user who may not run `CLIENT SETNAME` connects all the same, without a name. If `app_name` is set, the log says so once.
    pub fn app_name(mut self, name: impl Into<String>) -> Self {
        self.settings.app_name = Some(name.into());
        self
    }

    /// Maps each address that a sentinel or a cluster node names to the one to connect to: behind NAT and in containers servers name
    /// addresses that only they can reach. Default: no mapping. The URL's own hosts and all [`replicas`](ClientBuilder::replicas) are not
    /// mapped. If a cluster node names no host, it means its own: then the host by which it was asked is mapped, with the port that it
    /// names.
    ///
    /// The client calls it for each answer about where masters are, on a thread of its own or of a call. It should not block, and must
    /// return the same for the same.
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let outside = |host: &str, port| match host {
    ///     "redis-0" => ("203.0.113.5".to_owned(), port),
    ///     inside => (inside.to_owned(), port),
    /// };
    /// let client = Client::builder("redis+sentinel://203.0.113.5/mymaster").map_address(outside).build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn map_address(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.settings.address_map = AddressMap::new(map);
        self
    }

    /// How unlock messages are published in a cluster: with sharded pub/sub one node carries each, else all nodes do. Default
    /// [`ShardedPubsub::Auto`]. Without a cluster it has no effect.
    ///
    /// All programs that share locks have to use the same way, those on Redisson too (its `shardedSubscriptionMode`). A client that listens
    /// in the other way hears nothing, and asks for the lock once a [`poll_cap`](Self::poll_cap). During an upgrade from before Redis 7.0
    /// nodes answer differently: set it then.
    pub fn sharded_pubsub(mut self, mode: ShardedPubsub) -> Self {
        self.settings.sharded_pubsub = mode;
        self
    }

    /// Called once for each lost hold, on a thread of its own. It may block, but later reports wait behind it. If a release was not answered, the
    /// call may come when the hold is over and its work is done.
    ///
    /// A callback that owns a clone of the client keeps it alive: shut the client down to end it.
    pub fn on_lost(mut self, callback: impl Fn(LostHold) + Send + Sync + 'static) -> Self {
        self.listeners.on_lost = Some(Arc::new(callback));
        self
    }

    /// Called once for each circle of waiting with a thread of this client: threads that hold locks and wait for each other's. It has the
    /// thread of [`on_lost`](Self::on_lost). The log has a warning, too. Of the circles of one wait at most 64 are told.
    ///
    /// A circle is found if all of its threads hold and wait by clients that have waited before, for locks of one database with one [key
    /// prefix](Self::key_prefix), in any processes. All members are told. How it is found: [`deadlock_check`](Self::deadlock_check).
    ///
    /// ```no_run
    /// use redlatch::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")
    ///     .on_deadlock(|circle| eprintln!("{circle}"))    // shop@web-1 (pid 4711), thread 3, holds "a" and waits for "b" since 5 s; ..
    ///     .build()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn on_deadlock(mut self, callback: impl Fn(Deadlock) + Send + Sync + 'static) -> Self {
        self.listeners.on_deadlock = Some(Arc::new(callback));
        self
    }

    /// After how long a wait looks for a circle of waiting, if its thread holds another lock; it looks again whenever the wait is twice as old.
    /// At least 100 ms; `Duration::MAX`: never. Default 5 s.
    ///
    /// A look asks all clients with this database and prefix who holds and who waits, and takes half a second at most. It has a thread of its
    /// own. Waits without another hold never look. Circles of a [`QuorumLock`](crate::QuorumLock) or of locks in memory are
    /// found if all their locks are of one such object.
    /// A wait for permits or for a latch is in no circle: no thread holds these.
    pub fn deadlock_check(mut self, after: Duration) -> Self {
        self.settings.deadlock_check = Some(after);
        self
    }

    /// Whether a call ends with [`Error::Deadlock`] if it is the one of a circle that began to wait last. Then that thread can release what it
    /// holds, and the others go on. Default off: the log and [`on_deadlock`](Self::on_deadlock) tell of the circle, and all of them wait on.
    ///
    /// All clients should have the same setting: the others do not end their calls in place of the last one. The circle was there up to a second
    /// before. A holder whose lock was freed by force counts until its client learns of it. Whoever may publish to `redlatch_census:*` can end
    /// such a call: the library believes what clients tell of their threads.
    ///
    /// ```no_run
    /// use redlatch::{Client, Error, RedLock, ReentrantLock};
    ///
    /// let client = Client::builder("redis://127.0.0.1/").fail_deadlocks(true).build()?;
    /// let locks = ReentrantLock::new(&client);
    /// locks.lock("a")?;
    /// match locks.lock("b") {
    ///     Ok(()) => locks.unlock("b")?,
    ///     Err(Error::Deadlock { .. }) => println!("another thread has b and waits for a: begin again"),
    ///     Err(error) => return Err(error),
    /// }
    /// locks.unlock("a")?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn fail_deadlocks(mut self, fail: bool) -> Self {
        self.settings.fail_deadlocks = fail;
        self
    }
}

/// Whether a URL has credentials.
fn names_user(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let hosts = rest.split(['/', '?', '#']).next().unwrap_or_default();
    hosts.contains('@')
        || scheme.to_ascii_lowercase().ends_with("unix") && ["user=", "pass="].iter().any(|key| rest.contains(key))
}

/// # Errors
/// `Config` for an empty list: the caller forgot its nodes.
fn with_replicas<'u>(url: &'u str, replicas: &'u [String]) -> Result<Vec<&'u str>> {
    if replicas.is_empty() {
        return Err(Error::config(
            "replicas has no URL: give those of the other nodes, or leave it out for one server",
        ));
    }
    Ok(std::iter::once(url).chain(replicas.iter().map(String::as_str)).collect())
}

impl ClientBuilder {
    /// The other nodes, if the client's URL names one of several: a master and its replicas, in any order. The client finds the master by
    /// asking each node for its role, and follows a switch, by hand or by a tool. Default: the URL's server alone.
    ///
    /// Each node has a URL of its own, with its own user and password, or a socket; the database has to be the same. Sentinels name the
    /// replicas by themselves: `redis+sentinel://` with this is an error, as are an empty list and a node given twice.
    ///
    /// The client asks all nodes each second, and when a call fails in a way that can pass, on a separate connection to each.
    /// If exactly one node says that it is the master, the client follows it: it wakes waiters there, and a hold unknown there is lost at
    /// once.
    /// If two say so, calls fail with an error that names both, and holds are not renewed, until only one does. One of them may be an old
    /// master that is cut off, and no client can know which. A node that does not answer is no master: if it comes back and still calls
    /// itself one, it is the second. Leave nodes out of the list only if they are never promoted.
    ///
    /// ```no_run
    /// use redlatch::{Client, RedLockExt, RedisRedLock};
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis://app:secret@10.0.0.1/")
    ///     .replicas(["redis://app:secret@10.0.0.2/", "redis://app:secret@10.0.0.3/"])
    ///     .outage_budget(Duration::from_secs(60))    // longer than a switch takes
    ///     .build()?;
    /// let locks = RedisRedLock::new(&client);
    /// let guard = locks.guard("order:42")?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn replicas<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.replicas = Some(urls.into_iter().map(|url| url.as_ref().to_owned()).collect());
        self
    }

    /// Checks every setting against the others. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting that is wrong.
    pub fn build(mut self) -> Result<Client> {
        self.read_schemes()?;
        let config = self.settings.derive()?;
        let space = Arc::new(Space::new(config, self.listeners));
        let (url, common) = (self.urls[0].as_str(), space.common()?);
        let store = match &self.replicas {
            None => store::open(url, &common)?,
            Some(replicas) => store::open_replicas(&with_replicas(url, replicas)?, &common)?,
        };
        space.is_asked_at(&store);
        // Without the address: a password that was not escaped may look like a part of it.
        say!(info, "this is client {}", space.id);
        Ok(Client { handle: Arc::new(Handle { space, store, kinds: Mutex::default() }) })
    }
}

impl<T> fmt::Debug for ClientBuilder<T> {
    /// The URL may hold a password, so it is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
