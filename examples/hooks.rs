//! Hooks around the work: a `LockAction` is told when the lock was acquired and when it is free again.
//!
//! Run it with `cargo run --example hooks`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`.

use redlatch::{Hold, LockAction, RedLockExt, RedisRedLock};
use std::time::{Duration, Instant};

/// Adds up numbers and says how long it took to get there.
struct AddUp {
    numbers: Vec<u32>,
    asked: Instant,
}

impl LockAction for AddUp {
    type Output = u32;

    fn on_acquire(&mut self, hold: &Hold) {
        println!("on_acquire: {} after {:?}, owner {}", hold.resource(), self.asked.elapsed(), hold.owner());
    }

    fn do_in_lock(&mut self, hold: &Hold) -> u32 {
        println!("do_in_lock: is_valid {}", hold.is_valid());
        self.numbers.iter().sum()
    }

    // Also called when the work panicked. The lock is free by now.
    fn on_exit(&mut self, resource: &str) {
        println!("on_exit: {resource} is free after {:?}", self.asked.elapsed());
    }
}

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let locks = RedisRedLock::connect(&url)?;

    let mut action = AddUp { numbers: vec![19, 23], asked: Instant::now() };
    println!("run_in_lock gives {}", locks.run_in_lock("example:hooks", &mut action)?);

    action.asked = Instant::now();
    let total = locks.request("example:hooks").wait(Duration::from_millis(500)).run(&mut action)?;
    println!("a request with terms gives {total:?}");
    Ok(())
}
