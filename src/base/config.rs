//! The settings of a client: one function derives every default and checks all of them together.

use crate::base::credentials::Source;
use crate::base::error::{Error, Result};
use crate::base::key::{LONGEST_NAME, Naming, is_in_one_slot};
use crate::base::kind::Kind;
use crate::base::meters::Classes;
use crate::base::sync::Mutex;
use crate::base::time::Lease;
use crate::base::tls::{Connector, Wanted};
use crate::base::voters::Vote;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Whether each inner level of a lock is written at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reentry {
    /// Each level is one round trip: the hash on the server shows the depth, and a lost hold is noticed at once.
    #[default]
    Mirrored,
    /// An inner level that asks for nothing new is counted in memory alone.
    Local,
}

/// How threads of one process pass a lock on in memory, without a command to the server.
///
/// A thread that unlocks passes its tenure on if another thread of its process waits for the same lock. For 0.5 ms the running thread may
/// take it again, as with a parking_lot mutex. Then it goes to the thread that has waited longest. After 10,000 passes, or `within` after
/// its acquire, the tenure is released at the server, and other processes can have the lock. If the release before reached no other client,
/// both bounds are four times as great.
///
/// Processes whose calls wait for a [`ReentrantLock`](crate::ReentrantLock) or a [`FencedLock`](crate::FencedLock) queue in order of
/// arrival. A release at the server gives the lock to the first of them, so it is not free in between. A dead process is skipped. If a
/// process is stopped when it is given the lock, it keeps the lock once for 1.5 s, or for its lease if that is shorter. A given hold lasts
/// 1.5 s at first; 2 ms later the watchdog prolongs it to its lease.
///
/// One release in 128 leaves the lock free, for tries and groups. Programs on Redisson do not queue: now and then the lock is left to them,
/// for four times `give_way`.
///
/// Only locks that the watchdog renews are passed on in memory. A Suspect hold is not, nor one that was taken or extended for longer than
/// `watchdog_timeout`. At least half of that, or of the time for which the lock was given, must be left. After a force unlock by another
/// process, passes may go on until the bounds.
///
/// ```
/// use redlatch::{Client, HandOff};
/// use std::time::Duration;
///
/// let hand_off = HandOff::default().within(Duration::from_millis(2)).in_order();
/// let client = Client::builder("redis://127.0.0.1/").hand_off(hand_off).build()?;
/// let every_time_on_the_wire = Client::builder("redis://127.0.0.1/").hand_off(HandOff::off()).build()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct HandOff {
    pub(crate) passes: usize,
    pub(crate) within: Duration,
    /// For this long a running thread may take the lock again though other threads of its process wait.
    pub(crate) turn: Duration,
    pub(crate) give_way: Duration,
    /// Processes queue for a lock.
    pub(crate) queues: bool,
}

impl Default for HandOff {
    /// 10,000 passes within 5 ms, in turns of 0.5 ms; a `give_way` of 1 ms.
    fn default() -> Self {
        let (within, turn, give_way) = (Duration::from_millis(5), Duration::from_micros(500), Duration::from_millis(1));
        Self { passes: 10_000, within, turn, give_way, queues: true }
    }
}

impl HandOff {
    /// Every unlock goes to the server. Nothing is passed on or shared, and the process does not queue. Queueing processes leave it the
    /// lock now and then, more seldom than a JVM. It takes no further settings: a client with `HandOff::off().within(..)` is not built.
    pub fn off() -> Self {
        let none = Duration::ZERO;
        Self { passes: 0, within: none, give_way: none, queues: false, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.passes > 0
    }

    /// No pass later than this after the acquire at the server: other processes may have to wait for this long. Four times this if the
    /// release before reached no other client.
    pub fn within(self, span: Duration) -> Self {
        Self { within: span, ..self }
    }

    /// Head start that other clients get after an unlock. Zero: none.
    ///
    /// If processes queue, the head start is for clients that do not, such as JVMs. Now and then a free lock is left to them for four times
    /// as long, at most 800 ms, and two round trips. That happens 2 ms after one of them was seen to hold the lock, or later if more of
    /// ours than of them wait. While they only listen, it happens ever more seldom.
    ///
    /// A [`QuorumLock`](crate::QuorumLock) has no queue, and a server may refuse one. Then the next thread of this process waits for this
    /// long before it asks, if a release reached others: at most for the response time-out.
    pub fn give_way(self, span: Duration) -> Self {
        Self { give_way: span, ..self }
    }

    /// Strict order of arrival: each pass goes to the thread that waits longest.
    pub fn in_order(self) -> Self {
        Self { turn: Duration::ZERO, ..self }
    }
}

/// The address to which a client connects in place of one that a server names.
#[derive(Clone, Default)]
pub(crate) struct AddressMap(Option<Arc<MapAddress>>);

type MapAddress = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl AddressMap {
    pub(crate) fn new(map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(map)))
    }

    pub(crate) fn apply(&self, host: String, port: u16) -> (String, u16) {
        match &self.0 {
            Some(map) => map(&host, port),
            None => (host, port),
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AddressMap(..)" } else { "AddressMap" })
    }
}

