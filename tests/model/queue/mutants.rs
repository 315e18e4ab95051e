//! Each rule of the queue, broken once: the search must find what it was there to prevent.

use super::bounds::{BASE, DEAF, FOREIGN, PACED, STOPS, comes, search, within};
use super::client::{Crowd, Mutant, Setup};
use super::search::{ALIVE, Action, FIRST, GONE, LAST, LEFT, OFFER, OWNED, SERVED, STUCK, WANTED};
use super::state::Limits;
use stateright::{Checker, HasDiscoveries, Path};
use std::time::Instant;

/// One that has the lock, and one that waits.
const ALONE: Setup = Setup { clients: &[comes(0, 0), comes(1, 3)], ..BASE };

/// It gives up.
const LEAVES: Setup = Setup { limits: Limits { leaves: 1, ..BASE.limits }, ..ALONE };

/// It asks once, and is not answered.
const UNANSWERED: Setup =
    Setup { clients: &[comes(0, 0), comes(1, 1)], limits: Limits { breaks: 1, ..BASE.limits }, ..BASE };

/// A release that gives to nobody.
const FREED: Setup = Setup { limits: Limits { to_all: 1, ..BASE.limits }, ..BASE };

/// It is freed by one who knows of no company, and some die.
const fn dying(deaths: u8) -> Limits {
    Limits { deaths, plain: 1, ..BASE.limits }
}

/// A first lease that is much longer than an offer.
const LONG: Setup = Setup { lease: 9, end: 12, ..PACED };

/// A mutant, the bounds within which it is found, and what it breaks.
const MUTANTS: [(Mutant, Setup, &str); 21] = [
    (Mutant::BelievesWhenTold, ALONE, OWNED),
    (Mutant::BelievesAnyName, BASE, OWNED),
    (Mutant::TellsFirst, Setup { limits: Limits { failures: 1, ..BASE.limits }, ..ALONE }, OWNED),
    (Mutant::LeavesOnly, LEAVES, WANTED),
    (Mutant::ReleasesFirst, LEAVES, WANTED),
    (Mutant::ReleasesFirst, UNANSWERED, WANTED),
    (Mutant::LastStays, LEAVES, WANTED),
    (Mutant::KeepsTheTicket, ALONE, WANTED),
    (Mutant::JoinsWhenGiven, Setup { limits: dying(1), ..BASE }, WANTED),
    (Mutant::KeepsThePlace, ALONE, LAST),
    (Mutant::TakesPastTheFirst, FREED, FIRST),
    (Mutant::IgnoresTheMark, Setup { limits: FOREIGN, ..ALONE }, LEFT),
    (Mutant::TellsNobody, BASE, STUCK),
    (Mutant::GivesToTheDead, Setup { limits: Limits { deaths: 1, ..BASE.limits }, ..ALONE }, ALIVE),
    (Mutant::GivesToTheDead, Setup { limits: dying(1), ..BASE }, ALIVE),
    (Mutant::GivesALease, ALONE, OFFER),
    (Mutant::AskGivesNothing, Setup { limits: dying(1), ..BASE }, STUCK),
    (Mutant::MarkNeverEnds, within(7, PACED, FOREIGN), SERVED),
    (Mutant::LooksAtTheEnd, within(6, LONG, STOPS), SERVED),
    (Mutant::PollsUnheard, within(5, DEAF, BASE.limits), SERVED),
    (Mutant::QueueNeverEnds, within(6, Setup { lease: 3, ..PACED }, dying(2)), GONE),
];

/// The shortest way to a violation. A search goes on for some states when it has found one, and keeps the last.
fn shortest(crowd: Crowd, broken: &'static str) -> Option<Vec<Action>> {
    let find = |deepest| {
        search(crowd, HasDiscoveries::AllOf([broken].into()), deepest).discovery(broken).map(Path::into_actions)
    };
    let mut found = find(0)?;
    // The state at the beginning has depth one.
    while let Some(shorter) = find(found.len() + 1) {
        found = shorter;
    }
    Some(found)
}

#[test]
fn every_broken_rule_of_the_queue_is_found() {
    for (mutant, setup, broken) in MUTANTS {
        let started = Instant::now();
        let found = shortest(Crowd { setup, mutant: Some(mutant) }, broken);
        let found = found.unwrap_or_else(|| panic!("{mutant:?}: {broken:?} was not refuted"));
        let (steps, seconds) = (found.len(), started.elapsed().as_secs_f64());
        println!("queue, {mutant:?}: {broken:?} is broken in {steps} steps, {seconds:.1} s: {found:?}");
    }
}

/// Whoever waits beside a lock that is free was told so, or has a timer: docs/model.md.
const NOT_FOUND: [(Mutant, Setup); 3] = [
    (Mutant::LeaveGivesNothing, Setup { limits: Limits { to_all: 1, leaves: 1, ..BASE.limits }, ..BASE }),
    (Mutant::LeaveGivesNothing, within(4, PACED, Limits { to_all: 1, leaves: 1, ..BASE.limits })),
    (Mutant::LeaveGivesNothing, within(8, PACED, Limits { losses: 1, to_all: 1, leaves: 1, ..BASE.limits })),
];

#[test]
fn a_leave_that_gives_nothing_is_not_found() {
    for (mutant, setup) in NOT_FOUND {
        search(Crowd { setup, mutant: Some(mutant) }, HasDiscoveries::AnyFailures, 0).assert_properties();
    }
}
