//! The token of a tenure: what a resource tells its holders apart by.

use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A number that is greater than that of each tenure of this lock before; zero: there is none.
#[derive(Debug, Default)]
pub(crate) struct Token(AtomicU64);

/// The next one of locks in memory: one count for all of them, so that it grows for each.
static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

impl Token {
    /// A store gave it.
    pub(crate) fn note(&self, token: u64) {
        self.0.store(token, SeqCst);
    }

    /// This process gives it.
    pub(crate) fn mint(&self) {
        self.note(NEXT.fetch_add(1, SeqCst));
    }

    /// Its tenure is passed on, and each hold has a token of its own. One that a store gave is never passed on.
    pub(crate) fn pass_on(&self) {
        if self.get().is_some() {
            self.mint();
        }
    }

    pub(crate) fn get(&self) -> Option<u64> {
        let token = self.0.load(SeqCst);
        (token != 0).then_some(token)
    }
}