/// How unlock messages are published in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ShardedPubsub {
    /// By sharded pub/sub, if the first node asked supports it: Redis 7.0 and later, Valkey.
    #[default]
    Auto,
    /// By sharded pub/sub.
    On,
    /// On channels of all nodes.
    Off,
}

/// The number of replicas that have to confirm each grant and each renewal, and the time for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncReplicas {
    pub(crate) count: usize,
    pub(crate) timeout: Duration,
}

impl SyncReplicas {
    /// The confirmation must not take all of the time for an answer.
    fn fits(&self, response_timeout: Duration) -> bool {
        let shortest = Duration::from_millis(1);
        (1..=100).contains(&self.count) && (shortest..=response_timeout / 2).contains(&self.timeout)
    }
}

/// What the caller set; `None` takes the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) watchdog_timeout: Option<Duration>,
    pub(crate) naming: Naming,
    pub(crate) key_prefix: String,
    pub(crate) pool_size: Option<u32>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    /// The response time-out of a quorum's nodes.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) outage_budget: Option<Duration>,
    pub(crate) poll_cap: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) token_ttl: Option<Duration>,
    pub(crate) reentry: Reentry,
    pub(crate) hand_off: HandOff,
    pub(crate) strict: bool,
    pub(crate) app_name: Option<String>,
    pub(crate) address_map: AddressMap,
    pub(crate) replicas: Option<SyncReplicas>,
    pub(crate) sharded_pubsub: ShardedPubsub,
    pub(crate) in_cluster: bool,
    pub(crate) credentials: Option<Source>,
    pub(crate) skips_self_test: bool,
    pub(crate) deadlock_check: Option<Duration>,
    pub(crate) fail_deadlocks: bool,
    pub(crate) classes: Classes,
    pub(crate) tls: Wanted,
}

/// Every setting, derived and checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) watchdog_lease: Lease,
    pub(crate) naming: Naming,
    pub(crate) key_prefix: String,
    pub(crate) pool_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) outage_budget: Duration,
    pub(crate) poll_cap: Duration,
    pub(crate) max_hold: Duration,
    /// `None`: counters of tokens stay for ever.
    pub(crate) token_ttl: Option<Duration>,
    pub(crate) reentry: Reentry,
    pub(crate) hand_off: HandOff,
    pub(crate) strict: bool,
    pub(crate) app_name: Option<String>,
    pub(crate) address_map: AddressMap,
    pub(crate) replicas: Option<SyncReplicas>,
    pub(crate) sharded_pubsub: ShardedPubsub,
    /// Each lock and all its keys are in one slot.
    pub(crate) in_cluster: bool,
    pub(crate) credentials: Option<Source>,
    /// The first handshake does not test the user's permissions.
    pub(crate) skips_self_test: bool,
    /// After how long a wait looks for a circle of waiting.
    pub(crate) deadlock_check: Duration,
    /// The last member of a circle ends its call.
    pub(crate) fail_deadlocks: bool,
    /// The kinds of locks that were made so far: the next first handshake tests the permissions that they need.
    pub(crate) kinds: Arc<Mutex<Vec<&'static Kind>>>,
    /// The classes of names that metrics tell apart.
    pub(crate) classes: Classes,
    pub(crate) tls: Option<Connector>,
    /// The vote of a quorum's node.
    pub(crate) vote: Option<Vote>,
    /// The client's own part of owner ids, and of the names of its connections.
    pub(crate) client: Uuid,
}

