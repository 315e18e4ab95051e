//! Redisson's RCountDownLatch and ours: one count for both programs, and the last count of either wakes those that wait in both.

use crate::counters::{Both, assert_woken, done, micros};
use crate::java::Span;
use crate::setting::{FOR_EVER, Family, WATCHED};
use crate::sides::spanned;
use crate::threads::{LATE, LONG, eventually, ms};
use redlatch::{CountDownLatch, Error, Terms};
use std::time::Duration;

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";

/// A minute, as the poll cap: what comes sooner was woken.
const A_MINUTE: u64 = FOR_EVER.as_millis() as u64;

macro_rules! of_latches {
    ($($case:ident)+) => {
        $(mod $case {
            use crate::setting::Family;

            #[test]
            fn on_one_server() {
                super::$case(Family::REDISSON);
            }

            #[test]
            fn in_a_sharded_cluster() {
                super::$case(Family::SHARDED);
            }

            #[test]
            fn in_a_plain_cluster() {
                super::$case(Family::PLAIN);
            }
        })+
    };
}

of_latches!(both_count_one_latch_down each_wakes_the_other);

fn at_once() -> Terms<'static> {
    Terms::new().wait(Duration::ZERO)
}

/// Waits until the latch opens: when it was open.
fn wait(latches: &CountDownLatch, name: &str) -> Span {
    let (opened, span) = spanned(|| latches.wait(name, &Terms::new().wait(FOR_EVER)));
    assert!(opened.unwrap());
    span
}

fn both_count_one_latch_down(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java) = (CountDownLatch::new(&both.client), both.java("latch"));
    for by_java in [false, true] {
        let is_set = if by_java { java.is("trySet", "n", &[4]) } else { ours.try_set_count("n", 4, None).unwrap() };
        assert!(is_set && !java.is("trySet", "n", &[9]) && !ours.try_set_count("n", 9, Some(LONG)).unwrap());
        for left in [3, 1] {
            assert_eq!(ours.count_down("n").unwrap(), left);
            assert_eq!(java.number("count", "n"), left as i64);
            java.ask("countDown", "n", &[]);
            assert_eq!((ours.count("n").unwrap(), java.number("count", "n")), (left - 1, left as i64 - 1));
        }
        assert!(java.is("await", "n", &[A_MINUTE]) && ours.wait("n", &at_once()).unwrap());
        java.ask("countDown", "n", &[]);
        assert_eq!((ours.count_down("n").unwrap(), java.number("count", "n")), (0, 0));
    }
    both.record("RCountDownLatch", "both", "set by either, counted down by both, a set count stays");
}

fn each_wakes_the_other(family: Family) {
    let both = Both::new(family, FOR_EVER);
    let (ours, java, other) = (CountDownLatch::new(&both.client), both.java("latch"), both.java_on("other", "latch"));
    assert!(ours.try_set_count("n", 2, None).unwrap() && ours.count_down("n").unwrap() == 1);
    let wait_in_java = || {
        let (opened, span) = other.spanned("await", "n", &[A_MINUTE]);
        assert_eq!(opened, "true");
        span
    };
    let (waited, counted) = both.while_asleep(CHANNEL, wait_in_java, || done(|| _ = ours.count_down("n").unwrap()));
    let java_woken = assert_woken(waited, counted);
    assert!(java.is("trySet", "n", &[1]));
    let count = || java.spanned("countDown", "n", &[]).1;
    let (waited, counted) = both.while_asleep(CHANNEL, || wait(&ours, "n"), count);
    let ours_woken = assert_woken(waited, counted);
    assert!(java.is("trySet", "n", &[100]));
    let (waited, opened) = both.while_asleep(CHANNEL, wait_in_java, || done(|| assert!(ours.open("n").unwrap())));
    assert_woken(waited, opened);
    both.record("RCountDownLatch", "both", &format!("JVM and ours woken after {}", micros([java_woken, ours_woken])));
}

const NAMES: [&str; 7] =
    ["order:42", "{order}:42", "order:{42}", "{order}", "a{b", "with space: \"'*?[x]\\", "schloß/注文/🔒"];

