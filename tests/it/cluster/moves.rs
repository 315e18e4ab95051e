//! Slots that move while locks are held, waited for and free.

use super::{BOTH, MINUTE, locks_of, patient};
use crate::harness::cluster::{Cluster, Keys, names_in_slot, slot_of};
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{HoldState, MultiLock, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Names that share the slot of the first of a master.
fn sisters(cluster: &Cluster, node: usize) -> (u16, Vec<String>) {
    let slot = slot_of(&cluster.name_at(node, 0));
    (slot, names_in_slot(slot).take(4).collect())
}

#[test]
fn holds_and_waiters_go_with_their_slot() {
    for told in BOTH {
        let cluster = Cluster::start();
        let (slot, names) = sisters(&cluster, 0);
        let (holder, waiter) = (patient(&cluster, told), patient(&cluster, told));
        let guard = holder.guard(&names[0]).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.guard(&names[0]).map(|guard| (Mark::now(), guard.unlock())));
            eventually(LONG, "it waits", || waiter.client().stats().contended > 0);
            cluster.move_slot(slot, 1);
            assert!(holder.verify(&holder.hold(&names[0]).unwrap()).unwrap());
            assert!(cluster.nodes[1].pttl(&names[0]) > 0);
            let hears = || {
                let channel = format!("redisson_lock__channel:{{{}}}", names[0]);
                cluster.nodes.iter().map(|node| node.subscribers(&channel)).sum::<i64>() == 1
                    || cluster.nodes[1].sharded_subscribers(&channel) == 1
            };
            eventually(SOON, "who waits listens at the new master", hears);
            let released = Mark::now();
            guard.unlock().unwrap();
            let (served, unlocked) = finish(waiting).unwrap();
            assert!(unlocked.is_ok() && served - released <= SOON, "served after {:?}", served - released);
        });
        // Who listens anew may be taken for a JVM, to which a release leaves the lock: that mark ends soon (docs/protocol.md, 8.13).
        let is_empty = || cluster.nodes.iter().all(|node| !node.is_running() || node.keys().is_empty());
        eventually(SOON, "no key is left", is_empty);
    }
}

/// No call fails and no increment is lost while a slot goes round and round.
#[test]
fn a_slot_that_moves_under_load_fails_no_call() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let (stop, counted) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        let works = |_| {
            scope.spawn(|| {
                let locks = locks_of(cluster.builder());
                let mut mine = 0;
                while !stop.load(SeqCst) {
                    let guard = locks.guard(&names[0]).unwrap();
                    let known = counted.load(SeqCst);
                    std::thread::yield_now();
                    counted.store(known + 1, SeqCst);
                    mine += 1;
                    guard.unlock().unwrap();
                }
                mine
            })
        };
        let workers = [(); 4].map(works);
        for round in 1..=12 {
            cluster.move_slot(slot, round % 3);
            std::thread::sleep(ms(20));
        }
        eventually(LONG, "they count", || counted.load(SeqCst) > 100);
        stop.store(true, SeqCst);
        assert_eq!(workers.map(finish).into_iter().sum::<u64>(), counted.load(SeqCst), "increments were lost");
    });
}

fn all_calls_work(locks: &ReentrantLock, name: &str) {
    let guard = locks.guard(name).unwrap();
    let inner = locks.guard(name).unwrap();
    assert!(locks.is_locked(name).unwrap() && locks.remaining_time_to_live(name).unwrap().is_some());
    let hold = locks.hold(name).unwrap();
    assert!(locks.verify(&hold).unwrap());
    hold.extend(MINUTE).unwrap();
    inner.unlock().unwrap();
    guard.unlock().unwrap();
    assert!(locks.try_lock_for_with_lease(name, LONG, MINUTE).unwrap());
    assert!(locks.force_unlock(name).unwrap());
    assert_err!(locks.unlock(name), Lost);
}

/// Some keys are here and some there, and a free lock is always asked for at both.
#[test]
fn every_call_works_in_a_slot_that_stays_half_moved() {
    for told in BOTH {
        let cluster = Cluster::start();
        let (slot, names) = sisters(&cluster, 0);
        let [stays, goes, free, other] = [0, 1, 2, 3].map(|at| names[at].as_str());
        let (locks, waiter) = (patient(&cluster, told), patient(&cluster, told));
        let guards = [stays, goes].map(|name| locks.guard(name).unwrap());
        let moved = cluster.half_move(slot, 1, Keys::Named(&[goes]));
        all_calls_work(&locks, free);
        for (guard, name) in guards.iter().zip([stays, goes]) {
            assert!(locks.verify(&locks.hold(name).unwrap()).unwrap() && guard.state() == HoldState::Held);
            assert!(!waiter.try_lock(name).unwrap());
        }
        let all = MultiLock::of([free, other].map(|name| (&locks, name)));
        drop(all.guard().unwrap());
        for (guard, name) in guards.into_iter().zip([stays, goes]) {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| waiter.guard(name).map(|guard| (Mark::now(), guard.unlock())));
                let before = waiter.client().stats().contended;
                eventually(LONG, "it waits", || {
                    waiter.client().stats().contended > before.min(1) && waits(&cluster, name)
                });
                let released = Mark::now();
                guard.unlock().unwrap();
                let (served, unlocked) = finish(waiting).unwrap();
                assert!(
                    unlocked.is_ok() && served - released <= SOON,
                    "{told:?} {name} of {names:?} after {:?}",
                    served - released
                );
            });
        }
        cluster.finish_move(moved);
        all_calls_work(&locks, free);
        assert!(cluster.nodes.iter().all(|node| node.keys().is_empty()));
    }
}

/// The new node's acquire touches no queue. A place that stayed would be given the lock once, and nobody would come. So would that of a wait
/// that ends in vain meanwhile, whose leave the old node refuses.
#[test]
fn who_is_served_at_the_new_node_leaves_the_queue_that_comes_later() {
    let cluster = Cluster::start();
    let (slot, names) = sisters(&cluster, 0);
    let (name, queue) = (&names[0], format!("redlatch_queue:{{{}}}", names[0]));
    let places = || cluster.nodes[cluster.master_of(name)].ask::<usize>(&["ZCARD", &queue]);
    let [holder, waiter, hasty] = [(); 3].map(|()| patient(&cluster, ShardedPubsub::Auto));
    let guard = holder.guard(name).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.guard(name).and_then(|guard| guard.unlock()));
        let in_vain = scope.spawn(|| hasty.try_lock_for(name, ms(2_000)));
        eventually(LONG, "both are queued", || places() == 2);
        let moved = cluster.half_move(slot, 1, Keys::Named(&[name]));
        assert!(!finish(in_vain).unwrap());
        guard.unlock().unwrap();
        finish(waiting).unwrap();
        cluster.finish_move(moved);
    });
    eventually(LONG, "nobody is queued", || places() == 0);
}

fn waits(cluster: &Cluster, name: &str) -> bool {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    cluster.nodes.iter().any(|node| node.subscribers(&channel) + node.sharded_subscribers(&channel) > 0)
}
