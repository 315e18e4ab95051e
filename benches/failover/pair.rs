//! What Sentinel costs while nothing happens: a pair of lock and unlock beside its scripts by hand, at the same master.

use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Samples, command_stats, connect, on_one_core, take_turns};
use crate::{CONFIRMED_WITHIN, REPLICAS, SAFE_LEASE, Scale};
use harness::sentinel::{Group, Shape};
use harness::threads::{LONG, eventually};
use redlatch::{RedLock, ReentrantLock};

/// Names of one length.
const OURS: &str = "bench:failover:o";
const FLOOR: &str = "bench:failover:f";

const MICRO: f64 = 1_000.0;

/// What a pair may be, by what is asked of the replicas.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Confirmed,
    Safe,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Confirmed => "sync_replicas(2)",
            Self::Safe => "sync_replicas(2), strict",
        }
    }

    fn locks(self, group: &Group) -> Outcome<ReentrantLock> {
        let confirmed = || group.builder().sync_replicas(REPLICAS, CONFIRMED_WITHIN);
        let builder = match self {
            Self::Plain => group.builder(),
            Self::Confirmed => confirmed(),
            // A master that is new to strict mode grants nothing for one lease.
            Self::Safe => confirmed().strict(true).watchdog_timeout(SAFE_LEASE),
        };
        Ok(ReentrantLock::new(&builder.build()?))
    }

    fn by_hand(self, floor: &mut Floor, name: &Name) -> Outcome<()> {
        match self {
            Self::Plain => floor.pair(name),
            _ => floor.confirmed_pair(name, i64::try_from(REPLICAS)?, CONFIRMED_WITHIN),
        }
    }
}

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    let group = Group::of(Shape::STEADY);
    // A master counts a replica only once it has heard from it.
    let confirmed = ["WAIT", &REPLICAS.to_string(), "100"];
    eventually(LONG, "all replicas confirm", || group.nodes[0].ask::<usize>(&confirmed) == REPLICAS);
    println!(
        "{} rounds of {} pairs each, in turns; medians, and the least and most of the rounds\n",
        scale.rounds, scale.pairs
    );
    println!("| pair, p50 | ours, µs | by hand, µs | x by hand | target | scripts a pair | WAITs a pair |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let processes: Vec<_> = group.nodes.iter().map(|node| node.pid()).collect();
    for kind in [Kind::Plain, Kind::Confirmed, Kind::Safe] {
        on_one_core(&processes, || row(&group, kind, "one core", scale))?;
        row(&group, kind, "any core", scale)?;
    }
    println!();
    Ok(())
}

fn row(group: &Group, kind: Kind, place: &str, scale: &Scale) -> Outcome<()> {
    let url = group.nodes[0].url();
    let (mut floor, name, locks) = (Floor::new(&url)?, Name::new(FLOOR), kind.locks(group)?);
    let mut pair = || Ok(locks.lock(OURS).and_then(|()| locks.unlock(OURS))?);
    let [mut ratios, mut ours, mut by_hand] = [(); 3].map(|()| Samples::default());
    for round in 0..=scale.rounds {
        let mut hand = || kind.by_hand(&mut floor, &name);
        let [one, other] = take_turns(round, scale.pairs, [&mut hand, &mut pair])?;
        // The first round warms all up.
        if round > 0 {
            ratios.push(other.p50() / one.p50());
            by_hand.push(one.p50() / MICRO);
            ours.push(other.p50() / MICRO);
        }
    }
    let target = if kind == Kind::Plain { "<= 1.10" } else { "" };
    let [scripts, waits] = commands(&url, scale, &mut pair)?;
    let (least, most) = (ratios.quantile(0.0), ratios.quantile(1.0));
    println!(
        "| {}, {place} | {:.1} | {:.1} | {:.3} ({least:.3} to {most:.3}) | {target} | {scripts} | {waits} |",
        kind.title(),
        ours.p50(),
        by_hand.p50(),
        ratios.p50(),
    );
    Ok(())
}

/// By the server's count.
fn commands(url: &str, scale: &Scale, pair: &mut dyn FnMut() -> Outcome<()>) -> Outcome<[f64; 2]> {
    let mut probe = connect(url)?;
    let mut count = || -> Outcome<[f64; 2]> {
        let mut calls = |command| Outcome::Ok(command_stats(&mut probe, command)?.calls);
        Ok([calls("evalsha")? + calls("eval")?, calls("wait")?])
    };
    let before = count()?;
    (0..scale.pairs).try_for_each(|_| pair())?;
    let after = count()?;
    Ok([0, 1].map(|what| (after[what] - before[what]) / scale.pairs as f64))
}
