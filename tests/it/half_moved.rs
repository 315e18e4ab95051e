//! Semaphores and latches whose slot of a cluster is on its way: their keys are at two nodes, and no script reaches both. Calls wait for the end
//! of the move; nothing is lost.

use crate::harness::cluster::{Cluster, Keys, slot_of};
use crate::threads::{LONG, finish, ms, spawn_asleep};
use redlatch::{Client, CountDownLatch, Error, LeasedSemaphore, Permits, Semaphore, ShardedPubsub, Terms};
use std::thread::scope;

const BOTH: [ShardedPubsub; 2] = [ShardedPubsub::Auto, ShardedPubsub::Off];

fn client(cluster: &Cluster, told: ShardedPubsub) -> Client {
    cluster.builder().sharded_pubsub(told).build().unwrap()
}

/// Begins to move the slot of a name, runs `meanwhile` beside the call, and ends the move.
fn during_a_move<T: Send>(cluster: &Cluster, name: &str, call: impl FnOnce() -> T + Send) -> T {
    scope(|scope| {
        let moved = cluster.half_move(slot_of(name), 1, Keys::None);
        let calls = spawn_asleep(scope, call);
        std::thread::sleep(ms(300));
        assert!(!calls.is_finished(), "it does not wait for the move");
        cluster.finish_move(moved);
        finish(calls).0
    })
}

fn is_told_to_try_again<T>(result: &redlatch::Result<T>) -> bool {
    matches!(result, Err(error @ Error::Refused { code, .. }) if code == "TRYAGAIN" && error.is_retryable())
}

#[test]
fn leased_permits_wait_for_the_end_of_a_move() {
    for told in BOTH {
        let cluster = Cluster::start();
        let (name, ours) = (&cluster.name_at(0, 0), LeasedSemaphore::new(&client(&cluster, told)));
        ours.try_set_permits(name, 2).unwrap();
        let permit = during_a_move(&cluster, name, || ours.acquire(name, 1, &Terms::new().wait(LONG)).unwrap());
        permit.unwrap().release().unwrap();
        assert_eq!((ours.available_permits(name).unwrap(), ours.acquired_permits(name).unwrap()), (Some(2), Some(0)));
        ours.delete(name).unwrap();
    }
}

#[test]
fn a_call_whose_time_is_over_before_the_move_says_so_and_takes_nothing() {
    let cluster = Cluster::start();
    let name = &cluster.name_at(0, 0);
    let leased = LeasedSemaphore::new(&client(&cluster, ShardedPubsub::Auto));
    leased.try_set_permits(name, 2).unwrap();
    let moved = cluster.half_move(slot_of(name), 1, Keys::None);
    let acquired = leased.acquire(name, 1, &Terms::new().wait(ms(300)));
    assert!(is_told_to_try_again(&acquired), "{acquired:?}");
    cluster.finish_move(moved);
    assert_eq!(leased.available_permits(name).unwrap(), Some(2));
    leased.delete(name).unwrap();
}

/// A client that has a result beside the counter goes on, for both keys are at the old node.
#[test]
fn permits_of_a_semaphore_and_counts_of_a_latch_wait_for_the_end_of_a_move() {
    for told in BOTH {
        let cluster = Cluster::start();
        let [one, other] = [(); 2].map(|()| client(&cluster, told));
        let (name, [ours, new]) = (&cluster.name_at(0, 0), [&one, &other].map(Semaphore::new));
        ours.try_set_permits(name, 2).unwrap();
        let back = during_a_move(&cluster, name, || {
            ours.try_acquire(name, 1).unwrap().map(Permits::release);
            new.acquire(name, 1, &Terms::new().wait(LONG)).unwrap().map(Permits::release)
        });
        back.unwrap().unwrap();
        assert_eq!(ours.available_permits(name).unwrap(), Some(2));
        ours.delete(name).unwrap();
        let (name, [ours, new]) = (&cluster.name_at(0, 1), [&one, &other].map(CountDownLatch::new));
        ours.try_set_count(name, 3, None).unwrap();
        let left = during_a_move(&cluster, name, || (ours.count_down(name).unwrap(), new.count_down(name).unwrap()));
        assert_eq!(left, (2, 1));
        assert_eq!(ours.count_down(name).unwrap(), 0);
    }
}

/// Permits that are out are renewed while their slot moves, and each is given back once.
#[test]
fn permits_that_are_out_outlast_a_move() {
    for told in BOTH {
        let cluster = Cluster::start();
        let (name, ours) = (&cluster.name_at(0, 0), LeasedSemaphore::new(&client(&cluster, told)));
        ours.try_set_permits(name, 2).unwrap();
        let permits = ours.acquire(name, 2, &Terms::new()).unwrap().unwrap();
        scope(|scope| {
            let waits = spawn_asleep(scope, || ours.acquire(name, 1, &Terms::new().wait(LONG)).unwrap().unwrap());
            cluster.move_slot(slot_of(name), 1);
            permits.release().unwrap();
            finish(waits).0.release().unwrap();
        });
        assert_eq!((ours.available_permits(name).unwrap(), ours.acquired_permits(name).unwrap()), (Some(2), Some(0)));
        ours.delete(name).unwrap();
    }
}

/// Counter and result are at the old node, which lets scripts change them and makes no key anew.
#[test]
fn a_client_that_has_a_result_goes_on_and_each_operation_counts_once() {
    let cluster = Cluster::start();
    let (name, ours) = (&cluster.name_at(0, 0), Semaphore::new(&client(&cluster, ShardedPubsub::Auto)));
    ours.try_set_permits(name, 2).unwrap();
    let moved = cluster.half_move(slot_of(name), 1, Keys::None);
    for _ in 0..5 {
        ours.try_acquire(name, 1).unwrap().unwrap().release().unwrap();
        assert_eq!(ours.available_permits(name).unwrap(), Some(2));
    }
    cluster.finish_move(moved);
    assert_eq!(ours.available_permits(name).unwrap(), Some(2));
    ours.delete(name).unwrap();
}
