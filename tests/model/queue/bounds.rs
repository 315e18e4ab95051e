//! The searches of the queue as it is.

use super::client::{Comer, Crowd, Pace, Setup};
use super::search::SERVED;
use super::state::Limits;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

pub(super) const NONE: Limits = Limits {
    breaks: 0,
    renewals: 0,
    leaves: 0,
    stops: 0,
    deaths: 0,
    twice: 0,
    losses: 0,
    to_all: 0,
    plain: 0,
    newcomers: 0,
    foreign: 0,
    yields: 0,
    failures: 0,
};

/// One that believes what it is told.
pub(super) const fn comes(waits: u8, asks: u8) -> Comer {
    Comer { waits, asks, believes: true, polls: false }
}

/// One that asks whatever it is told.
pub(super) const fn doubts(waits: u8, asks: u8) -> Comer {
    Comer { believes: false, ..comes(waits, asks) }
}

/// One that hears nothing.
pub(super) const fn polls(waits: u8, asks: u8) -> Comer {
    Comer { polls: true, ..doubts(waits, asks) }
}

/// One that has the lock, and two that wait for it, of which the first may ask again.
pub(super) const BASE: Setup = Setup {
    clients: &[comes(0, 0), comes(1, 3), doubts(1, 1)],
    lease: 3,
    offer: 2,
    left: 1,
    response: 1,
    end: 2,
    pace: None,
    limits: NONE,
};

/// What is explored by hand: docs/model.md. The second may ask again, too, and there are twice as many ticks.
const LARGER: Setup = Setup { clients: &[comes(0, 0), comes(1, 3), doubts(1, 2)], end: 4, ..BASE };

/// What may happen besides, and for how many ticks a lock is given.
const SETUPS: [(&str, u8, Limits); 9] = [
    ("two wait", 2, NONE),
    ("a longer offer, a renewal", 4, Limits { renewals: 1, ..NONE }),
    ("an answer is lost", 2, Limits { breaks: 1, ..NONE }),
    ("one is stopped", 2, STOPS),
    ("one dies, a message comes twice", 2, Limits { deaths: 1, twice: 1, ..NONE }),
    ("a release that gives to nobody, one gives up", 2, Limits { to_all: 1, leaves: 1, ..NONE }),
    ("no company", 2, Limits { plain: 1, newcomers: 1, ..NONE }),
    ("a foreigner", 2, FOREIGN),
    ("a server without memory", 2, Limits { failures: 1, to_all: 1, ..NONE }),
];

/// Where a pace is kept each asks as often as it likes. A queue lasts for longer than any sleep, as three poll caps do.
pub(super) const PACED: Setup = Setup {
    clients: &[comes(0, 0), comes(1, 99), doubts(1, 99)],
    lease: 6,
    offer: 3,
    left: 1,
    response: 1,
    end: 10,
    pace: Some(Pace { hold: 2, queue: 7, wait: 4 }),
    limits: NONE,
};

const THREE: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), comes(1, 99), doubts(1, 99)], ..PACED };

/// The one that has the lock comes back.
const BACK: Setup = Setup { clients: &[comes(1, 99), comes(1, 99), doubts(1, 99)], ..PACED };

/// The second of two hears nothing.
pub(super) const DEAF: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), polls(1, 99)], ..PACED };

type Paced = (&'static str, Setup, u8, Limits);

/// What may happen besides, and after how many ticks whoever waits has the lock.
const PACES: [Paced; 13] = [
    ("two wait", PACED, 4, NONE),
    ("one hears nothing", DEAF, 5, NONE),
    ("one hears nothing, one gives up", DEAF, 5, Limits { to_all: 1, leaves: 1, ..NONE }),
    ("one hears nothing, one dies", DEAF, 9, Limits { deaths: 1, ..NONE }),
    ("one is stopped", PACED, 6, STOPS),
    ("a release that gives to nobody, one gives up", PACED, 4, Limits { to_all: 1, leaves: 1, ..NONE }),
    ("no company", PACED, 4, Limits { plain: 1, newcomers: 1, ..NONE }),
    ("a message is lost", PACED, 8, Limits { losses: 1, ..NONE }),
    ("an answer is lost", PACED, 5, Limits { breaks: 1, ..NONE }),
    ("one dies", PACED, 8, Limits { deaths: 1, ..NONE }),
    ("two die, short leases", Setup { lease: 3, ..PACED }, 6, Limits { deaths: 2, plain: 1, ..NONE }),
    ("a foreigner", PACED, 7, FOREIGN),
    ("a server without memory", PACED, 4, Limits { failures: 1, ..NONE }),
];

/// By hand.
const PACES_BY_HAND: [Paced; 5] = [
    ("three wait", THREE, 6, NONE),
    ("three wait, one is stopped", THREE, 8, STOPS),
    ("one comes back", BACK, 4, NONE),
    ("one comes back, one is stopped", BACK, 6, STOPS),
    ("one comes back, past the queue", BACK, 6, Limits { plain: 1, newcomers: 1, ..NONE }),
];

pub(super) const STOPS: Limits = Limits { stops: 1, ..NONE };
pub(super) const FOREIGN: Limits = Limits { foreign: 1, yields: 1, ..NONE };

/// Whoever waits has the lock after so many ticks.
pub(super) const fn within(wait: u8, setup: Setup, limits: Limits) -> Setup {
    let queue = setup.lease + 1;
    Setup { pace: Some(Pace { hold: 2, queue, wait }), limits, ..setup }
}

/// Searches until that is found, and no deeper than so; zero: within the bounds alone.
pub(super) fn search(crowd: Crowd, until: HasDiscoveries, deepest: usize) -> impl Checker<Crowd> {
    let checker = crowd.checker().threads(if is_large() { 2 } else { 1 }).target_max_depth(deepest);
    checker.finish_when(until).spawn_bfs().join()
}

fn is_large() -> bool {
    std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large")
}

fn assert_holds(name: &str, setup: Setup) {
    let started = Instant::now();
    let found = search(Crowd { setup, mutant: None }, HasDiscoveries::AnyFailures, 0);
    println!("queue, {name}: {} states in {:.1} s", found.unique_state_count(), started.elapsed().as_secs_f64());
    found.assert_properties();
}

#[test]
fn a_lock_that_is_given_is_held_by_who_believes_in_it() {
    for (name, offer, limits) in SETUPS {
        assert_holds(name, Setup { offer, limits, ..if is_large() { LARGER } else { BASE } });
    }
}

/// A tick less is not enough.
#[test]
fn whoever_waits_has_the_lock_in_time() {
    let by_hand = PACES_BY_HAND.into_iter().filter(|_| is_large());
    for (name, setup, wait, limits) in PACES.into_iter().chain(by_hand) {
        assert_holds(&format!("{name}, {wait} ticks"), within(wait, setup, limits));
        let sooner = Crowd { setup: within(wait - 1, setup, limits), mutant: None };
        let found = search(sooner, HasDiscoveries::AnyFailures, 0);
        assert!(found.discovery(SERVED).is_some(), "{name}: {} ticks are enough", wait - 1);
    }
}
