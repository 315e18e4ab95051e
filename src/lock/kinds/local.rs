//! [`LocalRedLock`]: the same trait in memory, for unit tests and single-process use.

mod plan;
mod sides;

use crate::base::config::{HandOff, Settings};
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::lives::Life;
use crate::base::signal::{CancelToken, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::base::unwind::survives_a_panic;
use crate::client::{Listeners, Space};
use crate::lease::hold::{Hold, HoldState};
use crate::lease::tenure::{Keeper, LossCause, Tenure};
use crate::lock::RedLock;
use crate::lock::engine::Engine;
use crate::lock::patience::Terms;
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::store::Health;
use crate::store::node::{Failure, Lane, Limits};
use parking_lot::Mutex;
use plan::{Plan, Step};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

pub use sides::LocalReadWriteLock;

/// A lock as on Redis, without a server: leases, re-entry, waiting, losses and errors are the same.
///
/// Each instance is a namespace of its own, shared by its clones; the sides of a [`LocalReadWriteLock`] share one. The watchdog's lease is
/// 30 s. There is no client, so no settings, callback or stats. Its holds have [tokens](Hold::token), which begin with 1 in each process.
/// So it also tests code that takes a [`FencedLock`](crate::FencedLock).
///
/// ```
/// use redlatch::{LocalRedLock, RedLock, RedLockExt};
///
/// fn reserve(locks: &dyn RedLock, stock: &mut u32) -> redlatch::Result<()> {
///     locks.execute_in_lock("stock:7", || *stock -= 1)
/// }
///
/// let mut stock = 3;
/// reserve(&LocalRedLock::new(), &mut stock)?;
/// assert_eq!(stock, 2);
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// # Testing what goes wrong
/// A test plans what the next calls on a resource meet: [`fail_next`](Self::fail_next), [`busy_next`](Self::busy_next),
/// [`lose_next`](Self::lose_next), and [`pass_next`](Self::pass_next) for a call that meets nothing. Calls meet the
/// plans in their order, each once, from any thread and clone, and without waiting. [`planned`](Self::planned) tells how
/// many are left. A [`MultiLock`](crate::MultiLock) that may wait asks a member again after an error that can pass.
///
/// ```
/// use redlatch::{Error, LocalRedLock, RedLock, RedLockExt};
///
/// fn reserve(locks: &dyn RedLock, stock: &mut u32) -> &'static str {
///     match locks.execute_in_lock("stock:7", || *stock -= 1) {
///         Ok(()) => "reserved",
///         Err(error) if error.work_ran() => "check by hand",
///         Err(error) if error.is_retryable() => "try later",
///         Err(_) => "report it",
///     }
/// }
///
/// let (locks, mut stock) = (LocalRedLock::new(), 3);
/// locks.fail_next(Error::unavailable("stock:7", "no route to host"));
/// assert_eq!((reserve(&locks, &mut stock), stock), ("try later", 3));
/// locks.lose_next("stock:7");
/// assert_eq!((reserve(&locks, &mut stock), stock), ("check by hand", 2));
/// assert_eq!((reserve(&locks, &mut stock), stock), ("reserved", 1));
/// assert_eq!(locks.planned(), 0);
/// ```
#[derive(Clone)]
pub struct LocalRedLock {
    handle: Arc<Handle>,
}

survives_a_panic!(LocalRedLock);

struct Handle {
    engine: Arc<Engine>,
    plan: Plan,
    /// Keeps the namespace open.
    _space: Arc<OpenSpace>,
}

/// A namespace that is closed when its last user drops it.
struct OpenSpace(Arc<Space>);

impl Drop for OpenSpace {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl LocalRedLock {
    /// A new, empty namespace.
    #[must_use]
    pub fn new() -> Self {
        Self::passed_on(HandOff::default())
    }

    /// The same for code that takes a [`FairLock`](crate::FairLock): waiting threads get the lock in order of arrival.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLock};
    ///
    /// let locks = LocalRedLock::in_order();
    /// locks.lock("printer")?;
    /// locks.unlock("printer")?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn in_order() -> Self {
        Self::passed_on(HandOff::default().in_order())
    }

    fn passed_on(hand_off: HandOff) -> Self {
        let engine = engine_in_memory(hand_off);
        let space = Arc::new(OpenSpace(Arc::clone(&engine.space)));
        Self::by(engine, space)
    }

    fn by(engine: Arc<Engine>, space: Arc<OpenSpace>) -> Self {
        Self { handle: Arc::new(Handle { engine, plan: Plan::default(), _space: space }) }
    }

    /// The next call on the error's resource that would ask a server fails with it. If the error names no resource, the
    /// next such call on any does.
    ///
    /// An acquire then takes nothing. A release of a hold that is not lost has released it all the same, as with every
    /// kind. A question or a force unlock then does nothing. What is refused before a server is asked, [`Hold::extend`]
    /// and the watchdog do not meet it.
    ///
    /// ```
    /// use redlatch::{Error, LocalRedLock, RedLock, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// locks.pass_next("order:42").fail_next(Error::outcome_unknown("order:42", "reset by peer"));
    /// let guard = locks.guard("order:42")?;
    /// assert!(matches!(guard.unlock(), Err(Error::OutcomeUnknown { .. })));
    /// assert!(!locks.is_locked("order:42")?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fail_next(&self, error: Error) -> &Self {
        let resource = error.resource().unwrap_or_default().to_owned();
        self.plan(&resource, Step::Fail(error))
    }

    /// The next acquire of this resource with a bounded wait finds it busy, as if all that time had passed: a try is
    /// false, a guard `None`. An acquire without an end to its wait does not meet this, nor does one that enters the
    /// thread's own hold.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// locks.busy_next("order:42");
    /// assert!(!locks.try_lock_for("order:42", Duration::from_secs(60))?);    // at once
    /// assert!(locks.try_lock("order:42")?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn busy_next(&self, resource: &str) -> &Self {
        self.plan(resource, Step::Busy)
    }

    /// The next acquire of this resource gives a hold that is lost at once, as by a
    /// [`force_unlock`](RedLock::force_unlock); to lose it later, call that.
    ///
    /// ```
    /// use redlatch::{Error, LocalRedLock, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// locks.lose_next("order:42");
    /// let guard = locks.guard("order:42")?;
    /// assert!(!guard.is_valid());
    /// assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn lose_next(&self, resource: &str) -> &Self {
        self.plan(resource, Step::Lose)
    }

    /// The next call on this resource that could [fail](Self::fail_next) meets nothing: what is planned after this is
    /// for the call after that one.
    pub fn pass_next(&self, resource: &str) -> &Self {
        self.plan(resource, Step::Pass)
    }

    /// How many planned calls have not come yet: to fail, to be busy, to lose their hold or to pass.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.handle.plan.len()
    }

    fn plan(&self, resource: &str, step: Step) -> &Self {
        self.handle.plan.add(resource, step);
        self
    }

    /// Whether an acquire gets as far as asking a server.
    fn would_ask(&self, resource: &str, terms: &Terms<'_>) -> bool {
        let (engine, space) = (&self.handle.engine, &self.handle.engine.space);
        let is_cancelled = terms.token.is_some_and(CancelToken::is_cancelled);
        let is_lost = || self.hold(resource).is_some_and(|hold| hold.state() == HoldState::Lost);
        let has_lease = space.config.asked(terms.lease, terms.renewed).is_ok();
        let is_taken = space.full_key(resource).is_ok_and(|key| engine.check_own_way(&key).is_ok());
        is_taken && has_lease && !is_cancelled && !is_lost()
    }

    /// Whether an acquire meets this step before it takes anything.
    fn is_met(&self, step: &Step, resource: &str, terms: &Terms<'_>) -> bool {
        match step {
            Step::Pass | Step::Fail(_) => true,
            Step::Busy => terms.wait < Duration::MAX && self.hold(resource).is_none(),
            Step::Lose => false,
        }
    }

    /// Loses the hold if that is planned: of several readers this one alone.
    fn lose_if_planned(&self, hold: Hold) -> Result<Hold> {
        let (Handle { engine, plan, .. }, tenure) = (&*self.handle, hold.tenure());
        if plan.next(hold.resource(), |step| matches!(step, Step::Lose)).is_some() {
            tenure.lose();
            engine.sweep(tenure)?;
            engine.lost(tenure, LossCause::Removed);
        }
        Ok(hold)
    }

    /// The answer that a call got, or the failure that is planned for it.
    fn answer<T>(&self, resource: &str, answer: Result<T>) -> Result<T> {
        let answer = answer?;
        self.handle.plan.check(resource).map(|()| answer)
    }
}

