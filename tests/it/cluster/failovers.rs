//! A master that is replaced by its replica: what its clients do, and what becomes of holds and waiters.

use super::{BOTH, MINUTE, locks_of, patient, patient_builder};
use crate::harness::cluster::{Cluster, How, Shape};
use crate::harness::member::Member;
use crate::harness::papers::Flaw;
use crate::harness::sentinel::Cut;
use crate::proxy::Gate;
use crate::threads::{LONG, Mark, SOON, eventually, finish, lost_within, ms};
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::thread::{Scope, ScopedJoinHandle};

/// Waits for the lock with each of these, and tells when it had it.
fn wait_all<'s>(
    scope: &'s Scope<'s, '_>,
    locks: &'s [ReentrantLock],
    name: &'s str,
) -> Vec<ScopedJoinHandle<'s, Mark>> {
    let wait = |locks: &'s ReentrantLock| {
        scope.spawn(move || {
            let guard = locks.guard(name).unwrap();
            let served = Mark::now();
            guard.unlock().unwrap();
            served
        })
    };
    locks.iter().map(wait).collect()
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// How many connections are told of unlocks, wherever they are; nothing if a node does not say so: one that takes another's place may
/// be busy for longer than it is waited for.
fn listeners(cluster: &Cluster, name: &str) -> Option<i64> {
    let said = |node: &Member, what| node.try_ask::<(String, i64)>(&["PUBSUB", what, &channel(name)]).ok();
    let nodes = cluster.nodes.iter().filter(|node| node.is_running());
    nodes.map(|node| Some(said(node, "NUMSUB")?.1 + node.sharded_subscribers(&channel(name)))).sum()
}

#[track_caller]
fn replicated(cluster: &Cluster, master: usize, name: &str) {
    let replica = cluster.replicas_of(master)[0];
    eventually(LONG, "it is replicated", || cluster.nodes[replica].keys().contains(&name.to_owned()));
}

/// Whether the master is killed or told to give way, its replica has the hold, and those who wait hear of the release there.
fn holds_and_waiters_go_over(shape: Shape, told: ShardedPubsub, replace: impl FnOnce(&mut Cluster, usize)) {
    let mut cluster = Cluster::of(shape);
    let name = cluster.name_at(0, 0);
    let other = cluster.name_at(1, 0);
    let (holder, waiters) = (patient(&cluster, told), [(); 4].map(|()| patient(&cluster, told)));
    let elsewhere = holder.guard(&other).unwrap();
    std::thread::scope(|scope| {
        let guard = holder.guard(&name).unwrap();
        replicated(&cluster, 0, &name);
        let waiting = wait_all(scope, &waiters, &name);
        eventually(LONG, "all listen", || listeners(&cluster, &name) == Some(waiters.len() as i64));
        let before = holder.client().stats().renewals;
        replace(&mut cluster, 0);
        let new = cluster.replaced(0);
        let named = Mark::now();
        eventually(2 * SOON, "the hold is renewed at the new master", || holder.client().stats().renewals > before);
        assert!(named.elapsed() <= 2 * SOON && guard.state() == HoldState::Held, "{:?}", guard.state());
        eventually(SOON, "those who wait listen", || listeners(&cluster, &name) == Some(waiters.len() as i64));
        assert_eq!(elsewhere.state(), HoldState::Held, "its master is well");
        let released = Mark::now();
        guard.unlock().unwrap();
        for waiter in waiting {
            let took = finish(waiter) - released;
            assert!(took <= 2 * SOON, "served after {took:?}");
        }
        assert_eq!(cluster.nodes[new].pttl(&name), -2);
    });
}

#[test]
fn holds_and_waiters_go_over_when_a_master_dies() {
    for told in BOTH {
        holds_and_waiters_go_over(Shape::USUAL, told, |cluster, node| cluster.nodes[node].kill());
    }
}

#[test]
fn holds_and_waiters_go_over_by_tls_when_a_master_dies() {
    for told in BOTH {
        holds_and_waiters_go_over(Shape::USUAL.sealed(Flaw::None), told, |cluster, node| cluster.nodes[node].kill());
    }
}

