//! Each rule of quorums, broken once: the search must find what it was there to prevent.

use super::client::{Mutant, Redlock, Setup, Wait};
use super::search::{ALONE, Action, BASE, FENCED, FRESH, STALE, is_large, search};
use stateright::Checker;
use std::time::Instant;

/// Without a restart there is nothing to wait for.
const STEADY: Setup = Setup { restarts: 0, ..BASE };

/// The first client comes twice, and frees what it got first.
const TWICE: Setup = Setup { rounds: &[2, 1], unlocks: 1, end: 0, ..STEADY };

/// A mutant, the bounds within which it is found, and what it breaks.
const SMALL: [(Mutant, Setup, &str); 6] = [
    (Mutant::ValidFromReply, STEADY, ALONE),
    (Mutant::MinorityCounts, Setup { end: 0, ..STEADY }, ALONE),
    (Mutant::RoundsMixed, TWICE, ALONE),
    (Mutant::SameId, TWICE, ALONE),
    (Mutant::CountsOnly, FENCED, STALE),
    (Mutant::NeverCompares, Setup { restarts: 0, ..FENCED }, STALE),
];

/// Found by hand only: for this there must be many more states.
const LARGE: [(Mutant, Setup, &str); 1] =
    [(Mutant::SilenceConfirms, Setup { renewals: 1, breaks: 1, ..STEADY }, ALONE)];

/// The shortest way to a violation. A search goes on for some states when it has found one, and keeps the last.
fn shortest(redlock: Redlock, broken: &'static str) -> Option<Vec<Action>> {
    let find = |deepest| search(redlock, 1, deepest).discovery(broken).map(stateright::Path::into_actions);
    let mut found = find(0)?;
    // The state at the beginning has depth one.
    while let Some(shorter) = find(found.len() + 1) {
        found = shorter;
    }
    Some(found)
}

fn assert_refuted(setup: Setup, mutant: Option<Mutant>, broken: &'static str) {
    let started = Instant::now();
    let found = shortest(Redlock { setup, mutant }, broken);
    let found = found.unwrap_or_else(|| panic!("{mutant:?}, {:?}: {broken:?} was not refuted", setup.wait));
    let (steps, seconds) = (found.len(), started.elapsed().as_secs_f64());
    println!("redlock, {mutant:?}, {:?}: {broken:?} is broken in {steps} steps, {seconds:.1} s: {found:?}", setup.wait);
}

fn assert_holds(setup: Setup) {
    let found = search(Redlock { setup, mutant: None }, 1, 0);
    [ALONE, STALE, FRESH].into_iter().for_each(|never| found.assert_no_discovery(never));
}

#[test]
fn every_broken_rule_of_quorums_is_found() {
    let refuted: &[_] = if is_large() { &LARGE } else { &SMALL };
    for (mutant, setup, broken) in refuted {
        assert_refuted(*setup, Some(*mutant), broken);
        assert_holds(*setup);
    }
}

#[test]
fn a_master_that_waits_for_less_than_the_longest_lease_makes_two_believers() {
    for wait in [Wait::Nothing, Wait::Strict(1), Wait::Down(1)] {
        assert_refuted(Setup { wait, end: 1, ..BASE }, None, ALONE);
    }
}

/// What docs/protocol.md, 14.1, does not promise.
#[test]
fn a_clock_that_steps_back_does_harm_only_beside_a_restart() {
    assert_holds(Setup { restarts: 0, steps: 1, ..FENCED });
    assert_refuted(Setup { steps: 1, ..FENCED }, None, STALE);
}
