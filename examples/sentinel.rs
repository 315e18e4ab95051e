//! A failover as a program sees it: the master of a Sentinel group dies, and what is held and what is waited for goes on at
//! the next one.
//!
//! One lock is held all the time, and another one is taken again and again. A call that meets a dead master asks on until
//! there is a new one. A lock that was not replicated is lost with its master, and its holder is told at once.
//!
//! Run it with `scripts/failover`, which starts a group and kills its master; or beside a group of yours with `cargo run
//! --example sentinel`, where `REDLATCH_URL` has its sentinels and name, by default
//! `redis+sentinel://127.0.0.1:26379/mymaster`. It ends one second after a failover, or after half a minute without one.

use redlatch::{Client, Error, RedLockExt, RedisRedLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

const KEPT: &str = "example:sentinel:kept";
const TAKEN: &str = "example:sentinel:taken";
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 300;
const STEPS_AFTER: usize = 10;

/// Whoever waits for longer than this waited for sentinels to replace the master.
const UNUSUAL: Duration = Duration::from_millis(500);

fn main() -> redlatch::Result<()> {
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| "redis+sentinel://127.0.0.1:26379/mymaster".to_owned());
    let client = Client::builder(&url)
        .app_name("example-sentinel")
        // Longer than sentinels need, which wait for `down-after-milliseconds` first: calls ride a failover out.
        .outage_budget(Duration::from_secs(60))
        .on_lost(|lost| println!("told: {lost}"))
        .build()?;
    let locks = RedisRedLock::new(&client);

    let kept = locks.guard(KEPT)?;
    println!("holds {KEPT}");
    let mut left = STEPS;
    while left > 0 {
        let took = take(&locks)?;
        left -= 1;
        if took > UNUSUAL {
            println!("taking {TAKEN} took {took:.1?}: the master was replaced");
            left = STEPS_AFTER;
        }
        sleep(STEP);
    }
    println!("{KEPT} is {:?}", kept.state());
    done(kept.unlock())
}

/// Takes the lock and gives it up; how long that took. Either of the two calls may be the one that meets the failover.
fn take(locks: &RedisRedLock) -> redlatch::Result<Duration> {
    let start = Instant::now();
    done(locks.guard(TAKEN)?.unlock())?;
    Ok(start.elapsed())
}

/// What a failover may do to a lock, its program has to bear.
fn done(unlocked: redlatch::Result<()>) -> redlatch::Result<()> {
    match unlocked {
        Err(error @ (Error::Lost { .. } | Error::OutcomeUnknown { .. })) => println!("the unlock says: {error}"),
        other => other?,
    }
    Ok(())
}
