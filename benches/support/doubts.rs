//! Holds that are Suspect: how many, and for how long.

use super::monotonic;
use redlatch::{Hold, HoldState};

/// When each hold became Suspect, if it is.
pub(crate) struct Doubts {
    since: Vec<Option<i64>>,
    pub(crate) now: usize,
    pub(crate) most: usize,
    pub(crate) longest: i64,
    /// When one was seen last.
    pub(crate) last: i64,
}

impl Doubts {
    pub(crate) fn of(holds: usize, now: i64) -> Self {
        Self { since: vec![None; holds], now: 0, most: 0, longest: 0, last: now }
    }

    pub(crate) fn look(&mut self, holds: &[Hold]) {
        let now = monotonic();
        self.now = 0;
        for (hold, since) in holds.iter().zip(&mut self.since) {
            if hold.state() == HoldState::Suspect {
                self.longest = self.longest.max(now - *since.get_or_insert(now));
                (self.now, self.last) = (self.now + 1, now);
            } else {
                *since = None;
            }
        }
        self.most = self.most.max(self.now);
    }
}
