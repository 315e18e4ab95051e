//! Who had a contended lock and when: noted by the contenders, passed on by their processes, and what it tells.

use super::{Samples, monotonic};
use std::io::Write;
use std::time::Duration;

pub(crate) const MILLI: f64 = 1_000_000.0;

/// One thread's turn with the lock; points in time by [`monotonic`].
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) thread: usize,
    pub(crate) asked: i64,
    pub(crate) held: i64,
    /// Right before the unlock.
    pub(crate) left: i64,
}

/// A turn and its process.
pub(crate) type Owned = (usize, Turn);

/// Four integers of 64 bits a turn, little-endian.
pub(crate) fn write(turns: &[Turn], to: &mut impl Write) -> std::io::Result<()> {
    let numbers =
        turns.iter().flat_map(|turn| [i64::try_from(turn.thread).unwrap_or(0), turn.asked, turn.held, turn.left]);
    let bytes: Vec<u8> = numbers.flat_map(i64::to_le_bytes).collect();
    to.write_all(&bytes)
}

/// What [`write`] wrote.
pub(crate) fn read(bytes: &[u8]) -> impl Iterator<Item = Turn> {
    let (numbers, _) = bytes.as_chunks::<8>();
    let (turns, _) = numbers.as_chunks::<4>();
    turns.iter().map(|turn| turn.map(i64::from_le_bytes)).map(|[thread, asked, held, left]| Turn {
        thread: usize::try_from(thread).unwrap_or(0),
        asked,
        held,
        left,
    })
}

/// Works for so long; when it is done.
pub(crate) fn spin(from: i64, work: Duration) -> i64 {
    let end = from + i64::try_from(work.as_nanos()).unwrap_or(i64::MAX);
    loop {
        let now = monotonic();
        if now >= end {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// From the release being sent to the next acquire being known, where that is of another process.
pub(crate) fn hand_offs(turns: &[Owned]) -> Samples {
    let others = turns.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    others.map(|pair| (pair[1].1.held - pair[0].1.left) as f64).collect()
}

/// Jain's index of fairness of what each of `parts` got: 1 if all got the same, 1/n if one got all.
pub(crate) fn jain(parts: usize, owners: impl Iterator<Item = usize>) -> f64 {
    let mut counts = vec![0.0; parts];
    owners.for_each(|owner| counts[owner] += 1.0);
    let (sum, squares): (f64, f64) = (counts.iter().sum(), counts.iter().map(|count| count * count).sum());
    sum * sum / (parts as f64 * squares)
}
