//! Every figure of `docs/performance.md`: run it by `scripts/bench`.
//!
//! Each group of rows is a file. Whatever has a floor is measured in short rounds in which both take turns and are
//! compared round by round: on a shared machine a difference of a few percent drowns in what the minute brings.
//! Criterion and divan measure one contender to its end before the next, hence a plain `main`. A row's figure is the
//! median of its rounds.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

mod bare;
mod census;
mod counts;
mod crowd;
mod guarded;
mod many;
mod memory;
mod pair;
mod permits;
mod processes;
mod report;
mod sides;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod turns;
mod wake;

use harness::counting;
use report::Report;
use std::path::Path;
use std::time::Duration;
use support::{Outcome, Server};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    /// In a round: pairs, calls in memory, new clients, and how long threads contend.
    pub(crate) pairs: usize,
    pub(crate) calls: usize,
    pub(crate) clients: usize,
    pub(crate) span: Duration,
    pub(crate) wakes: usize,
    pub(crate) holds: usize,
    pub(crate) waiters: usize,
    /// How long holds are watched, and waiters left alone.
    pub(crate) watch: Duration,
    pub(crate) idle: Duration,
}

const FULL: Scale = Scale {
    rounds: 15,
    pairs: 500,
    calls: 1_000,
    clients: 20,
    span: Duration::from_millis(500),
    wakes: 200,
    holds: 10_000,
    waiters: 1_000,
    watch: Duration::from_secs(30),
    idle: Duration::from_secs(6),
};

const QUICK: Scale = Scale {
    rounds: 5,
    pairs: 200,
    span: Duration::from_millis(200),
    wakes: 50,
    watch: Duration::from_secs(11),
    idle: Duration::from_secs(1),
    ..FULL
};

const TINY: Scale = Scale {
    rounds: 1,
    pairs: 3,
    calls: 10,
    clients: 1,
    span: Duration::from_millis(20),
    wakes: 2,
    holds: 20,
    waiters: 5,
    watch: Duration::from_millis(20),
    idle: Duration::from_millis(20),
};

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [processes::CONTENDER, url, threads, start, end] => return processes::run(url, threads, start, end),
        [processes::BARE, url, _, start, end] => return processes::run_bare(url, start, end),
        [census::MEMBER, url] => return census::run(url),
        [support::WAITER, url] => return wake::wait_for_each(url),
        [support::WAITER_BY_HAND, url] => return wake::wait_by_hand(url),
        _ => {}
    }
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    let scale = if tiny { TINY } else { [FULL, QUICK][usize::from(has("--quick"))] };
    match Server::start() {
        Ok(server) => run(&server, scale, &args),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The values of an option that may be given more than once.
fn values<'a>(args: &'a [String], option: &'a str) -> impl Iterator<Item = &'a String> {
    args.windows(2).filter(move |pair| pair[0] == option).map(|pair| &pair[1])
}

fn run(server: &Server, scale: Scale, args: &[String]) -> Outcome<()> {
    type Group = fn(&Server, Scale, &mut Report) -> Outcome<()>;
    let groups: [(&str, Group); 12] = [
        ("pair", pair::rows),
        ("sides", sides::rows),
        ("permits", permits::rows),
        ("guarded", guarded::rows),
        ("crowd", crowd::rows),
        ("processes", processes::rows),
        ("wake", wake::rows),
        ("memory", memory::rows),
        ("many", many::rows),
        ("census", census::rows),
        ("first", many::first_lock),
        ("counts", counts::rows),
    ];
    let mut report = Report::default();
    let only: Vec<_> = values(args, "--only").collect();
    for (name, group) in groups {
        if only.is_empty() || only.iter().any(|wanted| *wanted == name) {
            group(server, scale, &mut report)?;
        }
    }
    println!("{} rows miss their target", report.missed());
    let notes: Vec<_> = values(args, "--note").cloned().collect();
    values(args, "--out").try_for_each(|folder| report.write(Path::new(folder), &notes))
}
