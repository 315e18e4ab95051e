//! `redlatch bench`: what locks cost on this server.

use crate::cli::{Bench, Cli};
use crate::out::{Failed, line};
use redlatch::inspect::Inspector;
use redlatch::{Client, Command, RedLock, RedisRedLock, Value};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

/// A server with so many commands a second has other things to do.
const BUSY: u64 = 1_000;

/// What was measured. Times are in microseconds.
#[derive(Serialize)]
struct Report {
    /// Two round trips that ask for nothing: a pair cannot be faster.
    floor_us: f64,
    pair_us_p50: f64,
    pair_us_p99: f64,
    pairs_a_second_alone: f64,
    threads: u16,
    /// Each thread with a lock of its own.
    pairs_a_second_apart: f64,
    /// All threads with the same lock, which they pass on in memory.
    pairs_a_second_together: f64,
}

pub(crate) fn bench(cli: &Cli, args: &Bench) -> Result<u8, Failed> {
    let client = cli.server.builder("redlatch-bench")?.pool_size(u32::from(args.threads)).build()?;
    if !args.yes && !may_load(&Inspector::new(&client))? {
        line("nothing was measured")?;
        return Ok(1);
    }
    let report = measure(&client, args)?;
    match args.json {
        true => line(serde_json::to_string(&report).expect("numbers are text"))?,
        false => told(&report).into_iter().try_for_each(line)?,
    }
    Ok(0)
}

/// A busy server is loaded only if somebody agrees.
fn may_load(inspector: &Inspector) -> Result<bool, Failed> {
    let mut most = 0;
    for (_, said) in inspector.ask(&[Command::new("INFO").arg("stats")])? {
        let said = said?;
        let text = said.first().and_then(Value::text).unwrap_or_default();
        let rate = text.lines().find_map(|line| line.strip_prefix("instantaneous_ops_per_sec:"));
        most = most.max(rate.and_then(|rate| rate.trim().parse().ok()).unwrap_or(0));
    }
    if most < BUSY {
        return Ok(true);
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failed::usage(format!("the server runs {most} commands a second: give --yes to load it further")));
    }
    eprint!("The server runs {most} commands a second. Load it further? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    stdin.read_line(&mut answer).map_err(|error| Failed::new(1, format!("cannot read the answer: {error}")))?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

fn measure(client: &Client, args: &Bench) -> Result<Report, Failed> {
    let (locks, key) = (RedisRedLock::new(client), format!("redlatch-bench:{}", client.id()));
    client.ping(Duration::from_secs(5))?;
    let mut pings = times(args.seconds / 2, || client.ping(Duration::from_secs(5)).map(drop))?;
    let pair = |name: &str| locks.lock(name).and_then(|()| locks.unlock(name));
    let mut pairs = times(args.seconds, || pair(&key))?;
    let apart = crowd(args, |thread| pair(&format!("{key}:{thread}")))?;
    let together = crowd(args, |_| pair(&key))?;
    let alone = pairs.len() as f64 / pairs.iter().sum::<Duration>().as_secs_f64();
    Ok(Report {
        floor_us: 2.0 * at(&mut pings, 50),
        pair_us_p50: at(&mut pairs, 50),
        pair_us_p99: at(&mut pairs, 99),
        pairs_a_second_alone: alone,
        threads: args.threads,
        pairs_a_second_apart: apart,
        pairs_a_second_together: together,
    })
}

fn times(span: Duration, act: impl Fn() -> redlatch::Result<()>) -> Result<Vec<Duration>, Failed> {
    let (end, mut times) = (Instant::now() + span, Vec::new());
    while times.is_empty() || Instant::now() < end {
        let began = Instant::now();
        act()?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// How often all threads together did it in a second.
fn crowd(args: &Bench, act: impl Fn(u16) -> redlatch::Result<()> + Sync) -> Result<f64, Failed> {
    let began = Instant::now();
    let count = thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|thread| {
                scope.spawn({
                    let act = &act;
                    move || times(args.seconds, || act(thread))
                })
            })
            .collect();
        let counts = threads.into_iter().map(|thread| thread.join().expect("a thread of the crowd does not panic"));
        counts.map(|times| times.map(|times| times.len())).sum::<Result<usize, Failed>>()
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// A percentile, in microseconds.
fn at(times: &mut [Duration], share: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * share / 100].as_secs_f64() * 1e6
}

fn told(report: &Report) -> Vec<String> {
    let Report { floor_us, pair_us_p50, pair_us_p99, threads, .. } = report;
    vec![
        format!("two round trips   {floor_us:.0} us"),
        format!(
            "lock and unlock   {pair_us_p50:.0} us (p50), {pair_us_p99:.0} us (p99), {:.2} x two round trips",
            pair_us_p50 / floor_us
        ),
        format!("one thread        {:.0} pairs a second", report.pairs_a_second_alone),
        format!(
            "{threads} threads apart   {:.0} pairs a second, each with a lock of its own",
            report.pairs_a_second_apart
        ),
        format!("{threads} threads on one  {:.0} pairs a second, passed on in memory", report.pairs_a_second_together),
    ]
}
