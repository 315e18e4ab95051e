//! Threads that contend for one lock, and what can be told from when each of them had it.

use crate::support::{Outcome, monotonic};
use redlatch::{RedLock, ReentrantLock};
use std::thread::scope;
use std::time::Duration;

/// One thread's turn with the lock; points in time by [`monotonic`].
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) thread: usize,
    pub(crate) asked: i64,
    pub(crate) held: i64,
    /// Right before the unlock.
    pub(crate) left: i64,
}

pub(crate) const MILLI: f64 = 1_000_000.0;

/// Has so many threads lock and unlock one name from `start` to `end`, with so much work inside.
pub(crate) fn contend(
    locks: &ReentrantLock,
    name: &str,
    threads: usize,
    (start, end): (i64, i64),
    work: Duration,
) -> Outcome<Vec<Turn>> {
    let run = |thread| -> redlatch::Result<Vec<Turn>> {
        let mut turns = Vec::new();
        std::thread::sleep(Duration::from_nanos(u64::try_from(start - monotonic()).unwrap_or(0)));
        let mut asked = monotonic();
        while asked < end {
            locks.lock(name)?;
            let held = monotonic();
            let left = if work.is_zero() { held } else { spin(held, work) };
            locks.unlock(name)?;
            turns.push(Turn { thread, asked, held, left });
            asked = monotonic();
        }
        Ok(turns)
    };
    let all = scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a contender panicked")).collect::<Vec<_>>()
    });
    let mut turns = Vec::new();
    for one in all {
        turns.extend(one??);
    }
    turns.sort_by_key(|turn| turn.held);
    Ok(turns)
}

/// Works for so long; when it is done.
fn spin(from: i64, work: Duration) -> i64 {
    let end = from + i64::try_from(work.as_nanos()).unwrap_or(i64::MAX);
    loop {
        let now = monotonic();
        if now >= end {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Jain's index of fairness of what each of `parts` got: 1 if all got the same, 1/n if one got all.
pub(crate) fn jain(parts: usize, owners: impl Iterator<Item = usize>) -> f64 {
    let mut counts = vec![0.0; parts];
    owners.for_each(|owner| counts[owner] += 1.0);
    let (sum, squares): (f64, f64) = (counts.iter().sum(), counts.iter().map(|count| count * count).sum());
    sum * sum / (parts as f64 * squares)
}
