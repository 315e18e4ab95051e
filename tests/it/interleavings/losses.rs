//! Holds that are lost while a message of theirs is on its way, and what is left of them afterwards.

use super::{MINUTE, Scene, WATCHED, settle};
use crate::proxy::{Flow, Step, pass, runs};
use crate::threads::{LONG, SOON, elsewhere, eventually, lost_within, ms, run_out};
use redlatch::{Hold, HoldState, LossCause, RedLock, RedLockExt};

/// The server loses the lock, and the client learns it.
fn lose(scene: &Scene, hold: &Hold) {
    assert!(scene.other.force_unlock("n").unwrap());
    assert!(!scene.locks.verify(hold).unwrap());
}

/// The holder knows, and so do those who count. They are told before it is counted.
fn assert_lost_once(scene: &Scene, hold: &Hold) {
    let lost = || scene.locks.client().stats().lost;
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Lost, false));
    eventually(LONG, "it is counted", || lost() > 0);
    assert_err!(scene.locks.unlock("n"), Lost);
    assert_eq!(lost(), 1);
}

#[test]
fn the_guard_of_a_lost_hold_does_not_free_the_next_hold_of_its_thread() {
    let scene = Scene::new();
    let guard = scene.locks.guard("n").unwrap();
    lose(&scene, guard.hold());
    assert_err!(scene.locks.lock("n"), Lost);
    assert_err!(scene.locks.unlock("n"), Lost);
    let hold = scene.lock();
    drop(guard);
    scene.assert_has(&scene.locks, &hold);
    scene.locks.unlock("n").unwrap();
}

#[test]
fn the_guard_of_a_lost_hold_does_not_free_the_hold_of_a_sibling() {
    let scene = Scene::new();
    let guard = scene.locks.guard("n").unwrap();
    lose(&scene, guard.hold());
    let (tell, told) = std::sync::mpsc::channel();
    let (dropped, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let scene = &scene;
        scope.spawn(move || {
            let hold = scene.lock();
            tell.send(()).unwrap();
            wait.recv().unwrap();
            scene.assert_has(&scene.locks, &hold);
            scene.locks.unlock("n").unwrap();
        });
        told.recv().unwrap();
        drop(guard);
        dropped.send(()).unwrap();
    });
}

#[test]
fn the_guard_of_a_lost_hold_does_not_free_the_hold_of_another_client() {
    let scene = Scene::new();
    let guard = scene.locks.guard("n").unwrap();
    lose(&scene, guard.hold());
    scene.other.lock_with_lease("n", MINUTE).unwrap();
    let hold = scene.other.hold("n").unwrap();
    drop(guard);
    scene.assert_has(&scene.other, &hold);
    scene.other.unlock("n").unwrap();
}

/// Renewals fail until the deadline is near; the last one is executed, and its answer comes after the deadline.
#[test]
fn a_deadline_that_passes_while_the_renewal_is_answered_is_a_loss() {
    let scene = Scene::renewing();
    let hold = scene.lock();
    let [renewed] = scene.hold([("renew", Flow::Reply)]);
    let (renews, of, gate, came) = (runs("renew"), hold.clone(), renewed.gate.clone(), renewed.came.clone());
    let mut asked = None;
    scene.proxy.set(move |connection, flow, data| {
        if renews(flow, data) && asked.is_none() {
            if of.remaining() > ms(700) {
                return vec![Step::Cut];
            }
            asked = Some(connection);
        }
        if flow == Flow::Reply && asked == Some(connection) {
            came.store(true, std::sync::atomic::Ordering::SeqCst);
            return vec![Step::Hold(gate.clone()), Step::Send(data.to_vec())];
        }
        pass(data)
    });
    renewed.comes();
    assert!(scene.server.pttl("n") > 2_000, "it was executed");
    run_out(&hold);
    renewed.go();
    eventually(SOON, "it is swept, and does not last for its lease", || !scene.has_key());
    assert_lost_once(&scene, &hold);
}

/// The hold ends by its short lease while a command that prolongs it is executed and not answered.
fn answered_too_late(script: &'static str, prolong: impl FnOnce(&Scene, &Hold) -> bool + Send) {
    let scene = Scene::new();
    scene.locks.lock_with_lease("n", SOON).unwrap();
    let hold = scene.locks.hold("n").unwrap();
    let [prolonged] = scene.hold([(script, Flow::Reply)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            prolonged.comes();
            run_out(&hold);
            prolonged.go();
        });
        assert!(!prolong(&scene, &hold));
    });
    assert_eq!((hold.state(), scene.locks.hold_count("n")), (HoldState::Lost, 1));
    scene.assert_swept();
    assert_err!(scene.locks.unlock("n"), Lost);
}

#[test]
fn a_reentry_answered_after_the_deadline_is_a_loss() {
    answered_too_late("reenter", |scene, _| match scene.locks.lock_with_lease("n", MINUTE) {
        Err(redlatch::Error::Lost { .. }) => false,
        other => panic!("{other:?}"),
    });
}

#[test]
fn a_verification_answered_after_the_deadline_is_a_loss() {
    answered_too_late("renew", |scene, hold| scene.locks.verify(hold).unwrap());
}

#[test]
fn an_extension_answered_after_the_deadline_is_a_loss() {
    answered_too_late("renew", |_, hold| match hold.extend(MINUTE) {
        Err(redlatch::Error::Lost { .. }) => false,
        other => panic!("{other:?}"),
    });
}

/// The force unlock comes to the server before the renewal: of this client, which ends the hold at once.
#[test]
fn a_renewal_executed_after_a_force_unlock_prolongs_nobody_elses_lock() {
    let scene = Scene::renewing();
    let hold = scene.lock();
    let told = hold.lost();
    let [renewal, renewed] = scene.hold([("renew", Flow::Request), ("renew", Flow::Reply)]);
    renewal.comes();
    assert!(scene.locks.force_unlock("n").unwrap());
    assert_eq!(told.recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    elsewhere(|| scene.other.lock_with_lease("n", ms(1_000)).unwrap());
    renewal.go();
    renewed.comes();
    assert!(scene.server.pttl("n") <= 1_000);
    renewed.go();
    settle();
    assert_lost_once(&scene, &hold);
    eventually(LONG, "the lease ends", || !scene.has_key());
}

/// The renewal was executed first, and its answer comes after the force unlock of another client: the holder is
/// wrong until its next renewal, no longer.
#[test]
fn a_renewal_answered_after_a_force_unlock_is_the_last() {
    let scene = Scene::renewing();
    let hold = scene.lock();
    let [renewed] = scene.hold([("renew", Flow::Reply)]);
    renewed.comes();
    assert!(scene.other.force_unlock("n").unwrap());
    renewed.go();
    assert_eq!(lost_within(WATCHED, &hold), LossCause::Removed, "told by the next renewal");
    assert!(!scene.has_key());
    assert_lost_once(&scene, &hold);
}

/// The same by this client: the answer must not bring back what the force unlock ended.
#[test]
fn a_renewal_answered_after_a_force_unlock_of_its_client_revives_nothing() {
    let scene = Scene::renewing();
    let hold = scene.lock();
    let [renewed] = scene.hold([("renew", Flow::Reply)]);
    renewed.comes();
    assert!(scene.locks.force_unlock("n").unwrap());
    assert!(!hold.is_valid());
    renewed.go();
    settle();
    assert_lost_once(&scene, &hold);
}
