//! The accounting of acquire and re-entry (docs/protocol.md, 4 and 6), the same for every kind; `ending.rs` has the rest.
//!
//! A kind brings its [`Primitive`]: what one command does at its store. The engine decides what to believe
//! after each answer, and after none.

use super::patience::Patience;
use super::primitive::{Primitive, Take};
use super::waiting::queue::{Manner, Queue};
use super::waiting::wait::Outcome;
use crate::base::config::{Asked, Reentry};
use crate::base::error::{Applied, Error, Result};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::meters::Meter;
use crate::base::time::{Lease, Moment};
use crate::base::unwind::survives_a_panic;
use crate::client::Space;
use crate::lease::hold::{Hold, HoldState};
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use crate::registry::{current_thread, is_ending, registry};
use crate::store::Health;
use crate::store::node::{Failure, Limits};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// One kind of lock on one namespace.
pub(crate) struct Engine {
    pub(crate) space: Arc<Space>,
    pub(super) kind: &'static Kind,
    pub(crate) primitive: Arc<dyn Primitive>,
    /// The health of the store that the primitive's commands go to.
    pub(crate) health: Arc<dyn Health>,
    pub(super) meter: Meter,
    me: Weak<Engine>,
}

survives_a_panic!(Engine);

impl Engine {
    pub(crate) fn new(
        space: Arc<Space>,
        kind: &'static Kind,
        primitive: Arc<dyn Primitive>,
        health: Arc<dyn Health>,
    ) -> Arc<Self> {
        let meter = space.counters.meters.of_kind(kind.name);
        Arc::new_cyclic(|me| Self { space, kind, primitive, health, meter, me: Weak::clone(me) })
    }

    pub(super) fn keeper(&self) -> Weak<dyn Keeper> {
        Weak::<Self>::clone(&self.me)
    }

    pub(super) fn strong(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    pub(super) fn strong_keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.strong().map(|me| me as Arc<dyn Keeper>)
    }

    /// The id under which the map of threads keeps the holds of this kind.
    pub(super) fn ground(&self) -> Uuid {
        self.space.ground_of(self.kind)
    }

    /// Whether a call that was given the lock believes so without asking. For a lease that is not renewed it asks, to get all of it.
    pub(super) fn believes_given(&self, tenure: &Tenure, asked: Asked, token: Option<u64>) -> bool {
        let (config, lease) = (&self.space.config, self.space.config.length(asked));
        let is_renewed = asked.is_renewed() && !is_ending() && config.max_hold >= lease.span().saturating_mul(2);
        let believes = |queue: &Queue| queue.believes_given() && self.notes_token(tenure, token);
        is_renewed && self.primitive.queue(tenure.key()).is_some_and(believes)
    }

    /// Notes the token that came with the lock. False if the kind has tokens and none came.
    fn notes_token(&self, tenure: &Tenure, token: Option<u64>) -> bool {
        token.filter(|_| self.kind.has_tokens).into_iter().for_each(|token| tenure.token().note(token));
        token.is_some() || !self.kind.has_tokens
    }

    /// The names of a lock.
    ///
    /// # Errors
    /// As [`Space::key`].
    pub(super) fn key(&self, resource: &str) -> Result<Key> {
        self.space.key(resource).map(|key| key.of_side(self.kind.side))
    }

    /// How long a call goes on asking the store, unless its caller adds a limit.
    pub(super) fn patience<'a>(&'a self, resource: &'a str) -> Patience<'a> {
        Patience::new(&self.space, &*self.health, resource)
    }

    /// Tries to acquire the lock for the current thread, with the owner id of this tenure.
    pub(super) fn try_take(
        &self,
        tenure: &mut Arc<Tenure>,
        asked: Asked,
        manner: Manner<'_>,
        patience: &Patience<'_>,
    ) -> Result<Outcome<Hold>> {
        let take = |tenure: &Arc<Tenure>, lease, limits: Limits<'_>| self.primitive.take(tenure, lease, manner, limits);
        self.try_take_by(tenure, asked, manner.ticket().is_some(), patience, take)
    }

