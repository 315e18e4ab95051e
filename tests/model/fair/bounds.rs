//! The searches of the fair queue as it is.

use super::client::{Comer, Crowd, Pace, Setup, Spans};
use super::search::SERVED;
use super::state::{End, Hears, Limits};
use crate::state::Tick;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

pub(super) const NONE: Limits =
    Limits { breaks: 0, leaves: 0, stops: 0, deaths: 0, losses: 0, tries: 0, cuts: 0, failures: 0, evictions: 0 };

/// One of ours that hears at once, and believes what it is told.
pub(super) const fn comes(waits: u8, asks: u8) -> Comer {
    Comer { waits, asks, believes: true, hears: Hears::AtOnce, ahead: None }
}

/// One that asks whatever it is told.
pub(super) const fn doubts(waits: u8, asks: u8) -> Comer {
    Comer { believes: false, ..comes(waits, asks) }
}

/// One that hears nothing until its subscriptions are confirmed.
pub(super) const fn late(waits: u8, asks: u8) -> Comer {
    Comer { hears: Hears::Later, ..comes(waits, asks) }
}

pub(super) const fn deaf(waits: u8, asks: u8) -> Comer {
    Comer { hears: Hears::Never, ..comes(waits, asks) }
}

/// A thread of Redisson's.
pub(super) const fn java(waits: u8) -> Comer {
    ahead(waits, 0)
}

/// The same with a clock that is so much ahead.
pub(super) const fn ahead(waits: u8, ticks: End) -> Comer {
    Comer { ahead: Some(ticks), ..deaf(waits, 0) }
}

/// One that has the lock, and two that wait for it, of which the first may ask again.
pub(super) const BASE: Setup = Setup {
    clients: &[comes(0, 0), comes(1, 2), doubts(1, 1)],
    lease: 3,
    offer: 2,
    response: 1,
    spans: Spans { wait: 3, java: 6, counted: 6, after: 8, half: 7 },
    end: 2,
    pace: None,
    limits: NONE,
};

/// One of Redisson's between, or before.
pub(super) const MIXED: Setup = Setup { clients: &[comes(0, 0), comes(1, 2), java(1)], ..BASE };
pub(super) const JAVA: Setup = Setup { clients: &[java(0), comes(1, 2), doubts(1, 2)], ..BASE };

const SETUPS: [(&str, Setup, Limits); 11] = [
    ("two wait", BASE, NONE),
    ("an answer is lost", BASE, Limits { breaks: 1, ..NONE }),
    ("one is stopped", BASE, Limits { stops: 1, ..NONE }),
    ("one dies", BASE, Limits { deaths: 1, ..NONE }),
    ("one gives up, one tries", BASE, Limits { leaves: 1, tries: 1, ..NONE }),
    (
        "one hears later",
        Setup { clients: &[comes(0, 0), late(1, 3), doubts(1, 1)], ..BASE },
        Limits { cuts: 1, ..NONE },
    ),
    ("a server without memory", BASE, Limits { failures: 1, ..NONE }),
    ("tickets are evicted", BASE, Limits { evictions: 1, ..NONE }),
    ("Redisson waits, too", MIXED, Limits { leaves: 1, tries: 1, ..NONE }),
    ("Redisson waits, too, one dies", MIXED, Limits { deaths: 1, ..NONE }),
    ("Redisson has the lock", JAVA, Limits { breaks: 1, ..NONE }),
];

/// Where a pace is kept each asks as often as it likes, and comes once.
pub(super) const PACED: Setup = Setup {
    clients: &[comes(0, 0), comes(1, 99), doubts(1, 99)],
    lease: 6,
    offer: 3,
    response: 1,
    spans: Spans { wait: 8, java: 12, counted: 12, after: 14, half: 13 },
    end: 10,
    pace: Some(Pace { hold: 2, queue: 10, wait: 4 }),
    limits: NONE,
};

const LATE: Setup = Setup { clients: &[comes(0, 0), late(1, 99), comes(1, 99)], ..PACED };
pub(super) const DEAF: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), deaf(1, 99)], ..PACED };
/// One of ours and two of Redisson's.
pub(super) const TWO_JAVA: Setup = Setup { clients: &[comes(0, 0), java(1), java(1), comes(1, 99)], ..PACED };
pub(super) const ONE_JAVA: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), doubts(1, 99), java(1)], ..PACED };
pub(super) const JAVA_HAS: Setup = Setup { clients: &[java(0), comes(1, 99), late(1, 99)], ..PACED };

