//! Rows 95, 100, 102 and 103: a part of a cluster that is gone, frozen, empty or without its replica, and the others.

use crate::threads::{LATE, LONG, Mark, SOON, WATCHED, eventually, finish, lost_within, ms, patiently, spawn_asleep};
use crate::{LEASE, MINUTE, locks_of};
use harness::cluster::{Cluster, Shape};
use redlatch::{Error, HoldState, LockGuard, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A third of the slots have nobody.
fn lose_a_third(cluster: &mut Cluster) {
    [3, 0].iter().for_each(|node| cluster.nodes[*node].kill());
}

/// Who waits behind another thread of its process, too, though calls for locks of the dead part fail all the time.
#[test]
fn fault_95_where_slots_are_served_without_the_others_all_goes_on() {
    let mut cluster = Cluster::of(Shape::PARTIAL);
    let [dead, well, taken] = [(0, 0), (1, 0), (1, 1)].map(|(node, number)| cluster.name_at(node, number));
    let budget = ms(400);
    let builder = || cluster.builder().outage_budget(budget).poll_cap(ms(50)).watchdog_timeout(MINUTE);
    let [locks, other] = [(); 2].map(|()| locks_of(builder()));
    let holding = other.guard(&taken).unwrap();
    [&dead, &well].iter().for_each(|name| drop(locks.guard(name).unwrap()));
    lose_a_third(&mut cluster);
    let (is_over, lost) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            // A test that fails does not say that it is over.
            while !is_over.load(SeqCst) && lost.elapsed() < LONG {
                assert!(locks.lock(&dead).is_err_and(|error| error.is_retryable()));
            }
        });
        let waiting = [(); 3].map(|()| spawn_asleep(scope, || locks.guard(&taken).map(drop)));
        let began = Instant::now();
        while began.elapsed() < 5 * budget {
            drop(locks.guard(&well).unwrap());
            assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "it waits for a lock that is well");
        }
        holding.unlock().unwrap();
        waiting.into_iter().for_each(|waiting| finish(waiting).0.unwrap());
        is_over.store(true, SeqCst);
        finish(failing);
    });
    cluster.nodes[0].restart();
    eventually(LONG, "it is there again", || locks.guard(&dead).map(drop).is_ok());
}

/// All refuse, and say why; who waits is served, and who unlocks has unlocked, when they are back.
#[test]
fn fault_95_where_no_slot_is_served_without_the_others_all_wait() {
    let mut cluster = Cluster::start();
    let name = cluster.name_at(1, 0);
    let hasty = locks_of(cluster.builder().outage_budget(ms(300)));
    let patient = locks_of(cluster.builder().outage_budget(MINUTE).watchdog_timeout(MINUTE));
    let [guard, ending] = [1, 2].map(|number| patient.guard(&cluster.name_at(1, number)).unwrap());
    drop(hasty.guard(&name).unwrap());
    lose_a_third(&mut cluster);
    let is_down = |error: Error| matches!(error, Error::Refused { code, .. } if code == "CLUSTERDOWN");
    eventually(LONG, "it is down", || hasty.is_locked(&name).is_err_and(is_down));
    assert!(hasty.lock(&name).is_err_and(is_down));
    std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || patient.guard(&name).map(drop));
        scope.spawn(|| {
            std::thread::sleep(ms(200));
            cluster.nodes[0].restart();
        });
        ending.unlock().unwrap();
        finish(waiting).0.unwrap();
    });
    assert!(guard.is_valid() && cluster.nodes[1].pttl(&cluster.name_at(1, 2)) == -2);
    guard.unlock().unwrap();
}

/// Holds in many slots of all masters.
fn many<'l>(cluster: &Cluster, locks: &'l ReentrantLock, node: usize) -> Vec<LockGuard<'l, ReentrantLock>> {
    cluster.names_at(node, "").take(30).map(|name| locks.guard(&name).unwrap()).collect()
}

