//! A tenure that is renewed, lost, released and running out at once.

use crate::base::key::{FullKey, Key, Naming};
use crate::base::owner::OwnerId;
use crate::base::time::{Clock, Lease};
use crate::lease::tenure::{Tenure, TenureState};
use crate::sync::{advance, thread};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn lease() -> Lease {
    Lease::clamped(Duration::from_secs(3))
}

pub(crate) fn key() -> Key {
    Key::of(Naming::Redisson, "", FullKey::new("", "n"))
}

/// A tenure that is held from now on.
pub(crate) fn held() -> Arc<Tenure> {
    let tenure = Tenure::new(key(), OwnerId::default(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), lease()));
    Arc::new(tenure)
}

fn with(tenure: &Arc<Tenure>, act: impl FnOnce(&Tenure) + Send + 'static) -> thread::JoinHandle<()> {
    let tenure = Arc::clone(tenure);
    thread::spawn(move || act(&tenure))
}

fn is_over(state: TenureState) -> bool {
    matches!(state, TenureState::Lost | TenureState::Ended)
}

pub(crate) fn an_end_is_for_good_and_there_is_one() {
    let tenure = held();
    let renewing = with(&tenure, |tenure| {
        let sent = tenure.now();
        let _ = tenure.confirm(sent, lease());
        let _ = tenure.confirm(tenure.now(), lease());
    });
    let losing = with(&tenure, Tenure::lose);
    let passing = thread::spawn(|| advance(Duration::from_secs(4)));
    let watching = with(&tenure, |tenure| {
        let seen = [(); 4].map(|()| (tenure.is_valid(), tenure.state()));
        for pair in seen.windows(2).filter(|pair| is_over(pair[0].1)) {
            assert_eq!((false, pair[0].1), pair[1], "it was over");
        }
    });
    let ended_valid = tenure.end();
    assert!(!tenure.is_valid(), "its release is about to be sent");
    assert_eq!(tenure.state() == TenureState::Ended, ended_valid, "either released or lost");
    for thread in [renewing, losing, passing, watching] {
        thread.join().unwrap();
    }
    assert_eq!(tenure.state() == TenureState::Ended, ended_valid, "and it stays so");
    assert!(!tenure.confirm(tenure.now(), lease()));
}

pub(crate) fn whoever_sees_the_deadline_passed_ends_what_a_renewal_did_not_save() {
    let tenure = held();
    let sent = tenure.now();
    let renewing = with(&tenure, move |tenure| {
        let _ = tenure.confirm(sent.plus(Duration::from_secs(2)), lease());
    });
    let passing = thread::spawn(|| advance(Duration::from_secs(3)));
    let was_valid = tenure.is_valid();
    let state = tenure.state();
    assert!(was_valid || state == TenureState::Lost || tenure.deadline().is_none(), "{state:?}");
    renewing.join().unwrap();
    passing.join().unwrap();
    assert_eq!(tenure.is_valid(), state != TenureState::Lost && tenure.state() != TenureState::Lost);
}

pub(crate) fn a_loss_has_one_teller() {
    let tenure = held();
    let told = [(); 3].map(|()| {
        let tenure = Arc::clone(&tenure);
        thread::spawn(move || {
            tenure.lose();
            tenure.announce_once()
        })
    });
    let told = told.map(|thread| usize::from(thread.join().unwrap()));
    assert_eq!(told.iter().sum::<usize>(), 1);
}
