//! Rows 97 to 99 and 101: clients that know little, others than their like, or are refused something.

use crate::proxy::Gate;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms, spawn_asleep};
use crate::{MINUTE, locks_of, patient};
use harness::cluster::{Cluster, Shape, shared};
use harness::sentinel::Cut;
use harness::server::version;
use redlatch::{Client, ClientBuilder, Error, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn of_nodes(cluster: &Cluster, nodes: &[usize]) -> ClientBuilder {
    let hosts: Vec<_> = nodes.iter().map(|node| cluster.nodes[*node].address()).collect();
    Client::builder(&format!("redis+cluster://{}", hosts.join(",")))
}

#[test]
fn fault_97_a_dead_or_frozen_node_of_the_url_costs_a_new_client_little() {
    let mut cluster = Cluster::of(Shape::STEADY);
    let name = cluster.name_at(1, 0);
    cluster.nodes[3].kill();
    cluster.nodes[5].freeze();
    for _ in 0..4 {
        let start = Mark::now();
        drop(locks_of(of_nodes(&cluster, &[3, 5, 1])).guard(&name).unwrap());
        assert!(start.elapsed() <= SOON, "{:?}", start.elapsed());
    }
    cluster.nodes[5].thaw();
}

/// A node that is frozen keeps nobody from asking one that comes back.
#[test]
fn fault_97_a_dead_node_of_the_url_that_comes_back_is_found_beside_a_frozen_one() {
    let mut cluster = Cluster::of(Shape::STEADY);
    let name = cluster.name_at(1, 0);
    cluster.nodes[4].kill();
    cluster.nodes[5].freeze();
    let builder = of_nodes(&cluster, &[4, 5]).connect_timeout(MINUTE).response_timeout(MINUTE);
    let builder = builder.watchdog_timeout(2 * MINUTE);
    let locks = locks_of(builder.outage_budget(MINUTE));
    std::thread::scope(|scope| {
        let asking = spawn_asleep(scope, || locks.guard(&name).map(drop));
        std::thread::sleep(ms(300));
        cluster.nodes[4].restart();
        let there = Mark::now();
        let (done, when) = finish(asking);
        assert!(done.is_ok() && when - there <= 3 * SOON, "{done:?} after {:?}", when - there);
    });
    cluster.nodes[5].thaw();
}

/// From Redis 7.0 on nodes may name no host at all: it is that of the one that was asked. Whatever is named is mapped.
#[test]
fn fault_98_nodes_are_reached_where_the_map_says() {
    let (cluster, gate) = (Cluster::of(Shape::APART), Gate::default());
    for node in &cluster.nodes {
        let setting = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"];
        assert_eq!(node.try_ask::<String>(&setting).is_ok(), version() >= (7, 0));
    }
    let (ways, named) = (cluster.ways(), Arc::<Mutex<BTreeSet<String>>>::default());
    let noted = Arc::clone(&named);
    let mapped = of_nodes(&cluster, &[0]).map_address(move |host, port| {
        noted.lock().unwrap().insert(host.to_owned());
        let own = ways.iter().find(|(known, _)| *known == port).map_or(port, |(_, own)| *own);
        (host.to_owned(), own)
    });
    // The proxies between nodes, where a client without a map would go, know one of its address as the first node.
    cluster.cut_off(0, Cut::Hard, &gate);
    let locks = locks_of(mapped);
    for node in [1, 2] {
        drop(locks.guard(&cluster.name_at(node, 0)).unwrap());
    }
    assert_eq!(*named.lock().unwrap(), ["127.0.0.1".to_owned()].into());
    let lost = locks_of(of_nodes(&cluster, &[1]).outage_budget(ms(200)).connect_timeout(ms(500)));
    let error = lost.lock(&cluster.name_at(2, 0)).unwrap_err();
    let known = cluster.ways()[2].0.to_string();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(&known), "{error}");
}

/// As long as nodes are to be named by names that they do not have. Who has asked before goes on.
#[test]
fn fault_98_a_node_without_a_name_is_waited_for() {
    if version() < (7, 0) {
        return;
    }
    let cluster = Cluster::of(Shape::STEADY);
    let name = |kind: &str| {
        let setting = ["CONFIG", "SET", "cluster-preferred-endpoint-type", kind];
        cluster.nodes.iter().for_each(|node| drop(node.ask::<String>(&setting)));
    };
    let (moves, stays) = (cluster.name_at(0, 0), cluster.name_at(0, 1));
    let locks = locks_of(cluster.builder().outage_budget(LONG).watchdog_timeout(2 * MINUTE));
    drop(locks.guard(&moves).unwrap());
    name("hostname");
    cluster.move_slot(harness::cluster::slot_of(&moves), 1);
    let error = locks.try_lock(&moves).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("has no name"), "{error}");
    drop(locks.guard(&stays).unwrap());
    std::thread::scope(|scope| {
        let waiting = spawn_asleep(scope, || locks.guard(&moves).map(drop));
        name("ip");
        finish(waiting).0.unwrap();
    });
}

/// What concerns no lock asks one master after the other, in the time of one.
#[test]
fn fault_97_a_ping_takes_no_longer_however_many_masters_are_frozen() {
    let cluster = Cluster::of(Shape::STEADY);
    let client = cluster.builder().response_timeout(SOON).build().unwrap();
    client.ping(SOON).unwrap();
    cluster.nodes[..3].iter().for_each(|node| node.freeze());
    let start = Mark::now();
    assert!(client.ping(MINUTE).is_err());
    assert!(start.elapsed() <= 2 * SOON, "{:?}", start.elapsed());
    cluster.nodes[0].thaw();
    cluster.nodes[1..3].iter().for_each(|node| node.thaw());
    eventually(LONG, "one answers", || client.ping(SOON).is_ok());
}

