//! Slots of a cluster: each key is in one of them, by its name alone, and each slot is on one server.

use crc::{CRC_16_XMODEM, Crc};
use once_cell::sync::OnceCell;

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key, or of a channel of sharded pub/sub.
pub(crate) fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    CRC.checksum(hashed(key.as_ref())) % SLOTS
}

/// Whether a part of the key, its tag, decides its slot.
pub(crate) fn has_tag(key: &str) -> bool {
    tag_in(key.as_bytes()).is_some()
}

/// The text between the first `{` and the next `}`, unless it is empty.
fn tag_in(key: &[u8]) -> Option<&[u8]> {
    let behind = key.splitn(2, |byte| *byte == b'{').nth(1)?;
    let tag = &behind[..behind.iter().position(|byte| *byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

/// The part of a key that decides its slot.
fn hashed(key: &[u8]) -> &[u8] {
    tag_in(key).unwrap_or(key)
}

/// A short text whose slot is this one, always the same.
pub(crate) fn tag_of(slot: u16) -> &'static str {
    static TAGS: OnceCell<Vec<String>> = OnceCell::new();
    &TAGS.get_or_init(tags)[usize::from(slot % SLOTS)]
}

/// For each slot the first hexadecimal number in it. The last one is among the first 160,000 or so.
fn tags() -> Vec<String> {
    let mut tags = vec![String::new(); usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        let text = format!("{number:x}");
        let tag = &mut tags[usize::from(slot_of(&text))];
        if tag.is_empty() {
            (*tag, missing) = (text, missing - 1);
        }
        if missing == 0 {
            break;
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: the cluster specification, and `CLUSTER KEYSLOT` of Redis 7.0.15.
    #[test]
    fn slots_are_those_of_servers() {
        let known = [("123456789", 12_739), ("foo", 12_182), ("", 0), ("a{foo}b", 12_182), ("{}foo", 9_500)];
        for (key, slot) in known {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"), "the first brace begins the tag");
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_ne!(slot_of("a{b"), slot_of("b"));
    }

    #[test]
    fn each_slot_has_a_short_tag() {
        for slot in 0..SLOTS {
            let tag = tag_of(slot);
            assert!(slot_of(tag) == slot && (1..=6).contains(&tag.len()), "{slot}: {tag}");
        }
    }
}
