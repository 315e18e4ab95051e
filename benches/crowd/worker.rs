//! A process of the crowd. The program that starts it may be of another commit, and Redisson's worker is in Java (CrowdWorker.java), so
//! what they say to each other changes only by additions:
//!
//! - arguments: `--worker`, then any of `kind=`, `url=`, `name=`, `threads=`, `work-us=`, `spin-us=`, `pause-us=`,
//!   `lease-ms=`; those that are not known are ignored;
//! - it writes the line `ready <front of its owner ids>` when it is connected;
//! - it reads the line `<start> <end>`, in nanoseconds of `CLOCK_MONOTONIC`, and contends for that long;
//! - it writes the line `done <turns> <us of processor time> <failures> <the last of them>` and then the turns, each as
//!   thread, asked, held, left: four integers of 64 bits, little-endian;
//! - when its input ends, so does the process.

use crate::support::floor::{Floor, Name};
use crate::support::turns::{Turn, spin, write};
use crate::support::{Outcome, connect, cpu_seconds, monotonic, sleep_until};
use redlatch::{Client, FairLock, RedLock, ReentrantLock};
use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// The argument that turns this program into a worker.
pub(crate) const WORKER: &str = "--worker";

/// Whoever waits for longer than that after the end is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it is told to do.
#[derive(Clone, Default)]
pub(crate) struct Order {
    pub(crate) kind: String,
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) threads: u64,
    pub(crate) work: Duration,
    pub(crate) spin: Duration,
    pub(crate) pause: Duration,
    pub(crate) lease: Duration,
}

impl Order {
    pub(crate) fn args(&self) -> Vec<String> {
        let Self { kind, url, name, threads, work, spin, pause, lease } = self;
        let (work, spin, pause, lease) = (work.as_micros(), spin.as_micros(), pause.as_micros(), lease.as_millis());
        let texts =
            [format!("kind={kind}"), format!("url={url}"), format!("name={name}"), format!("threads={threads}")];
        let spans = [("work-us", work), ("spin-us", spin), ("pause-us", pause), ("lease-ms", lease)];
        let spans = spans.map(|(option, number)| format!("{option}={number}"));
        [WORKER.to_owned()].into_iter().chain(texts).chain(spans).collect()
    }

    fn parse(args: &[String]) -> Outcome<Self> {
        let mut order = Self { threads: 1, lease: Duration::from_secs(30), ..Self::default() };
        for (option, value) in args.iter().filter_map(|arg| arg.split_once('=')) {
            match option {
                "kind" => order.kind = value.to_owned(),
                "url" => order.url = value.to_owned(),
                "name" => order.name = value.to_owned(),
                "threads" => order.threads = value.parse()?,
                "work-us" => order.work = Duration::from_micros(value.parse()?),
                "spin-us" => order.spin = Duration::from_micros(value.parse()?),
                "pause-us" => order.pause = Duration::from_micros(value.parse()?),
                "lease-ms" => order.lease = Duration::from_millis(value.parse()?),
                _ => {}
            }
        }
        Ok(order)
    }
}

/// A contended lock, as one thread uses it.
trait Lock: Send {
    fn lock(&mut self) -> Outcome<()>;
    fn unlock(&mut self) -> Outcome<()>;
}

struct Ours {
    locks: Arc<dyn RedLock>,
    name: String,
}

impl Lock for Ours {
    fn lock(&mut self) -> Outcome<()> {
        Ok(self.locks.lock(&self.name)?)
    }

    fn unlock(&mut self) -> Outcome<()> {
        Ok(self.locks.unlock(&self.name)?)
    }
}

/// The same scripts without a library: it asks until it has the lock.
struct Asking {
    floor: Floor,
    name: Name,
    /// Of the random pauses between two looks; none for a spinning floor.
    seed: Option<u64>,
}

impl Asking {
    /// 1 to 10 ms by xorshift, so that those who poll do not meet.
    fn pause(&mut self) {
        if let Some(seed) = &mut self.seed {
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            sleep(Duration::from_micros(1_000 + *seed % 9_000));
        }
    }
}

impl Lock for Asking {
    fn lock(&mut self) -> Outcome<()> {
        while !self.floor.try_take(&self.name)? {
            self.pause();
        }
        Ok(())
    }

    fn unlock(&mut self) -> Outcome<()> {
        self.floor.free(&self.name)
    }
}