impl Default for LocalRedLock {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for LocalRedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalRedLock").field("id", &self.handle.engine.space.id).finish_non_exhaustive()
    }
}

impl RedLock for LocalRedLock {
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        let Handle { engine, plan, .. } = &*self.handle;
        if plan.len() == 0 || !self.would_ask(resource, terms) {
            return engine.acquire(resource, terms);
        }
        match plan.next(resource, |step| self.is_met(step, resource, terms)) {
            Some(Step::Fail(error)) => Err(error),
            Some(Step::Busy) => Ok(None),
            Some(_) => engine.acquire(resource, terms),
            None => engine.acquire(resource, terms)?.map(|hold| self.lose_if_planned(hold)).transpose(),
        }
    }

    fn release(&self, hold: &Hold) -> Result<()> {
        self.answer(hold.resource(), self.handle.engine.release(hold))
    }

    fn verify(&self, hold: &Hold) -> Result<bool> {
        self.answer(hold.resource(), self.handle.engine.verify(hold))
    }

    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        self.handle.engine.hold_of(resource, thread)
    }

    fn force_unlock(&self, resource: &str) -> Result<bool> {
        // The question comes first, because it refuses what never goes to a server.
        self.is_locked(resource)?;
        self.handle.engine.force_unlock(resource)
    }

    fn is_locked(&self, resource: &str) -> Result<bool> {
        self.answer(resource, self.handle.engine.is_locked(resource))
    }

    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        self.answer(resource, self.handle.engine.remaining_time_to_live(resource))
    }

    fn unlock(&self, resource: &str) -> Result<()> {
        self.answer(resource, self.handle.engine.unlock(resource))
    }

    #[allow(private_interfaces)]
    fn engine(&self) -> Option<&Engine> {
        Some(&self.handle.engine)
    }
}

