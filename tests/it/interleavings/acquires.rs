//! Acquires that are executed or answered after something else happened.

use super::{MINUTE, Scene};
use crate::proxy::Flow;
use crate::threads::{LONG, SOON, eventually, finish, ms, spawn_asleep};
use redlatch::{CancelToken, Error, Hold, HoldState, RedLock, Result};
use std::time::{Duration, Instant};

/// It is the deadline of the attempt. No lease is that long.
fn is_acquired(answer: &str) -> bool {
    answer.starts_with(':') && answer.len() > 12
}

#[test]
fn an_acquire_executed_after_its_caller_gave_up_is_stale() {
    let scene = Scene::answering_in(ms(200));
    let kept = scene.swallow("acquire", 1);
    assert_err!(scene.locks.try_lock("n"), OutcomeUnknown);
    let answer = kept.execute_next();
    assert!(answer.starts_with("-STALE "), "{answer}");
    assert!(!scene.has_key());
}

/// A stopped server executes all of it at once when it goes on.
#[test]
fn what_a_stopped_server_executes_late_leaves_no_lock() {
    let scene = Scene::answering_in(ms(200));
    scene.server.freeze();
    for wait in [ms(0), ms(50), ms(300)] {
        assert!(scene.locks.try_lock_for("n", wait).is_err());
    }
    scene.server.thaw();
    let start = Instant::now();
    while start.elapsed() < ms(300) {
        assert!(!scene.has_key());
    }
}

/// Busy is the answer to the second attempt; the first one may still be executed, and is swept then.
#[test]
fn an_acquire_that_found_the_lock_busy_leaves_no_ghost() {
    let scene = Scene::new();
    scene.other.lock("n").unwrap();
    let kept = scene.cut_off("acquire", 1);
    assert!(!scene.locks.try_lock("n").unwrap());
    scene.other.unlock("n").unwrap();
    let ghost = kept.execute_next();
    assert!(is_acquired(&ghost), "it came in time: {ghost}");
    scene.assert_swept();
}

#[test]
fn two_open_attempts_of_one_acquire_are_one_hold() {
    let scene = Scene::new();
    let kept = scene.cut_off("acquire", 2);
    let hold = scene.lock();
    let late = [kept.next(), kept.next()];
    for attempt in &late {
        let answer = kept.execute(attempt);
        assert!(is_acquired(&answer), "it came in time: {answer}");
    }
    assert_eq!(scene.server.owner("n"), (hold.owner().to_string(), 1));
    scene.assert_has(&scene.locks, &hold);
    scene.locks.unlock("n").unwrap();
    for attempt in &late {
        kept.execute(attempt);
    }
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Released, false));
    scene.assert_swept();
}

/// After a loss its open attempt can give the key to an owner in whom nobody believes.
#[test]
fn an_open_attempt_does_not_bring_back_what_was_force_unlocked() {
    let scene = Scene::new();
    let kept = scene.cut_off("acquire", 1);
    let hold = scene.lock();
    assert!(scene.other.force_unlock("n").unwrap());
    assert!(!scene.locks.verify(&hold).unwrap());
    kept.execute_next();
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Lost, false));
    scene.assert_swept();
    assert_err!(scene.locks.unlock("n"), Lost);
}

/// Either the lock is held and believed in, or it is not held and no key is left.
fn assert_one_or_the_other(scene: &Scene, got: bool) {
    match scene.locks.hold("n") {
        Some(hold) if got => {
            scene.assert_has(&scene.locks, &hold);
            scene.locks.unlock("n").unwrap();
        }
        None if !got => {}
        hold => panic!("{got}, but {hold:?}"),
    }
    scene.assert_swept();
}

#[test]
fn a_wait_that_ends_while_the_answer_is_on_its_way_holds_or_leaves_nothing() {
    const WAIT: Duration = Duration::from_millis(40);
    let scene = Scene::new();
    let (mut held, mut not) = (0, 0);
    for delay in (0..=320).step_by(20).map(ms) {
        scene.proxy.delay(delay);
        let got = scene.locks.try_lock_for("n", WAIT).unwrap_or(false);
        scene.proxy.clear();
        *if got { &mut held } else { &mut not } += 1;
        assert_one_or_the_other(&scene, got);
    }
    assert!(held > 0 && not > 0, "{held} held, {not} not");
}

