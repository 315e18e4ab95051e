//! Leases of both programs on one lock: that of who is killed, shorter and longer ones, and what each does to the lock's TTL.

use super::{ORDERS, READ, READ_ONLY, WRITE, comes_in, lets_in, side, side_on};
use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, Ours, Setting, WATCHED, asleep};
use crate::sides::{Rust, Side, now};
use crate::threads::{LATE, LONG, eventually, finish, ms};
use redlatch::{LossCause, ReadLock, ReadWriteLock, RedLock};
use std::time::Duration;

const LEASE: Duration = WATCHED;

leases_of_read_write_locks!(
    a_killed_jvm_keeps_nobody_out_beyond_its_lease,
    the_longest_lease_of_all_readers_counts,
    who_leaves_leaves_the_lease_of_who_stays,
    the_watchdog_of_a_reader_keeps_writers_out
);

/// As a reader of the one lock and as the writer of the other.
fn a_killed_jvm_keeps_nobody_out_beyond_its_lease(family: Family) {
    let mut setting = Setting::new(family, Holder::Java, LEASE);
    side(&setting, Holder::Java, READ).lock("r");
    side(&setting, Holder::Java, WRITE).lock("w");
    let locks = ReadWriteLock::new(setting.locks.client());
    let (writer, reader) = (Rust(Ours::Write(locks.write().clone())), Rust(Ours::Read(locks.read().clone())));
    let (waited, killed) = std::thread::scope(|scope| {
        let before = setting.servers.scripts_run();
        let writes = scope.spawn(|| lock_and_unlock(&writer, "r"));
        let reads = scope.spawn(|| lock_and_unlock(&reader, "w"));
        ["r", "w"].iter().for_each(|name| asleep(&setting.servers, &family.channel(name), before));
        let killed = now();
        setting.jvm.kill();
        ([finish(writes), finish(reads)], killed)
    });
    assert_free_within_the_lease(&setting, killed, waited);
}

#[test]
fn a_killed_rust_process_keeps_nobody_out_beyond_its_lease() {
    let family = Family::READ_WRITE;
    with_peer(|url| hold_until_killed(family, url), |start| process_is_killed(family, start));
}

#[test]
fn a_killed_rust_process_keeps_nobody_out_in_a_sharded_cluster() {
    let family = Family::READ_WRITE_SHARDED;
    with_peer(|url| hold_until_killed(family, url), |start| process_is_killed(family, start));
}

fn hold_until_killed(family: Family, url: &str) {
    let locks = family.locks(&Servers::url_beside(url), LEASE, "");
    ReadWriteLock::new(locks.client()).read().lock("r").unwrap();
    locks.lock("w").unwrap();
    tell(url, "held");
    std::thread::park();
}

fn process_is_killed(family: Family, start: &dyn Fn(&Server) -> Peer) {
    let setting = Setting::new(family, Holder::Rust, LEASE);
    let peer = start(&setting.servers.news);
    assert_eq!(hear(&setting.servers.news), "held");
    let before = setting.servers.scripts_run();
    let writer = side(&setting, Holder::Java, WRITE);
    let reader = side_on(&setting, Holder::Java, READ, "other");
    let (waited, killed) = std::thread::scope(|scope| {
        let writes = scope.spawn(|| lock_and_unlock(&*writer, "r"));
        let reads = scope.spawn(|| lock_and_unlock(&*reader, "w"));
        ["r", "w"].iter().for_each(|name| asleep(&setting.servers, &family.channel(name), before));
        let killed = now();
        // Its drop is a SIGKILL.
        drop(peer);
        ([finish(writes), finish(reads)], killed)
    });
    assert_free_within_the_lease(&setting, killed, waited);
}

/// When it was acquired.
fn lock_and_unlock(side: &dyn Side, name: &str) -> u64 {
    let acquired = side.lock(name).ended;
    side.unlock(name);
    acquired
}

