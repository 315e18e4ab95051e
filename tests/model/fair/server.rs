//! The server: what each script of ours does to the lock and its queue.

use super::client::{Crowd, Mutant};
use super::state::{Answer, Ask, Doing, End, Fault, Held, Manner, Message, Names, Owner, Request, State, Ticket};
use crate::state::Tick;

/// Whom `serve` found first.
enum First {
    Nobody,
    Asker,
    /// It has the lock, or may come for it, for so many ticks.
    Other(Tick),
    /// The server failed.
    Error,
}

impl Crowd {
    /// Executes a request. One that is late does nothing. `fails`: the server has no memory left when it writes the next owner.
    pub(super) fn execute(&self, state: &mut State, at: usize, fails: bool) {
        match state.wire.remove(at) {
            Request::Ask(Ask { deadline, .. }) if state.now >= deadline => {}
            Request::Ask(ask) => self.answer(state, ask, fails),
            Request::Release(owner) => self.release(state, owner, fails),
            Request::Quit { names, due, half } => {
                // The first step is to leave, the second to release.
                match (half, self.has(Mutant::ReleasesFirst)) {
                    (true, false) if self.has(Mutant::LeavesOnly) => {}
                    (false, false) | (true, true) => self.leave(state, names),
                    (true, false) | (false, true) => self.release(state, names.last.owner, fails),
                }
                state.wire.extend((!half).then_some(Request::Quit { names, due, half: true }));
            }
        }
        Self::settle_keys(state);
    }

    fn answer(&self, state: &mut State, ask: Ask, fails: bool) {
        let answer = self.asked(state, ask, fails);
        if ask.awaited {
            state.clients[ask.names.last.owner.client].doing = Doing::Asking(Some(answer));
        }
    }

    fn asked(&self, state: &mut State, ask: Ask, fails: bool) -> Answer {
        let (owner, was_free) = (ask.names.last.owner, state.lock.is_none());
        let mut left = state.lock.map(|held| held.until - state.now);
        let (takes_over, is_moved) =
            if ask.manner == Manner::Try { (false, false) } else { self.rename(state, ask.names) };
        left = left.filter(|_| !takes_over);
        let serves = was_free || takes_over && self.has(Mutant::ServesWhatItTakesOver);
        let first = if serves { self.serve_but(state, ask, fails) } else { First::Asker };
        if let First::Other(ticks) = first {
            left = Some(ticks);
        }
        if left.is_none() || state.has(owner) {
            if was_free && !matches!(first, First::Error) && !state.has(owner) {
                state.gets_it(owner);
            }
            self.take(state, owner, self.setup.lease, None);
            Self::gone(state, ask.names);
            return Answer::Granted;
        }
        self.stays(state, ask, left, is_moved)
    }

    fn serve_but(&self, state: &mut State, ask: Ask, fails: bool) -> First {
        let owner = ask.names.last.owner;
        let is_passed = self.has(Mutant::TryOvertakes) && ask.manner == Manner::Try;
        if is_passed || self.has(Mutant::TakesPastTheFirst) {
            First::Asker
        } else {
            self.serve(state, Some(owner), fails)
        }
    }

    /// The lock is another's.
    fn stays(&self, state: &mut State, ask: Ask, left: Option<Tick>, is_moved: bool) -> Answer {
        let Ask { names, manner, .. } = ask;
        let foreign = state.lock.is_some_and(|held| state.is_java(held.owner));
        let (rank, others) = match manner {
            Manner::Queued => self.join(state, names, is_moved),
            Manner::Last if !self.has(Mutant::LastStays) => {
                Self::gone(state, names);
                (0, 0)
            }
            _ => (0, 0),
        };
        match self.setup.pace {
            // Where no pace is kept nobody counts how long anything lasts.
            None => Answer::Busy(None, 0, foreign || others > 0),
            Some(_) => Answer::Busy(left, rank, foreign || others > 0),
        }
    }

    /// Takes the place that it has by an earlier owner id, or the lock, which is free then. Whether it took the lock, and whether a place.
    fn rename(&self, state: &mut State, names: Names) -> (bool, bool) {
        let (owner, mut is_moved) = (names.last.owner, false);
        for old in names.earlier().filter(|_| !self.has(Mutant::KeepsThePlace)) {
            let Some(end) = state.ends.get(&old).copied() else { continue };
            let at = state.list.iter().position(|field| *field == old);
            let is_new = !state.ends.contains_key(&owner) || self.has(Mutant::RenamesTwice);
            if let Some(at) = at.filter(|_| is_new) {
                let at = if self.has(Mutant::RenamesToTheEnd) { state.list.len() } else { at };
                state.list.insert(at, owner);
                state.ends.insert(owner, end);
                state.tickets.insert(owner, names.last);
                is_moved = true;
            }
            Self::drop(state, old);
        }
        let is_its = |held: &mut Held| names.earlier().any(|old| old == held.owner);
        (!self.has(Mutant::TakesNothingOver) && state.lock.take_if(is_its).is_some(), is_moved)
    }

