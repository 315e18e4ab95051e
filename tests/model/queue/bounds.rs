//! The searches of the queue as it is.

use super::fair::Graph;
use super::search::{Action, GONE, SERVED};
use super::{At, Crowd, Limits, Name, Reply, STRANGER, Setup, State};
use stateright::{Checker, HasDiscoveries, Model, Path};
use std::time::Instant;

pub(crate) const NONE: Limits =
    Limits { deaths: 0, stops: 0, breaks: 0, lost: 0, leaves: 0, late: 0, wipes: 0, lapses: 0 };

pub(crate) const TWO: Setup = Setup {
    clients: 2,
    bystanders: 0,
    comes: None,
    company: false,
    lingers: false,
    prompt: false,
    foreign: 0,
    yields: false,
    turns: false,
    limits: NONE,
};

pub(crate) const THREE: Setup = Setup { clients: 3, prompt: true, ..TWO };

/// Three that know of each other come once each.
pub(crate) const ONCE: Setup = Setup { clients: 3, comes: Some(1), company: true, ..TWO };

/// What is explored with each change of the crate.
const SMALL: [(&str, Setup); 12] = [
    ("two", TWO),
    ("three", THREE),
    ("two, in turns", Setup { turns: true, ..TWO }),
    ("a foreigner", Setup { prompt: true, foreign: 2, ..TWO }),
    ("turns for foreigners", Setup { prompt: true, foreign: 1, yields: true, ..TWO }),
    ("a bystander", Setup { clients: 2, bystanders: 1, ..ONCE }),
    ("stops", Setup { comes: Some(2), limits: Limits { stops: 1, ..NONE }, ..TWO }),
    ("deaths", Setup { limits: Limits { deaths: 1, ..NONE }, ..ONCE }),
    ("breaks", Setup { limits: Limits { breaks: 1, ..NONE }, ..TWO }),
    ("leaves", Setup { limits: Limits { leaves: 1, ..NONE }, ..ONCE }),
    ("late", Setup { limits: Limits { late: 1, lapses: 1, ..NONE }, ..TWO }),
    ("wipes", Setup { prompt: true, limits: Limits { wipes: 1, ..NONE }, ..TWO }),
];

/// What is explored by hand: docs/model.md.
const LARGE: [(&str, Setup); 16] = [
    ("three, in turns", Setup { turns: true, ..THREE }),
    ("three, in turns of any length", Setup { turns: true, comes: Some(1), prompt: false, ..THREE }),
    ("turns and stops", Setup { turns: true, comes: Some(2), limits: Limits { stops: 1, ..NONE }, ..TWO }),
    ("turns and foreigners", Setup { turns: true, prompt: true, foreign: 1, yields: true, ..TWO }),
    ("three", Setup { prompt: false, comes: Some(2), ..THREE }),
    ("four", Setup { clients: 4, comes: Some(1), ..TWO }),
    ("three, lingering", Setup { lingers: true, ..THREE }),
    ("a foreigner", Setup { foreign: 2, ..THREE }),
    ("turns for foreigners", Setup { foreign: 2, yields: true, ..TWO }),
    ("a bystander", Setup { bystanders: 1, comes: Some(2), ..TWO }),
    ("stops", Setup { limits: Limits { stops: 1, ..NONE }, ..THREE }),
    ("deaths", Setup { limits: Limits { deaths: 2, ..NONE }, ..THREE }),
    ("breaks", Setup { comes: Some(2), limits: Limits { breaks: 2, ..NONE }, ..THREE }),
    ("ghosts", Setup { comes: Some(2), lingers: true, limits: Limits { leaves: 1, lost: 1, ..NONE }, ..TWO }),
    ("late", Setup { limits: Limits { late: 2, lapses: 2, ..NONE }, ..THREE }),
    ("wipes", Setup { limits: Limits { wipes: 2, ..NONE }, ..TWO }),
];

pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) broken: Vec<(&'static str, String)>,
}

/// What must never be so, by stateright.
pub(crate) fn search(crowd: Crowd, threads: usize, until: HasDiscoveries) -> Found {
    let found = crowd.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let broken = found.discoveries().into_iter().map(|(name, path)| (name, steps(path))).collect();
    Found { states: found.unique_state_count(), broken }
}

fn steps(path: Path<State, Action>) -> String {
    let steps = path.into_vec();
    steps.iter().map(|(state, action)| format!("{state:?}\n  -> {action:?}\n")).collect()
}

/// What must happen in the end, by [`Graph`]. Clients are alike: the first stands for all who wait, the last for all who
/// leave a ticket behind.
pub(crate) fn search_for_ever(crowd: Crowd) -> Found {
    let graph = Graph::explore(&crowd);
    let text = |part: Vec<usize>| {
        let stays = part.iter().take(10).map(|at| format!("  {:?}\n", graph.states[*at])).collect::<String>();
        format!("{:?}, then for ever among {} states, such as\n{stays}", graph.path(part[0]), part.len())
    };
    let mut broken: Vec<_> = graph.trap(waits).map(|part| (SERVED, text(part))).into_iter().collect();
    let last = crowd.setup.clients - 1;
    for (client, old) in [(last, false), (last, true), (STRANGER, false)] {
        let name = Name { client, old };
        let stays = |state: &State| state.rank(name).is_some() && state.is_stale(name);
        broken.extend(graph.trap(stays).map(|part| (GONE, text(part))));
    }
    Found { states: graph.states.len(), broken }
}

fn waits(state: &State) -> bool {
    let first = state.get(0);
    first.waits() && first.is_awake() && first.at != At::Answered(Reply::Taken)
}

fn assert_holds(name: &str, setup: Setup, threads: usize) {
    let (started, crowd) = (Instant::now(), Crowd { setup, mutants: &[] });
    for found in [search(crowd, threads, HasDiscoveries::AnyFailures), search_for_ever(crowd)] {
        assert!(found.broken.is_empty(), "{name}: {:#?}", found.broken);
        println!("queue, {name}: {} states in {:.1} s", found.states, started.elapsed().as_secs_f64());
    }
}

#[test]
fn the_queue_holds_within_its_bounds() {
    let setups: &[_] = if is_large() { &LARGE } else { &SMALL };
    for (name, setup) in setups {
        assert_holds(name, *setup, if is_large() { 2 } else { 1 });
    }
}

pub(crate) fn is_large() -> bool {
    std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large")
}
