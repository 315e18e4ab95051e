//! What can happen next, what must never be so, and the searches of the protocol as it is.

use super::client::{Given, Setup};
use super::state::{Doing, Limits, Message, Request, State};
use crate::state::Tick;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    /// The server executes a request.
    Execute(usize),
    /// A message arrives, for the last time or not.
    Hear(usize, bool),
    /// A message never arrives.
    Lose(usize),
    HearAnswer(usize),
    /// An ask gets no answer in its time.
    Unanswered(usize),
    /// A process begins to wait, or comes by a timer.
    Ask(usize),
    GiveUp(usize),
    Renew(usize),
    Unlock(usize),
    Stop(usize),
    Continue(usize),
    Die(usize),
}

pub(super) const OWNED: &str = "who believes in the lock has it";
pub(super) const WANTED: &str = "what is given is wanted or will be freed";
pub(super) const LAST: &str = "who waits and has the lock was given it as its last ask";
pub(super) const STUCK: &str = "nobody waits beside a lock that was freed";
pub(super) const OFFER: &str = "what is given ends with its offer";
pub(super) const ALIVE: &str = "nothing is given to the dead";
const BELIEVED: &str = "a message is believed";
const MISSED: &str = "one who waits has the lock and was not told";

impl Model for Given {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((state.now < self.setup.end).then_some(Action::Tick));
        let may_execute = |at: &usize| match state.wire[*at] {
            Request::Quit { ticket, due, .. } => due <= state.now && !state.clients[ticket.owner.client].stopped,
            _ => true,
        };
        actions.extend((0..state.wire.len()).filter(may_execute).map(Action::Execute));
        for (at, message) in state.messages.iter().enumerate() {
            let client = &state.clients[message.ticket().owner.client];
            // Who cannot ask any more hears nothing that makes it ask.
            let hears = client.waits() && client.asks > 0;
            actions.extend(hears.then_some(Action::Hear(at, true)));
            actions.extend((hears && state.limits.twice > 0).then_some(Action::Hear(at, false)));
            actions.extend(matches!(message, Message::Given(_)).then_some(Action::Lose(at)));
        }
        (0..state.clients.len()).for_each(|number| self.actions_of_client(state, number, actions));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Self::settle(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(OWNED, |_, state: &State| {
                (0..state.clients.len()).all(|number| !state.believes(number) || state.has(state.owner(number)))
            }),
            Property::always(WANTED, |_, state: &State| state.is_wanted()),
            Property::always(LAST, |_, state: &State| {
                let is_last = |number: usize| state.lock.and_then(|held| held.given) == Some(state.clients[number].ask);
                state.waits_and_has().is_none_or(is_last)
            }),
            Property::always(STUCK, |_, state: &State| !state.is_stuck()),
            Property::always(OFFER, |model: &Self, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_none_or(|held| held.until <= state.now + model.setup.offer)
            }),
            Property::always(ALIVE, |_, state: &State| !state.gave_to_the_dead),
            Property::sometimes(BELIEVED, |_, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_some_and(|held| state.believes(held.owner.client))
            }),
            Property::sometimes(MISSED, |_, state: &State| {
                state.messages.is_empty() && state.waits_and_has().is_some()
            }),
        ]
    }
}

impl State {
    fn waits_and_has(&self) -> Option<usize> {
        let number = self.lock?.owner.client;
        (self.clients[number].waits() && self.has(self.owner(number))).then_some(number)
    }

    /// One that is stopped or dead keeps what it was given for one offer.
    fn is_wanted(&self) -> bool {
        let Some(held) = self.lock else { return true };
        let client = &self.clients[held.owner.client];
        let is_current = self.has(self.owner(held.owner.client)) && client.doing != Doing::Idle;
        let frees = |request: &Request| match request {
            Request::Release(owner) => *owner == held.owner,
            Request::Quit { ticket, .. } => ticket.owner == held.owner,
            Request::Ask { .. } | Request::Renew { .. } => false,
        };
        !client.is_awake() || is_current || self.wire.iter().any(frees)
    }

    /// Nothing is under way but what may never come, and no timer counts but that of a TTL which ended.
    fn is_stuck(&self) -> bool {
        let comes = |request: &Request| match request {
            Request::Ask { awaited, .. } => *awaited,
            _ => true,
        };
        let is_asking = self.clients.iter().any(|client| matches!(client.doing, Doing::Asking(_)));
        let is_under_way = is_asking || self.wire.iter().any(comes) || !self.messages.is_empty();
        let waits = self.clients.iter().any(|client| client.waits());
        self.lock.is_none() && !self.lapsed && waits && !is_under_way
    }
}

