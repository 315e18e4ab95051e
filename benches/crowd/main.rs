//! A crowd of processes that contend for one lock: `cargo bench --bench crowd`, some ten minutes. How to read it
//! is in docs/performance.md.
//!
//! How fast it goes from one to the next, how fair, what it costs, and what it is like for the others when a tenth of
//! the processes is stopped or killed. `fair` is the library's `FairLock`. Beside the library: a `floor` that spins on the same scripts, and one that `polls`
//! with random pauses, both without pub/sub. With `--contender label=command`, which may be repeated, also whatever that command starts:
//! the library as this program has it that was built from another commit, or Redisson (CrowdWorker.java). All take turns,
//! round by round, and who begins changes.
//!
//! - `--only 8x1,work=1,pause=5,killed`: that setting (see setting.rs) instead of all; `--only idle`: one process beside
//!   a subscriber that never asks for the lock. May be repeated.
//! - `--without floor`: not that contender. May be repeated.
//! - `--rounds 3`, `--seconds 3`: how many, and how long each.
//! - `--tcp`: by loopback instead of the server's Unix socket, except for `idle`.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

mod figures;
mod setting;
mod stage;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod worker;

use figures::{figures, rate_and_cost, show, show_head};
use setting::{SETTINGS, Setting, TINY};
use stage::{Contender, Stage};
use std::time::Duration;
use support::{Outcome, Samples, Server, cell};

/// The row that is no setting.
const IDLE: &str = "idle";

/// So many, and so much shorter, are its rounds: it is a ratio of a few percent.
const IDLE_ROUNDS: u32 = 15;

/// What is to be measured.
struct Plan {
    settings: Vec<Setting>,
    idle: bool,
    contenders: Vec<Contender>,
    rounds: usize,
    span: Duration,
    tcp: bool,
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
        Ok(server) => run(&server, &plan),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The values of an option that may be given more than once.
fn values<'a>(args: &'a [String], option: &str) -> Vec<&'a str> {
    args.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
}

fn plan(args: &[String], tiny: bool) -> Outcome<Plan> {
    let number = |option: &str, tiny_one: f64, usual: f64| match values(args, option).last() {
        Some(value) => value.parse(),
        None => Ok(if tiny { tiny_one } else { usual }),
    };
    let only = values(args, "--only");
    let all: &[&str] = if tiny { &TINY } else { &SETTINGS };
    let titles = if only.is_empty() { all } else { &only };
    let settings: Outcome<_> =
        titles.iter().filter(|title| **title != IDLE).map(|title| Setting::parse(title)).collect();
    Ok(Plan {
        settings: settings?,
        idle: only.is_empty() || only.contains(&IDLE),
        contenders: contenders(args)?,
        rounds: number("--rounds", 1.0, 3.0)? as usize,
        span: Duration::from_secs_f64(number("--seconds", 0.1, 3.0)?),
        tcp: args.iter().any(|arg| arg == "--tcp"),
    })
}

fn contenders(args: &[String]) -> Outcome<Vec<Contender>> {
    let this = std::env::current_exe()?.into_os_string().into_string().map_err(|path| format!("no text: {path:?}"))?;
    let own = |kind: &'static str| Contender { label: kind.to_owned(), command: vec![this.clone()], kind };
    let mut all = vec![own("redlatch"), own("fair")];
    for other in values(args, "--contender") {
        let (label, command) = other.split_once('=').ok_or("--contender label=command")?;
        let command = command.split_whitespace().map(str::to_owned).collect();
        all.push(Contender { label: label.to_owned(), command, kind: "redlatch" });
    }
    all.extend(["floor", "polls"].map(own));
    let without = values(args, "--without");
    all.retain(|contender| !without.contains(&contender.label.as_str()));
    Ok(all)
}

fn run(server: &Server, plan: &Plan) -> Outcome<()> {
    let stage = Stage { url: if plan.tcp { server.tcp() } else { server.unix() }, span: plan.span };
    println!("{} rounds of {:?} each; load before: {}\n", plan.rounds, plan.span, load());
    if !plan.settings.is_empty() {
        show_head();
    }
    plan.settings.iter().try_for_each(|setting| rows(&stage, plan, setting))?;
    if plan.idle {
        let stage = Stage { url: server.unix(), span: plan.span / IDLE_ROUNDS };
        server.on_one_core(|| idle(&stage, plan))?;
    }
    println!("\nload after: {}", load());
    Ok(())
}

/// Of the machine, in the last minute.
fn load() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().filter(|one| !one.is_empty()).unwrap_or("unknown").to_owned()
}

/// Has all contenders take turns; what each of them did, round by round. Who begins changes.
fn take_turns<T>(
    plan: &Plan,
    rounds: usize,
    mut act: impl FnMut(&Contender, usize) -> Outcome<T>,
) -> Outcome<Vec<Vec<T>>> {
    let contenders = &plan.contenders;
    let mut done: Vec<_> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let number = (turn + round) % contenders.len();
            done[number].push(act(&contenders[number], round)?);
        }
    }
    Ok(done)
}

fn rows(stage: &Stage, plan: &Plan, setting: &Setting) -> Outcome<()> {
    let done = take_turns(plan, plan.rounds, |contender, _| Ok(figures(&stage.round(contender, setting, false)?)))?;
    for (contender, rounds) in plan.contenders.iter().zip(done) {
        show(&setting.to_string(), &contender.label, &rounds);
    }
    Ok(())
}

/// One process that locks and unlocks, and somebody who only listens to the lock's channel. On one core, where a few
/// percent can be told from noise.
fn idle(stage: &Stage, plan: &Plan) -> Outcome<()> {
    let alone = Setting::parse("1x1")?;
    let once = |contender: &Contender, listened| -> Outcome<[f64; 2]> {
        Ok(rate_and_cost(&figures(&stage.round(contender, &alone, listened)?)))
    };
    // Without and with a subscriber.
    let both = |contender: &Contender, round: usize| -> Outcome<[[f64; 2]; 2]> {
        let listened_first = round % 2 == 1;
        let first = once(contender, listened_first)?;
        let second = once(contender, !listened_first)?;
        Ok(if listened_first { [second, first] } else { [first, second] })
    };
    let done = take_turns(plan, plan.rounds * IDLE_ROUNDS as usize, both)?;
    println!(
        "\n| one process beside an idle subscriber | pairs/s alone | beside it | x pairs/s | x processor time a pair |"
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (contender, rounds) in plan.contenders.iter().zip(done) {
        let [alone, beside] = [0, 1].map(|one| rounds.iter().map(|both| both[one][0]).collect::<Samples>());
        let ratios = [0, 1].map(|what| rounds.iter().map(|both| both[1][what] / both[0][what]).collect::<Samples>());
        let cells = [cell(&alone, 0), cell(&beside, 0), cell(&ratios[0], 2), cell(&ratios[1], 2)];
        println!("| {} | {} |", contender.label, cells.join(" | "));
    }
    Ok(())
}