    /// Its rank, and how many threads of Redisson's are before it; none if it did not look.
    fn join(&self, state: &mut State, names: Names, is_moved: bool) -> (u8, u8) {
        let owner = names.last.owner;
        if state.list.is_empty() {
            state.tickets.clear();
        }
        let mut is_new = !state.tickets.contains_key(&owner);
        if is_new || !self.has(Mutant::KeepsTheTicket) {
            state.tickets.insert(owner, names.last);
        }
        is_new |= is_moved;
        let client = &mut state.clients[owner.client];
        if client.first == names.first && client.wants() {
            client.looked = if client.life == owner.life { state.now } else { client.looked };
            state.arrives(owner.client);
        }
        let others = if is_new || self.is_due(state, owner) { self.look(state, owner) } else { 0 };
        let rank = state.list.iter().position(|field| *field == owner).unwrap_or(0);
        (if self.has(Mutant::LooksAtTheEnd) { 0 } else { rank as u8 }, others)
    }

    /// Whether an ask moves its end: it is near, or counts waits of Redisson's, which may be taken off it at once.
    fn is_due(&self, state: &State, owner: Owner) -> bool {
        let (spans, end) = (self.setup.spans, state.ends.get(&owner).map_or(End::MIN, |end| end - state.time()));
        end < spans.kept() || end > spans.wait && !self.has(Mutant::LooksSeldomBehindRedisson)
    }

    /// A look at all places. Returns how many of Redisson's are before it.
    fn look(&self, state: &mut State, owner: Owner) -> u8 {
        let spans = self.setup.spans;
        let before = state.list.iter().take_while(|field| **field != owner).filter(|field| state.is_java(**field));
        let before: Vec<_> = before.map(|field| state.ends.get(field).copied().unwrap_or(0)).collect();
        let (others, last) = (before.len(), before.into_iter().max().unwrap_or(0));
        if !state.list.contains(&owner) {
            state.list.push(owner);
        }
        let counted = if self.has(Mutant::CountsNoRedisson) { 0 } else { others };
        let last = if self.has(Mutant::EndsBeforeRedisson) { 0 } else { last };
        let end = state.ends.get(&owner).copied().unwrap_or(End::MIN);
        let end = end.max(state.time() + spans.wait + spans.counted * counted as End).max(last + spans.wait);
        let moves = !self.has(Mutant::NeverMovesItsEnd) || !state.ends.contains_key(&owner);
        moves.then(|| state.ends.insert(owner, end));
        let due = end + spans.half;
        let is_short = |ttl: Option<End>| ttl.is_none_or(|ttl| ttl < due);
        let is_due = is_short(state.ttl) || is_short(state.ttl_of_tickets) && !self.has(Mutant::LooksAtOneTtl);
        if is_due && !self.has(Mutant::QueueNeverEnds) {
            self.keep(state);
        }
        others as u8
    }

    fn keep(&self, state: &mut State) {
        let last = state.ends.values().max().copied().unwrap_or(0);
        let after = if self.has(Mutant::KeysEndTooSoon) { 1 } else { self.setup.spans.after };
        let ttl = Some(last.max(state.time()) + after);
        (state.ttl, state.ttl_of_tickets) = (ttl, ttl);
    }

    /// Takes a wait out of the queue.
    fn gone(state: &mut State, names: Names) {
        Self::drop(state, names.last.owner);
        names.earlier().for_each(|old| Self::drop(state, old));
        state.forget(names.last.owner.client);
    }

    fn drop(state: &mut State, field: Owner) {
        state.ends.remove(&field);
        state.tickets.remove(&field);
        if let Some(at) = state.list.iter().position(|other| *other == field) {
            state.list.remove(at);
        }
    }

    /// Gives the lock to an owner, or more time to the one that has it.
    fn take(&self, state: &mut State, owner: Owner, ticks: Tick, given: Option<u8>) {
        let until = state.lock.map_or(0, |held| held.until).max(state.now + ticks);
        (state.lock, state.is_timed) = (Some(Held { owner, until, given }), false);
    }

    /// A place was taken out because its end is past, by a clock that is so much ahead.
    pub(super) fn is_out(&self, state: &mut State, owner: Owner, ahead: End) {
        let looked = End::from(state.clients[owner.client].looked);
        let in_time = state.time() + ahead < looked + self.setup.spans.kept();
        let is_lost = in_time && !state.is_java(owner) && state.is_waiting(owner);
        state.fault = state.fault.or(is_lost.then_some(Fault::Lost));
        // If it lives, its timer has rung.
        state.is_timed |= state.lock.is_none();
        state.forget(owner.client);
    }

