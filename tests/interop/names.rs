//! Both programs mean the same key and the same channel by a name: braces, other characters, a prefix.

use crate::setting::{FOR_EVER, Family, Holder, Kind, Setting};
use crate::threads::LONG;
use crate::tokens;
use std::time::Duration;

/// Braces make a cluster slot of a part of the name; Redisson wraps a name in its channel only if it has none.
const NAMES: [&str; 9] =
    ["order:42", "{order}:42", "order:{42}", "{order}", "a{b", "a}b", "{}", "with space: \"'*?[x]\\", "schloß/注文/🔒"];

/// In a cluster Redisson cannot unlock those that have braces but no tag.
const IN_A_CLUSTER: [&str; 7] =
    ["order:42", "{order}:42", "order:{42}", "{order}", "{a}b", "with space: \"'*?[x]\\", "schloß/注文/🔒"];

everywhere!(any_name_is_the_same_lock);
both_ways!(a_prefix_is_the_same_lock);

fn any_name_is_the_same_lock(family: Family, holder: Holder) {
    let setting = Setting::new(family, holder, FOR_EVER);
    let names = known_to(family);
    for name in names {
        assert_shared(&setting, name, name);
    }
    setting.record("names", &format!("{} with braces, spaces and beyond ASCII", names.len()));
}

/// Those that both programs can use.
pub(crate) fn known_to(family: Family) -> &'static [&'static str] {
    if family.is_in_cluster() { &IN_A_CLUSTER } else { &NAMES }
}

/// Redisson's `NameMapper`, and what a program puts before the names of a Jedis lock.
fn a_prefix_is_the_same_lock(family: Family, holder: Holder) {
    let prefixes = ["shop:", "{shop}:"];
    for prefix in prefixes {
        let setting = Setting::with_prefix(family, holder, FOR_EVER, prefix);
        for name in ["order:42", "order:{42}"] {
            assert_shared(&setting, name, &[prefix, name].concat());
        }
        if prefix == prefixes[1] {
            setting.record("prefix", "`shop:` and `{shop}:`, names without and with braces");
        }
    }
}

/// The one side keeps the other out by this key, and wakes it on the channel of this key. With Redisson fenced locks have one counter,
/// also where the other cases have none.
fn assert_shared(setting: &Setting, name: &str, key: &str) {
    let (holder, waiter) = setting.sides();
    holder.lock(name);
    assert_eq!(setting.servers.owner(key).1, 1);
    assert!(!waiter.try_lock(name, Duration::ZERO).0, "{name}: it got in");
    let wait = || {
        let span = waiter.lock(name);
        waiter.unlock(name);
        span
    };
    let (waited, freed) = setting.while_asleep(key, wait, || holder.unlock(name));
    let woken = waited.after(freed);
    assert!(woken < LONG, "{name}: not woken, it came in after {woken:?}");
    if setting.family != Family::JEDIS && setting.family.kind != Kind::ReadWrite {
        tokens::assert_shared(setting, name);
    }
}