/// Both of Redisson's wait for longer than 5 minutes.
pub(super) const LONG_JAVA: Setup = Setup { spans: Spans { java: 24, ..PACED.spans }, ..TWO_JAVA };

/// A place of Redisson's that ends soon.
const SHORT: Spans = Spans { java: 4, counted: 4, ..PACED.spans };
pub(super) const DEAD_JAVA: Setup =
    Setup { clients: &[comes(0, 0), java(1), comes(1, 99)], spans: SHORT, end: 16, ..PACED };

/// The keys end soon after the places of the dead.
pub(super) const EMPTY: Setup =
    Setup { lease: 3, spans: Spans { wait: 5, java: 0, counted: 0, after: 1, half: 0 }, end: 12, ..PACED };

const EARLY: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), ahead(1, 3)], ..PACED };
const BACK: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), ahead(1, -3)], end: 16, ..PACED };
/// By the server's clock its place is over when it joins as the first.
pub(super) const FAR_BACK: Setup = Setup { clients: &[comes(0, 0), comes(1, 99), ahead(1, -20)], ..PACED };

type Paced = (&'static str, Setup, u8, Limits);

/// What may happen besides, and after how many ticks whoever waits has the lock.
const PACES: [Paced; 19] = [
    ("two wait", PACED, 4, NONE),
    ("one hears later", LATE, 4, NONE),
    ("one hears nothing", DEAF, 5, NONE),
    ("one is stopped", PACED, 6, Limits { stops: 1, ..NONE }),
    ("one dies", PACED, 8, Limits { deaths: 1, ..NONE }),
    ("two die, short leases", EMPTY, 6, Limits { deaths: 2, ..NONE }),
    ("one gives up", PACED, 4, Limits { leaves: 1, ..NONE }),
    ("a message is lost", PACED, 8, Limits { losses: 1, ..NONE }),
    ("an answer is lost", PACED, 4, Limits { breaks: 1, ..NONE }),
    ("subscriptions are cut", PACED, 4, Limits { cuts: 1, ..NONE }),
    ("tickets are evicted", PACED, 4, Limits { evictions: 1, ..NONE }),
    ("Redisson has the lock", JAVA_HAS, 4, NONE),
    ("Redisson waits, too", ONE_JAVA, 6, NONE),
    ("Redisson waits twice", TWO_JAVA, 6, NONE),
    ("Redisson waits twice, for longer than 5 minutes", LONG_JAVA, 6, NONE),
    ("Redisson waits, too, one dies", DEAD_JAVA, 10, Limits { deaths: 1, ..NONE }),
    ("a clock of Redisson's is ahead, one is stopped", EARLY, 6, Limits { stops: 1, leaves: 1, ..NONE }),
    ("a clock of Redisson's is behind, one is stopped", BACK, 11, Limits { stops: 1, leaves: 1, ..NONE }),
    ("a clock of Redisson's is far behind", FAR_BACK, 4, NONE),
];

/// Whoever waits has the lock after so many ticks.
pub(super) const fn within(wait: Tick, setup: Setup, limits: Limits) -> Setup {
    let Spans { wait: ours, java, after, .. } = setup.spans;
    let queue = (ours + java + after) as Tick + 1;
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
    println!("fair, {name}: {} states in {:.1} s", found.unique_state_count(), started.elapsed().as_secs_f64());
    found.assert_properties();
}

#[test]
fn a_fair_lock_is_held_by_who_believes_in_it_and_goes_in_order() {
    for (name, setup, limits) in SETUPS {
        assert_holds(name, Setup { limits, ..setup });
    }
}

/// A tick less is not enough.
#[test]
fn whoever_waits_for_a_fair_lock_has_it_in_time() {
    for (name, setup, wait, limits) in PACES {
        assert_holds(&format!("{name}, {wait} ticks"), within(wait, setup, limits));
        let sooner = Crowd { setup: within(wait - 1, setup, limits), mutant: None };
        let found = search(sooner, HasDiscoveries::AnyFailures, 0);
        assert!(found.discovery(SERVED).is_some(), "{name}: {} ticks are enough", wait - 1);
    }
}
