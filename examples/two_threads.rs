//! Two threads, and then two processes, take turns at one lock.
//!
//! `threadA` and `threadB` lock `resource:x` and work for a second each. Then this process holds the lock while
//! a second one, a child that runs the same program, waits for it; printed is how soon it got it.
//!
//! Run it with `cargo run --example two_threads`, or `scripts/demo`, which brings a server along. The server is
//! the one at `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{RedLock, RedisRedLock};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const RESOURCE: &str = "resource:x";
const WORK: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;
    if std::env::args().nth(1).as_deref() == Some("wait") {
        return Ok(wait(&locks)?);
    }
    let start = Instant::now();
    threads(&locks, start)?;
    processes(&locks, start)
}

fn threads(locks: &RedisRedLock, start: Instant) -> redlatch::Result<()> {
    thread::scope(|scope| {
        let threads = ["threadA", "threadB"].map(|name| scope.spawn(move || take_a_turn(locks, name, start)));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })
}

fn take_a_turn(locks: &RedisRedLock, name: &str, start: Instant) -> redlatch::Result<()> {
    locks.lock(RESOURCE)?;
    say(start, name, "acquired");
    thread::sleep(WORK);
    // Said before it is done: afterwards the other thread might be the first to speak.
    say(start, name, "released");
    locks.unlock(RESOURCE)
}

/// Holds the lock until a second process waits for it, and measures how soon that one gets it.
///
/// Every time is of this process's clock: the measured one includes the unlock itself and the child's line on
/// the pipe, so it is never too short.
fn processes(locks: &RedisRedLock, start: Instant) -> Result<(), Box<dyn Error>> {
    locks.lock(RESOURCE)?;
    say(start, "process 1", "acquired");

    let mut child = Command::new(std::env::current_exe()?).arg("wait").stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("the child has no stdout")?).lines();
    let mut next_line = move || lines.next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()));
    say(start, "process 2", &next_line()?);

    thread::sleep(WORK);
    say(start, "process 1", "released");
    let unlocking = Instant::now();
    locks.unlock(RESOURCE)?;
    let line = next_line()?;
    let took = unlocking.elapsed();
    say(start, "process 2", &line);
    println!("the other process had it {:.3} ms after the unlock was called", took.as_secs_f64() * 1000.0);

    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the second process failed: {status}").into()) }
}

/// The second process.
fn wait(locks: &RedisRedLock) -> redlatch::Result<()> {
    if !locks.try_lock(RESOURCE)? {
        println!("finds it locked, waits");
        locks.lock(RESOURCE)?;
    }
    println!("acquired");
    locks.unlock(RESOURCE)
}

fn say(start: Instant, who: &str, what: &str) {
    println!("{:>5} ms  {who:<9}  {RESOURCE} {what}", start.elapsed().as_millis());
}
