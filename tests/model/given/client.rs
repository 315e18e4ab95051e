//! What a process does: src/lock/wait.rs and the sweeper behind it.

use super::state::{Client, Doing, Held, Limits, Message, Owner, Request, State, Ticket};
use crate::state::Tick;

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// Of each process how often it may wait, and how often it may ask. The first has the lock at the beginning.
    pub(super) clients: &'static [(u8, u8)],
    pub(super) lease: Tick,
    pub(super) offer: Tick,
    /// How long an ask may be executed.
    pub(super) response: Tick,
    /// The last tick.
    pub(super) end: Tick,
    pub(super) limits: Limits,
}

/// A rule of docs/protocol.md, 8.13 to 8.16, that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// What was given is believed from the arrival of the message on.
    BelievesWhenTold,
    /// A message of an earlier ask counts as one of the last.
    BelievesAnyNumber,
    /// Who goes takes its ticket out and does not release its owner id.
    LeavesOnly,
    /// Who goes releases its owner id first, and then takes its ticket out.
    ReleasesFirst,
    KeepsTheTicket,
    /// An ask leaves the ticket of the one before where it is.
    KeepsThePlace,
    /// A release beside an empty queue tells nobody.
    TellsNobody,
    GivesToTheDead,
    /// What is given has the TTL of a lease.
    GivesALease,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    pub(super) setup: Setup,
    pub(super) mutant: Option<Mutant>,
}

/// Clocks may differ by so much within a lease.
const MARGIN: Tick = 1;

impl Given {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn start(&self) -> State {
        let Setup { clients, lease, limits, .. } = self.setup;
        let client = |&(waits, asks): &(u8, u8)| Client {
            doing: Doing::Idle,
            life: 0,
            waits,
            asks,
            ask: 0,
            sent: 0,
            words: [None; 2],
            stopped: false,
            dead: false,
        };
        let mut clients: Vec<_> = clients.iter().map(client).collect();
        clients[0].doing = Doing::Holding(lease - MARGIN, None);
        let lock = Some(Held { owner: Owner { client: 0, life: 0 }, until: lease, given: None });
        let (queue, wire, messages) = Default::default();
        State { now: 0, lock, lapsed: false, queue, wire, messages, clients, gave_to_the_dead: false, limits }
    }

    /// Each ask has a number of its own.
    pub(super) fn ask(&self, state: &mut State, number: usize) {
        let owner = state.owner(number);
        let client = &mut state.clients[number];
        client.asks -= 1;
        client.ask += 1;
        (client.doing, client.sent) = (Doing::Asking(None), state.now);
        let ticket = Ticket { owner, ask: client.ask };
        client.words = [Some(ticket), client.words[0]];
        let (before, deadline) = (client.words[1], state.now + self.setup.response);
        state.wire.push(Request::Ask { ticket, before, deadline, awaited: true });
    }

    /// It asks as another owner, or goes.
    fn ask_again(&self, state: &mut State, number: usize) {
        state.clients[number].life += 1;
        if state.clients[number].asks > 0 {
            self.ask(state, number);
        } else {
            Self::rest(state, number, Doing::Idle);
        }
    }

    /// Its wait is over, so what is told to it is heard by nobody.
    pub(super) fn rest(state: &mut State, number: usize, doing: Doing) {
        let client = &mut state.clients[number];
        (client.doing, client.words) = (doing, [None; 2]);
        state.messages.retain(|message| message.ticket().owner.client != number);
    }

    /// The ask may still be executed until its deadline. After that its tickets are taken out and its owner id is released.
    pub(super) fn unanswered(&self, state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        self.quit(state, number, state.clients[number].sent + self.setup.response);
        self.ask_again(state, number);
    }

    pub(super) fn await_nothing(state: &mut State, number: usize) {
        for request in &mut state.wire {
            if let Request::Ask { ticket, awaited, .. } = request {
                *awaited &= ticket.owner.client != number;
            }
        }
    }

    fn quit(&self, state: &mut State, number: usize, due: Tick) {
        if let [Some(ticket), before] = state.clients[number].words {
            state.wire.push(Request::Quit { ticket, before, due, half: false });
        }
    }

    pub(super) fn give_up(&self, state: &mut State, number: usize) {
        self.quit(state, number, state.now);
        state.clients[number].life += 1;
        Self::rest(state, number, Doing::Idle);
    }

    /// An answer arrives, to an ask or to a renewal.
    pub(super) fn hear_answer(&self, state: &mut State, number: usize) {
        let (now, sent) = (state.now, state.clients[number].sent);
        let validity = self.setup.lease - MARGIN;
        match state.clients[number].doing {
            Doing::Asking(Some(true)) if now < sent + validity => {
                Self::rest(state, number, Doing::Holding(sent + validity, None));
            }
            Doing::Asking(Some(true)) => {
                state.wire.push(Request::Release(state.owner(number)));
                self.ask_again(state, number);
            }
            Doing::Asking(Some(false)) => state.clients[number].doing = Doing::Waiting,
            Doing::Holding(until, Some((sent, Some(true)))) => {
                state.clients[number].doing = Doing::Holding(until.max(sent + validity), None);
            }
            Doing::Holding(_, Some((_, Some(false)))) => Self::end(state, number),
            _ => {}
        }
    }

    /// A message is a proof to the last ask alone, and while less than half of the offer is over. Else who was given the lock asks, and
    /// what was given to an earlier ask is nothing.
    pub(super) fn hear(&self, state: &mut State, message: Message) {
        let number = message.ticket().owner.client;
        let (now, client) = (state.now, &state.clients[number]);
        let sent = if self.has(Mutant::BelievesWhenTold) { now } else { client.sent };
        let is_last = client.words[0] == Some(message.ticket()) || self.has(Mutant::BelievesAnyNumber);
        let is_early = 2 * (now - sent) < self.setup.offer;
        match message {
            Message::Given(_) if is_last && is_early => {
                Self::rest(state, number, Doing::Holding(sent + self.setup.offer - MARGIN, None));
            }
            Message::Given(_) if !is_last => {}
            _ => self.ask(state, number),
        }
    }

    pub(super) fn renew(&self, state: &mut State, number: usize) {
        let (owner, now) = (state.owner(number), state.now);
        if let Doing::Holding(_, renewal) = &mut state.clients[number].doing {
            *renewal = Some((now, None));
        }
        state.wire.push(Request::Renew { owner, deadline: now + self.setup.response });
    }

    /// An unlock. A hold that is over is released, too.
    pub(super) fn end(state: &mut State, number: usize) {
        state.wire.push(Request::Release(state.owner(number)));
        state.clients[number].life += 1;
        Self::rest(state, number, Doing::Idle);
    }

    /// What it has sent may still be executed. Of what it would have sent nothing will be.
    pub(super) fn die(state: &mut State, number: usize) {
        Self::await_nothing(state, number);
        Self::rest(state, number, Doing::Idle);
        state.clients[number].dead = true;
        state.wire.retain(|at| !matches!(at, Request::Quit { ticket, .. } if ticket.owner.client == number));
    }
}
