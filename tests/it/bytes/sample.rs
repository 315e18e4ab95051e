//! Which cases of a long sweep a run takes.

use std::hash::{BuildHasher, RandomState};

/// `all`, or a seed.
const VARIABLE: &str = "REDLATCH_SWEEP";

/// Of so many cases a run takes one. Not a multiple of the number of faults, so that it takes each of them.
const EACH: u64 = 8;

/// Says of one case after the other whether this run takes it.
pub(super) fn of_this_run() -> impl FnMut() -> bool {
    let chosen = std::env::var(VARIABLE).unwrap_or_else(|_| RandomState::new().hash_one(()).to_string());
    println!("this is a run with {VARIABLE}={chosen}");
    let start = start(&chosen);
    let mut number = 0;
    move || {
        number += 1;
        start.is_none_or(|start| number % EACH == start)
    }
}

/// The first case of those that are taken; `None` if all are.
fn start(chosen: &str) -> Option<u64> {
    let seed = || chosen.parse::<u64>().unwrap_or_else(|_| panic!("{VARIABLE}={chosen} is neither all nor a number"));
    (chosen != "all").then(|| seed() % EACH)
}

#[test]
fn the_seeds_take_every_case_between_them_and_all_takes_each() {
    let taken = |chosen| (0..50).filter(move |number| start(chosen).is_none_or(|start| number % EACH == start));
    let mut by_seeds: Vec<_> = ["0", "1", "2", "3", "4", "5", "6", "15"].into_iter().flat_map(taken).collect();
    by_seeds.sort_unstable();
    assert_eq!(by_seeds, (0..50).collect::<Vec<_>>());
    assert_eq!(taken("all").count(), 50);
}
