//! Rows 78 to 80: a master and replicas that are given by their addresses, and replaced by hand.

use crate::threads::{LATE, LONG, Mark, SOON, eventually, finish, lost_within, ms, patiently, spawn_asleep};
use crate::{LEASE, MINUTE, locks_of, patient};
use harness::sentinel::Group;
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// How soon a switch is followed that breaks no connection: all are asked each second.
const FOLLOWED: Duration = Duration::from_secs(1).saturating_add(SOON);

/// How long a call is waited for here that finds no master.
const ANSWER: Duration = Duration::from_millis(500);

/// What a call says that is made for a lock of its own; nobody is left to take it.
fn refusal(locks: &ReentrantLock) -> String {
    let error = locks.try_lock("other").unwrap_err();
    assert!(error.is_retryable(), "{error}");
    error.to_string()
}

#[test]
fn fault_78_a_switch_by_hand_is_followed_though_no_connection_breaks() {
    let group = Group::without_sentinels();
    let [holder, waiter] = [(); 2].map(|()| patient(group.by_address(2)));
    std::thread::scope(|scope| {
        let kept = holder.guard("kept").unwrap();
        group.replicated(0);
        group.sever(0);
        let gone = holder.request("gone").lease(MINUTE).guard().unwrap().unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard("gone").map(drop));
        eventually(LONG, "it listens", || group.nodes[0].subscribers("redisson_lock__channel:{gone}") == 1);
        let before = holder.client().stats().renewals;
        group.nodes[1].promote();
        group.nodes[0].demote(&group.nodes[1]);
        let replaced = Mark::now();
        assert_eq!(lost_within(FOLLOWED, &gone), LossCause::Removed);
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - replaced <= FOLLOWED + SOON, "{served:?} after {:?}", when - replaced);
        eventually(SOON, "the other is renewed", || holder.client().stats().renewals > before);
        assert!(kept.state() == HoldState::Held && group.nodes[1].pttl("kept") > 0);
        kept.unlock().unwrap();
    });
}

/// Either may be the one that is cut off from those who promoted the other: holds end with their leases.
#[test]
fn fault_79_of_two_masters_none_is_used() {
    let group = Group::without_sentinels();
    let builder = || group.by_address(0).response_timeout(ANSWER);
    let locks = locks_of(builder().watchdog_timeout(LEASE));
    let guard = locks.guard("n").unwrap();
    group.replicated(0);
    group.nodes[1].promote();
    eventually(LONG, "it is in doubt", || guard.state() == HoldState::Suspect);
    for locks in [&locks, &locks_of(builder())] {
        let text = refusal(locks);
        assert!(text.contains("say that they are the master"), "{text}");
        assert!(text.contains(&group.nodes[0].address()) && text.contains(&group.nodes[1].address()), "{text}");
    }
    assert_eq!(lost_within(LEASE + LATE, &guard), LossCause::Expired);
    assert!(group.nodes.iter().all(|node| node.pttl("other") == -2), "nothing was asked of either");
    group.nodes[0].demote(&group.nodes[1]);
    eventually(LONG, "the other is followed", || locks.try_lock("other").unwrap_or(false));
    assert!(group.nodes[1].pttl("other") > 0);
    assert_err!(guard.unlock(), Lost);
    locks.unlock("other").unwrap();
}

/// It still answers what only reads, and two replicas of each other know the lock.
#[test]
fn fault_80_a_master_that_was_demoted_is_not_believed_before_another_is_promoted() {
    let mut group = Group::without_sentinels();
    let (locks, waiter) = (patient(group.by_address(0)), patient(group.by_address(1)));
    let guard = locks.guard("n").unwrap();
    let hasty = locks_of(group.by_address(0).response_timeout(ANSWER).outage_budget(ANSWER));
    assert!(patiently(|| hasty.is_locked("n")));
    group.replicated(0);
    std::thread::scope(|scope| {
        group.nodes[0].demote(&group.nodes[1]);
        group.nodes[2].kill();
        eventually(FOLLOWED, "no read of it is believed", || hasty.is_locked("n").is_err());
        let text = refusal(&hasty);
        assert!(text.contains("none of 3 nodes says that it is the master"), "{text}");
        let [first, second, third] = [0, 1, 2].map(|number| group.nodes[number].address());
        for said in [format!("{first} is a replica"), format!("{second} is a replica"), format!("{third}: ")] {
            assert!(text.contains(&said), "{text}");
        }
        let waiting = spawn_asleep(scope, || waiter.guard("m").map(drop));
        std::thread::sleep(ms(200));
        assert!(!waiting.is_finished());
        group.nodes[1].promote();
        let promoted = Mark::now();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - promoted <= FOLLOWED + SOON, "{served:?} after {:?}", when - promoted);
    });
    assert!(locks.verify(&guard).unwrap() && group.nodes[1].pttl("n") > 0);
    guard.unlock().unwrap();
}
