//! What can happen next, what must never be so, and the searches of the queue as it is.

use super::fair::Fair;
use super::server::Turn;
use super::{At, Client, Crowd, Fault, Foreigner, Limits, Link, Lock, Mark, Mutant, Name, Request, STRANGER, Setup};
use super::{State, Ticket};
use stateright::{Model, Property};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Come(u8),
    /// The server executes a request.
    Execute(usize),
    /// The deadline of a late one is over.
    Forget(usize),
    HearReply(u8),
    Confirm(u8),
    Hear(u8),
    /// A waiter asks: as it heard something, or as its timer rings.
    Wake(u8),
    Ring(u8),
    Release(u8, Turn),
    TurnEnds(u8),
    MarkEnds,
    /// The key of the queue ends with its TTL.
    QueueEnds,
    Expire,
    ForeignerComes,
    ForeignerTries,
    ForeignerReleases,
    GiveUp(u8),
    Lapse(u8),
    Unanswered(u8),
    LoseLeave(usize),
    Stop(u8),
    Continue(u8),
    Die(u8),
    Break(u8),
    Wipe,
    Forge,
}

impl Model for Crowd {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Setup { clients, bystanders, foreign, limits, comes, company, .. } = self.setup;
        let client = Client {
            at: At::Away,
            stopped: false,
            company,
            link: Link::Down,
            inbox: Vec::new(),
            permit: false,
            soon: false,
            rank: None,
            arrival: None,
            joined: false,
            yielded: false,
            turn: false,
            comes: comes.unwrap_or(1),
        };
        let count = usize::from(clients + bystanders);
        vec![State {
            lock: Lock::Free,
            queue: Vec::new(),
            mark: Mark::None,
            clients: vec![client; count],
            foreigner: Foreigner::Away { comes: foreign },
            wire: Vec::new(),
            limits,
            passed: vec![0; count],
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        for client in 0..state.clients.len() as u8 {
            self.actions_of_client(state, client, actions);
            self.mishaps_of_client(state, client, actions);
        }
        for (at, request) in state.wire.iter().enumerate() {
            self.actions_of_request(state, (at, *request), actions);
        }
        self.actions_of_keys(state, actions);
        actions.extend(match state.foreigner {
            Foreigner::Away { comes: 0 } | Foreigner::Waiting { told: false, .. } => None,
            Foreigner::Away { .. } => Some(Action::ForeignerComes),
            Foreigner::Waiting { told: true, .. } => Some(Action::ForeignerTries),
            Foreigner::Holding { .. } => Some(Action::ForeignerReleases).filter(|_| self.may_release(state)),
        });
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        if matches!(action, Action::MarkEnds | Action::Ring(_)) {
            state.limits.late -= u8::from(last.is_urgent());
        }
        self.act(&mut state, action);
        state.renumber();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |_, state: &State| state.has_one_holder()),
            Property::always(STUCK, |_, state: &State| !state.is_stuck()),
            Property::always(IDLE, |model: &Self, state: &State| model.loses_turns() || !state.is_idle()),
            Property::always(KNOWN, |model: &Self, state: &State| model.loses_tickets() || state.members_are_queued()),
            Property::always(ALIVE, |_, state: &State| state.fault != Some(Fault::TakenForDead)),
            Property::always(HEAD, |_, state: &State| state.fault != Some(Fault::NotTheHead)),
            Property::always(EAR, |_, state: &State| state.fault != Some(Fault::TurnForTheDead)),
            Property::always(TOLD, |_, state: &State| state.fault != Some(Fault::Untold)),
            Property::always(ORDER, |model: &Self, state: &State| {
                !model.is_ordered() || state.passed.iter().all(|times| *times < 2)
            }),
        ]
    }
}

pub(crate) const ONE: &str = "one holder at a time";
pub(crate) const STUCK: &str = "nobody sleeps beside a free lock";
pub(crate) const IDLE: &str = "a turn is taken by one who can";
pub(crate) const KNOWN: &str = "who is no longer queued hears of it";
pub(crate) const ALIVE: &str = "nobody is taken for dead who hears";
pub(crate) const HEAD: &str = "who is told to be the first is the first";
pub(crate) const EAR: &str = "a turn is given to an ear";
pub(crate) const TOLD: &str = "who waits without a ticket is told of each release";
pub(crate) const ORDER: &str = "nobody is passed over twice by the same";
pub(crate) const SERVED: &str = "who waits gets the lock";
pub(crate) const GONE: &str = "a stale ticket does not stay";