fn make(order: &Order, locks: Option<&Arc<dyn RedLock>>, name: &str, thread: u64) -> Outcome<Box<dyn Lock>> {
    if let Some(locks) = locks {
        return Ok(Box::new(Ours { locks: Arc::clone(locks), name: name.to_owned() }));
    }
    let process = u64::from(std::process::id());
    // As long as an owner id of the library.
    let owner = format!("01234567-89ab-cdef-0123-{process:012}:{thread}:12345");
    let seed = (order.kind == "polls").then_some((process << 20) + thread + 1);
    Ok(Box::new(Asking { floor: Floor::owned(&order.url, owner, order.lease)?, name: Name::new(name), seed }))
}

pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let order = Order::parse(args)?;
    let client = || Client::builder(&order.url).watchdog_timeout(order.lease).build();
    let locks: Option<Arc<dyn RedLock>> = match order.kind.as_str() {
        "redlatch" => Some(Arc::new(ReentrantLock::new(&client()?))),
        "fair" => Some(Arc::new(FairLock::new(&client()?))),
        "floor" | "polls" => None,
        other => return Err(format!("no kind of contender: {other}").into()),
    };
    let contenders: Outcome<Vec<_>> =
        (0..order.threads).map(|thread| make(&order, locks.as_ref(), &order.name, thread)).collect();
    let contenders = contenders?;
    println!("ready {}", front_of_owners(&order, locks.as_ref())?);
    let span = read_span()?;
    end_with_input();
    let cpu = cpu_seconds();
    let done = contend(contenders, &order, span)?;
    let (turns, cpu) = (done.turns.len(), (cpu_seconds() - cpu) * 1e6);
    println!("done {turns} {cpu:.0} {} {}", done.failures, done.last.replace('\n', " "));
    write(&done.turns, &mut stdout())?;
    Ok(stdout().flush()?)
}

/// What all owner ids of this process begin with, seen in a lock of its own; all is connected then.
fn front_of_owners(order: &Order, locks: Option<&Arc<dyn RedLock>>) -> Outcome<String> {
    let own = format!("{}:{}", order.name, std::process::id());
    let mut lock = make(order, locks, &own, 0)?;
    lock.lock()?;
    let owners: Vec<String> = redis::cmd("HKEYS").arg(&own).query(&mut connect(&order.url)?)?;
    lock.unlock()?;
    let owner = owners.first().ok_or("an own lock without an owner")?;
    Ok(owner.split(':').next().unwrap_or(owner).to_owned())
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

/// What threads did.
#[derive(Default)]
struct Done {
    turns: Vec<Turn>,
    failures: usize,
    last: String,
}

fn contend(contenders: Vec<Box<dyn Lock>>, order: &Order, (start, end): (i64, i64)) -> Outcome<Done> {
    let (sender, parts) = channel();
    let threads = contenders.len();
    for (thread, mut lock) in contenders.into_iter().enumerate() {
        let (sender, order) = (sender.clone(), order.clone());
        spawn(move || sender.send(take_turns(lock.as_mut(), &order, thread, (start, end))));
    }
    drop(sender);
    let mut all = Done::default();
    for _ in 0..threads {
        let left = Duration::from_nanos(u64::try_from(end - monotonic()).unwrap_or(0));
        let part = parts.recv_timeout(left + PATIENCE).map_err(|_| "a thread does not get the lock")?;
        all.turns.extend(part.turns);
        all.failures += part.failures;
        all.last.push_str(&part.last);
    }
    Ok(all)
}

/// One thread, from `start` to `end`. A turn that fails is counted only.
fn take_turns(lock: &mut dyn Lock, order: &Order, thread: usize, (start, end): (i64, i64)) -> Done {
    let mut done = Done::default();
    sleep_until(start);
    let mut asked = monotonic();
    while asked < end {
        match turn(lock, order) {
            Ok((held, left)) => done.turns.push(Turn { thread, asked, held, left }),
            Err(error) => {
                done.failures += 1;
                done.last = error.to_string();
            }
        }
        if !order.pause.is_zero() {
            sleep(order.pause);
        }
        asked = monotonic();
    }
    done
}

/// When it had the lock, and when it began to give it up.
fn turn(lock: &mut dyn Lock, order: &Order) -> Outcome<(i64, i64)> {
    lock.lock()?;
    let held = monotonic();
    if !order.work.is_zero() {
        sleep(order.work);
    }
    let left = spin(monotonic(), order.spin);
    lock.unlock()?;
    Ok((held, left))
}
