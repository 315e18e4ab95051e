//! What a cluster costs while nothing happens: a pair of lock and unlock beside its scripts by hand, at the same master.

use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Samples, command_stats, connect, on_one_core, take_turns};
use crate::{Scale, TOLD, built, names_at};
use harness::cluster::{Cluster, Shape};
use redlatch::{RedLock, ShardedPubsub};

const MICRO: f64 = 1_000.0;

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    let cluster = Cluster::of(Shape::STEADY);
    println!(
        "{} rounds of {} pairs each, in turns; medians, and the least and most of the rounds\n",
        scale.rounds, scale.pairs
    );
    println!("| pair, p50 | ours, µs | by hand, µs | x by hand | target | commands a pair | target |");
    println!("| --- |{}", " ---: |".repeat(6));
    let processes: Vec<_> = cluster.nodes.iter().map(|node| node.pid()).collect();
    for (told, title) in TOLD {
        on_one_core(&processes, || row(&cluster, told, &format!("{title}, one core"), scale))?;
        row(&cluster, told, &format!("{title}, any core"), scale)?;
    }
    Ok(())
}

fn row(cluster: &Cluster, told: ShardedPubsub, title: &str, scale: &Scale) -> Outcome<()> {
    let (url, [ours, by_hand]) = (cluster.nodes[0].url(), names_at(cluster, 0));
    let by_hand = Name::new(&by_hand);
    let mut floor = if told == ShardedPubsub::Off { Floor::new(&url)? } else { Floor::sharded(&url)? };
    let locks = built(cluster.builder().sharded_pubsub(told))?;
    let mut pair = || Ok(locks.lock(&ours).and_then(|()| locks.unlock(&ours))?);
    let [mut ratios, mut our_times, mut hand_times] = [(); 3].map(|()| Samples::default());
    for round in 0..=scale.rounds {
        let mut hand = || floor.pair(&by_hand);
        let [one, other] = take_turns(round, scale.pairs, [&mut hand, &mut pair])?;
        // The first round warms all up.
        if round > 0 {
            ratios.push(other.p50() / one.p50());
            hand_times.push(one.p50() / MICRO);
            our_times.push(other.p50() / MICRO);
        }
    }
    let commands = commands(&url, scale, &mut pair)?;
    let (least, most) = (ratios.quantile(0.0), ratios.quantile(1.0));
    println!(
        "| {title} | {:.1} | {:.1} | {:.3} ({least:.3} to {most:.3}) | <= 1.10 | {commands} | 2 |",
        our_times.p50(),
        hand_times.p50(),
        ratios.p50(),
    );
    Ok(())
}

/// By the master's count.
fn commands(url: &str, scale: &Scale, pair: &mut dyn FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut probe = connect(url)?;
    let mut count = || -> Outcome<f64> {
        let sent = ["evalsha", "eval", "asking", "wait", "multi"];
        sent.iter().map(|command| Ok(command_stats(&mut probe, command)?.calls)).sum()
    };
    let before = count()?;
    (0..scale.pairs).try_for_each(|_| pair())?;
    Ok((count()? - before) / scale.pairs as f64)
}