impl Settings {
    /// Defaults: watchdog 30 s; response time-out 2 s, or a third of a shorter watchdog; connect time-out 2 s;
    /// outage budget 10 s; poll cap 5 s; 8 connections; no cap on holding; a look for deadlocks after 5 s.
    pub(crate) fn derive(self) -> Result<Config> {
        let watchdog = self.watchdog_timeout.unwrap_or(Duration::from_secs(30));
        let tls = self.tls.connector()?;
        let config = Config {
            watchdog_lease: Lease::clamped(watchdog),
            naming: self.naming,
            key_prefix: self.key_prefix,
            pool_size: self.pool_size.unwrap_or(8),
            connect_timeout: self.connect_timeout.unwrap_or(Duration::from_secs(2)),
            response_timeout: self.response_timeout.unwrap_or_else(|| (watchdog / 3).min(Duration::from_secs(2))),
            outage_budget: self.outage_budget.unwrap_or(Duration::from_secs(10)),
            poll_cap: self.poll_cap.unwrap_or(Duration::from_secs(5)),
            max_hold: self.max_hold.unwrap_or(Duration::MAX),
            token_ttl: self.token_ttl,
            reentry: self.reentry,
            hand_off: self.hand_off,
            strict: self.strict,
            app_name: self.app_name,
            address_map: self.address_map,
            replicas: self.replicas,
            sharded_pubsub: self.sharded_pubsub,
            in_cluster: self.in_cluster,
            credentials: self.credentials,
            skips_self_test: self.skips_self_test,
            deadlock_check: self.deadlock_check.unwrap_or(Duration::from_secs(5)),
            fail_deadlocks: self.fail_deadlocks,
            kinds: Arc::default(),
            classes: self.classes,
            tls,
            vote: None,
            client: Uuid::new_v4(),
        };
        config.check(watchdog)?;
        Ok(config)
    }
}

/// The lease that a level of a lock asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The watchdog's lease, renewed.
    Usual,
    /// A lease of its own, renewed.
    Renewed(Lease),
    /// A lease of its own, not renewed.
    Fixed(Lease),
}

impl Asked {
    pub(crate) fn is_renewed(self) -> bool {
        !matches!(self, Self::Fixed(_))
    }
}

/// The shortest lease that is renewed: a third of it is the time for an answer.
const SHORTEST_RENEWED: Duration = Duration::from_millis(100);

impl Config {
    /// The lease that the terms of an acquire ask for, if it is within the bounds.
    ///
    /// # Errors
    /// As [`lease`](Self::lease); `Config` for a renewed lease that is too short.
    pub(crate) fn asked(&self, span: Option<Duration>, renewed: bool) -> Result<Asked> {
        match span {
            None => Ok(Asked::Usual),
            Some(span) if renewed && span < SHORTEST_RENEWED => {
                Err(Error::config(format!("a renewed lease of {span:?} is out of range: 100 ms to 365 days")))
            }
            Some(span) if renewed && span > self.max_hold => {
                Err(Error::config(format!("a renewed lease of {span:?} is longer than max_hold, {:?}", self.max_hold)))
            }
            Some(span) if renewed => self.lease(span).map(Asked::Renewed),
            Some(span) => self.lease(span).map(Asked::Fixed),
        }
    }

    /// The length of the lease.
    pub(crate) fn length(&self, asked: Asked) -> Lease {
        match asked {
            Asked::Usual => self.watchdog_lease,
            Asked::Renewed(lease) | Asked::Fixed(lease) => lease,
        }
    }

    /// The lease that a caller asked for.
    ///
    /// # Errors
    /// `Config` out of bounds; in strict mode also above the watchdog's lease, for which a server that lost its
    /// data grants nothing.
    pub(crate) fn lease(&self, span: Duration) -> Result<Lease> {
        let lease = Lease::new(span)?;
        if self.strict && lease > self.watchdog_lease {
            let longest = self.watchdog_lease.millis();
            return Err(Error::config(format!(
                "in strict mode a lease is at most watchdog_timeout, {longest} ms: raise that, for every client"
            )));
        }
        Ok(lease)
    }

