//! How a group is taken: round after round.
//!
//! The first round tries all members. Each later one waits for one member while the group holds nothing, keeps it, and tries all others
//! together, as `std::lock` of C++ does. For those that are busy it waits one after the other while it holds the rest: a lock in demand is
//! given from one waiter to the next, and a try hardly ever finds it free. That wait is short, and then the round releases everything:
//! another group, or a thread that takes single locks in another order, may wait for a part of this one.
//!
//! Every other round waits for its members in the order that all groups have, so that groups queue and do not block each other. The rounds
//! between begin with the member that was busy last: if it is held for long, the group waits for it without holding the others.

use super::{GroupHold, MultiLock};
use crate::base::error::{Cause, Error, Result};
use crate::base::say::say;
use crate::base::signal::Semaphore;
use crate::base::time::{Clock, Moment};
use crate::lease::hold::Hold;
use crate::lock::Terms;
use crate::lock::batch::Together;
use crate::lock::patience::Part;
use crate::lock::waiting::bid::Late;
use crate::registry::{TakesGroup, is_part_of_group};
use crate::store::node::LEAST_TO_CONNECT;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// How a round ended.
enum Round {
    /// All members are in hand.
    Whole,
    /// Another owner has this member.
    Busy(usize),
    /// The caller's time ended during the wait.
    Late,
}

/// What was taken in a round; released when dropped.
struct Taken<'a> {
    call: &'a GroupCall<'a>,
    taken: Vec<(usize, Hold)>,
}

impl Taken<'_> {
    /// Whether the group is whole. From here on its caller is told of each loss: what was lost before is seen here.
    fn is_whole(&self) -> bool {
        self.call.taking.goes_on(false);
        let is_whole = self.taken.iter().all(|(_, hold)| hold.is_valid());
        if !is_whole {
            self.call.taking.goes_on(true);
        }
        is_whole
    }

    /// Makes the group's hold, once all members are taken.
    fn keep(&mut self) -> GroupHold {
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_by_key(|(at, _)| *at);
        let given = |at: usize| self.call.group.members[at].given;
        GroupHold::new(taken.into_iter().map(|(at, hold)| (given(at), hold)).collect())
    }
}

impl Drop for Taken<'_> {
    /// Makes one attempt each, within the caller's time; the background does the rest.
    fn drop(&mut self) {
        // The background may find them lost when the call is over.
        self.taken.iter().filter(|(_, hold)| is_part_of_group(hold)).for_each(|(_, hold)| hold.disown());
        self.taken.iter().for_each(|(_, hold)| hold.hurry(true));
        if let Err(error) = self.call.group.give_up(&self.taken, self.call.gives_back_by()) {
            say!(debug, "a part of a group was given back: {error}");
        }
        self.taken.iter().for_each(|(_, hold)| hold.hurry(false));
    }
}

/// From this round on each begins with a pause, so that one of several groups with shared members comes first.
const HURRIED_ROUNDS: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// While a group holds a part, it waits for the others for max(2 * waited, SHORTEST_BOUND, TRIPS * trip) * 2^vain. That is at most
/// LONGEST_BOUND; up to a quarter more is added at random. `vain` counts such waits in vain. A group subscribes before it queues, hence
/// TRIPS. Another owner waits for the part in vain meanwhile, hence LONGEST_BOUND.
const SHORTEST_BOUND: Duration = Duration::from_millis(20);
const TRIPS: u32 = 8;
const LONGEST_BOUND: Duration = Duration::from_millis(800);

/// For members before the one that the round began with, the group waits for no longer than this.
///
/// A group takes later members in ascending order, so each comes after all that it holds. A circle of groups cannot ascend all the way
/// round: at least one of them waits for an earlier member. That one gives up long before those that wait for later ones, and one of those
/// gets what it waits for. With one bound for both, groups that held `a` and groups that held `b` kept each other out for 20 s: each gave
/// its member up to the next of its own sort, which stood before the others in the queue.
const LONGEST_BACKWARDS: Duration = Duration::from_millis(200);

