//! Work as a closure: lock, run, unlock, also when the closure panics.
//!
//! Run it with `cargo run --example closure`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`.

use redlatch::{RedLockExt, RedisRedLock};
use std::thread;
use std::time::Duration;

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;

    // Waits as long as it takes; what the closure returns comes back.
    let total = locks.execute_in_lock("example:closure", || [19, 23].iter().sum::<i32>())?;
    println!("execute_in_lock: the total is {total}");

    // With terms: how long to wait, and for how long to take the lock. The closure may ask the guard.
    let left = add_up(&locks)?;
    println!("request, the lock is free: {left:?}");

    // Another thread is the same as another process: while this one holds the lock, it waits in vain.
    let guard = locks.guard("example:closure")?;
    let refused = thread::scope(|scope| scope.spawn(|| add_up(&locks)).join().unwrap())?;
    println!("request, the lock is held elsewhere: {refused:?}, and the closure did not run");
    guard.unlock()
}

/// `None` when the lock could not be had within 200 ms: that is no error.
fn add_up(locks: &RedisRedLock) -> redlatch::Result<Option<String>> {
    locks
        .request("example:closure")
        .wait(Duration::from_millis(200))
        .lease(Duration::from_secs(10))
        .execute(|guard| format!("done with {} s of the lease to spare", guard.remaining().as_secs()))
}
