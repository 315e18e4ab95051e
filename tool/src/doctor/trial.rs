//! What locks do on these servers, tried on a key of its own.

use super::{Finding, Verdict, ms};
use crate::connect::Server;
use crate::out::Failed;
use redlatch::{Error, RedLock, RedLockExt, RedisRedLock};
use std::thread;
use std::time::{Duration, Instant};

/// So many pairs are timed.
const PAIRS: usize = 200;

/// What a pair may take before somebody should look, and before locks are of little use.
const SLOW: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];

/// A waiter that hears the unlock is woken far sooner.
const WOKEN: Duration = Duration::from_millis(500);

pub(super) fn findings(server: &Server) -> Vec<Finding> {
    // Two clients: those of one would pass a lock on in memory.
    let made = locks(server).and_then(|one| locks(server).map(|other| (one, other)));
    let (one, other) = match made {
        Ok(made) => made,
        Err(Failed { why, .. }) => return vec![Finding::bad("client", why, "mend the settings")],
    };
    let name = format!("redlatch-doctor:{}", one.client().id());
    match pairs(&one, &name) {
        Err(error) => vec![refused(&error)],
        Ok(times) => {
            vec![
                Finding::good("permissions", "this user may take and release locks"),
                speed(&times),
                hearing(&one, &other, &name),
            ]
        }
    }
}

fn locks(server: &Server) -> Result<RedisRedLock, Failed> {
    Ok(RedisRedLock::new(&server.builder("redlatch")?.build()?))
}

/// A NOPERM tells the words that grant what is missing.
fn refused(error: &Error) -> Finding {
    match error {
        Error::Refused { code, .. } if code == "NOPERM" => {
            Finding::bad("permissions", error.to_string(), "let the server's administrator run what the line says")
        }
        error => Finding::bad("locks", error.to_string(), "no lock could be taken"),
    }
}

fn pairs(locks: &RedisRedLock, name: &str) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::with_capacity(PAIRS);
    let end = Instant::now() + Duration::from_secs(10);
    while times.len() < PAIRS && Instant::now() < end {
        let began = Instant::now();
        locks.try_lock(name)?;
        locks.unlock(name)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

fn speed(times: &[Duration]) -> Finding {
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    let found = format!("a pair of lock and unlock takes {} (p50), {} (p99)", ms(at(50)), ms(at(99)));
    let advice = "the server is far away, busy or slow: look at its load, at SLOWLOG, and at the network";
    match SLOW.iter().filter(|most| at(50) > **most).count() {
        0 => Finding::good("speed", found),
        1 => Finding::mind("speed", found, advice),
        _ => Finding::bad("speed", found, advice),
    }
}

/// Whether a waiter hears of an unlock.
fn hearing(one: &RedisRedLock, other: &RedisRedLock, name: &str) -> Finding {
    match woken(one, other, name) {
        Ok(None) => Finding::bad("pub/sub", "a waiter did not get a free lock within 8 s", "look at the log with -v"),
        Ok(Some(took)) if took < WOKEN => {
            Finding::good("pub/sub", format!("a waiter was woken {} after the unlock", ms(took)))
        }
        Ok(Some(took)) => Finding::mind(
            "pub/sub",
            format!("a waiter got the lock {} after the unlock", ms(took)),
            "it did not hear the message and looked by itself: grant this user the channels, and see the log with -v",
        ),
        Err(error) => Finding { verdict: Verdict::Bad, ..refused(&error) },
    }
}

/// How long after an unlock a thread that waits has the lock. `None`: it did not get it.
fn woken(one: &RedisRedLock, other: &RedisRedLock, name: &str) -> Result<Option<Duration>, Error> {
    let holder = one.guard(name)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            other.request(name).wait(Duration::from_secs(8)).guard().map(|guard| (guard.is_some(), Instant::now()))
        });
        thread::sleep(Duration::from_millis(300));
        let unlocked = Instant::now();
        holder.unlock()?;
        let (has_it, at) = waiter.join().expect("the waiter does not panic")?;
        Ok(has_it.then(|| at.saturating_duration_since(unlocked)))
    })
}