/// Such a wait takes at most 1 / PART_OF_LEASE of a lease that is not renewed.
const PART_OF_LEASE: u32 = 8;

/// Acquires all members for the current thread; `None` when the wait ended without them.
pub(super) fn acquire(group: &MultiLock<'_>, terms: &Terms<'_>) -> Result<Option<GroupHold>> {
    let call = GroupCall::new(group, terms);
    let mut awaited = None;
    for round in 0.. {
        call.pause(round)?;
        let mut part = Taken { call: &call, taken: Vec::new() };
        match call.round(&mut part, round, awaited)? {
            Round::Whole if part.is_whole() => return Ok(Some(part.keep())),
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
struct GroupCall<'a> {
    group: &'a MultiLock<'a>,
    terms: Terms<'a>,
    clock: Clock,
    since: Moment,
    deadline: Option<Moment>,
    semaphore: Arc<Semaphore>,
    /// The member that was last found busy.
    busy: Cell<Option<usize>>,
    /// The longest time that each member was waited for until it was taken.
    waited: RefCell<Vec<Duration>>,
    /// How many waits were in vain while the group held a part.
    vain: Cell<u32>,
    /// How long the first round took.
    trip: Cell<Duration>,
    /// Since when leases are over before all members are taken.
    late: Cell<Late>,
    /// A call of the last round failed: the group waits for that member with empty hands, and so rides the outage out.
    in_trouble: Cell<bool>,
    taking: TakesGroup,
}

impl<'a> GroupCall<'a> {
    fn new(group: &'a MultiLock<'a>, terms: &Terms<'a>) -> Self {
        let (clock, semaphore) = (Clock::Boot, Arc::default());
        let since = clock.now();
        let deadline = (terms.wait != Duration::MAX).then(|| since.plus(terms.wait));
        if let Some(token) = terms.token {
            token.wake(&semaphore);
        }
        Self {
            group,
            terms: *terms,
            clock,
            since,
            deadline,
            semaphore,
            busy: Cell::default(),
            waited: RefCell::default(),
            vain: Cell::default(),
            trip: Cell::default(),
            late: Cell::default(),
            in_trouble: Cell::default(),
            taking: TakesGroup::begin(),
        }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// When the release of a part has to be on its way. A command sent until then gets its grace of 200 ms, so a wait in
    /// vain ends when a single lock's would.
    fn gives_back_by(&self) -> Moment {
        match self.deadline {
            Some(deadline) if !self.terms.wait.is_zero() => deadline.plus(LEAST_TO_CONNECT),
            Some(_) => self.since.plus(self.group.one_answer()),
            None => self.clock.now().plus(self.group.one_answer()),
        }
    }

    /// The terms of the wait for one member: the time that the group has left, at most `bound`.
    fn waiting(&self, bound: Duration) -> Terms<'a> {
        let left = self.deadline.map_or(Duration::MAX, |deadline| deadline.since(self.clock.now()));
        let part = match bound {
            Duration::MAX => Part::EmptyHanded,
            _ if bound < left => Part::Passing,
            _ => Part::Last,
        };
        Terms { answer_by: self.deadline, part, ..self.terms.wait(left.min(bound)) }
    }

    /// The terms of a try. Its answer may take no longer than the group may wait.
    fn trying(&self) -> Terms<'a> {
        let answer_by = self.deadline.filter(|_| !self.terms.wait.is_zero());
        Terms { answer_by, part: Part::Passing, ..self.terms.wait(Duration::ZERO) }
    }

    /// Waits for one member, except in the first round, and then takes the others.
    fn round(&self, part: &mut Taken<'_>, round: u32, awaited: Option<usize>) -> Result<Round> {
        let first = (round > 0).then(|| self.first(round, awaited));
        if let Some(at) = first {
            match self.wait_for(at, Duration::MAX) {
                Ok(Some(hold)) => part.taken.push((at, hold)),
                Ok(None) => return Ok(Round::Late),
                Err(error) if self.ends_wait(at, &error) => return Ok(Round::Late),
                Err(error) if awaited != first && self.bears(&error) => return Ok(Round::Busy(at)),
                Err(error) => return Err(error),
            }
        }
        let others: Vec<_> = (0..self.group.members.len()).filter(|at| first != Some(*at)).collect();
        match self.together(&others)? {
            Together::Held(holds) => part.taken.extend(others.into_iter().zip(holds)),
            Together::Busy(taken) if round == 0 => return Ok(self.tried(others[taken])),
            Together::Apart if round == 0 => return self.one_by_one(part, others),
            Together::Busy(_) | Together::Apart => return self.wait_for_each(part, others, first.unwrap_or(0)),
        }
        Ok(Round::Whole)
    }

    fn first(&self, round: u32, awaited: Option<usize>) -> usize {
        let is_in_order = !self.in_trouble.take() && round % 2 == 1;
        awaited.filter(|_| !is_in_order).unwrap_or(0)
    }

    fn tried(&self, busy: usize) -> Round {
        self.trip.set(self.clock.now().since(self.since));
        Round::Busy(busy)
    }

    /// Waits for members while the group holds others, `first` among them, at most for the bound.
    fn wait_for_each(&self, part: &mut Taken<'_>, members: Vec<usize>, first: usize) -> Result<Round> {
        let (since, bound) = (self.clock.now(), self.bound(&members));
        for at in members {
            let bound = if at < first { bound.min(LONGEST_BACKWARDS) } else { bound };
            match self.wait_for(at, since.plus(bound).since(self.clock.now())) {
                Ok(Some(hold)) => part.taken.push((at, hold)),
                Ok(None) if self.is_over() => return Ok(Round::Late),
                Ok(None) => {
                    self.vain.set(self.vain.get() + 1);
                    return Ok(Round::Busy(at));
                }
                Err(error) if self.ends_wait(at, &error) => return Ok(Round::Late),
                Err(error) if self.bears(&error) => return Ok(Round::Busy(at)),
                Err(error) => return Err(error),
            }
        }
        Ok(Round::Whole)
    }

    /// A group with one lock by two clients is never whole: it waits for nobody while it holds a part.
    fn bound(&self, members: &[usize]) -> Duration {
        if self.group.has_twins() {
            return Duration::ZERO;
        }
        let waited = self.waited.borrow();
        let seen: Duration = members.iter().filter_map(|at| waited.get(*at)).sum();
        let least = SHORTEST_BOUND.max(self.trip.get() * TRIPS);
        let bound = (seen * 2).max(least).saturating_mul(1 << self.vain.get().min(16)).min(LONGEST_BOUND);
        let lease = self.terms.lease.filter(|_| !self.terms.renewed).unwrap_or(Duration::MAX);
        (bound + random_part(bound / 4)).min(lease / PART_OF_LEASE)
    }

    fn wait_for(&self, at: usize, bound: Duration) -> Result<Option<Hold>> {
        let since = self.clock.now();
        let taken = self.take(at, &self.waiting(bound));
        if let Ok(Some(_)) = taken {
            let mut waited = self.waited.borrow_mut();
            waited.resize(self.group.members.len(), Duration::ZERO);
            waited[at] = waited[at].max(self.clock.now().since(since));
        }
        taken
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

    fn one_by_one(&self, part: &mut Taken<'_>, members: Vec<usize>) -> Result<Round> {
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

    /// Whether a failed try of a member counts as busy: the wait for that member rides out an outage, or says what is
    /// wrong.
    fn bears(&self, error: &Error) -> bool {
        let bears = error.is_retryable() && !self.is_over();
        self.in_trouble.set(bears);
        bears
    }

    /// Whether the wait for this member ended in vain, as one for a single lock would have: it was busy, and its server was away
    /// later. The member's own call does not know of the round before.
    fn ends_wait(&self, at: usize, error: &Error) -> bool {
        self.busy.get() == Some(at) && self.is_over() && matches!(error, Error::Unavailable { .. })
    }

    /// The first rounds have no pauses: each has waited for a member.
    fn pause(&self, round: u32) -> Result<()> {
        if round >= HURRIED_ROUNDS {
            let most = Duration::from_millis(1 << (round - HURRIED_ROUNDS).min(4)).min(LONGEST_PAUSE);
            let left = self.deadline.map_or(most, |deadline| deadline.since(self.clock.now()));
            self.semaphore.acquire(random_part(most).min(left));
        }
        match self.terms.token {
            Some(token) if token.is_cancelled() => Err(Error::cancelled(self.group.name())),
            _ => Ok(()),
        }
    }

    /// Gives up after the outage budget: leases that end before the last member is taken never hold the group.
    fn check_too_slow(&self) -> Result<Option<usize>> {
        let (mut late, now, budget) = (self.late.get(), self.clock.now(), self.group.outage_budget());
        late.note(now, budget);
        self.late.set(late);
        if !late.lasts(now, budget) {
            return Ok(None);
        }
        let cause = Cause::new("the lease is shorter than it takes to acquire the group: ask for a longer one");
        Err(Error::Unavailable { resource: self.group.name().to_owned(), cause })
    }
}

/// Every `RandomState` hashes in its own way.
fn random_part(most: Duration) -> Duration {
    most / 1_000 * (RandomState::new().build_hasher().finish() % 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalRedLock;

    /// How long such a group waits for its others, after `vain` such waits in vain.
    fn bound(names: [&str; 3], terms: &Terms<'_>, vain: u32) -> Duration {
        let locks = LocalRedLock::new();
        let group = MultiLock::of(names.map(|name| (&locks, name)));
        let call = GroupCall::new(&group, terms);
        call.vain.set(vain);
        *call.waited.borrow_mut() =
            vec![Duration::from_secs(1_000), Duration::from_millis(30), Duration::from_millis(70)];
        call.bound(&[1, 2])
    }

    const NAMES: [&str; 3] = ["a", "b", "c"];

    #[track_caller]
    fn assert_about(bound: Duration, millis: u64) {
        let least = Duration::from_millis(millis);
        assert!(least <= bound && bound <= least * 5 / 4, "{bound:?}");
    }

    #[test]
    fn a_part_is_held_for_twice_the_waits_for_the_others() {
        for (vain, millis) in [(0, 200), (1, 400), (2, 800), (3, 800), (u32::MAX, 800)] {
            assert_about(bound(NAMES, &Terms::new(), vain), millis);
        }
    }

    #[test]
    fn an_eighth_of_a_lease_that_is_not_renewed_is_spent_on_a_wait_for_the_others() {
        let lease = Duration::from_millis(800);
        assert_eq!(bound(NAMES, &Terms::new().lease(lease), 0), lease / 8);
        assert_about(bound(NAMES, &Terms::new().renewed_lease(lease), 0), 200);
    }

    #[test]
    fn a_group_with_a_lock_twice_waits_for_nobody_while_it_holds_a_part() {
        assert!(bound(["a", "b", "b"], &Terms::new(), 3).is_zero());
    }

    #[test]
    fn what_was_not_waited_for_yet_may_take_some_round_trips() {
        let locks = LocalRedLock::new();
        let group = MultiLock::of(NAMES.map(|name| (&locks, name)));
        let call = GroupCall::new(&group, &Terms::new());
        assert_about(call.bound(&[1, 2]), 20);
        call.trip.set(Duration::from_millis(10));
        assert_about(call.bound(&[1, 2]), 80);
    }
}
