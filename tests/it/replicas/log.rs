//! What switches look like in the log, as `docs/on-call.md` says it.

use super::{group, patient};
use crate::process::alone;
use crate::sentinel::log::{keep_lines, line_with};
use crate::threads::{LONG, eventually};
use redlatch::RedLockExt;

#[track_caller]
fn eventually_told(words: &str) -> usize {
    eventually(LONG, words, || line_with(words).is_some());
    line_with(words).unwrap()
}

#[test]
fn masters_that_are_left_and_followed_are_told() {
    alone(|| {
        keep_lines();
        let group = group();
        let locks = patient(&group);
        drop(locks.guard("n").unwrap());
        let [first, second] = [0, 1].map(|number| group.nodes[number].address());
        group.nodes[1].promote();
        let unused = format!("{first} is not used as the master any more: {first} and {second} say");
        let left = eventually_told(&unused);
        group.nodes[1].demote(&group.nodes[0]);
        let again = eventually_told(&format!("{first} is the only master of {first},{second},"));
        assert!(left < again && line_with("has a new master").is_none());
        group.nodes[0].demote(&group.nodes[1]);
        eventually_told(&format!("{first} is not used as the master any more: it says that it is a replica"));
        group.nodes[1].promote();
        eventually_told(&format!("has a new master, {second}, in place of {first}: every lock is asked for there"));
    });
}