#[test]
fn holds_and_waiters_go_over_when_a_replica_is_told_to_take_over() {
    for told in BOTH {
        holds_and_waiters_go_over(Shape::USUAL, told, |cluster, node| {
            let replica = cluster.replicas_of(node)[0];
            cluster.fail_over(replica, How::Orderly);
        });
    }
}

/// Nothing told those who wait: the one who held it is gone with the key.
#[test]
fn waiters_for_what_was_lost_with_a_master_are_served_at_once() {
    for told in BOTH {
        let mut cluster = Cluster::start();
        let name = cluster.name_at(0, 0);
        let (holder, waiters) = (patient(&cluster, told), [(); 4].map(|()| patient(&cluster, told)));
        let replica = cluster.replicas_of(0)[0];
        // It comes back without anything, and takes over before it has found out where to get it.
        cluster.nodes[replica].kill();
        holder.lock(&name).unwrap();
        let hold = holder.hold(&name).unwrap();
        std::thread::scope(|scope| {
            let waiting = wait_all(scope, &waiters, &name);
            eventually(LONG, "all listen", || listeners(&cluster, &name) == Some(waiters.len() as i64));
            cluster.nodes[0].kill();
            cluster.nodes[replica].restart();
            cluster.fail_over(replica, How::Takeover);
            let named = Mark::now();
            assert_eq!(lost_within(2 * SOON, &hold), LossCause::Removed, "not a third of a minute later");
            for waiter in waiting {
                let took = finish(waiter) - named;
                assert!(took <= 2 * SOON, "served after {took:?}");
            }
        });
        assert_err!(holder.unlock(&name), Lost);
    }
}

/// What is stopped takes writes for a moment after it goes on: nobody asks it any more.
#[test]
fn an_old_master_that_comes_back_is_neither_written_to_nor_believed() {
    let cluster = Cluster::start();
    let [name, later] = [0, 1].map(|number| cluster.name_at(0, number));
    let (locks, other) = (patient(&cluster, ShardedPubsub::Auto), patient(&cluster, ShardedPubsub::Auto));
    for locks in [&locks, &other] {
        drop(locks.guard(&name).unwrap());
    }
    cluster.nodes[0].freeze();
    // It is under way at the old one, which reads it when it goes on.
    locks.lock(&name).unwrap();
    let new = cluster.replaced(0);
    assert!(cluster.nodes[new].pttl(&name) > 0);
    eventually(2 * SOON, "both have moved", || {
        [&locks, &other].iter().all(|locks| locks.is_locked(&name).unwrap_or(false))
    });
    cluster.nodes[0].thaw();
    assert!(!other.try_lock(&name).unwrap());
    other.lock(&later).unwrap();
    assert!(cluster.nodes[new].pttl(&later) > 0);
    eventually(2 * SOON, "no connection is left", || cluster.nodes[0].clients_but_scouts() == 0);
    assert!(locks.verify(&locks.hold(&name).unwrap()).unwrap());
    locks.unlock(&name).unwrap();
    other.unlock(&later).unwrap();
}

/// Until a replica takes over all nodes say that their cluster is down, and the master says nothing. Clients ask at different times.
#[test]
fn a_new_master_is_found_at_once_while_the_old_one_is_silent() {
    let cluster = Cluster::start();
    let names: Vec<_> = (0..8).map(|number| cluster.name_at(0, number)).collect();
    let locks: Vec<_> = names.iter().map(|_| locks_of(patient_builder(&cluster).response_timeout(LONG))).collect();
    cluster.nodes[3].ask::<String>(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]);
    for (locks, name) in locks.iter().zip(&names) {
        drop(locks.guard(name).unwrap());
        std::thread::sleep(ms(250));
    }
    cluster.nodes[0].freeze();
    std::thread::scope(|scope| {
        let each = locks.iter().zip(&names);
        let waiting: Vec<_> =
            each.map(|(locks, name)| scope.spawn(move || locks.guard(name).map(|_| Mark::now()))).collect();
        eventually(LONG, "the others are down", || [1, 2].iter().all(|node| !cluster.nodes[*node].serves()));
        std::thread::sleep(2 * SOON);
        cluster.nodes[3].ask::<String>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        eventually(LONG, "the others serve", || [1, 2].iter().all(|node| cluster.nodes[*node].serves()));
        let serves = Mark::now();
        for waiter in waiting {
            let took = finish(waiter).unwrap() - serves;
            assert!(took <= SOON / 2, "served after {took:?}");
        }
    });
    cluster.nodes[0].thaw();
}

