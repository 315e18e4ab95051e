//! How a group is taken: round after round, as `std::lock` of C++ does.
//!
//! A round waits for the member that was busy in the last one, holding nothing of the group, keeps it, and tries all
//! others without waiting. When one of them is busy, everything is released, and the next round waits for that one.
//! Nobody waits while it holds a part, so there is no circle of waiters, whatever the order of the members.

use super::{GroupHold, MultiLock};
use crate::base::error::{Cause, Error, Result};
use crate::base::say::say;
use crate::base::signal::Semaphore;
use crate::base::time::{Clock, Moment};
use crate::lease::hold::Hold;
use crate::lock::Terms;
use crate::lock::batch::Together;
use crate::store::node::LEAST_TO_CONNECT;
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// How a round ended.
enum Round {
    /// All members are in hand.
    Whole,
    /// This one is taken.
    Busy(usize),
    /// The caller's time ended while it waited.
    Late,
}

/// What was taken in a round; released when dropped.
struct Part<'a> {
    call: &'a Call<'a>,
    taken: Vec<(usize, Hold)>,
}

impl Part<'_> {
    fn is_valid(&self) -> bool {
        self.taken.iter().all(|(_, hold)| hold.is_valid())
    }

    /// All members were taken.
    fn keep(&mut self) -> GroupHold {
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_by_key(|(at, _)| *at);
        let given = |at: usize| self.call.group.members[at].given;
        GroupHold::new(taken.into_iter().map(|(at, hold)| (given(at), hold)).collect())
    }
}

impl Drop for Part<'_> {
    /// One attempt each, within the caller's time: what it could not do is done in the background.
    fn drop(&mut self) {
        self.taken.iter().for_each(|(_, hold)| hold.hurry(true));
        if let Err(error) = self.call.group.give_up(&self.taken, self.call.gives_back_by()) {
            say!(debug, "a part of a group was given back: {error}");
        }
        self.taken.iter().for_each(|(_, hold)| hold.hurry(false));
    }
}

/// For so long a call goes on whose lease is over before all members are taken.
const TOO_SLOW: Duration = Duration::from_secs(10);

/// After so many rounds there is a pause before each: of several groups that take each other's members one comes first.
const HURRIED_ROUNDS: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Acquires all members for the current thread; `None` when the wait ended without them.
pub(super) fn acquire(group: &MultiLock<'_>, terms: &Terms<'_>) -> Result<Option<GroupHold>> {
    let call = Call::new(group, terms);
    let mut awaited = None;
    for round in 0.. {
        call.pause(round)?;
        let mut part = Part { call: &call, taken: Vec::new() };
        match call.round(&mut part, awaited)? {
            Round::Whole if part.is_valid() => return Ok(Some(part.keep())),
            Round::Whole => awaited = call.check_too_slow()?,
            Round::Busy(member) => awaited = Some(member),
            Round::Late => return Ok(None),
        }
        drop(part);
        if call.is_over() {
            break;
        }
    }
    Ok(None)
}

/// One call, with its own deadline.
struct Call<'a> {
    group: &'a MultiLock<'a>,
    terms: Terms<'a>,
    clock: Clock,
    since: Moment,
    deadline: Option<Moment>,
    semaphore: Arc<Semaphore>,
    /// The member that was last found busy.
    busy: Cell<Option<usize>>,
}