/// All programs that share locks have to tell each other in one way. Who does it in the other one is told of nothing, and polls.
#[test]
fn fault_99_of_a_fleet_that_tells_in_two_ways_all_are_served() {
    if version() < (7, 0) {
        println!("not shown: the server knows one way");
        return;
    }
    let cluster = shared();
    let cap = ms(700);
    let of = |told| locks_of(cluster.builder().sharded_pubsub(told).poll_cap(cap).watchdog_timeout(MINUTE));
    let ways = [ShardedPubsub::Auto, ShardedPubsub::Off];
    for (number, [holds, waits]) in [ways, [ways[1], ways[0]]].into_iter().enumerate() {
        let (holder, waiter) = (of(holds), of(waits));
        let name = cluster.name_at(1, 20 + number);
        std::thread::scope(|scope| {
            let guard = holder.guard(&name).unwrap();
            let waiting = spawn_asleep(scope, || waiter.guard(&name).map(drop));
            let channel = format!("redisson_lock__channel:{{{name}}}");
            let listens =
                |node: &harness::member::Member| node.subscribers(&channel) + node.sharded_subscribers(&channel) > 0;
            eventually(LONG, "it listens", || cluster.nodes.iter().any(listens));
            let released = Mark::now();
            guard.unlock().unwrap();
            let (served, when) = finish(waiting);
            assert!(served.is_ok() && when - released <= cap + SOON, "{served:?} after {:?}", when - released);
        });
    }
}

/// A user that may do all but this, at all nodes.
fn user(cluster: &Cluster, rules: &str) -> ClientBuilder {
    for node in &cluster.nodes {
        let words = ["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@all"];
        let channels = if version() < (6, 2) { None } else { Some("&*") };
        let words: Vec<_> = words.into_iter().chain(channels).chain(rules.split(' ')).collect();
        node.ask::<String>(&words);
    }
    Client::builder(&cluster.url().replace("://", "://app:secret@"))
}

#[test]
fn fault_101_who_may_not_ask_for_slots_is_told_so() {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = locks_of(user(&cluster, "-cluster"));
    let start = Mark::now();
    let error = locks.lock("n").unwrap_err();
    assert!(start.elapsed() <= SOON && !error.is_retryable(), "{error:?} after {:?}", start.elapsed());
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
    assert!(error.to_string().contains("cluster"), "{error}");
    drop(user(&cluster, "+cluster"));
    eventually(LONG, "it is let in", || locks.guard("n").map(drop).is_ok());
}

/// Their epochs are not known then: what is said last counts.
#[test]
fn fault_101_who_may_ask_for_slots_alone_needs_no_more() {
    let cluster = Cluster::start();
    let only = if version() < (7, 0) { "-cluster +cluster|slots" } else { "-cluster|nodes" };
    let locks = patient(user(&cluster, only));
    let name = cluster.name_at(0, 0);
    drop(locks.guard(&name).unwrap());
    cluster.move_slot(harness::cluster::slot_of(&name), 1);
    drop(locks.guard(&name).unwrap());
    cluster.fail_over(4, harness::cluster::How::Orderly);
    drop(locks.guard(&name).unwrap());
}

fn waits_without(cluster: &Cluster, rules: &str, told: ShardedPubsub) {
    let name = cluster.name_at(2, 0);
    let holder = patient(cluster.builder().sharded_pubsub(told));
    let waiter: ReentrantLock = patient(user(cluster, rules).sharded_pubsub(told));
    std::thread::scope(|scope| {
        let guard = holder.guard(&name).unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard(&name).map(drop));
        std::thread::sleep(ms(200));
        let released = Mark::now();
        guard.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
    });
}

/// It looks once a second then, and the log says which permission is missing.
#[test]
fn fault_101_who_may_not_listen_polls() {
    let cluster = Cluster::of(Shape::STEADY);
    waits_without(&cluster, "-subscribe", ShardedPubsub::Off);
    if version() >= (7, 0) {
        waits_without(&cluster, "-ssubscribe", ShardedPubsub::Auto);
    }
}

/// A free lock of a slot on its way cannot be asked for; all others can, and no answer is taken for another one's.
#[test]
fn fault_101_who_may_not_say_asking_is_told_so_and_mixes_up_no_answers() {
    let cluster = Cluster::of(Shape::STEADY);
    let slot = harness::cluster::slot_of(&cluster.name_at(0, 0));
    let names: Vec<_> = harness::cluster::names_in_slot(slot).take(2).collect();
    let locks = locks_of(user(&cluster, "-asking").pool_size(1).watchdog_timeout(MINUTE));
    let guard = locks.guard(&names[0]).unwrap();
    let there: Vec<_> = (0..4).map(|number| cluster.name_at(1, number)).collect();
    there.iter().for_each(|name| drop(locks.guard(name).unwrap()));
    cluster.half_move(slot, 1, harness::cluster::Keys::None);
    let error = locks.try_lock(&names[1]).unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
    for name in &there {
        let guard = locks.guard(name).unwrap();
        assert!(locks.verify(&guard).unwrap() && cluster.nodes[1].pttl(name) > 0);
        guard.unlock().unwrap();
    }
    assert!(locks.verify(&guard).unwrap());
}
