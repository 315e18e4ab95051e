//! Fair locks in a cluster: who counts no listeners, a slot that stays half moved, names whose queue is in another slot; and strict clients.

use super::{locks_of, pass};
use crate::harness::cluster::{Cluster, Keys, names_in_slot, slot_of};
use crate::server::Server;
use crate::threads::{LONG, OUTLIVED, WATCHED, elsewhere, eventually, finish, ms};
use redlatch::{FairLock, RedLock, RedLockExt, ShardedPubsub};
use std::sync::Mutex;
use std::thread::scope;

fn fair(cluster: &Cluster, told: ShardedPubsub) -> FairLock {
    FairLock::new(&cluster.builder().sharded_pubsub(told).build().unwrap())
}

/// How many wait for the lock, by the queue at the node that has it.
fn waiting(cluster: &Cluster, name: &str) -> usize {
    let list = format!("redisson_lock_queue:{{{name}}}");
    cluster.nodes[cluster.master_of(name)].ask(&["LLEN", &list])
}

/// Has eight threads of these clients wait in turn for a lock that is held, and returns who was served when.
fn served(cluster: &Cluster, clients: &[FairLock], name: &str) -> Vec<usize> {
    let (holder, served) = (&clients[0], Mutex::new(Vec::new()));
    holder.lock(name).unwrap();
    scope(|scope| {
        for number in 0..8 {
            let (locks, served) = (&clients[number % clients.len()], &served);
            scope.spawn(move || {
                let guard = locks.request(name).wait(LONG).guard().unwrap().expect("its turn");
                served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            });
            eventually(LONG, "it is queued", || waiting(cluster, name) == number + 1);
        }
        holder.unlock(name).unwrap();
    });
    served.into_inner().unwrap()
}

/// With plain pub/sub no script can count who listens.
#[test]
fn there_is_an_order_with_both_kinds_of_messages() {
    for told in [ShardedPubsub::Auto, ShardedPubsub::Off] {
        let cluster = Cluster::start();
        let clients = [(); 3].map(|()| fair(&cluster, told));
        assert_eq!(served(&cluster, &clients, "n"), (0..8).collect::<Vec<_>>(), "{told:?}");
    }
}

/// Both clients have the lock one after the other, and neither while the other has it.
fn assert_works([one, other]: &[FairLock; 2], name: &str) {
    for (holder, waiter) in [(one, other), (other, one)] {
        let guard = holder.request(name).wait(LONG).guard().unwrap().expect("it is free");
        assert!(elsewhere(|| !waiter.try_lock(name).unwrap()), "{name}");
        scope(|scope| {
            let waits = scope.spawn(|| waiter.try_lock_for(name, LONG).unwrap() && waiter.unlock(name).is_ok());
            std::thread::sleep(ms(30));
            assert!(holder.verify(guard.hold()).unwrap(), "{name}");
            guard.unlock().unwrap();
            assert!(finish(waits), "{name}");
        });
    }
}

/// Lock and queue are here or there. Order is kept again when the slot has arrived.
#[test]
fn locks_work_in_a_slot_that_stays_half_moved() {
    for told in [ShardedPubsub::Auto, ShardedPubsub::Off] {
        let cluster = Cluster::start();
        let slot = slot_of(&cluster.name_at(0, 0));
        let names: Vec<_> = names_in_slot(slot).take(4).collect();
        let clients = [(); 2].map(|()| fair(&cluster, told));
        names.iter().for_each(|name| assert_works(&clients, name));
        let held: Vec<_> = names[..3].iter().map(|name| clients[0].guard(name).unwrap()).collect();
        scope(|scope| {
            let waits = names[..3].iter().map(|name| {
                let waiter =
                    scope.spawn(|| clients[1].try_lock_for(name, LONG).unwrap() && clients[1].unlock(name).is_ok());
                eventually(LONG, "it is queued", || waiting(&cluster, name) == 1);
                waiter
            });
            let waits: Vec<_> = waits.collect();
            let list = format!("redisson_lock_queue:{{{}}}", names[1]);
            let moved = cluster.half_move(slot, 1, Keys::Named(&[&names[0], &list]));
            for guard in held {
                assert!(clients[0].verify(guard.hold()).unwrap(), "{}", guard.resource());
                guard.unlock().unwrap();
            }
            waits.into_iter().for_each(|waiter| assert!(finish(waiter)));
            names.iter().for_each(|name| assert_works(&clients, name));
            cluster.finish_move(moved);
        });
        // Who was granted the lock at the new node had its place at the old one. The place arrived with the slot.
        for name in &names {
            eventually(LONG, "who has been served has no place", || waiting(&cluster, name) == 0);
        }
        names.iter().for_each(|name| assert_works(&clients, name));
        assert_eq!(served(&cluster, &clients, &names[0]), (0..8).collect::<Vec<_>>());
    }
}

#[test]
fn a_name_whose_queue_is_in_other_slots_is_locked_all_the_same() {
    let cluster = Cluster::start();
    let clients = [(); 2].map(|()| fair(&cluster, ShardedPubsub::Auto));
    ["a{b", "{}x", "a}"].iter().for_each(|name| assert_works(&clients, name));
}

#[test]
fn strict_clients_have_an_order_after_the_quarantine() {
    let server = Server::start();
    let clients = [(); 2].map(|()| locks_of(server.builder().watchdog_timeout(WATCHED).strict(true)));
    assert!(!clients[0].try_lock("n").unwrap());
    let guard = clients[0].request("n").wait(LONG).guard().unwrap().unwrap();
    scope(|scope| {
        let waiter = super::queued(scope, &server, || pass(&clients[1]));
        std::thread::sleep(OUTLIVED);
        assert!(guard.is_valid(), "it is renewed");
        guard.unlock().unwrap();
        assert!(finish(waiter).0);
    });
    super::eventually_empty(&server);
    server.ask::<i64>(&["DEL", "redlatch:epoch"]);
}
