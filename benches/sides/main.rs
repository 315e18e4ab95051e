//! Readers of several processes and a writer that comes among them: `cargo bench --bench sides`, some two minutes. How to read it is in
//! docs/performance.md.
//!
//! - `--only busy` or `among`: those rows alone. May be repeated.
//! - `--rounds 5`, `--seconds 3`: how many, and how long each; those *among* readers are longer.
//!
//! With `RUSTFLAGS="--cfg mutants"` there is also what becomes of a writer if readers ignore its mark: `starved`.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

mod rows;
mod seen;
mod stage;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod worker;

use stage::Stage;
use std::time::Duration;
use support::{Outcome, Server, values};

/// How much is measured.
struct Plan {
    only: Vec<String>,
    rounds: usize,
    span: Duration,
    /// So often somebody writes among readers that stay for some time, at least.
    writes: usize,
    /// A writer that starves gives up after so long, and tries so often.
    patience: Duration,
    tries: usize,
}

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if let Some((worker::WORKER, order)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return worker::run(order);
    }
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    let plan = plan(&args, tiny)?;
    match Server::start() {
        Ok(server) => run(&Stage { url: server.unix() }, &plan),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn plan(args: &[String], tiny: bool) -> Outcome<Plan> {
    let number = |option: &str, usual: f64| values(args, option).last().map_or(Ok(usual), |value| value.parse());
    let (rounds, seconds) = if tiny { (1.0, 0.3) } else { (5.0, 3.0) };
    let (rounds, seconds) = (number("--rounds", rounds)? as usize, number("--seconds", seconds)?);
    let (writes, patience, tries) = if tiny { (2, 100, 2) } else { (200, 5_000, 4) };
    let (span, patience) = (Duration::from_secs_f64(seconds), Duration::from_millis(patience));
    let only = values(args, "--only").into_iter().map(str::to_owned).collect();
    Ok(Plan { only, rounds, span, writes, patience, tries })
}

fn run(stage: &Stage, plan: &Plan) -> Outcome<()> {
    let wanted = |name: &str| plan.only.is_empty() || plan.only.iter().any(|only| only == name);
    println!("{} rounds of {:?} each; load before: {}", plan.rounds, plan.span, load());
    rows::show_head();
    if wanted("busy") {
        rows::busy(stage, plan);
    }
    if wanted("among") {
        rows::among(stage, plan);
    }
    if cfg!(mutants) && wanted("starved") {
        rows::starved(stage, plan);
    }
    println!("\nload after: {}", load());
    Ok(())
}

/// Of the machine, in the last minute.
fn load() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().filter(|one| !one.is_empty()).unwrap_or("unknown").to_owned()
}