/// Redisson wraps each name in its channel, also one that has braces.
#[test]
fn a_name_with_braces_is_the_same_latch() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java) = (CountDownLatch::new(&both.client), both.java("latch"));
    for name in NAMES {
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        assert!(java.is("trySet", name, &[1]) && ours.count(name).unwrap() == 1, "{name}");
        let count = || java.spanned("countDown", name, &[]).1;
        let (waited, counted) = both.while_asleep(&channel, || wait(&ours, name), count);
        assert_woken(waited, counted);
        assert!(ours.try_set_count(name, 1, None).unwrap() && java.number("count", name) == 1, "{name}");
        let wait_in_java = || java.spanned("await", name, &[A_MINUTE]);
        let act = || done(|| assert_eq!(ours.count_down(name).unwrap(), 0));
        let ((opened, waited), counted) = both.while_asleep(&channel, wait_in_java, act);
        assert_eq!(opened, "true", "{name}");
        assert_woken(waited, counted);
    }
    both.record("RCountDownLatch", "both", &format!("{} names with braces, spaces and beyond ASCII", NAMES.len()));
}

const TIME: Duration = WATCHED;

/// Redisson knows of no time. To a JVM a latch that is gone is open, but nobody tells it: it looks when its own wait is over.
#[test]
fn a_jvm_that_waits_for_a_latch_with_a_time_reads_its_end_as_open() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java) = (CountDownLatch::new(&both.client), both.java("latch"));
    assert!(ours.try_set_count("n", 1, Some(TIME)).unwrap());
    let wait = 2 * TIME;
    let ((ended, expired), (opened, span)) = std::thread::scope(|scope| {
        let rust = scope.spawn(|| spanned(|| ours.wait("n", &Terms::new().wait(LONG))));
        let java = java.spanned("await", "n", &[wait.as_millis() as u64]);
        (crate::threads::finish(rust), java)
    });
    assert!(matches!(ended, Err(Error::Expired { .. })), "{ended:?}");
    assert!(expired.length() <= TIME + LATE, "{expired:?}");
    assert!(span.length() <= wait + LONG, "{span:?}");
    assert_eq!((opened.as_str(), java.number("count", "n")), ("true", 0));
    // It counts down what is not there, and sets it anew.
    java.ask("countDown", "n", &[]);
    assert!(java.is("trySet", "n", &[1]) && !ours.wait("n", &at_once()).unwrap());
    java.ask("countDown", "n", &[]);
    eventually(LONG, "the end is forgotten", || ours.wait("n", &at_once()).is_ok_and(|open| open));
    both.record("RCountDownLatch", "Rust", &format!("with a time of {TIME:?}: ours expires, a JVM reads it as open"));
}

/// The last count of a JVM wakes ours as open, and leaves the end: after that it reads as expired for a while, as the documentation says.
#[test]
fn a_jvm_opens_a_latch_with_a_time() {
    let both = Both::new(Family::REDISSON, FOR_EVER);
    let (ours, java) = (CountDownLatch::new(&both.client), both.java("latch"));
    assert!(ours.try_set_count("n", 2, Some(TIME)).unwrap());
    java.ask("countDown", "n", &[]);
    assert!((1..=TIME.as_millis() as i64).contains(&both.servers.pttl("n")), "Redisson's DECR keeps the time");
    let count = || java.spanned("countDown", "n", &[]).1;
    let (waited, counted) = both.while_asleep(CHANNEL, || wait(&ours, "n"), count);
    assert_woken(waited, counted);
    assert!(ours.wait("n", &at_once()).unwrap());
    eventually(LONG, "the end is past", || matches!(ours.wait("n", &at_once()), Err(Error::Expired { .. })));
    eventually(LONG, "the end is forgotten", || ours.wait("n", &at_once()).is_ok_and(|open| open));
}

/// A JVM that is killed while it waits, or before it counts, leaves the latch as it is.
#[test]
fn a_killed_jvm_does_not_count() {
    let mut both = Both::new(Family::REDISSON, FOR_EVER);
    let ours = CountDownLatch::new(&both.client);
    assert!(both.java("latch").is("trySet", "n", &[2]));
    both.java("latch").ask("countDown", "n", &[]);
    let _told = both.jvm.begin("main", &["latch.await", "n", "60000"]);
    eventually(LONG, "it waits", || both.servers.subscribers(CHANNEL) == 1);
    both.jvm.kill();
    assert!(!ours.wait("n", &Terms::new().wait(ms(100))).unwrap());
    assert_eq!((ours.count("n").unwrap(), ours.count_down("n").unwrap()), (1, 0));
}
