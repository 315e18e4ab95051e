//! Who holds a lock: one identity per acquire, never used again.

use crate::base::mutant::{self, Mutant};
use arrayvec::ArrayString;
use uuid::Uuid;

/// The text of one owner id. The longest is a UUID and two numbers of 20 digits.
pub(crate) type OwnerId = ArrayString<78>;

/// Makes owner ids: `<client uuid>:<thread number>:<hold number>`.
///
/// Why not one id per thread, as in Redisson? A stopped server may execute a timed-out release or acquire later. With an id per thread that
/// frees a *later* hold of the same thread (docs/protocol.md, 2). With an id per acquire every script is idempotent, and late copies are
/// harmless.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The start of all ids.
    client: OwnerId,
    next: std::sync::atomic::AtomicU64,
}

impl Owners {
    pub(crate) fn new(client: Uuid) -> Self {
        let mut owner = OwnerId::new();
        owner.push_str(client.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        Self { client: owner, next: std::sync::atomic::AtomicU64::new(1) }
    }

    /// A new owner id for the thread with this number.
    pub(crate) fn mint(&self, thread: u64) -> OwnerId {
        let mut owner = self.client;
        append(&mut owner, thread);
        if !mutant::is(Mutant::OwnerPerThread) {
            append(&mut owner, self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
        owner
    }
}

fn append(owner: &mut OwnerId, number: u64) {
    owner.push(':');
    owner.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acquire_has_its_own_id() {
        let owners = Owners::new(Uuid::nil());
        assert_eq!(&owners.mint(7), "00000000-0000-0000-0000-000000000000:7:1");
        assert_eq!(&owners.mint(7), "00000000-0000-0000-0000-000000000000:7:2");
    }

    #[test]
    fn the_longest_id_has_room() {
        let owners = Owners { next: u64::MAX.into(), ..Owners::new(Uuid::max()) };
        let expected = "ffffffff-ffff-ffff-ffff-ffffffffffff:18446744073709551615:18446744073709551615";
        assert_eq!(&owners.mint(u64::MAX), expected);
    }
}
