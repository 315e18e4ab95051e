//! Redisson's scripts for its fair lock, and its threads: one asks and knows the answer in one step.

use super::client::Crowd;
use super::state::{Doing, End, Held, Owner, State};
use crate::state::Tick;

impl Crowd {
    /// First in each script, by its own clock. It knows of no tickets.
    fn purge(&self, state: &mut State, number: usize) {
        let ahead = state.clients[number].ahead.unwrap_or(0);
        while let Some(head) = state.list.first().copied() {
            if state.ends.get(&head).is_none_or(|end| *end > state.time() + ahead) {
                break;
            }
            state.list.remove(0);
            state.ends.remove(&head);
            self.is_out(state, head, ahead);
        }
        Self::settle_keys(state);
    }

    pub(super) fn java_asks(&self, state: &mut State, number: usize, queues: bool) {
        let own = Owner { client: number, life: 0 };
        self.purge(state, number);
        let is_its = state.list.first().is_none_or(|head| *head == own);
        if state.lock.is_none() && is_its {
            self.java_takes(state, own);
        } else if queues {
            self.java_waits(state, own);
        }
        Self::settle_keys(state);
    }

    fn java_takes(&self, state: &mut State, own: Owner) {
        state.gets_it(own);
        state.list.retain(|owner| *owner != own);
        state.ends.remove(&own);
        state.ends.values_mut().for_each(|end| *end -= self.setup.spans.java);
        let until = state.now + self.setup.lease;
        (state.lock, state.is_timed) = (Some(Held { owner: own, until, given: None }), false);
        let holds = self.setup.pace.map_or(until, |pace| state.now + pace.hold);
        Self::rest(state, own.client, Doing::Holding(holds));
    }

    /// It joins once. Then it sleeps until the end of the last one before it, and after a later look until the TTL of the lock ends.
    fn java_waits(&self, state: &mut State, own: Owner) {
        let until = state.lock.map_or(0, |held| held.until);
        let mut wakes = until;
        if !state.ends.contains_key(&own) {
            let now = state.time() + state.clients[own.client].ahead.unwrap_or(0);
            let last = state.list.last().and_then(|last| state.ends.get(last)).copied();
            let after = last.unwrap_or(now + End::from(until.saturating_sub(state.now)));
            wakes = Tick::try_from(state.time() + after - now).unwrap_or(Tick::MAX);
            state.list.push(own);
            state.ends.insert(own, after + self.setup.spans.java);
            state.arrives(own.client);
        }
        let wakes = wakes.max(state.now + 1);
        let client = &mut state.clients[own.client];
        (client.doing, client.wakes) = (Doing::Waiting, wakes);
    }

    pub(super) fn java_gives_up(&self, state: &mut State, number: usize) {
        let own = Owner { client: number, life: 0 };
        let behind: Vec<_> = state.list.iter().skip_while(|owner| **owner != own).skip(1).copied().collect();
        for owner in behind {
            state.ends.entry(owner).and_modify(|end| *end -= self.setup.spans.java);
        }
        state.ends.remove(&own);
        state.list.retain(|owner| *owner != own);
        state.forget(number);
        Self::rest(state, number, Doing::Idle);
        Self::settle_keys(state);
    }

    /// It tells the first, and nobody if there is none.
    pub(super) fn java_releases(&self, state: &mut State, number: usize) {
        let own = Owner { client: number, life: 0 };
        self.purge(state, number);
        Self::rest(state, number, Doing::Idle);
        if state.lock.take_if(|held| held.owner == own).is_some() {
            let head = state.list.first().copied();
            state.is_timed = head.is_none_or(|head| state.is_java(head) || !state.is_waiting(head));
            head.into_iter().for_each(|head| state.tell_field(head));
        }
    }
}
