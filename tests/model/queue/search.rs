//! What can happen next, and what must never be so.

use super::client::{Crowd, Mutant};
use super::state::{Ask, Doing, FOREIGNER, Fault, Limits, Manner, Message, Request, State, Way};
use stateright::{Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    /// The server executes a request.
    Execute(usize, Way),
    /// A message arrives, for the last time or not.
    Hear(usize, bool),
    /// A message never arrives.
    Lose(usize),
    HearAnswer(usize),
    /// An ask gets no answer in its time.
    Unanswered(usize),
    Come(usize, Manner),
    /// One that waits looks by a timer.
    Look(usize),
    GiveUp(usize),
    /// The caller's time ends.
    AskLast(usize),
    Renew(usize),
    Unlock(usize),
    Stop(usize),
    Continue(usize),
    Die(usize),
    ForeignerComes,
    ForeignerTakes,
    ForeignerReleases,
}

pub(super) const OWNED: &str = "who believes in the lock has it";
pub(super) const WANTED: &str = "what is given is wanted or will be freed";
pub(super) const LAST: &str = "who waits and has the lock was given it as its last ask";
pub(super) const FIRST: &str = "nobody who asks in turn takes a free lock past the first of the queue";
pub(super) const LEFT: &str = "nobody who asks in turn takes or gives what is left to the foreigner";
pub(super) const STUCK: &str = "nobody waits beside a lock that was freed";
pub(super) const OFFER: &str = "what is given ends with its offer";
pub(super) const ALIVE: &str = "nothing is given to the dead";
pub(super) const SERVED: &str = "who waits has the lock in time";
pub(super) const GONE: &str = "a queue in which nobody waits ends";
const GOES_ON: &str = "time goes on";
const BELIEVED: &str = "a message is believed";
const MISSED: &str = "one who waits has the lock and was not told";

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
        (0..state.messages.len()).for_each(|at| self.actions_of_message(state, at, actions));
        (0..state.clients.len()).for_each(|number| self.actions_of_client(state, number, actions));
        let (is_away, is_free) = (!state.has(FOREIGNER) && !state.foreigner_waits, state.lock.is_none());
        actions.extend((is_away && state.limits.foreign > 0).then_some(Action::ForeignerComes));
        actions.extend((state.foreigner_waits && is_free).then_some(Action::ForeignerTakes));
        actions.extend(state.has(FOREIGNER).then_some(Action::ForeignerReleases));
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
                (0..state.clients.len()).all(|number| !state.believes(number) || state.has(state.owner(number)))
            }),
            Property::always(WANTED, |_, state: &State| state.is_wanted()),
            Property::always(LAST, |_, state: &State| {
                let is_last = |number: usize| state.lock.and_then(|held| held.given) == Some(state.clients[number].ask);
                state.waits_and_has().is_none_or(is_last)
            }),
            Property::always(FIRST, |_, state: &State| state.fault != Some(Fault::Past)),
            Property::always(LEFT, |_, state: &State| state.fault != Some(Fault::NotLeft)),
            Property::always(STUCK, |_, state: &State| !state.is_stuck()),
            Property::always(OFFER, |model: &Self, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_none_or(|held| held.until <= state.now + model.setup.offer)
            }),
            Property::always(ALIVE, |_, state: &State| state.fault != Some(Fault::GivenToTheDead)),
            Property::sometimes(BELIEVED, |_, state: &State| {
                let given = state.lock.filter(|held| held.given.is_some());
                given.is_some_and(|held| state.believes(held.owner.client))
            }),
        ];
        properties.extend(self.properties_of_pace());
        properties
    }
}

impl Crowd {
    fn properties_of_pace(&self) -> Vec<Property<Self>> {
        if self.setup.pace.is_none() {
            return vec![Property::sometimes(MISSED, |_, state: &State| {
                state.messages.is_empty() && state.waits_and_has().is_some()
            })];
        }
        vec![
            Property::always(SERVED, |model: &Self, state: &State| {
                model.setup.pace.is_none_or(|pace| state.clients.iter().all(|client| client.waited <= pace.wait))
            }),
            Property::always(GOES_ON, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                state.now == model.setup.end || state.fault.is_some() || !actions.is_empty()
            }),
            Property::always(GONE, |model: &Self, state: &State| {
                state.queue.is_empty() || model.setup.pace.is_none_or(|pace| state.deserted <= pace.queue)
            }),
        ]
    }
}

