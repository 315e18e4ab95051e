//! What the two sides of a read-write lock are to each other.

use super::Kind;
use crate::threads::{LONG, Mark, SOON, elsewhere, finish, spawn_asleep};
use redlatch::{Hold, LocalReadWriteLock, ReadLock, ReadWriteLock, RedLock, RedLockExt, Result, Terms};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::Duration;

/// A side of readers that knows the other.
pub(super) trait Reads: RedLock {
    fn other(&self) -> Arc<dyn RedLock>;
}

impl Reads for ReadLock {
    fn other(&self) -> Arc<dyn RedLock> {
        Arc::new(ReadWriteLock::new(self.client()).write().clone())
    }
}

/// In memory a side alone does not know the other.
#[derive(Default)]
pub(super) struct LocalReads(LocalReadWriteLock);

impl Reads for LocalReads {
    fn other(&self) -> Arc<dyn RedLock> {
        Arc::new(self.0.write().clone())
    }
}

impl RedLock for LocalReads {
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        self.0.read().acquire(resource, terms)
    }

    fn release(&self, hold: &Hold) -> Result<()> {
        self.0.read().release(hold)
    }

    fn verify(&self, hold: &Hold) -> Result<bool> {
        self.0.read().verify(hold)
    }

    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        self.0.read().hold_of(resource, thread)
    }

    fn force_unlock(&self, resource: &str) -> Result<bool> {
        self.0.read().force_unlock(resource)
    }

    fn is_locked(&self, resource: &str) -> Result<bool> {
        self.0.read().is_locked(resource)
    }

    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        self.0.read().remaining_time_to_live(resource)
    }
}

pub(super) fn readers_are_together_and_writers_alone<K: Kind<Lock: Reads>>() {
    let lock = K::start();
    let writer = lock.other();
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let writes = || {
        let guard = writer.guard("n").unwrap();
        let seen = first.load(SeqCst);
        first.store(seen + 1, SeqCst);
        std::thread::yield_now();
        second.store(seen + 1, SeqCst);
        guard.unlock().unwrap();
    };
    let reads = || {
        let guard = lock.guard("n").unwrap();
        assert!(elsewhere(|| !writer.try_lock("n").unwrap()));
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

pub(super) fn a_reader_goes_in_beside_another<K: Kind<Lock: Reads>>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
    assert!(elsewhere(|| lock.request("n").lease(LONG).guard().unwrap().is_some()));
    guard.unlock().unwrap();
}

pub(super) fn each_side_is_woken_by_the_other<K: Kind<Lock: Reads>>() {
    let lock = K::start();
    let writer = lock.other();
    for (holds, waits) in [(&*lock as &dyn RedLock, &*writer), (&*writer, &*lock)] {
        holds.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || waits.try_lock_for("n", LONG).unwrap() && waits.unlock("n").is_ok());
            let unlocked = Mark::now();
            holds.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
        });
    }
}