impl State {
    /// Who believes that it holds the lock holds it.
    fn has_one_holder(&self) -> bool {
        let believing = (0..self.clients.len() as u8).filter(|client| self.get(*client).believes());
        let mut others = believing.filter(|client| self.lock != Lock::Ours(*client));
        others.next().is_none() && (self.lock == Lock::Foreign || !matches!(self.foreigner, Foreigner::Holding { .. }))
    }

    /// Something is under way that takes no longer than a message.
    pub(crate) fn is_urgent(&self) -> bool {
        let served = |request: &Request| match request {
            Request::Ask(ask) => ask.awaited,
            Request::Leave { .. } => self.may_execute(request),
        };
        self.wire.iter().any(served) || self.clients.iter().any(Client::is_urgent)
    }

    /// The second leave waits until what was open is void.
    fn may_execute(&self, request: &Request) -> bool {
        let open =
            |of: Name| move |other: &Request| matches!(other, Request::Ask(ask) if ask.name == of && !ask.awaited);
        match request {
            Request::Leave { name, again: false } => !self.wire.iter().any(open(*name)),
            _ => true,
        }
    }

    /// The lock is free and someone waits, but nothing is on its way and no timer runs.
    fn is_stuck(&self) -> bool {
        let ours = self.clients.iter().any(|client| client.waits() && client.is_awake());
        let foreign = matches!(self.foreigner, Foreigner::Waiting { .. });
        let armed = self.clients.iter().any(|client| client.at == At::Asleep && client.is_awake() && client.soon);
        let told = matches!(self.foreigner, Foreigner::Waiting { told: true, .. });
        self.lock == Lock::Free && (ours || foreign) && !armed && !told && !self.is_urgent()
    }

    /// Who sleeps and believes that it is queued is so: it need not wait for its timer to find out.
    fn members_are_queued(&self) -> bool {
        (0..self.clients.len() as u8).all(|at| {
            let client = self.get(at);
            let sleeps = client.at == At::Asleep && client.is_awake() && !client.is_urgent();
            !sleeps || client.rank.is_none() || self.rank(Name { client: at, old: false }).is_some()
        })
    }

    /// Everybody waits for one who does not know that it is its turn.
    fn is_idle(&self) -> bool {
        let head = self.queue.first().map(|ticket| ticket.name);
        let sleeps = head.is_some_and(|head| !self.is_stale(head));
        self.lock == Lock::Free && self.mark == Mark::Head && sleeps && !self.is_urgent()
    }
}

impl Crowd {
    /// Whether what is promised without faults need not be kept.
    fn has_faults(&self) -> bool {
        self.setup.limits != Limits::default()
    }

    /// Whether a turn may be left to one that cannot take it. One that gives up can tell the next.
    fn loses_turns(&self) -> bool {
        Limits { leaves: 0, ..self.setup.limits } != Limits::default()
    }

    /// Whether a ticket may be gone without a word, also by a late ask of its owner that takes: for that there are timers.
    fn loses_tickets(&self) -> bool {
        self.setup.limits.wipes + self.setup.limits.stops + self.setup.limits.lost > 0
    }

    /// A hold that is shorter than a message may be followed by the next before those who heard nothing can ask, after
    /// a turn that foreigners left unused the timers race, and bystanders ask of the lock alone.
    fn is_ordered(&self) -> bool {
        let all = self.setup.bystanders == 0 && !self.setup.yields;
        all && self.setup.prompt && !self.has_faults()
    }

