//! Releases that cross renewals, and late copies of releases.

use super::{Kept, MINUTE, Scene, settle};
use crate::proxy::Flow;
use crate::threads::{LONG, elsewhere, eventually, ms};
use redlatch::{HoldState, RedLock, RedLockExt, ReentrantLock};

#[test]
fn a_renewal_answered_after_the_release_revives_nothing() {
    let scene = Scene::renewing();
    let [renewed] = scene.hold([("renew", Flow::Reply)]);
    let hold = scene.lock();
    renewed.comes();
    scene.locks.unlock("n").unwrap();
    renewed.go();
    settle();
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Released, false));
    assert_eq!(scene.locks.client().stats().lost, 0);
    assert!(!scene.has_key());
}

#[test]
fn a_renewal_executed_after_the_release_prolongs_nobody_elses_lock() {
    let scene = Scene::renewing();
    let [renewal, renewed] = scene.hold([("renew", Flow::Request), ("renew", Flow::Reply)]);
    let hold = scene.lock();
    renewal.comes();
    scene.locks.unlock("n").unwrap();
    scene.other.lock_with_lease("n", ms(1_000)).unwrap();
    renewal.go();
    renewed.comes();
    assert!(scene.server.pttl("n") <= 1_000);
    renewed.go();
    settle();
    assert_eq!((hold.state(), scene.locks.client().stats().lost), (HoldState::Released, 0));
    let _ = scene.other.unlock("n");
}

#[test]
fn a_renewal_answered_while_the_release_is_on_its_way_does_not_keep_the_lock() {
    let scene = Scene::renewing();
    let [renewal, release] = scene.hold([("renew", Flow::Request), ("release", Flow::Request)]);
    let hold = scene.lock();
    renewal.comes();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            release.comes();
            let before = scene.server.pttl("n");
            renewal.go();
            eventually(LONG, "it is prolonged", || scene.server.pttl("n") > before);
            settle();
            assert_eq!(hold.state(), HoldState::Released);
            release.go();
        });
        scene.locks.unlock("n").unwrap();
    });
    assert_eq!((hold.state(), scene.locks.client().stats().lost), (HoldState::Released, 0));
    assert!(!scene.has_key());
}

/// The server's answer to a release that freed nothing.
const NOT_YOURS: &str = ":0\r\n";

/// A release is swallowed, its caller gives up, and somebody takes the lock anew: what comes late frees nothing.
fn with_a_late_release(again: impl FnOnce(&Scene, &Kept)) {
    let scene = Scene::answering_in(ms(300));
    let kept = scene.swallow("release", 1);
    drop(scene.locks.guard("n").unwrap());
    again(&scene, &kept);
    assert!(!scene.has_key());
}

/// Takes the lock, which nobody can take away by what was kept.
fn lock_and_unlock(scene: &Scene, locks: &ReentrantLock, kept: &Kept) {
    locks.lock_with_lease("n", MINUTE).unwrap();
    let hold = locks.hold("n").unwrap();
    assert_eq!(kept.execute_next(), NOT_YOURS);
    scene.assert_has(locks, &hold);
    locks.unlock("n").unwrap();
}

#[test]
fn a_late_release_does_not_free_the_next_hold_of_its_thread() {
    with_a_late_release(|scene, kept| lock_and_unlock(scene, &scene.locks, kept));
}

#[test]
fn a_late_release_does_not_free_the_hold_of_a_sibling() {
    with_a_late_release(|scene, kept| {
        elsewhere(|| lock_and_unlock(scene, &scene.locks, kept));
    });
}

#[test]
fn a_late_release_does_not_free_the_hold_of_another_client() {
    with_a_late_release(|scene, kept| lock_and_unlock(scene, &scene.other, kept));
}

/// The last level of a hold was released by a command that came before the inner one's.
#[test]
fn a_late_inner_release_does_not_free_the_next_hold() {
    let scene = Scene::answering_in(ms(300));
    scene.lock();
    scene.lock();
    let kept = scene.swallow("release", 1);
    scene.locks.unlock("n").unwrap();
    scene.locks.unlock("n").unwrap();
    lock_and_unlock(&scene, &scene.locks, &kept);
}
