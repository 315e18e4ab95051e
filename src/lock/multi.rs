//! [`MultiLock`]: several locks taken as one.

mod guard;
mod hold;
mod rounds;

use super::batch::worse;
use super::engine::Engine;
use super::{RedLock, Terms, acquired};
use crate::base::config::Config;
use crate::base::error::{Error, Result};
use crate::base::meters::{Meter, Timer};
use crate::base::signal::CancelToken;
use crate::base::time::{Clock, Moment};
use crate::base::unwind::survives_a_panic;
use crate::lease::hold::Hold;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use guard::{GroupGuard, GroupRequest};
pub use hold::GroupHold;

/// Several resources taken as one, all or nothing, each of a lock of any kind on any server.
///
/// A group has the verbs of a [`RedLock`] and [`RedLockExt`](crate::RedLockExt) without a resource. It holds nothing
/// itself: make it on the spot, or once for many threads. A member that the thread holds already is entered once more,
/// and so is a member that is in the group twice.
///
/// ```
/// use redlatch::{LocalRedLock, MultiLock, RedLock};
///
/// let (orders, stock) = (LocalRedLock::new(), LocalRedLock::new());
/// let both = MultiLock::of([(&orders, "order:42"), (&stock, "stock:7")]);
///
/// let guard = both.guard()?;
/// assert!(guard.is_valid() && orders.is_held_by_current_thread("order:42"));
/// guard.unlock()?;
///
/// let sold = both.execute_in_lock(|| 40 + 2)?;
/// assert_eq!(sold, 42);
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// Members of different kinds are given as `&dyn RedLock`:
///
/// ```
/// use redlatch::{LocalRedLock, MultiLock, RedLock, RedisRedLock};
/// use std::time::Duration;
///
/// fn move_stock(shared: &RedisRedLock, own: &LocalRedLock) -> redlatch::Result<Option<()>> {
///     let both = MultiLock::of([(shared as &dyn RedLock, "stock:7"), (own, "report")]);
///     both.request().wait(Duration::from_millis(500)).execute(|hold| assert!(hold.is_valid()))
/// }
/// ```
///
/// # How it is taken
///
/// Groups take their members in one order: by the full key, then by the server. The order in which the members are given does not
/// matter. When a member is busy, the group releases what it took, waits for one member, and then takes the others.
///
/// A lock in demand is given from one process to the next, so a try hardly ever finds it free. So a group that has one member waits for the
/// others, too. The bound for all together is twice the time that it waited for each before, at least 20 ms, doubled with each such wait in
/// vain, at most 1 s. Of a lease that is not renewed it is an eighth at most. Then the group releases all. So groups do not wait for each
/// other in a circle, and a thread that takes one lock inside another waits for a group no longer than that.
///
/// The wait is the whole group's. If it ends in vain, is cancelled, fails or panics, the group gives back what it took.
///
/// One script takes all members in one round trip, and another releases them, if the members are
/// [`ReentrantLock`](crate::ReentrantLock)s of one client that is not strict. Nobody else may hold or await them, as far as this process
/// knows.
///
/// Two members that are the same lock by two *clients* never come together: to a server each client is another owner. Readers do: the
/// [read](crate::ReadWriteLock::read) side of a lock may be in any number of groups that are held at the same time. The same lock by
/// two *kinds* of one client, like both sides of a read-write lock, is an [`Error::Config`] at once: a writer may read, so the write
/// side is enough.
///
/// Its answers are [easily lost](RedLock#answers-that-are-easily-lost) too.
///
/// # Why it is not a `RedLock`
///
/// A [`RedLock`] takes one name and gives one [`Hold`], with one owner and one token. A group has several of each. Code that
/// takes one lock or several takes a `&MultiLock`, because a group may have one member:
///
/// ```
/// # use redlatch::{LocalRedLock, MultiLock};
/// # let locks = LocalRedLock::new();
/// assert!(MultiLock::of([(&locks, "order:42")]).try_guard()?.is_some());
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use = "a group holds nothing until `lock`, `try_lock`, `guard` or `execute_in_lock`"]
pub struct MultiLock<'l> {
    members: Vec<Member<'l>>,
}

