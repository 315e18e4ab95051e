//! Levels: a thread that holds a lock takes it again, on the same terms or on others.

use super::Kind;
use crate::threads::{LONG, Mark, OUTLIVED, WATCHED, elsewhere, eventually, ms};
use redlatch::{CancelToken, HoldState, LossCause, RedLock, RedLockExt};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const ALMOST_AN_HOUR: Duration = Duration::from_secs(3_500);

pub(super) fn a_lock_is_free_after_as_many_unlocks<K: Kind>() {
    let lock = K::start();
    for depth in 1..=5 {
        lock.lock("n").unwrap();
        assert_eq!(lock.hold_count("n"), depth);
    }
    for depth in (0..5).rev() {
        assert!(elsewhere(|| !lock.try_lock("n").unwrap()), "free at depth {}", depth + 1);
        lock.unlock("n").unwrap();
        assert_eq!(lock.hold_count("n"), depth);
    }
    assert!(!lock.is_locked("n").unwrap());
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
}

pub(super) fn every_form_re_enters<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    lock.lock("n").unwrap();
    assert!(lock.try_lock("n").unwrap());
    assert!(lock.try_lock_for("n", Duration::ZERO).unwrap());
    assert!(lock.try_lock_for("n", LONG).unwrap());
    assert!(lock.try_lock_with_lease("n", LONG).unwrap());
    assert!(lock.try_lock_for_with_lease("n", LONG, LONG).unwrap());
    lock.lock_with_lease("n", LONG).unwrap();
    lock.lock_cancellable("n", &token).unwrap();
    let guard = lock.guard("n").unwrap();
    assert_eq!(lock.execute_in_lock("n", || lock.hold_count("n")).unwrap(), 10);
    assert_eq!(guard.count(), 9);
    guard.unlock().unwrap();
    (0..8).for_each(|_| lock.unlock("n").unwrap());
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_level_is_of_the_same_hold<K: Kind>() {
    let lock = K::start();
    let outer = lock.guard("n").unwrap();
    let inner = lock.guard("n").unwrap();
    assert_eq!(outer.owner(), inner.owner());
    assert_eq!((outer.count(), inner.count()), (2, 2));
    inner.unlock().unwrap();
    assert_eq!((outer.count(), outer.state(), outer.is_valid()), (1, HoldState::Held, true));
    assert!(lock.verify(&outer).unwrap());
}

pub(super) fn a_long_lease_inside_a_watched_hold_is_never_shortened<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    lock.lock_with_lease("n", HOUR).unwrap();
    let hold = lock.hold("n").unwrap();
    let assert_long = || {
        assert!(hold.remaining() > ALMOST_AN_HOUR);
        assert!(lock.remaining_time_to_live("n").unwrap().unwrap() > ALMOST_AN_HOUR);
    };
    assert_long();
    lock.lock("n").unwrap();
    assert_long();
    lock.unlock("n").unwrap();
    lock.unlock("n").unwrap();
    assert_long();
    assert!(lock.verify(&hold).unwrap());
    assert_long();
    lock.unlock("n").unwrap();
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_short_lease_inside_a_watched_hold_shortens_nothing<K: Kind>() {
    let lock = K::start();
    lock.lock("n").unwrap();
    lock.lock_with_lease("n", ms(10)).unwrap();
    let hold = lock.hold("n").unwrap();
    lock.unlock("n").unwrap();
    assert!(hold.remaining() > Duration::from_secs(15));
    assert!(lock.remaining_time_to_live("n").unwrap().unwrap() > Duration::from_secs(15));
    lock.unlock("n").unwrap();
}

pub(super) fn a_watched_level_inside_a_lease_prolongs_it<K: Kind>() {
    let lock = K::start();
    lock.lock_with_lease("n", Duration::from_secs(2)).unwrap();
    lock.lock("n").unwrap();
    let hold = lock.hold("n").unwrap();
    assert!(hold.remaining() > Duration::from_secs(15));
    assert!(lock.remaining_time_to_live("n").unwrap().unwrap() > Duration::from_secs(15));
    lock.unlock("n").unwrap();
    lock.unlock("n").unwrap();
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn guards_of_levels_release_one_level_each<K: Kind>() {
    let lock = K::start();
    let outer = lock.guard("n").unwrap();
    for _ in 0..3 {
        drop(lock.guard("n").unwrap());
        assert!(outer.is_valid() && lock.is_locked("n").unwrap());
        assert_eq!(outer.count(), 1);
    }
    drop(outer);
    assert!(!lock.is_locked("n").unwrap());
}

/// Guards are dropped in any order.
pub(super) fn a_renewed_level_goes_on_when_the_leased_one_around_it_ends<K: Kind>() {
    let lock = K::start();
    let leased = lock.request("n").lease(WATCHED).guard().unwrap().unwrap();
    let renewed = lock.request("n").renewed_lease(WATCHED).guard().unwrap().unwrap();
    let both = Mark::now();
    drop(leased);
    eventually(LONG, "it outlives both leases", || {
        assert!(renewed.is_valid(), "{renewed:?}");
        both.elapsed() >= OUTLIVED
    });
    renewed.unlock().unwrap();
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_leased_level_lasts_as_long_as_it_asked_for_when_the_renewed_one_around_it_ends<K: Kind>() {
    let lock = K::start();
    let renewed = lock.request("n").renewed_lease(WATCHED).guard().unwrap().unwrap();
    let asked = Mark::now();
    let leased = lock.request("n").lease(WATCHED * 2).guard().unwrap().unwrap();
    drop(renewed);
    assert_eq!(leased.lost().recv_timeout(LONG).expect("it ends").cause(), LossCause::Expired);
    assert!(asked.elapsed() >= WATCHED * 2 * 98 / 100, "it ended after {:?}", asked.elapsed());
    assert_err!(leased.unlock(), Lost);
}
