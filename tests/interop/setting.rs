//! The setting of a case: where the locks are, a JVM of one family, locks of this process, and which side holds.

use crate::java::{Jvm, Lent, folder};
use crate::servers::Servers;
use crate::sides::{Java, Rust, Side};
use crate::threads::{LONG, eventually, finish, ms};
use redlatch::{Client, FencedLock, Naming, RedLock, ReentrantLock, ShardedPubsub};
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Deref;
use std::time::Duration;

/// A lease that no case outlives: whoever comes in sooner was woken.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// Whose locks the Java side uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Redisson,
    /// Its `RFencedLock`.
    Fenced,
    Jedis,
    /// Redisson in a cluster, by sharded pub/sub: its default since Redis 7.0.
    Sharded,
    /// The same on channels of all nodes.
    Plain,
}

impl Family {
    pub(crate) fn is_in_cluster(self) -> bool {
        matches!(self, Self::Sharded | Self::Plain)
    }

    /// As in the table.
    fn name(self) -> &'static str {
        match self {
            Self::Redisson => "Redisson",
            Self::Fenced => "Redisson's fenced lock",
            Self::Jedis => "Jedis",
            Self::Sharded => "Redisson in a cluster, sharded",
            Self::Plain => "Redisson in a cluster, plain",
        }
    }

    /// As the Java program's argument.
    pub(crate) fn java(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::Fenced => "fenced",
            Self::Jedis => "jedis",
            Self::Sharded => "sharded",
            Self::Plain => "plain",
        }
    }

    pub(crate) fn naming(self) -> Naming {
        match self {
            Self::Jedis => Naming::Jedis,
            Self::Redisson | Self::Fenced | Self::Sharded | Self::Plain => Naming::Redisson,
        }
    }

    /// The channel of a lock, by the rule that the documentation states.
    pub(crate) fn channel(self, key: &str) -> String {
        match self {
            Self::Jedis => format!("__red__lock:{key}"),
            _ if key.contains('{') => format!("redisson_lock__channel:{key}"),
            _ => format!("redisson_lock__channel:{{{key}}}"),
        }
    }

    /// This side's locks. They look by themselves as rarely as they are told to.
    pub(crate) fn locks(self, url: &str, watchdog: Duration, prefix: &str) -> Ours {
        let told = if self == Self::Plain { ShardedPubsub::Off } else { ShardedPubsub::Auto };
        let builder = Client::builder(url).watchdog_timeout(watchdog).poll_cap(FOR_EVER).sharded_pubsub(told);
        let client = builder.naming(self.naming()).key_prefix(prefix).build().unwrap();
        match self {
            Self::Fenced => Ours::Fenced(FencedLock::new(&client)),
            _ => Ours::Plain(ReentrantLock::new(&client)),
        }
    }
}

/// Locks of this process, of the kind that a family has.
#[derive(Clone)]
pub(crate) enum Ours {
    Plain(ReentrantLock),
    Fenced(FencedLock),
}

impl Ours {
    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::Plain(locks) => locks.client(),
            Self::Fenced(locks) => locks.client(),
        }
    }
}

impl Deref for Ours {
    type Target = dyn RedLock;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(locks) => locks,
            Self::Fenced(locks) => locks,
        }
    }
}

/// Which side holds first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Java,
    Rust,
}

/// The fields end in this order: nothing of the programs may be left when the server ends.
pub(crate) struct Setting {
    pub(crate) family: Family,
    holder: Holder,
    pub(crate) jvm: Lent,
    pub(crate) locks: Ours,
    pub(crate) servers: Servers,
}

impl Setting {
    pub(crate) fn new(family: Family, holder: Holder, watchdog: Duration) -> Self {
        Self::with_prefix(family, holder, watchdog, "")
    }

    pub(crate) fn with_prefix(family: Family, holder: Holder, watchdog: Duration, prefix: &str) -> Self {
        let servers = Servers::start(family);
        let start = || Jvm::start(family, &servers, watchdog, prefix);
        let is_usual = family.is_in_cluster() && prefix.is_empty();
        let jvm = if is_usual { Lent::idle_or((family, watchdog), start) } else { Lent::once(start()) };
        Self::on(servers, jvm, family, holder, watchdog, prefix)
    }

    /// With a cluster whose masters may be replaced.
    pub(crate) fn alone(family: Family, holder: Holder) -> Self {
        let servers = Servers::start_alone();
        let jvm = Lent::once(Jvm::start(family, &servers, FOR_EVER, ""));
        Self::on(servers, jvm, family, holder, FOR_EVER, "")
    }

