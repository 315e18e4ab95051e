//! What a test plans for the next calls of a lock in memory: who meets it, in which order, and what is left after it.

use crate::threads::{LONG, SOON, elsewhere, ms, timed};
use redlatch::{CancelToken, Error, LocalRedLock, LossCause, MultiLock, RedLock, RedLockExt, Result};
use std::time::Duration;

/// An error that nothing but a plan makes here.
fn down() -> Error {
    Error::unavailable("n", "as planned")
}

/// That a call meets a planned error, and another one right after it does not.
fn assert_meets<T>(call: impl Fn(&LocalRedLock) -> Result<T>) -> LocalRedLock {
    let locks = LocalRedLock::new();
    locks.fail_next(down());
    let Err(Error::Unavailable { cause, .. }) = call(&locks) else { panic!("the plan was not met") };
    assert_eq!((cause.to_string(), locks.planned()), ("as planned".to_owned(), 0));
    assert!(!locks.is_locked("n").unwrap(), "nothing is taken");
    assert!(call(&locks).is_ok());
    locks
}

#[test]
fn every_call_that_would_ask_a_server_meets_a_planned_error() {
    assert_meets(|locks| locks.lock("n"));
    assert_meets(|locks| locks.try_lock("n"));
    assert_meets(|locks| locks.guard("n").map(drop));
    assert_meets(|locks| locks.request("n").wait(ms(5)).execute(|_| ()));
    assert_meets(|locks| locks.is_locked("n"));
    assert_meets(|locks| locks.remaining_time_to_live("n"));
    assert_meets(|locks| locks.force_unlock("n"));
    assert_meets(|locks| MultiLock::of([(locks, "m"), (locks, "n")]).try_lock());
}

#[test]
fn a_release_that_fails_has_released() {
    let locks = LocalRedLock::new();
    let guard = locks.guard("n").unwrap();
    locks.fail_next(down());
    assert_err!(guard.unlock(), Unavailable);
    assert!(!locks.is_locked("n").unwrap() && locks.hold("n").is_none());
    locks.lock("n").unwrap();
    locks.fail_next(down());
    assert_err!(locks.unlock("n"), Unavailable);
    assert!(!locks.is_locked("n").unwrap());
    locks.fail_next(down());
    assert_err!(locks.unlock("n"), NotHeld);
    assert_eq!(locks.planned(), 1, "that never goes to a server");
}

#[test]
fn a_force_unlock_and_a_verify_that_fail_leave_the_hold() {
    let locks = LocalRedLock::new();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    locks.fail_next(down()).fail_next(down());
    assert_err!(locks.force_unlock("n"), Unavailable);
    assert_err!(locks.verify(&hold), Unavailable);
    assert!(hold.is_valid() && locks.verify(&hold).unwrap());
    locks.unlock("n").unwrap();
}

#[test]
fn calls_that_are_refused_before_and_other_names_go_by() {
    let locks = LocalRedLock::new();
    locks.fail_next(down());
    let (token, zero) = (CancelToken::new(), Duration::ZERO);
    token.cancel();
    assert_err!(locks.lock_with_lease("n", zero), Config);
    assert_err!(locks.lock_cancellable("n", &token), Cancelled);
    assert_err!(locks.lock(""), Config);
    assert_err!(locks.force_unlock(""), Config);
    locks.guard("m").unwrap().unlock().unwrap();
    assert_eq!(locks.planned(), 1);
    assert_err!(locks.lock("n"), Unavailable);
}

#[test]
fn an_error_that_names_nothing_is_for_any_name() {
    let locks = LocalRedLock::new();
    locks.fail_next(Error::config("as planned"));
    assert_err!(locks.try_lock("whatever"), Config);
    assert!(locks.try_lock("whatever").unwrap());
    locks.unlock("whatever").unwrap();
}

