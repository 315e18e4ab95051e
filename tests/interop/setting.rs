//! The setting of a case: where the locks are, a JVM of one family, locks of this process, and which side holds.

use crate::java::{Jvm, Lent, folder};
use crate::servers::Servers;
use crate::sides::{Java, Rust, Side};
use crate::threads::{LONG, eventually, finish, ms};
use redlatch::{
    Client, FairLock, FencedLock, Naming, ReadLock, ReadWriteLock, RedLock, ReentrantLock, ShardedPubsub, WriteLock,
};
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::Deref;
use std::time::Duration;

/// A lease that no case outlives: whoever comes in sooner was woken.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// A watchdog's lease that is waited out, with room for a machine that stalls.
pub(crate) const WATCHED: Duration = Duration::from_millis(1_500);

/// Which locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Redisson's `RLock`, or that of the program on Jedis.
    Plain,
    /// Redisson's `RFencedLock`.
    Fenced,
    /// Its fair lock.
    Fair,
    /// Its `RReadWriteLock`; where nothing else is said, the side of writers.
    ReadWrite,
}

/// Whose they are on the Java side, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Jedis,
    Redisson,
    /// Redisson in a cluster, by sharded pub/sub: its default since Redis 7.0.
    Sharded,
    /// The same on channels of all nodes.
    Unsharded,
}

/// Whose locks the Java side uses, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) program: Program,
    pub(crate) kind: Kind,
}

impl Family {
    pub(crate) const JEDIS: Self = Self { program: Program::Jedis, kind: Kind::Plain };
    pub(crate) const REDISSON: Self = Self { program: Program::Redisson, kind: Kind::Plain };
    pub(crate) const FENCED: Self = Self { program: Program::Redisson, kind: Kind::Fenced };
    pub(crate) const FAIR: Self = Self { program: Program::Redisson, kind: Kind::Fair };
    pub(crate) const READ_WRITE: Self = Self { program: Program::Redisson, kind: Kind::ReadWrite };
    pub(crate) const SHARDED: Self = Self { program: Program::Sharded, kind: Kind::Plain };
    pub(crate) const FENCED_SHARDED: Self = Self { program: Program::Sharded, kind: Kind::Fenced };
    pub(crate) const FAIR_SHARDED: Self = Self { program: Program::Sharded, kind: Kind::Fair };
    pub(crate) const READ_WRITE_SHARDED: Self = Self { program: Program::Sharded, kind: Kind::ReadWrite };
    pub(crate) const PLAIN: Self = Self { program: Program::Unsharded, kind: Kind::Plain };
    pub(crate) const FENCED_PLAIN: Self = Self { program: Program::Unsharded, kind: Kind::Fenced };
    pub(crate) const FAIR_PLAIN: Self = Self { program: Program::Unsharded, kind: Kind::Fair };
    pub(crate) const READ_WRITE_PLAIN: Self = Self { program: Program::Unsharded, kind: Kind::ReadWrite };

    pub(crate) fn is_in_cluster(self) -> bool {
        matches!(self.program, Program::Sharded | Program::Unsharded)
    }

    /// As in the table.
    fn name(self) -> String {
        let program = if self.program == Program::Jedis { "Jedis" } else { "Redisson" };
        let kind = match self.kind {
            Kind::Plain => "",
            Kind::Fenced => "'s fenced lock",
            Kind::Fair => "'s fair lock",
            Kind::ReadWrite => "'s read-write lock",
        };
        let place = match self.program {
            Program::Jedis | Program::Redisson => "",
            Program::Sharded => " in a cluster, sharded",
            Program::Unsharded => " in a cluster, plain",
        };
        [program, kind, place].concat()
    }

    /// What the verbs of the Java program begin with.
    pub(crate) fn verbs(self) -> &'static str {
        match self.kind {
            Kind::Plain => "",
            Kind::Fenced => "fenced.",
            Kind::Fair => "fair.",
            Kind::ReadWrite => "write.",
        }
    }

    pub(crate) fn naming(self) -> Naming {
        match self.program {
            Program::Jedis => Naming::Jedis,
            _ => Naming::Redisson,
        }
    }

    /// The channel of a lock, by the rule that the documentation states.
    pub(crate) fn channel(self, key: &str) -> String {
        let prefix = match (self.program, self.kind) {
            (Program::Jedis, _) => return format!("__red__lock:{key}"),
            (_, Kind::ReadWrite) => "redisson_rwlock",
            _ => "redisson_lock__channel",
        };
        if key.contains('{') { format!("{prefix}:{key}") } else { format!("{prefix}:{{{key}}}") }
    }

    /// This side's locks. They look by themselves as rarely as they are told to.
    pub(crate) fn locks(self, url: &str, watchdog: Duration, prefix: &str) -> Ours {
        let told = if self.program == Program::Unsharded { ShardedPubsub::Off } else { ShardedPubsub::Auto };
        let builder = Client::builder(url).watchdog_timeout(watchdog).poll_cap(FOR_EVER).sharded_pubsub(told);
        let client = builder.naming(self.naming()).key_prefix(prefix).build().unwrap();
        match self.kind {
            Kind::Plain => Ours::Plain(ReentrantLock::new(&client)),
            Kind::Fenced => Ours::Fenced(FencedLock::new(&client)),
            Kind::Fair => Ours::Fair(FairLock::new(&client)),
            Kind::ReadWrite => Ours::Write(ReadWriteLock::new(&client).write().clone()),
        }
    }
}

/// Locks of this process, of the kind that a family has.
#[derive(Clone)]
pub(crate) enum Ours {
    Plain(ReentrantLock),
    Fenced(FencedLock),
    Fair(FairLock),
    Read(ReadLock),
    Write(WriteLock),
}

