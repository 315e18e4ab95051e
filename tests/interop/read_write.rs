//! Redisson's `RReadWriteLock` and ours: readers of both programs together, a writer of either alone.

use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::servers::Servers;
use crate::setting::{FOR_EVER, Family, Holder, Ours, SentHome, Setting, asleep};
use crate::sides::{Java, Rust, Side, now};
use crate::threads::{LATE, LONG, eventually, finish, ms};
use crate::waking::wake_ups;
use redlatch::{ReadWriteLock, RedLock};
use std::sync::Barrier;
use std::time::Duration;

const READ: &str = "read.";
const WRITE: &str = "write.";
const AT_ONCE: Duration = Duration::ZERO;
const LEASE: Duration = Duration::from_secs(2);

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
    std::thread::scope(|scope| {
        let come = || {
            let side = side_on(setting, program, side, "other");
            let came = side.try_lock(name, AT_ONCE).0;
            if came {
                side.unlock(name);
            }
            came
        };
        finish(scope.spawn(come))
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

#[test]
fn readers_of_both_programs_are_together_and_a_writer_is_alone() {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, FOR_EVER);
    for name in ["n", "{order}:42", "order:{42}", "a{b", "a}b", "{}", "schloß/注文/🔒"] {
        ORDERS.iter().for_each(|order| come_and_go(&setting, name, *order));
    }
    setting.record("readers together, a writer alone", "7 names, either first; who leaves sees who stays");
}

#[test]
fn so_they_are_in_a_cluster() {
    for family in [Family::Sharded, Family::Plain] {
        let setting = Setting::new(family, Holder::Rust, FOR_EVER);
        for name in ["n", "{order}:42"] {
            ORDERS.iter().for_each(|order| come_and_go(&setting, name, *order));
        }
        setting.record("readers together, a writer alone", "2 names, either first; who leaves sees who stays");
    }
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

#[test]
fn who_writes_may_read_and_go_on_with_that() {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, FOR_EVER);
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

/// Redisson's tells nobody.
#[test]
fn our_downgrade_wakes_a_reader_there() {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, FOR_EVER);
    let [read, write] = [READ, WRITE].map(|of| side(&setting, Holder::Rust, of));
    let reader = side(&setting, Holder::Java, READ);
    write.lock("n");
    read.lock("n");
    let wait = || {
        let span = reader.lock("n");
        reader.unlock("n");
        span
    };
    let (waited, freed) = setting.while_asleep("n", wait, || write.unlock("n"));
    let woken = waited.after(freed);
    assert!(woken < LONG, "not woken: it came in after {woken:?}");
    read.unlock("n");
    setting.record("a downgrade wakes a reader", &format!("after {woken:.1?}, beside who went on to read"));
}

#[test]
fn those_who_wait_are_woken() {
    for (case, holds, waits) in [
        ("a reader wakes a writer", READ, WRITE),
        ("a writer wakes a reader", WRITE, READ),
        ("a writer wakes a writer", WRITE, WRITE),
    ] {
        for [holder, waiter] in ORDERS {
            let setting = Setting::new(Family::ReadWrite, holder, FOR_EVER);
            let sides = (side(&setting, holder, holds), side(&setting, waiter, waits));
            let figures = wake_ups(&setting, sides, |holder| holder.unlock("n"));
            setting.record(case, &figures);
        }
    }
}

const READERS: usize = 4;

/// They hold until all are in.
#[test]
fn all_readers_come_when_a_writer_leaves() {
    for [holder, _] in ORDERS {
        let setting = Setting::new(Family::ReadWrite, holder, FOR_EVER);
        let writer = side(&setting, holder, WRITE);
        writer.lock("n");
        let before = setting.servers.scripts_run();
        let names: Vec<_> = (0..READERS).map(|thread| format!("reader {thread}")).collect();
        let all_in = Barrier::new(2 * READERS);
        let read = |program: Holder, thread: &str| {
            let side = side_on(&setting, program, READ, thread);
            let (came, span) = side.try_lock("n", LONG);
            all_in.wait();
            assert!(came, "{program:?} is not in");
            side.unlock("n");
            span
        };
        let (spans, freed) = std::thread::scope(|scope| {
            let _home = SentHome(&setting.locks);
            let read = &read;
            let of = |program| names.iter().map(move |name| scope.spawn(move || read(program, name)));
            let readers: Vec<_> = of(Holder::Java).chain(of(Holder::Rust)).collect();
            eventually(LONG, "both programs ask", || setting.servers.scripts_run() >= before + 2);
            eventually(LONG, "both programs listen", || setting.servers.subscribers(&setting.family.channel("n")) == 2);
            std::thread::sleep(ms(100));
            let freed = writer.unlock("n");
            (readers.into_iter().map(finish).collect::<Vec<_>>(), freed)
        });
        let last = spans.iter().map(|span| span.after(freed)).max().unwrap();
        assert!(last < LONG, "{last:?}");
        setting.record("all readers come at once", &format!("{} threads, the last after {last:.1?}", spans.len()));
    }
}

/// As a reader of the one lock and as the writer of the other.
#[test]
fn a_killed_jvm_keeps_nobody_out_beyond_its_lease() {
    let mut setting = Setting::new(Family::ReadWrite, Holder::Java, LEASE);
    side(&setting, Holder::Java, READ).lock("r");
    side(&setting, Holder::Java, WRITE).lock("w");
    let locks = ReadWriteLock::new(setting.locks.client());
    let (writer, reader) = (Rust(Ours::Write(locks.write().clone())), Rust(Ours::Read(locks.read().clone())));
    let (waited, killed) = std::thread::scope(|scope| {
        let before = setting.servers.scripts_run();
        let writes = scope.spawn(|| lock_and_unlock(&writer, "r"));
        let reads = scope.spawn(|| lock_and_unlock(&reader, "w"));
        ["r", "w"].iter().for_each(|name| asleep(&setting.servers, &Family::ReadWrite.channel(name), before));
        let killed = now();
        setting.jvm.kill();
        ([finish(writes), finish(reads)], killed)
    });
    assert_free_within_the_lease(&setting, killed, waited);
}

#[test]
fn a_killed_rust_process_keeps_nobody_out_beyond_its_lease() {
    with_peer(|url| hold_until_killed(url, LEASE), process_is_killed);
}

fn hold_until_killed(url: &str, lease: Duration) {
    let locks = Family::ReadWrite.locks(&Servers::url_beside(url), lease, "");
    ReadWriteLock::new(locks.client()).read().lock("r").unwrap();
    locks.lock("w").unwrap();
    tell(url, "held");
    std::thread::park();
}

fn process_is_killed(start: &dyn Fn(&Server) -> Peer) {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, LEASE);
    let peer = start(&setting.servers.news);
    assert_eq!(hear(&setting.servers.news), "held");
    let before = setting.servers.scripts_run();
    let writer = side(&setting, Holder::Java, WRITE);
    let reader = side_on(&setting, Holder::Java, READ, "other");
    let (waited, killed) = std::thread::scope(|scope| {
        let writes = scope.spawn(|| lock_and_unlock(&*writer, "r"));
        let reads = scope.spawn(|| lock_and_unlock(&*reader, "w"));
        ["r", "w"].iter().for_each(|name| asleep(&setting.servers, &Family::ReadWrite.channel(name), before));
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

/// The ousted learns of it later, and its program keeps its own threads out until then.
#[test]
fn a_force_unlock_of_a_side_ousts_who_has_it() {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, FOR_EVER);
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
    let left: Vec<String> = setting.servers.news.ask(&["KEYS", "*:rwlock_timeout:*"]);
    assert_eq!(left.len(), 1, "{left:?}");
    setting.servers.news.ask::<i64>(&["DEL", &left[0]]);
    setting.record("ousted by forceUnlock of a side", "its unlock says so, and touches nobody");
}

/// Ours leaves those who read to read on; Redisson's frees both sides.
#[test]
fn a_force_unlock_of_a_writer_that_reads() {
    let setting = Setting::new(Family::ReadWrite, Holder::Rust, FOR_EVER);
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

/// Redisson's renewal sets the lock's TTL to its own lease, also where a reader of ours has longer. Our own renewal puts that right;
/// when the JVM dies before, the lock ends with its lease, and who reads here learns of it when it asks.
#[test]
fn a_jvm_with_a_shorter_lease_cuts_that_of_the_lock() {
    let mut setting = Setting::new(Family::ReadWrite, Holder::Java, LEASE);
    let longer = Family::ReadWrite.locks(&setting.servers.url(), FOR_EVER, "");
    let readers = ReadWriteLock::new(longer.client()).read().clone();
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
