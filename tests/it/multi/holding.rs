//! Taking a group, giving it back, and what its hold and guard say meanwhile.

use super::Fixture;
use crate::threads::{LONG, elsewhere, ms, while_held_elsewhere};
use redlatch::{HoldState, RedLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

pub(super) fn a_group_holds_every_member_and_frees_it(group: &Fixture) {
    group.lock().unwrap();
    assert!(group.is_held_by_current_thread());
    for (lock, name) in &group.members {
        assert_eq!(lock.hold_count(name), 1);
        assert!(elsewhere(|| !lock.try_lock(name).unwrap()));
    }
    group.unlock().unwrap();
    group.assert_free();
    assert!(!group.is_held_by_current_thread());
}

pub(super) fn threads_exclude_each_other(group: &Fixture) {
    let (counter, inside) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        for _ in 0..15 {
            group.lock().unwrap();
            assert!(!inside.swap(true, SeqCst), "two threads hold the group");
            let seen = counter.load(SeqCst);
            std::thread::yield_now();
            counter.store(seen + 1, SeqCst);
            inside.store(false, SeqCst);
            group.unlock().unwrap();
        }
    };
    std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(counter.into_inner(), 6 * 15);
    group.assert_free();
}

pub(super) fn a_try_with_one_member_busy_takes_nothing(group: &Fixture) {
    for (busy, (lock, name)) in group.members.iter().enumerate() {
        while_held_elsewhere(lock, name, |_| {
            assert!(!group.try_lock().unwrap());
            assert_eq!(group.locked(), [0, 1, 2].map(|at| at == busy));
            assert_eq!(group.hold_count(), 0);
        });
    }
    assert!(group.try_lock().unwrap());
    group.unlock().unwrap();
}

pub(super) fn unlocking_what_was_never_locked_is_an_error(group: &Fixture) {
    assert_err!(group.unlock(), NotHeld);
    group.lock().unwrap();
    group.unlock().unwrap();
    assert_err!(group.unlock(), NotHeld);
    // Of a part that is held it says so too, and releases that part.
    let (lock, name) = &group.members[1];
    lock.lock(name).unwrap();
    assert_err!(group.unlock(), NotHeld);
    group.assert_free();
}

pub(super) fn another_thread_cannot_unlock(group: &Fixture) {
    let guard = group.guard().unwrap();
    elsewhere(|| {
        assert_err!(group.unlock(), NotHeld);
        assert_err!(group.release(&guard), NotHeld);
        assert!(!group.is_held_by_current_thread() && group.hold_count() == 0);
    });
    assert!(guard.is_valid());
    assert_eq!(group.locked(), [true; 3]);
}

pub(super) fn a_group_hold_tells_what_it_is(group: &Fixture) {
    group.lock().unwrap();
    group.members[1].0.hold("b").unwrap().extend(Duration::from_secs(3_600)).unwrap();
    let guard = group.request().lease(Duration::from_secs(20)).guard().unwrap().unwrap();
    assert_eq!(guard.holds().iter().map(redlatch::Hold::resource).collect::<Vec<_>>(), ["c", "b", "a"], "as given");
    assert_eq!((guard.state(), guard.is_valid()), (HoldState::Held, true));
    assert!(guard.remaining() > Duration::from_secs(15) && guard.remaining() <= Duration::from_secs(30));
    let hold = guard.hold().clone();
    guard.unlock().unwrap();
    assert!(elsewhere(|| hold.is_valid()), "the outer level is held");
    group.unlock().unwrap();
    assert_eq!((hold.state(), hold.is_valid(), hold.remaining()), (HoldState::Released, false, Duration::ZERO));
}

/// Whoever puts the group together anew may have its members in another order.
pub(super) fn a_hold_is_released_by_the_same_members_in_any_order(group: &Fixture) {
    let hold = group.acquire(&redlatch::Terms::new()).unwrap().unwrap();
    let members = || group.members.iter().map(|(lock, name)| (lock, name.as_str()));
    let fewer: redlatch::MultiLock<'_> = members().take(2).collect();
    assert_err!(fewer.release(&hold), Config);
    assert_eq!(group.locked(), [true; 3]);
    let again: redlatch::MultiLock<'_> = members().collect();
    again.release(&hold).unwrap();
    group.assert_free();
}