impl Ours {
    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::Plain(locks) => locks.client(),
            Self::Fenced(locks) => locks.client(),
            Self::Fair(locks) => locks.client(),
            Self::Read(locks) => locks.client(),
            Self::Write(locks) => locks.client(),
        }
    }
}

impl Deref for Ours {
    type Target = dyn RedLock;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Plain(locks) => locks,
            Self::Fenced(locks) => locks,
            Self::Fair(locks) => locks,
            Self::Read(locks) => locks,
            Self::Write(locks) => locks,
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
        let jvm = Lent::of(family.program, &servers, watchdog, prefix);
        Self::on(servers, jvm, family, holder, watchdog, prefix)
    }

    /// With a cluster whose masters may be replaced.
    pub(crate) fn alone(family: Family, holder: Holder) -> Self {
        let servers = Servers::start_alone();
        let jvm = Lent::once(Jvm::start(family.program, &servers, FOR_EVER, ""));
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
        let (java, rust) = (Box::new(Java(&self.jvm, thread, self.family.verbs())), Box::new(Rust(self.locks.clone())));
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
    eventually(LONG, "the waiter subscribes", || servers.is_heard(channel));
    quiet(servers);
}

/// Waits until nobody asks for a lock any more.
pub(crate) fn quiet(servers: &Servers) {
    eventually(LONG, "those who wait sleep", || {
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
        tests_of!($case: sharded_cluster_holds(SHARDED, Java), sharded_cluster_waits(SHARDED, Rust),
            plain_cluster_holds(PLAIN, Java), plain_cluster_waits(PLAIN, Rust));
    )+};
}

/// With each program, each of Redisson's locks, and either side as the holder.
macro_rules! both_ways {
    ($($case:ident),+) => {$(
        tests_of!($case: redisson_holds(REDISSON, Java), redisson_waits(REDISSON, Rust),
            fenced_holds(FENCED, Java), fenced_waits(FENCED, Rust),
            fair_holds(FAIR, Java), fair_waits(FAIR, Rust),
            writer_holds(READ_WRITE, Java), writer_waits(READ_WRITE, Rust),
            jedis_holds(JEDIS, Java), jedis_waits(JEDIS, Rust),
            sharded_cluster_holds(SHARDED, Java), sharded_cluster_waits(SHARDED, Rust),
            plain_cluster_holds(PLAIN, Java), plain_cluster_waits(PLAIN, Rust));
    )+};
}

/// The same, and each of Redisson's locks in a cluster, too.
macro_rules! everywhere {
    ($case:ident) => {
        tests_of!($case: redisson_holds(REDISSON, Java), redisson_waits(REDISSON, Rust),
            fenced_holds(FENCED, Java), fenced_waits(FENCED, Rust),
            fair_holds(FAIR, Java), fair_waits(FAIR, Rust),
            writer_holds(READ_WRITE, Java), writer_waits(READ_WRITE, Rust),
            jedis_holds(JEDIS, Java), jedis_waits(JEDIS, Rust),
            sharded_cluster_holds(SHARDED, Java), sharded_cluster_waits(SHARDED, Rust),
            plain_cluster_holds(PLAIN, Java), plain_cluster_waits(PLAIN, Rust),
            sharded_fenced_holds(FENCED_SHARDED, Java), sharded_fenced_waits(FENCED_SHARDED, Rust),
            plain_fenced_holds(FENCED_PLAIN, Java), plain_fenced_waits(FENCED_PLAIN, Rust),
            sharded_fair_holds(FAIR_SHARDED, Java), sharded_fair_waits(FAIR_SHARDED, Rust),
            plain_fair_holds(FAIR_PLAIN, Java), plain_fair_waits(FAIR_PLAIN, Rust),
            sharded_writer_holds(READ_WRITE_SHARDED, Java), sharded_writer_waits(READ_WRITE_SHARDED, Rust),
            plain_writer_holds(READ_WRITE_PLAIN, Java), plain_writer_waits(READ_WRITE_PLAIN, Rust));
    };
}

/// What holds for leases, whichever way waiters are told in: with read-write locks, on one server and in a cluster.
macro_rules! leases_of_read_write_locks {
    ($($case:ident),+) => {$(
        mod $case {
            #[test]
            fn on_one_server() {
                super::$case(crate::setting::Family::READ_WRITE);
            }

            #[test]
            fn in_a_sharded_cluster() {
                super::$case(crate::setting::Family::READ_WRITE_SHARDED);
            }
        }
    )+};
}

/// With read-write locks, on one server and in a cluster in either way.
macro_rules! of_read_write_locks {
    ($($case:ident),+) => {$(
        mod $case {
            use crate::setting::Family;

            #[test]
            fn on_one_server() {
                super::$case(Family::READ_WRITE);
            }

            #[test]
            fn in_a_sharded_cluster() {
                super::$case(Family::READ_WRITE_SHARDED);
            }

            #[test]
            fn in_a_plain_cluster() {
                super::$case(Family::READ_WRITE_PLAIN);
            }
        }
    )+};
}

/// With fair locks, on one server and in a cluster in either way, and with either side as the holder.
macro_rules! fairly {
    ($($case:ident),+) => {$(
        tests_of!($case: java_holds(FAIR, Java), rust_holds(FAIR, Rust),
            java_holds_in_a_sharded_cluster(FAIR_SHARDED, Java), rust_holds_in_a_sharded_cluster(FAIR_SHARDED, Rust),
            java_holds_in_a_plain_cluster(FAIR_PLAIN, Java), rust_holds_in_a_plain_cluster(FAIR_PLAIN, Rust));
    )+};
}
