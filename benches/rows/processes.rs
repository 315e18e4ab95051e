//! Processes that contend for one name.
//!
//! Each is this program again. It notes when each of its threads asked for the lock, had it and gave it up, by a
//! clock that all processes share, and writes that down when it is done.

use crate::Scale;
use crate::bare;
use crate::report::{Report, Target};
use crate::support::floor::{Floor, Name};
use crate::support::turns::{MILLI, Owned, hand_offs, jain, read, write};
use crate::support::{Outcome, Samples, Server, monotonic, repeat};
use crate::turns::contend;
use redlatch::{RedLock, ReentrantLock};
use std::io::{Read, stdout};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The arguments that turn this program into one of the processes.
pub(crate) const CONTENDER: &str = "--contender";
pub(crate) const BARE: &str = "--contender-without-library";

const PROCESSES: usize = 4;
const NAME: &str = "bench:processes";

/// Until then all processes are connected.
const GET_READY: i64 = 200_000_000;

/// A process: takes the lock in turns with the others, and writes all its turns.
pub(crate) fn run(url: &str, threads: &str, start: &str, end: &str) -> Outcome<()> {
    let locks = ReentrantLock::connect(url)?;
    let own = format!("{NAME}:{}", std::process::id());
    locks.lock(&own).and_then(|()| locks.unlock(&own))?;
    let turns = contend(&locks, NAME, threads.parse()?, (start.parse()?, end.parse()?), Duration::ZERO)?;
    Ok(write(&turns, &mut stdout())?)
}

/// The same with the least that can do it.
pub(crate) fn run_bare(url: &str, start: &str, end: &str) -> Outcome<()> {
    let path = url.strip_prefix("unix://").ok_or("not the path of a socket")?;
    let turns = bare::contend(path, &Name::new(NAME), (start.parse()?, end.parse()?))?;
    Ok(write(&turns, &mut stdout())?)
}

/// The turns of all processes in the order in which they had the lock.
fn turns(kind: &str, url: &str, threads: usize, span: Duration) -> Outcome<Vec<Owned>> {
    let start = monotonic() + GET_READY;
    let end = start + i64::try_from(span.as_nanos())?;
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([kind, url, &threads.to_string(), &start.to_string(), &end.to_string()]);
        children.push(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    }
    let mut turns = Vec::new();
    for (process, child) in children.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        child.stdout.take().ok_or("no pipe")?.read_to_end(&mut bytes)?;
        turns.extend(read(&bytes).map(|turn| (process, turn)));
    }
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a contending process failed".into());
        }
    }
    turns.sort_by_key(|(_, turn)| turn.held);
    Ok(turns)
}

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    let url = server.unix();
    let (mut floor, name) = (Floor::new(&url)?, Name::new("bench:processes:floor"));
    let [mut p50, mut p99, mut micros, mut rates, mut fair] = [const { Vec::new() }; 5];
    let [mut bare_p50, mut bare_p99] = [const { Vec::new() }; 2];
    let [mut crowd, mut crowd_fair, mut waits] = [const { Vec::new() }; 3];
    for _ in 0..scale.rounds {
        // A round trip is half of what the two scripts of a pair take.
        let trip = repeat(scale.pairs, &mut || floor.pair(&name))?.p50() / 2.0;
        let single = turns(CONTENDER, &url, 1, scale.span)?;
        let times = hand_offs(&single);
        p50.push(times.p50() / trip);
        p99.push(times.quantile(0.99) / trip);
        micros.push(times.p50() / 1_000.0);
        rates.push(single.len() as f64 / scale.span.as_secs_f64());
        fair.push(jain(PROCESSES, single.iter().map(|(process, _)| *process)));
        let bare = hand_offs(&turns(BARE, &url, 1, scale.span)?);
        bare_p50.push(bare.p50() / trip);
        bare_p99.push(bare.quantile(0.99) / trip);
        let many = turns(CONTENDER, &url, 4, scale.span)?;
        crowd.push(many.len() as f64 / single.len() as f64);
        crowd_fair.push(jain(PROCESSES, many.iter().map(|(process, _)| *process)));
        let waited: Samples = many.iter().map(|(_, turn)| (turn.held - turn.asked) as f64).collect();
        waits.push(waited.quantile(0.999) / MILLI);
    }
    let group = "processes";
    report.row(group, "4 processes x 1 thread: hand-off p50".to_owned(), "round trips", p50, Target::AtMost(2.0));
    report.row(group, "  hand-off p99".to_owned(), "round trips", p99, Target::AtMost(5.0));
    report.row(group, "  hand-off p50, without a library".to_owned(), "round trips", bare_p50, Target::None);
    report.row(group, "  hand-off p99, without a library".to_owned(), "round trips", bare_p99, Target::None);
    report.row(group, "  hand-off p50".to_owned(), "µs", micros, Target::None);
    report.row(group, "  all together".to_owned(), "pairs/s", rates, Target::None);
    report.row(group, "  Jain index over processes".to_owned(), "", fair, Target::AtLeast(0.9));
    report.row(group, "4 processes x 4 threads".to_owned(), "x 4 processes x 1", crowd, Target::AtLeast(10.0));
    report.row(group, "  Jain index over processes".to_owned(), "", crowd_fair, Target::AtLeast(0.9));
    report.row(group, "  wait p99.9".to_owned(), "ms", waits, Target::AtMost(100.0));
    Ok(())
}
