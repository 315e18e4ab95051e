//! Each rule of the fair queue, broken once: the search must find what it was there to prevent.

use super::bounds::{
    BASE, DEAD_JAVA, DEAF, EMPTY, FAR_BACK, JAVA, JAVA_HAS, LONG_JAVA, MIXED, NONE, PACED, TWO_JAVA, comes, java,
    search, within,
};
use super::client::{Crowd, Mutant, Setup, Spans};
use super::search::{AGREE, ALIVE, Action, GONE, KEPT, LAST, OFFER, ORDER, OWNED, SERVED, STUCK, TTL, WANTED};
use super::state::{End, Limits};
use stateright::{Checker, HasDiscoveries, Path};
use std::time::Instant;

/// One that has the lock, and one that waits.
const ALONE: Setup = Setup { clients: &[comes(0, 0), comes(1, 2)], ..BASE };

const LEAVES: Limits = Limits { leaves: 1, ..NONE };
const BREAKS: Limits = Limits { breaks: 1, ..NONE };
const DIES: Limits = Limits { deaths: 1, ..NONE };
const STOPS: Limits = Limits { stops: 1, ..NONE };

/// A first lease that is much longer than an offer.
const LONG: Setup = Setup { lease: 9, end: 12, ..PACED };

const fn with(limits: Limits, setup: Setup) -> Setup {
    Setup { limits, ..setup }
}

/// One that has the lock, and one of Redisson's.
const JAVA_WAITS: Setup = Setup { clients: &[comes(0, 0), java(1)], ..PACED };

/// One of Redisson's, and two of ours that come one after the other.
const BESIDE: Setup = Setup { clients: &[comes(0, 0), comes(1, 1), comes(1, 1), java(1)], ..BASE };

/// One of Redisson's has the lock, the first that waits gives up, and the second was told nothing.
const JAVA_LEFT: Setup = Setup { clients: &[java(0), comes(1, 1), comes(1, 2)], ..JAVA };

/// A thread waits for longer than it would for one of Redisson's that has died.
const TICKETLESS: Setup = with_wait(12, Setup { end: 16, ..PACED });

const fn with_wait(wait: End, setup: Setup) -> Setup {
    Setup { spans: Spans { wait, ..setup.spans }, ..setup }
}

/// A mutant, the bounds within which it is found, and what it breaks.
const MUTANTS: [(Mutant, Setup, &str); 38] = [
    (Mutant::BelievesWhenTold, ALONE, OWNED),
    (Mutant::BelievesAnyName, BASE, OWNED),
    (Mutant::TellsFirst, with(Limits { failures: 1, ..NONE }, ALONE), OWNED),
    (Mutant::LeavesOnly, with(LEAVES, ALONE), WANTED),
    (Mutant::ReleasesFirst, with(LEAVES, ALONE), WANTED),
    (Mutant::LastStays, with(LEAVES, ALONE), WANTED),
    (Mutant::KeepsThePlaceOfTheServed, ALONE, WANTED),
    (Mutant::KeepsTheTicket, ALONE, LAST),
    (Mutant::GivesALease, ALONE, OFFER),
    (Mutant::GivesToTheDead, with(DIES, ALONE), ALIVE),
    (Mutant::PollsUnheard, within(5, DEAF, NONE), SERVED),
    (Mutant::SkipsTheHead, BASE, ORDER),
    (Mutant::TakesPastTheFirst, with(DIES, Setup { lease: 2, ..BASE }), ORDER),
    (Mutant::TryOvertakes, with(Limits { tries: 1, ..DIES }, Setup { lease: 2, ..BASE }), ORDER),
    (Mutant::KeepsThePlace, with(BREAKS, BASE), ORDER),
    (Mutant::RenamesToTheEnd, with(BREAKS, BASE), ORDER),
    (Mutant::RenamesTwice, with(BREAKS, Setup { clients: &[comes(0, 0), comes(1, 3)], ..BASE }), AGREE),
    (Mutant::TakesNothingOver, with(BREAKS, BASE), ORDER),
    (Mutant::ServesWhatItTakesOver, with(BREAKS, BASE), ORDER),
    (Mutant::NeverMovesItsEnd, with_wait(1, ALONE), KEPT),
    (Mutant::CountsNoRedisson, within(8, with_wait(1, Setup { lease: 3, ..TWO_JAVA }), NONE), KEPT),
    (Mutant::EndsBeforeRedisson, within(8, LONG_JAVA, NONE), KEPT),
    (Mutant::LooksSeldomBehindRedisson, within(8, with_wait(3, Setup { lease: 2, ..TWO_JAVA }), NONE), KEPT),
    (Mutant::TakesTimeOff, BASE, KEPT),
    (Mutant::KeysEndTooSoon, with_wait(1, MIXED), KEPT),
    (Mutant::LooksAtOneTtl, with(LEAVES, BESIDE), TTL),
    (Mutant::QueueNeverEnds, ALONE, TTL),
    (Mutant::QueueNeverEnds, within(6, EMPTY, Limits { deaths: 2, ..NONE }), GONE),
    (Mutant::PurgesNobody, within(10, DEAD_JAVA, DIES), SERVED),
    (Mutant::TellsNoneOfThePast, within(4, FAR_BACK, NONE), SERVED),
    (Mutant::DropsInSilence, with(Limits { evictions: 1, ..LEAVES }, JAVA_LEFT), STUCK),
    (Mutant::KeepsItForTheTicketless, within(8, TICKETLESS, Limits { evictions: 1, ..DIES }), SERVED),
    (Mutant::HearsNoRedisson, within(4, JAVA_HAS, NONE), SERVED),
    (Mutant::HearsNoRedisson, JAVA, STUCK),
    (Mutant::ReleaseGivesNothing, within(2, JAVA_WAITS, NONE), SERVED),
    (Mutant::LeaveGivesNothing, with(LEAVES, JAVA), STUCK),
    (Mutant::TellsNobody, BASE, STUCK),
    (Mutant::LooksAtTheEnd, within(6, LONG, STOPS), SERVED),
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
fn every_broken_rule_of_the_fair_queue_is_found() {
    for (mutant, setup, broken) in MUTANTS {
        let started = Instant::now();
        let found = shortest(Crowd { setup, mutant: Some(mutant) }, broken);
        let found = found.unwrap_or_else(|| panic!("{mutant:?}: {broken:?} was not refuted"));
        let (steps, seconds) = (found.len(), started.elapsed().as_secs_f64());
        println!("fair, {mutant:?}: {broken:?} is broken in {steps} steps, {seconds:.1} s: {found:?}");
    }
}

/// A thread of Redisson's that waits for more than 5 minutes takes as much off the ends behind it. If the lock is held for longer than
/// `wait` meanwhile, that is too much: docs/model.md.
#[test]
fn who_waits_behind_a_longer_wait_of_redissons_may_lose_its_place() {
    let setup = within(8, with_wait(1, Setup { lease: 2, ..LONG_JAVA }), NONE);
    let found = shortest(Crowd { setup, mutant: None }, KEPT).expect("the place is lost");
    println!("fair: {KEPT:?} is broken in {} steps: {found:?}", found.len());
}
