//! Redisson's `RReadWriteLock` and ours: readers of both programs together, a writer of either alone.

mod leases;
mod waking;

use crate::names;
use crate::setting::{FOR_EVER, Family, Holder, Ours, Setting};
use crate::sides::{Java, Rust, Side};
use crate::threads::elsewhere;
use redlatch::ReadWriteLock;
use std::time::Duration;

const READ: &str = "read.";
const WRITE: &str = "write.";
const AT_ONCE: Duration = Duration::ZERO;

/// Each side comes first once.
const ORDERS: [[Holder; 2]; 2] = [[Holder::Java, Holder::Rust], [Holder::Rust, Holder::Java]];

/// A side of a program's locks, by a thread of the JVM or by the current one of this process.
fn side_on<'s>(setting: &'s Setting, program: Holder, side: &'static str, thread: &'s str) -> Box<dyn Side + 's> {
    let locks = ReadWriteLock::new(setting.locks.client());
    match (program, side) {
        (Holder::Java, side) => Box::new(Java(&setting.jvm, thread, side)),
        (Holder::Rust, READ) => Box::new(Rust(Ours::Read(locks.read().clone()))),
        (Holder::Rust, _) => Box::new(Rust(Ours::Write(locks.write().clone()))),
    }
}

fn side<'s>(setting: &'s Setting, program: Holder, side: &'static str) -> Box<dyn Side + 's> {
    side_on(setting, program, side, "main")
}

/// Whether a thread that holds nothing gets in at once; then it gives that back.
fn comes_in(setting: &Setting, program: Holder, side: &'static str, name: &str) -> bool {
    elsewhere(|| {
        let side = side_on(setting, program, side, "other");
        let came = side.try_lock(name, AT_ONCE).0;
        if came {
            side.unlock(name);
        }
        came
    })
}

/// What other threads of both programs may do right now: to read, to write.
fn lets_in(setting: &Setting, name: &str) -> [bool; 2] {
    [READ, WRITE].map(|side| {
        let [java, rust] = [Holder::Java, Holder::Rust].map(|program| comes_in(setting, program, side, name));
        assert_eq!(java, rust, "{name}: the programs disagree on who may come in ({side})");
        java
    })
}

const FREE: [bool; 2] = [true, true];
const READ_ONLY: [bool; 2] = [true, false];
const CLOSED: [bool; 2] = [false, false];

of_read_write_locks!(
    readers_of_both_programs_are_together_and_a_writer_is_alone,
    each_level_counts,
    who_writes_may_read_and_go_on_with_that,
    a_force_unlock_of_a_side_ousts_who_has_it,
    a_force_unlock_of_a_writer_that_reads
);

fn readers_of_both_programs_are_together_and_a_writer_is_alone(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    let names = names::known_to(family);
    for name in names {
        ORDERS.iter().for_each(|order| come_and_go(&setting, name, *order));
    }
    let figures = format!("{} names, either first; who leaves sees who stays", names.len());
    setting.record("readers together, a writer alone", &figures);
}

/// A reader that leaves looks for the other program's time-outs: if it found none, it would free the lock.
fn come_and_go(setting: &Setting, name: &str, order: [Holder; 2]) {
    let [one, other] = order.map(|program| side(setting, program, READ));
    one.lock(name);
    assert!(other.try_lock(name, AT_ONCE).0, "{name}: {order:?} do not read together");
    assert_eq!(lets_in(setting, name), READ_ONLY, "{name}, two readers");
    one.unlock(name);
    assert_eq!(lets_in(setting, name), READ_ONLY, "{name}, one reader");
    assert!(setting.servers.pttl(name) > 30_000, "it keeps the lease of who stays");
    other.unlock(name);
    assert_eq!(lets_in(setting, name), FREE, "{name}, none");
    let writer = side(setting, order[0], WRITE);
    writer.lock(name);
    assert_eq!(lets_in(setting, name), CLOSED, "{name}, a writer");
    writer.unlock(name);
    assert_eq!(lets_in(setting, name), FREE, "{name}, none again");
}

/// A JVM has a time-out for each level, and counts them; here one is for all.
fn each_level_counts(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    for [stays, leaves] in ORDERS {
        let [stays, leaves] = [stays, leaves].map(|program| side(&setting, program, READ));
        (0..3).for_each(|_| _ = stays.lock("n"));
        (0..2).for_each(|_| _ = leaves.lock("n"));
        for side in [&leaves, &leaves, &stays, &stays] {
            side.unlock("n");
            assert_eq!(lets_in(&setting, "n"), READ_ONLY);
        }
        stays.unlock("n");
        assert_eq!(lets_in(&setting, "n"), FREE);
    }
    setting.record(
        "re-entry of a reader",
        "3 levels beside 2 of the other program; writers out until the last is given up",
    );
}

