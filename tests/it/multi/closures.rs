//! The forms with closures and requests.

use super::Fixture;
use crate::threads::{LONG, answered, elsewhere, ms, while_held_elsewhere};
use redlatch::{CancelToken, RedLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Whether the work panicked.
fn panics<T>(work: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

pub(super) fn a_closure_runs_in_the_locks_and_gives_its_value(group: &Fixture) {
    let value = group.execute_in_lock(|| {
        assert!(group.is_held_by_current_thread());
        assert!(elsewhere(|| !group.try_lock().unwrap()));
        42
    });
    assert_eq!(value.unwrap(), 42);
    group.assert_free();
    assert_eq!(group.execute_in_lock_for(LONG, LONG, || 43).unwrap(), Some(43));
    group.assert_free();
}

pub(super) fn a_closure_that_panics_releases_the_locks(group: &Fixture) {
    assert!(panics(|| group.execute_in_lock(|| panic!("on purpose"))));
    group.assert_free();
    let guard = group.guard().unwrap();
    assert!(panics(|| group.execute_in_lock_for(LONG, LONG, || panic!("on purpose"))));
    assert!(guard.is_valid() && group.hold_count() == 1);
    guard.unlock().unwrap();
    group.assert_free();
}

pub(super) fn a_closure_that_lost_a_member_is_an_error(group: &Fixture) {
    for (lock, name) in &group.members {
        assert_err!(group.execute_in_lock(|| lock.force_unlock(name).unwrap()), Unprotected);
        group.assert_free();
    }
    assert_eq!(group.execute_in_lock(|| 1).unwrap(), 1);
}

pub(super) fn a_closure_does_not_run_without_the_locks(group: &Fixture) {
    let (lock, name) = &group.members[1];
    while_held_elsewhere(lock, name, |_| {
        let (ran, _) = answered(|| group.execute_in_lock_for(ms(20), LONG, || unreachable!("without the locks")));
        assert_eq!(ran, None::<()>);
        let ran = group.request().wait(Duration::ZERO).execute(|_| unreachable!("without the locks"));
        assert!(matches!(ran, Ok(None::<()>)));
    });
}

pub(super) fn a_request_spells_out_its_terms(group: &Fixture) {
    let token = CancelToken::new();
    let request = || group.request().wait(LONG).lease(Duration::from_secs(100)).cancelled_by(&token);
    let left = request().execute(|guard| guard.remaining()).unwrap().unwrap();
    assert!(left > Duration::from_secs(80) && left <= Duration::from_secs(100));
    token.cancel();
    assert_err!(request().guard(), Cancelled);
    group.assert_free();
}
