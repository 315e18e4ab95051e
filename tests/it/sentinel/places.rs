//! A new master that has places in queues of waits that are over: it would give the lock to each of them, for an offer.

use super::MINUTE;
use crate::harness::member::Member;
use crate::harness::sentinel::Group;
use crate::threads::{LONG, Mark, eventually, finish};
use redlatch::{CancelToken, Client, FairLock, RedLock, ReentrantLock, Terms};
use std::time::Duration;

/// A place that does not come keeps the lock for so long.
const OFFER: Duration = Duration::from_millis(1_500);

/// Enough for all to queue, and for the replicas to be cut off.
const PATIENCE: Duration = Duration::from_secs(5);

fn patient(group: &Group) -> Client {
    group.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(MINUTE).build().unwrap()
}

/// Waits for a lock, but not for ever: a test that fails ends, too.
fn passes(locks: &impl RedLock, name: &str) -> bool {
    locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok()
}

/// Waits until the replicas know so many places, whose waits hear of their turns; then they learn nothing more.
fn freeze(group: &Group, places: usize, members: impl Fn(&Member) -> Vec<String>) {
    let is_placed = |node: &Member| members(node).len() == places;
    eventually(LONG, "all have their places", || group.nodes.iter().all(is_placed));
    let is_heard = |ticket: &String| ticket.ends_with(".1500");
    eventually(LONG, "all hear of their turns", || group.nodes.iter().all(|node| members(node).iter().all(is_heard)));
    group.sever(0);
}

/// The master gives way to one that knows what was there when its replicas were cut off. Then the lock is free for the last of these.
fn is_free_at_the_new_master(group: &Group, all: &[&dyn RedLock]) {
    group.fail_over(0);
    let new = &group.nodes[group.replaced(0)];
    new.ask::<i64>(&["HSET", "here", "x", "1"]);
    let has_moved = |locks: &&dyn RedLock| locks.is_locked("here").is_ok_and(|here| here);
    eventually(LONG, "all have moved", || all.iter().all(has_moved));
    let (moved, last) = (Mark::now(), all[all.len() - 1]);
    assert!(last.try_lock_for("n", LONG).unwrap());
    assert!(moved.elapsed() < OFFER, "free after {:?}", moved.elapsed());
    last.unlock("n").unwrap();
}

/// Of six threads three are served, two have waited for long enough, and one is cancelled: nine seconds, if each place had its offer.
#[test]
fn places_of_threads_are_taken_out_at_the_new_master() {
    let group = Group::start();
    let [locks, other] = [(); 2].map(|()| FairLock::new(&patient(&group)));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        // A client that waits for nothing looks dead, and its places cost nothing anyway.
        other.lock("m").unwrap();
        let listener = scope.spawn(|| passes(&locks, "m"));
        locks.lock("n").unwrap();
        let served = [(); 3].map(|()| scope.spawn(|| passes(&locks, "n")));
        let tired = [(); 2].map(|()| scope.spawn(|| !locks.try_lock_for("n", PATIENCE).unwrap()));
        let cancelled = scope.spawn(|| locks.acquire("n", &Terms::new().wait(LONG).cancelled_by(&token)).is_err());
        freeze(&group, 6, |node| node.ask(&["HVALS", "redlatch_tickets:{n}"]));
        token.cancel();
        assert!(finish(cancelled) && tired.into_iter().all(finish));
        eventually(LONG, "three have left", || group.nodes[0].ask::<i64>(&["LLEN", "redisson_lock_queue:{n}"]) == 3);
        locks.unlock("n").unwrap();
        assert!(served.into_iter().all(finish));
        is_free_at_the_new_master(&group, &[&locks, &other]);
        other.unlock("m").unwrap();
        assert!(finish(listener));
    });
}

/// Four processes have a place each: six seconds.
#[test]
fn places_of_processes_are_taken_out_at_the_new_master() {
    let group = Group::start();
    let ([a, b, c, d], other) =
        ([(); 4].map(|()| ReentrantLock::new(&patient(&group))), ReentrantLock::new(&patient(&group)));
    std::thread::scope(|scope| {
        other.lock("m").unwrap();
        other.lock("n").unwrap();
        let all = [&a, &b, &c, &d];
        let wait = |name| all.map(|locks| scope.spawn(move || passes(locks, name)));
        let (listeners, served) = (wait("m"), wait("n"));
        freeze(&group, 4, |node| node.ask(&["ZRANGE", "redlatch_queue:{n}", "0", "-1"]));
        other.unlock("n").unwrap();
        assert!(served.into_iter().all(finish));
        is_free_at_the_new_master(&group, &[&a, &b, &c, &d, &other]);
        other.unlock("m").unwrap();
        assert!(listeners.into_iter().all(finish));
    });
}
