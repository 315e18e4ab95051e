//! What a process of ours does: it asks, sleeps, hears, takes, releases, gives up.

use super::server::Turn;
use super::{Ask, At, Client, Crowd, Foreigner, Link, Lock, Mark, Mutant, Name, Place, Reply, Request, State, Word};

impl Crowd {
    /// A new wait, with a ticket of its own: what bears an earlier one is old from now on.
    pub(crate) fn come(&self, state: &mut State, client: u8) {
        state.age(client);
        let limited = self.setup.comes.is_some();
        state.client(client).comes -= u8::from(limited);
        self.ask(state, client);
    }

    /// The permit and the timer are emptied before the ask, not after it.
    pub(crate) fn ask(&self, state: &mut State, client: u8) {
        let sender = state.client(client);
        (sender.at, sender.permit, sender.soon) = (At::Asking, false, false);
        let heard = sender.link == Link::Up || self.has(Mutant::JoinsUnconfirmed);
        let (plain, arrival) = (!sender.company || !self.joins(client), sender.arrival);
        let keeps_place = sender.joined && !self.has(Mutant::LeavesItsPlace);
        let (join, again) = (heard && !plain, sender.turn && !keeps_place && !plain);
        sender.joined |= join;
        let name = Name { client, old: false };
        state.wire.push(Request::Ask(Ask { name, awaited: true, plain, again, join, arrival }));
    }

    /// An answer arrives.
    pub(crate) fn hear_reply(&self, state: &mut State, client: u8) {
        match state.get(client).at {
            At::Answered(Reply::Taken) => {
                self.end_wait(state, client);
                state.client(client).at = At::Holding;
            }
            At::Answered(Reply::Busy { place }) => self.sleep(state, client, place),
            At::Answered(Reply::Promised { place }) => {
                self.sleep(state, client, place);
                state.client(client).soon = true;
            }
            at => unreachable!("{at:?} has no answer"),
        }
    }

    /// What was heard before the answer was judged by a rank that may be older: whoever may be the first asks again.
    fn sleep(&self, state: &mut State, client: u8, place: Option<Place>) {
        let literal = self.has(Mutant::JudgesByOldRank);
        let armed = self.is_armed(state.get(client), place);
        let waiter = state.client(client);
        (waiter.at, waiter.company) = (At::Asleep, true);
        waiter.rank = place.map(|place| place.rank);
        waiter.arrival = place.map(|place| place.arrival).or(waiter.arrival);
        waiter.permit |= waiter.soon && waiter.may_be_first() && !literal;
        waiter.soon |= armed;
        if waiter.link == Link::Down {
            waiter.link = Link::Asked;
        }
    }

    /// Whether it comes unasked, if it is told of nothing: each member does, after each of its asks, the head at its poll
    /// cap. The head is to be told, but may have been pushed back since, by one that was passed over and joins again.
    fn is_armed(&self, waiter: &Client, place: Option<Place>) -> bool {
        let again = waiter.arrival.is_some();
        let broken = self.has(Mutant::NotArmed) || self.has(Mutant::ArmedOnce) && again;
        place.is_some_and(|place| place.rank > 0 || !self.has(Mutant::HeadNotArmed)) && !broken
    }

    /// With the lock or without it.
    fn end_wait(&self, state: &mut State, client: u8) {
        let waiter = state.client(client);
        (waiter.permit, waiter.soon, waiter.rank, waiter.arrival) = (false, false, None, None);
        waiter.joined = false;
        if !self.setup.lingers || waiter.link == Link::Asked {
            waiter.link = Link::Down;
            waiter.inbox.clear();
        }
        if client == 0 {
            state.passed.fill(0);
        }
    }

    /// Whoever could not hear until now looks once more.
    pub(crate) fn confirm(state: &mut State, client: u8) {
        let waiter = state.client(client);
        (waiter.link, waiter.permit) = (Link::Up, true);
    }

