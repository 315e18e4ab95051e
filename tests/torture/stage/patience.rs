//! What comes about by itself is waited for, but not for ever.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than servers take for anything: sentinels wait for 6 s between two failovers.
const PATIENCE: Duration = Duration::from_secs(40);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Why what is left of the round says nothing.
#[derive(Default, Clone)]
pub(super) struct Broken(pub(super) Option<String>);

impl Broken {
    pub(super) fn is_so(&self) -> bool {
        self.0.is_some()
    }

    /// The first reason counts.
    pub(super) fn note(&mut self, why: &str) {
        self.0.get_or_insert_with(|| why.to_owned());
    }

    /// `None`, and the round is broken.
    pub(super) fn wait<T>(&mut self, what: &str, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        let end = Instant::now() + PATIENCE;
        while !self.is_so() {
            if let Some(found) = find() {
                return Some(found);
            }
            if Instant::now() > end {
                self.note(&format!("not within {PATIENCE:?}: {what}"));
            }
            sleep(LOOK);
        }
        None
    }
}