impl State {
    fn waits_and_has(&self) -> Option<usize> {
        let number = self.lock?.owner.client;
        let waits = self.clients.get(number)?.waits();
        (waits && self.has(self.owner(number))).then_some(number)
    }

    /// One that is stopped or dead keeps what it was given for one offer.
    fn is_wanted(&self) -> bool {
        let Some(held) = self.lock else { return true };
        let Some(client) = self.clients.get(held.owner.client) else { return true };
        let is_current = self.has(self.owner(held.owner.client)) && client.doing != Doing::Idle;
        let frees = |request: &Request| match request {
            Request::Release(owner) => *owner == held.owner,
            Request::Quit { names, .. } => names.last.owner == held.owner,
            Request::Ask(_) | Request::Renew { .. } => false,
        };
        !client.is_awake() || is_current || self.wire.iter().any(frees)
    }

    /// Nothing is under way but what may never come, and no timer counts but that of a TTL which ended, or of a mark.
    fn is_stuck(&self) -> bool {
        let comes = |request: &Request| match request {
            Request::Ask(ask) => ask.awaited,
            _ => true,
        };
        let is_asking = self.clients.iter().any(|client| matches!(client.doing, Doing::Asking(_)));
        let is_under_way = is_asking || self.wire.iter().any(comes) || !self.messages.is_empty();
        let waits = self.clients.iter().any(|client| client.waits() && !client.polls);
        self.lock.is_none() && !self.is_timed && waits && !is_under_way
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
            looks || client.is_awake() && matches!(client.doing, Doing::Asking(Some(_)))
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
        let mut may = |way, when: bool| actions.extend(Some(Action::Execute(at, way)).filter(|_| when));
        may(Way::Usual, true);
        let frees = match request {
            Request::Release(owner) => state.has(*owner),
            Request::Quit { names, half, .. } => *half && state.has(names.last.owner),
            Request::Ask(_) | Request::Renew { .. } => false,
        };
        let gives =
            frees || state.lock.is_none() && matches!(request, Request::Ask(ask) if ask.manner != Manner::Plain);
        may(Way::ToAll, frees && limits.to_all > 0);
        may(Way::Plain, frees && limits.plain > 0);
        may(Way::Yields, frees && limits.yields > 0 && state.foreigner_waits);
        may(Way::Fails, gives && limits.failures > 0 && !state.queue.is_empty());
    }

    fn actions_of_message(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let message = state.messages[at];
        let client = &state.clients[message.client()];
        // Who cannot ask any more hears nothing that makes it ask.
        let hears = client.waits() && (client.asks > 0 || self.is_proof(state, message));
        let is_lost = self.setup.pace.is_none() && matches!(message, Message::Given(_)) || state.limits.losses > 0;
        actions.extend(hears.then_some(Action::Hear(at, true)));
        actions.extend((hears && state.limits.twice > 0).then_some(Action::Hear(at, false)));
        actions.extend(is_lost.then_some(Action::Lose(at)));
    }

    fn actions_of_client(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let (client, limits) = (&state.clients[number], state.limits);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        may(Action::Continue(number), client.stopped);
        if !client.is_awake() {
            return;
        }
        let holds = state.believes(number);
        let is_over = limits.breaks > 0 || state.now >= client.sent + self.setup.response;
        let comes = client.doing == Doing::Idle && client.waits > 0 && client.asks > 0;
        let is_answered = matches!(client.doing, Doing::Asking(Some(_)));
        // Who is stopped with the lock keeps it for a lease: where a pace is kept only one that waits is stopped.
        let stops = if self.setup.pace.is_some() { client.waits() } else { client.doing != Doing::Idle };
        may(Action::Come(number, Manner::Queued), comes);
        may(Action::Come(number, Manner::Newcomer), comes && limits.newcomers > 0);
        may(Action::Come(number, Manner::Plain), comes && limits.newcomers > 0);
        may(Action::Look(number), client.waits() && client.asks > 0 && client.looks(state.now));
        may(Action::GiveUp(number), client.waits() && limits.leaves > 0);
        may(Action::AskLast(number), client.waits() && client.asks > 0 && limits.leaves > 0);
        may(Action::Unanswered(number), client.doing == Doing::Asking(None) && is_over);
        may(Action::Unanswered(number), is_answered && limits.breaks > 0);
        may(Action::HearAnswer(number), is_answered);
        may(Action::HearAnswer(number), matches!(client.doing, Doing::Holding(_, Some((_, Some(_))))) && holds);
        may(Action::Renew(number), matches!(client.doing, Doing::Holding(_, None)) && holds && limits.renewals > 0);
        may(Action::Unlock(number), holds);
        may(Action::Stop(number), limits.stops > 0 && stops);
        may(Action::Die(number), limits.deaths > 0 && client.doing != Doing::Idle);
    }
}

