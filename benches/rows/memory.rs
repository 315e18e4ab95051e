//! A busy lock, and calls that stay in this process.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Samples, Server, connect, sent_scripts, take_turns};
use redlatch::{Client, RedLock, ReentrantLock, Reentry};
use std::hint::black_box;
use std::time::Instant;

const NAME: &str = "bench:memory";

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    server.on_one_core(|| busy(&server.unix(), scale, report))?;
    in_memory(&server.unix(), scale, report)
}

/// A lock that another client holds.
fn busy(url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (holder, locks) = (ReentrantLock::connect(url)?, ReentrantLock::connect(url)?);
    let (mut floor, name, mut probe) = (Floor::new(url)?, Name::new(NAME), connect(url)?);
    holder.lock(NAME)?;
    let mut asked = || if floor.try_take(&name)? { Err("it was free".into()) } else { Ok(()) };
    let mut tried = || if locks.try_lock(NAME)? { Err("it was free".into()) } else { Ok(()) };
    tried()?;
    let mut ratios = Vec::new();
    for round in 0..scale.rounds {
        let [one, other] = take_turns(round, scale.pairs, [&mut asked, &mut tried])?;
        ratios.push(other.p50() / one.p50());
    }
    let before = sent_scripts(&mut probe)?;
    (0..scale.pairs).try_for_each(|_| tried())?;
    let each = (sent_scripts(&mut probe)? - before) / scale.pairs as f64;
    report.row("busy", "try_lock of a busy name".to_owned(), "commands", vec![each], Target::Exactly(1.0));
    report.row("busy", "  p50".to_owned(), "x one round trip", ratios, Target::None);
    Ok(holder.unlock(NAME)?)
}

fn in_memory(url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let locks = ReentrantLock::new(&Client::builder(url).reentry(Reentry::Local).build()?);
    locks.lock(NAME)?;
    let try_it = || if locks.try_lock(NAME)? { Err("a sibling's lock was free".into()) } else { Ok(()) };
    let sibling = std::thread::scope(|scope| scope.spawn(|| batches(scale, try_it)).join());
    let sibling = sibling.map_err(|_| "the sibling panicked")??;
    let inner = batches(scale, || Ok(locks.lock(NAME).and_then(|()| locks.unlock(NAME))?))?;
    let hold = locks.hold(NAME).ok_or("not held")?;
    let valid = batches(scale, || if black_box(&hold).is_valid() { Ok(()) } else { Err("lost".into()) })?;
    let group = "in memory";
    report.row(group, "try_lock of what a sibling holds".to_owned(), "ns", sibling, Target::AtMost(1_000.0));
    report.row(group, "re-entry, Reentry::Local".to_owned(), "ns a pair", inner, Target::AtMost(450.0));
    report.row(group, "is_valid".to_owned(), "ns", valid, Target::AtMost(30.0));
    Ok(locks.unlock(NAME)?)
}

/// For each round the median of means of many calls each: reading the clock would cost more than one of them.
fn batches(scale: Scale, mut act: impl FnMut() -> Outcome<()>) -> Outcome<Vec<f64>> {
    let mut round = || -> Outcome<f64> {
        let mut means = Samples::default();
        for _ in 0..20 {
            let start = Instant::now();
            for _ in 0..scale.calls {
                act()?;
            }
            means.push(start.elapsed().as_nanos() as f64 / scale.calls as f64);
        }
        Ok(means.p50())
    };
    (0..scale.rounds).map(|_| round()).collect()
}
