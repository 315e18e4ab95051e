//! A quorum whose nodes are groups: a master that is replaced is a node that was away.

use super::MINUTE;
use crate::harness::quorum::eventually_confirmed;
use crate::harness::sentinel::{Group, Shape};
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms, timed};
use redlatch::{HoldState, QuorumLock, RedLockExt};
use std::time::Duration;

/// Renewed every third of it, and longer than a failover takes: a key that ends meanwhile is not put back.
const LEASE: Duration = Duration::from_secs(15);

/// Two groups and a server, and the locks on them.
fn start(lease: Duration) -> ([Group; 2], Server, QuorumLock) {
    let (groups, server) = ([(); 2].map(|()| Group::of(Shape::SMALL)), Server::start());
    let urls = [groups[0].url(), groups[1].url(), server.url()];
    let locks = QuorumLock::builder(urls).node_timeout(ms(1_000)).watchdog_timeout(lease).build().unwrap();
    (groups, server, locks)
}

#[test]
fn a_hold_of_a_majority_outlives_a_master_and_is_renewed_at_the_new_one() {
    let (mut groups, server, locks) = start(LEASE);
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 3);
    groups[0].replicated(0);
    groups[0].nodes[0].kill();
    let (other, took) = timed(|| locks.guard("m").unwrap());
    assert!(took <= SOON && guard.is_valid(), "{took:?}");
    other.unlock().unwrap();
    assert_eq!(groups[0].replaced(0), 1);
    let fresh = (LEASE - SOON).as_millis() as i64;
    eventually(LONG, "it is renewed at the new master", || groups[0].nodes[1].pttl("n") > fresh);
    eventually_confirmed(&locks, 3);
    let ends = || [groups[0].nodes[1].pttl("n"), groups[1].nodes[0].pttl("n"), server.pttl("n")];
    assert!(guard.is_valid() && ends().iter().all(|left| *left > 0), "{:?}", ends());
    guard.unlock().unwrap();
    eventually(LONG, "all have freed it", || ends() == [-2; 3]);
}

/// Renewals come so seldom that only the move makes it ask.
#[test]
fn what_a_new_master_does_not_know_is_one_vote_less() {
    let (mut groups, _server, locks) = start(MINUTE);
    groups[1].sever(0);
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 3);
    groups[1].nodes[0].kill();
    assert_eq!(groups[1].replaced(0), 1);
    let confirmed = || guard.confirmed_by().unwrap().0;
    eventually(SOON, "two are left", || confirmed() == 2);
    assert!(guard.is_valid() && guard.state() == HoldState::Held);
    assert_eq!(groups[1].nodes[1].pttl("n"), -2, "it gets no key back");
    guard.unlock().unwrap();
}
