//! What can happen next, what must never be so, and the searches of the protocol as it is.

use super::client::{Mutant, Setup, Sides};
use super::state::{Command, Doing, Fault, From, Side, State};
use crate::belief::Word;
use crate::state::Id;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    /// The server executes a request, awaited or not.
    Execute(usize),
    /// An answer arrives.
    Deliver(usize),
    /// The sender waits no longer: a time-out, or an early end of the connection.
    BreakOff(usize),
    /// A thread comes to a side.
    Come(usize, Side),
    /// It shares what another thread of its client has.
    Share(usize, Id),
    /// It tries once more, or stops waiting.
    TryAgain(usize),
    GiveUp(usize),
    Unlock(usize, Side),
    Renew(Id),
    /// The watchdog finds that the time of a hold is over.
    Notice(Id),
    Sweep(Id),
    Force(Side),
    Evict(Id),
}

pub(super) const ALONE: &str = "a writer is alone";
pub(super) const GROUNDED: &str = "who is believed in is there";
pub(super) const LASTS: &str = "the lock outlives its holds";
pub(super) const ENDS: &str = "a lock that is read ends with its readers";
pub(super) const MODE: &str = "the mode tells whether there is a writer";
pub(super) const STRANGER: &str = "a release frees nothing but its own hold";
pub(super) const CARED: &str = "what keeps others out has someone who will free it";
pub(super) const LOST: &str = "lost is for good";
pub(super) const SPANNED: &str = "a hold that was interrupted is not prolonged";

impl Model for Sides {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        actions.extend((state.now < self.setup.end).then_some(Action::Tick));
        self.actions_of_wire(state, actions);
        for thread in 0..state.threads.len() {
            Self::actions_of_thread(state, thread, actions);
        }
        Self::actions_of_background(state, actions);
        Self::actions_from_elsewhere(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        Self::expire(&mut state);
        // Without a sender that waits, a request that would be found stale does nothing.
        let (now, forgets) = (state.now, !self.has(Mutant::NoAttemptDeadline));
        state.wire.retain(|at| at.waited || at.command == Command::Release || !forgets || now < at.deadline);
        // A late copy more of what a late copy does already is left out: a stated bound.
        state.wire.sort_unstable();
        state.wire.dedup_by(|one, other| !one.waited && one == other);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALONE, |_, state: &State| state.writers_are_alone()),
            Property::always(GROUNDED, |_, state: &State| state.beliefs_are_grounded()),
            Property::always(LASTS, |_, state: &State| state.lock_outlives_holds()),
            Property::always(ENDS, |model: &Self, state: &State| {
                model.setup.evictions > 0 || state.lock_ends_with_its_readers()
            }),
            Property::always(MODE, |_, state: &State| state.mode_is_true()),
            Property::always(CARED, |_, state: &State| state.fields_are_cared_for()),
            Property::always(STRANGER, |_, state: &State| state.fault != Some(Fault::StrangerFreed)),
            Property::always(LOST, |_, state: &State| state.fault != Some(Fault::LostCameBack)),
            Property::always(SPANNED, |_, state: &State| state.fault != Some(Fault::Spanned)),
        ]
    }
}

impl Sides {
    fn actions_of_wire(&self, state: &State, actions: &mut Vec<Action>) {
        let is_first = |at: &usize| *at == 0 || state.wire[at - 1] != state.wire[*at];
        for at in (0..state.wire.len()).filter(is_first) {
            let message = &state.wire[at];
            actions.push(if message.answer.is_none() { Action::Execute(at) } else { Action::Deliver(at) });
            actions.extend((message.waited && state.breaks > 0).then_some(Action::BreakOff(at)));
        }
    }

    fn actions_of_thread(state: &State, thread: usize, actions: &mut Vec<Action>) {
        match state.threads[thread].doing {
            Doing::Idle => {
                actions.extend([Side::Read, Side::Write].into_iter().filter_map(|side| state.next_of(thread, side)));
                actions.extend(state.to_share(thread).map(|id| Action::Share(thread, id)));
            }
            Doing::Contending { .. } => actions.extend([Action::TryAgain(thread), Action::GiveUp(thread)]),
            Doing::Acquiring { .. } | Doing::Unlocking { .. } => {}
        }
    }