/// Whichever node its client asks for slots: one that is cut off answers, and names itself for as long as that lasts.
#[test]
fn a_hold_at_a_master_that_is_cut_off_is_lost_when_another_one_is_named() {
    let cluster = Cluster::of(Shape::APART);
    for node in 0..3 {
        let [name, here] = [0, 2].map(|number| cluster.name_at(node, number));
        let builder = || cluster.builder_past_proxies().watchdog_timeout(MINUTE).poll_cap(MINUTE);
        let (locks, others) = (locks_of(builder()), locks_of(builder()));
        drop(locks.guard(&cluster.name_at(node, 1)).unwrap());
        std::thread::sleep(ms(1_200));
        let gate = Gate::default();
        cluster.cut_off(node, Cut::Silent, &gate);
        locks.lock(&name).unwrap();
        let hold = locks.hold(&name).unwrap();
        let new = cluster.replaced(node);
        let named = Mark::now();
        assert_eq!(lost_within(3 * SOON, &hold), LossCause::Removed, "the new master does not have it");
        println!("{node}: lost after {:?}", named.elapsed());
        cluster.nodes[new].ask::<i64>(&["HSET", &here, "x", "1"]);
        eventually(LONG, "the others have moved, too", || others.is_locked(&here).unwrap_or(false));
        assert!(others.try_lock_for(&name, LONG).unwrap() && cluster.nodes[new].pttl(&name) > 0);
        gate.open();
        cluster.join(node);
        cluster.settled();
    }
}

/// A client that knows a dead node by its URL alone.
#[test]
fn a_dead_or_frozen_node_of_the_url_costs_a_new_client_little() {
    let mut cluster = Cluster::start();
    let name = cluster.name_at(1, 0);
    cluster.nodes[3].kill();
    cluster.nodes[5].freeze();
    for _ in 0..4 {
        let start = Mark::now();
        let locks = locks_of(cluster.builder().poll_cap(ms(100)));
        drop(locks.guard(&name).unwrap());
        assert!(start.elapsed() <= SOON, "{:?}", start.elapsed());
    }
    cluster.nodes[5].thaw();
}

/// The silent node is a master for as long as nobody replaces it. The subscriber goes to another node all the same.
#[test]
fn a_waiter_whose_node_is_silent_hears_of_unlocks_at_another() {
    let cluster = Cluster::of(Shape::STEADY);
    let (holder, other) = (patient(&cluster, ShardedPubsub::Off), patient(&cluster, ShardedPubsub::Off));
    let names: Vec<_> = (0..3).map(|node| cluster.name_at(node, 0)).collect();
    names.iter().for_each(|name| holder.lock(name).unwrap());
    let listens =
        |node: usize, name: &str| cluster.nodes[node].subscribers(&format!("redisson_lock__channel:{{{name}}}")) == 1;
    std::thread::scope(|scope| {
        let waits = |name| other.try_lock_for(name, 3 * LONG).map(|has| has && other.unlock(name).is_ok());
        let waiters: Vec<_> = names.iter().map(|name| scope.spawn(move || waits(name))).collect();
        let all_listen = |node: usize| names.iter().all(|name| listens(node, name));
        eventually(LONG, "all listen at one node", || (0..3).any(all_listen));
        let silent = (0..3).find(|node| all_listen(*node)).unwrap();
        cluster.nodes[silent].freeze();
        let next = || (0..3).any(|node| node != silent && all_listen(node));
        eventually(LONG, "all listen at another node", next);
        let well = (0..3).filter(|node| *node != silent);
        well.for_each(|node| holder.unlock(&names[node]).unwrap());
        for (node, waiter) in waiters.into_iter().enumerate() {
            if node == silent {
                cluster.nodes[node].thaw();
                holder.unlock(&names[node]).unwrap();
            }
            assert!(finish(waiter).unwrap(), "nobody told it");
        }
    });
}
