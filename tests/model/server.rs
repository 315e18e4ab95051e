//! The server: what each script does to the one key there is (src/lock/keys).

use crate::protocol::{Mutant, Protocol};
use crate::state::{Answer, Command, Entry, Fault, Field, Message, Past, State, Tick};

impl Protocol {
    /// Drops the key when its time is over.
    pub(crate) fn expire_key(state: &mut State) {
        let now = state.now;
        state.key = state.key.filter(|key| key.until > now);
    }

    /// Executes a request; what the server answers.
    pub(crate) fn execute(&self, state: &mut State, message: &mut Message) -> Answer {
        let stale = state.now >= message.deadline && !self.has(Mutant::NoAttemptDeadline);
        match message.command {
            Command::Release(left) => self.release(state, message, left),
            _ if stale => Answer::Stale,
            Command::Acquire => self.acquire(state, message),
            Command::Reenter(count) => self.prolong(state, message, Some(count)),
            Command::Renew => self.prolong(state, message, None),
        }
    }

    fn acquire(&self, state: &mut State, message: &Message) -> Answer {
        let until = state.now + message.lease;
        match &mut state.key {
            None => {
                let (owner, count) = (message.field, 1);
                state.key = Some(Entry { owner, count, until });
                self.note_taken(state, message);
                Answer::Yes
            }
            Some(key) if key.owner == message.field => {
                key.count = if self.has(Mutant::RelativeCounts) { key.count + 1 } else { 1 };
                key.until = key.until.max(until);
                Answer::Yes
            }
            Some(_) => Answer::No,
        }
    }

    /// Re-enter with a count, or renew.
    fn prolong(&self, state: &mut State, message: &mut Message, count: Option<u8>) -> Answer {
        message.over = state.tenure(message.id).past == Past::Interrupted;
        let until = state.now + message.lease;
        let creates = count.is_some() && self.has(Mutant::ReenterCreates);
        if state.key.is_none() && creates {
            state.key = Some(Entry { owner: message.field, count: 1, until });
            return Answer::Yes;
        }
        let anyone = count.is_none() && self.has(Mutant::RenewsAnyones);
        let Some(key) = state.key.as_mut().filter(|key| key.owner == message.field || anyone) else {
            return Answer::No;
        };
        if let Some(count) = count {
            key.count = if self.has(Mutant::RelativeCounts) { key.count + 1 } else { count };
        }
        key.until = if self.has(Mutant::TtlWithoutMax) { until } else { key.until.max(until) };
        Answer::Yes
    }

    fn release(&self, state: &mut State, message: &Message, left: u8) -> Answer {
        let anyones = self.has(Mutant::ReleasesAnyones);
        let Some(key) = state.key.as_mut().filter(|key| key.owner == message.field || anyones) else {
            return Answer::No;
        };
        key.count = if self.has(Mutant::RelativeCounts) { key.count - 1 } else { left };
        if key.count == 0 {
            let owner = key.owner;
            state.key = None;
            self.check_freed(state, message, owner);
        }
        Answer::Yes
    }

    /// A release frees nothing but the hold in whose name it was sent; whoever was passed the tenure has another.
    fn check_freed(&self, state: &mut State, message: &Message, owner: Field) {
        let stranger = owner != self.field(state, message.id);
        let believed = state.beliefs().any(|(_, id)| self.field(state, id) == owner);
        if stranger || believed {
            state.fault = Some(Fault::StrangerFreed);
        }
    }

    fn note_taken(&self, state: &mut State, message: &Message) {
        for (id, tenure) in state.tenures.iter_mut().enumerate() {
            tenure.past = match tenure.past {
                Past::NeverHad if id == usize::from(message.id) => Past::Had,
                Past::Had if id != usize::from(message.id) => Past::Interrupted,
                past => past,
            };
        }
    }

    /// Someone else removes the key, whoever has it.
    pub(crate) fn force(&self, state: &mut State) {
        if let Some(key) = state.key.take() {
            for id in 0..state.tenures.len() {
                if self.field(state, id as u8) == key.owner {
                    state.tenures[id].forced = true;
                }
            }
        }
    }

    /// The last moment at which the server executes an attempt that is sent now.
    pub(crate) fn deadline(&self, now: Tick) -> Tick {
        now + self.setup.response
    }
}
