//! The scripts: asking in turn, releasing in turn, leaving.

use super::{
    Ask, At, Crowd, Fault, Foreigner, Link, Lock, Mark, Mutant, Name, Place, Reply, Request, State, Ticket, Word,
};

impl Crowd {
    pub(crate) fn execute(&self, state: &mut State, at: usize) {
        match state.wire.remove(at) {
            Request::Ask(ask) => self.answer(state, ask),
            Request::Leave { name, again } => {
                self.leave(state, name);
                state.wire.extend(again.then_some(Request::Leave { name, again: false }));
            }
        }
    }

    fn answer(&self, state: &mut State, ask: Ask) {
        if ask.again && state.lock != Lock::Free {
            return state.wire.extend(ask.awaited.then_some(Request::Ask(Ask { again: false, ..ask })));
        }
        let alone = ask.plain || ask.again;
        if ask.again && self.has(Mutant::TurnBeginsAnew) {
            state.client(ask.name.client).turn = true;
        }
        let reply = if alone { Self::ask_plain(state, ask) } else { self.ask_in_turn(state, ask) };
        if ask.awaited {
            state.client(ask.name.client).at = At::Answered(reply);
        }
    }

    fn ask_plain(state: &mut State, ask: Ask) -> Reply {
        match state.lock {
            Lock::Free => Self::take(state, ask),
            _ => Reply::Busy { place: None },
        }
    }

    fn ask_in_turn(&self, state: &mut State, ask: Ask) -> Reply {
        if self.passes_the_turn_on(state, ask.name) {
            self.tell_the_first(state);
        }
        let refused = self.has(Mutant::RefusedBeforeJoin) && Self::is_promised(state, ask.name);
        let place = Self::join(state, ask);
        let free = state.lock == Lock::Free || self.is_turn_enough(state, ask.name);
        match free {
            false => Reply::Busy { place },
            true if refused || Self::is_promised(state, ask.name) => Reply::Promised { place },
            true => {
                self.remove_up_to(state, ask.name);
                state.mark = Mark::None;
                state.client(ask.name.client).turn = self.setup.turns && ask.awaited;
                Self::take(state, ask)
            }
        }
    }

    /// A newcomer to a free lock without a mark does not pass the queue but gives it the turn.
    fn passes_the_turn_on(&self, state: &State, name: Name) -> bool {
        let unmarked = state.lock == Lock::Free && state.mark == Mark::None;
        unmarked && state.rank(name).is_none() && !self.has(Mutant::PassesTheQueue)
    }

    fn is_turn_enough(&self, state: &State, name: Name) -> bool {
        self.has(Mutant::TurnIsHold) && state.mark == Mark::Head && state.rank(name) == Some(0)
    }

    /// Whether the free lock is kept for another. A mark beside an empty queue is void.
    fn is_promised(state: &State, name: Name) -> bool {
        let another = state.queue.first().is_some_and(|head| head.name != name);
        another && state.mark == Mark::Head || !state.queue.is_empty() && state.mark == Mark::Foreigners
    }

    /// Also of an ask that takes the lock next: its ticket is removed again, with those before it.
    fn join(state: &mut State, ask: Ask) -> Option<Place> {
        let kept = state.rank(ask.name);
        if kept.is_none() && ask.join {
            let arrival = ask.arrival.unwrap_or_else(|| state.arrivals().max().map_or(0, |last| *last + 1));
            let rank = state.queue.iter().filter(|before| before.arrival < arrival).count();
            state.queue.insert(rank, Ticket { arrival, name: ask.name });
        }
        let rank = state.rank(ask.name)?;
        Some(Place { rank: rank as u8, arrival: state.queue[rank].arrival })
    }

    fn take(state: &mut State, ask: Ask) -> Reply {
        Self::count_passing(state, ask);
        state.lock = if ask.awaited { Lock::Ours(ask.name.client) } else { Lock::Orphan };
        Reply::Taken
    }

    /// The first client is passed over if it had arrived before and could have asked.
    fn count_passing(state: &mut State, ask: Ask) {
        let first = state.get(0);
        let waits = !ask.again && first.waits() && !first.believes() && ask.name.client != 0;
        let before = first.arrival.is_some_and(|first| ask.arrival.is_none_or(|arrival| first < arrival));
        if waits && before {
            let count = &mut state.passed[usize::from(ask.name.client)];
            *count = (*count + 1).min(2);
        }
    }

    /// Who takes removes those before it, and each is told: one that lives asks again, with its old arrival.
    fn remove_up_to(&self, state: &mut State, name: Name) {
        let Some(rank) = state.rank(name) else { return };
        let from = if self.has(Mutant::LeavesThoseBefore) { rank } else { 0 };
        let gone = state.queue.drain(from..=rank).map(|ticket| ticket.name).collect::<Vec<_>>();
        for skipped in gone.into_iter().filter(|gone| *gone != name && !self.has(Mutant::SkippedUntold)) {
            Self::tell(state, skipped, Word::Skipped { old: skipped.old });
        }
    }

