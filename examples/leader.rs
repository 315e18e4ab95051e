//! Leader election: of several processes one leads, the others wait. When it ends, dies or loses the lock, another leads.
//!
//! The office is a lock. Who holds it asks `is_valid()` right before each step, and gives up as soon as the hold is
//! lost. A leader that dies blocks the others until its lease ends: at most [`LEASE`]. On Ctrl-C or SIGTERM it steps
//! down, and the next one leads at once.
//!
//! What no lock can do: a step that was begun in time and then takes longer than the lease, because the process is
//! paused, may meet the first step of the next leader.
//!
//! Run it several times at once with `cargo run --example leader NAME`; the server is the one at `REDLATCH_URL`, by
//! default `redis://127.0.0.1/`. Each line begins with the time in microseconds since 1970.

use crossbeam_channel::{select, tick};
use redlatch::{CancelToken, Client, Error, Hold, RedLockExt, RedisRedLock};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const OFFICE: &str = "example:leader";
const STEP: Duration = Duration::from_millis(100);

/// How long a dead leader blocks the others; renewed every third of it.
const LEASE: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = std::env::args().nth(1).unwrap_or_else(|| std::process::id().to_string());
    let token = CancelToken::new();
    cancel_on_signals(token.clone())?;

    let client = Client::connect(&url)?;
    let led = lead_whenever_possible(&RedisRedLock::new(&client), &name, &token);
    client.shutdown();
    Ok(led?)
}

fn cancel_on_signals(token: CancelToken) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || signals.forever().for_each(|_| token.cancel()));
    Ok(())
}

fn lead_whenever_possible(locks: &RedisRedLock, name: &str, token: &CancelToken) -> redlatch::Result<()> {
    loop {
        match lead_once(locks, name, token) {
            Ok(()) => {}
            Err(Error::Cancelled { .. }) => return Ok(()),
            Err(Error::Lost { .. }) => say(name, "lost the office"),
            // The next call waits on: a loop over what may pass does not spin.
            Err(error) if error.is_retryable() => say(name, &format!("waits: {error}")),
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the office, and leads as long as it lasts.
fn lead_once(locks: &RedisRedLock, name: &str, token: &CancelToken) -> redlatch::Result<()> {
    let Some(guard) = locks.request(OFFICE).renewed_lease(LEASE).cancelled_by(token).guard()? else { return Ok(()) };
    say(name, "leads");
    serve(&guard, name, token);
    if guard.is_valid() {
        // Said before it is done: afterwards the next leader might be the first to speak.
        say(name, "steps down");
    }
    guard.unlock()
}

fn serve(office: &Hold, name: &str, token: &CancelToken) {
    let (steps, lost) = (tick(STEP), office.lost());
    while !token.is_cancelled() {
        select! {
            recv(lost) -> _ => return,
            recv(steps) -> _ => {
                // The channel tells of a loss as soon as it is found; this question is exact at any moment.
                if !office.is_valid() {
                    return;
                }
                say(name, "step");
            }
        }
    }
}

fn say(name: &str, what: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    println!("{} {name} {what}", now.as_micros());
}
