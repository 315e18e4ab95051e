//! Two threads want the same lock, and wait for it no longer than 500 ms: the one that comes second gives up.
//!
//! Each takes the lock with a lease of 1 s, enough for its 800 ms of work; the lease is not renewed.
//!
//! Run it with `cargo run --example timed`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`.

use redlatch::{RedLock, RedisRedLock};
use std::thread;
use std::time::{Duration, Instant};

const RESOURCE: &str = "example:timed";
const WAIT: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(1);
const WORK: Duration = Duration::from_millis(800);

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;
    thread::scope(|scope| {
        let threads = ["threadA", "threadB"].map(|name| scope.spawn(|| work_or_give_up(&locks, name)));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })
}

fn work_or_give_up(locks: &RedisRedLock, name: &str) -> redlatch::Result<()> {
    let start = Instant::now();
    if !locks.try_lock_for_with_lease(RESOURCE, WAIT, LEASE)? {
        println!("{name} gave up after {} ms", start.elapsed().as_millis());
        return Ok(());
    }
    println!("{name} acquired it after {} ms and works for {} ms", start.elapsed().as_millis(), WORK.as_millis());
    thread::sleep(WORK);
    locks.unlock(RESOURCE)?;
    println!("{name} released it");
    Ok(())
}
