//! Taking a lock, giving it back, and what a hold and its guards say meanwhile.

use super::{Fixture, Kind};
use crate::threads::{LONG, WATCHED, elsewhere, eventually, ms, while_held_elsewhere};
use redlatch::{HoldState, RedLock, RedLockExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub(super) fn sixteen_threads_exclude_each_other<K: Kind>() {
    let lock = K::start();
    let (counter, inside) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        for _ in 0..25 {
            lock.lock("n").unwrap();
            assert!(!inside.swap(true, SeqCst), "two threads hold the lock");
            let seen = counter.load(SeqCst);
            std::thread::yield_now();
            counter.store(seen + 1, SeqCst);
            inside.store(false, SeqCst);
            lock.unlock("n").unwrap();
        }
    };
    std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(counter.into_inner(), 16 * 25);
}

pub(super) fn names_do_not_block_each_other<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "a", |_| {
        assert!(lock.try_lock("b").unwrap());
        assert!(!lock.try_lock("a").unwrap());
        lock.unlock("b").unwrap();
    });
}

pub(super) fn names_may_be_of_any_characters<K: Kind>() {
    let lock = K::start();
    let long = "x".repeat(1_024);
    let names = ["{}", "}{", "{a}b", "a", "a ", "\r\n", "\0", "a\0", "ü€🦀", "*", "$5\r\n", "?[a-z]\\", &long];
    for name in names {
        assert!(lock.try_lock(name).unwrap(), "{name:?}");
    }
    for name in names {
        assert_eq!(lock.hold(name).unwrap().resource(), name);
        assert!(elsewhere(|| lock.is_locked(name).unwrap() && !lock.try_lock(name).unwrap()), "{name:?}");
        lock.unlock(name).unwrap();
        assert!(!lock.is_locked(name).unwrap(), "{name:?}");
    }
}

pub(super) fn a_try_of_what_another_thread_holds_is_busy<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        assert!(!lock.try_lock("n").unwrap());
        assert!(lock.hold("n").is_none());
    });
    assert!(lock.try_lock("n").unwrap());
    lock.unlock("n").unwrap();
}

pub(super) fn unlocking_what_was_never_locked_is_an_error<K: Kind>() {
    let lock = K::start();
    assert_err!(lock.unlock("n"), NotHeld);
}

pub(super) fn unlocking_once_too_often_is_an_error<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    lock.unlock("n").unwrap();
    assert_err!(lock.unlock("n"), NotHeld);
    assert_err!(lock.release(&hold), NotHeld);
}

pub(super) fn another_thread_cannot_unlock<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |hold| {
        assert_err!(lock.unlock("n"), NotHeld);
        assert_err!(lock.release(hold), NotHeld);
        assert!(hold.is_valid());
        assert_eq!(hold.count(), 1);
    });
}

pub(super) fn a_hold_tells_what_it_is<K: Kind>() {
    let lock = K::start();
    let before = Instant::now();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    assert_eq!((hold.resource(), hold.count(), hold.state()), ("n", 1, HoldState::Held));
    assert_eq!(hold.thread(), std::thread::current().id());
    assert!(hold.is_valid());
    assert!(before <= hold.acquired_at() && hold.acquired_at() <= Instant::now());
    assert!(hold.remaining() > Duration::from_secs(20) && hold.remaining() <= Duration::from_secs(30));
    assert_eq!(hold.owner().split(':').count(), 3);
    lock.unlock("n").unwrap();
}

pub(super) fn each_acquisition_is_a_hold_of_its_own<K: Kind>() {
    let lock = K::start();
    let mut owners = Vec::new();
    for _ in 0..3 {
        owners.push(lock.guard("n").unwrap().owner().to_owned());
    }
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 3);
}

pub(super) fn a_released_hold_reads_released<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    lock.unlock("n").unwrap();
    assert_eq!((hold.count(), hold.state(), hold.is_valid()), (0, HoldState::Released, false));
    assert_eq!(hold.remaining(), Duration::ZERO);
    assert!(lock.hold("n").is_none());
}

pub(super) fn threads_are_told_apart<K: Kind>() {
    let lock = K::start();
    let me = std::thread::current().id();
    while_held_elsewhere(&*lock, "n", |hold| {
        assert!(lock.is_held_by_thread("n", hold.thread()));
        assert!(!lock.is_held_by_thread("n", me));
        assert!(!lock.is_held_by_current_thread("n"));
        assert_eq!(lock.hold_count("n"), 0);
        assert_eq!(lock.hold_of("n", hold.thread()).unwrap().owner(), hold.owner());
    });
    let guard = lock.guard("n").unwrap();
    assert!(lock.is_held_by_current_thread("n") && lock.is_held_by_thread("n", me));
    assert!(elsewhere(|| !lock.is_held_by_current_thread("n")));
    drop(guard);
    assert!(!lock.is_held_by_thread("n", me));
}

