//! Holds that end under their holder: leases that run out, and force unlocks.

use super::Kind;
use crate::threads::{LONG, Mark, SOON, elsewhere, finish, ms, run_out, spawn_asleep, while_held_elsewhere};
use redlatch::{Hold, HoldState, LossCause, RedLock, RedLockExt};
use std::time::{Duration, Instant};

/// A lease that a test lets run out.
const SHORT: Duration = Duration::from_millis(60);

/// A hold of the current thread whose lease has run out.
fn expired<L: RedLock>(lock: &L) -> Hold {
    lock.lock_with_lease("n", SHORT).unwrap();
    let hold = lock.hold("n").unwrap();
    run_out(&hold);
    hold
}

/// A hold of the current thread that was taken away.
fn removed<L: RedLock>(lock: &L) -> Hold {
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    assert!(lock.force_unlock("n").unwrap());
    hold
}

pub(super) fn a_lease_that_runs_out_frees_the_lock<K: Kind>() {
    let lock = K::start();
    let start = Instant::now();
    let hold = expired(&*lock);
    assert!(start.elapsed() > SHORT - ms(5), "lost too early");
    assert_eq!((hold.state(), hold.is_valid(), hold.remaining()), (HoldState::Lost, false, Duration::ZERO));
    assert!(!lock.is_held_by_current_thread("n"));
    assert!(elsewhere(|| lock.try_lock_for("n", LONG).unwrap() && lock.unlock("n").is_ok()));
    assert_err!(lock.unlock("n"), Lost);
}

pub(super) fn a_try_with_a_lease_ends_by_itself<K: Kind>() {
    let lock = K::start();
    assert!(lock.try_lock_with_lease("n", SHORT).unwrap());
    run_out(&lock.hold("n").unwrap());
    assert_err!(lock.unlock("n"), Lost);
    assert!(lock.try_lock_with_lease("n", LONG).unwrap());
    let hold = lock.hold("n").unwrap();
    assert!(hold.remaining() <= LONG && lock.remaining_time_to_live("n").unwrap().unwrap() <= LONG);
    lock.unlock("n").unwrap();
}

pub(super) fn a_late_unlock_says_lost<K: Kind>() {
    let lock = K::start();
    expired(&*lock);
    assert_eq!(lock.hold_count("n"), 1, "the unlock is still due");
    assert_err!(lock.unlock("n"), Lost);
    assert_err!(lock.unlock("n"), NotHeld);
    lock.lock("n").unwrap();
    lock.unlock("n").unwrap();
}

pub(super) fn a_late_unlock_never_frees_the_next_holders_lock<K: Kind>() {
    let lock = K::start();
    expired(&*lock);
    while_held_elsewhere(&*lock, "n", |_| {
        assert_err!(lock.unlock("n"), Lost);
        assert!(lock.is_locked("n").unwrap());
        assert!(!lock.try_lock("n").unwrap());
    });
}

pub(super) fn a_guard_of_a_lost_hold_never_frees_a_later_one<K: Kind>() {
    let lock = K::start();
    let guard = lock.request("n").lease(SHORT).guard().unwrap().unwrap();
    run_out(&guard);
    while_held_elsewhere(&*lock, "n", |hold| {
        drop(guard);
        assert!(hold.is_valid() && lock.is_locked("n").unwrap());
    });
}

pub(super) fn a_released_hold_never_frees_a_later_one<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let old = lock.hold("n").unwrap();
    lock.unlock("n").unwrap();
    let lost = removed(&*lock);
    assert_err!(lock.unlock("n"), Lost);
    let guard = lock.guard("n").unwrap();
    assert_err!(lock.release(&old), NotHeld);
    assert_err!(lock.release(&lost), NotHeld);
    assert!(lock.verify(&guard).unwrap());
    assert_eq!(guard.count(), 1);
}

