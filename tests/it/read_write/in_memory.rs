//! The two sides in memory: as on a server, and what a test plans for each.

use crate::threads::{
    LONG, Mark, SOON, elsewhere, eventually, finish, ms, run_out, spawn_asleep, while_held_elsewhere,
};
use redlatch::{Error, LocalReadWriteLock, LossCause, MultiLock, RedLock, RedLockExt};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

fn writes_elsewhere(locks: &LocalReadWriteLock) -> bool {
    elsewhere(|| locks.write().try_lock("n").unwrap() && locks.write().unlock("n").is_ok())
}

fn reads_elsewhere(locks: &LocalReadWriteLock) -> bool {
    elsewhere(|| locks.read().try_lock("n").unwrap() && locks.read().unlock("n").is_ok())
}

#[test]
fn readers_are_together_and_a_writer_is_alone_in_memory() {
    let locks = LocalReadWriteLock::new();
    let reading = locks.read().guard("n").unwrap();
    assert!(reads_elsewhere(&locks) && !writes_elsewhere(&locks));
    assert!(locks.read().is_locked("n").unwrap() && !locks.write().is_locked("n").unwrap());
    assert!(locks.write().remaining_time_to_live("n").unwrap().is_none() && reading.token().is_none());
    reading.unlock().unwrap();
    let writing = locks.write().guard("n").unwrap();
    assert!(!reads_elsewhere(&locks) && !writes_elsewhere(&locks));
    assert!(locks.write().is_locked("n").unwrap() && !locks.read().is_locked("n").unwrap());
    assert!(locks.read().remaining_time_to_live("n").unwrap().is_none());
    writing.unlock().unwrap();
    assert!(reads_elsewhere(&locks) && writes_elsewhere(&locks));
}

#[test]
fn nobody_reads_or_writes_beside_a_writer_in_memory() {
    let locks = LocalReadWriteLock::new();
    let (first, second, together) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(4));
    let writes = || {
        let guard = locks.write().guard("n").unwrap();
        let seen = first.load(SeqCst);
        first.store(seen + 1, SeqCst);
        std::thread::yield_now();
        second.store(seen + 1, SeqCst);
        guard.unlock().unwrap();
    };
    let reads = || {
        let guard = locks.read().guard("n").unwrap();
        assert_eq!(first.load(SeqCst), second.load(SeqCst), "a writer is at work");
        guard.unlock().unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| writes()));
            scope.spawn(|| (0..200).for_each(|_| reads()));
            scope.spawn(|| locks.read().execute_in_lock("m", || together.wait()).unwrap());
        }
    });
    assert_eq!((first.into_inner(), second.into_inner()), (800, 800));
}

/// As on a server, and before any plan is met.
#[test]
fn who_reads_in_memory_and_asks_to_write_is_told_so_at_once() {
    let locks = LocalReadWriteLock::new();
    let guard = locks.read().guard("n").unwrap();
    locks.write().fail_next(Error::closed("n"));
    let error = locks.write().lock("n").unwrap_err();
    assert!(matches!(&error, Error::Config { .. }) && error.to_string().contains("as a local read lock"), "{error}");
    assert_eq!(locks.write().planned(), 1, "it never goes to a server");
    guard.unlock().unwrap();
    assert_err!(locks.write().lock("n"), Closed);
}

#[test]
fn who_writes_in_memory_may_read_and_go_on_reading() {
    let locks = LocalReadWriteLock::new();
    for releases_read_first in [false, true] {
        let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
        assert!(!reads_elsewhere(&locks) && !writes_elsewhere(&locks));
        assert!(locks.read().is_locked("n").unwrap() && locks.write().is_locked("n").unwrap());
        if releases_read_first {
            read.unlock().unwrap();
            assert!(!reads_elsewhere(&locks));
            write.unlock().unwrap();
            continue;
        }
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || locks.read().guard("n").unwrap().unlock().unwrap());
            let unlocked = Mark::now();
            write.unlock().unwrap();
            let ((), when) = finish(waiter);
            assert!(when - unlocked <= SOON, "told after {:?}", when - unlocked);
        });
        assert!(read.is_valid() && locks.read().verify(read.hold()).unwrap() && !writes_elsewhere(&locks));
        read.unlock().unwrap();
    }
    assert!(writes_elsewhere(&locks));
}

#[test]
fn leases_in_memory_end_for_each_side_and_holder() {
    let locks = LocalReadWriteLock::new();
    let brief = locks.write().request("n").lease(ms(100)).guard().unwrap().unwrap();
    let read = locks.read().guard("n").unwrap();
    assert!(elsewhere(|| locks.read().try_lock_for("n", LONG).unwrap() && locks.read().unlock("n").is_ok()));
    run_out(brief.hold());
    assert_err!(brief.unlock(), Lost);
    assert!(read.is_valid() && !writes_elsewhere(&locks));
    let short = elsewhere(|| {
        locks.read().lock_with_lease("n", SOON).unwrap();
        locks.read().hold("n").unwrap()
    });
    read.unlock().unwrap();
    assert!(!writes_elsewhere(&locks) && short.is_valid());
    assert!(locks.write().try_lock_for("n", LONG).unwrap());
    assert!(!short.is_valid());
    locks.write().unlock("n").unwrap();
}

