//! Very many threads of one client that wait for locks of all masters: connections, and what they ask for while nothing happens.

use crate::support::{Outcome, command_counts, connect};
use crate::{Scale, TOLD, built};
use harness::cluster::{Cluster, Shape};
use harness::threads::{LONG, eventually};
use redlatch::{RedLock, ReentrantLock, ShardedPubsub};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// Whoever has asked last has its answer by then.
const SETTLED: Duration = Duration::from_millis(500);

/// What scripts execute, and how replicas follow.
const NOT_SENT: [&str; 19] = [
    "hset",
    "hexists",
    "exists",
    "pttl",
    "pexpire",
    "time",
    "hlen",
    "hkeys",
    "get",
    "zrank",
    "zadd",
    "zrange",
    "zcard",
    "set",
    "zrem",
    "publish",
    "spublish",
    "replconf",
    "client|list",
];

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    println!("{} threads of one client wait, each for a lock of its own\n", scale.waiters);
    println!(
        "| pub/sub | node | connections | of these for messages | commands a second, for {:?} | which |",
        scale.idle
    );
    println!("| --- |{} --- |", " ---: |".repeat(4));
    TOLD.iter().try_for_each(|(told, title)| row(scale, *told, title))
}

fn row(scale: &Scale, told: ShardedPubsub, title: &str) -> Outcome<()> {
    let cluster = Cluster::of(Shape::STEADY);
    let locks = built(cluster.builder().sharded_pubsub(told))?;
    let names = held_by_hand(&cluster, scale.waiters);
    let waiting = names.iter().map(|name| wait(&locks, name)).collect::<Outcome<Vec<_>>>()?;
    eventually(LONG, "all wait", || locks.client().stats().waiters == names.len());
    sleep(SETTLED);
    let nodes = &cluster.nodes;
    nodes.iter().for_each(|node| drop(node.ask::<String>(&["CONFIG", "RESETSTAT"])));
    sleep(scale.idle);
    for (number, node) in nodes.iter().enumerate() {
        let connections = node.clients();
        // What its master passes on is in a replica's counts.
        let counts =
            if connections == 0 { Vec::new() } else { command_counts(&mut connect(&node.url())?)? }.into_iter();
        let sent: Vec<_> = counts.filter(|(name, _)| !NOT_SENT.contains(&name.as_str())).collect();
        let each = |count: f64| format!("{:.1}", count / scale.idle.as_secs_f64());
        let which: Vec<_> = sent.iter().map(|(name, count)| format!("{name} {}", each(*count))).collect();
        let all = sent.iter().map(|(_, count)| count).sum::<f64>().abs();
        let listening: String = node.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let listening = listening.lines().count();
        println!("| {title} | {number} | {connections} | {listening} | {} | {} |", each(all), which.join(", "));
    }
    let freed = built(cluster.builder().sharded_pubsub(told))?;
    names.iter().try_for_each(|name| freed.force_unlock(name).map(drop))?;
    waiting.into_iter().try_for_each(|waiter| Ok(waiter.join().map_err(|_| "a waiter panicked")??))
}

/// Locks at all masters that nobody renews or gives up: no client of ours does anything for them.
fn held_by_hand(cluster: &Cluster, number: usize) -> Vec<String> {
    let at = |node: usize| {
        let names: Vec<_> = cluster.names_at(node, "").take(number.div_ceil(3)).collect();
        for name in &names {
            cluster.nodes[node].ask::<i64>(&["HSET", name, "by-hand:1", "1"]);
            cluster.nodes[node].ask::<i64>(&["PEXPIRE", name, "600000"]);
        }
        names
    };
    [0, 1, 2].map(at).concat()
}

/// A thread with the stack that a program of many threads would give it.
fn wait(locks: &ReentrantLock, name: &str) -> Outcome<JoinHandle<redlatch::Result<()>>> {
    let (locks, name) = (locks.clone(), name.to_owned());
    Ok(Builder::new().stack_size(128 * 1024).spawn(move || locks.lock(&name).and_then(|()| locks.unlock(&name)))?)
}
