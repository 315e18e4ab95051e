//! A barrier: three processes work in phases, and none begins a phase before all have done the one before.
//!
//! Each phase has a latch of its own. A process does its part, counts the latch down, and waits until it is open. Whoever comes first sets
//! the count. The latch cannot open before all have counted it down, so it does not matter who that is.
//!
//! A latch opens within [`PHASE`] or not at all. If a process dies, the others are told so by `Error::Expired`, and do not wait for ever.
//!
//! A latch that has opened can be set again. So each run has latches of its own: all processes of a run are given the same word for it.
//!
//! Run it three times at once with `cargo run --example barrier NAME RUN`; the server is the one at `REDLATCH_URL`, by default
//! `redis://127.0.0.1/`. Each line begins with the time in microseconds since 1970.

use redlatch::{CountDownLatch, Error, Terms};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PARTIES: u32 = 3;
const PHASES: u32 = 4;

/// How long a part may take.
const PHASE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = std::env::args().nth(1).unwrap_or_else(|| std::process::id().to_string());
    let run = std::env::args().nth(2).unwrap_or_else(|| "1".to_owned());
    let latches = CountDownLatch::connect(&url)?;
    for phase in 1..=PHASES {
        let latch = format!("example:barrier:{run}:{phase}");
        latches.try_set_count(&latch, PARTIES, Some(PHASE))?;
        say(&name, &format!("begins {phase}"));
        thread::sleep(part_of(&name, phase));
        // Said before it counts: afterwards another process might be the first to speak.
        say(&name, &format!("ends {phase}"));
        latches.count_down(&latch)?;
        match latches.wait(&latch, &Terms::new()) {
            Err(Error::Expired { .. }) => return Err(format!("phase {phase}: somebody did not do his part").into()),
            // A wait without an end never ends without an open latch.
            waited => assert!(waited?),
        }
    }
    Ok(())
}

/// Some are faster than others, each time others.
fn part_of(name: &str, phase: u32) -> Duration {
    let share = name.bytes().map(u32::from).sum::<u32>().wrapping_mul(phase) % 5;
    Duration::from_millis(40) * share
}

fn say(name: &str, what: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    println!("{} {name} {what}", now.as_micros());
}