    fn actions_of_background(state: &State, actions: &mut Vec<Action>) {
        for (id, tenure) in (0..).zip(&state.tenures) {
            let under_way = |from| state.wire.iter().any(|at| at.id == id && at.from == from && at.waited);
            let is_held = matches!(tenure.word, Word::Until(_));
            if state.renewals > 0 && is_held && !under_way(From::Watchdog) {
                actions.push(Action::Renew(id));
            }
            if is_held && !state.is_valid(id) {
                actions.push(Action::Notice(id));
            }
            if tenure.sweeps.first().is_some_and(|due| *due <= state.now) && !under_way(From::Sweeper) {
                actions.push(Action::Sweep(id));
            }
        }
    }

    fn actions_from_elsewhere(state: &State, actions: &mut Vec<Action>) {
        let Some(lock) = &state.lock else { return };
        for side in [Side::Read, Side::Write].into_iter().filter(|_| state.forces > 0) {
            let is_of = |id: &&u8| state.tenure(**id).side == side;
            actions.extend(lock.fields.iter().find(is_of).map(|_| Action::Force(side)));
        }
        let timed = lock.fields.iter().filter(|id| state.evictions > 0 && state.timeout(**id) > 0);
        actions.extend(timed.map(|id| Action::Evict(*id)));
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => state.now += 1,
            Action::Execute(at) => {
                let mut message = state.wire.remove(at);
                message.answer = Some(self.execute(state, &mut message));
                state.wire.extend(Some(message).filter(|message| message.waited));
            }
            Action::Deliver(at) => {
                let message = state.wire.remove(at);
                self.deliver(state, &message, message.answer.expect("only answers are delivered"));
            }
            Action::BreakOff(at) => {
                state.breaks -= 1;
                let mut message = state.wire.remove(at);
                message.waited = false;
                state.wire.extend(Some(message).filter(|message| message.answer.is_none()));
                self.break_off(state, &message);
            }
            Action::Force(side) => {
                state.forces -= 1;
                self.force(state, side);
            }
            Action::Evict(id) => {
                state.evictions -= 1;
                Self::evict(state, id);
            }
            _ => self.act_of_client(state, action),
        }
    }

    fn act_of_client(&self, state: &mut State, action: Action) {
        match action {
            Action::Come(thread, side) => {
                state.threads[thread].left[side as usize] -= 1;
                self.try_take(state, thread, side, None, self.setup.tries);
            }
            Action::Share(thread, id) => {
                state.threads[thread].left[Side::Read as usize] -= 1;
                state.threads[thread].holds[Side::Read as usize] = Some(id);
            }
            Action::TryAgain(thread) => {
                if let Doing::Contending { side, id, tries } = state.threads[thread].doing {
                    self.try_take(state, thread, side, id, tries);
                }
            }
            Action::GiveUp(thread) => {
                if let Doing::Contending { id, .. } = state.threads[thread].doing {
                    self.abandon(state, thread, id);
                }
            }
            Action::Unlock(thread, side) => self.unlock(state, thread, side),
            Action::Renew(id) => {
                state.renewals -= 1;
                self.send(state, Command::Renew, id, From::Watchdog);
            }
            Action::Notice(id) => self.lost(state, id),
            Action::Sweep(id) => {
                state.tenure_mut(id).sweeps.remove(0);
                self.send(state, Command::Release, id, From::Sweeper);
            }
            _ => unreachable!("{action:?} is of no client"),
        }
    }
}

impl State {
    /// What an idle thread does about a side: it comes, or gives it up. Who reads does not ask to write, and one thread of a client asks
    /// to write at a time.
    fn next_of(&self, thread: usize, side: Side) -> Option<Action> {
        let me = &self.threads[thread];
        if me.hold(side).is_some() {
            return Some(Action::Unlock(thread, side));
        }
        let reads = me.hold(Side::Read).is_some_and(|id| self.is_valid(id));
        let waits = side == Side::Write && (reads || self.siblings(thread).any(|other| self.writes(other)));
        (me.left[side as usize] > 0 && !waits).then_some(Action::Come(thread, side))
    }

    fn to_share(&self, thread: usize) -> Option<Id> {
        let me = &self.threads[thread];
        let is_free = me.left[Side::Read as usize] > 0 && me.hold(Side::Read).is_none();
        let shared = |other: usize| self.threads[other].hold(Side::Read);
        let is_open = |id: &Id| self.tenure(*id).is_shared && self.is_valid(*id);
        self.siblings(thread).filter_map(shared).find(is_open).filter(|_| is_free)
    }

    fn siblings(&self, thread: usize) -> impl Iterator<Item = usize> {
        let same = move |other: &usize| *other != thread && self.threads[*other].client == self.threads[thread].client;
        (0..self.threads.len()).filter(same)
    }

