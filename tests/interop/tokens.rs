//! Tokens that a JVM and this process mint by turns.

use crate::setting::{FOR_EVER, Family, Holder, Setting};
use crate::sides::{Java, Side};
use redlatch::{FencedLock, RedLockExt};

const COUNTER: &str = "redisson_lock_token:{n}";
const TURNS: usize = 20;

/// Each takes the lock once and gives it back: its token.
fn tokens(setting: &Setting) -> [u64; 2] {
    let java = Java(&setting.jvm, "main", "fenced.");
    let token = java.lock_and_get_token("n");
    java.unlock("n");
    [token, setting.locks.guard("n").unwrap().token().unwrap()]
}

/// Both mean the same counter by a name: Redisson counts on by one.
pub(crate) fn assert_shared(setting: &Setting, name: &str) {
    let ours = FencedLock::new(setting.locks.client()).guard(name).unwrap().token().unwrap();
    let java = Java(&setting.jvm, "main", "fenced.");
    let next = java.lock_and_get_token(name);
    java.unlock(name);
    assert_eq!(next, ours + 1, "{name}");
}

#[test]
fn tokens_grow_over_both_programs() {
    let setting = Setting::new(Family::FENCED, Holder::Rust, FOR_EVER);
    let mut all = vec![setting.locks.guard("n").unwrap().token().unwrap()];
    (0..TURNS).for_each(|_| all.extend(tokens(&setting)));
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    let java = Java(&setting.jvm, "main", "fenced.");
    let depths = [(); 3].map(|()| java.lock_and_get_token("n"));
    depths.iter().for_each(|_| _ = java.unlock("n"));
    let next = setting.locks.guard("n").unwrap().token().unwrap();
    assert!(depths.is_sorted() && depths[2] < next, "each level of a JVM has one: {depths:?}, {next}");
    setting.servers.news.ask::<i64>(&["DEL", COUNTER]);
    let [java, rust] = tokens(&setting);
    assert!((java, next < rust) == (1, true), "after a loss a JVM begins at 1: {java}, {rust}");
    assert!(tokens(&setting)[0] > rust);
    setting.record("tokens", &format!("{} by turns, each greater than the one before", all.len()));
}
