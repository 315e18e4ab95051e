//! What a failover costs those who lock, and what Sentinel costs when nothing happens: `cargo bench --bench failover`, some
//! four minutes. How to read it is in docs/performance.md.
//!
//! Each failover has a group of its own: a master, two replicas and three sentinels, real processes all of them.
//!
//! - `--only times`, `pair` or `holds`: that part instead of all. May be repeated.
//! - `--setting "plain, killed"`: that row of the times instead of those of the table. May be repeated.
//! - `--rounds 10`: how many failovers a row.
//! - `--each`: the times of each failover, too.
//!
//! Without `--bench` (as `cargo test --benches` does) or with `--test`, it only shows that it works.

mod holds;
mod pair;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod times;
mod watch;
mod worker;

use harness::sentinel::Group;
use redlatch::{ClientBuilder, ReentrantLock};
use std::time::Duration;
use support::{Outcome, Server, values};
use times::Setting;

/// How much is measured.
pub(crate) struct Scale {
    pub(crate) failovers: usize,
    /// Those who wait, in each of so many processes.
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    /// Rounds of pairs, and pairs in each.
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
    /// Failovers with so many holds.
    pub(crate) many: usize,
    pub(crate) holds: usize,
    pub(crate) lease: Duration,
    pub(crate) each: bool,
}

const FULL: Scale = Scale {
    failovers: 10,
    processes: 5,
    threads: 20,
    rounds: 15,
    pairs: 300,
    many: 3,
    holds: 10_000,
    lease: Duration::from_secs(15),
    each: false,
};

const TINY: Scale = Scale {
    failovers: 1,
    processes: 2,
    threads: 2,
    rounds: 1,
    pairs: 3,
    many: 1,
    holds: 50,
    lease: Duration::from_secs(6),
    each: false,
};

/// How long clients go on asking: longer than any failover takes.
const BUDGET: Duration = Duration::from_secs(60);

/// Of those who are safe over a failover, to whom the quarantine of a new master is part of the time.
pub(crate) const SAFE_LEASE: Duration = Duration::from_secs(2);

/// All of them confirm what is granted, within so long.
pub(crate) const REPLICAS: usize = 2;
pub(crate) const CONFIRMED_WITHIN: Duration = Duration::from_millis(300);

/// A client of a group.
pub(crate) fn builder(url: &str, is_safe: bool) -> ClientBuilder {
    let plain = redlatch::Client::builder(url).outage_budget(BUDGET);
    if !is_safe {
        return plain;
    }
    plain.strict(true).sync_replicas(REPLICAS, CONFIRMED_WITHIN).watchdog_timeout(SAFE_LEASE)
}

pub(crate) fn locks(url: &str, is_safe: bool) -> Outcome<ReentrantLock> {
    Ok(ReentrantLock::new(&builder(url, is_safe).build()?))
}

/// The addresses by which a node is asked.
pub(crate) fn urls(group: &Group) -> Vec<String> {
    group.nodes.iter().map(|node| node.url()).collect()
}

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if let [worker::WORKER, url, kind, threads] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return worker::run(url, kind == worker::SAFE, threads.parse()?);
    }
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    if let Err(error) = Server::start() {
        println!("not run: {error}");
        return if tiny { Ok(()) } else { Err(error) };
    }
    let mut scale = if tiny { TINY } else { FULL };
    scale.each = has("--each");
    if let Some(rounds) = values(&args, "--rounds").last() {
        scale.failovers = rounds.parse()?;
    }
    run(&scale, &settings(&args, tiny)?, &values(&args, "--only"))
}

fn settings(args: &[String], tiny: bool) -> Outcome<Vec<Setting>> {
    let titles = values(args, "--setting");
    let usual = if tiny { &times::USUAL[..1] } else { &times::USUAL };
    let titles = if titles.is_empty() { usual } else { &titles };
    titles.iter().map(|title| Setting::parse(title)).collect()
}

fn run(scale: &Scale, settings: &[Setting], only: &[&str]) -> Outcome<()> {
    let is_wanted = |part| only.is_empty() || only.contains(&part);
    if is_wanted("times") {
        times::rows(scale, settings)?;
    }
    if is_wanted("pair") {
        pair::rows(scale)?;
    }
    if is_wanted("holds") {
        holds::rows(scale)?;
    }
    Ok(())
}