impl<'a> Call<'a> {
    fn new(group: &'a MultiLock<'a>, terms: &Terms<'a>) -> Self {
        let (clock, semaphore) = (Clock::Boot, Arc::default());
        let since = clock.now();
        let deadline = (terms.wait != Duration::MAX).then(|| since.plus(terms.wait));
        if let Some(token) = terms.token {
            token.wake(&semaphore);
        }
        Self { group, terms: *terms, clock, since, deadline, semaphore, busy: Cell::default() }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// When a part that is given back has to be on its way. A command sent until then gets its grace, so that a wait in vain
    /// is over when a single lock's would be.
    fn gives_back_by(&self) -> Moment {
        match self.deadline {
            Some(deadline) if !self.terms.wait.is_zero() => deadline.plus(LEAST_TO_CONNECT),
            Some(_) => self.since.plus(self.group.one_answer()),
            None => self.clock.now().plus(self.group.one_answer()),
        }
    }

    /// The terms of the wait for one member: what is left to the group.
    fn waiting(&self) -> Terms<'a> {
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(self.clock.now()));
        Terms { answer_by: self.deadline, ..self.terms.wait(left) }
    }

    /// The terms of a try. Its answer is waited for no longer than the group may wait.
    fn trying(&self) -> Terms<'a> {
        let answer_by = self.deadline.filter(|_| !self.terms.wait.is_zero());
        Terms { answer_by, ..self.terms.wait(Duration::ZERO) }
    }

    /// Waits for one member, if one was busy, and tries the others.
    fn round(&self, part: &mut Part<'_>, awaited: Option<usize>) -> Result<Round> {
        if let Some(at) = awaited {
            match self.take(at, &self.waiting()) {
                Ok(Some(hold)) => part.taken.push((at, hold)),
                Ok(None) => return Ok(Round::Late),
                Err(error) if self.ends_wait(at, &error) => return Ok(Round::Late),
                Err(error) => return Err(error),
            }
        }
        let others: Vec<_> = (0..self.group.members.len()).filter(|at| awaited != Some(*at)).collect();
        match self.together(&others)? {
            Together::Held(holds) => part.taken.extend(others.into_iter().zip(holds)),
            Together::Busy(taken) => return Ok(Round::Busy(others[taken])),
            Together::Apart => return self.one_by_one(part, others),
        }
        Ok(Round::Whole)
    }

    /// Tries members by one command.
    fn together(&self, members: &[usize]) -> Result<Together> {
        let Some(engine) = self.group.engine_of(members) else { return Ok(Together::Apart) };
        let names: Vec<_> = members.iter().map(|at| self.group.members[*at].resource.as_str()).collect();
        let taken = engine.take_group(&names, &self.trying());
        match taken {
            Err(error) if self.bears(&error) => return Ok(Together::Busy(0)),
            Ok(Together::Busy(at)) => self.busy.set(Some(members[at])),
            _ => {}
        }
        taken
    }

    fn one_by_one(&self, part: &mut Part<'_>, members: Vec<usize>) -> Result<Round> {
        for at in members {
            match self.take(at, &self.trying()) {
                Ok(Some(hold)) => part.taken.push((at, hold)),
                Ok(None) => return Ok(Round::Busy(at)),
                Err(error) if self.bears(&error) => return Ok(Round::Busy(at)),
                Err(error) => return Err(error),
            }
        }
        Ok(Round::Whole)
    }

    fn take(&self, at: usize, terms: &Terms<'_>) -> Result<Option<Hold>> {
        let member = &self.group.members[at];
        let taken = member.lock.acquire(&member.resource, terms);
        if matches!(taken, Ok(None)) {
            self.busy.set(Some(at));
        }
        taken
    }

    /// Whether a failed try of a member is a reason to wait for it: that wait rides out an outage, or says what is
    /// wrong.
    fn bears(&self, error: &Error) -> bool {
        error.is_retryable() && !self.is_over()
    }

    /// Whether the wait for this member ended in vain, as one for a single lock would have: it was busy, and its server was away
    /// later. The member's own call does not know of the round before.
    fn ends_wait(&self, at: usize, error: &Error) -> bool {
        self.busy.get() == Some(at) && self.is_over() && matches!(error, Error::Unavailable { .. })
    }

    /// The first rounds follow each other at once: each has waited for a member.
    fn pause(&self, round: u32) -> Result<()> {
        if round >= HURRIED_ROUNDS {
            let most = Duration::from_millis(1 << (round - HURRIED_ROUNDS).min(4)).min(LONGEST_PAUSE);
            let left = self.deadline.map_or(most, |deadline| deadline.since(self.clock.now()));
            // Every `RandomState` hashes in its own way.
            let part = RandomState::new().build_hasher().finish() % 1_000;
            self.semaphore.acquire((most / 1_000 * part as u32).min(left));
        }
        match self.terms.token {
            Some(token) if token.is_cancelled() => Err(Error::cancelled(self.group.name())),
            _ => Ok(()),
        }
    }

    /// A lease that is over before the last member is taken never holds the group: not asked for without end.
    fn check_too_slow(&self) -> Result<Option<usize>> {
        if self.clock.now() < self.since.plus(TOO_SLOW) {
            return Ok(None);
        }
        let cause = Cause::new("the lease is shorter than it takes to acquire the group: ask for a longer one");
        Err(Error::Unavailable { resource: self.group.name().to_owned(), cause })
    }
}
