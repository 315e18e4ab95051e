//! Semaphores and latches of both programs: a JVM beside a client of this process whose calls look by themselves once a minute.

use crate::java::{Lent, Span};
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, quiet, record};
use crate::sides::{now, spanned};
use crate::threads::{LONG, SOON, eventually, finish};
use redlatch::{Client, LeasedSemaphore, Permits, Semaphore, Terms};
use std::fmt::Display;
use std::time::Duration;

/// A thread of a JVM, and what its verbs begin with: `semaphore.`, `leased.` or `latch.`.
#[derive(Clone, Copy)]
pub(crate) struct Counter<'j> {
    both: &'j Both,
    thread: &'j str,
    kind: &'static str,
}

impl Counter<'_> {
    #[track_caller]
    pub(crate) fn spanned(&self, verb: &str, name: &str, numbers: &[u64]) -> (String, Span) {
        let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
        let verb = format!("{}.{verb}", self.kind);
        let words: Vec<_> = [verb.as_str(), name].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        let (answer, span) = self.both.jvm.ask(self.thread, &words);
        (answer.unwrap(), span)
    }

    #[track_caller]
    pub(crate) fn ask(&self, verb: &str, name: &str, numbers: &[u64]) -> String {
        self.spanned(verb, name, numbers).0
    }

    /// An answer that is a number.
    #[track_caller]
    pub(crate) fn number(&self, verb: &str, name: &str) -> i64 {
        self.ask(verb, name, &[]).parse().unwrap()
    }

    /// An answer that is yes or no.
    #[track_caller]
    pub(crate) fn is(&self, verb: &str, name: &str, numbers: &[u64]) -> bool {
        self.ask(verb, name, numbers).parse().unwrap()
    }
}

/// The fields end in this order: nothing of the programs may be left when the server ends.
pub(crate) struct Both {
    pub(crate) family: Family,
    pub(crate) jvm: Lent,
    pub(crate) client: Client,
    pub(crate) servers: Servers,
}

impl Both {
    /// Where a family of locks is.
    pub(crate) fn new(family: Family, watchdog: Duration) -> Self {
        let servers = Servers::start(family);
        let jvm = Lent::of(family.program, &servers, watchdog, "");
        let client = client(family, &servers.url(), watchdog);
        let both = Self { family, jvm, client, servers };
        // What a case before it left in the cluster when it failed.
        both.forget(&["n", "{n}:timeout", "gauge"]);
        both
    }

    pub(crate) fn java(&self, kind: &'static str) -> Counter<'_> {
        self.java_on("main", kind)
    }

    /// The same on another thread of the JVM.
    pub(crate) fn java_on<'s>(&'s self, thread: &'s str, kind: &'static str) -> Counter<'s> {
        Counter { both: self, thread, kind }
    }

    /// Runs `wait` on a thread of its own, and `act` when that one sleeps until it is woken; gives what both gave.
    pub(crate) fn while_asleep<T: Send>(
        &self,
        channel: &str,
        wait: impl FnOnce() -> T + Send,
        act: impl FnOnce() -> Span,
    ) -> (T, Span) {
        std::thread::scope(|scope| {
            let _home = SentHome(&self.client);
            let waiter = scope.spawn(wait);
            eventually(LONG, "the waiter subscribes", || self.servers.subscribers(channel) == 1);
            quiet(&self.servers);
            assert!(!waiter.is_finished(), "it did not wait");
            let acted = act();
            (finish(waiter), acted)
        })
    }

    /// Deletes what stays for ever. In the end nothing may be left.
    pub(crate) fn forget(&self, names: &[&str]) {
        names.iter().for_each(|name| _ = self.servers.ask::<i64>(name, &["DEL", name]));
    }

    /// Puts a line into the table of results.
    pub(crate) fn record(&self, case: &str, holder: &str, figures: &str) {
        record(case, self.family, holder, figures);
    }
}

