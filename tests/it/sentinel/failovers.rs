//! A master that is replaced: what its clients do, what becomes of holds and waiters, and that nobody believes the old one.

use super::{MINUTE, eventually_free, locks_of, patient};
use crate::harness::papers::Flaw;
use crate::harness::sentinel::{Group, Shape};
use crate::threads::{LONG, Mark, SOON, answered, eventually, finish, lost_within, ms, timed};
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How long sentinels may take to find that a master is silent and to name another one.
const FAILOVER: Duration = Duration::from_secs(5);

/// Its replicas know it before the failover.
fn eventually_replicated(group: &Group, name: &str) {
    eventually(LONG, "it is replicated", || group.nodes[1..].iter().all(|node| node.pttl(name) > 0));
}

/// Waits for the lock with each of these, and tells when it had it.
fn wait_all<'s>(scope: &'s Scope<'s, '_>, locks: &'s [ReentrantLock]) -> Vec<ScopedJoinHandle<'s, Mark>> {
    let wait = |locks: &'s ReentrantLock| {
        scope.spawn(move || {
            let guard = locks.guard("n").unwrap();
            let served = Mark::now();
            guard.unlock().unwrap();
            served
        })
    };
    locks.iter().map(wait).collect()
}

fn all_wait(group: &Group, waiters: usize) {
    let listening = || group.nodes[0].subscribers("redisson_lock__channel:{n}") == waiters as i64;
    eventually(LONG, "all listen", listening);
}

/// Whether the master is killed or told to give way, its replica has the hold, and those who wait hear of the release there.
fn holds_and_waiters_go_over(shape: Shape, replace: impl FnOnce(&mut Group)) {
    let mut group = Group::of(shape);
    let (holder, waiters) = (patient(&group), [(); 4].map(|()| patient(&group)));
    std::thread::scope(|scope| {
        // Released when the test fails, too: those who wait would keep it from ending.
        let guard = holder.guard("n").unwrap();
        eventually_replicated(&group, "n");
        let waiting = wait_all(scope, &waiters);
        all_wait(&group, waiters.len());
        let before = holder.client().stats().renewals;
        replace(&mut group);
        let new = group.replaced(0);
        let named = Mark::now();
        eventually(SOON, "the hold is renewed at the new master", || holder.client().stats().renewals > before);
        assert!(named.elapsed() <= SOON && guard.state() == HoldState::Held, "{:?}", guard.state());
        let listening = || group.nodes[new].subscribers("redisson_lock__channel:{n}") == waiters.len() as i64;
        eventually(SOON, "those who wait listen there", listening);
        let released = Mark::now();
        guard.unlock().unwrap();
        for waiter in waiting {
            let took = finish(waiter) - released;
            assert!(took <= 2 * SOON, "served after {took:?}");
        }
        assert_eq!(group.nodes[new].pttl("n"), -2);
    });
}

#[test]
fn holds_and_waiters_go_over_when_the_master_dies() {
    holds_and_waiters_go_over(Shape::USUAL, |group| group.nodes[0].kill());
}

#[test]
fn holds_and_waiters_go_over_by_tls_when_the_master_dies() {
    holds_and_waiters_go_over(Shape::USUAL.sealed(Flaw::None), |group| group.nodes[0].kill());
}

#[test]
fn holds_and_waiters_go_over_when_the_master_is_told_to_give_way() {
    holds_and_waiters_go_over(Shape::USUAL, |group| group.fail_over(2));
}

/// Nothing told those who wait: the one who held it is gone with the key.
#[test]
fn waiters_for_what_was_lost_with_the_master_are_served_at_once() {
    let mut group = Group::start();
    let (holder, waiters) = (patient(&group), [(); 4].map(|()| patient(&group)));
    group.sever(0);
    holder.lock("n").unwrap();
    let hold = holder.hold("n").unwrap();
    std::thread::scope(|scope| {
        let waiting = wait_all(scope, &waiters);
        all_wait(&group, waiters.len());
        group.nodes[0].kill();
        group.replaced(0);
        let named = Mark::now();
        assert_eq!(lost_within(SOON, &hold), LossCause::Removed, "not a third of a minute later");
        for waiter in waiting {
            let took = finish(waiter) - named;
            println!("served {took:?} after the first sentinel named the new master");
            assert!(took <= 2 * SOON, "served after {took:?}");
        }
    });
    assert_err!(holder.unlock("n"), Lost);
    eventually_free(&group);
}

/// Its replicas do not hear of the release: the one that takes its place has a lock that nobody holds, for another minute.
#[test]
fn what_was_freed_before_the_failover_is_free_after_it() {
    let group = Group::start();
    let (holder, other) = (patient(&group), patient(&group));
    for name in ["n", "m"] {
        holder.lock(name).unwrap();
        eventually_replicated(&group, name);
    }
    group.sever(0);
    holder.unlock("n").unwrap();
    assert_eq!(group.nodes[0].pttl("n"), -2);
    group.fail_over(0);
    // Who has not moved yet would get it at the old master, and lose it.
    let new = &group.nodes[group.replaced(0)];
    new.ask::<i64>(&["HSET", "here", "x", "1"]);
    let has_moved = |locks: &ReentrantLock| locks.is_locked("here").is_ok_and(|here| here);
    eventually(LONG, "both have moved", || has_moved(&holder) && has_moved(&other));
    let moved = Mark::now();
    assert!(other.try_lock_for("n", LONG).unwrap(), "it is locked");
    assert!(moved.elapsed() <= 2 * SOON, "it was free after {:?}", moved.elapsed());
    assert!(!other.try_lock("m").unwrap(), "what is held stays so");
    assert_eq!(holder.hold("m").unwrap().state(), HoldState::Held);
    other.unlock("n").unwrap();
    holder.unlock("m").unwrap();
}