    fn check(&self, watchdog: Duration) -> Result<()> {
        let ten = Duration::from_millis(10);
        let rules = [
            (watchdog >= 10 * ten && watchdog <= Lease::MAX, "watchdog_timeout must be 100 ms to 365 days"),
            (self.response_timeout <= watchdog / 2, "response_timeout must be at most half of watchdog_timeout"),
            (self.response_timeout >= ten, "response_timeout must be at least 10 ms"),
            (self.connect_timeout >= ten, "connect_timeout must be at least 10 ms"),
            (self.poll_cap >= ten, "poll_cap must be at least 10 ms"),
            (self.deadlock_check >= 10 * ten, "deadlock_check must be at least 100 ms"),
            (self.max_hold >= watchdog, "max_hold must be at least watchdog_timeout"),
            (self.token_ttl.is_none_or(|ttl| TOKEN_TTL.contains(&ttl)), "token_ttl must be a day to 36,500 days"),
            (self.hand_off.give_way <= self.response_timeout, "give_way must be at most response_timeout"),
            (self.hand_off.is_on() || self.hand_off == HandOff::off(), HAND_OFF_RULE),
            ((1..=10_000).contains(&self.pool_size), "pool_size must be 1 to 10,000"),
            (self.key_prefix.len() <= LONGEST_NAME, "key_prefix must be at most 1,024 bytes"),
            (self.app_name.as_deref().is_none_or(is_app_name), APP_NAME_RULE),
            (self.replicas.is_none_or(|replicas| replicas.fits(self.response_timeout)), REPLICAS_RULE),
            (!self.in_cluster || self.naming == Naming::Redisson, NAMING_RULE),
            (!self.in_cluster || is_in_one_slot(&self.key_prefix), PREFIX_RULE),
        ];
        rules.iter().find(|(kept, _)| !kept).map_or(Ok(()), |(_, rule)| Err(Error::config(*rule)))
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a counter of tokens may be kept, if not for ever: far longer than clocks are put back.
const TOKEN_TTL: RangeInclusive<Duration> = DAY..=DAY.saturating_mul(36_500);

const REPLICAS_RULE: &str =
    "sync_replicas must be 1 to 100, within 1 ms to half of response_timeout; failover_safe has 100 ms";

const HAND_OFF_RULE: &str =
    "HandOff::off() takes no other settings: leave them out, or begin with HandOff::default() in its place";

const NAMING_RULE: &str =
    "naming must be Naming::Redisson in a cluster: with the other one a lock and its channel are in different slots";

const PREFIX_RULE: &str = "key_prefix must have no braces in a cluster, or something in the first pair of them";

const APP_NAME_RULE: &str = "app_name must be 1 to 256 visible ASCII characters, without spaces";

/// Whether servers accept this name for a connection.
fn is_app_name(name: &str) -> bool {
    (1..=256).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_derive_from_each_other() {
        let config = Settings::default().derive().unwrap();
        assert_eq!(config.watchdog_lease.millis(), 30_000);
        assert_eq!(config.response_timeout, Duration::from_secs(2));
        let short = Settings { watchdog_timeout: Some(Duration::from_secs(3)), ..Settings::default() };
        assert_eq!(short.derive().unwrap().response_timeout, Duration::from_secs(1));
        assert!(Settings { hand_off: HandOff::off(), ..Settings::default() }.derive().is_ok());
    }

    #[test]
    fn what_does_not_fit_together_is_rejected_by_name() {
        let ms = |n| Some(Duration::from_millis(n));
        let cases = [
            (Settings { watchdog_timeout: ms(5), ..Settings::default() }, "watchdog_timeout"),
            (Settings { watchdog_timeout: ms(99), ..Settings::default() }, "watchdog_timeout"),
            (Settings { watchdog_timeout: Some(Duration::MAX), ..Settings::default() }, "watchdog_timeout"),
            (Settings { response_timeout: ms(16_000), ..Settings::default() }, "response_timeout"),
            (Settings { response_timeout: ms(0), ..Settings::default() }, "response_timeout"),
            (Settings { connect_timeout: ms(0), ..Settings::default() }, "connect_timeout"),
            (Settings { naming: Naming::Jedis, in_cluster: true, ..Settings::default() }, "Naming::Redisson"),
            (Settings { key_prefix: "a{".to_owned(), in_cluster: true, ..Settings::default() }, "key_prefix"),
            (Settings { poll_cap: ms(0), ..Settings::default() }, "poll_cap"),
            (Settings { max_hold: ms(29_999), ..Settings::default() }, "max_hold"),
            (Settings { hand_off: HandOff::default().give_way(Duration::MAX), ..Settings::default() }, "give_way"),
            (Settings { hand_off: HandOff::off().within(DAY), ..Settings::default() }, "HandOff::off()"),
            (
                Settings { hand_off: HandOff::off().within(HandOff::default().within), ..Settings::default() },
                "HandOff::off()",
            ),
            (Settings { hand_off: HandOff::off().give_way(DAY / 100_000), ..Settings::default() }, "HandOff::off()"),
            (Settings { hand_off: HandOff::off().in_order(), ..Settings::default() }, "HandOff::off()"),
            (Settings { token_ttl: Some(DAY - Duration::from_nanos(1)), ..Settings::default() }, "token_ttl"),
            (Settings { token_ttl: Some(Duration::MAX), ..Settings::default() }, "token_ttl"),
            (Settings { pool_size: Some(0), ..Settings::default() }, "pool_size"),
            (Settings { key_prefix: "x".repeat(1_025), ..Settings::default() }, "key_prefix"),
            (Settings { app_name: Some(String::new()), ..Settings::default() }, "app_name"),
            (Settings { app_name: Some("a b".to_owned()), ..Settings::default() }, "app_name"),
            (Settings { app_name: Some("x".repeat(257)), ..Settings::default() }, "app_name"),
        ];
        for (settings, name) in cases {
            assert!(settings.derive().unwrap_err().to_string().contains(name));
        }
    }
}