/// A script is for one slot, and what is not answered is waited for once a node.
#[test]
fn fault_100_holds_in_many_slots_are_renewed_while_one_master_is_frozen() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = locks_of(cluster.builder().watchdog_timeout(LEASE).response_timeout(SOON));
    let held = [0, 1, 2].map(|node| many(&cluster, &locks, node));
    let renewals = || locks.client().stats().renewals;
    eventually(LONG, "all are renewed", || renewals() >= 90);
    assert_eq!(locks.client().stats().failed_renewals, 0);
    cluster.nodes[0].freeze();
    let frozen = Instant::now();
    while frozen.elapsed() < 2 * LEASE + LATE {
        for guard in held[1].iter().chain(&held[2]) {
            assert_eq!(guard.state(), HoldState::Held, "{:?} after {:?}", guard.resource(), frozen.elapsed());
        }
        std::thread::sleep(ms(20));
    }
    assert!(held[0].iter().all(|guard| lost_within(SOON, guard) == LossCause::Expired));
    cluster.nodes[0].thaw();
    eventually(LONG, "it is used again", || locks.guard(&cluster.name_at(0, 40)).map(drop).is_ok());
    held.into_iter().flatten().for_each(|guard| drop(guard.unlock()));
}

/// Many more than one command frees.
#[test]
fn fault_100_a_shutdown_beside_a_frozen_master_frees_what_the_others_have() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = locks_of(cluster.builder().watchdog_timeout(MINUTE).response_timeout(SOON));
    for name in (0..3).flat_map(|node| cluster.names_at(node, "").take(200)) {
        locks.lock(&name).unwrap();
    }
    cluster.nodes[0].freeze();
    locks.client().shutdown();
    assert_eq!([1, 2].map(|node| cluster.nodes[node].keys().len()), [0, 0]);
    cluster.nodes[0].thaw();
}

/// Its locks are gone with it, and nobody gets them before each hold is over. Other masters grant as before.
#[test]
fn fault_102_strict_a_master_that_lost_its_data_grants_nothing_for_one_lease() {
    let mut cluster = Cluster::of(Shape::STEADY);
    let strict = || locks_of(cluster.builder().strict(true).watchdog_timeout(LEASE).outage_budget(MINUTE));
    let [locks, other] = [(); 2].map(|()| strict());
    let [name, elsewhere] = [0, 1].map(|node| cluster.name_at(node, 0));
    [&name, &elsewhere].iter().for_each(|name| drop(locks.guard(name).unwrap()));
    let guard = locks.guard(&name).unwrap();
    let lost = guard.lost();
    cluster.nodes[0].kill();
    cluster.nodes[0].restart();
    let restarted = Mark::now();
    assert!(other.try_lock(&elsewhere).unwrap(), "its master lost nothing");
    assert!(other.try_lock_for(&name, LONG).unwrap());
    assert!(!guard.is_valid(), "two hold it");
    assert!(restarted.elapsed() >= LEASE - LATE, "granted after {:?}", restarted.elapsed());
    lost.recv_timeout(LONG).unwrap();
    assert_err!(guard.unlock(), Lost);
    [&name, &elsewhere].iter().for_each(|name| other.unlock(name).unwrap());
}

/// How long replicas are waited for.
const WAIT: Duration = Duration::from_millis(300);

/// Each master has replicas of its own.
#[test]
fn fault_103_without_the_replica_of_one_master_that_one_alone_grants_nothing() {
    let mut cluster = Cluster::of(Shape::STEADY);
    let builder = cluster.builder().sync_replicas(1, WAIT).watchdog_timeout(WATCHED).outage_budget(ms(50));
    let locks = locks_of(builder);
    let names = [0, 1, 2].map(|node| cluster.name_at(node, 0));
    let guards = names.each_ref().map(|name| patiently(|| locks.guard(name)));
    assert!(guards.iter().all(|guard| guard.confirmed_by() == Some((1, 1))));
    cluster.nodes[3].kill();
    let refused = locks.try_lock(&cluster.name_at(0, 1)).unwrap_err();
    assert!(refused.to_string().contains("0 of 1 replicas confirmed it in time"), "{refused}");
    assert_eq!(lost_within(WATCHED + LATE, &guards[0]), LossCause::Expired);
    for (node, guard) in guards.iter().enumerate().skip(1) {
        eventually(LONG, "it is renewed", || guard.state() == HoldState::Held);
        assert!(patiently(|| locks.verify(guard)));
        assert_eq!(patiently(|| locks.guard(&cluster.name_at(node, 1))).confirmed_by(), Some((1, 1)));
    }
    cluster.nodes[3].restart();
    eventually(LONG, "it grants again", || locks.guard(&cluster.name_at(0, 1)).is_ok());
    drop(guards);
}