    fn writes(&self, thread: usize) -> bool {
        let thread = &self.threads[thread];
        let is_of_writer = |id: Id| self.tenure(id).side == Side::Write;
        let asks = match thread.doing {
            Doing::Idle => false,
            Doing::Contending { side, .. } => side == Side::Write,
            Doing::Acquiring { id, .. } | Doing::Unlocking { id, .. } => is_of_writer(id),
        };
        asks || thread.hold(Side::Write).is_some_and(|id| self.is_valid(id))
    }
}

pub(super) const BASE: Setup = Setup {
    threads: &[(0, 1, 0), (1, 0, 1)],
    tries: 1,
    end: 3,
    leases: [2, 2],
    response: 1,
    renewals: 0,
    forces: 0,
    evictions: 0,
    breaks: 0,
    shares: false,
};

/// A reader beside a reader, and a writer.
const THREE: &[(u8, u8, u8)] = &[(0, 1, 0), (1, 1, 0), (2, 0, 1)];

/// One that writes and reads, and a reader.
const DOWNGRADE: &[(u8, u8, u8)] = &[(0, 1, 1), (1, 1, 0)];

/// What is explored with each change of the crate.
const SMALL: [(&str, Setup); 8] = [
    ("a reader and a writer", Setup { breaks: 1, tries: 2, end: 2, ..BASE }),
    ("renewals", Setup { renewals: 1, ..BASE }),
    ("three clients", Setup { threads: THREE, end: 2, ..BASE }),
    ("downgrade", Setup { threads: DOWNGRADE, end: 2, ..BASE }),
    ("an outage under a writer", Setup { threads: &[(0, 1, 1)], leases: [3, 1], breaks: 3, end: 2, ..BASE }),
    ("force unlock of a side", Setup { threads: DOWNGRADE, forces: 1, end: 1, ..BASE }),
    ("eviction", Setup { evictions: 1, renewals: 1, end: 2, ..BASE }),
    ("sharing", Setup { threads: &[(0, 1, 1), (0, 1, 0)], shares: true, end: 2, ..BASE }),
];

/// What is explored by hand: docs/model.md.
const LARGE: [(&str, Setup); 9] = [
    ("an outage under a writer", Setup { threads: &[(0, 1, 1)], leases: [3, 1], breaks: 5, end: 4, ..BASE }),
    ("a reader and a writer", Setup { breaks: 2, tries: 2, ..BASE }),
    ("two readers and a writer", Setup { threads: THREE, breaks: 1, ..BASE }),
    ("two readers and a writer, renewals", Setup { threads: THREE, renewals: 2, leases: [3, 2], end: 4, ..BASE }),
    ("downgrade", Setup { threads: DOWNGRADE, breaks: 1, tries: 2, ..BASE }),
    ("downgrade and a writer", Setup { threads: &[(0, 1, 1), (1, 0, 1)], breaks: 1, tries: 2, ..BASE }),
    ("eviction", Setup { threads: THREE, evictions: 1, renewals: 1, ..BASE }),
    ("sharing", Setup { threads: &[(0, 1, 1), (0, 1, 0), (1, 0, 1)], shares: true, ..BASE }),
    ("force unlock of a side", Setup { threads: DOWNGRADE, forces: 1, breaks: 1, ..BASE }),
];

/// Searches; what was found, with the steps that led there.
pub(super) fn search(sides: Sides, threads: usize, until: HasDiscoveries) -> (usize, Vec<String>) {
    let found = sides.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let steps = |path: stateright::Path<State, Action>| {
        path.into_vec().iter().map(|(state, action)| format!("{state:?}\n  -> {action:?}")).collect::<Vec<_>>()
    };
    let found_what = found.discoveries().into_iter();
    let found_what = found_what.map(|(name, path)| format!("{name}:\n{}", steps(path).join("\n"))).collect();
    (found.unique_state_count(), found_what)
}

fn assert_holds(name: &str, setup: Setup, threads: usize) {
    let started = Instant::now();
    let (states, found) = search(Sides { setup, mutant: None }, threads, HasDiscoveries::AnyFailures);
    assert!(found.is_empty(), "{name}: {}", found.join("\n"));
    println!("sides, {name}: {states} states in {:.1} s", started.elapsed().as_secs_f64());
}

#[test]
fn read_write_locks_hold_within_their_bounds() {
    let large = std::env::var("REDLATCH_MODEL").is_ok_and(|size| size == "large");
    let setups: &[_] = if large { &LARGE } else { &SMALL };
    for (name, setup) in setups {
        assert_holds(name, *setup, if large { 2 } else { 1 });
    }
}
