//! Who holds a lock: one identity per acquire, never used again.

use crate::mutant::{self, Mutant};
use std::fmt::Write;
use uuid::Uuid;

/// Makes owner ids: `<client uuid>:<thread number>:<hold number>`.
///
/// Why not per thread, as Redisson does: a release or acquire that timed out can still be executed later by a
/// server that was stopped, and with a per-thread identity it frees a *later* hold of the same thread
/// (docs/protocol.md, 2). With one per acquire every script is idempotent and late copies are harmless.
#[derive(Debug)]
pub(crate) struct Owners {
    client: String,
    next: std::sync::atomic::AtomicU64,
}

impl Owners {
    pub(crate) fn new(client: Uuid) -> Self {
        Self { client: client.to_string(), next: std::sync::atomic::AtomicU64::new(1) }
    }

    /// A new owner id for the thread with this number.
    pub(crate) fn mint(&self, thread: u64) -> String {
        if mutant::is(Mutant::OwnerPerThread) {
            return format!("{}:{thread}", self.client);
        }
        let hold = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut owner = String::with_capacity(self.client.len() + 42);
        let _ = write!(owner, "{}:{thread}:{hold}", self.client);
        owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acquire_has_its_own_id() {
        let owners = Owners::new(Uuid::nil());
        assert_eq!(owners.mint(7), "00000000-0000-0000-0000-000000000000:7:1");
        assert_eq!(owners.mint(7), "00000000-0000-0000-0000-000000000000:7:2");
    }
}