pub(super) fn a_lost_hold_cannot_be_re_entered_until_it_is_unlocked<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    removed(&*lock);
    for _ in 0..2 {
        assert_err!(lock.lock("n"), Lost);
        assert_err!(lock.try_lock("n"), Lost);
        assert_err!(lock.try_lock_for("n", LONG), Lost);
        assert_err!(lock.execute_in_lock("n", || unreachable!("without the lock")), Lost);
        assert!(!lock.is_locked("n").unwrap(), "nothing was taken");
        assert_err!(lock.unlock("n"), Lost);
    }
    assert_eq!(lock.hold_count("n"), 0);
    lock.lock("n").unwrap();
    lock.unlock("n").unwrap();
}

pub(super) fn a_force_unlock_makes_the_holder_lost<K: Kind>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    assert!(elsewhere(|| lock.force_unlock("n").unwrap()));
    assert_eq!((guard.state(), guard.is_valid()), (HoldState::Lost, false));
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    assert!(!lock.is_locked("n").unwrap());
    assert_err!(guard.unlock(), Lost);
}

pub(super) fn a_force_unlock_of_a_free_lock_is_false<K: Kind>() {
    let lock = K::start();
    assert!(!lock.force_unlock("n").unwrap());
    drop(lock.guard("n").unwrap());
    assert!(!lock.force_unlock("n").unwrap());
}

pub(super) fn a_force_unlock_wakes_waiters<K: Kind>() {
    let lock = K::start();
    lock.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let wait = || lock.try_lock_for("n", LONG).and_then(|got| lock.unlock("n").map(|()| got));
        let waiters: Vec<_> = (0..3).map(|_| spawn_asleep(scope, wait)).collect();
        let forced = Mark::now();
        assert!(lock.force_unlock("n").unwrap());
        for waiter in waiters {
            let (got, when) = finish(waiter);
            assert!(matches!(got, Ok(true)), "{got:?}");
            assert!(when - forced <= SOON, "woken after {:?}", when - forced);
        }
    });
    assert_err!(lock.unlock("n"), Lost);
}

pub(super) fn a_lost_hold_stays_lost<K: Kind>() {
    let lock = K::start();
    for hold in [expired(&*lock), {
        let _ = lock.unlock("n");
        removed(&*lock)
    }] {
        assert_err!(hold.extend(LONG), Lost);
        assert!(!lock.verify(&hold).unwrap());
        assert!(!lock.is_held_by_current_thread("n"));
        while_held_elsewhere(&*lock, "n", |later| {
            assert_eq!((hold.state(), later.state()), (HoldState::Lost, HoldState::Held));
        });
        assert_eq!((hold.state(), hold.is_valid()), (HoldState::Lost, false));
    }
    assert_err!(lock.unlock("n"), Lost);
    assert_eq!(lock.hold_count("n"), 0);
}

pub(super) fn every_listener_hears_of_a_loss_once<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    let early = [hold.lost().clone(), hold.lost()];
    assert!(early.iter().all(|lost| lost.try_recv().is_err()), "it is not lost yet");
    lock.force_unlock("n").unwrap();
    let [first, second] = early;
    for lost in [first.clone(), second, hold.lost()] {
        let news = lost.recv_timeout(LONG).unwrap();
        assert_eq!((news.resource(), news.owner(), news.cause()), ("n", hold.owner(), LossCause::Removed));
        assert!(lost.try_recv().is_err(), "told twice");
    }
    assert_err!(lock.unlock("n"), Lost);
    assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
}

pub(super) fn listeners_of_a_released_hold_are_disconnected<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    let lost = hold.lost();
    lock.unlock("n").unwrap();
    for lost in [lost, hold.lost()] {
        assert_eq!(lost.recv_timeout(LONG), Err(crossbeam_channel::RecvTimeoutError::Disconnected));
    }
}

pub(super) fn a_loss_is_no_news_to_a_later_hold<K: Kind>() {
    let lock = K::start();
    removed(&*lock);
    assert_err!(lock.unlock("n"), Lost);
    let guard = lock.guard("n").unwrap();
    assert!(guard.lost().try_recv().is_err());
    assert!(guard.is_valid() && lock.verify(&guard).unwrap());
}