    /// Gives a free lock to the first that counts.
    fn serve(&self, state: &mut State, asker: Option<Owner>, fails: bool) -> First {
        loop {
            let skips = usize::from(self.has(Mutant::SkipsTheHead) && state.list.len() > 1);
            let Some(field) = state.list.get(skips).copied() else { return First::Nobody };
            if Some(field) == asker {
                return First::Asker;
            }
            let ticket = state.tickets.get(&field).copied();
            let left = state.ends.get(&field).map_or(0, |end| end - state.time());
            let counts = left > 0 || self.has(Mutant::PurgesNobody);
            if ticket.is_none() && self.tells(state, field, counts) {
                state.is_timed = true;
                return First::Other(left.max(1) as Tick);
            }
            if let Some(first) = ticket.filter(|_| counts).and_then(|ticket| self.give(state, ticket, fails)) {
                return first;
            }
            if !counts {
                Self::drop(state, field);
                self.is_out(state, field, 0);
            }
        }
    }

    /// A place without a ticket is of Redisson's, or its ticket is lost: then it is taken out, and all look. Whether the lock is kept for it.
    fn tells(&self, state: &mut State, field: Owner, counts: bool) -> bool {
        if state.is_java(field) || self.has(Mutant::KeepsItForTheTicketless) {
            let is_told = counts || !self.has(Mutant::TellsNoneOfThePast);
            is_told.then(|| state.tell_field(field));
            return counts;
        }
        if !self.has(Mutant::DropsInSilence) {
            self.tell_all(state);
        }
        Self::drop(state, field);
        state.forget(field.client);
        false
    }

    /// Whose process is dead is removed, and given nothing.
    fn give(&self, state: &mut State, ticket: Ticket, fails: bool) -> Option<First> {
        let (field, client) = (ticket.owner, &state.clients[ticket.owner.client]);
        let (is_unheard, is_dead) = (!client.ear, client.dead);
        let polls = ticket.polls && !self.has(Mutant::PollsUnheard);
        if is_unheard && !polls && !self.has(Mutant::GivesToTheDead) {
            Self::drop(state, field);
            state.forget(field.client);
            return None;
        }
        let tells = |state: &mut State| {
            let hears = state.clients[field.client].ear;
            state.messages.extend(hears.then_some(Message::Given(ticket)));
        };
        if fails {
            self.has(Mutant::TellsFirst).then(|| tells(state));
            return Some(First::Error);
        }
        if !self.has(Mutant::KeepsThePlaceOfTheServed) {
            Self::drop(state, field);
        }
        state.fault = state.fault.or((is_dead && is_unheard && !ticket.polls).then_some(Fault::GivenToTheDead));
        state.gets_it(field);
        let ticks = if self.has(Mutant::GivesALease) { self.setup.lease } else { self.setup.offer };
        self.take(state, field, ticks, Some(ticket.ask));
        if self.has(Mutant::TakesTimeOff) {
            state.ends.values_mut().for_each(|end| *end -= self.setup.spans.counted);
        }
        tells(state);
        Some(First::Other(ticks))
    }

    fn release(&self, state: &mut State, owner: Owner, fails: bool) {
        if state.lock.take_if(|held| held.owner == owner).is_none() {
            return;
        }
        state.forget(owner.client);
        state.is_timed = false;
        let is_served =
            !self.has(Mutant::ReleaseGivesNothing) && matches!(self.serve(state, None, fails), First::Other(_));
        if !is_served {
            self.tell_all(state);
        }
    }

    fn leave(&self, state: &mut State, names: Names) {
        let before = state.list.len();
        let is_lost = state.is_waiting(names.last.owner);
        state.fault = state.fault.or(is_lost.then_some(Fault::Lost));
        Self::gone(state, names);
        if state.list.len() < before && state.lock.is_none() && !self.has(Mutant::LeaveGivesNothing) {
            self.serve(state, None, false);
        }
    }

    fn tell_all(&self, state: &mut State) {
        if !self.has(Mutant::TellsNobody) {
            let hears = |number: &usize| !state.clients[*number].is_java() && state.clients[*number].wants();
            let waiting: Vec<_> = (0..state.clients.len()).filter(hears).collect();
            waiting.into_iter().for_each(|number| state.tell(number));
        }
    }

    /// A key that is empty is gone, and its TTL with it.
    pub(super) fn settle_keys(state: &mut State) {
        state.ttl.take_if(|_| state.list.is_empty() && state.ends.is_empty());
        state.ttl_of_tickets.take_if(|_| state.tickets.is_empty());
    }
}
