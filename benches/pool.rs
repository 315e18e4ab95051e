//! How many connections a pool needs: `cargo bench --bench pool`, a minute and a half.
//!
//! Threads of one process take free locks, each of a name of its own, so that nothing but the pool and the server keeps them
//! waiting. In each round every size of a pool has its turn, each time another one first, and is compared with the size of 8 in the
//! same round. The table is that of docs/performance.md. Numbers behind `--` are counts of threads: `-- --bench 32 100`.
//!
//! It brings its own `redis-server`. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only
//! shows that it works.

#[allow(dead_code, reason = "each bench uses a part")]
mod support;

use redlatch::{Client, RedLock, ReentrantLock};
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};
use support::{Outcome, Samples, Server, cell};

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    span: Duration,
    threads: &'static [usize],
    pools: &'static [u32],
}

const FULL: Plan =
    Plan { rounds: 9, span: Duration::from_millis(100), threads: &[1, 8, 32, 64, 100], pools: &[4, 8, 16, 32, 64] };
const TINY: Plan = Plan { rounds: 1, span: Duration::from_millis(20), threads: &[12], pools: &[4, 8] };

/// The size that the others are compared with.
const USUAL: u32 = 8;

/// Of the waits whose failures are counted.
const WAITS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    let plan = if tiny { TINY } else { FULL };
    let wanted: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let threads = if wanted.is_empty() { plan.threads.to_vec() } else { wanted };
    match Server::start() {
        Ok(server) => run(&server.unix(), plan, &threads),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What the rounds of one size gave.
#[derive(Default)]
struct Size {
    pairs: Samples,
    beside_usual: Samples,
    /// Of a call that locks, in milliseconds: the median, the 99th of a hundred, the longest.
    locks: [Samples; 3],
    /// In percent, for each of [`WAITS`].
    failed: [Samples; 2],
}

fn run(url: &str, plan: Plan, threads: &[usize]) -> Outcome<()> {
    println!(
        "| threads | pool | pairs/s | x pool of {USUAL} | lock, ms: median | p99 | longest | failed of 10 ms, % | of 50 ms, % |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for threads in threads {
        let clients: Outcome<Vec<_>> = plan.pools.iter().map(|pool| Ok(client(url, *pool)?)).collect();
        let clients = clients?;
        let mut sizes: Vec<Size> = plan.pools.iter().map(|_| Size::default()).collect();
        for round in 0..plan.rounds {
            let mut rates = vec![0.0; clients.len()];
            for turn in 0..clients.len() {
                let at = (round + turn) % clients.len();
                rates[at] = measure(&clients[at], *threads, plan.span, &mut sizes[at])?;
            }
            let usual = plan.pools.iter().position(|pool| *pool == USUAL).map_or(f64::NAN, |at| rates[at]);
            sizes.iter_mut().zip(&rates).for_each(|(size, rate)| size.beside_usual.push(rate / usual));
        }
        for (pool, size) in plan.pools.iter().zip(&sizes) {
            let locks = size.locks.each_ref().map(|locks| cell(locks, 2)).join(" | ");
            let failed = size.failed.each_ref().map(|failed| cell(failed, 1)).join(" | ");
            let (pairs, ratio) = (cell(&size.pairs, 0), cell(&size.beside_usual, 2));
            println!("| {threads} | {pool} | {pairs} | {ratio} | {locks} | {failed} |");
        }
    }
    Ok(())
}

fn client(url: &str, pool: u32) -> redlatch::Result<ReentrantLock> {
    Client::builder(url).pool_size(pool).build().map(|client| ReentrantLock::new(&client))
}

/// One round; the pairs of all threads in a second.
fn measure(locks: &ReentrantLock, threads: usize, span: Duration, size: &mut Size) -> Outcome<f64> {
    let (rate, took, _) = contend(locks, threads, span, Duration::MAX)?;
    size.pairs.push(rate);
    let quantiles = [0.5, 0.99, 1.0].map(|share| took.quantile(share) / 1e6);
    size.locks.iter_mut().zip(quantiles).for_each(|(samples, quantile)| samples.push(quantile));
    for (wait, failed) in WAITS.into_iter().zip(&mut size.failed) {
        let (_, took, count) = contend(locks, threads, span, wait)?;
        failed.push(100.0 * count as f64 / took.all().len() as f64);
    }
    Ok(rate)
}

/// All threads lock and unlock for so long. The pairs in a second, how long each lock took, and how many failed.
fn contend(locks: &ReentrantLock, threads: usize, span: Duration, wait: Duration) -> Outcome<(f64, Samples, usize)> {
    let ready = &Barrier::new(threads);
    let run = move |number: usize| {
        let name = format!("bench:pool:{number}");
        let (mut took, mut pairs, mut failed) = (Samples::default(), 0.0, 0);
        ready.wait();
        let start = Instant::now();
        while start.elapsed() < span {
            let asked = Instant::now();
            let locked = locks.try_lock_for(&name, wait);
            took.push(asked.elapsed().as_nanos() as f64);
            match locked {
                Ok(true) => {
                    locks.unlock(&name)?;
                    pairs += 1.0;
                }
                _ => failed += 1,
            }
        }
        Outcome::Ok((pairs / start.elapsed().as_secs_f64(), took, failed))
    };
    scope(|scope| {
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        let mut all = (0.0, Samples::default(), 0);
        for thread in running {
            let (pairs, took, failed) = thread.join().map_err(|_| "a thread panicked")??;
            all.0 += pairs;
            all.1.extend(took);
            all.2 += failed;
        }
        Ok(all)
    })
}
