//! Asks the clients who waits, on a thread of its own: an answer may take half a second, and the screen waits for none.

use super::SHARE;
use crate::census::{Wait, Waits};
use redlatch::Error;
use redlatch::inspect::{Inspector, Sight};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The clients are asked again after so long.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// What the clients told last.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<Told>>);

/// Who waits. Nothing: no client has been asked yet, or the last question failed.
#[derive(Clone, Default)]
pub(super) struct Told(Option<Arc<Waits>>);

impl Board {
    pub(super) fn waits(&self) -> Told {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, told: Option<Waits>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Told(told.map(Arc::new));
    }
}

impl Told {
    pub(super) fn are_told(&self) -> bool {
        self.0.is_some()
    }

    /// How many wait: the threads that are told, or what the server counts if that is more, as clients may be silent.
    pub(super) fn count(&self, sight: &Sight) -> usize {
        self.at(sight).len().max(sight.waiting())
    }

    /// When the oldest wait began.
    pub(super) fn oldest(&self, sight: &Sight) -> Option<SystemTime> {
        self.at(sight).first().map(|wait| wait.claim.since)
    }

    fn at(&self, sight: &Sight) -> &[Wait] {
        self.0.as_ref().map_or(&[], |waits| waits.at(&sight.name))
    }
}

/// Asks until the program ends, for at most a tenth of the time. A user who may not ask is refused once.
pub(super) fn start(inspector: Inspector, board: Board) {
    thread::spawn(move || {
        loop {
            let began = Instant::now();
            let census = inspector.census();
            // A failover refuses for a moment. Who may not ask is refused for good.
            let is_in_vain = matches!(&census, Err(error @ Error::Refused { .. }) if !error.is_retryable());
            board.set(census.ok().map(Waits::of));
            if is_in_vain {
                return;
            }
            thread::sleep(ASKED_EVERY.max(began.elapsed() * SHARE).saturating_sub(began.elapsed()));
        }
    });
}
