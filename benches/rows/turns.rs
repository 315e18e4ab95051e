//! Threads that contend for one lock.

use crate::support::turns::{Turn, spin};
use crate::support::{Outcome, monotonic, sleep_until};
use redlatch::{RedLock, ReentrantLock};
use std::thread::scope;
use std::time::Duration;

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
        sleep_until(start);
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