fn who_writes_may_read_and_go_on_with_that(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    for [program, _] in ORDERS {
        let [read, write] = [READ, WRITE].map(|of| side(&setting, program, of));
        write.lock("n");
        read.lock("n");
        assert_eq!(lets_in(&setting, "n"), CLOSED, "{program:?} writes and reads");
        read.unlock("n");
        assert_eq!(lets_in(&setting, "n"), CLOSED, "{program:?} writes on");
        read.lock("n");
        write.unlock("n");
        assert_eq!(lets_in(&setting, "n"), READ_ONLY, "{program:?} went on to read");
        read.unlock("n");
        assert_eq!(lets_in(&setting, "n"), FREE, "{program:?} has left");
    }
    setting.record("downgrade", "either program, seen by both");
}

/// The ousted learns of it later, and its program keeps its own threads out until then.
fn a_force_unlock_of_a_side_ousts_who_has_it(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    for [ouster, ousted] in ORDERS {
        for (of, other) in [(READ, WRITE), (WRITE, READ)] {
            let (hold, next) = (side(&setting, ousted, of), side(&setting, ouster, WRITE));
            hold.lock("n");
            assert!(!side(&setting, ouster, other).force_unlock("n").0, "the other side is free");
            let forced = side(&setting, ouster, of);
            assert!(forced.force_unlock("n").0 && !forced.force_unlock("n").0);
            assert!(next.try_lock("n", AT_ONCE).0, "{ouster:?} freed it ({of})");
            hold.try_unlock("n").unwrap_err();
            assert_eq!(lets_in(&setting, "n"), CLOSED, "the unlock of the ousted touched another's lock");
            next.unlock("n");
        }
    }
    // That of a JVM is left to its TTL.
    let left: Vec<String> = setting.servers.ask("n", &["KEYS", "{n}:*:rwlock_timeout:*"]);
    assert_eq!(left.len(), 1, "{left:?}");
    setting.servers.ask::<i64>("n", &["DEL", &left[0]]);
    setting.record("ousted by forceUnlock of a side", "its unlock says so, and touches nobody");
}

/// Ours leaves those who read to read on; Redisson's frees both sides.
fn a_force_unlock_of_a_writer_that_reads(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    for ([ouster, ousted], stays) in ORDERS.into_iter().zip([false, true]) {
        let [read, write] = [READ, WRITE].map(|of| side(&setting, ousted, of));
        write.lock("n");
        read.lock("n");
        assert!(side(&setting, ouster, WRITE).force_unlock("n").0);
        let seen = [READ, WRITE].map(|of| comes_in(&setting, ouster, of, "n"));
        assert_eq!(seen, if stays { READ_ONLY } else { FREE }, "{ouster:?} forced it open");
        write.try_unlock("n").unwrap_err();
        assert_eq!(read.try_unlock("n").is_ok(), stays);
        assert_eq!(lets_in(&setting, "n"), FREE);
    }
    setting.record("forceUnlock of a writer that reads", "ours leaves its reader in, Redisson's does not");
}

/// Their time-outs lie in other slots, and Redisson names them in one command with the lock. Here they work.
#[test]
fn redisson_in_a_cluster_cannot_read_what_has_braces_but_no_tag() {
    for family in [Family::READ_WRITE_SHARDED, Family::READ_WRITE_PLAIN] {
        let setting = Setting::new(family, Holder::Rust, FOR_EVER);
        for name in ["a{b", "a}b", "{}"] {
            let ours = side(&setting, Holder::Rust, READ);
            ours.lock(name);
            assert!(!comes_in(&setting, Holder::Java, WRITE, name) && comes_in(&setting, Holder::Rust, READ, name));
            let told = setting.jvm.ask("main", &["read.lock", name]).0.unwrap_err();
            assert!(told.contains("CROSSSLOT"), "{told}");
            ours.unlock(name);
            assert!(comes_in(&setting, Holder::Rust, WRITE, name));
        }
        setting.record("braces without a tag", "Redisson's read lock says CROSSSLOT; writers there see readers here");
    }
}