static LOCAL: Kind = Kind { is_of_this_process: true, ..Kind::new("local lock") };

/// The engine of local locks that are passed on by these rules.
pub(in crate::lock) fn engine_in_memory(hand_off: HandOff) -> Arc<Engine> {
    Engine::new(space_in_memory(hand_off), &LOCAL, Arc::<Memory>::default(), Arc::new(AlwaysThere))
}

fn space_in_memory(hand_off: HandOff) -> Arc<Space> {
    let settings = Settings { hand_off, ..Settings::default() };
    let config = settings.derive().unwrap_or_else(|error| unreachable!("the defaults fit: {error}"));
    Arc::new(Space::new(config, Listeners::default()))
}

/// What a server keeps: who has each lock, and until when.
#[derive(Default)]
struct Memory {
    locks: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    owner: String,
    ends: Moment,
}

impl Memory {
    /// Runs `act` after the lock was removed if its lease has run out.
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut HashMap<String, Entry>, Moment) -> T) -> T {
        let now = Clock::Boot.now();
        let mut locks = self.locks.lock();
        if locks.get(key.full()).is_some_and(|entry| entry.ends <= now) {
            locks.remove(key.full());
        }
        act(&mut locks, now)
    }
}

fn end_of(lease: Lease, now: Moment) -> Moment {
    now.plus(lease.span())
}

impl Primitive for Memory {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, _: Manner<'_>, _: Limits<'_>) -> Result<Take, Failure> {
        self.with(tenure.key(), |locks, now| match locks.get(tenure.key().full()) {
            Some(entry) => Ok(Take::Busy(Some(entry.ends.since(now)))),
            None => {
                let entry = Entry { owner: tenure.owner().to_owned(), ends: end_of(lease, now) };
                locks.insert(tenure.key().full().to_owned(), entry);
                tenure.token().mint();
                Ok(Take::Acquired(now))
            }
        })
    }

    fn reenter(&self, tenure: &Arc<Tenure>, _: usize, lease: Lease, _: Limits<'_>) -> Result<Option<Moment>, Failure> {
        self.with(tenure.key(), |locks, now| {
            let entry = locks.get_mut(tenure.key().full()).filter(|entry| entry.owner == tenure.owner());
            Ok(entry.map(|entry| {
                entry.ends = entry.ends.max(end_of(lease, now));
                now
            }))
        })
    }

    fn renew(&self, _: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let limits = Limits::of_lease(lease, answer_by);
        Ok(tenures.iter().map(|tenure| self.reenter(tenure, 0, lease, limits)).collect())
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, _: Moment) -> Result<bool, Failure> {
        self.with(tenure.key(), |locks, _| {
            let held = locks.get(tenure.key().full()).is_some_and(|entry| entry.owner == tenure.owner());
            if held && left == 0 {
                locks.remove(tenure.key().full());
            }
            Ok(held)
        })
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, _: Moment) -> Result<(bool, Life), Failure> {
        self.with(key, |locks, _| Ok((locks.remove(key.full()).is_some(), Life::ONLY)))
    }

    fn time_to_live(&self, key: &Key, _: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.with(key, |locks, now| Ok(locks.get(key.full()).map(|entry| Some(entry.ends.since(now)))))
    }

    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, _: &Key, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        None
    }
}

/// The health of what is in memory.
struct AlwaysThere;

impl Health for AlwaysThere {
    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn outage(&self) -> Option<Duration> {
        None
    }

    fn outage_ends(&self, _: &str, _: Moment) -> Moment {
        Moment::MAX
    }

    fn last_failure(&self, _: &str) -> Option<Failure> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_49_a_count_at_its_end_is_an_error_and_stays() {
        let locks = LocalRedLock::new();
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        hold.deepen(usize::MAX, None);
        assert!(matches!(locks.lock("n"), Err(Error::Config { .. })));
        assert_eq!(hold.count(), usize::MAX);
        assert!(hold.is_valid());
    }
}
