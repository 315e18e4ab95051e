//! Waiting for a group, and ceasing to.

use super::Fixture;
use crate::threads::{
    LATE, LONG, Mark, SOON, answered, elsewhere, eventually, finish, ms, spawn_asleep, while_held_elsewhere,
};
use redlatch::{CancelToken, MultiLock, RedLock};
use std::time::Duration;

pub(super) fn a_wait_in_vain_ends_in_time(group: &Fixture) {
    let [first, second, third] = &group.members[..] else { unreachable!() };
    for (lock, name) in [first, second, third] {
        while_held_elsewhere(lock, name, |_| {
            for wait in [ms(1), ms(200)] {
                let (got, took) = answered(|| group.try_lock_for(wait));
                assert!(!got && took >= wait && took <= wait + LATE, "{wait:?} took {took:?}");
            }
            // What the caller has no time to give back is freed in the background.
            eventually(SOON, "the group has nothing", || group.locked().iter().filter(|locked| **locked).count() == 1);
        });
    }
    // The wait is the group's and not each member's.
    while_held_elsewhere(&first.0, &first.1, |_| {
        while_held_elsewhere(&third.0, &third.1, |_| {
            let (got, took) = answered(|| group.try_lock_for(ms(300)));
            assert!(!got && took >= ms(300) && took <= ms(300) + LATE, "took {took:?}");
        });
    });
    group.assert_free();
}

pub(super) fn a_wait_of_zero_tries_once(group: &Fixture) {
    let (lock, name) = &group.members[2];
    while_held_elsewhere(lock, name, |_| {
        let (got, took) = answered(|| group.try_lock_for(Duration::ZERO));
        assert!(!got && took <= LATE, "took {took:?}");
    });
    assert!(group.try_lock_for(Duration::ZERO).unwrap());
    group.unlock().unwrap();
}

pub(super) fn a_try_with_a_lease_does_not_wait(group: &Fixture) {
    let (lock, name) = &group.members[2];
    while_held_elsewhere(lock, name, |_| {
        let (got, took) = answered(|| group.try_lock_with_lease(LONG));
        assert!(!got && took <= LATE, "took {took:?}");
        assert_eq!(group.hold_count(), 0);
    });
}

pub(super) fn an_unlock_of_a_member_wakes_a_group(group: &Fixture) {
    for (lock, name) in &group.members {
        lock.lock_with_lease(name, Duration::from_secs(60)).unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || group.try_lock_for(LONG).unwrap() && group.unlock().is_ok());
            let unlocked = Mark::now();
            lock.unlock(name).unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
        });
    }
}

pub(super) fn members_that_are_freed_one_after_another_are_waited_for(group: &Fixture) {
    group.members.iter().for_each(|(lock, name)| lock.lock(name).unwrap());
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || group.lock().and_then(|()| group.unlock()));
        for (lock, name) in &group.members {
            assert!(!waiter.is_finished());
            lock.unlock(name).unwrap();
            std::thread::sleep(ms(10));
        }
        finish(waiter).0.unwrap();
    });
    group.assert_free();
}

pub(super) fn nothing_is_held_while_a_member_is_waited_for(group: &Fixture) {
    for busy in 0..3 {
        let (lock, name) = &group.members[busy];
        lock.lock(name).unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || group.lock().and_then(|()| group.unlock()));
            for (other, name) in group.members.iter().enumerate().filter(|(at, _)| *at != busy).map(|(_, one)| one) {
                eventually(LONG, "the other members are free", || other.try_lock(name).unwrap());
                other.unlock(name).unwrap();
            }
            assert!(!waiter.is_finished());
            lock.unlock(name).unwrap();
            finish(waiter).0.unwrap();
        });
    }
    group.assert_free();
}

/// Threads that hold one member and want the group, in every order, and groups that are listed the other way round.
pub(super) fn groups_in_opposite_order_do_not_deadlock(group: &Fixture) {
    let turned: MultiLock<'_> = group.members.iter().cloned().collect();
    let part: MultiLock<'_> = group.members[1..].iter().rev().cloned().collect();
    std::thread::scope(|scope| {
        for group in [&**group, &turned, &part] {
            scope.spawn(move || {
                for _ in 0..15 {
                    assert!(group.try_lock_for(LONG).unwrap(), "a deadlock");
                    group.unlock().unwrap();
                }
            });
        }
        for (lock, name) in &group.members {
            scope.spawn(move || {
                for _ in 0..15 {
                    assert!(lock.try_lock_for(name, LONG).unwrap(), "a deadlock");
                    lock.unlock(name).unwrap();
                }
            });
        }
    });
    group.assert_free();
}

pub(super) fn a_cancelled_token_ends_the_wait(group: &Fixture) {
    let token = CancelToken::new();
    let (lock, name) = &group.members[1];
    while_held_elsewhere(lock, name, |_| {
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| spawn_asleep(scope, || group.lock_cancellable(&token))).collect();
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            let cancelled = Mark::now();
            token.cancel();
            for waiter in waiters {
                let (result, when) = finish(waiter);
                assert_err!(result, Cancelled);
                assert!(when - cancelled <= SOON, "ended after {:?}", when - cancelled);
            }
        });
        // One gave a member back, and another was given it as it went: that frees it in the background (docs/protocol.md, 8.9).
        eventually(SOON, "nothing is left of them", || group.locked() == [false, true, false]);
    });
    group.assert_free();
    assert!(elsewhere(|| group.try_lock().unwrap() && group.unlock().is_ok()));
}

pub(super) fn a_token_cancelled_before_prevents_the_locks(group: &Fixture) {
    let token = CancelToken::new();
    token.cancel();
    assert_err!(group.lock_cancellable(&token), Cancelled);
    group.assert_free();
}

pub(super) fn cancelling_does_not_touch_what_is_held(group: &Fixture) {
    let token = CancelToken::new();
    group.lock_cancellable(&token).unwrap();
    token.cancel();
    assert!(group.is_held_by_current_thread());
    assert_eq!(group.locked(), [true; 3]);
    group.unlock().unwrap();
}
