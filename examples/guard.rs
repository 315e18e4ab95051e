//! A guard holds a lock until it is dropped or unlocked, and knows how the lock stands without asking the server.
//!
//! Run it with `cargo run --example guard`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`.

use redlatch::{Error, RedLock, RedLockExt, RedisRedLock};
use std::time::Duration;

const RESOURCE: &str = "example:guard";

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;

    // The drop releases it: at the end of the block, at a `?` and in a panic.
    {
        let guard = locks.guard(RESOURCE)?;
        println!("guard: is_valid {}, remaining {} ms", guard.is_valid(), guard.remaining().as_millis());
    }
    println!("dropped: is_locked {}", locks.is_locked(RESOURCE)?);

    // `unlock` does the same and says whether it went well.
    let guard = locks.guard(RESOURCE)?;
    guard.unlock()?;
    println!("unlocked: is_locked {}", locks.is_locked(RESOURCE)?);

    // What that is good for: work that outlasts its lease learns that it may not have been alone. A drop could
    // only have logged it.
    let lease = Duration::from_millis(100);
    if let Some(guard) = locks.request(RESOURCE).lease(lease).guard()? {
        std::thread::sleep(2 * lease);
        println!("after the lease: is_valid {}, remaining {} ms", guard.is_valid(), guard.remaining().as_millis());
        match guard.unlock() {
            Err(error @ Error::Lost { .. }) => println!("unlock: {error}"),
            other => other?,
        }
    }
    Ok(())
}
