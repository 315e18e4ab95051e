//! A process whose threads take one side of a lock, each again and again: `--side` and what [`Order::args`] says.
//!
//! It writes the line `ready` when it is connected, reads the line `<start> <end>`, in nanoseconds of `CLOCK_MONOTONIC`, and acts for that
//! long. Then it writes the line `done <turns> <those of the thread that has fewest> <tries in vain>` and what it noted (support/turns.rs),
//! to its end. When its input ends before that, so does the process.

use crate::support::turns::{Turn, write};
use crate::support::{Outcome, monotonic, sleep_until};
use redlatch::{Client, HandOff, ReadWriteLock, RedLock};
use std::io::{Write, stdin, stdout};
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

/// The argument that turns this program into a worker.
pub(crate) const WORKER: &str = "--side";

pub(crate) const READ: &str = "read";
pub(crate) const WRITE: &str = "write";

/// Readers note only how long they did not read, in ns, and shorter than this is no pause. A writer stays for longer.
pub(crate) const PAUSE: i64 = 100_000;

/// What it is told to do.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) side: String,
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) threads: usize,
    /// Inside of the lock, asleep.
    pub(crate) hold: Duration,
    /// A writer comes each time so much has passed.
    pub(crate) period: Duration,
    /// And goes if it is not in after so long.
    pub(crate) patience: Duration,
    /// Whether readers of a process share what they have at the server.
    pub(crate) shares: bool,
}

impl Order {
    pub(crate) fn args(&self) -> [String; 9] {
        let Self { side, url, name, threads, hold, period, patience, shares } = self;
        let [hold, period, patience] = [hold, period, patience].map(|span| span.as_micros().to_string());
        let (threads, shares) = (threads.to_string(), shares.to_string());
        [WORKER.to_owned(), side.clone(), url.clone(), name.clone(), threads, hold, period, patience, shares]
    }

    fn parse(args: &[String]) -> Outcome<Self> {
        let [side, url, name, threads, hold, period, patience, shares] = args else {
            return Err("not the arguments of a worker".into());
        };
        let micros = |text: &String| Ok::<_, std::num::ParseIntError>(Duration::from_micros(text.parse()?));
        Ok(Self {
            side: side.clone(),
            url: url.clone(),
            name: name.clone(),
            threads: threads.parse()?,
            hold: micros(hold)?,
            period: micros(period)?,
            patience: micros(patience)?,
            shares: shares.parse()?,
        })
    }
}

pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let order = Order::parse(args)?;
    let hand_off = if order.shares { HandOff::default() } else { HandOff::off() };
    let locks = ReadWriteLock::new(&Client::builder(&order.url).hand_off(hand_off).build()?);
    let side: &dyn RedLock = if order.side == WRITE { locks.write() } else { locks.read() };
    let own = format!("{}:{}", order.name, std::process::id());
    side.lock(&own).and_then(|()| side.unlock(&own))?;
    println!("ready");
    let span = read_span()?;
    end_with_input();
    let act = if order.side == WRITE { writes } else { reads };
    let done = all_threads(&order, |thread| act(side, &order, thread, span))?;
    let (turns, least) = (done.iter().map(|one| one.turns).sum::<usize>(), done.iter().map(|one| one.turns).min());
    let vain: usize = done.iter().map(|one| one.vain).sum();
    println!("done {turns} {} {vain}", least.unwrap_or(0));
    done.iter().try_for_each(|one| write(&one.noted, &mut stdout()))?;
    Ok(stdout().flush()?)
}

fn read_span() -> Outcome<(i64, i64)> {
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    let (start, end) = line.trim().split_once(' ').ok_or("no start and end")?;
    Ok((start.parse()?, end.parse()?))
}

/// Whoever started it may be gone.
fn end_with_input() {
    spawn(|| {
        while stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {}
        std::process::exit(1);
    });
}

fn all_threads(order: &Order, act: impl Fn(usize) -> Outcome<Done> + Sync) -> Outcome<Vec<Done>> {
    let act = &act;
    scope(|scope| {
        let threads: Vec<_> = (0..order.threads).map(|thread| scope.spawn(move || act(thread))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    })
}

/// What a thread did.
#[derive(Default)]
struct Done {
    turns: usize,
    vain: usize,
    noted: Vec<Turn>,
}

/// From right before the end of one read on a reader is out, until it knows that it has the next.
fn reads(side: &dyn RedLock, order: &Order, thread: usize, (start, end): (i64, i64)) -> Outcome<Done> {
    let mut done = Done::default();
    sleep_until(start);
    let mut out = start;
    while out < end {
        side.lock(&order.name)?;
        let held = monotonic();
        let left = stay(order.hold, held);
        side.unlock(&order.name)?;
        done.turns += 1;
        if held - out >= PAUSE {
            done.noted.push(Turn { thread, asked: out, held, left });
        }
        out = left;
    }
    Ok(done)
}

fn writes(side: &dyn RedLock, order: &Order, thread: usize, (start, end): (i64, i64)) -> Outcome<Done> {
    let mut done = Done::default();
    let period = i64::try_from(order.period.as_nanos())?.max(1);
    let mut next = start + period;
    while next < end {
        sleep_until(next);
        let asked = monotonic();
        if side.try_lock_for(&order.name, order.patience)? {
            let held = monotonic();
            let left = stay(order.hold, held);
            side.unlock(&order.name)?;
            done.turns += 1;
            done.noted.push(Turn { thread, asked, held, left });
        } else {
            done.vain += 1;
        }
        next += ((monotonic() - next) / period + 1) * period;
    }
    Ok(done)
}

/// Until when.
fn stay(hold: Duration, held: i64) -> i64 {
    if hold.is_zero() {
        return held;
    }
    sleep(hold);
    monotonic()
}
