//! A lock can be lost while it is held. Two ways to hear of it: a callback for the whole client, and a channel
//! of the hold that the work can `select!` on.
//!
//! Here a second client frees the lock by force. The holder learns it at its next renewal, which comes every
//! third of the watchdog's lease.
//!
//! Run it with `cargo run --example on_lost`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`.

use crossbeam_channel::{select, tick, unbounded};
use redlatch::{Client, Error, RedLock, RedLockExt, RedisRedLock};
use std::time::Duration;

const RESOURCE: &str = "example:on_lost";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let (report, reports) = unbounded();
    let client = Client::builder(&url)
        .watchdog_timeout(Duration::from_millis(1500))
        .on_lost(move |lost| report.send(lost).unwrap_or_else(|_| eprintln!("nobody listens any more")))
        .build()?;
    let locks = RedisRedLock::new(&client);

    let guard = locks.guard(RESOURCE)?;
    println!("acquired");
    println!("force_unlock by another client: {}", RedisRedLock::connect(&url)?.force_unlock(RESOURCE)?);

    let (steps, lost) = (tick(Duration::from_millis(100)), guard.lost());
    loop {
        select! {
            recv(steps) -> _ => println!("one more step of the work, is_valid {}", guard.is_valid()),
            recv(lost) -> lost => {
                println!("the work stops: lost {}, {:?}", lost?.resource(), guard.state());
                break;
            }
        }
    }
    println!("the callback was told too: {:?}", reports.recv()?.cause());
    match guard.unlock() {
        Err(error @ Error::Lost { .. }) => println!("unlock: {error}"),
        other => other?,
    }
    Ok(())
}
