//! What can happen next, what must never be so, and the searches of the protocol as it is.

use super::client::{Mutant, Redlock, Setup, Wait};
use super::state::{Client, Fault, Memory, State};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    /// A master restarts without its data.
    Restart(usize),
    /// A strict client asks it for another lock.
    Notice(usize),
    /// A master executes a request, awaited or not.
    Execute(usize, usize),
    /// An answer arrives.
    Deliver(usize, usize),
    /// The sender waits no longer for one master.
    BreakOff(usize, usize),
    /// A client begins a round.
    Begin(usize),
    Renew(usize),
    Unlock(usize),
    /// A client that believes in its hold sends a write to the store.
    Write(usize),
    /// A write arrives there.
    Arrive(usize),
    /// The clock of the server steps back.
    StepBack,
}

pub(super) const ALONE: &str = "at most one client believes in a hold";
pub(super) const STALE: &str = "no stale write is accepted";
pub(super) const FRESH: &str = "a write that is not stale is accepted";
const COUNTED: &str = "a believer counts on a master that restarted";
const OVERLAP: &str = "two clients believe in a hold";
const REFUSED: &str = "a stale write is refused";

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((state.now < self.setup.end).then_some(Action::Tick));
        actions.extend((state.steps > 0).then_some(Action::StepBack));
        (0..state.masters.len()).for_each(|master| Self::actions_of_master(state, master, actions));
        for (number, client) in state.clients.iter().enumerate() {
            Self::actions_of_client(state, number, client, actions);
        }
        actions.extend((0..state.store.wire.len()).map(Action::Arrive));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Self::expire(&mut state);
        let now = state.now;
        state.masters.iter_mut().for_each(|master| master.forget(now));
        state.masters.sort_unstable();
        state.store.wire.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let fenced = vec![
            Property::always(STALE, |_, state: &State| state.store.fault != Some(Fault::StaleAccepted)),
            Property::always(FRESH, |_, state: &State| state.store.fault != Some(Fault::FreshRefused)),
            Property::sometimes(OVERLAP, |_, state: &State| state.believers() > 1),
            Property::sometimes(REFUSED, |_, state: &State| state.store.refused),
        ];
        let quorum = vec![
            Property::always(ALONE, |_, state: &State| state.believers() <= 1),
            Property::sometimes(COUNTED, |_, state: &State| state.counts_a_restarted()),
        ];
        if self.setup.writes > 0 { fenced } else { quorum }
    }
}

impl Redlock {
    fn actions_of_master(state: &State, number: usize, actions: &mut Vec<Action>) {
        let master = &state.masters[number];
        // What is done at one of two that are alike is done at the other.
        if number > 0 && state.masters[number - 1] == *master {
            return;
        }
        actions.extend((state.restarts > 0).then_some(Action::Restart(number)));
        actions.extend((master.memory == Memory::Lost).then_some(Action::Notice(number)));
        let is_down = matches!(master.memory, Memory::Down(_));
        for (at, message) in master.wire.iter().enumerate() {
            match message.answer {
                None => actions.extend((!is_down).then_some(Action::Execute(number, at))),
                Some(_) => actions.push(Action::Deliver(number, at)),
            }
            actions.extend((message.waited && state.breaks > 0).then_some(Action::BreakOff(number, at)));
        }
    }

    fn actions_of_client(state: &State, number: usize, client: &Client, actions: &mut Vec<Action>) {
        let (is_idle, is_held) = (client.asking.is_none(), client.believes());
        // The first to begin is the first in the row: which one it is makes no difference.
        let in_row = state.clients[..number].iter().all(|before| before.round > 0);
        actions.extend((in_row && is_idle && !is_held && client.left > 0).then_some(Action::Begin(number)));
        actions.extend((is_idle && is_held && state.renewals > 0).then_some(Action::Renew(number)));
        actions.extend((is_held && state.unlocks > 0).then_some(Action::Unlock(number)));
        actions.extend((is_held && client.writes > 0).then_some(Action::Write(number)));
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => Self::tick(state),
            Action::Restart(master) => {
                state.restarts -= 1;
                self.restart(state, master);
            }
            Action::Notice(master) => self.notice(state, master),
            Action::StepBack => {
                state.steps -= 1;
                state.clock = 0;
            }
            Action::Execute(..) | Action::Deliver(..) | Action::BreakOff(..) => self.act_on_wire(state, action),
            Action::Begin(client) => self.begin(state, client),
            Action::Renew(client) => self.renew(state, client),
            Action::Unlock(client) => {
                state.unlocks -= 1;
                self.end(state, client);
            }
            Action::Write(client) => {
                state.clients[client].writes -= 1;
                state.store.wire.push(state.clients[client].grant);
            }
            Action::Arrive(at) => {
                let write = state.store.wire.remove(at);
                state.store.write(write, !self.has(Mutant::NeverCompares));
            }
        }
    }

    fn act_on_wire(&self, state: &mut State, action: Action) {
        match action {
            Action::Execute(master, at) => {
                let mut message = state.masters[master].wire.remove(at);
                message.answer = Some(self.execute(state, master, &message));
                state.masters[master].wire.extend(Some(message).filter(|message| message.waited));
            }
            Action::Deliver(master, at) => {
                let message = state.masters[master].wire.remove(at);
                self.deliver(state, &message);
            }
            Action::BreakOff(master, at) => {
                state.breaks -= 1;
                state.masters[master].wire[at].waited = false;
                let message = state.masters[master].wire[at];
                self.break_off(state, &message);
            }
            _ => unreachable!("{action:?} is of no message"),
        }
    }
}

