//! Two that say that they are the master, and one that says that it is none any more: neither is used.

use super::{FOLLOWED, group, is_followed, locks_of, patient};
use crate::harness::sentinel::Group;
use crate::threads::{LONG, Mark, SOON, WATCHED, eventually, ms, patiently};
use redlatch::{HoldState, RedLock, RedLockExt, ReentrantLock};

/// Each of so many clients has the connection left to any node on which it asks what it is.
fn none_is_used(group: &Group, clients: usize) -> bool {
    group.nodes.iter().all(|node| node.clients() <= clients)
}

#[track_caller]
fn assert_told_of_both(group: &Group, locks: &ReentrantLock) {
    let error = locks.try_lock("m").unwrap_err();
    let text = error.to_string();
    let named = |number: usize| text.contains(&group.nodes[number].address());
    assert!(error.is_retryable() && text.contains("say that they are the master"), "{text}");
    assert!(named(0) && named(1) && !named(2), "{text}");
}

/// A second master beside the first, with a hold that both know; the hold is released where one of them is left.
fn of_two_none_is_used_until_one_is_left(left: usize) {
    let group = group();
    let locks = locks_of(group.by_address(0).watchdog_timeout(10 * WATCHED).response_timeout(ms(500)));
    let guard = locks.guard("n").unwrap();
    group.replicated(0);
    group.nodes[1].promote();
    let promoted = Mark::now();
    eventually(LONG, "none is used", || none_is_used(&group, 1));
    assert!(promoted.elapsed() <= FOLLOWED, "{:?}", promoted.elapsed());
    let new = locks_of(group.by_address(1).response_timeout(ms(500)));
    for locks in [&locks, &new] {
        assert_told_of_both(&group, locks);
    }
    assert!(locks.verify(&guard).is_err() && none_is_used(&group, 2));
    assert!(group.nodes.iter().all(|node| node.pttl("m") == -2));
    group.nodes[1 - left].demote(&group.nodes[left]);
    let demoted = Mark::now();
    eventually(LONG, "the one that is left is used", || group.nodes[left].clients() > 2);
    assert!(demoted.elapsed() <= FOLLOWED, "{:?}", demoted.elapsed());
    eventually(SOON, "the hold goes on", || guard.state() == HoldState::Held && locks.verify(&guard).is_ok());
    assert!(patiently(|| new.try_lock("m")) && group.nodes[left].pttl("m") > 0);
    guard.unlock().unwrap();
    assert_eq!(group.nodes[left].pttl("n"), -2);
}

#[test]
fn of_two_masters_none_is_used_until_the_old_one_is_left() {
    of_two_none_is_used_until_one_is_left(0);
}

#[test]
fn of_two_masters_none_is_used_until_the_new_one_is_left() {
    of_two_none_is_used_until_one_is_left(1);
}

/// One of them goes without a word.
#[test]
fn of_two_masters_the_one_that_does_not_die_is_followed() {
    let mut group = group();
    let locks = locks_of(group.by_address(0).response_timeout(ms(500)));
    group.nodes[1].promote();
    assert_told_of_both(&group, &locks);
    group.nodes[0].kill();
    eventually(LONG, "the other is followed", || locks.try_lock("m").unwrap_or(false));
    assert!(group.nodes[1].pttl("m") > 0);
}

/// What was frozen goes on as the master that it was; then there are two.
#[test]
fn an_old_master_that_comes_back_is_the_second_one() {
    let group = group();
    let locks = locks_of(group.by_address(0).outage_budget(LONG));
    drop(locks.guard("n").unwrap());
    group.nodes[0].freeze();
    group.nodes[1].promote();
    locks.lock("n").unwrap();
    assert!(group.nodes[1].pttl("n") > 0);
    group.nodes[0].thaw();
    eventually(LONG, "none is used", || none_is_used(&group, 1));
    group.nodes[0].demote(&group.nodes[1]);
    eventually(LONG, "it is followed again", || locks.verify(&locks.hold("n").unwrap()).unwrap_or(false));
    locks.unlock("n").unwrap();
}

/// It would refuse what writes, but it answers what only reads, on connections that were made before.
#[test]
fn a_demoted_master_is_not_believed_before_there_is_another() {
    let group = group();
    let locks = patient(&group);
    let guard = locks.guard("n").unwrap();
    // Of nobody, so that it keeps what it has.
    group.sever(1);
    eventually(LONG, "its connections are closed", || none_is_used(&group, 1));
    let reader = locks_of(group.by_address(0).response_timeout(ms(300)).outage_budget(ms(300)));
    let error = reader.is_locked("n").unwrap_err();
    assert!(error.to_string().contains("none of 3 nodes says that it is the master"), "{error}");
    drop(reader);
    group.nodes[0].promote();
    eventually(FOLLOWED, "it is the master again", || is_followed(&group, 0));
    assert!(locks.verify(&guard).unwrap());
    guard.unlock().unwrap();
}