    /// Whether somebody heard it.
    fn tell(state: &mut State, name: Name, word: Word) -> bool {
        let hears = state.listens(name.client);
        if hears {
            let inbox = &mut state.client(name.client).inbox;
            inbox.extend(Some(word).filter(|word| !inbox.contains(word)));
        }
        hears
    }

    /// A release of the lock by one who knows of no others.
    pub(crate) fn release_plain(state: &mut State) -> bool {
        state.lock = Lock::Free;
        Self::publish(state)
    }

    /// A release that tells the head of the queue, and those outside of it if it must or (`also`) may; or only the others.
    pub(crate) fn release_in_turn(&self, state: &mut State, turn: Turn, goes_on: bool) -> bool {
        state.lock = Lock::Free;
        let foreign = self.foreigners_listen(state);
        if turn == Turn::Foreigners {
            state.mark = Mark::Foreigners;
            return Self::publish(state);
        }
        let before = state.mark;
        let told = self.tell_the_first(state);
        // Within its turn it may come again, and whoever is first has the lock.
        state.mark = if goes_on { before } else { state.mark };
        let reached = (foreign || !told || turn == Turn::Both) && Self::publish(state);
        if self.has_untold(state) {
            state.fault = state.fault.or(Some(Fault::Untold));
        }
        told || reached
    }

    /// Whether somebody who is in no queue waits and heard nothing.
    fn has_untold(&self, state: &State) -> bool {
        let bystanders = state.clients.iter().skip(usize::from(self.setup.clients));
        let mut listening = bystanders.filter(|client| client.waits() && client.link == Link::Up);
        let foreigner = matches!(state.foreigner, Foreigner::Waiting { told: false, .. });
        foreigner || listening.any(|client| !client.inbox.contains(&Word::Common))
    }

    /// Whether anybody was told; then the turn is marked.
    fn tell_the_first(&self, state: &mut State) -> bool {
        let mut at = 0;
        while let Some(name) = state.queue.get(at).map(|ticket| ticket.name) {
            let told = Self::tell(state, name, Word::Told { old: name.old });
            if told || self.has(Mutant::DeadNeverSkipped) {
                Self::check_told(state, at, told);
                state.mark = Mark::Head;
                return true;
            } else if self.has(Mutant::DeadSkippedOnly) {
                at += 1;
            } else {
                self.check_dead(state, name);
                state.queue.remove(at);
            }
        }
        false
    }

    fn check_told(state: &mut State, at: usize, heard: bool) {
        let head = (at > 0).then_some(Fault::NotTheHead);
        let dead = (!heard).then_some(Fault::TurnForTheDead);
        state.fault = state.fault.or(head).or(dead);
    }

    fn check_dead(&self, state: &mut State, name: Name) {
        let mistaken = self.setup.limits.breaks == 0 && !state.is_stale(name);
        state.fault = state.fault.or(mistaken.then_some(Fault::TakenForDead));
    }

    /// Zero on the common channel; whether anybody heard it. Of the one who calls it nobody asks: it is not waiting.
    pub(crate) fn publish(state: &mut State) -> bool {
        let mut reached = false;
        for client in state.clients.iter_mut().filter(|client| client.link == Link::Up && client.waits()) {
            client.inbox.extend(Some(Word::Common).filter(|word| !client.inbox.contains(word)));
            reached = true;
        }
        if let Foreigner::Waiting { told, .. } = &mut state.foreigner {
            (*told, reached) = (true, true);
        }
        reached
    }

    /// The subscribers of the common channel against those of the members'.
    fn foreigners_listen(&self, state: &State) -> bool {
        let up = |client: &u8| state.listens(*client);
        let ours = (0..state.clients.len() as u8).filter(up).count();
        let all = ours + usize::from(matches!(state.foreigner, Foreigner::Waiting { .. }));
        let member = |client: &u8| self.joins(*client) || self.has(Mutant::BystanderIsMember);
        let members = (0..state.clients.len() as u8).filter(up).filter(member).count();
        all > if self.has(Mutant::CountsSubscribers) { state.queue.len() } else { members }
    }

    /// As the sweeper sends it when a wait ends without the lock.
    fn leave(&self, state: &mut State, name: Name) {
        let Some(rank) = state.rank(name) else { return };
        state.queue.remove(rank);
        if state.lock == Lock::Free && !self.has(Mutant::LeavesSilently) {
            self.tell_the_first(state);
        }
    }
}

/// Whom a release tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Ears,
    /// And the common channel, as one in 32 does.
    Both,
    Foreigners,
}
