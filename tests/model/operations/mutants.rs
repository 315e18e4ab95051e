//! Each rule of operations, broken once: the search must find what it was there to prevent.

use super::{BASE, Mutant, NEVER_MORE, NONE_LOST, Operations, search};

/// A mutant, how many permits there are, and what it breaks.
const REFUTED: [(Mutant, i8, &str); 9] = [
    (Mutant::EachAttemptCounts, 1, NEVER_MORE),
    (Mutant::UndoesTooEarly, 1, NONE_LOST),
    (Mutant::NeverUndoes, 1, NONE_LOST),
    (Mutant::KeepsTheLane, 2, NONE_LOST),
    (Mutant::ForgetsTooEarly, 1, NONE_LOST),
    (Mutant::GivesAnew, 1, NEVER_MORE),
    (Mutant::NoDeadline, 1, NONE_LOST),
    (Mutant::ForgetsNumbers, 1, NONE_LOST),
    (Mutant::GoesOnForEver, 1, NEVER_MORE),
];

#[test]
fn every_broken_rule_of_operations_is_found() {
    for (mutant, total, broken) in REFUTED {
        let (states, found) = search(Operations { mutant: Some(mutant), total, ..BASE });
        assert!(found.iter().any(|found| found.starts_with(broken)), "{mutant:?} is not refuted: {found:?}");
        println!("operations, {mutant:?}: {broken:?} is broken, found in {states} states");
    }
}
