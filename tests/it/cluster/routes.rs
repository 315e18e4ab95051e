//! The way to the right master, and what is said where there is none.

use super::{BOTH, MINUTE, locks_of, patient};
use crate::harness::cluster::{Cluster, Shape, shared};
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{Client, Error, MultiLock, Naming, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[test]
fn a_cluster_reached_as_one_server_says_which_url_to_use() {
    let cluster = shared();
    let locks = ReentrantLock::new(&Client::connect(&format!("redis://{}", cluster.nodes[0].address())).unwrap());
    let name = cluster.name_at(1, 0);
    let Err(error @ Error::Refused { .. }) = locks.lock(&name) else { panic!("it is elsewhere") };
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[test]
fn a_server_that_is_no_cluster_is_told_of() {
    let server = crate::server::Server::start_on_tcp();
    let url = server.tcp_url().replace("redis://", "redis+cluster://");
    let locks = locks_of(Client::builder(&url).outage_budget(ms(200)));
    let error = locks.lock("n").unwrap_err().to_string();
    assert!(error.contains("cluster support disabled"), "{error}");
}

#[test]
fn what_does_not_fit_a_cluster_is_refused() {
    let url = "redis+cluster://h";
    assert_err!(Client::builder(url).naming(Naming::Jedis).build(), Config);
    assert_err!(Client::builder(url).key_prefix("{").build(), Config);
    assert!(Client::builder(url).key_prefix("{shop}:").build().is_ok());
}

/// A name whose channel is in another slot: no queue, and its waiters are told all the same.
#[test]
fn a_name_with_odd_braces_is_passed_on_too() {
    let cluster = shared();
    for told in BOTH {
        let locks = [(); 3].map(|()| patient(cluster, told));
        for name in ["odd:a{b", "odd:{}x", "odd:n}"] {
            let guard = locks[0].guard(name).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| locks[1].guard(name).map(|guard| (Mark::now(), guard.unlock())));
                let channel = format!("redisson_lock__channel:{name}");
                let channels = [channel.clone(), format!("redisson_lock__channel:{{{name}}}")];
                let hears = || {
                    cluster.nodes.iter().any(|node| {
                        channels.iter().any(|channel| node.subscribers(channel) + node.sharded_subscribers(channel) > 0)
                    })
                };
                eventually(LONG, "it listens", hears);
                let released = Mark::now();
                guard.unlock().unwrap();
                let (served, unlocked) = finish(waiting).unwrap();
                assert!(unlocked.is_ok() && served - released <= SOON, "{name}: {:?}", served - released);
            });
        }
    }
}

#[test]
fn a_group_may_be_of_several_slots() {
    let cluster = shared();
    let locks = patient(cluster, ShardedPubsub::Auto);
    let names = [0, 1, 2].map(|node| cluster.name_at(node, 7));
    let all = MultiLock::of(names.iter().map(|name| (&locks, name.as_str())));
    let guard = all.guard().unwrap();
    assert!(names.iter().all(|name| locks.is_locked(name).unwrap()));
    drop(guard);
    assert!(names.iter().all(|name| !locks.is_locked(name).unwrap()));
}

/// A bug of the program's, which costs it no more than the calls that meet it.
#[test]
fn a_map_of_addresses_that_panics_keeps_nobody_from_asking_again() {
    let (cluster, called) = (shared(), AtomicUsize::new(0));
    let builder = cluster.builder().map_address(move |host, port| {
        assert!(called.fetch_add(1, SeqCst) > cluster.nodes.len(), "it panics for each node");
        (host.to_owned(), port)
    });
    let locks = locks_of(builder.watchdog_timeout(MINUTE).outage_budget(LONG));
    drop(locks.guard("n").unwrap());
}

/// The epoch of each slot is in that slot.
#[test]
fn a_strict_client_locks_in_every_slot() {
    let cluster = Cluster::start();
    let lease = ms(1_500);
    let locks = locks_of(cluster.builder().strict(true).watchdog_timeout(lease));
    for node in 0..3 {
        let name = cluster.name_at(node, 0);
        let guard = locks.guard(&name).unwrap();
        eventually(LONG, "it is renewed", || locks.client().stats().renewals > 0);
        drop(guard);
        let epochs = || cluster.nodes[node].keys().iter().filter(|key| key.starts_with("redlatch:epoch:{")).count();
        eventually(LONG, "the quarantine has begun in all slots of the master", || epochs() >= 5_461);
    }
}

#[test]
fn a_strict_client_whose_prefix_has_a_tag_keeps_one_epoch() {
    let cluster = Cluster::of(Shape::STEADY);
    let builder = cluster.builder().strict(true).key_prefix("{shop}:").watchdog_timeout(ms(1_500));
    let locks = locks_of(builder.response_timeout(ms(700)));
    drop(locks.guard("n").unwrap());
    assert!(locks.try_lock("m").unwrap(), "the quarantine of the slot is over");
    let at = |master: usize| cluster.nodes[master].keys().into_iter().filter(|key| key.contains("redlatch:epoch:"));
    assert_eq!((0..3).flat_map(at).count(), 1);
}

#[test]
fn replicas_of_the_right_master_confirm() {
    let cluster = shared();
    let locks = locks_of(cluster.builder().sync_replicas(1, ms(500)).watchdog_timeout(MINUTE));
    for node in 0..3 {
        let guard = locks.guard(&cluster.name_at(node, 9)).unwrap();
        assert_eq!(guard.hold().confirmed_by(), Some((1, 1)));
    }
}
