//! A master: what each script does to its key, what a restart leaves, and when it grants again.

use super::client::{Mutant, Redlock, Wait};
use super::state::{Answer, Command, Entry, Grant, Memory, Message, State};

impl Redlock {
    /// Drops what is over.
    pub(super) fn expire(state: &mut State) {
        let now = state.now;
        for master in &mut state.masters {
            master.key.take_if(|key| key.until <= now);
            if let Memory::Quiet(until) | Memory::Down(until) = master.memory
                && until <= now
            {
                master.memory = Memory::Again;
            }
        }
    }

    pub(super) fn restart(&self, state: &mut State, master: usize) {
        let now = state.now;
        let master = &mut state.masters[master];
        (master.key, master.counter) = (None, 0);
        master.memory = match self.setup.wait {
            Wait::Nothing => Memory::Again,
            Wait::Strict(_) => Memory::Lost,
            Wait::Down(ticks) => Memory::Down(now + ticks),
        };
    }

    /// Executes a request; what the master answers.
    pub(super) fn execute(&self, state: &mut State, master: usize, message: &Message) -> Answer {
        let now = state.now;
        if message.command == Command::Release {
            state.masters[master].key.take_if(|key| key.owner == message.id);
            return Answer::No;
        }
        if now >= message.deadline {
            return Answer::Stale;
        }
        self.notice(state, master);
        let at = &mut state.masters[master];
        let is_own = at.is_held_by(message.id);
        let is_granted = match message.command {
            Command::Renew => is_own,
            _ => (is_own || at.key.is_none()) && !matches!(at.memory, Memory::Quiet(_)),
        };
        if !is_granted {
            return Answer::No;
        }
        let until = at.key.map_or(0, |key| key.until).max(now + self.setup.lease);
        at.key = Some(Entry { owner: message.id, until });
        Answer::Yes(if message.command == Command::Acquire { self.mint(state, master) } else { Grant::default() })
    }

    /// The first strict client that asks after a restart begins the quarantine, whatever lock it asks for. A renewal does so, too, and is
    /// refused nothing.
    pub(super) fn notice(&self, state: &mut State, master: usize) {
        let (now, memory) = (state.now, &mut state.masters[master].memory);
        if let (Memory::Lost, Wait::Strict(ticks)) = (*memory, self.setup.wait) {
            *memory = Memory::Quiet(now + ticks);
        }
    }

    fn mint(&self, state: &mut State, master: usize) -> Grant {
        if self.setup.writes == 0 {
            return Grant::default();
        }
        state.clock += 1;
        state.takes += 1;
        let follows = if self.has(Mutant::CountsOnly) { 0 } else { state.clock };
        let counter = &mut state.masters[master].counter;
        *counter = (*counter + 1).max(follows);
        Grant { token: *counter, take: state.takes }
    }
}
