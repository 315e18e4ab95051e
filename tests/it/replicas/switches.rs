//! A master that is replaced by hand: what its clients do, and what becomes of holds and waiters.

use super::{FOLLOWED, MINUTE, group, is_followed, locks_of, patient};
use crate::harness::by_hand::WITHOUT_SENTINELS;
use crate::harness::papers::Flaw;
use crate::harness::sentinel::{Group, Member, Shape};
use crate::threads::{LONG, Mark, SOON, Took, eventually, finish, lost_within, spawn_asleep, timed};
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

const WAITERS: usize = 4;

/// Who has just found a master asks again in some tens of milliseconds, and after that each second.
const SETTLED: Duration = Duration::from_millis(200);

fn all_wait(node: &Member) {
    let listening = || node.subscribers("redisson_lock__channel:{n}") == WAITERS as i64;
    eventually(LONG, "all listen", listening);
}

/// Whatever becomes of the old master, its replica has the hold, and those who wait hear of the release there.
fn holds_and_waiters_go_over(shape: Shape, replace: impl FnOnce(&mut Group)) {
    let mut group = Group::of(shape);
    let (holder, waiters) = (patient(&group), [(); WAITERS].map(|()| patient(&group)));
    std::thread::scope(|scope| {
        // Released when the test fails, too: those who wait would keep it from ending.
        let guard = holder.guard("n").unwrap();
        group.replicated(0);
        let wait = |locks: &ReentrantLock| locks.lock("n").and_then(|()| locks.unlock("n"));
        let waiting: Vec<_> = waiters.iter().map(|locks| spawn_asleep(scope, move || wait(locks))).collect();
        all_wait(&group.nodes[0]);
        let before = holder.client().stats().renewals;
        replace(&mut group);
        let replaced = Mark::now();
        eventually(LONG, "the hold is renewed at the new master", || holder.client().stats().renewals > before);
        assert!(replaced.elapsed() <= FOLLOWED && guard.state() == HoldState::Held, "{:?}", guard.state());
        all_wait(&group.nodes[1]);
        let released = Mark::now();
        guard.unlock().unwrap();
        for waiter in waiting {
            let (served, when) = finish(waiter);
            assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
        }
        assert_eq!(group.nodes[1].pttl("n"), -2);
    });
}

#[test]
fn holds_and_waiters_go_over_when_a_replica_is_promoted_and_then_the_master_demoted() {
    holds_and_waiters_go_over(WITHOUT_SENTINELS, |group| {
        group.nodes[1].promote();
        group.nodes[0].demote(&group.nodes[1]);
    });
}

#[test]
fn holds_and_waiters_go_over_when_the_master_is_demoted_and_then_a_replica_promoted() {
    holds_and_waiters_go_over(WITHOUT_SENTINELS, |group| {
        group.nodes[0].demote(&group.nodes[1]);
        group.nodes[1].promote();
    });
}

#[test]
fn holds_and_waiters_go_over_when_the_master_dies_and_a_replica_is_promoted() {
    for shape in [WITHOUT_SENTINELS, WITHOUT_SENTINELS.sealed(Flaw::None)] {
        holds_and_waiters_go_over(shape, |group| {
            group.nodes[0].kill();
            group.nodes[1].promote();
        });
    }
}

/// It answers nobody, and is not waited for.
#[test]
fn holds_and_waiters_go_over_when_the_master_freezes_and_a_replica_is_promoted() {
    holds_and_waiters_go_over(WITHOUT_SENTINELS, |group| {
        group.nodes[0].freeze();
        group.nodes[1].promote();
    });
}

#[test]
fn what_did_not_make_it_is_lost_at_once_and_its_waiters_are_served() {
    let group = group();
    let (holder, waiter) = (patient(&group), patient(&group));
    group.sever(0);
    holder.lock("n").unwrap();
    let hold = holder.hold("n").unwrap();
    assert!(holder.try_lock_for_with_lease("fixed", LONG, MINUTE).unwrap());
    let fixed = holder.hold("fixed").unwrap();
    std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || waiter.lock("n").and_then(|()| waiter.unlock("n")));
        group.nodes[1].promote();
        group.nodes[0].demote(&group.nodes[1]);
        let replaced = Mark::now();
        for hold in [&hold, &fixed] {
            assert_eq!(lost_within(FOLLOWED, hold), LossCause::Removed, "not a third of a minute later");
        }
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - replaced <= FOLLOWED + SOON, "{served:?} after {:?}", when - replaced);
    });
    assert_err!(holder.unlock("n"), Lost);
    assert_err!(holder.unlock("fixed"), Lost);
}

/// All connections of a client that asks for nothing meanwhile live on.
#[test]
fn a_switch_in_quiet_times_is_seen_within_a_second() {
    let group = group();
    let locks = locks_of(group.by_address(2));
    drop(locks.guard("n").unwrap());
    std::thread::sleep(SETTLED);
    group.nodes[1].promote();
    group.nodes[0].demote(&group.nodes[1]);
    let ((), took) = timed(|| eventually(LONG, "it is followed", || is_followed(&group, 1)));
    assert!(took <= FOLLOWED, "{took:?}");
}

/// Nobody has to wait for the next time that all are asked, which would be a second later each time.
#[test]
fn a_call_that_the_old_master_refuses_is_made_at_the_new_one() {
    let group = group();
    let locks = patient(&group);
    let switch = |(old, new): (usize, usize)| {
        drop(locks.guard("n").unwrap());
        std::thread::sleep(SETTLED);
        group.nodes[new].promote();
        group.nodes[old].demote(&group.nodes[new]);
        let (guard, took) = timed(|| locks.guard("n").unwrap());
        assert!(group.nodes[new].pttl("n") > 0);
        guard.unlock().unwrap();
        took
    };
    let took: Took = [(0, 1), (1, 0), (0, 2), (2, 0)].into_iter().map(switch).sum();
    assert!(took <= 2 * SOON, "{took:?}");
}

/// It is no answer that the hold is over and the lock is freed some time later: there is a master that can free it now.
#[test]
fn an_unlock_that_the_old_master_refuses_is_made_at_the_new_one() {
    let group = group();
    let locks = patient(&group);
    locks.lock("n").unwrap();
    group.replicated(0);
    std::thread::sleep(SETTLED);
    group.nodes[1].promote();
    group.nodes[0].demote(&group.nodes[1]);
    let (unlocked, took) = timed(|| locks.unlock("n"));
    assert!(unlocked.is_ok() && took <= FOLLOWED, "{unlocked:?} after {took:?}");
    assert_eq!(group.nodes[1].pttl("n"), -2);
}
