//! A list of prices that many read at the same time and one changes alone, who goes on reading what it wrote.
//!
//! Run it with `cargo run --example read_write`; the server is the one at `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{ReadWriteLock, RedLock, RedLockExt};
use std::sync::Barrier;

const RESOURCE: &str = "example:read_write";

/// Whether it is to be had now; given back at once.
fn may(side: &impl RedLock) -> redlatch::Result<bool> {
    Ok(side.try_lock(RESOURCE)? && side.unlock(RESOURCE).is_ok())
}

/// Each comes back when all of them are in.
fn read_together(locks: &[ReadWriteLock]) {
    let all = Barrier::new(locks.len());
    std::thread::scope(|scope| {
        for locks in locks {
            scope.spawn(|| locks.read().execute_in_lock(RESOURCE, || all.wait()).expect("it reads"));
        }
    });
}

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // Two clients, as two processes have.
    let [one, other] = [ReadWriteLock::connect(&url)?, ReadWriteLock::connect(&url)?];

    read_together(&[one.clone(), one.clone(), other.clone(), other.clone()]);
    println!("four read together");

    let writing = one.write().guard(RESOURCE)?;
    println!("one writes: may the other read? {} Write? {}", may(other.read())?, may(other.write())?);

    // A downgrade: nobody else can write in between, so it reads what it wrote.
    let reading = one.read().guard(RESOURCE)?;
    writing.unlock()?;
    println!("one reads on: may the other read? {} Write? {}", may(other.read())?, may(other.write())?);

    // The other way round it would wait for itself, and is told so: give the read lock up, and look again at what was read.
    println!("one asks to write: {}", one.write().lock(RESOURCE).expect_err("it reads"));
    reading.unlock()?;
    println!("nobody reads: may the other write? {}", may(other.write())?);
    Ok(())
}
