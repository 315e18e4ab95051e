//! Each rule of the queue, broken once: the search must find what it was there to prevent. Where two rules work against
//! the same evil, one is found only where the other is broken too.

use super::bounds::{NONE, ONCE, THREE, TWO, is_large, search, search_for_ever};
use super::search::{ALIVE, EAR, GONE, HEAD, IDLE, KNOWN, ONE, ORDER, SERVED, STUCK, TOLD};
use super::{Crowd, Limits, Mutant, Setup};
use stateright::HasDiscoveries;
use std::time::Instant;

const STOPS: Limits = Limits { stops: 1, ..NONE };
const DEATHS: Limits = Limits { deaths: 1, ..NONE };

/// Mutants, the bounds within which they are found, and what they break.
type Refuted = (&'static [Mutant], Setup, &'static str);

const SMALL: [Refuted; 21] = [
    (&[Mutant::TurnIsHold], Setup { foreign: 1, ..TWO }, ONE),
    (&[Mutant::HeadNeverAsks], TWO, IDLE),
    (&[Mutant::MarkNeverEnds], Setup { comes: Some(2), limits: STOPS, ..TWO }, SERVED),
    (&[Mutant::DeadNeverSkipped], Setup { limits: DEATHS, ..ONCE }, EAR),
    (&[Mutant::DeadSkippedOnly], Setup { limits: DEATHS, ..ONCE }, HEAD),
    (&[Mutant::CountsSubscribers], Setup { foreign: 1, prompt: true, limits: DEATHS, ..ONCE }, TOLD),
    (&[Mutant::JoinsUnconfirmed], TWO, ALIVE),
    (&[Mutant::LeavesThoseBefore], Setup { prompt: true, limits: STOPS, ..TWO }, GONE),
    (&[Mutant::SkippedUntold], Setup { prompt: true, comes: Some(2), limits: DEATHS, ..ONCE }, KNOWN),
    (&[Mutant::LeavesSilently], Setup { limits: Limits { leaves: 1, ..NONE }, ..ONCE }, IDLE),
    (&[Mutant::RefusedBeforeJoin], Setup { foreign: 2, ..TWO }, IDLE),
    (&[Mutant::PassesTheQueue], THREE, ORDER),
    (&[Mutant::JudgesByOldRank], Setup { foreign: 1, ..TWO }, IDLE),
    (&[Mutant::YieldsAgain], Setup { foreign: 1, yields: true, prompt: true, ..TWO }, SERVED),
    (&[Mutant::ForgetsInHold, Mutant::PassesTheQueue], TWO, SERVED),
    (&[Mutant::BystanderIsMember], Setup { bystanders: 1, clients: 2, ..ONCE }, TOLD),
    (&[Mutant::TurnNeverEnds], Setup { turns: true, ..TWO }, SERVED),
    (&[Mutant::TurnBeginsAnew], Setup { turns: true, ..TWO }, SERVED),
    (&[Mutant::NotArmed], Setup { limits: STOPS, ..ONCE }, STUCK),
    (&[Mutant::HeadNotArmed], Setup { limits: Limits { stops: 1, breaks: 1, ..NONE }, ..ONCE }, STUCK),
    (&[Mutant::ArmedOnce], Setup { limits: STOPS, ..ONCE }, STUCK),
];

/// Found by hand only: for these there must be many more states.
const LARGE: [Refuted; 1] = [(&[Mutant::PassesTheQueue], Setup { limits: STOPS, ..THREE }, SERVED)];

/// It takes more than this rule to break what is promised: docs/model.md.
const BEYOND: [Refuted; 3] = [
    (&[Mutant::ForgetsInHold], TWO, SERVED),
    (&[Mutant::LeavesItsPlace], Setup { turns: true, ..TWO }, GONE),
    (&[Mutant::KeepsStrangeTickets], Setup { lingers: true, limits: GHOST, clients: 2, ..ONCE }, GONE),
];

/// An ask without an answer, whose late copy joins after the leave.
const GHOST: Limits = Limits { leaves: 1, lost: 1, ..NONE };

/// Whether a property is broken, among how many states.
fn is_broken(property: &'static str, crowd: Crowd) -> (bool, usize) {
    let for_ever = [SERVED, GONE].contains(&property);
    let until = HasDiscoveries::AllOf([property].into());
    let found = if for_ever { search_for_ever(crowd) } else { search(crowd, 1, until) };
    (found.broken.iter().any(|(name, _)| *name == property), found.states)
}

fn assert_refuted((mutants, setup, property): Refuted) {
    let started = Instant::now();
    let (broken, states) = is_broken(property, Crowd { setup, mutants });
    assert!(broken, "{mutants:?} was not refuted by {property:?}");
    println!("{mutants:?}: {property:?} is broken, {states} states, {:.2} s", started.elapsed().as_secs_f64());
}

fn assert_holds((mutants, setup, property): Refuted) {
    let (broken, _) = is_broken(property, Crowd { setup, mutants });
    assert!(!broken, "{mutants:?} is refuted by {property:?}");
}

#[test]
fn every_broken_rule_of_the_queue_is_found() {
    for (mutants, setup, property) in SMALL {
        assert_refuted((mutants, setup, property));
        assert_holds((&[], setup, property));
    }
    LARGE.into_iter().filter(|_| is_large()).for_each(assert_refuted);
}

#[test]
fn what_takes_two_broken_rules_is_known() {
    BEYOND.into_iter().for_each(assert_holds);
}
