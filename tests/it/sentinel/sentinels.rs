//! Sentinels that are away, that know less than others, and that come later.

use super::{locks_of, patient};
use crate::harness::oracle::Oracle;
use crate::harness::sentinel::{Group, NAME};
use crate::threads::{LONG, SOON, eventually, timed};
use redlatch::{Client, RedLock, RedLockExt};

/// The group by all of its sentinels and others.
fn beside(group: &Group, others: &[&Oracle]) -> String {
    let others: Vec<_> = others.iter().map(|other| format!("{},", other.address())).collect();
    group.url().replace("://", &format!("://{}", others.concat()))
}

/// Two that still name the old master, which still calls itself one, beside three that know better.
#[test]
fn sentinels_that_were_away_lead_nobody_back() {
    let group = Group::start();
    let stale = [(); 2].map(|()| Oracle::naming(group.nodes[0].port(), 0));
    let url = beside(&group, &[&stale[0], &stale[1]]);
    let early = locks_of(Client::builder(&url));
    drop(early.guard("n").unwrap());
    group.fail_over(0);
    let new = group.replaced(0);
    let master = &group.nodes[new];
    eventually(SOON, "the new master is followed", || early.guard("n").is_ok_and(|_guard| master.pttl("n") > 0));
    let late = locks_of(Client::builder(&url));
    assert_eq!(group.nodes[0].role(), "master", "it was not told yet");
    for locks in [&early, &late] {
        for _ in 0..20 {
            let _guard = locks.guard("n").unwrap();
            assert!(master.pttl("n") > 0);
        }
    }
    eventually(SOON, "none is left", || group.nodes[0].clients() == 0);
}

/// The leader of a failover says the new epoch beside the old address for a while; whoever believes it goes back.
#[test]
fn an_address_of_the_same_epoch_leads_nobody_away() {
    let group = Group::without_sentinels();
    let oracle = Oracle::naming(group.nodes[0].port(), 0);
    let locks = locks_of(Client::builder(&format!("redis+sentinel://{}/{NAME}", oracle.address())));
    drop(locks.guard("n").unwrap());
    let _: String = group.nodes[1].ask(&["REPLICAOF", "NO", "ONE"]);
    oracle.name(group.nodes[1].port(), 0);
    oracle.heard();
    drop(locks.guard("n").unwrap());
    assert_eq!((group.nodes[0].clients() > 0, group.nodes[1].clients()), (true, 0));
    oracle.name(group.nodes[1].port(), 1);
    eventually(LONG, "a higher epoch does", || group.nodes[1].clients() > 0);
    drop(locks.guard("n").unwrap());
    eventually(SOON, "none is left", || group.nodes[0].clients() == 0);
}

/// Who is named may be none yet, or none any more.
#[test]
fn a_node_that_says_that_it_is_a_replica_is_not_followed() {
    let group = Group::start();
    let oracle = Oracle::naming(group.nodes[1].port(), 1);
    let locks = locks_of(Client::builder(&format!("redis+sentinel://{}/{NAME}", oracle.address())));
    let error = locks.try_lock("n").unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("it says that it is not the master"), "{error}");
    oracle.name(group.nodes[0].port(), 2);
    let guard = locks.guard("n").unwrap();
    oracle.name(group.nodes[1].port(), 3);
    oracle.heard();
    assert!(locks.verify(&guard).unwrap() && group.nodes[0].clients() > 0);
    let _: String = group.nodes[1].ask(&["REPLICAOF", "NO", "ONE"]);
    eventually(LONG, "it is followed as soon as it is one", || group.nodes[0].clients() == 0);
    guard.unlock().unwrap();
}

#[test]
fn other_sentinels_are_learned_and_asked_when_the_first_is_gone() {
    let mut group = Group::start();
    let locks = locks_of(Client::builder(&format!("redis+sentinel://{}/{NAME}", group.sentinels[0].address())));
    drop(locks.guard("n").unwrap());
    eventually(LONG, "all are listened to", || group.sentinels.iter().all(|sentinel| sentinel.listeners() == 1));
    group.sentinels[0].kill();
    group.nodes[0].kill();
    let new = group.replaced(0);
    let (served, took) = timed(|| locks.lock("n"));
    assert!(served.is_ok() && took <= SOON, "{served:?} after {took:?}");
    assert!(group.nodes[new].pttl("n") > 0);
    locks.unlock("n").unwrap();
}

/// It is frozen before the master goes, and one of the others leads the failover.
#[test]
fn a_frozen_sentinel_keeps_nobody_from_a_new_master() {
    let mut group = Group::start();
    let locks = patient(&group);
    drop(locks.guard("n").unwrap());
    group.replicated(0);
    group.sentinels[1].freeze();
    group.nodes[0].kill();
    let new = group.replaced(0);
    let (served, took) = timed(|| locks.lock("n"));
    assert!(served.is_ok() && took <= SOON, "{served:?} after {took:?}");
    assert!(group.nodes[new].pttl("n") > 0);
    locks.unlock("n").unwrap();
    group.sentinels[1].thaw();
    drop(patient(&group).guard("n").unwrap());
}
