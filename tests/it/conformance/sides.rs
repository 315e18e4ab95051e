//! What the two sides of a read-write lock are to each other.

use super::Kind;
use crate::threads::{LONG, SOON, elsewhere, finish, spawn_asleep};
use redlatch::{ReadLock, ReadWriteLock, RedLock, RedLockExt};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Both of them.
fn sides<K: Kind<Lock = ReadLock>>(of: &super::Fixture<K::Lock>) -> ReadWriteLock {
    ReadWriteLock::new(of.client())
}

pub(super) fn readers_are_together_and_writers_alone<K: Kind<Lock = ReadLock>>() {
    let lock = K::start();
    let locks = sides::<K>(&lock);
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let writes = || {
        let guard = locks.write().guard("n").unwrap();
        let seen = first.load(SeqCst);
        first.store(seen + 1, SeqCst);
        std::thread::yield_now();
        second.store(seen + 1, SeqCst);
        guard.unlock().unwrap();
    };
    let reads = || {
        let guard = lock.guard("n").unwrap();
        assert!(elsewhere(|| !locks.write().try_lock("n").unwrap()));
        assert_eq!(first.load(SeqCst), second.load(SeqCst));
        guard.unlock().unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| writes()));
            scope.spawn(|| (0..10).for_each(|_| reads()));
        }
    });
    assert_eq!(first.into_inner(), 40);
}

pub(super) fn a_reader_goes_in_beside_another<K: Kind<Lock = ReadLock>>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
    assert!(elsewhere(|| lock.request("n").lease(LONG).guard().unwrap().is_some()));
    guard.unlock().unwrap();
}

pub(super) fn each_side_is_woken_by_the_other<K: Kind<Lock = ReadLock>>() {
    let lock = K::start();
    let locks = sides::<K>(&lock);
    for (holds, waits) in [(locks.read() as &dyn RedLock, locks.write() as &dyn RedLock), (locks.write(), locks.read())]
    {
        holds.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || waits.try_lock_for("n", LONG).unwrap() && waits.unlock("n").is_ok());
            let unlocked = Instant::now();
            holds.unlock("n").unwrap();
            assert!(finish(waiter).0 && unlocked.elapsed() <= SOON, "woken after {:?}", unlocked.elapsed());
        });
    }
}
