//! The server: what each script does to the lock and to the time-outs (src/lock/kinds/read_write).

use super::client::{Mutant, Sides};
use super::state::{Command, Fault, Lock, Message, Past, Side, State};
use crate::state::{Answer, Id};

impl Sides {
    /// Drops what is over.
    pub(super) fn expire(state: &mut State) {
        let now = state.now;
        state.lock.take_if(|lock| lock.until <= now);
        state.timeouts.iter_mut().filter(|until| **until <= now).for_each(|until| *until = 0);
    }

    /// Executes a request; what the server answers.
    pub(super) fn execute(&self, state: &mut State, message: &mut Message) -> Answer {
        let stale = state.now >= message.deadline && !self.has(Mutant::NoAttemptDeadline);
        if message.command != Command::Release && stale {
            return Answer::Stale;
        }
        let (id, side) = (message.id, state.tenure(message.id).side);
        let is_done = match (message.command, side) {
            (Command::Release, _) => return self.release(state, id, side),
            (Command::Acquire(proof), Side::Read) => self.acquire_read(state, message, proof),
            (Command::Acquire(_), Side::Write) => self.acquire_write(state, message),
            (Command::Renew, _) => self.renew(state, message),
        };
        if is_done {
            // The server says that it is there.
            state.tenure_mut(id).evicted = false;
        }
        if is_done { Answer::Yes } else { Answer::No }
    }

    fn acquire_read(&self, state: &mut State, message: &Message, proof: Option<Id>) -> bool {
        let (id, until) = (message.id, state.now + message.lease);
        let writes = state.lock.as_ref().is_some_and(|lock| lock.writes);
        let shows = proof.is_some_and(|proof| state.has_field(proof) || self.has(Mutant::TrustsTheProof));
        let is_in = state.has_field(id) || shows;
        if writes && !is_in {
            return false;
        }
        if !self.has(Mutant::ReadsWithoutTimeOut) {
            state.timeouts[usize::from(id)] = state.timeout(id).max(until);
        }
        self.put(state, message, writes);
        true
    }

    fn acquire_write(&self, state: &mut State, message: &Message) -> bool {
        let is_free = state.lock.as_ref().is_none_or(|lock| self.has(Mutant::WritesBesideReaders) && !lock.writes);
        if !is_free && !state.has_field(message.id) {
            return false;
        }
        self.put(state, message, true);
        true
    }

    /// The field, and the TTL.
    fn put(&self, state: &mut State, message: &Message, writes: bool) {
        let (id, until) = (message.id, state.now + message.lease);
        let is_new = !state.has_field(id);
        let lock = state.lock.get_or_insert(Lock { writes, fields: Vec::new(), until });
        lock.writes = writes;
        lock.until = if self.has(Mutant::TtlWithoutMax) { until } else { lock.until.max(until) };
        if is_new {
            lock.fields.push(id);
            lock.fields.sort_unstable();
            Self::note_taken(state, id);
        }
    }

    /// Of a reader both keys, and none if one is gone.
    fn renew(&self, state: &mut State, message: &mut Message) -> bool {
        let (id, until) = (message.id, state.now + message.lease);
        message.over = state.tenure(id).past == Past::Interrupted;
        let (has_field, is_live) = (state.has_field(id), state.is_live(id));
        let prolongs = has_field && (is_live || self.has(Mutant::RenewsForTheDead));
        if let Some(lock) = state.lock.as_mut().filter(|_| prolongs && !self.has(Mutant::RenewsTheTimeOutAlone)) {
            lock.until = if self.has(Mutant::TtlWithoutMax) { until } else { lock.until.max(until) };
        }
        if state.timeout(id) > 0 {
            state.timeouts[usize::from(id)] = state.timeout(id).max(until);
        }
        has_field && (is_live || self.has(Mutant::RenewsWithoutTimeOut))
    }

    fn release(&self, state: &mut State, id: Id, side: Side) -> Answer {
        if !self.has(Mutant::LeavesItsTimeOut) {
            state.timeouts[usize::from(id)] = 0;
        }
        let Some(lock) = state.lock.as_mut().filter(|lock| lock.fields.contains(&id)) else { return Answer::No };
        lock.fields.retain(|field| *field != id);
        let others = lock.fields.clone();
        match side {
            Side::Read if lock.writes => self.leave_the_writer(state),
            Side::Read => self.leave_or_free(state),
            Side::Write => {
                lock.writes = self.has(Mutant::LeavesTheMode);
                self.leave_or_free(state);
            }
        }
        let is_freed = |other: &Id| state.is_live(*other) && !state.has_field(*other);
        if others.iter().any(is_freed) {
            state.fault = Some(Fault::StrangerFreed);
        }
        Answer::Yes
    }

    /// The TTL stays as it is.
    fn leave_the_writer(&self, state: &mut State) {
        let longest = state.timeouts.iter().copied().max().unwrap_or(0);
        if let Some(lock) = state.lock.as_mut().filter(|_| self.has(Mutant::CutsTheWriter) && longest > 0) {
            lock.until = longest;
        }
    }

    /// The lock is left to those who read, for as long as they have left; others' fields are taken out.
    fn leave_or_free(&self, state: &mut State) {
        let Some(mut lock) = state.lock.take() else { return };
        let left = |id: &Id| state.timeout(*id);
        let counts = |id: &Id| left(id) > 0 || self.has(Mutant::KeepsTheDead);
        lock.fields.retain(counts);
        let longest = if self.has(Mutant::CutsToTheShortest) {
            lock.fields.iter().map(left).min()
        } else {
            lock.fields.iter().map(left).max()
        };
        let frees = longest.is_none() || self.has(Mutant::FreesBesideReaders);
        lock.until = longest.filter(|longest| *longest > 0).map_or(lock.until, |longest| longest.min(lock.until));
        state.lock = Some(lock).filter(|_| !frees);
    }

    /// Somebody else frees one side.
    pub(super) fn force(&self, state: &mut State, side: Side) {
        let Some(mut lock) = state.lock.take() else { return };
        let is_of = |state: &State, id: Id| state.tenure(id).side == side;
        let out: Vec<_> = lock.fields.iter().copied().filter(|id| is_of(state, *id)).collect();
        lock.fields.retain(|id| !out.contains(id));
        out.iter().for_each(|id| state.tenure_mut(*id).forced = true);
        let keeps_writer = side == Side::Read && lock.writes;
        lock.writes = keeps_writer || (lock.writes && self.has(Mutant::ForceLeavesTheMode));
        state.lock = Some(lock);
        if !keeps_writer {
            self.leave_or_free(state);
        }
    }

    /// The time-out of a reader is evicted.
    pub(super) fn evict(state: &mut State, id: Id) {
        state.timeouts[usize::from(id)] = 0;
        state.tenure_mut(id).evicted = true;
    }

    /// Who is excluded by this one and had the lock before has had it since somebody else had it.
    fn note_taken(state: &mut State, id: Id) {
        let (side, thread) = (state.tenure(id).side, state.tenure(id).thread);
        for (other, tenure) in state.tenures.iter_mut().enumerate() {
            let excludes = tenure.thread != thread && (side == Side::Write || tenure.side == Side::Write);
            tenure.past = match tenure.past {
                Past::NeverHad if other == usize::from(id) => Past::Had,
                Past::Had if excludes => Past::Interrupted,
                past => past,
            };
        }
    }
}
