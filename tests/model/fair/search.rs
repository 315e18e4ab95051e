//! What can happen next, and what must never be so.

use super::client::Crowd;
use super::state::{Ask, Doing, Fault, Manner, Message, Owner, Request, State};
use crate::lock::waiting::wait::Hearing;
use stateright::{Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    /// The server executes a request; it may fail while it gives the lock.
    Execute(usize, bool),
    Hear(usize),
    /// A message never arrives.
    Lose(usize),
    HearAnswer(usize),
    /// An ask gets no answer in its time.
    Unanswered(usize),
    Come(usize, Manner),
    /// One that waits looks by a timer.
    Look(usize),
    Confirmed(usize),
    Cut(usize),
    GiveUp(usize),
    /// The caller's time ends.
    AskLast(usize),
    Unlock(usize),
    Stop(usize),
    Continue(usize),
    Die(usize),
    /// The tickets are evicted.
    Evict,
}

pub(super) const OWNED: &str = "who believes in the lock has it";
pub(super) const WANTED: &str = "what is given is wanted or will be freed";
pub(super) const LAST: &str = "who waits and has the lock was given it as its last ask";
pub(super) const ORDER: &str = "nobody gets the lock before one that came earlier and has kept its place";
pub(super) const KEPT: &str = "nobody who waits and looks in time loses its place";
pub(super) const AGREE: &str = "each place is there once, with an end";
pub(super) const STUCK: &str = "nobody waits beside a lock that was freed";
pub(super) const OFFER: &str = "what is given ends with its offer";
pub(super) const ALIVE: &str = "nothing is given to the dead";
pub(super) const TTL: &str = "the keys of ours have a TTL";
pub(super) const SERVED: &str = "who waits has the lock in time";
pub(super) const GONE: &str = "a queue in which nobody waits ends";
const GOES_ON: &str = "time goes on";
const BELIEVED: &str = "a message is believed";

impl Model for Crowd {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        let passes = self.setup.pace.is_none() || !state.is_urgent();
        actions.extend((state.now < self.setup.end && passes).then_some(Action::Tick));
        (0..state.wire.len()).for_each(|at| Self::actions_of_request(state, at, actions));
        actions.extend((state.limits.evictions > 0 && !state.tickets.is_empty()).then_some(Action::Evict));
        (0..state.messages.len()).for_each(|at| self.actions_of_message(state, at, actions));
        for (number, client) in state.clients.iter().enumerate() {
            actions.extend(client.stopped.then_some(Action::Continue(number)));
            match client.is_java() {
                _ if !client.is_awake() => {}
                true => self.actions_of_java(state, number, actions),
                false => self.actions_of_client(state, number, actions),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        self.settle(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(OWNED, |_, state: &State| {
                let believes = |number: &usize| state.believes(*number) && !state.clients[*number].is_java();
                (0..state.clients.len()).filter(believes).all(|number| state.has(state.owner(number)))
            }),
            Property::always(WANTED, |_, state: &State| state.is_wanted()),
            Property::always(LAST, |_, state: &State| {
                let is_last = |number: usize| state.lock.and_then(|held| held.given) == Some(state.clients[number].ask);
                state.waits_and_has().is_none_or(is_last)
            }),
            Property::always(ORDER, |_, state: &State| state.fault != Some(Fault::Past)),
            Property::always(KEPT, |_, state: &State| state.fault != Some(Fault::Lost)),
            Property::always(AGREE, |_, state: &State| {
                state.list.len() == state.ends.len() && state.list.iter().all(|field| state.ends.contains_key(field))
            }),
            Property::always(STUCK, |_, state: &State| !state.is_stuck()),
            Property::always(OFFER, |model: &Self, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_none_or(|held| held.until <= state.now + model.setup.offer)
            }),
            Property::always(ALIVE, |_, state: &State| state.fault != Some(Fault::GivenToTheDead)),
            Property::always(TTL, |_, state: &State| {
                let is_java = state.list.iter().all(|field| state.is_java(*field));
                (is_java || state.ttl.is_some()) && (state.tickets.is_empty() || state.ttl_of_tickets.is_some())
            }),
            Property::sometimes(BELIEVED, |_, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_some_and(|held| state.believes(held.owner.client))
            }),
        ];
        if self.setup.pace.is_some() {
            properties.extend(Self::properties_of_pace());
        }
        properties
    }
}

