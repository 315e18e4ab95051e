//! How many nodes carry the message of an unlock, by the nodes' own counts of what they tell each other.

use crate::support::Outcome;
use crate::{Scale, TOLD, built, names_at};
use harness::cluster::{Cluster, Shape};
use harness::threads::finish;
use redlatch::{RedLock, ReentrantLock, ShardedPubsub};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Messages arrive within it.
const ARRIVED: Duration = Duration::from_millis(300);

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    println!("messages that nodes received for an unlock at master 0, whose replica is 3\n");
    println!(
        "| pub/sub | somebody waits | unlocks | node 0 | 1 | 2 | 3 | 4 | 5 | nodes that carry it | masters of these |"
    );
    println!("| --- | --- |{}", " ---: |".repeat(9));
    for (told, title) in TOLD {
        let cluster = Cluster::of(Shape::STEADY);
        let [one, other] = [(); 2].map(|()| built(cluster.builder().sharded_pubsub(told)));
        let (one, other, [name]) = (one?, other?, names_at(&cluster, 0));
        one.lock(&name).and_then(|()| one.unlock(&name))?;
        let alone = |_| Ok(one.lock(&name).and_then(|()| one.unlock(&name))?);
        row(&cluster, told, [title, "no"], 1, scale, alone)?;
        row(&cluster, told, [title, "yes"], 2, scale, |_| pass_on(&one, &other, &name))?;
    }
    Ok(())
}

/// Two unlocks: one that somebody waits for, and that one's own.
fn pass_on(one: &ReentrantLock, other: &ReentrantLock, name: &str) -> Outcome<()> {
    one.lock(name)?;
    scope(|scope| {
        let waiting = scope.spawn(|| other.lock(name).and_then(|()| other.unlock(name)));
        sleep(Duration::from_millis(5));
        one.unlock(name).and(finish(waiting))
    })?;
    Ok(())
}

fn row(
    cluster: &Cluster,
    told: ShardedPubsub,
    titles: [&str; 2],
    each: usize,
    scale: &Scale,
    act: impl FnMut(usize) -> Outcome<()>,
) -> Outcome<()> {
    let before = received(cluster, told);
    (0..scale.pairs).try_for_each(act)?;
    sleep(ARRIVED);
    let (after, unlocks) = (received(cluster, told), each * scale.pairs);
    let each: Vec<_> =
        after.iter().zip(before).map(|(after, before)| (after - before) as f64 / unlocks as f64).collect();
    // The one where it is said has it, and counts once, whatever others told it besides.
    let [masters, nodes] = [3, 6].map(|first| 1 + each[1..first].iter().filter(|received| **received > 0.0).count());
    let shown: Vec<_> = each.iter().map(|received| format!("{received:.2}")).collect();
    println!("| {} | {unlocks} | {} | {nodes} | {masters} |", titles.join(" | "), shown.join(" | "));
    Ok(())
}

fn received(cluster: &Cluster, told: ShardedPubsub) -> Vec<u64> {
    let kind = if told == ShardedPubsub::Off { "publish" } else { "publishshard" };
    let field = format!("cluster_stats_messages_{kind}_received");
    let count = |said: Option<String>| said.and_then(|said| said.parse().ok()).unwrap_or(0);
    cluster.nodes.iter().map(|node| count(node.cluster_info(&field))).collect()
}
