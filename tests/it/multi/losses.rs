//! Groups of which a member, or all, end under their holder.

use super::Fixture;
use crate::threads::{LONG, elsewhere, ms, run_out};
use crossbeam_channel::RecvTimeoutError;
use redlatch::{HoldState, LossCause, RedLock};

pub(super) fn leases_that_run_out_free_the_group(group: &Fixture) {
    // Long enough for a busy machine to take all before the first is over.
    let guard = group.request().lease(ms(400)).guard().unwrap().unwrap();
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert_eq!((guard.state(), guard.is_valid()), (HoldState::Lost, false));
    assert!(elsewhere(|| group.try_lock_for(LONG).unwrap() && group.unlock().is_ok()));
    assert_err!(guard.unlock(), Lost);
    group.assert_free();
}

pub(super) fn a_try_with_a_lease_ends_by_itself(group: &Fixture) {
    // As above.
    assert!(group.try_lock_with_lease(ms(400)).unwrap());
    for (lock, name) in &group.members {
        run_out(&lock.hold(name).unwrap());
    }
    assert_err!(group.unlock(), Lost);
    group.assert_free();
}

pub(super) fn a_loss_of_one_member_is_a_loss_of_the_group(group: &Fixture) {
    for (lock, name) in &group.members {
        let guard = group.guard().unwrap();
        let early = [guard.lost(), guard.lost()];
        assert!(early.iter().all(|lost| lost.try_recv().is_err()), "it is not lost yet");
        assert!(elsewhere(|| lock.force_unlock(name).unwrap()));
        assert_eq!((guard.state(), guard.is_valid(), guard.remaining()), (HoldState::Lost, false, ms(0)));
        assert!(!group.is_held_by_current_thread());
        for lost in early.into_iter().chain([guard.lost()]) {
            let news = lost.recv_timeout(LONG).unwrap();
            assert_eq!((news.resource(), news.cause()), (name.as_str(), LossCause::Removed));
            assert!(lost.try_recv().is_err(), "told twice");
        }
        drop(guard);
        group.assert_free();
    }
}

pub(super) fn an_unlock_releases_past_a_lost_member(group: &Fixture) {
    for (lock, name) in &group.members {
        group.lock().unwrap();
        lock.force_unlock(name).unwrap();
        let error = group.unlock().unwrap_err();
        assert!(matches!(error, redlatch::Error::Lost { .. }), "{error}");
        assert_eq!(error.resource(), Some(name.as_str()));
        group.assert_free();
    }
    // Of several that were lost the first that is released is told: the last that was taken.
    group.lock().unwrap();
    group.force_unlock().unwrap();
    assert_eq!(group.unlock().unwrap_err().resource(), Some("c"));
}

pub(super) fn a_lost_member_cannot_be_re_entered_until_it_is_unlocked(group: &Fixture) {
    group.lock().unwrap();
    let (lock, name) = &group.members[2];
    lock.force_unlock(name).unwrap();
    for _ in 0..2 {
        assert_err!(group.lock(), Lost);
        assert_err!(group.try_lock(), Lost);
        assert_eq!(group.hold_count(), 1);
        assert_eq!(group.locked(), [true, true, false]);
    }
    assert_err!(group.unlock(), Lost);
    group.lock().unwrap();
    group.unlock().unwrap();
    group.assert_free();
}

pub(super) fn nothing_is_prolonged_once_a_member_is_lost(group: &Fixture) {
    for lost in 0..3 {
        let guard = group.request().lease(LONG).guard().unwrap().unwrap();
        let (lock, name) = &group.members[lost];
        lock.force_unlock(name).unwrap();
        let error = guard.extend(LONG * 100).unwrap_err();
        assert!(matches!(error, redlatch::Error::Lost { .. }) && error.resource() == Some(name.as_str()), "{error}");
        assert!(group.remaining_time_to_live().unwrap().unwrap() <= LONG, "without {name}");
        drop(guard);
        group.assert_free();
    }
}

pub(super) fn listeners_of_a_released_group_are_disconnected(group: &Fixture) {
    group.lock().unwrap();
    let hold = group.guard().unwrap().hold().clone();
    let lost = hold.lost();
    assert!(lost.try_recv().is_err());
    group.unlock().unwrap();
    for lost in [lost, hold.lost()] {
        assert_eq!(lost.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }
}