fn assert_free_within_the_lease(setting: &Setting, killed: u64, acquired: [u64; 2]) {
    let [of_reader, of_writer] = acquired.map(|acquired| {
        assert!(acquired > killed, "it got in before the holder was killed");
        Duration::from_nanos(acquired - killed)
    });
    assert!(of_reader.max(of_writer) <= LEASE + LATE, "free after {of_reader:?} and {of_writer:?}");
    let figures =
        format!("a writer in after {of_reader:.2?}, a reader in after {of_writer:.2?}, with a lease of {LEASE:?}");
    setting.record("a reader and a writer killed", &figures);
}

const SHORT: Duration = Duration::from_millis(500);
const LONGER: Duration = Duration::from_millis(2_000);

/// Whichever program has it, and whichever comes first: a writer of the other one waits.
fn the_longest_lease_of_all_readers_counts(family: Family) {
    let setting = Setting::new(family, Holder::Rust, FOR_EVER);
    let cases = ORDERS.iter().flat_map(|order| [[SHORT, LONGER], [LONGER, SHORT]].map(|leases| (order, leases)));
    let began = cases.map(|(order, leases)| {
        let name = format!("{order:?} {leases:?}");
        let locked = [0, 1].map(|at| side(&setting, order[at], READ).lock_for(&name, leases[at]).began);
        let longer = usize::from(leases[1] == LONGER);
        (name, order[1 - longer], locked[longer])
    });
    let began: Vec<_> = began.collect();
    std::thread::sleep(SHORT);
    for (name, ..) in &began {
        assert_eq!(lets_in(&setting, name), READ_ONLY, "{name}: the longer lease counts");
        let left = setting.servers.pttl(name);
        assert!(left <= LONGER.as_millis() as i64, "{name}: who came and left leaves what was there, not {left} ms");
    }
    let wait = |name, waits, began| {
        // The server counts in whole ms.
        Duration::from_nanos(lock_and_unlock(&*side_on(&setting, waits, WRITE, name), name) - began) + ms(2)
    };
    let free = std::thread::scope(|scope| {
        let wait = &wait;
        let waiting = began.iter().map(|(name, waits, began)| scope.spawn(move || wait(name, *waits, *began)));
        waiting.collect::<Vec<_>>().into_iter().map(finish).collect::<Vec<_>>()
    });
    assert!(free.iter().all(|free| *free >= LONGER && *free <= LONGER + LONG), "writers in after {free:?}");
    began.iter().for_each(|(name, ..)| _ = side(&setting, Holder::Rust, READ).try_unlock(name).unwrap_err());
    let figures =
        format!("{SHORT:?} and {LONGER:?}, the longer of either program: a writer of the other in after {free:.1?}");
    setting.record("mixed leases of readers", &figures);
}

/// Each program looks for the other's time-outs.
fn who_leaves_leaves_the_lease_of_who_stays(family: Family) {
    let (shorter, longer) = (Duration::from_secs(10), Duration::from_secs(40));
    for [stays, leaves] in ORDERS {
        let setting = Setting::new(family, stays, FOR_EVER);
        let [stays, leaves] = [stays, leaves].map(|program| side(&setting, program, READ));
        stays.lock_for("n", shorter);
        leaves.lock_for("n", longer);
        let between = |least: Duration, most: Duration| {
            let left = Duration::from_millis(u64::try_from(setting.servers.pttl("n")).unwrap());
            assert!(left > least && left <= most, "{left:?}");
        };
        between(shorter, longer);
        leaves.unlock("n");
        between(Duration::ZERO, shorter);
        assert_eq!(lets_in(&setting, "n"), READ_ONLY);
        between(Duration::ZERO, shorter);
        stays.unlock("n");
        let figures = format!("{longer:?} leaves {shorter:?}: the lock's TTL is that of who stays");
        setting.record("a reader with a longer lease leaves", &figures);
    }
}