// Its members are only ever shared, and each answers for itself.
survives_a_panic!(MultiLock<'_>);

struct Member<'l> {
    lock: Box<dyn RedLock + 'l>,
    resource: String,
    /// The full key, and then the store.
    rank: (String, String),
    /// Its place in the group as the caller gave it.
    given: usize,
}

impl<'l> Member<'l> {
    fn new(given: usize, lock: impl RedLock + 'l, resource: String) -> Self {
        let rank = lock.engine().map_or_else(|| (resource.clone(), String::new()), |engine| engine.rank(&resource));
        Self { lock: Box::new(lock), resource, rank, given }
    }

    fn hold(&self) -> Option<Hold> {
        self.lock.hold(&self.resource)
    }
}

impl<'l, L: RedLock + 'l, R: Into<String>> FromIterator<(L, R)> for MultiLock<'l> {
    fn from_iter<I: IntoIterator<Item = (L, R)>>(members: I) -> Self {
        let members = members.into_iter().enumerate();
        let members = members.map(|(given, (lock, resource))| Member::new(given, lock, resource.into()));
        let mut members: Vec<_> = members.collect();
        members.sort_by(|one, other| one.rank.cmp(&other.rank));
        Self { members }
    }
}

impl<'l> MultiLock<'l> {
    /// The group of these locks and resources. It may be collected from an iterator too.
    ///
    /// Nothing is checked yet: an empty or too long name, and a group without members, are [`Error::Config`] when the
    /// group is used.
    pub fn of<L: RedLock + 'l, R: Into<String>>(members: impl IntoIterator<Item = (L, R)>) -> Self {
        members.into_iter().collect()
    }

    /// Acquires all members on the given terms; `None` when the wait ended without them.
    ///
    /// # Errors
    /// As [`RedLock::acquire`], of the member that failed; then nothing is held. [`Error::Config`] for a group without
    /// members.
    #[must_use = "`None` means that the locks are not held: write `let Some(hold) = .. else {`"]
    pub fn acquire(&self, terms: &Terms<'_>) -> Result<Option<GroupHold>> {
        self.check_members()?;
        self.check_kinds()?;
        let timer = Timer::begin(true);
        let result = rounds::acquire(self, terms);
        timer.end(|| self.meter(&result), self.name(), terms.wait.is_zero(), &result);
        result
    }

    /// Waits for all as long as it takes; the watchdog renews them until [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn lock(&self) -> Result<()> {
        acquired(self.acquire(&Terms::new())?, self.name()).map(drop)
    }

    /// Waits as long as it takes, for a lease that is not renewed.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn lock_with_lease(&self, lease: Duration) -> Result<()> {
        acquired(self.acquire(&Terms::new().lease(lease))?, self.name()).map(drop)
    }

    /// Waits until all are acquired or the token is cancelled.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn lock_cancellable(&self, token: &CancelToken) -> Result<()> {
        acquired(self.acquire(&Terms::new().cancelled_by(token))?, self.name()).map(drop)
    }

    /// Takes all if all are free. It waits for the servers' answers, at most one response time-out each.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the locks are not held: write `if group.try_lock(..)? {`"]
    pub fn try_lock(&self) -> Result<bool> {
        Ok(self.acquire(&Terms::new().wait(Duration::ZERO))?.is_some())
    }

    /// [`try_lock`](Self::try_lock) for a lease that is not renewed: takes all if all are free, and lets them end by
    /// themselves.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, MultiLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let both = MultiLock::of([(&locks, "order:42"), (&locks, "stock:7")]);
    /// if both.try_lock_with_lease(Duration::from_secs(60))? {
    ///     both.unlock()?;
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the locks are not held: write `if group.try_lock_with_lease(..)? {`"]
    pub fn try_lock_with_lease(&self, lease: Duration) -> Result<bool> {
        Ok(self.acquire(&Terms::new().wait(Duration::ZERO).lease(lease))?.is_some())
    }

    /// Waits at most `wait`. `false`: the wait [ended without the locks](Terms#when-the-time-is-over).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the locks are not held: write `if group.try_lock_for(..)? {`"]
    pub fn try_lock_for(&self, wait: Duration) -> Result<bool> {
        Ok(self.acquire(&Terms::new().wait(wait))?.is_some())
    }

    /// Waits at most `wait`, for a lease that is not renewed. `false`: the wait [ended without the locks](Terms#when-the-time-is-over).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`false` means that the locks are not held: write `if group.try_lock_for_with_lease(..)? {`"]
    pub fn try_lock_for_with_lease(&self, wait: Duration, lease: Duration) -> Result<bool> {
        Ok(self.acquire(&Terms::new().wait(wait).lease(lease))?.is_some())
    }

    /// Gives up one level of the current thread's hold of each member, in reverse order, also past one that fails. All
    /// together take at most the longest outage budget of their clients: then the rest is freed in the background.
    ///
    /// # Errors
    /// The first error of a member, as [`RedLock::unlock`]; but a lost member's comes before one of a server.
    pub fn unlock(&self) -> Result<()> {
        self.check_members()?;
        let holds: Vec<_> = self.members.iter().map(Member::hold).collect();
        let taken: Vec<_> = holds.iter().enumerate().filter_map(|(at, hold)| Some((at, hold.clone()?))).collect();
        let missing = self.members.iter().zip(&holds).rev().find(|(_, hold)| hold.is_none());
        let released = self.give_up(&taken, self.release_ends());
        // The member itself says why it has no hold.
        worse(missing.map_or(Ok(()), |(member, _)| member.lock.unlock(&member.resource)), released)
    }

    /// Gives up one level of these very holds, in reverse order, also past one that fails.
    ///
    /// # Errors
    /// As [`unlock`](Self::unlock). [`Error::Config`] for the hold of another group, of which
    /// nothing is released.
    pub fn release(&self, hold: &GroupHold) -> Result<()> {
        self.release_by(hold, self.release_ends())
    }

    fn release_by(&self, hold: &GroupHold, limit: Moment) -> Result<()> {
        self.check_members()?;
        let names = self.members.iter().map(|member| member.resource.as_str());
        if !names.eq(hold.in_taken_order().map(Hold::resource)) {
            return Err(Error::config("this hold is of another group: release it by the group that acquired it"));
        }
        self.give_up(&hold.in_taken_order().cloned().enumerate().collect::<Vec<_>>(), limit)
    }

    /// How many times over the current thread holds the whole group: how many unlocks it owes at least.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        let Some(holds) = self.members.iter().map(Member::hold).collect::<Option<Vec<_>>>() else { return 0 };
        let times = |hold: &Hold| hold.count() / holds.iter().filter(|other| other.is(hold)).count();
        holds.iter().map(times).min().unwrap_or(0)
    }

    /// Whether the current thread still surely holds every member.
    #[must_use]
    pub fn is_held_by_current_thread(&self) -> bool {
        let held = |member: &Member<'_>| member.lock.is_held_by_current_thread(&member.resource);
        !self.members.is_empty() && self.members.iter().all(held)
    }

    /// Frees every member, whoever holds it, also past one that fails; true if any was locked.
    ///
    /// # Errors
    /// The first error of a member, as [`RedLock::force_unlock`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.check_members()?;
        let freed = self.members.iter().map(|member| member.lock.force_unlock(&member.resource));
        let freed: Vec<_> = freed.collect();
        freed.into_iter().try_fold(false, |any, freed| Ok(freed? || any))
    }

    /// Whether anyone holds any member, asked of the servers.
    ///
    /// # Errors
    /// As [`RedLock::is_locked`].
    pub fn is_locked(&self) -> Result<bool> {
        self.check_members()?;
        for member in &self.members {
            if member.lock.is_locked(&member.resource)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How long the servers keep any member if its holder does nothing: the longest time of a member. `None` only if
    /// all are free; [`Duration::MAX`] if a member is a key without TTL.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, MultiLock, RedLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let both = MultiLock::of([(&locks, "order:42"), (&locks, "stock:7")]);
    /// assert_eq!(both.remaining_time_to_live()?, None);
    /// locks.lock_with_lease("stock:7", Duration::from_secs(60))?;
    /// assert!(both.remaining_time_to_live()? > Some(Duration::from_secs(50)));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedLock::remaining_time_to_live`], of the first member that fails.
    pub fn remaining_time_to_live(&self) -> Result<Option<Duration>> {
        self.check_members()?;
        self.members
            .iter()
            .try_fold(None, |longest, member| Ok(longest.max(member.lock.remaining_time_to_live(&member.resource)?)))
    }

    /// Locks all, and unlocks them when the guard is dropped.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn guard(&self) -> Result<GroupGuard<'_>> {
        acquired(self.request().guard()?, self.name())
    }

    /// A guard if all are free.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    #[must_use = "`None` means that the locks are not held: write `let Some(guard) = .. else {`"]
    pub fn try_guard(&self) -> Result<Option<GroupGuard<'_>>> {
        self.request().wait(Duration::ZERO).guard()
    }

    /// Any form with its terms spelled out.
    pub fn request(&self) -> GroupRequest<'_, '_> {
        GroupRequest::new(self)
    }

    /// Locks all, runs the work, unlocks, also when the work panics.
    ///
    /// # Errors
    /// As [`RedLockExt::execute_in_lock`](crate::RedLockExt::execute_in_lock): [`Error::Unprotected`] when any
    /// member was lost meanwhile.
    pub fn execute_in_lock<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        acquired(self.request().execute(|_| work())?, self.name())
    }

    /// The same with a bounded wait and a lease; `None` when not acquired in time.
    ///
    /// # Errors
    /// As [`execute_in_lock`](Self::execute_in_lock).
    #[must_use = "`None` means that the work did not run: write `if let Some(value) = ..`"]
    pub fn execute_in_lock_for<T>(
        &self,
        wait: Duration,
        lease: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<Option<T>> {
        self.request().wait(wait).lease(lease).execute(|_| work())
    }

    /// The metrics of the first member that tells its client. `None`: the thread had the whole group before.
    fn meter<T>(&self, result: &Result<Option<T>>) -> Option<&Meter> {
        let has_entered_again = matches!(result, Ok(Some(_))) && self.hold_count() > 1;
        let engine = self.members.iter().find_map(|member| member.lock.engine()).filter(|_| !has_entered_again)?;
        Some(engine.space.counters.meters.of_groups())
    }

    fn check_members(&self) -> Result<()> {
        if self.members.is_empty() {
            Err(Error::config("a MultiLock without members: give it at least one"))
        } else {
            Ok(())
        }
    }

    /// Refuses members that are one lock by two kinds of one client: once one is taken, they would wait for each other.
    fn check_kinds(&self) -> Result<()> {
        let of_one_lock = self.members.chunk_by(|one, other| one.rank == other.rank).filter(|same| same.len() > 1);
        for same in of_one_lock {
            let engines = || same.iter().filter_map(|member| member.lock.engine());
            let mut pairs = engines().flat_map(|one| engines().map(move |other| (one, other)));
            pairs.try_for_each(|(one, other)| one.check_goes_with(other, &same[0].resource))?;
        }
        Ok(())
    }

    /// Whether a lock is in the group more than once.
    fn has_twins(&self) -> bool {
        self.members.windows(2).any(|pair| pair[0].rank == pair[1].rank)
    }

    /// What errors of the whole group name.
    fn name(&self) -> &str {
        self.members.first().map_or("", |member| &member.resource)
    }

    /// The engine that takes these members, in their order, by one command. They must be more than one, all different, of
    /// one client and one kind, and the store must have the command.
    fn engine_of(&self, members: &[usize]) -> Option<&Engine> {
        let rank = |at: &usize| &self.members[*at].rank;
        let differ = members.len() > 1 && members.windows(2).all(|pair| rank(&pair[0]) != rank(&pair[1]));
        let mut engines = members.iter().map(|at| self.members[*at].lock.engine());
        let first = engines.next()??;
        let is_one = engines.all(|engine| engine.is_some_and(|engine| std::ptr::eq(engine, first)));
        (differ && is_one && first.primitive.group().is_some()).then_some(first)
    }

    /// Gives up one level of each of these members, the last first. What is left at `limit` is freed in the background:
    /// else members of several clients at silent servers would each take their own time, one after the other.
    fn give_up(&self, taken: &[(usize, Hold)], limit: Moment) -> Result<()> {
        taken.iter().for_each(|(_, hold)| hold.release_within(limit));
        let (members, holds): (Vec<_>, Vec<_>) = taken.iter().map(|(at, hold)| (*at, hold)).unzip();
        let together = self.engine_of(&members).and_then(|engine| engine.release_group(&holds));
        let released = together.unwrap_or_else(|| {
            let engine = |at: &usize| self.members[*at].lock.engine();
            let ended: Vec<_> =
                taken.iter().map(|(at, hold)| engine(at).map_or(Ok(()), |engine| engine.end_first(hold))).collect();
            let news: Vec<_> = taken.iter().map(|(_, hold)| hold.lost()).collect();
            let each = taken.iter().zip(ended).enumerate().rev().map(|(left, ((at, hold), ended))| {
                ended?;
                hold.release_within(share_of(limit, self.servers(&taken[..=left])));
                self.members[*at].lock.release(hold)
            });
            let each: Vec<_> = each.collect();
            let is_lost = each.iter().any(|released| matches!(released, Err(Error::Lost { .. })));
            // What was not answered in its server's share the background asks again. It has what the others have left of the time.
            let decided = each.into_iter().zip(taken.iter().zip(&news).rev()).map(|(released, ((at, hold), news))| {
                match (released, engine(at)) {
                    (Err(error), Some(engine)) if !is_lost => engine.decided(hold, news, limit, error),
                    (released, _) => released,
                }
            });
            decided.fold(Ok(()), worse)
        });
        taken.iter().for_each(|(_, hold)| hold.release_within(Moment::MAX));
        released
    }

    /// How many servers have these members, as far as it is known. Those of one server share its time: once it answers, it answers for all of them.
    fn servers(&self, taken: &[(usize, Hold)]) -> usize {
        let server = |(at, _): &(usize, Hold)| {
            let Member { lock, resource, rank, .. } = &self.members[*at];
            (&rank.1, lock.engine().map_or(*at, |engine| engine.health.server_of(resource)))
        };
        taken.iter().map(server).collect::<BTreeSet<_>>().len()
    }

    /// The longest value of a setting of the members' clients; `usual` for a member that does not tell its client.
    fn longest(&self, of: fn(&Config) -> Duration, usual: Duration) -> Duration {
        let of = |engine: &Engine| of(&engine.space.config);
        let spans = self.members.iter().map(|member| member.lock.engine().map_or(usual, of));
        spans.max().unwrap_or(usual)
    }

    /// For how long a call bears an outage.
    fn outage_budget(&self) -> Duration {
        self.longest(|config| config.outage_budget, Duration::from_secs(10))
    }

    /// When a release that its caller waits for has to be over.
    fn release_ends(&self) -> Moment {
        Clock::Boot.now().plus(self.outage_budget())
    }

    /// How long the answer to one attempt may take.
    fn one_answer(&self) -> Duration {
        self.longest(|config| config.response_timeout, Duration::from_secs(2))
    }
}

/// The limit of what the next of so many servers is asked: now + (limit - now) / servers. So one that does not answer leaves time to ask the
/// others.
fn share_of(limit: Moment, servers: usize) -> Moment {
    let now = Clock::Boot.now();
    let servers = u32::try_from(servers).unwrap_or(u32::MAX);
    if limit == Moment::MAX { limit } else { now.plus(limit.since(now) / servers) }
}

impl fmt::Debug for MultiLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| &member.resource).collect();
        f.debug_tuple("MultiLock").field(&names).finish()
    }
}