impl Crowd {
    fn properties_of_pace() -> [Property<Self>; 3] {
        [
            Property::always(SERVED, |model: &Self, state: &State| {
                model.setup.pace.is_none_or(|pace| state.clients.iter().all(|client| client.waited <= pace.wait))
            }),
            Property::always(GOES_ON, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                state.now == model.setup.end || state.fault.is_some() || !actions.is_empty()
            }),
            Property::always(GONE, |model: &Self, state: &State| {
                model.setup.pace.is_none_or(|pace| state.deserted <= pace.queue)
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
            Request::Quit { names, .. } => names.last.owner == held.owner,
            Request::Ask(_) => false,
        };
        !client.is_awake() || is_current || self.wire.iter().any(frees)
    }

    /// Nothing is under way but what may never come, and no timer counts but that of a TTL which ended, or of a place of Redisson's.
    fn is_stuck(&self) -> bool {
        let comes = |request: &Request| match request {
            Request::Ask(ask) => ask.awaited,
            _ => true,
        };
        let is_asking = self.clients.iter().any(|client| matches!(client.doing, Doing::Asking(_)));
        let is_under_way = is_asking || self.wire.iter().any(comes) || !self.messages.is_empty();
        let mut waits = self.clients.iter().filter(|client| client.waits() && !client.is_java()).peekable();
        // Who hears nothing polls, and its ask serves the first.
        let is_stuck = waits.peek().is_some() && waits.all(|client| client.hearing() == Hearing::Open);
        self.lock.is_none() && !self.is_timed && is_stuck && !is_under_way
    }

    /// Something is under way that takes no longer than a message, or a timer rings.
    fn is_urgent(&self) -> bool {
        let is_served = |request: &Request| match request {
            Request::Ask(ask) => ask.awaited,
            _ => self.may_execute(request),
        };
        let hears = |message: &Message| self.clients[message.client()].waits();
        let acts = |number: usize| {
            let client = &self.clients[number];
            let looks = client.waits() && client.looks(self.now);
            looks || client.may_be_confirmed() || client.is_awake() && matches!(client.doing, Doing::Asking(Some(_)))
        };
        self.wire.iter().any(is_served) || self.messages.iter().any(hears) || (0..self.clients.len()).any(acts)
    }

    fn may_execute(&self, request: &Request) -> bool {
        match request {
            Request::Quit { names, due, .. } => *due <= self.now && !self.clients[names.last.owner.client].stopped,
            _ => true,
        }
    }
}

impl Crowd {
    fn actions_of_request(state: &State, at: usize, actions: &mut Vec<Action>) {
        let (request, limits) = (&state.wire[at], state.limits);
        if !state.may_execute(request) {
            return;
        }
        actions.push(Action::Execute(at, false));
        let frees = match request {
            Request::Release(owner) => state.has(*owner),
            Request::Quit { names, half, .. } => *half && state.has(names.last.owner),
            Request::Ask(_) => state.lock.is_none(),
        };
        let fails = frees && limits.failures > 0 && !state.list.is_empty();
        actions.extend(fails.then_some(Action::Execute(at, true)));
    }

    fn actions_of_message(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let message = state.messages[at];
        let client = &state.clients[message.client()];
        // Who cannot ask any more hears nothing that makes it ask.
        let hears = client.waits() && (client.is_java() || client.asks > 0 || self.is_proof(state, message));
        let is_lost = self.setup.pace.is_none() && matches!(message, Message::Given(_)) || state.limits.losses > 0;
        actions.extend(hears.then_some(Action::Hear(at)));
        actions.extend(is_lost.then_some(Action::Lose(at)));
    }

    fn actions_of_client(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let (client, limits) = (&state.clients[number], state.limits);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let is_over = limits.breaks > 0 || state.now >= client.sent + self.setup.response;
        let comes = client.doing == Doing::Idle && client.waits > 0 && client.asks > 0;
        let is_answered = matches!(client.doing, Doing::Asking(Some(_)));
        // Who is stopped with the lock keeps it for a lease: where a pace is kept only one that waits is stopped.
        let stops = if self.setup.pace.is_some() { client.waits() } else { client.doing != Doing::Idle };
        may(Action::Come(number, Manner::Queued), comes);
        may(Action::Come(number, Manner::Try), comes && limits.tries > 0);
        may(Action::Look(number), client.waits() && client.asks > 0 && client.looks(state.now));
        may(Action::Confirmed(number), client.may_be_confirmed());
        may(Action::Cut(number), client.waits() && client.ear && limits.cuts > 0);
        may(Action::GiveUp(number), client.waits() && limits.leaves > 0);
        may(Action::AskLast(number), client.waits() && client.asks > 0 && limits.leaves > 0);
        may(Action::Unanswered(number), client.doing == Doing::Asking(None) && is_over);
        may(Action::Unanswered(number), is_answered && limits.breaks > 0);
        may(Action::HearAnswer(number), is_answered);
        may(Action::Unlock(number), state.believes(number));
        may(Action::Stop(number), limits.stops > 0 && stops);
        may(Action::Die(number), limits.deaths > 0 && client.doing != Doing::Idle);
    }