    fn on(servers: Servers, jvm: Lent, family: Family, holder: Holder, watchdog: Duration, prefix: &str) -> Self {
        let locks = family.locks(&servers.url(), watchdog, prefix);
        Self { family, holder, jvm, locks, servers }
    }

    /// The side that holds first, and the other.
    pub(crate) fn sides(&self) -> (Box<dyn Side + '_>, Box<dyn Side + '_>) {
        self.sides_on("main")
    }

    /// The same, with another thread of the JVM.
    pub(crate) fn sides_on<'s>(&'s self, thread: &'s str) -> (Box<dyn Side + 's>, Box<dyn Side + 's>) {
        let (java, rust) = (Box::new(Java(&self.jvm, thread)), Box::new(Rust(&self.locks)));
        match self.holder {
            Holder::Java => (java, rust),
            Holder::Rust => (rust, java),
        }
    }

    /// Runs `wait` on a thread of its own, and `act` when that one sleeps until it is woken; gives what both gave.
    pub(crate) fn while_asleep<T: Send, U>(
        &self,
        key: &str,
        wait: impl FnOnce() -> T + Send,
        act: impl FnOnce() -> U,
    ) -> (T, U) {
        let channel = self.family.channel(key);
        std::thread::scope(|scope| {
            let _home = SentHome(&self.locks);
            let before = self.servers.scripts_run();
            let waiter = scope.spawn(wait);
            asleep(&self.servers, &channel, before);
            assert!(!waiter.is_finished(), "it did not wait");
            let acted = act();
            (finish(waiter), acted)
        })
    }

    /// Puts a line into the table of results.
    pub(crate) fn record(&self, case: &str, figures: &str) {
        let holder = format!("{:?}", self.holder);
        record(case, self.family, &holder, figures);
    }
}

/// When a case fails those who wait on this side come back. They would be joined first, and a JVM may hold for ever what they
/// wait for.
pub(crate) struct SentHome<'l>(pub(crate) &'l Ours);

impl Drop for SentHome<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.client().shutdown();
        }
    }
}

/// Puts a line into the table that `scripts/interop` prints.
pub(crate) fn record(case: &str, family: Family, holder: &str, figures: &str) {
    let mut rows = OpenOptions::new().create(true).append(true).open(folder().join("rows")).unwrap();
    writeln!(rows, "| {case} | {} | {holder} | {figures} |", family.name()).unwrap();
}

/// Waits until a waiter has asked for the lock and subscribed to its channel, which it may still have been from before,
/// and nobody asks for a lock any more.
pub(crate) fn asleep(servers: &Servers, channel: &str, before: u64) {
    eventually(LONG, "the waiter asks", || servers.scripts_run() > before);
    eventually(LONG, "the waiter subscribes", || servers.subscribers(channel) == 1);
    eventually(LONG, "the waiter sleeps", || {
        let before = servers.scripts_run();
        (0..4).all(|_| {
            std::thread::sleep(ms(5));
            servers.scripts_run() == before
        })
    });
}

/// Makes tests of a case, each with a family and the side that holds.
macro_rules! tests_of {
    ($case:ident: $($test:ident($family:ident, $holder:ident)),+) => {
        mod $case {
            use crate::setting::{Family, Holder};
            $(
                #[test]
                fn $test() {
                    super::$case(Family::$family, Holder::$holder);
                }
            )+
        }
    };
}

/// With Redisson in a cluster in either way, and with either side as the holder.
macro_rules! in_a_cluster {
    ($($case:ident),+) => {$(
        tests_of!($case: sharded_cluster_holds(Sharded, Java), sharded_cluster_waits(Sharded, Rust),
            plain_cluster_holds(Plain, Java), plain_cluster_waits(Plain, Rust));
    )+};
}

/// With each family, and with either side as the holder.
macro_rules! both_ways {
    ($($case:ident),+) => {$(
        tests_of!($case: redisson_holds(Redisson, Java), redisson_waits(Redisson, Rust),
            fenced_holds(Fenced, Java), fenced_waits(Fenced, Rust),
            jedis_holds(Jedis, Java), jedis_waits(Jedis, Rust),
            sharded_cluster_holds(Sharded, Java), sharded_cluster_waits(Sharded, Rust),
            plain_cluster_holds(Plain, Java), plain_cluster_waits(Plain, Rust));
    )+};
}