#[test]
fn a_force_unlock_in_memory_is_of_one_side() {
    let locks = LocalReadWriteLock::new();
    assert!(!locks.read().force_unlock("n").unwrap() && !locks.write().force_unlock("n").unwrap());
    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    assert!(locks.write().force_unlock("n").unwrap());
    assert!(!write.is_valid() && read.is_valid() && reads_elsewhere(&locks) && !writes_elsewhere(&locks));
    assert_err!(write.unlock(), Lost);
    assert!(!locks.write().force_unlock("n").unwrap() && locks.read().force_unlock("n").unwrap());
    assert!(!read.is_valid() && writes_elsewhere(&locks));
    assert_err!(read.unlock(), Lost);
}

/// Ends the work of other threads, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// One of two readers is in at any time: each stays until the other is there, for as long as that can come.
#[test]
fn a_writer_does_not_starve_in_memory() {
    let locks = LocalReadWriteLock::new();
    let (stop, entered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reads = || {
        while !stop.load(SeqCst) {
            let guard = locks.read().guard("n").unwrap();
            let (mine, since) = (entered.fetch_add(1, SeqCst) + 1, Instant::now());
            while entered.load(SeqCst) == mine && since.elapsed() < ms(200) {
                std::thread::sleep(ms(1));
            }
            guard.unlock().unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(reads);
        scope.spawn(reads);
        let _stop = Stop(&stop);
        eventually(LONG, "they read", || entered.load(SeqCst) > 10);
        for _ in 0..5 {
            assert!(locks.write().try_lock_for("n", LONG).unwrap(), "it starved");
            locks.write().unlock("n").unwrap();
        }
    });
}

#[test]
fn a_writer_that_gives_up_in_memory_lets_readers_in() {
    let locks = LocalReadWriteLock::new();
    while_held_elsewhere(locks.read(), "n", |_| {
        std::thread::scope(|scope| {
            let writer = spawn_asleep(scope, || assert!(!locks.write().try_lock_for("n", ms(1_500)).unwrap()));
            assert!(!reads_elsewhere(&locks), "a new reader comes after it");
            let reader = spawn_asleep(scope, || locks.read().guard("n").unwrap().unlock().unwrap());
            finish(writer);
            let given_up = Mark::now();
            let ((), when) = finish(reader);
            assert!(when - given_up <= SOON, "let in after {:?}", when - given_up);
        });
        assert!(!writes_elsewhere(&locks) && reads_elsewhere(&locks), "a try leaves nothing");
    });
}

#[test]
fn each_side_meets_its_own_plans() {
    let locks = LocalReadWriteLock::new();
    locks.read().fail_next(Error::unavailable("n", "as planned")).lose_next("n");
    locks.write().busy_next("n");
    assert!(!locks.write().try_lock("n").unwrap() && writes_elsewhere(&locks));
    assert_err!(locks.read().lock("n"), Unavailable);
    let other = locks.clone();
    while_held_elsewhere(other.write(), "n", |_| assert!(!locks.read().try_lock("n").unwrap()));
    let beside = Barrier::new(2);
    std::thread::scope(|scope| {
        locks.read().pass_next("m");
        let reader = scope.spawn(|| {
            let guard = locks.read().guard("m").unwrap();
            beside.wait();
            beside.wait();
            guard.unlock()
        });
        beside.wait();
        locks.read().lose_next("m");
        let lost = locks.read().guard("m").unwrap();
        assert_eq!(lost.lost().recv().unwrap().cause(), LossCause::Removed);
        assert_err!(lost.unlock(), Lost);
        beside.wait();
        finish(reader).expect("what is planned for one reader befalls no other");
    });
    assert_err!(locks.read().guard("n").unwrap().unlock(), Lost);
    assert_eq!((locks.read().planned(), locks.write().planned()), (0, 0));
    assert!(writes_elsewhere(&locks));
}

#[test]
fn one_side_keeps_the_namespace_open() {
    let write = LocalReadWriteLock::new().write().clone();
    let hold = write.request("n").owned_guard().unwrap().unwrap();
    let locks = LocalReadWriteLock::default();
    assert!(hold.is_valid());
    assert!(locks.read().try_lock("n").unwrap(), "another namespace");
    locks.read().unlock("n").unwrap();
    hold.unlock().unwrap();
}

#[test]
fn sides_in_memory_go_into_groups() {
    let (locks, stock) = (LocalReadWriteLock::new(), LocalReadWriteLock::new());
    let group = MultiLock::of([(locks.read(), "n"), (stock.write(), "n"), (locks.write(), "m")]);
    let guard = group.guard().unwrap();
    assert!(reads_elsewhere(&locks) && !writes_elsewhere(&locks) && !reads_elsewhere(&stock));
    assert!(elsewhere(|| !group.try_lock().unwrap()));
    guard.unlock().unwrap();
    assert!(writes_elsewhere(&locks) && writes_elsewhere(&stock));
}