/// A client whose calls look by themselves as rarely as they are told to.
pub(crate) fn client(family: Family, url: &str, watchdog: Duration) -> Client {
    family.locks(url, watchdog, "").client().clone()
}

/// When a case fails those who wait on this side come back: a JVM may keep for ever what they wait for.
pub(crate) struct SentHome<'c>(pub(crate) &'c Client);

impl Drop for SentHome<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shutdown();
        }
    }
}

#[track_caller]
pub(crate) fn assert_woken(waited: Span, freed: Span) -> Duration {
    assert!(waited.ended > freed.began, "it did not wait");
    let woken = waited.after(freed);
    assert!(woken <= SOON, "woken after {woken:?}");
    woken
}

/// For a table.
pub(crate) fn micros(woken: [Duration; 2]) -> impl Display {
    format!("{:.0?} and {:.0?}", woken[0], woken[1])
}

/// A kind of semaphore.
pub(crate) trait Kind: Sync + Sized {
    /// What the verbs of the Java program begin with.
    const VERBS: &'static str;
    const NAME: &'static str;
    fn new(client: &Client) -> Self;
    fn try_set(&self, name: &str, permits: u32) -> bool;
    fn available(&self, name: &str) -> Option<i64>;
    fn acquire(&self, name: &str, permits: u32, wait: Duration) -> Option<Permits>;
}

macro_rules! kinds {
    ($($kind:ident $verbs:literal $name:literal)*) => {
        $(impl Kind for $kind {
            const VERBS: &'static str = $verbs;
            const NAME: &'static str = $name;

            fn new(client: &Client) -> Self {
                Self::new(client)
            }

            fn try_set(&self, name: &str, permits: u32) -> bool {
                self.try_set_permits(name, permits).unwrap()
            }

            fn available(&self, name: &str) -> Option<i64> {
                self.available_permits(name).unwrap()
            }

            fn acquire(&self, name: &str, permits: u32, wait: Duration) -> Option<Permits> {
                self.acquire(name, permits, &Terms::new().wait(wait)).unwrap()
            }
        })*
    };
}

kinds!(Semaphore "semaphore" "RSemaphore" LeasedSemaphore "leased" "RPermitExpirableSemaphore");

/// Acquires permits, and gives them back: when it had them.
pub(crate) fn pass(semaphore: &impl Kind, name: &str, permits: u32) -> Span {
    let (acquired, span) = spanned(|| semaphore.acquire(name, permits, FOR_EVER));
    acquired.expect("its turn").release().unwrap();
    span
}

/// When something was done by this process.
pub(crate) fn done(act: impl FnOnce()) -> Span {
    let began = now();
    act();
    Span { began, ended: now() }
}

/// Makes tests of a case of each kind of semaphore, where a family of locks is.
macro_rules! of_semaphores {
    ($($case:ident: $($test:ident($kind:ident, $family:ident)),+;)+) => {
        $(mod $case {
            use crate::setting::Family;
            $(
                #[test]
                fn $test() {
                    super::$case::<redlatch::$kind>(Family::$family);
                }
            )+
        })+
    };
}

/// Each kind on one server.
macro_rules! on_one_server {
    ($($case:ident)+) => {
        of_semaphores!($($case: counted(Semaphore, REDISSON), leased(LeasedSemaphore, REDISSON);)+);
    };
}

/// The same, and in a cluster in either way.
macro_rules! on_one_server_and_in_clusters {
    ($($case:ident)+) => {
        of_semaphores!($($case: counted(Semaphore, REDISSON), leased(LeasedSemaphore, REDISSON),
            counted_in_a_sharded_cluster(Semaphore, SHARDED), leased_in_a_sharded_cluster(LeasedSemaphore, SHARDED),
            counted_in_a_plain_cluster(Semaphore, PLAIN), leased_in_a_plain_cluster(LeasedSemaphore, PLAIN);)+);
    };
}
