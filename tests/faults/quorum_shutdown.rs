//! Row 131: a node that lags when its quorum is shut down after a burst.

use crate::harness::quorum::{builder, start};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, Took, eventually, ms};
use redlatch::{QuorumLock, RedLock};
use std::time::Duration;

/// More than the threads of a node keep jobs for.
const BURST: usize = 400;

/// How long a shutdown waits for a node that lags.
const BOUND: Duration = Duration::from_millis(1_200);

fn names() -> impl Iterator<Item = String> {
    (0..BURST).map(|number| format!("n{number}"))
}

fn keys(server: &Server) -> usize {
    server.ask(&["DBSIZE"])
}

/// Locks that all nodes have, but for some that a machine which is late keeps from a node.
fn held(servers: &[Server]) -> QuorumLock {
    let locks = builder(servers).build().unwrap();
    for name in names() {
        locks.lock(&name).unwrap();
        let hold = locks.hold(&name).unwrap();
        let locked = Mark::now();
        while hold.confirmed_by() != Some((3, 3)) && locked.elapsed().real() < ms(20) {
            std::thread::yield_now();
        }
    }
    eventually(LONG, "each node has most keys", || servers.iter().all(|server| keys(server) >= BURST / 2));
    locks
}

/// A shutdown after `burst`, while the first node is stopped for half of the bound: how many keys that node had when
/// it came back, and how long it took.
fn left_after(burst: impl Fn(&QuorumLock)) -> (usize, Took) {
    let servers = start(3);
    let locks = held(&servers);
    servers[0].freeze();
    burst(&locks);
    let took = std::thread::scope(|scope| {
        let began = Mark::now();
        scope.spawn(|| {
            std::thread::sleep(BOUND / 2);
            servers[0].thaw();
        });
        locks.shutdown();
        began.elapsed()
    });
    assert_eq!(servers[1..].iter().map(keys).sum::<usize>(), 0);
    let left = keys(&servers[0]);
    servers[0].clear();
    (left, took)
}

/// One that came back before its bound has waited for the node. On a machine that is late the node may have been too late
/// for it: then it is done again.
#[track_caller]
fn assert_nothing_left(burst: impl Fn(&QuorumLock)) {
    for _ in 0..10 {
        let (left, took) = left_after(&burst);
        if took.real() < BOUND {
            assert_eq!(left, 0, "after {took:?}");
            return;
        }
    }
    panic!("each shutdown waited for {BOUND:?} and more, though the node was stopped for {:?}", BOUND / 2);
}

#[test]
fn fault_131_a_shutdown_waits_for_a_node_that_owes_releases_of_earlier_unlocks() {
    assert_nothing_left(|locks| names().for_each(|name| locks.unlock(&name).unwrap()));
}

#[test]
fn fault_131_a_shutdown_waits_for_a_node_that_owes_its_own_releases() {
    assert_nothing_left(|_| ());
}

#[test]
fn fault_131_a_shutdown_does_not_wait_for_a_node_that_stays_away() {
    let servers = start(3);
    let locks = held(&servers);
    servers[0].freeze();
    let began = Mark::now();
    locks.shutdown();
    let took = began.elapsed();
    let again = Mark::now();
    locks.shutdown();
    drop(locks);
    assert!(again.elapsed() <= ms(100), "the second one does not wait");
    servers[0].thaw();
    assert!(took >= BOUND && took <= BOUND + SOON, "took {took:?}");
    assert_eq!(servers[1..].iter().map(keys).sum::<usize>(), 0);
    servers[0].clear();
}

#[test]
fn fault_131_a_shutdown_where_nothing_is_owed_does_not_wait() {
    let servers = start(3);
    let locks = held(&servers);
    let began = Mark::now();
    locks.shutdown();
    let took = began.elapsed();
    assert!(took <= BOUND / 2, "took {took:?}");
    assert_eq!(servers.iter().map(keys).sum::<usize>(), 0);
}
