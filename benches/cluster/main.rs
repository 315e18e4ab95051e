//! What a cluster costs those who lock, when masters are replaced, when slots move and when nothing happens:
//! `cargo bench --bench cluster`, some five minutes. How to read it is in docs/performance.md.
//!
//! It has three masters and a replica of each, real processes all of them; each failover has a cluster of its own.
//!
//! - `--only times`, `moves`, `half`, `pair`, `messages`, `holds` or `waiters`: that part instead of all. May be repeated.
//! - `--setting "plain, killed"`: that row of the times instead of those of the table. May be repeated.
//! - `--rounds 10`: how many failovers a row; half as many of those who are safe.
//! - `--half 30`: for how many seconds a slot is half moved.
//! - `--each`: the times of each failover, too.
//!
//! Without `--bench` (as `cargo test --benches` does) or with `--test`, it only shows that it works.

mod half;
mod holds;
mod messages;
mod moves;
mod pair;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod tally;
mod times;
mod waiters;
mod watch;
#[path = "../failover/worker.rs"]
mod worker;

use harness::cluster::Cluster;
use redlatch::{ClientBuilder, ReentrantLock, ShardedPubsub};
use std::time::Duration;
use support::{Outcome, Server, values};
use times::Setting;

/// How much is measured.
pub(crate) struct Scale {
    pub(crate) failovers: usize,
    /// Those who wait, in each of so many processes.
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    /// So often a slot moves, with this between two moves.
    pub(crate) moves: usize,
    pub(crate) pause: Duration,
    /// For so long a slot is half moved.
    pub(crate) half: Duration,
    /// Rounds of pairs, and pairs in each.
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
    /// Failovers with so many holds.
    pub(crate) many: usize,
    pub(crate) holds: usize,
    pub(crate) lease: Duration,
    /// So many wait, and do nothing else for so long.
    pub(crate) waiters: usize,
    pub(crate) idle: Duration,
    pub(crate) each: bool,
}

const FULL: Scale = Scale {
    failovers: 10,
    processes: 5,
    threads: 20,
    moves: 50,
    pause: Duration::from_millis(100),
    half: Duration::from_secs(30),
    rounds: 15,
    pairs: 300,
    many: 2,
    holds: 10_000,
    lease: Duration::from_secs(15),
    waiters: 1_000,
    idle: Duration::from_secs(10),
    each: false,
};

const TINY: Scale = Scale {
    failovers: 1,
    processes: 2,
    threads: 2,
    moves: 3,
    pause: Duration::from_millis(50),
    half: Duration::from_secs(1),
    rounds: 1,
    pairs: 3,
    many: 1,
    holds: 60,
    lease: Duration::from_secs(6),
    waiters: 30,
    idle: Duration::from_secs(1),
    each: false,
};

/// How long clients go on asking: longer than any failover takes.
const BUDGET: Duration = Duration::from_secs(60);

/// Of those who are safe over a failover, to whom the quarantine of a new master is part of the time.
pub(crate) const SAFE_LEASE: Duration = Duration::from_secs(2);

/// Each master has one replica, which confirms what is granted within so long.
const REPLICAS: usize = 1;
const CONFIRMED_WITHIN: Duration = Duration::from_millis(300);

/// How clients are told of unlocks, and what that is called.
pub(crate) const TOLD: [(ShardedPubsub, &str); 2] = [(ShardedPubsub::Auto, "sharded"), (ShardedPubsub::Off, "plain")];

/// Locks of a cluster.
pub(crate) fn locks(url: &str, is_safe: bool) -> Outcome<ReentrantLock> {
    let plain = redlatch::Client::builder(url).outage_budget(BUDGET);
    built(if is_safe {
        plain.strict(true).sync_replicas(REPLICAS, CONFIRMED_WITHIN).watchdog_timeout(SAFE_LEASE)
    } else {
        plain
    })
}

pub(crate) fn built(builder: ClientBuilder) -> Outcome<ReentrantLock> {
    Ok(ReentrantLock::new(&builder.build()?))
}

/// Of one length, so that what is sent is of one, too; all at a node.
pub(crate) fn names_at<const N: usize>(cluster: &Cluster, node: usize) -> [String; N] {
    let mut names = cluster.names_at(node, "").filter(|name| name.len() == "n1234".len());
    std::array::from_fn(|_| names.next().unwrap_or_default())
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
    if let Some(seconds) = values(&args, "--half").last() {
        scale.half = Duration::from_secs(seconds.parse()?);
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
    type Part<'a> = (&'a str, &'a dyn Fn(&Scale) -> Outcome<()>);
    let times = |scale: &Scale| times::rows(scale, settings);
    let parts: [Part<'_>; 7] = [
        ("times", &times),
        ("moves", &moves::rows),
        ("half", &half::rows),
        ("pair", &pair::rows),
        ("messages", &messages::rows),
        ("holds", &holds::rows),
        ("waiters", &waiters::rows),
    ];
    for (_, rows) in parts.iter().filter(|(part, _)| only.is_empty() || only.contains(part)) {
        rows(scale)?;
        println!();
    }
    Ok(())
}
