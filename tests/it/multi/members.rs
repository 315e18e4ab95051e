//! What becomes of the members while a group is made, taken and given up.

use super::Any;
use crate::threads::{LONG, elsewhere};
use redlatch::{CancelToken, Error, Hold, LocalRedLock, MultiLock, RedLock, Result, Terms};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// What a [`Wrapper`] does when it is asked for a resource, before it asks for it.
type Before = Box<dyn Fn(&str) -> Result<()> + Send + Sync>;

/// A lock that notes what it is asked for.
pub(crate) struct Wrapper {
    pub(crate) inner: LocalRedLock,
    before: Before,
    calls: Mutex<Vec<String>>,
}

impl Wrapper {
    pub(crate) fn new(before: impl Fn(&str) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { inner: LocalRedLock::new(), before: Box::new(before), calls: Mutex::default() }
    }

    fn note(&self, what: &str, resource: &str) {
        self.calls.lock().unwrap().push(format!("{what} {resource}"));
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn group(&self) -> MultiLock<'_> {
        MultiLock::of([(self, "c"), (self, "a"), (self, "b")])
    }
}

impl RedLock for Wrapper {
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        self.note("acquire", resource);
        (self.before)(resource)?;
        self.inner.acquire(resource, terms)
    }

    fn release(&self, hold: &Hold) -> Result<()> {
        self.note("release", hold.resource());
        self.inner.release(hold)
    }

    fn verify(&self, hold: &Hold) -> Result<bool> {
        self.inner.verify(hold)
    }

    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        self.inner.hold_of(resource, thread)
    }

    fn force_unlock(&self, resource: &str) -> Result<bool> {
        self.inner.force_unlock(resource)
    }

    fn is_locked(&self, resource: &str) -> Result<bool> {
        self.inner.is_locked(resource)
    }

    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        self.inner.remaining_time_to_live(resource)
    }
}

#[test]
fn a_group_without_members_is_refused() {
    let none = MultiLock::of(Vec::<(LocalRedLock, &str)>::new());
    assert_err!(none.lock(), Config);
    assert_err!(none.try_lock(), Config);
    assert_err!(none.guard(), Config);
    assert_err!(none.execute_in_lock(|| unreachable!("without a lock")), Config);
    assert_err!(none.unlock(), Config);
    assert_err!(none.force_unlock(), Config);
    assert_err!(none.is_locked(), Config);
    assert!(!none.is_held_by_current_thread());
    assert_eq!(none.hold_count(), 0);
}

#[test]
fn a_group_of_one_is_that_lock() {
    let locks = LocalRedLock::new();
    let one: MultiLock<'_> = std::iter::once((&locks, "n")).collect();
    let guard = one.guard().unwrap();
    assert_eq!((locks.hold_count("n"), one.hold_count()), (1, 1));
    assert!(elsewhere(|| !one.try_lock().unwrap()));
    guard.unlock().unwrap();
    assert!(!locks.is_locked("n").unwrap());
}

#[test]
fn a_group_with_a_wrong_name_takes_nothing() {
    let locks = LocalRedLock::new();
    let long = "x".repeat(1_025);
    for wrong in ["", long.as_str()] {
        let group = MultiLock::of([(&locks, "a"), (&locks, wrong)]);
        assert_err!(group.lock(), Config);
        assert_err!(group.try_lock_for(LONG), Config);
        assert!(!locks.is_locked("a").unwrap());
    }
}

#[test]
fn members_may_be_owned_borrowed_or_dynamic() {
    let (shared, borrowed) = (Arc::new(LocalRedLock::new()), LocalRedLock::new());
    let mixed = MultiLock::of([(&*shared as &dyn RedLock, "a"), (&borrowed, "b"), (&*shared, "c")]);
    assert_eq!(mixed.execute_in_lock(|| shared.hold_count("a") + borrowed.hold_count("b")).unwrap(), 2);
    let owned: MultiLock<'static> = [(Arc::clone(&shared) as Any, "a".to_owned())].into_iter().collect();
    assert!(std::thread::spawn(move || owned.try_lock().unwrap() && owned.unlock().is_ok()).join().unwrap());
}

#[test]
fn members_are_taken_in_order_and_released_in_reverse() {
    let locks = Wrapper::new(|_| Ok(()));
    let group = locks.group();
    let guard = group.guard().unwrap();
    assert_eq!(locks.calls(), ["acquire a", "acquire b", "acquire c"]);
    guard.unlock().unwrap();
    assert_eq!(locks.calls(), ["release c", "release b", "release a"]);
    assert_eq!(format!("{group:?}"), r#"MultiLock(["a", "b", "c"])"#);
}

#[test]
fn a_member_that_fails_leaves_nothing_behind() {
    let locks = Wrapper::new(|name| if name == "c" { LocalRedLock::new().unlock("c") } else { Ok(()) });
    let group = locks.group();
    for _ in 0..2 {
        assert_err!(group.lock(), NotHeld);
        assert_eq!(locks.calls(), ["acquire a", "acquire b", "acquire c", "release b", "release a"]);
        assert!(!group.is_locked().unwrap());
    }
    assert_eq!(group.hold_count(), 0);
}

#[test]
fn a_member_that_panics_leaves_nothing_behind() {
    let locks = Wrapper::new(|name| {
        assert!(name != "c", "on purpose");
        Ok(())
    });
    let group = locks.group();
    assert!(catch_unwind(AssertUnwindSafe(|| group.lock())).is_err());
    assert_eq!(locks.calls(), ["acquire a", "acquire b", "acquire c", "release b", "release a"]);
    assert!(!group.is_locked().unwrap());
}

#[test]
fn a_token_cancelled_between_two_members_leaves_nothing_behind() {
    let token = CancelToken::new();
    let cancels = token.clone();
    let locks = Wrapper::new(move |name| {
        if name == "b" {
            cancels.cancel();
        }
        Ok(())
    });
    let group = locks.group();
    let result = group.lock_cancellable(&token);
    assert!(matches!(&result, Err(Error::Cancelled { resource, .. }) if resource == "b"), "{result:?}");
    assert!(!group.is_locked().unwrap());
}

/// The first to be taken has a lease that is over before the last one is.
#[test]
fn a_group_is_not_held_when_a_member_ended_meanwhile() {
    let locks = Wrapper::new(|name| {
        if name == "c" {
            std::thread::sleep(Duration::from_millis(60));
        }
        Ok(())
    });
    let group = locks.group();
    let lease = Duration::from_millis(50);
    assert!(!group.try_lock_for_with_lease(Duration::from_secs(1), lease).unwrap());
    assert!(locks.calls().iter().filter(|call| *call == "acquire c").count() > 1, "it was tried again");
    assert!(!group.try_lock_for_with_lease(Duration::ZERO, lease).unwrap());
    assert_eq!(group.hold_count(), 0);
    assert!(group.try_lock_for_with_lease(LONG, LONG).unwrap());
    group.unlock().unwrap();
}
