//! Threads of two clients queue for one printer, and have it in the order in which they asked.
//!
//! Run it with `cargo run --example fair`; the server is the one at `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{FairLock, RedLock, RedLockExt};
use std::thread;
use std::time::Duration;

const RESOURCE: &str = "example:fair";

/// This one does not wait for long.
const HURRIED: usize = 3;

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // Two clients, as two processes have.
    let clients = [FairLock::connect(&url)?, FairLock::connect(&url)?];

    let printing = clients[0].guard(RESOURCE)?;
    thread::scope(|scope| {
        for number in 1..=6 {
            let locks = &clients[number % 2];
            scope.spawn(move || print(locks, number).expect("it waits for its turn"));
            println!("thread {number} queues");
            // The order is that in which the server is asked.
            thread::sleep(Duration::from_millis(100));
        }
        println!("the printer is free");
        printing.unlock()
    })?;

    println!("nobody waits: a try has the printer? {}", clients[1].try_lock(RESOURCE)?);
    clients[1].unlock(RESOURCE)
}

/// If its time ends before its turn comes, it leaves the queue, and costs those behind it nothing.
fn print(locks: &FairLock, number: usize) -> redlatch::Result<()> {
    let wait = if number == HURRIED { Duration::from_millis(150) } else { Duration::from_secs(30) };
    match locks.request(RESOURCE).wait(wait).guard()? {
        Some(printing) => {
            println!("thread {number} prints");
            printing.unlock()
        }
        None => {
            println!("thread {number} leaves the queue");
            Ok(())
        }
    }
}
