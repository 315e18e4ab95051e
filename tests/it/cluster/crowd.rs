//! Many holds over all masters.

use super::{MINUTE, locks_of};
use crate::harness::cluster::{Cluster, Keys, Shape, slot_of};
use crate::threads::{LONG, eventually, ms};
use redlatch::{Hold, HoldState, ReadWriteLock, RedLock};

const HOLDS: usize = 300;

/// A third of them at each master.
fn names(cluster: &Cluster) -> Vec<String> {
    let of = |node| cluster.names_at(node, "").take(HOLDS / 3).collect::<Vec<_>>();
    [0, 1, 2].map(of).concat()
}

/// In one write for each node and batch, by a script for each slot.
#[test]
fn holds_of_all_slots_are_renewed() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = locks_of(cluster.builder().watchdog_timeout(ms(6_000)));
    let names = names(&cluster);
    names.iter().for_each(|name| locks.lock(name).unwrap());
    let before = locks.client().stats().renewals;
    eventually(LONG, "all are renewed twice", || locks.client().stats().renewals >= before + 2 * HOLDS as u64);
    assert_eq!((locks.client().stats().failed_renewals, locks.client().stats().lost), (0, 0));
    names.iter().for_each(|name| locks.unlock(name).unwrap());
}

/// The threads that renew do not wait for it again and again while the holds of other masters run out.
#[test]
fn a_master_that_is_frozen_costs_the_others_nothing() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = locks_of(cluster.builder().watchdog_timeout(ms(3_000)));
    let names = names(&cluster);
    names.iter().for_each(|name| locks.lock(name).unwrap());
    let holds: Vec<Hold> = names.iter().map(|name| locks.hold(name).unwrap()).collect();
    cluster.nodes[0].freeze();
    let (frozen, well) = holds.split_at(HOLDS / 3);
    let all_lost = || frozen.iter().all(|hold| hold.state() == HoldState::Lost);
    eventually(LONG, "those at the frozen one are lost", all_lost);
    // Two leases later: no hold lives on what was renewed before.
    std::thread::sleep(ms(6_000));
    assert!(well.iter().all(|hold| hold.state() == HoldState::Held), "{:?}", locks.client().stats());
    cluster.nodes[0].thaw();
    names.iter().for_each(|name| drop(locks.unlock(name)));
}

/// Also those of a slot that is left halfway, whose keys are at two nodes.
#[test]
fn a_shutdown_frees_readers_and_writers_at_all_masters() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = ReadWriteLock::new(&cluster.builder().watchdog_timeout(MINUTE).build().unwrap());
    let names = names(&cluster);
    for (number, name) in names.iter().enumerate() {
        if number % 3 != 0 {
            locks.write().lock(name).unwrap();
        }
        if number % 3 != 1 {
            locks.read().lock(name).unwrap();
        }
    }
    let moves = [0, 1, 2].map(|number| {
        let name = names[number].as_str();
        cluster.half_move(slot_of(name), 1, Keys::Named(&[name]))
    });
    locks.client().shutdown();
    moves.into_iter().for_each(|moved| cluster.finish_move(moved));
    for master in cluster.masters() {
        assert_eq!(cluster.nodes[master].ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    }
}
