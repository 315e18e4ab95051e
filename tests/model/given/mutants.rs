//! Each rule of giving, broken once: the search must find what it was there to prevent.

use super::client::{Given, Mutant, Setup};
use super::search::{ALIVE, Action, BASE, LAST, OFFER, OWNED, STUCK, WANTED, search};
use super::state::Limits;
use stateright::{Checker, Path};
use std::time::Instant;

/// One that has the lock, and one that waits.
const ALONE: Setup = Setup { clients: &[(0, 0), (1, 3)], ..BASE };

/// It gives up.
const LEAVES: Setup = Setup { limits: Limits { leaves: 1, ..BASE.limits }, ..ALONE };

/// It asks once, and is not answered.
const UNANSWERED: Setup = Setup { clients: &[(0, 0), (1, 1)], limits: Limits { breaks: 1, ..BASE.limits }, ..BASE };

/// A mutant, the bounds within which it is found, and what it breaks.
const MUTANTS: [(Mutant, Setup, &str); 10] = [
    (Mutant::BelievesWhenTold, ALONE, OWNED),
    (Mutant::BelievesAnyNumber, BASE, OWNED),
    (Mutant::LeavesOnly, LEAVES, WANTED),
    (Mutant::ReleasesFirst, LEAVES, WANTED),
    (Mutant::ReleasesFirst, UNANSWERED, WANTED),
    (Mutant::KeepsTheTicket, ALONE, WANTED),
    (Mutant::KeepsThePlace, ALONE, LAST),
    (Mutant::TellsNobody, BASE, STUCK),
    (Mutant::GivesToTheDead, Setup { limits: Limits { deaths: 1, ..BASE.limits }, ..ALONE }, ALIVE),
    (Mutant::GivesALease, ALONE, OFFER),
];

/// The shortest way to a violation. A search goes on for some states when it has found one, and keeps the last.
fn shortest(given: Given, broken: &'static str) -> Option<Vec<Action>> {
    let find = |deepest| search(given, 1, deepest).discovery(broken).map(Path::into_actions);
    let mut found = find(0)?;
    // The state at the beginning has depth one.
    while let Some(shorter) = find(found.len() + 1) {
        found = shorter;
    }
    Some(found)
}

#[test]
fn every_broken_rule_of_giving_is_found() {
    for (mutant, setup, broken) in MUTANTS {
        let started = Instant::now();
        let found = shortest(Given { setup, mutant: Some(mutant) }, broken);
        let found = found.unwrap_or_else(|| panic!("{mutant:?}: {broken:?} was not refuted"));
        let (steps, seconds) = (found.len(), started.elapsed().as_secs_f64());
        println!("given, {mutant:?}: {broken:?} is broken in {steps} steps, {seconds:.1} s: {found:?}");
    }
}