    fn actions_of_client(&self, state: &State, at: u8, actions: &mut Vec<Action>) {
        let client = state.get(at);
        if !client.is_awake() {
            return;
        }
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let patient = !state.is_urgent() || state.limits.late > 0;
        let ends = self.may_release(state);
        may(Action::Come(at), client.at == At::Away && client.comes > 0);
        may(Action::HearReply(at), matches!(client.at, At::Answered(_)));
        may(Action::Confirm(at), client.link == Link::Asked);
        may(Action::Hear(at), client.link == Link::Up && !client.inbox.is_empty());
        may(Action::Wake(at), client.at == At::Asleep && client.permit);
        may(Action::Ring(at), client.at == At::Asleep && client.soon && patient);
        may(Action::Release(at, Turn::Ears), client.at == At::Holding && ends);
        may(Action::Release(at, Turn::Both), client.at == At::Holding && client.company && ends);
        let waits = matches!(state.foreigner, Foreigner::Waiting { .. });
        let again = client.yielded && !self.has(Mutant::YieldsAgain);
        let may_yield = self.setup.yields && waits && !again && !client.turn;
        let yields = client.at == At::Holding && client.company && may_yield && ends;
        may(Action::Release(at, Turn::Foreigners), yields);
        may(Action::TurnEnds(at), client.turn && !self.has(Mutant::TurnNeverEnds));
    }

    fn may_release(&self, state: &State) -> bool {
        !self.setup.prompt || !state.is_urgent()
    }

    fn mishaps_of_client(&self, state: &State, at: u8, actions: &mut Vec<Action>) {
        let (client, limits) = (state.get(at), state.limits);
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let idle = client.at == At::Asleep || client.at == At::Asking;
        let lapses =
            client.at == At::Away && limits.lapses > 0 || client.at == At::Holding && self.has(Mutant::ForgetsInHold);
        may(Action::GiveUp(at), limits.leaves > 0 && client.is_awake() && idle);
        may(Action::Lapse(at), lapses && client.company);
        may(Action::Unanswered(at), client.at == At::Asking && limits.lost > 0 && client.is_awake());
        may(Action::Stop(at), limits.stops > 0 && client.is_awake());
        may(Action::Continue(at), client.stopped);
        may(Action::Die(at), limits.deaths > 0 && client.at != At::Dead);
        may(Action::Break(at), limits.breaks > 0 && client.link == Link::Up);
    }

    fn actions_of_request(&self, state: &State, (at, request): (usize, Request), actions: &mut Vec<Action>) {
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let late = matches!(request, Request::Ask(ask) if !ask.awaited);
        may(Action::Execute(at), state.may_execute(&request));
        may(Action::Forget(at), late);
        may(Action::LoseLeave(at), matches!(request, Request::Leave { .. }) && state.limits.lost > 0);
    }

