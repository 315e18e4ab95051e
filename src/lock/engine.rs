//! The accounting of acquire, re-entry and release (docs/protocol.md, 4 and 6), the same for every kind.
//!
//! A kind brings its [`Primitive`]: what one command does at its store. The engine decides what to believe
//! after each answer, and after none.

use super::patience::Patience;
use super::primitive::{Primitive, Take, Taken};
use crate::backend::Failure;
use crate::client::Space;
use crate::config::Reentry;
use crate::error::{Applied, Error, Result};
use crate::hold::{Hold, HoldState};
use crate::registry::{current_thread, registry};
use crate::tenure::{Keeper, LossCause, Standing, Tenure};
use crate::time::{Lease, Moment};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

/// One kind of lock on one namespace.
pub(crate) struct Engine {
    pub(crate) space: Arc<Space>,
    pub(crate) primitive: Arc<dyn Primitive>,
    me: Weak<Engine>,
}

impl Engine {
    pub(crate) fn new(space: Arc<Space>, primitive: Arc<dyn Primitive>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { space, primitive, me: Weak::clone(me) })
    }

    fn keeper(&self) -> Weak<dyn Keeper> {
        Weak::<Self>::clone(&self.me)
    }

    fn strong_keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.me.upgrade().map(|me| me as Arc<dyn Keeper>)
    }

    /// How long a call goes on asking the store, until something else is said.
    pub(crate) fn patience<'a>(&'a self, resource: &'a str) -> Patience<'a> {
        Patience::new(&self.space, &*self.primitive, resource)
    }

    /// The lease of a level that asked for none is the watchdog's.
    pub(crate) fn lease_or_watchdog(&self, lease: Option<Lease>) -> Lease {
        lease.unwrap_or(self.space.config.watchdog_lease)
    }

    /// Tries to acquire the lock for the current thread, with the owner id of this tenure.
    pub(crate) fn try_take(
        &self,
        tenure: &mut Arc<Tenure>,
        lease: Option<Lease>,
        patience: &Patience<'_>,
    ) -> Result<Taken> {
        let forced = self.space.forced();
        match self.take(tenure, self.lease_or_watchdog(lease), patience)? {
            Take::Busy(left) => Ok(Taken::Busy(left)),
            Take::Acquired(sent) => Ok(self.hold(tenure, sent, lease, forced)?.map_or(Taken::Disbelieved, Taken::Held)),
        }
    }

    /// Asks the store until it answers, the patience ends, or it refuses for good. On `Err`, and when the lock
    /// is busy, the tenure is dead if any attempt of it may still be executed, and is swept after that.
    fn take(&self, tenure: &mut Arc<Tenure>, lease: Lease, patience: &Patience<'_>) -> Result<Take> {
        let take = patience.persist(|until| {
            self.space.replace_ended(tenure);
            self.note_open(tenure, lease, self.primitive.take(tenure, lease, until))
        });
        if !matches!(take, Ok((Take::Acquired(_), _))) {
            self.sweep_open(tenure);
        }
        take.map(|(take, _)| take)
    }

    /// Books an acquired tenure as a hold of the current thread; `None` when it cannot be believed: its validity was
    /// over on arrival, or a force unlock of this process ended meanwhile.
    pub(super) fn hold(
        &self,
        tenure: &Arc<Tenure>,
        sent: Moment,
        lease: Option<Lease>,
        forced: u64,
    ) -> Result<Option<Hold>> {
        if !tenure.confirm(sent, self.lease_or_watchdog(lease)) {
            tenure.end();
            self.sweep_at(tenure, self.space.clock.now());
            self.sweep_open(tenure);
            return Ok(None);
        }
        let hold = Hold::new(self.space.id, Arc::clone(tenure), self.keeper(), lease.is_none());
        registry().settle(self.space.id, tenure.key().shared(), &hold);
        // Asked once it is settled: a force unlock that ends after this finds it there.
        if self.space.forced() != forced {
            self.give_back(&hold);
            return Ok(None);
        }
        self.space.counters.acquires.add(1);
        self.keep(&hold)
            .and_then(|()| self.space.check_not_shut(hold.resource()))
            .inspect_err(|_| self.give_back(&hold))?;
        Ok(Some(hold))
    }

    /// Has the watchdog take care of the hold, or of a change in what it asks for.
    fn keep(&self, hold: &Hold) -> Result<()> {
        let keeper = self.strong_keeper().ok_or_else(|| Error::closed(hold.resource()))?;
        self.space.watchdog.keep(hold.tenure(), keeper).map_err(|error| Error::unwatched(hold.resource(), &error))
    }

    /// Takes over a hold that was passed on. False when its tenure ended on the way: then nothing is held.
    ///
    /// # Errors
    /// `Closed` after a shutdown.
    pub(crate) fn accept(&self, hold: &Hold) -> Result<bool> {
        if !hold.is_valid() {
            self.give_back(hold);
            return Ok(false);
        }
        self.space.check_not_shut(hold.resource()).inspect_err(|_| self.give_back(hold))?;
        self.space.counters.acquires.add(1);
        self.space.counters.passes.add(1);
        Ok(true)
    }

    /// Undoes an acquire whose caller never gets the hold.
    pub(crate) fn give_back(&self, hold: &Hold) {
        hold.tenure().end();
        self.space.watchdog.release(hold.tenure());
        self.bury(hold, true);
        self.sweep_at(hold.tenure(), self.space.clock.now());
        self.sweep_open(hold.tenure());
    }

    /// One more level for the thread that holds it already.
    pub(crate) fn reenter(&self, hold: &Hold, lease: Option<Lease>, patience: &Patience<'_>) -> Result<()> {
        let is_covered = self.is_covered(hold, lease);
        if !is_covered && hold.state() == HoldState::Lost {
            return Err(Error::lost(hold.resource()));
        }
        let overflow = || Error::config(format!("lock {:?} is held too many times over", hold.resource()));
        let count = hold.count().checked_add(1).ok_or_else(overflow)?;
        if !is_covered {
            self.prolong(hold, count, self.lease_or_watchdog(lease), patience)?;
        }
        let was_watched = hold.tenure().is_watched();
        hold.deepen(count, lease.is_none());
        if !was_watched && lease.is_none() {
            self.keep(hold)?;
        }
        Ok(())
    }

    /// Whether a level needs nothing of the server: its terms are met by what the hold has.
    fn is_covered(&self, hold: &Hold, lease: Option<Lease>) -> bool {
        let met = || match lease {
            None => hold.tenure().is_watched(),
            Some(lease) => hold.remaining() >= Duration::from_millis(lease.millis()),
        };
        self.space.config.reentry == Reentry::Local && hold.is_valid() && met()
    }

    /// Writes the count and the lease to the store; a hold that is not there any more is lost.
    fn prolong(&self, hold: &Hold, count: usize, lease: Lease, patience: &Patience<'_>) -> Result<()> {
        let tenure = hold.tenure();
        let (answer, _) = patience
            .persist(|until| self.note_open(tenure, lease, self.primitive.reenter(tenure, count, lease, until)))?;
        self.book(tenure, answer, lease)
    }

    /// Books the answer to a command that prolongs: `None` was "not in the store".
    pub(super) fn book(&self, tenure: &Arc<Tenure>, answer: Option<Moment>, lease: Lease) -> Result<()> {
        let cause = match answer {
            Some(sent) if tenure.confirm(sent, lease) => return Ok(()),
            Some(_) => {
                // Prolonged at the store, but nobody believes in it any more. One that ended has a release of its
                // own under way, which a sweep would overtake: its caller would be told that it was lost.
                if tenure.standing() == Standing::Lost {
                    self.sweep_at(tenure, self.space.clock.now());
                }
                tenure.expiry()
            }
            None => LossCause::Removed,
        };
        tenure.lose();
        self.lost(tenure, cause);
        Err(Error::lost(tenure.key().resource()))
    }

    /// One level of this very hold, of the current thread.
    pub(crate) fn release(&self, hold: &Hold) -> Result<()> {
        self.check_own(hold)?;
        self.release_one(hold)
    }

    /// Another client's registry would never learn of what was done here.
    pub(super) fn check_own(&self, hold: &Hold) -> Result<()> {
        self.space.check_open(hold.resource())?;
        if hold.is_of(self.space.id) {
            return Ok(());
        }
        let resource = hold.resource();
        Err(Error::config(format!(
            "this hold of lock {resource:?} is of another client: use the locks that acquired it"
        )))
    }

    fn release_one(&self, hold: &Hold) -> Result<()> {
        if hold.thread() != current_thread() || hold.count() == 0 {
            return Err(Error::not_held(hold.resource()));
        }
        if hold.count() > 1 { self.release_level(hold) } else { self.release_last(hold) }
    }

    /// The local count is the truth: it always goes down, whatever became of its mirror on the server.
    fn release_level(&self, hold: &Hold) -> Result<()> {
        let was_watched = hold.tenure().is_watched();
        let left = hold.ascend();
        if hold.state() == HoldState::Lost {
            return Err(Error::lost(hold.resource()));
        }
        if was_watched && !hold.tenure().is_watched() {
            self.keep(hold)?;
        }
        if self.space.config.reentry == Reentry::Local {
            return Ok(());
        }
        let patience = self.patience(hold.resource()).until(self.space.one_answer()).taking_no();
        let patience = if hold.is_hasty() { patience.once() } else { patience };
        match patience.persist(|until| self.primitive.release(hold.tenure(), left, until)) {
            Ok((true, _)) => Ok(()),
            Ok((false, _)) => {
                hold.tenure().lose();
                self.lost(hold.tenure(), LossCause::Removed);
                Err(Error::lost(hold.resource()))
            }
            Err(error) => {
                log::warn!("the depth shown for a lock is too high: {error}");
                Ok(())
            }
        }
    }

    /// Whether another thread of this process goes on with the tenure, so that the store need not know.
    pub(super) fn pass_on(&self, hold: &Hold) -> bool {
        let config = &self.space.config;
        let lease = Duration::from_millis(config.watchdog_lease.millis());
        config.hand_off.is_on() && registry().pass_on(self.space.id, hold, &config.hand_off, lease)
    }

    fn release_last(&self, hold: &Hold) -> Result<()> {
        if self.pass_on(hold) {
            return Ok(());
        }
        let deadline = self.end(hold)?;
        let patience = self.last_patience(hold, deadline);
        let result = patience.persist(|until| self.primitive.release(hold.tenure(), 0, until));
        self.conclude(hold, result)
    }

    /// Ends a tenure before its final release is sent: from here on renewals do not count, and after it whatever the
    /// result is the hold is over. Its deadline; `Lost` when that had passed.
    pub(super) fn end(&self, hold: &Hold) -> Result<Moment> {
        let tenure = hold.tenure();
        let deadline = tenure.deadline();
        let valid = tenure.end();
        self.space.watchdog.release(tenure);
        if let (Some(deadline), true) = (deadline, valid) {
            return Ok(deadline);
        }
        self.lost(tenure, tenure.expiry());
        self.bury(hold, false);
        self.release_late(tenure);
        Err(Error::lost(hold.resource()))
    }

    /// How long a final release goes on.
    pub(super) fn last_patience<'a>(&'a self, hold: &'a Hold, deadline: Moment) -> Patience<'a> {
        let patience = self.patience(hold.resource());
        if hold.is_hasty() { patience.once() } else { patience.until(deadline).taking_no() }
    }

    /// What a final release's end means to its caller (the table of outcomes in docs/protocol.md, 6).
    pub(super) fn conclude(&self, hold: &Hold, result: Result<(bool, bool)>) -> Result<()> {
        let tenure = hold.tenure();
        let result = match result {
            // Gone after an unknown: removed by us, or expired; it was valid when first sent.
            Ok((true, _) | (false, true)) => Ok(()),
            Ok((false, false)) => {
                self.announce(tenure, LossCause::Removed);
                Err(Error::lost(hold.resource()))
            }
            Err(error) => {
                self.sweep_at(tenure, self.space.clock.now());
                Err(error)
            }
        };
        self.bury(hold, !matches!(result, Err(Error::Lost { .. })));
        self.sweep_open(tenure);
        result
    }

    /// One best-effort release of a tenure that nobody holds any more: its key may still be there.
    fn release_late(&self, tenure: &Arc<Tenure>) {
        if let Err(error) = self.sweep(tenure) {
            log::debug!("late release, tried again: {error}");
            self.sweep_at(tenure, self.space.clock.now());
        }
        self.sweep_open(tenure);
    }

    /// The hold of a tenure that ended is over: nobody finds it, and the next waiter may go.
    fn bury(&self, hold: &Hold, released: bool) {
        hold.close(released);
        registry().clear(self.space.id, hold);
    }

    /// Sweeps the tenure after the last moment at which an unanswered attempt of it can still be executed.
    pub(super) fn sweep_open(&self, tenure: &Arc<Tenure>) {
        if let Some(open_until) = tenure.open_until() {
            self.sweep_at(tenure, open_until.plus(Duration::from_millis(1)));
        }
    }

    fn sweep_at(&self, tenure: &Arc<Tenure>, due: Moment) {
        if let Some(keeper) = self.strong_keeper() {
            self.space.sweeper.sweep(tenure, keeper, due);
        }
    }

    /// Asks the store, for one response time-out, by the re-enter script, because a demoted master still answers
    /// reads (docs/protocol.md, 3).
    pub(crate) fn verify(&self, hold: &Hold) -> Result<bool> {
        self.check_own(hold)?;
        if !matches!(hold.state(), HoldState::Held | HoldState::Suspect) {
            return Ok(false);
        }
        let lease = Lease::clamped(hold.remaining());
        let patience = self.patience(hold.resource()).until(self.space.one_answer());
        match self.prolong(hold, hold.count(), lease, &patience) {
            Ok(()) => Ok(true),
            Err(Error::Lost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// One level of the current thread's hold.
    pub(crate) fn unlock(&self, resource: &str) -> Result<()> {
        let key = self.space.full_key(resource)?;
        let hold = registry().find(self.space.id, &key, current_thread());
        hold.map_or_else(|| Err(Error::not_held(resource)), |hold| self.release_one(&hold))
    }

    pub(crate) fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        let key = self.space.full_key(resource).ok()?;
        registry().find(self.space.id, &key, thread)
    }

    /// Frees the lock at the store, and ends at once whatever this process holds or is about to hold: which of it
    /// came after the force unlock at the store cannot be told, so none of it is believed.
    pub(crate) fn force_unlock(&self, resource: &str) -> Result<bool> {
        let key = self.space.key(resource)?;
        let result = self.patience(resource).persist(|until| self.primitive.force_unlock(&key, until));
        if !matches!(&result, Err(error) if error.applied() == Applied::No) {
            self.space.note_forced();
            self.end_current(key.full());
        }
        registry().wake(self.space.id, key.full());
        // Free after an attempt that was not answered: that one may have freed it.
        result.map(|(was_locked, doubt)| was_locked || doubt)
    }

    fn end_current(&self, key: &str) {
        for hold in registry().believed(self.space.id, key) {
            hold.tenure().lose();
            self.lost(hold.tenure(), LossCause::Removed);
            self.sweep_at(hold.tenure(), self.space.clock.now());
        }
    }

    pub(crate) fn is_locked(&self, resource: &str) -> Result<bool> {
        Ok(self.time_to_live(resource)?.is_some())
    }

    pub(crate) fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        Ok(self.time_to_live(resource)?.map(|left| left.unwrap_or(Duration::MAX)))
    }

    fn time_to_live(&self, resource: &str) -> Result<Option<Option<Duration>>> {
        let key = self.space.key(resource)?;
        let (left, _) = self.patience(resource).persist(|until| self.primitive.time_to_live(&key, until))?;
        Ok(left)
    }

    /// Tells the world of a loss, once.
    pub(super) fn announce(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        if let Some(hold) = registry().lose(self.space.id, tenure) {
            self.space.report(hold.announce(cause));
            log::warn!("lock {:?} was lost while held by {}: {cause:?}", hold.resource(), hold.owner());
        }
    }

    /// Remembers until when an attempt without an answer may still be executed.
    pub(super) fn note_open<T>(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        result: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &result {
            Err(Failure::Unknown { open_until, .. }) => tenure.leave_open(*open_until, lease),
            Err(failure) if failure.applied() == Applied::Unknown => tenure.leave_open(tenure.now(), lease),
            _ => return result,
        }
        // It may have been lost meanwhile, and whoever found that did not know of this.
        if tenure.standing() == Standing::Lost {
            self.sweep_open(tenure);
        }
        result
    }
}
