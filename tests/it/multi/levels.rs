//! Levels: a thread that holds a group, or a part of it, takes it again.

use super::Fixture;
use crate::threads::{LONG, Mark, OUTLIVED, WATCHED, elsewhere, eventually};
use redlatch::{CancelToken, MultiLock, RedLock};
use std::time::Duration;

pub(super) fn a_group_is_free_after_as_many_unlocks(group: &Fixture) {
    for depth in 1..=3 {
        group.lock().unwrap();
        assert_eq!(group.hold_count(), depth);
    }
    for depth in (0..3).rev() {
        assert!(elsewhere(|| !group.try_lock().unwrap()), "free at depth {}", depth + 1);
        group.unlock().unwrap();
        assert_eq!(group.hold_count(), depth);
    }
    group.assert_free();
}

pub(super) fn every_form_re_enters(group: &Fixture) {
    let token = CancelToken::new();
    group.lock().unwrap();
    assert!(group.try_lock().unwrap());
    assert!(group.try_lock_for(Duration::ZERO).unwrap());
    assert!(group.try_lock_for(LONG).unwrap());
    assert!(group.try_lock_with_lease(LONG).unwrap());
    assert!(group.try_lock_for_with_lease(LONG, LONG).unwrap());
    group.lock_with_lease(LONG).unwrap();
    group.lock_cancellable(&token).unwrap();
    let guard = group.guard().unwrap();
    assert_eq!(group.execute_in_lock(|| group.hold_count()).unwrap(), 10);
    guard.unlock().unwrap();
    (0..8).for_each(|_| group.unlock().unwrap());
    group.assert_free();
}

pub(super) fn a_member_that_is_held_is_entered_once_more(group: &Fixture) {
    for (lock, name) in &group.members {
        let hold = {
            lock.lock(name).unwrap();
            lock.hold(name).unwrap()
        };
        group.lock().unwrap();
        assert_eq!((lock.hold_count(name), group.hold_count()), (2, 1));
        group.unlock().unwrap();
        assert!(hold.is_valid() && lock.hold_count(name) == 1 && group.hold_count() == 0);
        assert_eq!(group.locked().iter().filter(|locked| **locked).count(), 1);
        lock.unlock(name).unwrap();
    }
    group.assert_free();
}

pub(super) fn a_member_may_be_in_the_group_twice(group: &Fixture) {
    let twice: MultiLock<'_> = group.members.iter().chain(&group.members[1..2]).cloned().collect();
    for depth in 1..=2 {
        assert!(twice.try_lock().unwrap());
        assert_eq!(twice.hold_count(), depth);
        assert_eq!(group.members.iter().map(|(lock, name)| lock.hold_count(name)).sum::<usize>(), depth * 4);
    }
    twice.unlock().unwrap();
    twice.unlock().unwrap();
    group.assert_free();
}

/// Guards are dropped in any order.
pub(super) fn a_renewed_level_goes_on_when_the_leased_one_around_it_ends(group: &Fixture) {
    let leased = group.request().lease(WATCHED).guard().unwrap().unwrap();
    let renewed = group.request().renewed_lease(WATCHED).guard().unwrap().unwrap();
    let both = Mark::now();
    drop(leased);
    eventually(LONG, "it outlives both leases", || {
        assert!(renewed.is_valid(), "{renewed:?}");
        both.elapsed() >= OUTLIVED
    });
    renewed.unlock().unwrap();
    group.assert_free();
}