    fn actions_of_keys(&self, state: &State, actions: &mut Vec<Action>) {
        let mut may = |action, when: bool| actions.extend(Some(action).filter(|_| when));
        let patient = !state.is_urgent() || state.limits.late > 0;
        let ends = state.mark != Mark::None && patient && !self.has(Mutant::MarkNeverEnds);
        let stale = state.queue.iter().all(|ticket| state.is_stale(ticket.name));
        let silent = matches!(state.lock, Lock::Ours(client) if !state.get(client).is_awake());
        may(Action::MarkEnds, ends);
        may(Action::QueueEnds, !state.queue.is_empty() && stale);
        may(Action::Expire, silent || state.lock == Lock::Orphan);
        may(Action::Wipe, state.limits.wipes > 0 && !state.queue.is_empty());
        may(Action::Forge, state.limits.wipes > 0);
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Come(client) => self.come(state, client),
            Action::Execute(at) => self.execute(state, at),
            Action::HearReply(client) => self.hear_reply(state, client),
            Action::Confirm(client) => Self::confirm(state, client),
            Action::Hear(client) => self.hear(state, client),
            Action::Wake(client) | Action::Ring(client) => self.ask(state, client),
            Action::Release(client, turn) => self.release(state, client, turn),
            Action::TurnEnds(client) => state.client(client).turn = false,
            Action::MarkEnds => state.mark = Mark::None,
            Action::QueueEnds => state.queue.clear(),
            Action::Expire => Self::expire(state),
            _ => self.act_rarely(state, action),
        }
    }

    fn act_rarely(&self, state: &mut State, action: Action) {
        let limits = &mut state.limits;
        match action {
            Action::GiveUp(client) => {
                limits.leaves -= 1;
                self.give_up(state, client);
            }
            Action::Lapse(client) => {
                limits.lapses -= u8::from(state.clients[usize::from(client)].at == At::Away);
                state.client(client).company = false;
            }
            Action::Unanswered(client) => {
                limits.lost -= 1;
                state.stop_awaiting(client);
                let waiter = state.client(client);
                (waiter.at, waiter.permit) = (At::Asleep, true);
            }
            Action::Stop(client) => {
                limits.stops -= 1;
                state.client(client).stopped = true;
            }
            Action::Continue(client) => state.client(client).stopped = false,
            Action::Die(client) => {
                limits.deaths -= 1;
                self.die(state, client);
            }
            Action::Break(client) => {
                limits.breaks -= 1;
                let cut = state.client(client);
                cut.link = if cut.waits() { Link::Asked } else { Link::Down };
                cut.inbox.clear();
            }
            _ => Self::act_on_keys(state, action),
        }
    }

    fn act_on_keys(state: &mut State, action: Action) {
        match action {
            Action::Forget(at) => drop(state.wire.remove(at)),
            Action::LoseLeave(at) => {
                state.limits.lost -= 1;
                state.wire.remove(at);
            }
            Action::Wipe => {
                state.limits.wipes -= 1;
                state.queue.clear();
            }
            Action::Forge => {
                state.limits.wipes -= 1;
                state.forge();
            }
            Action::ForeignerComes | Action::ForeignerTries | Action::ForeignerReleases => {
                Self::act_of_foreigner(state)
            }
            _ => unreachable!("{action:?} is not rare"),
        }
    }

    /// It tries when it comes, subscribes and tries again, and then whenever it is told.
    fn act_of_foreigner(state: &mut State) {
        let free = state.lock == Lock::Free;
        state.foreigner = match state.foreigner {
            Foreigner::Away { comes } | Foreigner::Waiting { comes, .. } if free => {
                state.lock = Lock::Foreign;
                Foreigner::Holding { comes }
            }
            Foreigner::Away { comes } | Foreigner::Waiting { comes, .. } => Foreigner::Waiting { told: false, comes },
            Foreigner::Holding { comes } => {
                Self::release_plain(state);
                Foreigner::Away { comes: comes - 1 }
            }
        };
    }
}

impl State {
    /// The order reversed, and a ticket of nobody before all.
    fn forge(&mut self) {
        self.queue.reverse();
        let name = Name { client: STRANGER, old: false };
        self.queue.retain(|ticket| ticket.name != name);
        self.queue.insert(0, Ticket { arrival: 0, name });
        (0..).zip(&mut self.queue).for_each(|(at, ticket)| ticket.arrival = at);
    }
}

impl Fair for Crowd {
    /// Whoever is told, answered or due acts, holders release, and marks, deadlines and TTLs end.
    fn class(&self, state: &State, action: &Action) -> Option<u32> {
        let (kind, client) = match *action {
            Action::MarkEnds => return Some(0),
            Action::QueueEnds => return Some(1),
            Action::Expire => return Some(2),
            Action::ForeignerTries => return Some(4),
            Action::ForeignerReleases => return Some(3),
            Action::Forget(_) => return Some(5),
            Action::Execute(at) => match state.wire[at] {
                Request::Ask(ask) if !ask.awaited => return None,
                Request::Ask(ask) => (0, ask.name.client),
                Request::Leave { name, .. } => (1, name.client),
            },
            Action::HearReply(client) => (2, client),
            Action::Confirm(client) => (3, client),
            Action::Hear(client) => (4, client),
            Action::Wake(client) => (5, client),
            Action::Ring(client) => (6, client),
            Action::Release(client, _) => (7, client),
            Action::TurnEnds(client) => (8, client),
            _ => return None,
        };
        Some(6 + kind * (state.clients.len() as u32) + u32::from(client))
    }

    /// Time goes on whatever the others do: marks end, timers ring, and so do holds and turns come to their end.
    fn strong(&self) -> u64 {
        let clients = u32::from(self.setup.clients + self.setup.bystanders);
        let timed = (0..3 * clients).fold(0, |all, timer| all | 1 << (6 + 6 * clients + timer));
        0b1001 | timed
    }
}
