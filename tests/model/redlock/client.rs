//! What a client does: the rounds of src/lock/kinds/quorum around the crate's own tenure. A fenced lock is a quorum of one.

use super::state::{Answer, Client, Command, Grant, Master, Memory, Message, State, Store};
use crate::belief::{self, Word};
use crate::lease::tenure::Tenure;
use crate::state::Tick;

/// The bounds of a search. Within them everything that can happen is tried, in every order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) masters: usize,
    /// Of each client how many rounds of an acquire it may begin.
    pub(super) rounds: &'static [u8],
    pub(super) wait: Wait,
    pub(super) lease: Tick,
    /// How long an attempt may be executed.
    pub(super) response: Tick,
    /// The last tick.
    pub(super) end: Tick,
    pub(super) restarts: u8,
    pub(super) breaks: u8,
    pub(super) renewals: u8,
    /// How many holds are unlocked before their lease ends.
    pub(super) unlocks: u8,
    /// How many writes each client sends to a store that compares tokens; none: the lock is not fenced.
    pub(super) writes: u8,
    pub(super) steps: u8,
}

/// What is waited for after a master restarted without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// The clients are strict: it grants nothing for so long after the first of them asked it.
    Strict(Tick),
    /// It is started again so much later.
    Down(Tick),
}

/// A rule of docs/protocol.md, 7 or 14, that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Validity counts from the last reply of the round.
    ValidFromReply,
    /// One node less than a majority is enough.
    MinorityCounts,
    /// What a node granted in the round before counts in the next.
    RoundsMixed,
    /// The next round takes the owner id of the one before.
    SameId,
    /// A node that does not answer a renewal confirms it.
    SilenceConfirms,
    /// Tokens do not follow the clock: they are counted, and begin at one after a restart.
    CountsOnly,
    /// The store compares no tokens.
    NeverCompares,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Redlock {
    pub(super) setup: Setup,
    pub(super) mutant: Option<Mutant>,
}

impl Redlock {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn start(&self) -> State {
        let Setup { masters, rounds, restarts, breaks, renewals, unlocks, writes, steps, .. } = self.setup;
        let master = Master { key: None, memory: Memory::Whole, counter: 0, wire: Vec::new() };
        let (word, asking, grant) = (Word::Pending, None, Grant::default());
        let client = |left: &u8| Client { left: *left, round: 0, word, asking, yes: 0, no: 0, grant, writes };
        let (masters, clients) = (vec![master; masters], rounds.iter().map(client).collect());
        let (store, clock, takes) = (Store::default(), 0, 0);
        State { now: 0, masters, clients, store, clock, takes, restarts, breaks, renewals, unlocks, steps }
    }

    fn majority(&self) -> usize {
        self.setup.masters / 2 + usize::from(!self.has(Mutant::MinorityCounts))
    }

    /// Changes what is believed, by the crate's code.
    fn believe<T>(state: &mut State, client: usize, act: impl FnOnce(&Tenure) -> T) -> T {
        let (word, result) = belief::step(state.clients[client].word, state.now, act);
        state.clients[client].word = word;
        result
    }

    /// Time passes. Each client looks at its hold, by which one whose deadline has passed is lost.
    pub(super) fn tick(state: &mut State) {
        state.now += 1;
        for client in 0..state.clients.len() {
            Self::believe(state, client, Tenure::is_valid);
        }
    }

    /// A new round of an acquire: all masters are asked at once.
    pub(super) fn begin(&self, state: &mut State, client: usize) {
        let actor = &mut state.clients[client];
        actor.left -= 1;
        actor.round += u8::from(actor.round == 0 || !self.has(Mutant::SameId));
        (actor.word, actor.grant) = (Word::Pending, Grant::default());
        actor.asking = Some((Command::Acquire, state.now));
        self.send(state, client, Command::Acquire);
    }

    pub(super) fn renew(&self, state: &mut State, client: usize) {
        state.renewals -= 1;
        state.clients[client].asking = Some((Command::Renew, state.now));
        self.send(state, client, Command::Renew);
    }

    fn send(&self, state: &mut State, client: usize, command: Command) {
        let (id, waited) = (state.id_of(client), command != Command::Release);
        let deadline = if waited { state.now + self.setup.response } else { 0 };
        let message = Message { id, command, deadline, waited, answer: None };
        state.masters.iter_mut().for_each(|master| master.wire.push(message));
    }

    /// The unlock, or the retreat of a round without a majority. A release goes to every master: one that said no has nothing to free.
    pub(super) fn end(&self, state: &mut State, client: usize) {
        Self::believe(state, client, Tenure::end);
        self.close_round(state, client);
        self.send(state, client, Command::Release);
    }

    fn close_round(&self, state: &mut State, client: usize) {
        let id = state.id_of(client);
        let of_round = state.masters.iter_mut().flat_map(|master| &mut master.wire).filter(|at| at.id == id);
        of_round.for_each(|at| at.waited = false);
        let actor = &mut state.clients[client];
        (actor.asking, actor.no) = (None, 0);
        actor.yes = if self.has(Mutant::RoundsMixed) { actor.yes } else { 0 };
    }

    /// An answer arrives.
    pub(super) fn deliver(&self, state: &mut State, message: &Message) {
        let client = message.id.client;
        let actor = &mut state.clients[client];
        match message.answer {
            Some(Answer::Yes(grant)) => {
                actor.yes += 1;
                // A renewal brings no token.
                actor.grant = actor.grant.max(grant);
            }
            Some(Answer::No) => actor.no += 1,
            Some(Answer::Stale) | None => {}
        }
        self.decide(state, client);
    }

    /// The master does not answer in its time.
    pub(super) fn break_off(&self, state: &mut State, message: &Message) {
        let confirms = message.command == Command::Renew && self.has(Mutant::SilenceConfirms);
        state.clients[message.id.client].yes += usize::from(confirms);
        self.decide(state, message.id.client);
    }

    /// Ends the round if no answer can change it.
    fn decide(&self, state: &mut State, client: usize) {
        let Some((command, sent)) = state.clients[client].asking else { return };
        let id = state.id_of(client);
        let left = state.masters.iter().flat_map(|master| &master.wire).filter(|at| at.id == id && at.waited).count();
        let Client { yes, no, .. } = state.clients[client];
        if yes >= self.majority() {
            self.won(state, client, (command, sent));
        } else if yes + left < self.majority() {
            self.failed(state, client, command, no);
        }
    }

    fn won(&self, state: &mut State, client: usize, (command, sent): (Command, Tick)) {
        let sent = if self.has(Mutant::ValidFromReply) { state.now } else { sent };
        let (moment, lease) = (belief::moment(sent), belief::lease(self.setup.lease));
        let confirmed = Self::believe(state, client, |tenure| tenure.confirm(moment, lease));
        if command == Command::Acquire && !confirmed {
            self.end(state, client);
        } else {
            self.close_round(state, client);
        }
    }

    /// A renewal that so many refused that no majority has it is lost; else it is suspect until its deadline.
    fn failed(&self, state: &mut State, client: usize, command: Command, no: usize) {
        match command {
            Command::Acquire => return self.end(state, client),
            _ if no > self.setup.masters - self.majority() => Self::believe(state, client, Tenure::lose),
            _ => {}
        }
        self.close_round(state, client);
    }
}
