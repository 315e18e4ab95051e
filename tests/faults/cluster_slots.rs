//! Rows 93, 94 and 96: slots that move, halfway too, also to nodes that came later.

use crate::threads::{LONG, Mark, SOON, WATCHED, eventually, finish, spawn_asleep};
use crate::{MINUTE, locks_of, patient};
use harness::cluster::{Cluster, Keys, names_in_slot, slot_of};
use harness::server::version;
use redlatch::{Client, HoldState, MultiLock, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Names that share the slot of the first of a master.
fn sisters(cluster: &Cluster, node: usize) -> (u16, Vec<String>) {
    let slot = slot_of(&cluster.name_at(node, 0));
    (slot, names_in_slot(slot).take(5).collect())
}

/// Whether anybody listens for the lock there.
fn is_awaited_at(cluster: &Cluster, node: usize, name: &str) -> bool {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    cluster.nodes[node].subscribers(&channel) + cluster.nodes[node].sharded_subscribers(&channel) > 0
}

/// Takes and gives back until it is over, alone each time; how long the longest wait was.
fn work(locks: &ReentrantLock, name: &str, counted: &AtomicU64, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(SeqCst) {
        let start = Instant::now();
        let guard = locks.guard(name).unwrap();
        longest = longest.max(start.elapsed());
        let known = counted.load(SeqCst);
        std::thread::yield_now();
        counted.store(known + 1, SeqCst);
        guard.unlock().unwrap();
    }
    longest
}

#[test]
fn fault_93_a_slot_that_moves_there_and_back_under_load_fails_no_call() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let (is_over, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let kept = patient(cluster.builder());
    let guard = kept.guard(&names[1]).unwrap();
    std::thread::scope(|scope| {
        let works = |_| scope.spawn(|| work(&locks_of(cluster.builder()), &names[0], &counted, &is_over));
        let workers = [(); 4].map(works);
        for to in [1, 0, 2, 0, 1, 0] {
            cluster.move_slot(slot, to);
            let before = counted.load(SeqCst);
            eventually(LONG, "they go on", || counted.load(SeqCst) > before + 20);
            assert!(kept.verify(&guard).unwrap());
        }
        is_over.store(true, SeqCst);
        let longest = workers.map(finish).into_iter().max().unwrap();
        println!("{counted:?} increments, longest wait {longest:?}");
    });
    guard.unlock().unwrap();
}

/// Those who wait are sent away when the slot leaves, and come back with it.
#[test]
fn fault_93_those_who_wait_go_there_and_back_with_their_slot() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let [holder, waiter] = [(); 2].map(|()| patient(cluster.builder()));
    std::thread::scope(|scope| {
        let guard = holder.guard(&names[0]).unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard(&names[0]).map(drop));
        eventually(LONG, "it listens", || (0..6).any(|node| is_awaited_at(&cluster, node, &names[0])));
        for to in [1, 0] {
            cluster.move_slot(slot, to);
            let is_sharded = version() >= (7, 0);
            let hears = || !is_sharded || is_awaited_at(&cluster, to, &names[0]);
            eventually(2 * SOON, "it listens there", hears);
        }
        let released = Mark::now();
        guard.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
    });
}

fn all_calls_work(locks: &ReentrantLock, name: &str) {
    let guard = locks.guard(name).unwrap();
    let inner = locks.guard(name).unwrap();
    assert!(locks.is_locked(name).unwrap() && locks.remaining_time_to_live(name).unwrap().is_some());
    assert!(locks.verify(&guard).unwrap());
    guard.extend(MINUTE).unwrap();
    inner.unlock().unwrap();
    guard.unlock().unwrap();
    assert!(locks.try_lock_for_with_lease(name, LONG, MINUTE).unwrap() && locks.force_unlock(name).unwrap());
    assert_err!(locks.unlock(name), Lost);
}

/// Longer than a renewal and a lease: holds here and there are renewed, free locks are asked for at both.
#[test]
fn fault_94_each_call_works_in_a_slot_that_stays_half_moved() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let [stays, goes, free, other] = [0, 1, 2, 3].map(|at| names[at].as_str());
    let locks = locks_of(cluster.builder().watchdog_timeout(WATCHED));
    let unhurried = locks_of(cluster.builder());
    let guards = [stays, goes].map(|name| locks.guard(name).unwrap());
    let moved = cluster.half_move(slot, 1, Keys::Named(&[goes]));
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < 2 * WATCHED || rounds < 2 {
        all_calls_work(&locks, free);
        let start = Mark::now();
        drop(MultiLock::of([free, other].map(|name| (&unhurried, name))).guard().unwrap());
        assert!(start.elapsed() <= SOON, "a group took {:?}", start.elapsed());
        rounds += 1;
    }
    for guard in &guards {
        assert!(guard.state() == HoldState::Held && locks.verify(guard).unwrap(), "{:?}", guard.state());
    }
    cluster.finish_move(moved);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    all_calls_work(&locks, free);
}

/// What the other node grants now it could not say there. Who holds a lock goes on.
#[test]
fn fault_94_strict_nothing_is_granted_in_a_slot_that_stays_half_moved() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let [stays, goes, free] = [0, 1, 2].map(|at| names[at].as_str());
    let strict = || locks_of(cluster.builder().strict(true).watchdog_timeout(WATCHED));
    let (locks, other) = (strict(), strict());
    let elsewhere = cluster.name_at(1, 0);
    let guards = [stays, goes].map(|name| locks.guard(name).unwrap());
    drop(locks.guard(&elsewhere).unwrap());
    let moved = cluster.half_move(slot, 1, Keys::Named(&[goes]));
    let began = Instant::now();
    while began.elapsed() < 2 * WATCHED {
        assert!([stays, goes, free].iter().all(|name| !other.try_lock(name).unwrap()));
        drop(locks.guard(&elsewhere).unwrap());
    }
    for guard in &guards {
        assert!(guard.is_valid() && locks.verify(guard).unwrap(), "{:?}", guard.state());
        drop(locks.guard(guard.resource()).unwrap());
    }
    cluster.finish_move(moved);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    assert!(other.try_lock_for(free, LONG).unwrap());
    other.unlock(free).unwrap();
}

/// It was given one node, which is gone by the time when it needs another one.
#[test]
fn fault_96_nodes_that_came_later_are_found_when_those_of_the_url_are_gone() {
    let mut cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 1);
    let locks = locks_of(Client::builder(&format!("redis+cluster://{}", cluster.nodes[0].address())));
    let waiter = patient(cluster.builder().sharded_pubsub(ShardedPubsub::Auto));
    drop(locks.guard(&names[0]).unwrap());
    let node = cluster.add_node();
    cluster.move_slot(slot, node);
    let guard = locks.guard(&names[0]).unwrap();
    assert!(cluster.nodes[node].pttl(&names[0]) > 0);
    cluster.nodes[0].kill();
    cluster.replaced(0);
    cluster.settled();
    cluster.move_slot(slot, 2);
    assert!(locks.verify(&guard).unwrap());
    std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || waiter.guard(&names[0]).map(drop));
        eventually(LONG, "it listens", || (1..7).any(|node| is_awaited_at(&cluster, node, &names[0])));
        guard.unlock().unwrap();
        finish(waiting).0.unwrap();
    });
    drop(locks.guard(&cluster.name_at(3, 0)).unwrap());
    eventually(LONG, "who has no slot any more is left", || cluster.nodes[node].clients() == 0);
}