fn the_watchdog_of_a_reader_keeps_writers_out(family: Family) {
    let setting = Setting::new(family, Holder::Rust, WATCHED);
    let (java, rust) = (side(&setting, Holder::Java, READ), side(&setting, Holder::Rust, READ));
    java.lock("java reads");
    rust.lock("rust reads");
    let wait = 2 * WATCHED;
    let tries = |program, name| side_on(&setting, program, WRITE, "other").try_lock(name, wait).0;
    let came = std::thread::scope(|scope| {
        let rust = scope.spawn(|| tries(Holder::Rust, "java reads"));
        let java = scope.spawn(|| tries(Holder::Java, "rust reads"));
        [finish(java), finish(rust)]
    });
    assert_eq!(came, [false, false], "it got in");
    java.unlock("java reads");
    rust.unlock("rust reads");
    setting.record("watchdog of readers", &format!("writers out for {wait:?} with a lease of {WATCHED:?}"));
}

/// Locks of this process that have another watchdog's time-out than the JVM.
fn readers_with(setting: &Setting, watchdog: Duration) -> ReadLock {
    let locks = setting.family.locks(&setting.servers.url(), watchdog, "");
    ReadWriteLock::new(locks.client()).read().clone()
}

/// Redisson's renewal sets the lock's TTL to its own lease, also where a reader of ours has longer. Our own renewal puts that right;
/// when the JVM dies before, the lock ends with its lease, and who reads here learns of it when it asks.
#[test]
fn a_jvm_with_a_shorter_lease_cuts_that_of_the_lock() {
    let mut setting = Setting::new(Family::READ_WRITE, Holder::Java, LEASE);
    let readers = readers_with(&setting, FOR_EVER);
    readers.lock("n").unwrap();
    side(&setting, Holder::Java, READ).lock("n");
    assert!(setting.servers.pttl("n") > 30_000, "its acquire cuts nothing");
    eventually(LONG, "it renews", || setting.servers.pttl("n") < 30_000);
    setting.jvm.kill();
    eventually(LONG, "the lock is gone", || setting.servers.pttl("n") == -2);
    let hold = readers.hold("n").unwrap();
    assert!(hold.is_valid() && !readers.verify(&hold).unwrap());
    assert_err!(readers.unlock("n"), Lost);
    setting.record(
        "a JVM with a shorter lease reads too, and dies",
        "the lock ends with its lease; `verify` says so here",
    );
}

/// Whoever renews in time puts it right.
#[test]
fn a_jvm_with_the_same_lease_that_dies_takes_nothing_along() {
    let mut setting = Setting::new(Family::READ_WRITE, Holder::Java, LEASE);
    let readers = readers_with(&setting, LEASE);
    readers.lock("n").unwrap();
    side(&setting, Holder::Java, READ).lock("n");
    // It has renewed.
    std::thread::sleep(LEASE / 2);
    setting.jvm.kill();
    std::thread::sleep(2 * LEASE);
    let hold = readers.hold("n").unwrap();
    assert!(hold.is_valid() && readers.verify(&hold).unwrap());
    assert!(!comes_in(&setting, Holder::Rust, WRITE, "n"));
    readers.unlock("n").unwrap();
    assert!(comes_in(&setting, Holder::Rust, WRITE, "n"));
    setting.record("a JVM with the same lease reads too, and dies", "who reads here goes on, and keeps writers out");
}

/// A reader whose time-out was evicted is none to a JVM that leaves: it frees the lock. The next renewal tells.
#[test]
fn an_evicted_timeout_is_told_late() {
    let setting = Setting::new(Family::READ_WRITE, Holder::Rust, FOR_EVER);
    let readers = readers_with(&setting, WATCHED);
    let java = side(&setting, Holder::Java, READ);
    readers.lock("n").unwrap();
    let hold = readers.hold("n").unwrap();
    let timeouts: Vec<String> = setting.servers.news.ask(&["KEYS", "{n}:*:rwlock_timeout:1"]);
    java.lock("n");
    setting.servers.news.ask::<i64>(&["DEL", &timeouts[0]]);
    java.unlock("n");
    assert_eq!(setting.servers.pttl("n"), -2, "it is free");
    let lost = hold.lost().recv_timeout(LONG).unwrap();
    assert_eq!(lost.cause(), LossCause::Removed);
    assert_err!(readers.unlock("n"), Lost);
    setting.record("a reader's time-out is evicted", "the lock is free when a JVM leaves it; told at the next renewal");
}