pub(super) fn a_group_is_locked_while_one_member_is(group: &Fixture) {
    assert!(!group.is_locked().unwrap());
    for (lock, name) in &group.members {
        while_held_elsewhere(lock, name, |_| assert!(group.is_locked().unwrap()));
    }
    assert!(!group.is_locked().unwrap());
}

pub(super) fn a_group_lasts_as_long_as_its_longest_member(group: &Fixture) {
    const LEASES: [u64; 3] = [60, 3_600, 600];
    assert_eq!(group.remaining_time_to_live().unwrap(), None);
    for (at, (lock, name)) in group.members.iter().enumerate() {
        lock.lock_with_lease(name, Duration::from_secs(LEASES[at])).unwrap();
        let longest = Duration::from_secs(*LEASES[..=at].iter().max().unwrap());
        let left = elsewhere(|| group.remaining_time_to_live().unwrap().unwrap());
        assert!(left <= longest && left > longest - LONG, "{left:?} of {longest:?}");
    }
    group.unlock().unwrap();
    assert_eq!(group.remaining_time_to_live().unwrap(), None);
}

pub(super) fn an_extend_prolongs_every_member_and_shortens_none(group: &Fixture) {
    const HOUR: Duration = Duration::from_secs(3_600);
    // A holder believes in 1 % less.
    let is_long = |left: Duration| left > HOUR - HOUR / 50;
    let guard = group.request().lease(LONG).guard().unwrap().unwrap();
    for lease in [HOUR, ms(10)] {
        guard.extend(lease).unwrap();
        assert!(is_long(guard.remaining()), "{guard:?}");
        for (lock, name) in &group.members {
            assert!(is_long(lock.remaining_time_to_live(name).unwrap().unwrap()), "{name}");
        }
    }
    for lease in [Duration::ZERO, ms(9), Duration::MAX] {
        assert_err!(guard.extend(lease), Config);
    }
    let hold = guard.hold().clone();
    guard.unlock().unwrap();
    assert_err!(hold.extend(HOUR), NotHeld);
    group.assert_free();
}

pub(super) fn a_force_unlock_frees_every_member(group: &Fixture) {
    assert!(!group.force_unlock().unwrap());
    let guard = group.guard().unwrap();
    assert!(elsewhere(|| group.force_unlock().unwrap()));
    assert_eq!((guard.state(), group.locked()), (HoldState::Lost, vec![false; 3]));
    assert!(guard.lost().try_recv().is_ok(), "of three losses one is told");
    assert_err!(guard.unlock(), Lost);
    let (lock, name) = &group.members[0];
    while_held_elsewhere(lock, name, |_| ());
    group.assert_free();
}

pub(super) fn a_guard_unlocks_when_dropped(group: &Fixture) {
    let guard = group.guard().unwrap();
    assert_eq!(group.locked(), [true; 3]);
    assert!(elsewhere(|| group.try_guard().unwrap().is_none()));
    drop(guard);
    group.assert_free();
    assert!(group.try_guard().unwrap().is_some());
    group.assert_free();
}

pub(super) fn a_guard_says_how_its_unlock_ended(group: &Fixture) {
    group.guard().unwrap().unlock().unwrap();
    group.assert_free();
    let guard = group.guard().unwrap();
    group.force_unlock().unwrap();
    assert_err!(guard.unlock(), Lost);
    assert_eq!(group.hold_count(), 0, "the guard is gone in any case");
}

pub(super) fn a_hold_of_another_group_is_refused(group: &Fixture) {
    let part: redlatch::MultiLock<'_> = group.members[..2].iter().cloned().collect();
    let guard = group.guard().unwrap();
    assert_err!(part.release(&guard), Config);
    assert!(guard.is_valid());
}

pub(super) fn leases_have_bounds(group: &Fixture) {
    for lease in [Duration::ZERO, ms(9), Duration::MAX] {
        assert_err!(group.lock_with_lease(lease), Config);
        assert_err!(group.try_lock_with_lease(lease), Config);
        assert_err!(group.try_lock_for_with_lease(LONG, lease), Config);
    }
    group.assert_free();
}
