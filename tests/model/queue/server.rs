//! The server: what each script does to the lock and its queue.

use super::client::{Crowd, Mutant};
use super::state::{
    Answer, Ask, Client, Doing, FOREIGNER, Fault, Held, Manner, Message, Names, Owner, Request, State, Way,
};
use crate::state::Tick;

impl Crowd {
    /// Executes a request. One that is late does nothing.
    pub(super) fn execute(&self, state: &mut State, at: usize, way: Way) {
        match state.wire.remove(at) {
            Request::Ask(Ask { deadline, .. }) | Request::Renew { deadline, .. } if state.now >= deadline => {}
            Request::Ask(ask) => self.answer(state, ask, way),
            Request::Renew { owner, .. } => self.renewed(state, owner),
            Request::Release(owner) => self.release(state, owner, way),
            Request::Quit { names, due, half } => {
                // The first step is to leave, the second to release.
                match (half, self.has(Mutant::ReleasesFirst)) {
                    (true, false) if self.has(Mutant::LeavesOnly) => {}
                    (false, false) | (true, true) => self.leave(state, names),
                    (true, false) | (false, true) => self.release(state, names.last.owner, way),
                }
                state.wire.extend((!half).then_some(Request::Quit { names, due, half: true }));
            }
        }
    }

    fn answer(&self, state: &mut State, ask: Ask, way: Way) {
        let (was_free, was_left, is_past) = (state.lock.is_none(), state.is_left(), state.is_past(ask.names));
        let in_turn = ask.manner != Manner::Plain;
        let answer = if in_turn { self.asked_in_turn(state, ask, way) } else { self.asked(state, ask) };
        if in_turn && way == Way::Usual && was_free {
            let past = (answer == Answer::Granted && is_past).then_some(Fault::Past);
            state.fault = past.or((was_left && state.lock.is_some()).then_some(Fault::NotLeft)).or(state.fault);
        }
        if ask.awaited {
            state.clients[ask.names.last.owner.client].doing = Doing::Asking(Some(answer));
        }
    }

    /// Of the lock alone.
    fn asked(&self, state: &mut State, Ask { names, .. }: Ask) -> Answer {
        let owner = names.last.owner;
        if state.lock.is_some() && !state.has(owner) {
            return self.busy(state, names);
        }
        self.take(state, owner, self.setup.lease, None);
        Answer::Granted
    }

    fn asked_in_turn(&self, state: &mut State, ask: Ask, way: Way) -> Answer {
        let is_left = state.is_left() && !self.has(Mutant::IgnoresTheMark);
        self.rename(state, ask);
        let is_given = state.lock.is_none() && !is_left && self.gives_to_another(state, ask, way);
        let is_busy = is_left || is_given && self.has(Mutant::JoinsWhenGiven);
        // All before it may have been dead, so that it was given the lock itself.
        if !is_busy && (state.lock.is_none() && !is_given || state.has(ask.names.last.owner)) {
            let answer = self.asked(state, ask);
            state.queue.retain(|ticket| *ticket != ask.names.last);
            return answer;
        }
        match ask.manner {
            Manner::Queued => self.join(state, ask.names),
            Manner::Last if !self.has(Mutant::LastStays) => state.queue.retain(|ticket| *ticket != ask.names.last),
            _ => {}
        }
        state.is_timed |= is_left;
        self.busy(state, ask.names)
    }

    /// Takes the place that it has by an earlier name.
    fn rename(&self, state: &mut State, Ask { names, manner, .. }: Ask) {
        let named = (0..state.queue.len()).filter(|rank| names.have(&state.queue[*rank]));
        // The names are tried one after the other, the first ask's last.
        let place = named.min_by_key(|rank| state.queue[*rank].ask);
        if let Some(rank) = place.filter(|_| manner != Manner::Newcomer && !self.has(Mutant::KeepsThePlace)) {
            state.queue[rank] = names.last;
            let mut rank = 0..;
            state.queue.retain(|ticket| rank.next() == place || !names.have(ticket));
        }
    }

    fn gives_to_another(&self, state: &mut State, ask: Ask, way: Way) -> bool {
        let is_another = state.queue.first().is_some_and(|first| *first != ask.names.last);
        match is_another {
            true if self.has(Mutant::AskGivesNothing) => true,
            true => !self.has(Mutant::TakesPastTheFirst) && self.give(state, way == Way::Fails),
            false => false,
        }
    }

    fn join(&self, state: &mut State, names: Names) {
        let is_queued = state.queue.contains(&names.last);
        state.queue.extend((!is_queued).then_some(names.last));
        state.queue_ends = self.setup.pace.map_or(0, |pace| state.now + pace.queue);
    }

