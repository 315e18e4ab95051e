//! Very many holds over all masters: what it takes to renew them, and which of them are in doubt when one master is killed.

use crate::support::doubts::Doubts;
use crate::support::turns::MILLI;
use crate::support::{Outcome, cpu_seconds, monotonic};
use crate::watch::watch;
use crate::{BUDGET, Scale, built};
use harness::cluster::Cluster;
use redlatch::{Hold, RedLock, ReentrantLock};
use std::thread::sleep;
use std::time::Duration;

/// So many periods of renewals are watched.
const PERIODS: u64 = 2;

/// So often all are looked at.
const EVERY: Duration = Duration::from_millis(10);

/// How long a failover and all renewals may take, in nanoseconds.
const PATIENCE: i64 = 60_000_000_000;

/// For so long nothing is in doubt any more in the end, in nanoseconds.
const CALM: i64 = 1_000_000_000;

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    println!("{} holds of a lease of {:?} over three masters\n", scale.holds, scale.lease);
    let doubts: Outcome<Vec<_>> = (0..scale.many).map(|number| one(scale, number == 0)).collect();
    println!("\nthen a master is killed, a second before the next renewals are due; ms\n");
    println!(
        "| its holds | named after | Suspect at most | the longest | none Suspect, from the naming | Lost | \
         others' holds | Suspect at most |"
    );
    println!("|{}", " ---: |".repeat(8));
    doubts?.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn one(scale: &Scale, is_first: bool) -> Outcome<String> {
    let mut cluster = Cluster::start();
    let locks = built(cluster.builder().outage_budget(BUDGET).watchdog_timeout(scale.lease))?;
    let names: Vec<_> = (0..scale.holds).map(|number| format!("bench:cluster:{number}")).collect();
    names.iter().try_for_each(|name| locks.lock(name))?;
    if is_first {
        println!("| a period | node 0 | 1 | 2 | all | a renewal |");
        println!("| --- |{}", " ---: |".repeat(5));
    }
    renewals(&cluster, &locks, scale)?;
    fail_over(&mut cluster, &locks, &names, scale)
}

/// What a node did so far: scripts, reads from sockets, bytes.
fn work(cluster: &Cluster, node: usize) -> [f64; 3] {
    let node = &cluster.nodes[node];
    let stats: String = node.ask(&["INFO", "stats"]);
    let field = |name: &str| {
        let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    [node.calls(&["evalsha", "eval"]) as f64, field("total_reads_processed"), field("total_net_input_bytes")]
}

/// All that it takes, for as many renewals as there are holds.
fn renewals(cluster: &Cluster, locks: &ReentrantLock, scale: &Scale) -> Outcome<()> {
    let state = || ([0, 1, 2].map(|node| work(cluster, node)), cpu_seconds(), locks.client().stats().renewals);
    let (before, cpu, renewed) = state();
    let start = monotonic();
    while locks.client().stats().renewals < renewed + PERIODS * scale.holds as u64 {
        within_patience(start)?;
        sleep(EVERY);
    }
    let (after, cpu_after, renewed_after) = state();
    let periods = (renewed_after - renewed) as f64 / scale.holds as f64;
    for (at, what) in ["scripts", "reads by the node", "bytes"].iter().enumerate() {
        let each = [0, 1, 2].map(|node| (after[node][at] - before[node][at]) / periods);
        let all: f64 = each.iter().sum();
        let shown = each.map(|count| format!("{count:.0}")).join(" | ");
        println!("| {what} | {shown} | {all:.0} | {:.3} |", all / scale.holds as f64);
    }
    let (seconds, share) = ((cpu_after - cpu) / periods, 1e11 / (monotonic() - start) as f64);
    println!(
        "| processor time of the client, ms | | | | {:.0} ({:.2} % of a core) | {:.4} |",
        seconds * 1_000.0,
        (cpu_after - cpu) * share,
        seconds * 1_000.0 / scale.holds as f64
    );
    Ok(())
}

fn fail_over(cluster: &mut Cluster, locks: &ReentrantLock, names: &[String], scale: &Scale) -> Outcome<String> {
    let next = cluster.replicas_of(0)[0];
    let key = cluster.name_at(0, 0);
    let (own, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| cluster_has(cluster, name));
    let held = |names: Vec<&String>| names.into_iter().filter_map(|name| locks.hold(name)).collect::<Vec<Hold>>();
    let (own, others) = (held(own), held(others));
    // So that the next are due while there is no master.
    sleep(scale.lease / 3 - Duration::from_secs(1));
    let (mut watch, killed) = (watch(cluster, &key, next), monotonic());
    cluster.nodes[0].kill();
    let [mut doubts, mut unfounded] = [&own, &others].map(|holds| Doubts::of(holds.len(), killed));
    let mut named = None;
    while named.is_none_or(|named| doubts.now + unfounded.now > 0 || monotonic() - doubts.last.max(named) < CALM) {
        within_patience(killed)?;
        doubts.look(&own);
        unfounded.look(&others);
        named = named.or_else(|| watch.look(EVERY).map(|replaced| replaced.named));
        sleep(EVERY / 5);
    }
    let named = named.unwrap_or(killed);
    let millis = |nanos: i64| nanos as f64 / MILLI;
    Ok(format!(
        "| {} | {:.0} | {} | {:.0} | {:.0} | {} | {} | {} |",
        own.len(),
        millis(named - killed),
        doubts.most,
        millis(doubts.longest),
        millis(doubts.last - named),
        locks.client().stats().lost,
        others.len(),
        unfounded.most,
    ))
}

/// Whether a name is at the first node.
fn cluster_has(cluster: &Cluster, name: &str) -> bool {
    cluster.nodes[0].try_ask::<bool>(&["EXISTS", name]).unwrap_or(false)
}

fn within_patience(since: i64) -> Outcome<()> {
    if monotonic() - since < PATIENCE { Ok(()) } else { Err("not all are renewed".into()) }
}
