//! The setting of a case: a server, a JVM of one family, locks of this process, and which side holds.

use crate::java::{Jvm, folder};
use crate::server::Server;
use crate::sides::{Java, Rust, Side};
use crate::threads::{LONG, eventually, finish, ms};
use redlatch::{Client, Naming, ReentrantLock};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// A lease that no case outlives: whoever comes in sooner was woken.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// Whose locks the Java side uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Redisson,
    Jedis,
}

impl Family {
    /// As the Java program's argument.
    pub(crate) fn java(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::Jedis => "jedis",
        }
    }

    pub(crate) fn naming(self) -> Naming {
        match self {
            Self::Redisson => Naming::Redisson,
            Self::Jedis => Naming::Jedis,
        }
    }

    /// The channel of a lock, by the rule that the documentation states.
    pub(crate) fn channel(self, key: &str) -> String {
        match self {
            Self::Jedis => format!("__red__lock:{key}"),
            Self::Redisson if key.contains('{') => format!("redisson_lock__channel:{key}"),
            Self::Redisson => format!("redisson_lock__channel:{{{key}}}"),
        }
    }

    /// This side's locks. They look by themselves as rarely as they are told to.
    pub(crate) fn locks(self, url: &str, watchdog: Duration, prefix: &str) -> ReentrantLock {
        let builder = Client::builder(url).watchdog_timeout(watchdog).poll_cap(FOR_EVER);
        ReentrantLock::new(&builder.naming(self.naming()).key_prefix(prefix).build().unwrap())
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
    pub(crate) jvm: Jvm,
    pub(crate) locks: ReentrantLock,
    pub(crate) server: Server,
}

impl Setting {
    pub(crate) fn new(family: Family, holder: Holder, watchdog: Duration) -> Self {
        Self::with_prefix(family, holder, watchdog, "")
    }

    pub(crate) fn with_prefix(family: Family, holder: Holder, watchdog: Duration, prefix: &str) -> Self {
        let server = Server::start_on_tcp();
        let jvm = Jvm::start(family, &server, watchdog, prefix);
        let locks = family.locks(&server.url(), watchdog, prefix);
        Self { family, holder, jvm, locks, server }
    }

    /// The side that holds first, and the other.
    pub(crate) fn sides(&self) -> (Box<dyn Side + '_>, Box<dyn Side + '_>) {
        let (java, rust) = (Box::new(Java(&self.jvm)), Box::new(Rust(&self.locks)));
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
            let before = scripts_run(&self.server);
            let waiter = scope.spawn(wait);
            asleep(&self.server, &channel, before);
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

/// Puts a line into the table that `scripts/interop` prints.
pub(crate) fn record(case: &str, family: Family, holder: &str, figures: &str) {
    let mut rows = OpenOptions::new().create(true).append(true).open(folder().join("rows")).unwrap();
    writeln!(rows, "| {case} | {family:?} | {holder} | {figures} |").unwrap();
}

/// Waits until a waiter has asked for the lock and subscribed to its channel, which it may still have been from before,
/// and nobody asks the server for a lock any more.
pub(crate) fn asleep(server: &Server, channel: &str, before: u64) {
    eventually(LONG, "the waiter asks", || scripts_run(server) > before);
    eventually(LONG, "the waiter subscribes", || server.subscribers(channel) == 1);
    eventually(LONG, "the waiter sleeps", || {
        let before = scripts_run(server);
        (0..4).all(|_| {
            std::thread::sleep(ms(5));
            scripts_run(server) == before
        })
    });
}

/// How many scripts the server has run, by all its clients.
pub(crate) fn scripts_run(server: &Server) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let of_scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    of_scripts.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// Makes four tests of each case: with either family, and with either side as the holder.
macro_rules! both_ways {
    ($($case:ident),+) => {$(
        mod $case {
            use crate::setting::{Family::{Jedis, Redisson}, Holder::{Java, Rust}};

            #[test]
            fn redisson_holds() {
                super::$case(Redisson, Java);
            }

            #[test]
            fn redisson_waits() {
                super::$case(Redisson, Rust);
            }

            #[test]
            fn jedis_holds() {
                super::$case(Jedis, Java);
            }

            #[test]
            fn jedis_waits() {
                super::$case(Jedis, Rust);
            }
        }
    )+};
}