#[test]
fn plans_are_met_in_order_and_once() {
    let locks = LocalRedLock::new();
    locks.fail_next(down()).pass_next("n").busy_next("n").lose_next("n").fail_next(Error::closed("n"));
    assert_eq!(locks.planned(), 5);
    assert_err!(locks.try_lock("n"), Unavailable);
    assert!(!locks.is_locked("n").unwrap(), "it passes");
    assert!(!locks.is_locked("n").unwrap(), "only an acquire is busy");
    assert!(!locks.try_lock("n").unwrap());
    assert!(locks.try_lock("n").unwrap());
    assert_err!(locks.unlock("n"), Lost);
    assert_err!(locks.try_lock("n"), Closed);
    assert_eq!(locks.planned(), 0);
    assert!(locks.try_lock("n").unwrap());
    locks.unlock("n").unwrap();
}

#[test]
fn busy_is_told_at_once_to_bounded_waits_of_others() {
    let locks = LocalRedLock::new();
    locks.busy_next("n").busy_next("n").busy_next("n");
    let (got, took) = timed(|| locks.try_lock_for("n", LONG).unwrap());
    assert!(!got && took <= SOON, "took {took:?}");
    assert!(locks.try_guard("n").unwrap().is_none());
    locks.lock("n").unwrap();
    assert!(locks.try_lock("n").unwrap(), "its own hold is never busy");
    assert_eq!(locks.planned(), 1);
    assert!(!elsewhere(|| locks.try_lock("n").unwrap()));
    locks.unlock("n").unwrap();
    locks.unlock("n").unwrap();
    assert_eq!(locks.planned(), 0);
}

#[test]
fn a_planned_loss_is_a_loss_like_any_other() {
    let locks = LocalRedLock::new();
    locks.lose_next("n");
    assert!(elsewhere(|| locks.try_lock("m").unwrap() && locks.unlock("m").is_ok()));
    let guard = locks.guard("n").unwrap();
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().recv().unwrap().cause(), LossCause::Removed);
    assert_err!(locks.lock("n"), Lost);
    assert_err!(guard.unlock(), Lost);
    locks.lose_next("n");
    let mut runs = 0;
    assert_err!(locks.execute_in_lock("n", || runs += 1), Unprotected);
    assert_eq!((runs, locks.planned()), (1, 0));
}

#[test]
fn a_loss_waits_for_an_acquire_that_gets_the_lock() {
    let locks = LocalRedLock::new();
    let guard = locks.guard("n").unwrap();
    locks.lose_next("n");
    assert!(!elsewhere(|| locks.try_lock("n").unwrap()));
    assert_eq!((locks.planned(), guard.is_valid()), (1, true));
    guard.unlock().unwrap();
    assert_err!(locks.guard("n").unwrap().unlock(), Lost);
}

#[test]
fn a_plan_is_shared_by_clones_and_met_by_one_thread() {
    let locks = LocalRedLock::new();
    (0..8).for_each(|_| assert!(locks.clone().fail_next(down()).planned() > 0));
    let failed = std::thread::scope(|scope| {
        let tries = (0..16).map(|_| scope.spawn(|| locks.clone().is_locked("n").is_err())).collect::<Vec<_>>();
        tries.into_iter().filter_map(|tried| tried.join().unwrap().then_some(())).count()
    });
    assert_eq!((failed, locks.planned()), (8, 0));
}

#[test]
fn a_group_whose_member_fails_holds_nothing() {
    let (one, other) = (LocalRedLock::new(), LocalRedLock::new());
    let group = MultiLock::of([(&one, "m"), (&other, "n")]);
    other.fail_next(down());
    assert_err!(group.try_lock(), Unavailable);
    other.fail_next(Error::closed("n"));
    assert_err!(group.lock(), Closed);
    assert!(!one.is_locked("m").unwrap());
    other.busy_next("n");
    assert!(!group.try_lock().unwrap());
    assert!(!group.is_locked().unwrap());
}

/// As on a server: a group waits for a member whose try failed, and takes anew what was lost on the way.
#[test]
fn a_group_with_time_rides_out_what_passes() {
    let locks = LocalRedLock::new();
    let group = MultiLock::of([(&locks, "m"), (&locks, "n")]);
    locks.fail_next(down()).lose_next("n");
    group.guard().unwrap().unlock().unwrap();
    assert_eq!(locks.planned(), 0);
    locks.fail_next(down()).fail_next(down());
    assert_err!(group.lock(), Unavailable);
    assert!(!group.is_locked().unwrap());
}
