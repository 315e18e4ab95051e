//! What each step makes of the word, and a stand-in for what renews and releases.

use super::*;
use crate::base::key::Naming;
use std::time::Duration;

/// Does nothing to tenures, for tests of what only hands it on.
pub(crate) struct Nobody;

impl Keeper for Nobody {
    fn renew(&self, _: &[Arc<Tenure>]) {}

    fn verify(&self, _: &[Arc<Tenure>]) {}

    fn sweep(&self, _: &Arc<Tenure>) -> Result<()> {
        Ok(())
    }

    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}

    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
        Ok(())
    }
}

fn tenure() -> (Tenure, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(1_000_000_000));
    let key = Key::new(Naming::Redisson, "", "n");
    (Tenure::new(key, OwnerId::default(), Clock::Manual(Arc::clone(&time))), time)
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).unwrap()
}

fn go(time: &AtomicU64, millis: u64) {
    time.fetch_add(millis * 1_000_000, SeqCst);
}

#[test]
fn validity_counts_from_the_sending() {
    let (tenure, time) = tenure();
    let sent = tenure.now();
    go(&time, 500);
    assert!(tenure.confirm(sent, lease(1_000)));
    go(&time, 487);
    assert!(tenure.is_valid());
    go(&time, 1);
    assert!(!tenure.is_valid());
    assert_eq!(tenure.state(), TenureState::Lost);
}

#[test]
fn an_acquire_answered_after_its_validity_holds_nothing() {
    let (tenure, time) = tenure();
    let sent = tenure.now();
    go(&time, 990);
    assert!(!tenure.confirm(sent, lease(1_000)));
    assert_eq!(tenure.state(), TenureState::Pending);
}

#[test]
fn renewals_only_lengthen() {
    let (tenure, time) = tenure();
    assert!(tenure.confirm(tenure.now(), lease(3_600_000)));
    let deadline = tenure.deadline();
    go(&time, 10);
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    assert_eq!(tenure.deadline(), deadline);
}

#[test]
fn a_renewal_answered_after_the_deadline_writes_lost() {
    let (tenure, time) = tenure();
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    go(&time, 500);
    let sent = tenure.now();
    go(&time, 600);
    assert!(!tenure.confirm(sent, lease(1_000)), "the reply came after the deadline");
    assert_eq!(tenure.state(), TenureState::Lost);
    assert!(!tenure.confirm(tenure.now(), lease(1_000)), "lost is for good");
}

#[test]
fn a_release_beats_renewals_and_losses() {
    let (tenure, _) = tenure();
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    assert!(tenure.end());
    assert!(!tenure.confirm(tenure.now(), lease(1_000)));
    tenure.lose();
    assert_eq!(tenure.state(), TenureState::Ended);
    assert!(!tenure.end(), "only the first release was of a valid hold");
}

#[test]
fn a_tenure_past_its_deadline_does_not_end_valid() {
    let (tenure, time) = tenure();
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    go(&time, 2_000);
    assert!(!tenure.end());
    assert_eq!(tenure.state(), TenureState::Lost);
}

/// What becomes of a deadline that was seen passed, when the word was changed before that could be written.
fn expired_over(word: u64) -> (bool, u64) {
    let (tenure, _) = tenure();
    tenure.word.store(word, SeqCst);
    (tenure.expire(500_000_000), tenure.word.load(SeqCst))
}

#[test]
fn an_expiry_gives_way_to_what_came_before_it() {
    let now = tenure().0.now().0;
    assert_eq!(expired_over(now + 1), (true, now + 1), "it was renewed meanwhile");
    assert_eq!(expired_over(now), (false, LOST), "it was renewed, and that is over too");
    assert_eq!(expired_over(ENDED), (false, ENDED), "it was released meanwhile");
    assert_eq!(expired_over(LOST), (false, LOST));
}

#[test]
fn an_id_is_unused_until_something_was_acquired_or_left_unanswered() {
    let [(fresh, _), (held, _), (open, _)] = [tenure(), tenure(), tenure()];
    assert!(fresh.is_unused() && fresh.deadline().is_none());
    assert!(held.confirm(held.now(), lease(1_000)) && !held.is_unused());
    open.leave_open(open.now(), lease(1_000));
    assert!(!open.is_unused());
    assert!(!fresh.end() && !fresh.is_unused(), "an id that ended is dead");
}

#[test]
fn fault_39_a_hold_is_over_after_a_suspend() {
    let (tenure, time) = tenure();
    let sent = tenure.now();
    assert!(tenure.confirm(sent, lease(30_000)));
    go(&time, 3_600_000);
    assert!(!tenure.is_valid(), "the first look after it");
    assert!(!tenure.confirm(sent, lease(30_000)), "the answer to a renewal that was sent before it");
    assert!(!tenure.confirm(tenure.now(), lease(30_000)), "a renewal after it");
    assert!(!tenure.end() && tenure.state() == TenureState::Lost);
}

#[test]
fn suspicion_passes_with_a_confirmed_renewal() {
    let (tenure, _) = tenure();
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    tenure.suspect();
    assert_eq!(tenure.state(), TenureState::Suspect);
    assert!(tenure.is_valid());
    assert!(tenure.confirm(tenure.now(), lease(1_000)));
    assert_eq!(tenure.state(), TenureState::Held);
}

#[test]
fn a_loss_is_told_once() {
    let (tenure, _) = tenure();
    assert!(tenure.announce_once());
    assert!(!tenure.announce_once());
}

#[test]
fn the_latest_open_attempt_counts() {
    let (tenure, _) = tenure();
    assert_eq!(tenure.open_until(), None);
    tenure.leave_open(Moment(50), lease(1_000));
    tenure.leave_open(Moment(20), lease(1_000));
    assert_eq!(tenure.open_until(), Some(Moment(50)));
}