    /// The same by any one attempt. `in_queue`: the tenure has a ticket.
    pub(super) fn try_take_by(
        &self,
        tenure: &mut Arc<Tenure>,
        asked: Asked,
        in_queue: bool,
        patience: &Patience<'_>,
        attempt: impl FnMut(&Arc<Tenure>, Lease, Limits<'_>) -> Result<Take, Failure>,
    ) -> Result<Outcome<Hold>> {
        let forced = self.space.forced();
        let Some(take) = self.take(tenure, self.space.config.length(asked), in_queue, patience, attempt)? else {
            return Ok(Outcome::Late);
        };
        match take {
            Take::Busy(left) => Ok(Outcome::Busy(left)),
            Take::Reserved(left) => Ok(Outcome::Reserved(left)),
            Take::Acquired(sent) => {
                let lease = self.space.config.length(asked);
                Ok(self.hold(tenure, (sent, lease), asked, forced)?.map_or(Outcome::Again, Outcome::Won))
            }
        }
    }

    /// Asks the store until it answers, the patience ends, or the store refuses for good. `None`: the caller's wait ended before the
    /// store could answer. After `Err`, after `None`, and if the lock is busy, the tenure may be dead. If an attempt of it may still
    /// be executed, the tenure is swept after that. A ticket's tenure is not: its place may be given the lock until the call's next ask has
    /// taken that over.
    fn take(
        &self,
        tenure: &mut Arc<Tenure>,
        lease: Lease,
        in_queue: bool,
        patience: &Patience<'_>,
        mut attempt: impl FnMut(&Arc<Tenure>, Lease, Limits<'_>) -> Result<Take, Failure>,
    ) -> Result<Option<Take>> {
        let take = patience.persist_in_wait(|answer_by| {
            self.space.replace_ended(tenure);
            let limits = patience.limits(lease, answer_by);
            self.note_open(tenure, lease, attempt(tenure, lease, limits))
        });
        if !in_queue && !matches!(take, Ok(Some(Take::Acquired(_)))) {
            self.sweep_open(tenure);
        }
        take
    }

    /// Books an acquired tenure as a hold of the current thread, which has it for `lease` from `sent` on. `None` if the grant cannot be
    /// believed: its validity was over on arrival, or this process ended a force unlock meanwhile.
    pub(super) fn hold(
        &self,
        tenure: &Arc<Tenure>,
        (sent, lease): (Moment, Lease),
        asked: Asked,
        forced: u64,
    ) -> Result<Option<Hold>> {
        if !tenure.confirm(sent, lease) {
            tenure.end();
            self.sweep_now(tenure);
            self.sweep_open(tenure);
            return Ok(None);
        }
        let renewed = self.renewed(asked);
        let hold = Hold::new(self.space.id, self.kind, Arc::clone(tenure), self.keeper(), renewed, &self.meter);
        registry().settle(self.ground(), tenure.place(), &hold);
        // A force unlock of another thread may have freed this lock. That thread counts first and then looks into the
        // map. This thread enters the map first and then looks at the count: so one of the two sees the other.
        if self.space.forced() != forced {
            self.give_back(&hold);
            return Ok(None);
        }
        self.space.counters.acquires.add(1);
        self.keep(&hold)
            .and_then(|()| self.space.check_not_shut(hold.resource()))
            .inspect_err(|_| self.give_back(&hold))?;
        if is_ending() {
            // Only now, when the watchdog has the hold: it reports the hold when the first renewal would be due.
            hold.orphan();
            return Ok(Some(hold));
        }
        let bounds = &self.space.config.hand_off;
        let may_share = self.kind.shared && asked == Asked::Usual && bounds.is_on();
        if may_share && self.hold_beside(tenure.key().full()).is_none() {
            registry().open(self.ground(), &hold, tenure.acquire_sent().plus(bounds.within));
        }
        Ok(Some(hold))
    }

    /// The kind whose tenures this call can go on with, after other threads of this process. A thread that is being torn
    /// down goes on with none: such a tenure is renewed, and the thread's hold must not be.
    pub(super) fn takes(&self, asked: Asked) -> Option<&'static Kind> {
        let may_take = asked == Asked::Usual && (self.kind.passed_on || self.kind.shared);
        (may_take && !is_ending()).then_some(self.kind)
    }

    /// Has the watchdog renew the hold, or follow a change in what the hold asks for.
    pub(super) fn keep(&self, hold: &Hold) -> Result<()> {
        let keeper = self.strong_keeper().ok_or_else(|| Error::closed(hold.resource()))?;
        self.space.watchdog.keep(hold.tenure(), keeper).map_err(|error| Error::unwatched(hold.resource(), &error))
    }

    /// Takes over a hold that was passed on. False if its tenure ended on the way: then nothing is held.
    ///
    /// # Errors
    /// `Closed` after a shutdown.
    pub(crate) fn accept(&self, hold: &Hold) -> Result<bool> {
        if !hold.is_valid() {
            self.give_back(hold);
            return Ok(false);
        }
        let resume = || if hold.tenure().was_overheld() { self.keep(hold) } else { Ok(()) };
        self.space.check_not_shut(hold.resource()).and_then(|()| resume()).inspect_err(|_| self.give_back(hold))?;
        self.space.counters.acquires.add(1);
        self.space.counters.passes.add(1);
        Ok(true)
    }

    /// Adds a level for the thread that holds the lock. `None`: the caller's wait ended before the store could answer.
    pub(super) fn reenter(&self, hold: &Hold, asked: Asked, patience: &Patience<'_>) -> Result<Option<Hold>> {
        let is_covered = self.is_covered(hold, asked);
        if !is_covered && hold.state() == HoldState::Lost {
            return Err(Error::lost(hold.resource()));
        }
        let overflow = || Error::config(format!("lock {:?} is held too many times over", hold.resource()));
        let count = hold.count().checked_add(1).ok_or_else(overflow)?;
        if !is_covered && !self.prolong(hold, count, self.space.config.length(asked), patience)? {
            return Ok(None);
        }
        let level = hold.deepen(count, self.renewed(asked));
        self.follow(hold)?;
        Ok(Some(level))
    }

    /// Lets the tenure and the watchdog follow a change in the open levels of a hold.
    pub(super) fn follow(&self, hold: &Hold) -> Result<()> {
        let was_watched = hold.tenure().is_watched();
        if self.kind.shared {
            registry().follow(self.ground(), hold);
        } else {
            hold.follow();
        }
        if was_watched == hold.tenure().is_watched() { Ok(()) } else { self.keep(hold) }
    }

    /// Whether a new level needs no command, because the hold meets its terms already.
    fn is_covered(&self, hold: &Hold, asked: Asked) -> bool {
        let (tenure, lease) = (hold.tenure(), self.space.config.length(asked));
        let met = || match asked {
            Asked::Fixed(_) => hold.remaining() >= lease.span(),
            _ => tenure.is_watched() && tenure.renewed_lease().is_some_and(|renewed| renewed >= lease),
        };
        self.space.config.reentry == Reentry::Local && hold.is_valid() && met()
    }

    /// The lease of each renewal that a level asks for; `None` if it asks for no renewals.
    fn renewed(&self, asked: Asked) -> Option<Lease> {
        asked.is_renewed().then(|| self.space.config.length(asked))
    }

    /// Writes the count and the lease to the store; a hold that is gone there is lost. False: as `None` of `reenter`.
    fn prolong(&self, hold: &Hold, count: usize, lease: Lease, patience: &Patience<'_>) -> Result<bool> {
        let tenure = hold.tenure();
        let answered = patience.persist_in_wait(|answer_by| {
            let limits = patience.limits(lease, answer_by);
            self.note_open(tenure, lease, self.primitive.reenter(tenure, count, lease, limits))
        })?;
        let Some(answer) = answered else { return Ok(false) };
        self.book(tenure, answer, lease).map(|()| true)
    }

    /// Books the answer to a command that prolongs; `None`: the tenure was not in the store.
    pub(super) fn book(&self, tenure: &Arc<Tenure>, answer: Option<Moment>, lease: Lease) -> Result<()> {
        let cause = match answer {
            Some(sent) if tenure.confirm(sent, lease) => return Ok(()),
            Some(_) => {
                // The store prolonged it, but this process believes in it no more. A tenure that ended has a release of
                // its own under way: a sweep that overtakes it would make that release report a loss.
                if tenure.state() == TenureState::Lost {
                    self.sweep_now(tenure);
                }
                tenure.expiry()
            }
            None => LossCause::Removed,
        };
        tenure.lose();
        self.lost(tenure, cause);
        Err(Error::lost(tenure.key().resource()))
    }

    /// Refuses a hold of another kind: the commands of one kind would misread what another kind wrote.
    ///
    /// # Errors
    /// `Config` for a hold of another kind.
    pub(super) fn check_kind(&self, hold: &Hold) -> Result<()> {
        if hold.is_of_kind(self.kind) {
            return Ok(());
        }
        let (resource, held, asked) = (hold.resource(), hold.kind().name, self.kind.name);
        Err(Error::config(format!(
            "this thread has lock {resource:?} as a {held}: use that, or another name for the {asked}"
        )))
    }

    /// The current thread's other hold of this lock: exclusive if this kind shares, shared if it does not. A tenure that was acquired
    /// beside such a hold is never open to other threads, which have no such hold.
    fn hold_beside(&self, key: &str) -> Option<Hold> {
        registry().find(self.space.ground(!self.kind.shared), key, current_thread())
    }

    /// Whether the thread's hold by another kind lets it in. If it does not, the thread would wait for itself.
    ///
    /// # Errors
    /// `Config` if it would wait for itself.
    pub(super) fn check_own_way(&self, key: &str) -> Result<bool> {
        let in_force = |hold: &Hold| matches!(hold.state(), HoldState::Held | HoldState::Suspect);
        let Some(hold) = self.hold_beside(key).filter(in_force) else { return Ok(false) };
        if self.kind.goes_with.is_some_and(|other| other.is(hold.kind())) {
            return Ok(true);
        }
        let (resource, held, asked) = (hold.resource(), hold.kind().name, self.kind.name);
        Err(Error::config(format!(
            "this thread has lock {resource:?} as a {held}, and would wait for itself: give that up first, or use another name for the {asked}"
        )))
    }

    /// Asks the store, for one response time-out, by the renewal's script. A demoted master still answers reads, and that
    /// script always writes (docs/protocol.md, 3). It leaves the depth alone, which another thread may change meanwhile.
    pub(crate) fn verify(&self, hold: &Hold) -> Result<bool> {
        self.check_own(hold)?;
        if !matches!(hold.state(), HoldState::Held | HoldState::Suspect) {
            return Ok(false);
        }
        let lease = Lease::clamped(hold.remaining());
        match self.renew_one(hold.tenure(), lease, self.space.one_answer()) {
            Ok(()) => Ok(true),
            Err(Error::Lost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        let key = self.space.full_key(resource).ok()?;
        registry().find(self.ground(), &key, thread).filter(|hold| hold.is_of_kind(self.kind))
    }

    pub(crate) fn is_locked(&self, resource: &str) -> Result<bool> {
        Ok(self.time_to_live(resource)?.is_some())
    }

    pub(crate) fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        Ok(self.time_to_live(resource)?.map(|left| left.unwrap_or(Duration::MAX)))
    }

    fn time_to_live(&self, resource: &str) -> Result<Option<Option<Duration>>> {
        let key = self.key(resource)?;
        self.patience(resource).persist(|answer_by| self.primitive.time_to_live(&key, answer_by))
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
        // The tenure may have been lost meanwhile, and the thread that found this out did not know of the attempt.
        if tenure.state() == TenureState::Lost {
            self.sweep_open(tenure);
        }
        result
    }
}