impl Limits {
    fn spend(&mut self, way: Way) {
        let left = match way {
            Way::Usual => return,
            Way::ToAll => &mut self.to_all,
            Way::Plain => &mut self.plain,
            Way::Yields => &mut self.yields,
            Way::Fails => &mut self.failures,
        };
        *left -= 1;
    }
}

impl Crowd {
    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => Self::tick(state),
            Action::Execute(at, way) => {
                state.limits.spend(way);
                self.execute(state, at, way);
            }
            Action::Hear(at, last) => {
                let message = state.messages[at];
                if last {
                    state.messages.remove(at);
                }
                state.limits.twice -= u8::from(!last);
                self.hear(state, message);
            }
            Action::HearAnswer(number) => self.hear_answer(state, number),
            Action::Come(number, manner) => {
                state.limits.newcomers -= u8::from(manner != Manner::Queued);
                self.come(state, number, manner);
            }
            Action::Look(number) => self.ask(state, number, Manner::Queued),
            Action::Unlock(number) => Self::end(state, number),
            _ => self.act_rarely(state, action),
        }
    }

    fn tick(state: &mut State) {
        (state.now, state.deserted) = (state.now + 1, state.deserted + 1);
        let waiting = state.clients.iter_mut().filter(|client| client.wants() && client.is_awake());
        waiting.for_each(|client| client.waited += 1);
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
            Action::GiveUp(number) => {
                limits.leaves -= 1;
                self.give_up(state, number);
            }
            Action::AskLast(number) => {
                limits.leaves -= 1;
                self.ask(state, number, Manner::Last);
            }
            Action::Renew(number) => {
                limits.renewals -= 1;
                self.renew(state, number);
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
            _ => self.act_of_foreigner(state, action),
        }
    }

    fn act_of_foreigner(&self, state: &mut State, action: Action) {
        match action {
            Action::ForeignerComes => {
                state.limits.foreign -= 1;
                self.foreigner_asks(state);
            }
            Action::ForeignerTakes => self.foreigner_asks(state),
            Action::ForeignerReleases => self.foreigner_releases(state),
            _ => unreachable!("{action:?} is not the foreigner's"),
        }
    }

    /// What ends by itself ends, and what can change nothing is forgotten.
    fn settle(&self, state: &mut State) {
        let now = state.now;
        let is_over = state.lock.is_some_and(|held| held.until <= now);
        if is_over && state.has(FOREIGNER) && self.setup.pace.is_some() {
            self.foreigner_releases(state);
        }
        state.is_timed |= state.lock.take_if(|held| held.until <= now).is_some();
        state.mark.take_if(|until| *until <= now);
        if self.setup.pace.is_some() && state.queue_ends <= now && !self.has(Mutant::QueueNeverEnds) {
            state.queue.clear();
        }
        self.settle_clients(state);
        state.wire.retain(|request| match request {
            Request::Ask(Ask { deadline, .. }) | Request::Renew { deadline, .. } => now < *deadline,
            _ => true,
        });
        let hears = |message: &Message| state.clients[message.client()].wants();
        state.messages.retain(hears);
        state.wire.sort_unstable();
        state.wire.dedup();
        state.messages.sort_unstable();
        state.messages.dedup();
    }

    /// A hold that is over is released. Where no pace is kept nobody counts for how long anything lasts.
    fn settle_clients(&self, state: &mut State) {
        let (now, counts) = (state.now, self.setup.pace.is_some());
        let is_deserted =
            !state.queue.is_empty() && !state.clients.iter().any(|client| client.is_awake() && client.wants());
        state.deserted = if counts && is_deserted { state.deserted } else { 0 };
        for number in 0..state.clients.len() {
            let client = &mut state.clients[number];
            client.waited = if counts { client.waited } else { 0 };
            if client.is_awake() && matches!(client.doing, Doing::Holding(until, _) if until <= now) {
                Self::end(state, number);
            }
        }
    }
}