/// It is not renewed, so nobody else would ever ask for it.
#[test]
fn a_hold_of_a_fixed_lease_is_verified_at_the_new_master_and_not_prolonged() {
    let mut group = Group::start();
    let locks = patient(&group);
    assert!(locks.try_lock_for_with_lease("kept", LONG, MINUTE).unwrap());
    eventually_replicated(&group, "kept");
    group.sever(0);
    assert!(locks.try_lock_for_with_lease("gone", LONG, MINUTE).unwrap());
    let [kept, gone] = ["kept", "gone"].map(|name| locks.hold(name).unwrap());
    group.nodes[0].kill();
    let new = group.replaced(0);
    assert_eq!(lost_within(SOON, &gone), LossCause::Removed);
    eventually(SOON, "it is verified", || locks.client().stats().renewals > 0);
    assert!(kept.is_valid() && kept.remaining() < MINUTE);
    assert!(group.nodes[new].pttl("kept") < MINUTE.as_millis() as i64);
    locks.unlock("kept").unwrap();
    assert_err!(locks.unlock("gone"), Lost);
}

/// What is stopped takes writes for a second or more after it goes on, and says that it is the master: nobody asks it any more.
#[test]
fn an_old_master_that_comes_back_is_neither_written_to_nor_believed() {
    let group = Group::start();
    let (locks, other) = (patient(&group), patient(&group));
    for locks in [&locks, &other] {
        drop(locks.guard("a").unwrap());
    }
    group.nodes[0].freeze();
    // It is under way at the old one, which reads it when it goes on.
    let ((), took) = timed(|| locks.lock("n").unwrap());
    let new = group.replaced(0);
    let bound = FAILOVER + SOON;
    assert!(took <= bound && group.nodes[new].pttl("n") > 0, "taken after {took:?}");
    // Who has not been told yet would believe the old one.
    eventually(LONG, "the other has moved, too", || other.is_locked("n").unwrap_or(false));
    group.nodes[0].thaw();
    eventually(LONG, "it answers", || group.nodes[0].try_ask::<String>(&["PING"]).is_ok());
    assert!(!other.try_lock("n").unwrap());
    other.lock("m").unwrap();
    assert!(group.nodes[new].pttl("m") > 0);
    assert!(group.nodes[0].role() == "slave" || group.nodes[0].pttl("m") == -2);
    eventually(SOON, "no connection is left", || group.nodes[0].clients() == 0);
    assert!(locks.verify(&locks.hold("n").unwrap()).unwrap());
    locks.unlock("n").unwrap();
    other.unlock("m").unwrap();
}

/// However long an answer may take: it would not be believed.
#[test]
fn what_is_under_way_at_a_silent_master_is_asked_of_the_new_one_at_once() {
    let group = Group::start();
    let locks = locks_of(group.builder().watchdog_timeout(MINUTE).response_timeout(LONG).outage_budget(MINUTE));
    drop(locks.guard("n").unwrap());
    group.nodes[0].freeze();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| locks.guard("n").map(|guard| (Mark::now(), guard.unlock())));
        group.replaced(0);
        let named = Mark::now();
        let (taken, unlocked) = finish(asking).unwrap();
        assert!(unlocked.is_ok() && taken - named <= SOON, "{unlocked:?}, taken after {:?}", taken - named);
    });
    group.nodes[0].thaw();
}

#[test]
fn idle_connections_to_a_master_that_gave_way_are_closed_at_once() {
    let group = Group::start();
    let locks = locks_of(group.builder().poll_cap(ms(100)));
    let guards: Vec<_> = ["a", "b", "c"].iter().map(|name| locks.guard(name).unwrap()).collect();
    assert!(!answered(|| patient(&group).try_lock_for("a", SOON)).0);
    eventually_replicated(&group, "c");
    group.fail_over(0);
    group.replaced(0);
    eventually(SOON, "none is left", || group.nodes[0].clients() == 0);
    assert_eq!(group.nodes[0].role(), "master", "nobody has told it yet");
    for guard in guards {
        guard.unlock().unwrap();
    }
}

/// A, then B, then A: each time what was not replicated is found out.
#[test]
fn a_master_may_become_one_again() {
    let mut group = Group::start();
    let locks = patient(&group);
    locks.lock("n").unwrap();
    eventually_replicated(&group, "n");
    group.fail_over(0);
    let second = group.replaced(0);
    assert_eq!(group.settled(), second);
    group.seen_as_replica(0);
    assert!(locks.verify(&locks.hold("n").unwrap()).unwrap());
    let other = (1..3).find(|node| *node != second).unwrap();
    group.nodes[other].kill();
    group.fail_over(1);
    assert_eq!(group.replaced(second), 0);
    eventually(SOON, "it is renewed there", || locks.verify(&locks.hold("n").unwrap()).is_ok());
    assert!(group.nodes[0].pttl("n") > 0);
    locks.unlock("n").unwrap();
}
