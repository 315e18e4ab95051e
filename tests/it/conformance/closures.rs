//! The forms with closures, requests and actions.

use super::Kind;
use crate::threads::{LONG, answered, elsewhere, ms, run_out, while_held_elsewhere};
use redlatch::{CancelToken, Error, Hold, LockAction, RedLock, RedLockExt, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Whether the work panicked.
fn panics<T>(work: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

pub(super) fn a_closure_runs_in_the_lock_and_gives_its_value<K: Kind>() {
    let lock = K::start();
    let value = lock.execute_in_lock("n", || {
        assert!(lock.is_held_by_current_thread("n"));
        assert!(elsewhere(|| !lock.try_lock("n").unwrap()));
        42
    });
    assert_eq!(value.unwrap(), 42);
    assert!(!lock.is_locked("n").unwrap());
    assert_eq!(lock.execute_in_lock_for("n", LONG, LONG, || 43).unwrap(), Some(43));
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_closure_that_panics_releases_the_lock<K: Kind>() {
    let lock = K::start();
    assert!(panics(|| lock.execute_in_lock("n", || panic!("on purpose"))));
    assert!(!lock.is_locked("n").unwrap());
    assert_eq!(lock.hold_count("n"), 0);
    assert!(panics(|| lock.execute_in_lock_for("n", LONG, LONG, || panic!("on purpose"))));
    assert!(elsewhere(|| lock.try_lock("n").unwrap() && lock.unlock("n").is_ok()));
}

pub(super) fn a_panic_in_an_inner_level_releases_that_level<K: Kind>() {
    let lock = K::start();
    let guard = lock.guard("n").unwrap();
    assert!(panics(|| lock.execute_in_lock("n", || panic!("on purpose"))));
    assert_eq!(guard.count(), 1);
    assert!(guard.is_valid() && lock.verify(&guard).unwrap());
}

pub(super) fn a_closure_that_lost_the_lock_is_an_error<K: Kind>() {
    let lock = K::start();
    assert_err!(lock.execute_in_lock("n", || lock.force_unlock("n").unwrap()), Unprotected);
    assert_eq!(lock.hold_count("n"), 0);
    let late = lock.execute_in_lock_for("n", LONG, ms(50), || run_out(&lock.hold("n").unwrap()));
    assert_err!(late, Unprotected);
    assert_eq!(lock.execute_in_lock("n", || 1).unwrap(), 1);
}

pub(super) fn a_closure_does_not_run_without_the_lock<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        let (ran, _) = answered(|| lock.execute_in_lock_for("n", ms(20), LONG, || unreachable!("without the lock")));
        assert_eq!(ran, None::<()>);
        let ran = lock.request("n").wait(Duration::ZERO).execute(|_| unreachable!("without the lock"));
        assert!(matches!(ran, Ok(None::<()>)));
    });
}

pub(super) fn a_request_spells_out_its_terms<K: Kind>() {
    let lock = K::start();
    let token = CancelToken::new();
    let request = || lock.request("n").wait(LONG).lease(Duration::from_secs(100)).cancelled_by(&token);
    let left = request().execute(|guard| guard.remaining()).unwrap().unwrap();
    assert!(left > Duration::from_secs(80) && left <= Duration::from_secs(100));
    token.cancel();
    assert_err!(request().guard(), Cancelled);
    assert!(!lock.is_locked("n").unwrap());
}

/// An action that notes its hooks, each with how many levels are held in it, and panics where it is told.
struct Noted<'a> {
    lock: &'a dyn RedLock,
    hooks: Vec<(&'static str, usize)>,
    panics_in: &'static str,
    forced: bool,
}

impl<'a> Noted<'a> {
    fn new(lock: &'a dyn RedLock) -> Self {
        Self { lock, hooks: Vec::new(), panics_in: "nothing", forced: false }
    }

    fn note(&mut self, hook: &'static str) {
        self.hooks.push((hook, self.lock.hold_count("n")));
        assert!(self.panics_in != hook, "on purpose");
    }
}

impl LockAction for Noted<'_> {
    type Output = usize;

    fn on_acquire(&mut self, hold: &Hold) {
        assert!(hold.is_valid());
        self.note("acquire");
    }

    fn do_in_lock(&mut self, hold: &Hold) -> usize {
        self.note("work");
        if self.forced {
            self.lock.force_unlock("n").unwrap();
        }
        hold.count()
    }

    fn on_exit(&mut self, resource: &str) {
        assert_eq!(resource, "n");
        self.note("exit");
    }
}

const IN_ORDER: [(&str, usize); 3] = [("acquire", 1), ("work", 1), ("exit", 0)];

pub(super) fn hooks_are_called_in_order<K: Kind>() {
    let lock = K::start();
    let mut action = Noted::new(&*lock);
    assert_eq!(lock.run_in_lock("n", &mut action).unwrap(), 1);
    assert_eq!(action.hooks, IN_ORDER);
    let guard = lock.guard("n").unwrap();
    let mut inner = Noted::new(&*lock);
    assert_eq!(lock.run_in_lock("n", &mut inner).unwrap(), 2);
    assert_eq!(inner.hooks, [("acquire", 2), ("work", 2), ("exit", 1)]);
    drop(guard);
}

pub(super) fn the_exit_hook_is_called_after_a_panic_too<K: Kind>() {
    let lock = K::start();
    let mut action = Noted { panics_in: "work", ..Noted::new(&*lock) };
    assert!(panics(|| lock.run_in_lock("n", &mut action)));
    assert_eq!(action.hooks, IN_ORDER);
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn a_panic_in_the_acquire_hook_releases_the_lock<K: Kind>() {
    let lock = K::start();
    let mut action = Noted { panics_in: "acquire", ..Noted::new(&*lock) };
    assert!(panics(|| lock.run_in_lock("n", &mut action)));
    assert_eq!(action.hooks, [("acquire", 1), ("exit", 0)]);
    assert!(!lock.is_locked("n").unwrap());
}

pub(super) fn hooks_are_not_called_without_the_lock<K: Kind>() {
    let lock = K::start();
    while_held_elsewhere(&*lock, "n", |_| {
        let mut action = Noted::new(&*lock);
        assert_eq!(answered(|| lock.request("n").wait(ms(20)).run(&mut action)).0, None);
        assert_eq!(action.hooks, []);
    });
}

pub(super) fn the_exit_hook_is_called_when_the_lock_was_lost<K: Kind>() {
    let lock = K::start();
    let mut action = Noted { forced: true, ..Noted::new(&*lock) };
    let result: Result<usize> = lock.run_in_lock("n", &mut action);
    assert!(matches!(result, Err(Error::Unprotected { .. })), "{result:?}");
    assert_eq!(action.hooks, IN_ORDER);
}

pub(super) fn an_action_may_be_a_trait_object<K: Kind>() {
    let lock = K::start();
    let mut action = Noted::new(&*lock);
    let dynamic: &mut dyn LockAction<Output = usize> = &mut action;
    assert_eq!(lock.run_in_lock("n", dynamic).unwrap(), 1);
    assert_eq!(action.hooks, IN_ORDER);
}
