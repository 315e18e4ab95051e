//! Row 101: the permissions that the documentation lists for a cluster are enough, and each is needed for something.

use crate::threads::{LONG, WATCHED, eventually, finish, ms, spawn_asleep};
use crate::{MINUTE, locks_of, warnings};
use harness::cluster::{Cluster, Keys, Shape, slot_of};
use harness::permissions;
use harness::process::alone;
use harness::server::version;
use redlatch::{Client, ClientBuilder, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};

/// That of the user in the documentation.
const PREFIX: &str = "shop:";

/// What a cluster wants beside all else, and strict clients and `sync_replicas` do.
fn added() -> Vec<&'static str> {
    let sharded = (version() >= (7, 0)).then(|| permissions::added("sharded pub/sub (Redis 7.0 and later)"));
    let rows = ["a cluster", "`strict`", "`sync_replicas`"].into_iter().flat_map(permissions::added);
    rows.chain(sharded.into_iter().flatten()).collect()
}

/// A user who may do what is listed, but for these; all that was refused before is forgotten.
fn let_in(cluster: &Cluster, without: &[&str]) -> String {
    for node in &cluster.nodes {
        let words = permissions::documented().into_iter().chain(added()).filter(|word| !without.contains(word));
        node.ask::<String>(&words.collect::<Vec<_>>());
        node.ask::<String>(&["ACL", "LOG", "RESET"]);
    }
    cluster.url().replace("://", "://app:secret@")
}

/// What was refused to anybody, but for what older servers do not know and no rule can allow: a client's name for its library.
fn refused(cluster: &Cluster) -> Vec<String> {
    let at = |node: &harness::member::Member| node.ask::<Vec<redis::Value>>(&["ACL", "LOG"]);
    let is_news = |entry: &String| version() >= (7, 0) || !entry.contains("cmd=client ");
    cluster.nodes.iter().flat_map(at).map(|entry| format!("{entry:?}")).filter(is_news).collect()
}

/// How often nodes were asked for slots.
fn asked(cluster: &Cluster) -> u64 {
    let at = |node: &harness::member::Member| {
        let stats: String = node.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    cluster.nodes.iter().map(at).sum::<u64>()
}

/// Two processes' clients wait for each other in turn, renew, re-enter and stop listening.
fn take_turns(cluster: &Cluster, [holder, waiter]: [&ReentrantLock; 2], number: usize) {
    let name = cluster.names_at(1, PREFIX).nth(number).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let guard = holder.guard(&name).unwrap();
            let waiting = [(); 2].map(|()| spawn_asleep(scope, || waiter.guard(&name).map(drop)));
            std::thread::sleep(ms(100));
            assert!(holder.try_lock(&name).unwrap());
            holder.unlock(&name).unwrap();
            guard.unlock().unwrap();
            waiting.into_iter().for_each(|waiting| finish(waiting).0.unwrap());
        }
    });
    let guard = holder.guard(&name).unwrap();
    let before = holder.client().stats().renewals;
    eventually(LONG, "it is renewed", || holder.client().stats().renewals > before);
    guard.unlock().unwrap();
}

/// A slot that is half moved, and then moves back. Its locks are asked for at both of its nodes.
fn meet_a_move(cluster: &Cluster, locks: &ReentrantLock) {
    let name = cluster.names_at(0, PREFIX).next().unwrap();
    let slot = slot_of(&format!("{PREFIX}{name}"));
    let moved = cluster.half_move(slot, 1, Keys::None);
    let _ = locks.try_lock_for(&name, ms(50)).map(|_| locks.unlock(&name));
    cluster.finish_move(moved);
    cluster.move_slot(slot, 0);
}

fn use_all(cluster: &Cluster, url: &str) {
    let usual = || Client::builder(url).key_prefix(PREFIX).watchdog_timeout(WATCHED).outage_budget(MINUTE);
    let with = |number, set: fn(ClientBuilder) -> ClientBuilder| {
        let clients = [(); 2].map(|()| locks_of(set(usual())));
        take_turns(cluster, clients.each_ref(), number);
        meet_a_move(cluster, &clients[0]);
        // What nobody listens to any more is left after 2 s.
        std::thread::sleep(ms(2_500));
    };
    with(0, |builder| builder);
    with(1, |builder| builder.sharded_pubsub(ShardedPubsub::Off));
    with(2, |builder| builder.strict(true).sync_replicas(1, ms(300)));
}

#[test]
fn fault_101_what_the_documentation_lists_is_enough_in_a_cluster() {
    let cluster = Cluster::of(Shape::STEADY);
    use_all(&cluster, &let_in(&cluster, &[]));
    let refused = refused(&cluster);
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Nothing fails for want of it, and nobody would find out.
#[test]
fn fault_101_who_may_not_see_epochs_or_the_cluster_s_state_is_warned_once() {
    if version() < (7, 0) {
        return;
    }
    alone(|| {
        let told = warnings::that_say("does not tell all of the cluster");
        let cluster = Cluster::of(Shape::STEADY);
        for (count, command) in [(1, "cluster|nodes"), (2, "cluster|info")] {
            let url = let_in(&cluster, &[&format!("+{command}")]);
            let (locks, before) = (locks_of(Client::builder(&url).key_prefix(PREFIX)), asked(&cluster));
            drop(locks.guard("n").unwrap());
            eventually(LONG, "it is asked again", || asked(&cluster) >= before + 3);
            let warnings = told.seen.lock().unwrap();
            assert!(warnings.len() == count && warnings[count - 1].contains(command), "{warnings:?}");
        }
    });
}