pub(super) fn the_store_is_asked_for_lock_and_time_to_live<K: Kind>() {
    let lock = K::start();
    assert!(!lock.is_locked("n").unwrap());
    assert_eq!(lock.remaining_time_to_live("n").unwrap(), None);
    lock.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    assert!(elsewhere(|| lock.is_locked("n").unwrap()));
    let left = lock.remaining_time_to_live("n").unwrap().unwrap();
    assert!(left > Duration::from_secs(40) && left <= Duration::from_secs(60), "{left:?}");
    lock.unlock("n").unwrap();
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn verify_asks_the_store<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    assert!(lock.verify(&hold).unwrap());
    assert!(elsewhere(|| lock.verify(&hold).unwrap()));
    lock.unlock("n").unwrap();
    assert!(!lock.verify(&hold).unwrap());
    assert!(!lock.is_locked("n").unwrap(), "verify takes nothing");
}

pub(super) fn extend_prolongs_and_never_shortens<K: Kind>() {
    let lock = K::start();
    lock.lock_with_lease("n", Duration::from_secs(5)).unwrap();
    let hold = lock.hold("n").unwrap();
    for lease in [3_600, 1] {
        hold.extend(Duration::from_secs(lease)).unwrap();
        assert!(hold.remaining() > Duration::from_secs(3_500));
        assert!(lock.remaining_time_to_live("n").unwrap().unwrap() > Duration::from_secs(3_500));
    }
    lock.unlock("n").unwrap();
    assert_err!(hold.extend(Duration::from_secs(60)), NotHeld);
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn extend_has_the_bounds_of_a_lease<K: Kind>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    for lease in [Duration::ZERO, Duration::from_nanos(1), ms(9), Duration::MAX] {
        assert_err!(guard.extend(lease), Config);
    }
    assert!(guard.is_valid());
}

pub(super) fn a_guard_unlocks_when_dropped<K: Kind>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    assert!(lock.is_locked("n").unwrap());
    let hold = guard.hold().clone();
    drop(guard);
    assert!(!lock.is_locked("n").unwrap());
    assert_eq!(hold.state(), HoldState::Released);
}

pub(super) fn a_guard_says_how_its_unlock_ended<K: Kind>() {
    let lock = K::start();
    lock.guard("n").unwrap().unlock().unwrap();
    assert!(!lock.is_locked("n").unwrap());
    let guard = lock.guard("n").unwrap();
    lock.force_unlock("n").unwrap();
    assert_err!(guard.unlock(), Lost);
    assert_eq!(lock.hold_count("n"), 0, "the guard is gone in any case");
}

pub(super) fn an_owned_guard_outlives_its_lock_object<K: Kind>() {
    let lock = K::start();
    let share = Arc::clone(&lock.lock);
    let guard = share.owned_guard("n").unwrap();
    drop(share);
    assert!(guard.is_valid() && lock.is_locked("n").unwrap());
    drop(guard);
    assert!(!lock.is_locked("n").unwrap());
    lock.lock.owned_guard("n").unwrap().unlock().unwrap();
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_try_for_a_guard_is_none_when_busy<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| assert!(lock.try_guard("n").unwrap().is_none()));
    assert!(lock.try_guard("n").unwrap().is_some());
}

pub(super) fn a_hold_can_be_asked_from_other_threads<K: Kind>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    let seen = elsewhere(|| (guard.is_valid(), guard.count(), guard.state(), guard.extend(LONG * 3)));
    assert!(matches!(seen, (true, 1, HoldState::Held, Ok(()))), "{seen:?}");
    guard.unlock().unwrap();
}

pub(super) fn a_watched_hold_is_renewed<K: Kind>() {
    let lock = K::start();
    let guard = lock.request("n").renewed_lease(WATCHED).guard().unwrap().unwrap();
    let mut left = guard.remaining();
    eventually(LONG, "it is valid for longer again", || {
        let before = std::mem::replace(&mut left, guard.remaining());
        assert!(guard.is_valid(), "{guard:?}");
        left > before
    });
    guard.unlock().unwrap();
}

pub(super) fn a_lock_that_is_dropped_gives_back_what_it_holds<K: Kind>() {
    let Fixture { lock, below } = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    assert!(hold.is_valid());
    drop(lock);
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Released, false));
    drop(below);
}