/// Three masters, of which one restarts, and two clients.
pub(super) const BASE: Setup = Setup {
    masters: 3,
    rounds: &[1, 1],
    wait: Wait::Strict(2),
    lease: 2,
    response: 1,
    end: 2,
    restarts: 1,
    breaks: 0,
    renewals: 0,
    unlocks: 0,
    writes: 0,
    steps: 0,
};

/// One server that restarts, two clients, and a store that compares tokens.
pub(super) const FENCED: Setup = Setup { masters: 1, rounds: &[2, 2], wait: Wait::Nothing, writes: 1, ..BASE };

/// What is explored with each change of the crate.
const SMALL: [(&str, Setup); 2] = [("strict", BASE), ("down", Setup { wait: Wait::Down(2), ..BASE })];

/// What is explored by hand: docs/model.md.
const LARGE: [(&str, Setup); 6] = [
    ("strict, two rounds and one", Setup { rounds: &[2, 1], unlocks: 1, end: 3, ..BASE }),
    ("strict, one round and two", Setup { rounds: &[1, 2], unlocks: 1, end: 3, ..BASE }),
    ("strict, two restarts", Setup { restarts: 2, end: 3, ..BASE }),
    ("strict, a renewal, a lost answer", Setup { renewals: 1, breaks: 1, end: 3, ..BASE }),
    ("strict, three ticks", Setup { lease: 3, wait: Wait::Strict(3), unlocks: 1, end: 4, ..BASE }),
    ("down, a renewal, an unlock", Setup { wait: Wait::Down(2), renewals: 1, unlocks: 1, end: 3, ..BASE }),
];

/// The same for fenced locks.
const SMALL_FENCED: [(&str, Setup); 2] =
    [("fenced", FENCED), ("fenced, an unlock, two restarts", Setup { unlocks: 1, restarts: 2, ..FENCED })];

const LARGE_FENCED: [(&str, Setup); 2] = [
    ("fenced, two writes each", Setup { unlocks: 2, restarts: 2, writes: 2, ..FENCED }),
    ("fenced, a renewal, a lost answer", Setup { unlocks: 1, renewals: 1, breaks: 1, end: 3, ..FENCED }),
];

/// Searches, and no deeper than that; zero: within the bounds alone.
pub(super) fn search(redlock: Redlock, threads: usize, deepest: usize) -> impl Checker<Redlock> {
    let checker = redlock.checker().threads(threads).target_max_depth(deepest);
    checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join()
}

pub(super) fn is_large() -> bool {
    std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large")
}

/// Nothing is violated, and what a search is about is reached.
fn assert_hold(setups: &[(&str, Setup)]) {
    for (name, setup) in setups {
        let started = Instant::now();
        let found = search(Redlock { setup: *setup, mutant: None }, if is_large() { 2 } else { 1 }, 0);
        println!("redlock, {name}: {} states in {:.1} s", found.unique_state_count(), started.elapsed().as_secs_f64());
        found.assert_properties();
    }
}

#[test]
fn quorums_hold_while_a_master_that_restarted_empty_waits() {
    assert_hold(if is_large() { &LARGE } else { &SMALL });
}

#[test]
fn a_store_that_compares_tokens_accepts_no_stale_write() {
    assert_hold(if is_large() { &LARGE_FENCED } else { &SMALL_FENCED });
}
