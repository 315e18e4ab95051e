//! The server: what each script does to the lock and its queue.

use super::client::{Given, Mutant};
use super::state::{Doing, Held, Message, Owner, Request, State, Ticket};
use crate::state::Tick;

impl Given {
    /// Executes a request. One that is late does nothing.
    pub(super) fn execute(&self, state: &mut State, at: usize) {
        match state.wire.remove(at) {
            Request::Ask { deadline, .. } | Request::Renew { deadline, .. } if state.now >= deadline => {}
            Request::Ask { ticket, before, awaited, .. } => {
                let is_granted = self.ask_for(state, ticket, before);
                if awaited {
                    state.clients[ticket.owner.client].doing = Doing::Asking(Some(is_granted));
                }
            }
            Request::Renew { owner, .. } => self.renewed(state, owner),
            Request::Release(owner) => self.release(state, owner),
            Request::Quit { ticket, before, due, half } => {
                // The first step is to leave, the second to release.
                match (half, self.has(Mutant::ReleasesFirst)) {
                    (true, false) if self.has(Mutant::LeavesOnly) => {}
                    (false, false) | (true, true) => Self::leave(state, [Some(ticket), before]),
                    (true, false) | (false, true) => self.release(state, ticket.owner),
                }
                state.wire.extend((!half).then_some(Request::Quit { ticket, before, due, half: true }));
            }
        }
    }

    /// Whether it has the lock now.
    fn ask_for(&self, state: &mut State, ticket: Ticket, before: Option<Ticket>) -> bool {
        let before = before.filter(|_| !self.has(Mutant::KeepsThePlace));
        if let Some(place) = state.queue.iter_mut().find(|place| Some(**place) == before) {
            *place = ticket;
        }
        let is_queued = state.queue.contains(&ticket);
        let is_free = state.lock.is_none() && (is_queued || !Self::tell_first(state));
        if !is_free && !state.has(ticket.owner) {
            state.queue.extend((!is_queued).then_some(ticket));
            return false;
        }
        self.take(state, ticket.owner, state.now + self.setup.lease, None);
        if let Some(rank) = state.queue.iter().position(|place| *place == ticket) {
            state.queue.remove(rank);
            // Those before it were passed over.
            state.messages.extend(state.queue.drain(..rank).map(Message::Look));
        }
        true
    }

    /// Gives the lock to an owner, or more time to the one that has it.
    fn take(&self, state: &mut State, owner: Owner, until: Tick, given: Option<u8>) {
        let until = state.lock.map_or(0, |held| held.until).max(until);
        (state.lock, state.lapsed) = (Some(Held { owner, until, given }), false);
    }

    fn renewed(&self, state: &mut State, owner: Owner) {
        let is_own = state.has(owner);
        if is_own {
            self.take(state, owner, state.now + self.setup.lease, None);
        }
        let client = &mut state.clients[owner.client];
        if client.life == owner.life
            && let Doing::Holding(_, Some((_, answer))) = &mut client.doing
        {
            *answer = Some(is_own);
        }
    }

    /// A head whose ear has no listener is skipped. If nobody queues, all who wait are told.
    fn release(&self, state: &mut State, owner: Owner) {
        if state.lock.take_if(|held| held.owner == owner).is_none() {
            return;
        }
        state.lapsed = false;
        while state.lock.is_none() && !state.queue.is_empty() {
            let head = state.queue[0];
            let is_dead = state.clients[head.owner.client].dead;
            let is_given = !is_dead || self.has(Mutant::GivesToTheDead);
            if !is_given || !self.has(Mutant::KeepsTheTicket) {
                state.queue.remove(0);
            }
            if is_given {
                let ticks = if self.has(Mutant::GivesALease) { self.setup.lease } else { self.setup.offer };
                self.take(state, head.owner, state.now + ticks, Some(head.ask));
                state.messages.push(Message::Given(head));
                state.gave_to_the_dead |= is_dead;
            }
        }
        if state.lock.is_none() && !self.has(Mutant::TellsNobody) {
            let waiting = state.clients.iter().filter_map(|client| client.words[0]);
            state.messages.extend(waiting.map(Message::Look));
        }
    }

    fn leave(state: &mut State, tickets: [Option<Ticket>; 2]) {
        let before = state.queue.len();
        state.queue.retain(|place| !tickets.contains(&Some(*place)));
        if state.queue.len() < before && state.lock.is_none() {
            Self::tell_first(state);
        }
    }

    /// Whether there is anybody to tell.
    fn tell_first(state: &mut State) -> bool {
        let dead = |ticket: &Ticket| state.clients[ticket.owner.client].dead;
        let skipped = state.queue.iter().take_while(|ticket| dead(ticket)).count();
        state.queue.drain(..skipped);
        state.messages.extend(state.queue.first().copied().map(Message::Look));
        !state.queue.is_empty()
    }
}
