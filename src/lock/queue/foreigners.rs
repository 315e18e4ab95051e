//! Others than clients of ours that listen to a lock's channel: JVMs that wait for it, or who never asks for it.
//!
//! They have no place in the queue, and the lock is not free while it is given from one process to the next. So a free lock is left to
//! them now and then, which is their turn: each time while they take it, and ever more seldom while they do not.

use crate::base::time::Moment;
use std::time::Duration;

/// What is known of the foreigners of one lock.
#[derive(Clone, Copy, Default)]
pub(super) struct Foreigners {
    /// When the turn was last left to them, or one of them was seen to have the lock.
    since: Option<Moment>,
    /// How often the turn was left to them since one of them was seen.
    unused: u32,
    /// So many of ours listened then: each of them leaves turns, and all together no more than one would.
    ours: u32,
    /// The last release in turn left it to them: the next is for the queue, so that they do not keep it waiting for ever.
    was_last: bool,
}

/// How long ours go on among themselves before the turn is left to foreigners who take it. A JVM that has the lock keeps
/// it for several turns of its threads, for it runs and ours have to wake.
const AMONG_OURS: Duration = Duration::from_millis(4);

/// The least time between two turns that were not used, four times as long with each of them, up to 1.6 s: what a
/// foreigner costs who only listens.
const AGAIN: Duration = Duration::from_millis(100);
const MOST_RAISED: u32 = 2;

/// More are not waited for.
const MOST_OURS: u32 = 1_000;

impl Foreigners {
    /// Whether the turn is to be left to them, if any listen.
    pub(super) fn are_due(&self, now: Moment) -> bool {
        !self.was_last && self.are_awaited(now)
    }

    /// Whether it is time to look for them.
    pub(super) fn are_awaited(&self, now: Moment) -> bool {
        let pause = match self.unused {
            0 => AMONG_OURS,
            unused => AGAIN * 4_u32.pow((unused - 1).min(MOST_RAISED)),
        };
        self.since.is_none_or(|since| now.since(since) >= pause * self.ours.max(1))
    }

    /// The turn was left to them, beside so many of ours.
    pub(super) fn note_left(&mut self, now: Moment, ours: i64) {
        (self.since, self.unused, self.was_last) = (Some(now), self.unused.saturating_add(1), true);
        self.ours = u32::try_from(ours).unwrap_or(1).min(MOST_OURS);
    }

    /// Nobody was in the queue, whoever listens.
    pub(super) fn note_no_queue(&mut self, now: Moment) {
        (self.since, self.was_last) = (self.since.or(Some(now)), false);
    }

    /// The turn was left to the queue.
    pub(super) fn note_queue(&mut self) {
        self.was_last = false;
    }

    /// One of them has the lock.
    pub(super) fn note_hold(&mut self, now: Moment) {
        (self.since, self.unused) = (Some(now), 0);
    }

    /// Whether they take the turn that is left to them.
    pub(super) fn are_active(&self) -> bool {
        self.since.is_some() && self.unused <= 1
    }
}