    fn actions_of_java(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let (client, limits) = (&state.clients[number], state.limits);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let comes = client.doing == Doing::Idle && client.waits > 0;
        may(Action::Come(number, Manner::Queued), comes);
        may(Action::Come(number, Manner::Try), comes && limits.tries > 0);
        may(Action::Look(number), client.waits() && client.looks(state.now));
        may(Action::GiveUp(number), client.waits() && limits.leaves > 0);
        may(Action::Unlock(number), state.believes(number));
        may(Action::Die(number), limits.deaths > 0 && client.doing != Doing::Idle);
    }
}

impl Crowd {
    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => {
                (state.now, state.deserted) = (state.now + 1, state.deserted + 1);
                let waiting = state.clients.iter_mut().filter(|client| client.wants() && client.is_awake());
                waiting.for_each(|client| client.waited += 1);
            }
            Action::Execute(at, fails) => {
                state.limits.failures -= u8::from(fails);
                self.execute(state, at, fails);
            }
            Action::Hear(at) => {
                let message = state.messages.remove(at);
                self.hear(state, message);
            }
            Action::HearAnswer(number) => self.hear_answer(state, number),
            Action::Come(number, manner) => {
                state.limits.tries -= u8::from(manner == Manner::Try);
                if state.clients[number].is_java() {
                    state.clients[number].waits -= 1;
                    state.arrivals.retain(|arrived| *arrived != number);
                    self.java_asks(state, number, manner == Manner::Queued);
                } else {
                    self.come(state, number, manner);
                }
            }
            Action::Look(number) if state.clients[number].is_java() => self.java_asks(state, number, true),
            Action::Look(number) => self.ask(state, number, Manner::Queued),
            Action::Confirmed(number) => self.confirmed(state, number),
            Action::Unlock(number) => self.end(state, number),
            _ => self.act_rarely(state, action),
        }
    }

    fn act_rarely(&self, state: &mut State, action: Action) {
        let limits = &mut state.limits;
        match action {
            Action::Lose(at) => {
                limits.losses = limits.losses.saturating_sub(1);
                state.is_timed |= matches!(state.messages.remove(at), Message::Free(_));
            }
            Action::Unanswered(number) => {
                limits.breaks = limits.breaks.saturating_sub(1);
                self.unanswered(state, number);
            }
            Action::Cut(number) => {
                limits.cuts -= 1;
                Self::cut(state, number);
            }
            Action::GiveUp(number) => {
                limits.leaves -= 1;
                if state.clients[number].is_java() {
                    self.java_gives_up(state, number);
                } else {
                    self.give_up(state, number);
                }
            }
            Action::AskLast(number) => {
                limits.leaves -= 1;
                self.ask(state, number, Manner::Last);
            }
            Action::Stop(number) => {
                limits.stops -= 1;
                state.clients[number].stopped = true;
            }
            Action::Continue(number) => {
                (state.clients[number].stopped, state.clients[number].waited) = (false, 0);
            }
            Action::Die(number) => {
                limits.deaths -= 1;
                Self::die(state, number);
            }
            Action::Evict => {
                limits.evictions -= 1;
                state.tickets.clear();
                Self::settle_keys(state);
            }
            _ => unreachable!("{action:?}"),
        }
    }

    /// What ends by itself ends, and what can change nothing is forgotten.
    fn settle(&self, state: &mut State) {
        let now = state.now;
        if let Some(held) = state.lock.take_if(|held| held.until <= now) {
            state.is_timed = true;
            state.forget(held.owner.client);
        }
        self.settle_ttls(state);
        self.settle_clients(state);
        state.wire.retain(|request| !matches!(request, Request::Ask(Ask { deadline, .. }) if now >= *deadline));
        let hears = |message: &Message| state.clients[message.client()].wants();
        state.messages.retain(hears);
        state.wire.sort_unstable();
        state.wire.dedup();
        state.messages.sort_unstable();
        state.messages.dedup();
    }

    fn settle_ttls(&self, state: &mut State) {
        let now = state.time();
        if state.ttl.take_if(|ttl| *ttl <= now).is_some() {
            let counts = |field: &Owner| state.ends.get(field).is_some_and(|end| *end > now);
            let is_lost = state.list.iter().any(|field| counts(field) && state.is_waiting(*field));
            state.fault = state.fault.or(is_lost.then_some(Fault::Lost));
            state.list.clear();
            state.ends.clear();
            state.arrivals.clear();
        }
        if state.ttl_of_tickets.take_if(|ttl| *ttl <= now).is_some() {
            state.tickets.clear();
        }
    }

    /// A hold that is over is released. Where no pace is kept nobody counts for how long anything lasts.
    fn settle_clients(&self, state: &mut State) {
        let (now, counts) = (state.now, self.setup.pace.is_some());
        let has_places = !state.list.is_empty() && !state.list.iter().any(|field| state.is_java(*field));
        let is_deserted = has_places && !state.clients.iter().any(|client| client.is_awake() && client.wants());
        state.deserted = if counts && is_deserted { state.deserted } else { 0 };
        for number in 0..state.clients.len() {
            let client = &mut state.clients[number];
            client.waited = if counts { client.waited } else { 0 };
            if !counts {
                client.wakes = 0;
            }
            if client.is_awake() && matches!(client.doing, Doing::Holding(until) if until <= now) {
                self.end(state, number);
            }
        }
    }
}