    pub(crate) fn hear(&self, state: &mut State, client: u8) {
        let word = state.client(client).inbox.remove(0);
        let waits = state.get(client).waits();
        match word {
            Word::Common if waits => state.client(client).hear_common(self.has(Mutant::JudgesByOldRank)),
            Word::Told { old: false } if waits => {
                let head = state.client(client);
                (head.permit, head.rank) = (head.permit || !self.has(Mutant::HeadNeverAsks), Some(0));
            }
            Word::Told { old } if !self.has(Mutant::KeepsStrangeTickets) => {
                state.wire.push(Request::Leave { name: Name { client, old }, again: false });
            }
            Word::Skipped { old: false } if waits => {
                let waiter = state.client(client);
                (waiter.permit, waiter.rank) = (true, None);
            }
            _ => {}
        }
    }

    pub(crate) fn release(&self, state: &mut State, client: u8, turn: Turn) {
        state.client(client).at = At::Away;
        let goes_on = state.get(client).turn;
        let reached = match state.get(client).company && self.joins(client) {
            true => self.release_in_turn(state, turn, goes_on),
            false => Self::release_plain(state),
        };
        let given = state.mark == Mark::Head && !goes_on;
        let holder = state.client(client);
        holder.company |= reached;
        holder.yielded = turn == Turn::Foreigners || holder.yielded && !given;
    }

    /// A wait ends without the lock: the sweeper leaves, and once more if an ask is still open.
    pub(crate) fn give_up(&self, state: &mut State, client: u8) {
        let asking = state.get(client).at == At::Asking;
        state.stop_awaiting(client);
        self.end_wait(state, client);
        state.client(client).at = At::Away;
        if state.get(client).company {
            state.wire.push(Request::Leave { name: Name { client, old: false }, again: asking });
        }
    }

    pub(crate) fn die(&self, state: &mut State, client: u8) {
        state.stop_awaiting(client);
        self.end_wait(state, client);
        let dead = state.client(client);
        (dead.at, dead.link, dead.stopped, dead.company, dead.turn) = (At::Dead, Link::Down, false, false, false);
        dead.comes = 0;
        dead.inbox.clear();
    }

    /// The key's time is over: nobody is told, but whoever found it busy knows when that is.
    pub(crate) fn expire(state: &mut State) {
        state.clients.iter_mut().filter(|client| client.waits()).for_each(|client| client.soon = true);
        if let Foreigner::Waiting { told, .. } = &mut state.foreigner {
            *told = true;
        }
        if let Lock::Ours(client) = state.lock {
            let late = state.client(client);
            late.at = if late.at == At::Dead { At::Dead } else { At::Away };
        }
        state.lock = Lock::Free;
    }
}

impl Client {
    /// A member that is not the first leaves it some time; while an ask is open, the answer tells who is that.
    fn hear_common(&mut self, literal: bool) {
        let known = literal || self.at == At::Asleep;
        let first = known && self.may_be_first();
        (self.permit, self.soon) = (self.permit || first, self.soon || !first);
    }

    fn may_be_first(&self) -> bool {
        self.rank.is_none_or(|rank| rank == 0)
    }
}

impl State {
    /// No two of a client's earlier waits are told apart: a stated bound.
    fn age(&mut self, client: u8) {
        let known = self.queue.iter().any(|ticket| ticket.name == Name { client, old: true });
        let new = Name { client, old: false };
        self.queue.retain(|ticket| !known || ticket.name != new);
        let names = self.queue.iter_mut().map(|ticket| &mut ticket.name).chain(self.wire.iter_mut().map(Request::name));
        names.filter(|name| name.client == client).for_each(|name| name.old = true);
        for word in &mut self.client(client).inbox {
            if let Word::Told { old } | Word::Skipped { old } = word {
                *old = true;
            }
        }
    }

    pub(crate) fn stop_awaiting(&mut self, client: u8) {
        for request in &mut self.wire {
            if let Request::Ask(ask) = request {
                ask.awaited &= ask.name.client != client;
            }
        }
    }
}

impl Request {
    fn name(&mut self) -> &mut Name {
        match self {
            Self::Ask(Ask { name, .. }) | Self::Leave { name, .. } => name,
        }
    }
}