/// The holder unlocks when the wait is about to end: the wake-up, the last try and the end of the wait meet.
#[test]
fn a_wait_that_ends_while_the_lock_becomes_free_holds_or_leaves_nothing() {
    const WAIT: Duration = Duration::from_millis(120);
    let scene = Scene::new();
    for early in (0..40).map(ms) {
        scene.other.lock("n").unwrap();
        let got = std::thread::scope(|scope| {
            let start = Instant::now();
            let waiting = spawn_asleep(scope, || {
                let tried = scene.locks.try_lock_for("n", WAIT);
                let (got, hold) = (matches!(tried, Ok(true)), scene.locks.hold("n"));
                assert_eq!(got, hold.as_ref().is_some_and(Hold::is_valid));
                tried.map(|got| got && scene.locks.unlock("n").is_ok())
            });
            std::thread::sleep((WAIT + ms(10)).saturating_sub(early).saturating_sub(start.elapsed()));
            scene.other.unlock("n").unwrap();
            finish(waiting).0
        });
        match got {
            Ok(true) => assert!(!scene.has_key()),
            // It may have been given the lock as it went: that is freed, and does not last for the offer of 1.5 s.
            Ok(false) => eventually(SOON, "it is freed", || !scene.has_key()),
            // On a busy machine the last answer may not come within the wait.
            Err(error) => {
                assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Unavailable { .. }), "{error:?}");
                scene.assert_swept();
            }
        }
    }
}

/// Cancelled while its acquire was executed and not yet answered.
fn cancelled_meanwhile(scene: &Scene, then: impl FnOnce() + Send) -> Result<()> {
    let token = CancelToken::new();
    let [acquired] = scene.hold([("acquire", Flow::Reply)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            acquired.comes();
            token.cancel();
            then();
            acquired.go();
        });
        let result = scene.locks.lock_cancellable("n", &token);
        assert_one_or_the_other(scene, result.is_ok());
        result
    })
}

#[test]
fn a_cancel_before_the_answer_holds_or_leaves_nothing() {
    let scene = Scene::new();
    let _ = cancelled_meanwhile(&scene, || {});
}

#[test]
fn a_cancel_of_an_acquire_that_is_never_answered_leaves_nothing() {
    let scene = Scene::answering_in(ms(200));
    let result = cancelled_meanwhile(&scene, || std::thread::sleep(ms(400)));
    assert_err!(result, Cancelled);
}

/// A force unlock of this client ends what it is about to hold too: the acquire takes a new id, behind the other.
#[test]
fn a_force_unlock_of_its_client_overtakes_the_answer_to_an_acquire() {
    let scene = Scene::new();
    let [acquired] = scene.hold([("acquire", Flow::Reply)]);
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| {
            let got = scene.locks.try_lock_for("n", LONG).unwrap();
            let hold = scene.locks.hold("n").unwrap();
            scene.assert_has(&scene.locks, &hold);
            scene.locks.unlock("n").unwrap();
            got
        });
        acquired.comes();
        assert!(scene.locks.force_unlock("n").unwrap());
        scene.other.lock_with_lease("n", MINUTE).unwrap();
        let hold = scene.other.hold("n").unwrap();
        acquired.go();
        eventually(LONG, "the acquirer waits", || scene.server.subscribers("redisson_lock__channel:{n}") == 1);
        scene.assert_has(&scene.other, &hold);
        scene.other.unlock("n").unwrap();
        assert!(finish(acquiring));
    });
}

/// A force unlock of another client cannot be known before the first renewal; then the hold is lost, and what the
/// other took is not touched.
#[test]
fn a_force_unlock_of_another_client_overtakes_the_answer_to_an_acquire() {
    let scene = Scene::renewing();
    let [acquired] = scene.hold([("acquire", Flow::Reply)]);
    std::thread::scope(|scope| {
        let acquiring = scope.spawn(|| {
            let hold = scene.lock();
            hold.lost().recv_timeout(LONG).expect("told by the first renewal");
            assert_err!(scene.locks.unlock("n"), Lost);
        });
        acquired.comes();
        assert!(scene.other.force_unlock("n").unwrap());
        scene.other.lock_with_lease("n", MINUTE).unwrap();
        let hold = scene.other.hold("n").unwrap();
        acquired.go();
        finish(acquiring);
        scene.assert_has(&scene.other, &hold);
        scene.other.unlock("n").unwrap();
    });
}
