//! Waiting for a lock, and ceasing to.

use super::Kind;
use crate::threads::{
    LATE, LONG, Mark, SOON, answered, elsewhere, eventually, finish, ms, spawn_asleep, while_held_elsewhere,
};
use redlatch::{CancelToken, RedLock};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

pub(super) fn a_wait_in_vain_ends_in_time<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        for wait in [ms(1), ms(50), ms(300)] {
            let (got, took) = answered(|| lock.try_lock_for("n", wait));
            assert!(!got && took >= wait && took <= wait + LATE, "{wait:?} took {took:?}");
        }
    });
}

pub(super) fn a_wait_of_zero_tries_once<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        let (got, took) = answered(|| lock.try_lock_for("n", Duration::ZERO));
        assert!(!got && took <= LATE, "took {took:?}");
    });
    assert!(lock.try_lock_for("n", Duration::ZERO).unwrap());
    lock.unlock("n").unwrap();
}

pub(super) fn a_try_with_a_lease_does_not_wait<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        let (got, took) = answered(|| lock.try_lock_with_lease("n", LONG));
        assert!(!got && took <= LATE, "took {took:?}");
        assert_eq!(lock.hold_count("n"), 0);
    });
}

pub(super) fn a_wait_of_max_waits_for_the_lock<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || lock.try_lock_for("n", Duration::MAX).unwrap() && lock.unlock("n").is_ok());
        assert!(!waiter.is_finished());
        lock.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
}

pub(super) fn an_unlock_wakes_a_waiter<K: Kind>() {
    let lock = K::start();
    lock.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || lock.try_lock_for("n", LONG).unwrap() && lock.unlock("n").is_ok());
        let unlocked = Mark::now();
        lock.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

pub(super) fn every_waiter_is_served<K: Kind>() {
    let lock = K::start();
    let served = AtomicUsize::new(0);
    lock.lock("n").unwrap();
    std::thread::scope(|scope| {
        let wait = || {
            assert!(lock.try_lock_for("n", LONG).unwrap());
            served.fetch_add(1, SeqCst);
            lock.unlock("n").unwrap();
        };
        let waiters: Vec<_> = (0..8).map(|_| spawn_asleep(scope, wait)).collect();
        assert_eq!(served.load(SeqCst), 0);
        lock.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| finish(waiter).0);
    });
    assert_eq!(served.into_inner(), 8);
}

pub(super) fn a_waiter_takes_over_when_the_lease_runs_out<K: Kind>() {
    let lock = K::start();
    let lease = ms(300);
    let start = Mark::now();
    lock.lock_with_lease("n", lease).unwrap();
    let granted = Mark::now();
    let got = elsewhere(|| {
        let got = lock.try_lock_for("n", LONG).unwrap();
        let now = Mark::now();
        lock.unlock("n").unwrap();
        got.then_some(now)
    });
    let got = got.expect("it was free in time");
    assert!(got - start >= lease - ms(1), "taken over while it was held");
    // The server may be later than this process sees.
    assert!(got - granted <= lease + SOON, "taken over after {:?}", got - granted);
    assert_err!(lock.unlock("n"), Lost);
}

pub(super) fn a_wait_in_vain_leaves_nothing_behind<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        assert!(!answered(|| lock.try_lock_for("n", ms(50))).0);
        assert_eq!(lock.hold_count("n"), 0);
        assert_err!(lock.unlock("n"), NotHeld);
    });
    assert!(!lock.is_locked("n").unwrap());
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
}

pub(super) fn a_cancelled_token_ends_the_wait<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    while_held_elsewhere(&*lock, "n", |_| {
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| spawn_asleep(scope, || lock.lock_cancellable("n", &token))).collect();
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            let cancelled = Mark::now();
            token.cancel();
            for waiter in waiters {
                let (result, when) = finish(waiter);
                assert_err!(result, Cancelled);
                assert!(when - cancelled <= SOON, "ended after {:?}", when - cancelled);
            }
        });
    });
}

pub(super) fn a_token_cancelled_before_prevents_the_lock<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    token.cancel();
    assert_err!(lock.lock_cancellable("n", &token), Cancelled);
    assert!(!lock.is_locked("n").unwrap());
    assert_eq!(lock.hold_count("n"), 0);
}

pub(super) fn a_cancelled_wait_leaves_nothing_behind<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    while_held_elsewhere(&*lock, "n", |_| {
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || {
                assert_err!(lock.lock_cancellable("n", &token), Cancelled);
                lock.hold_count("n")
            });
            token.cancel();
            assert_eq!(finish(waiter).0, 0);
        });
    });
    // Until the background has taken its place out of a queue, an unlock may give it the lock.
    eventually(LONG, "it is free", || !lock.is_locked("n").unwrap());
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
}

pub(super) fn cancelling_does_not_touch_what_is_held<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    lock.lock_cancellable("n", &token).unwrap();
    token.cancel();
    assert!(lock.is_held_by_current_thread("n") && lock.is_locked("n").unwrap());
    lock.unlock("n").unwrap();
}

pub(super) fn waiters_behind_one_that_gives_up_are_served<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    lock.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let first = spawn_asleep(scope, || lock.lock_cancellable("n", &token));
        let second = spawn_asleep(scope, || lock.try_lock_for("n", LONG).unwrap() && lock.unlock("n").is_ok());
        token.cancel();
        assert_err!(finish(first).0, Cancelled);
        let unlocked = Mark::now();
        lock.unlock("n").unwrap();
        let (got, when) = finish(second);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}