impl Given {
    fn actions_of_client(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let (client, limits) = (&state.clients[number], state.limits);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        may(Action::Continue(number), client.stopped);
        if !client.is_awake() {
            return;
        }
        let holds = state.believes(number);
        let is_over = limits.breaks > 0 || state.now >= client.sent + self.setup.response;
        may(Action::Ask(number), client.doing == Doing::Idle && client.waits > 0 && client.asks > 0);
        may(Action::Ask(number), client.waits() && client.asks > 0);
        may(Action::GiveUp(number), client.waits() && limits.leaves > 0);
        may(Action::Unanswered(number), client.doing == Doing::Asking(None) && is_over);
        may(Action::Unanswered(number), matches!(client.doing, Doing::Asking(Some(_))) && limits.breaks > 0);
        may(Action::HearAnswer(number), matches!(client.doing, Doing::Asking(Some(_))));
        may(Action::HearAnswer(number), matches!(client.doing, Doing::Holding(_, Some((_, Some(_))))) && holds);
        may(Action::Renew(number), matches!(client.doing, Doing::Holding(_, None)) && holds && limits.renewals > 0);
        may(Action::Unlock(number), holds);
        may(Action::Stop(number), limits.stops > 0 && client.doing != Doing::Idle);
        may(Action::Die(number), limits.deaths > 0 && client.doing != Doing::Idle);
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.now += 1,
            Action::Execute(at) => self.execute(state, at),
            Action::Hear(at, last) => {
                let message = state.messages[at];
                if last {
                    state.messages.remove(at);
                }
                state.limits.twice -= u8::from(!last);
                self.hear(state, message);
            }
            Action::Lose(at) => drop(state.messages.remove(at)),
            Action::HearAnswer(number) => self.hear_answer(state, number),
            Action::Ask(number) => {
                state.clients[number].waits -= u8::from(state.clients[number].doing == Doing::Idle);
                self.ask(state, number);
            }
            Action::Unlock(number) => Self::end(state, number),
            _ => self.act_rarely(state, action),
        }
    }

    fn act_rarely(&self, state: &mut State, action: Action) {
        let limits = &mut state.limits;
        match action {
            Action::Unanswered(number) => {
                limits.breaks = limits.breaks.saturating_sub(1);
                self.unanswered(state, number);
            }
            Action::GiveUp(number) => {
                limits.leaves -= 1;
                self.give_up(state, number);
            }
            Action::Renew(number) => {
                limits.renewals -= 1;
                self.renew(state, number);
            }
            Action::Stop(number) => {
                limits.stops -= 1;
                state.clients[number].stopped = true;
            }
            Action::Continue(number) => state.clients[number].stopped = false,
            Action::Die(number) => {
                limits.deaths -= 1;
                Self::die(state, number);
            }
            _ => unreachable!("{action:?} is not rare"),
        }
    }

    /// What ends by itself ends, and what can change nothing is forgotten.
    fn settle(state: &mut State) {
        let now = state.now;
        state.lapsed |= state.lock.take_if(|held| held.until <= now).is_some();
        for number in 0..state.clients.len() {
            let client = &state.clients[number];
            if client.is_awake() && matches!(client.doing, Doing::Holding(until, _) if until <= now) {
                Self::end(state, number);
            }
        }
        state.wire.retain(|request| match request {
            Request::Ask { deadline, .. } | Request::Renew { deadline, .. } => now < *deadline,
            _ => true,
        });
        let hears = |message: &Message| state.clients[message.ticket().owner.client].doing != Doing::Idle;
        state.messages.retain(hears);
        state.wire.sort_unstable();
        state.wire.dedup();
        state.messages.sort_unstable();
        state.messages.dedup();
    }
}

/// One that has the lock, and two that wait for it, of which the first may ask again.
pub(super) const BASE: Setup = Setup {
    clients: &[(0, 0), (1, 3), (1, 1)],
    lease: 3,
    offer: 2,
    response: 1,
    end: 2,
    limits: Limits { breaks: 0, renewals: 0, leaves: 0, stops: 0, deaths: 0, twice: 0 },
};

/// What is explored by hand: docs/model.md. The second may ask again, too, and there are twice as many ticks.
const LARGER: Setup = Setup { clients: &[(0, 0), (1, 3), (1, 2)], end: 4, ..BASE };

/// What may happen besides, and for how many ticks a release gives the lock.
const SETUPS: [(&str, Tick, Limits); 6] = [
    ("two wait", 2, BASE.limits),
    ("a longer offer", 4, BASE.limits),
    ("an answer is lost", 2, Limits { breaks: 1, ..BASE.limits }),
    ("one gives up, a renewal", 2, Limits { leaves: 1, renewals: 1, ..BASE.limits }),
    ("one is stopped, a message comes twice", 2, Limits { stops: 1, twice: 1, ..BASE.limits }),
    ("one dies", 2, Limits { deaths: 1, ..BASE.limits }),
];

/// Searches, and no deeper than that; zero: within the bounds alone.
pub(super) fn search(given: Given, threads: usize, deepest: usize) -> impl Checker<Given> {
    let checker = given.checker().threads(threads).target_max_depth(deepest);
    checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join()
}

#[test]
fn a_lock_that_is_given_is_held_by_who_believes_in_it() {
    let is_large = std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large");
    for (name, offer, limits) in SETUPS {
        let setup = Setup { offer, limits, ..if is_large { LARGER } else { BASE } };
        let started = Instant::now();
        let found = search(Given { setup, mutant: None }, if is_large { 2 } else { 1 }, 0);
        println!("given, {name}: {} states in {:.1} s", found.unique_state_count(), started.elapsed().as_secs_f64());
        found.assert_properties();
    }
}
