//! Ends well on Ctrl-C or SIGTERM: nobody waits any more, the work under way is finished, and no lock is left behind.
//!
//! Three steps, in this order: cancel the token, which ends every wait for a lock; join the workers, each of which
//! finishes its step and unlocks; shut the client down, which releases what is still held. Without the join the last
//! step would free locks whose work is still going on. A second signal ends the program at once: what it holds then
//! is free when its lease ends.
//!
//! Run it with `cargo run --example shutdown`, more than once at the same time if you like, and press Ctrl-C; the server
//! is the one at `REDLATCH_URL`, by default `redis://127.0.0.1/`.

use redlatch::{CancelToken, Client, Error, RedLockExt, RedisRedLock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::thread;
use std::time::Duration;

const RESOURCE: &str = "example:shutdown";
const WORKERS: usize = 4;
const STEP: Duration = Duration::from_millis(200);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::connect(&url)?;
    let token = CancelToken::new();
    // Before the first lock: a signal that nobody listens to ends the process on the spot.
    cancel_on_signals(token.clone())?;

    let workers: Vec<_> = (1..=WORKERS).map(|number| start(number, &client, &token)).collect();
    let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
    client.shutdown();
    for result in ended {
        result.map_err(|_| "a worker panicked")??;
    }
    println!("shut down");
    Ok(())
}

/// The first signal cancels the token, the second one ends the process.
fn cancel_on_signals(token: CancelToken) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in &mut signals {
            if token.is_cancelled() {
                std::process::exit(128 + signal);
            }
            println!("no new work, once more to end at once");
            token.cancel();
        }
    });
    Ok(())
}

fn start(number: usize, client: &Client, token: &CancelToken) -> thread::JoinHandle<redlatch::Result<()>> {
    let (locks, token) = (RedisRedLock::new(client), token.clone());
    thread::spawn(move || {
        let ended = work(number, &locks, &token);
        // If one worker fails, the others are not left waiting for a signal.
        token.cancel();
        ended
    })
}

fn work(number: usize, locks: &RedisRedLock, token: &CancelToken) -> redlatch::Result<()> {
    loop {
        match locks.request(RESOURCE).cancelled_by(token).execute(|_| step(number)) {
            Err(Error::Cancelled { .. }) => return Ok(()),
            done => done?,
        };
    }
}

/// Not interrupted, so it has to be short, or look at the token itself.
fn step(number: usize) {
    println!("worker {number} begins a step");
    thread::sleep(STEP);
    println!("worker {number} has done it");
}
