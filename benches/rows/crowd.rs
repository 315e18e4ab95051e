//! Many threads of one process: on names of their own, and on one name.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::floor::{Floor, Name};
use crate::support::turns::{MILLI, Turn, jain};
use crate::support::{Outcome, Server, monotonic};
use crate::turns::contend;
use redlatch::{Client, HandOff, RedLock, ReentrantLock};
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    for (threads, pool, least) in [(4, 4, 0.95), (16, 16, 0.95), (64, 64, 0.95), (64, 8, 0.7)] {
        own_names(&server.unix(), threads, pool, least, scale, report)?;
    }
    one_name(&server.unix(), scale, report)
}

/// The pairs of all threads together in a second.
pub(crate) fn rate<P>(threads: usize, span: Duration, make: impl Fn(usize) -> Outcome<P> + Sync) -> Outcome<f64>
where
    P: FnMut() -> Outcome<()>,
{
    let ready = Barrier::new(threads);
    let run = |number| -> Outcome<f64> {
        let made = make(number);
        ready.wait();
        let mut pair = made?;
        let (start, mut pairs) = (Instant::now(), 0.0);
        while start.elapsed() < span {
            pair()?;
            pairs += 1.0;
        }
        Ok(pairs / start.elapsed().as_secs_f64())
    };
    scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}

fn own_names(url: &str, threads: usize, pool: u32, least: f64, scale: Scale, report: &mut Report) -> Outcome<()> {
    let locks = &ReentrantLock::new(&Client::builder(url).pool_size(pool).build()?);
    let floor = |number: usize| -> Outcome<_> {
        let (mut floor, name) = (Floor::new(url)?, Name::new(&format!("bench:own:f{number}")));
        floor.pair(&name)?;
        Ok(move || floor.pair(&name))
    };
    let ours = |number: usize| -> Outcome<_> {
        let name = format!("bench:own:o{number}");
        locks.lock(&name).and_then(|()| locks.unlock(&name))?;
        Ok(move || Ok(locks.lock(&name).and_then(|()| locks.unlock(&name))?))
    };
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        let (one, other);
        if round % 2 == 0 {
            one = rate(threads, scale.span, floor)?;
            other = rate(threads, scale.span, ours)?;
        } else {
            other = rate(threads, scale.span, ours)?;
            one = rate(threads, scale.span, floor)?;
        }
        ratios.push(other / one);
        rates.push(other);
    }
    let title = format!("{threads} threads on own names, pool of {pool}");
    report.row("own names", title.clone(), "x floor threads", ratios, Target::AtLeast(least));
    report.row("own names", format!("  {title}"), "pairs/s", rates, Target::None);
    Ok(())
}

const THREADS: usize = 8;
const NAME: &str = "bench:crowd";

/// The pairs of one thread alone in a second.
pub(crate) fn alone(locks: &ReentrantLock, span: Duration) -> Outcome<f64> {
    rate(1, span, |_| Ok(|| Ok(locks.lock("bench:alone").and_then(|()| locks.unlock("bench:alone"))?)))
}

fn one_name(url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let fair = ReentrantLock::connect(url)?;
    let strict = ReentrantLock::new(&Client::builder(url).hand_off(HandOff::default().in_order()).build()?);
    let [mut pairs, mut rates, mut fairness, mut longest, mut passes, mut work] = [const { Vec::new() }; 6];
    for _ in 0..scale.rounds {
        let floor = alone(&fair, scale.span)?;
        let turns = crowd(&fair, scale, Duration::ZERO)?;
        rates.push(turns.len() as f64 / lasted(&turns));
        pairs.push(turns.len() as f64 / lasted(&turns) / floor);
        fairness.push(jain(THREADS, turns.iter().map(|turn| turn.thread)));
        longest.push(turns.iter().map(|turn| turn.held - turn.asked).max().unwrap_or(0) as f64 / MILLI);
        let turns = crowd(&strict, scale, Duration::ZERO)?;
        let changes = turns.windows(2).filter(|pair| pair[0].thread != pair[1].thread).count();
        passes.push(changes as f64 / lasted(&turns) / floor);
        let turns = crowd(&fair, scale, Duration::from_millis(1))?;
        let worked: i64 = turns.iter().map(|turn| turn.left - turn.held).sum();
        work.push(100.0 * worked as f64 / 1e9 / lasted(&turns));
    }
    let group = "one name";
    report.row(group, "8 threads on one name".to_owned(), "x one thread's pairs/s", pairs, Target::AtLeast(50.0));
    report.row(group, "  the same".to_owned(), "pairs/s", rates, Target::None);
    report.row(group, "  Jain index over threads".to_owned(), "", fairness, Target::AtLeast(0.95));
    report.row(group, "  longest wait".to_owned(), "ms", longest, Target::None);
    let title = "in order, passes to another thread".to_owned();
    report.row(group, title, "x one thread's pairs/s", passes, Target::AtLeast(5.0));
    report.row(group, "1 ms of work inside".to_owned(), "% of the time", work, Target::AtLeast(95.0));
    Ok(())
}

fn crowd(locks: &ReentrantLock, scale: Scale, work: Duration) -> Outcome<Vec<Turn>> {
    let start = monotonic() + 1_000_000;
    contend(locks, NAME, THREADS, (start, start + i64::try_from(scale.span.as_nanos())?), work)
}

/// From the first turn to the end of the last, in seconds.
fn lasted(turns: &[Turn]) -> f64 {
    let first = turns.first().map_or(0, |turn| turn.held);
    (turns.last().map_or(0, |turn| turn.left) - first) as f64 / 1e9
}