    /// Where no pace is kept nobody counts how long anything lasts.
    fn busy(&self, state: &State, names: Names) -> Answer {
        let rank = state.queue.iter().position(|ticket| *ticket == names.last).unwrap_or(0);
        let rank = if self.has(Mutant::LooksAtTheEnd) || self.setup.pace.is_none() { 0 } else { rank as u8 };
        let left = |until: Tick| until.saturating_sub(state.now);
        match (state.lock, state.mark) {
            _ if self.setup.pace.is_none() => Answer::Busy(None, rank),
            (None, Some(until)) => Answer::Left(left(until), rank),
            (held, _) => Answer::Busy(held.map(|held| left(held.until)), rank),
        }
    }

    /// Gives the lock to an owner, or more time to the one that has it.
    fn take(&self, state: &mut State, owner: Owner, ticks: Tick, given: Option<u8>) {
        let until = state.lock.map_or(0, |held| held.until).max(state.now + ticks);
        (state.lock, state.is_timed) = (Some(Held { owner, until, given }), false);
    }

    /// Whether the lock was given to the first of the queue. Whose process is dead is removed.
    fn give(&self, state: &mut State, fails: bool) -> bool {
        while !state.queue.is_empty() {
            let head = state.queue[0];
            let is_dead = state.is_dead(&head);
            let is_unheard = self.has(Mutant::PollsUnheard) && state.clients[head.owner.client].polls;
            let is_given = !is_dead && !is_unheard || self.has(Mutant::GivesToTheDead);
            if !is_given || !self.has(Mutant::KeepsTheTicket) {
                state.queue.remove(0);
            }
            if is_given {
                let ticks = if self.has(Mutant::GivesALease) { self.setup.lease } else { self.setup.offer };
                let is_told = !fails || self.has(Mutant::TellsFirst);
                is_told.then(|| state.tell(Message::Given(head)));
                if !fails {
                    self.take(state, head.owner, ticks, Some(head.ask));
                    state.fault = state.fault.or(is_dead.then_some(Fault::GivenToTheDead));
                }
                return !fails;
            }
        }
        false
    }

    fn renewed(&self, state: &mut State, owner: Owner) {
        let is_own = state.has(owner);
        if is_own {
            self.take(state, owner, self.setup.lease, None);
        }
        let client = &mut state.clients[owner.client];
        if client.life == owner.life
            && let Doing::Holding(_, Some((_, answer))) = &mut client.doing
        {
            *answer = Some(is_own);
        }
    }

    fn release(&self, state: &mut State, owner: Owner, way: Way) {
        if state.lock.take_if(|held| held.owner == owner).is_none() {
            return;
        }
        state.is_timed = way == Way::Yields;
        if matches!(way, Way::Usual | Way::Fails) && self.give(state, way == Way::Fails) {
            return;
        }
        if way == Way::Yields {
            let ticks = self.setup.left;
            state.mark = Some(if self.has(Mutant::MarkNeverEnds) { Tick::MAX } else { state.now + ticks });
        }
        if matches!(way, Way::Usual | Way::ToAll | Way::Yields) {
            Self::tell_first(state);
        }
        self.tell_all(state);
    }

    fn leave(&self, state: &mut State, names: Names) {
        let before = state.queue.len();
        state.queue.retain(|ticket| !names.have(ticket));
        if state.queue.len() < before && state.lock.is_none() && !self.has(Mutant::LeaveGivesNothing) {
            self.give(state, false);
        }
    }

    fn tell_first(state: &mut State) {
        let first = state.first();
        let skipped = state.queue.iter().take_while(|ticket| Some(**ticket) != first).count();
        state.queue.drain(..skipped);
        first.into_iter().for_each(|first| state.tell(Message::Free(first.owner.client)));
    }

    fn tell_all(&self, state: &mut State) {
        if !self.has(Mutant::TellsNobody) {
            // Who did not ask for a place does not listen yet.
            let hears = |client: &Client| client.wants() && client.manner == Manner::Queued;
            let waiting = (0..state.clients.len()).filter(|number| hears(&state.clients[*number]));
            waiting.collect::<Vec<_>>().into_iter().for_each(|number| state.tell(Message::Free(number)));
        }
    }

    /// It takes the lock if that is free, whoever waits, and else waits.
    pub(super) fn foreigner_asks(&self, state: &mut State) {
        state.foreigner_waits = state.lock.is_some();
        if state.lock.is_none() {
            self.take(state, FOREIGNER, self.setup.pace.map_or(self.setup.lease, |pace| pace.hold), None);
        }
    }

    /// It knows of no queue.
    pub(super) fn foreigner_releases(&self, state: &mut State) {
        self.release(state, FOREIGNER, Way::Plain);
    }
}
