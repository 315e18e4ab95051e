//! Several locks of one store taken and released by one command; the accounting of each is the engine's.

use super::engine::Engine;
use super::patience::{Terms, is_no};
use super::primitive::{GroupPrimitive, TakeAll};
use crate::base::error::{Error, Result, is_login};
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::time::Lease;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::registry::{current_thread, registry};
use crate::store::node::{Failure, Limits, UNCONFIRMED};
use std::sync::Arc;

/// What became of an attempt to take a group by one command.
pub(super) enum Together {
    Held(Vec<Hold>),
    /// The lock with this index is taken, or the group's wait ended before the store could answer; none is held.
    Busy(usize),
    /// The command cannot be used, or was refused. Take the members one by one: each then tells its own error.
    Apart,
}

impl Engine {
    /// Where a lock stands in the order of all locks: its full key, and then its store.
    pub(super) fn rank(&self, resource: &str) -> (String, String) {
        ([&self.space.config.key_prefix, resource].concat(), self.health.address())
    }

    /// Whether two members that are the same lock can be in one group.
    ///
    /// # Errors
    /// `Config` if they are of one client and of two kinds.
    pub(super) fn check_goes_with(&self, other: &Self, resource: &str) -> Result<()> {
        if self.kind.is(other.kind) || !Arc::ptr_eq(&self.space, &other.space) {
            return Ok(());
        }
        let [one, other] = [self.kind.name, other.kind.name];
        Err(Error::config(format!(
            "lock {resource:?} is in the group as a {one} and as a {other}: leave one of them out (who has a write lock may read, \
             too)"
        )))
    }

    /// Tries to take several free locks, with different names, for the current thread.
    pub(super) fn take_group(&self, resources: &[&str], terms: &Terms<'_>) -> Result<Together> {
        let Some(store) = self.primitive.group() else { return Ok(Together::Apart) };
        let keys = resources.iter().map(|resource| self.space.key(resource)).collect::<Result<Vec<_>>>()?;
        let asked = self.space.config.asked(terms.lease, terms.renewed)?;
        let lease = self.space.config.length(asked);
        if let Some(held) = keys.iter().position(|key| self.is_siblings(key.full())) {
            return Ok(self.group_busy(held));
        }
        if !keys.iter().all(|key| registry().is_idle(self.ground(), key.full())) {
            return Ok(Together::Apart);
        }
        let patience = self.patience(resources.first().unwrap_or(&"")).on(terms);
        patience.stop.check()?;
        let forced = self.space.forced();
        let tenures: Vec<_> = keys.iter().map(|key| self.space.tenure(key)).collect();
        let take = patience
            .persist_in_wait(|answer_by| self.take_all(store, &tenures, lease, patience.limits(lease, answer_by)));
        if !matches!(take, Ok(Some(TakeAll::Acquired(_)))) {
            tenures.iter().for_each(|tenure| self.sweep_open(tenure));
        }
        match take {
            Ok(None) => Ok(Together::Busy(0)),
            Ok(Some(TakeAll::Acquired(sent))) => {
                self.book_all(tenures.iter().map(|tenure| self.hold(tenure, (sent, lease), asked, forced)).collect())
            }
            Ok(Some(TakeAll::Busy(taken))) => Ok(self.group_busy(taken)),
            Ok(Some(TakeAll::Apart)) => Ok(Together::Apart),
            // One key may be refused to us. Without enough replicas, or without a login, each would be.
            Err(Error::Refused { code, .. }) if code != UNCONFIRMED && !is_login(&code) => Ok(Together::Apart),
            Err(error) => Err(error),
        }
    }

    /// Whether another thread of this process surely holds a lock.
    fn is_siblings(&self, key: &str) -> bool {
        let me = current_thread();
        registry().believed(self.ground(), key).iter().any(|hold| hold.is_valid() && hold.thread() != me)
    }

    fn group_busy(&self, taken: usize) -> Together {
        self.space.counters.contended.add(1);
        Together::Busy(taken)
    }

    /// Makes one attempt. If its outcome is unknown, it is unknown for each tenure.
    fn take_all(
        &self,
        store: &dyn GroupPrimitive,
        tenures: &[Arc<Tenure>],
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<TakeAll, Failure> {
        let take = store.take_all(tenures, lease, limits);
        if let Err(failure) = &take {
            for tenure in tenures {
                let _ = self.note_open(tenure, lease, Err::<(), _>(failure.clone()));
            }
        }
        take
    }

    /// All or nothing: if one hold cannot be believed, the others are given back. That one has been already.
    fn book_all(&self, booked: Vec<Result<Option<Hold>>>) -> Result<Together> {
        if booked.iter().all(|hold| matches!(hold, Ok(Some(_)))) {
            return Ok(Together::Held(booked.into_iter().flatten().flatten().collect()));
        }
        booked.iter().flatten().flatten().for_each(|hold| self.give_back(hold));
        booked.into_iter().find_map(Result::err).map_or(Ok(Together::Apart), Err)
    }

    /// Whether one command can release the last levels of these different holds. All must be valid and of this client and
    /// thread. Nobody may be known to wait for one, in this process or another: it would be passed on or given.
    fn releases_group(&self, holds: &[&Hold]) -> bool {
        let last = |hold: &Hold| hold.thread() == current_thread() && hold.count() == 1 && hold.is_valid();
        let fits = |hold: &&Hold| {
            self.check_own(hold).is_ok()
                && last(hold)
                && !registry().is_awaited(self.ground(), hold.tenure().key().full())
                && !self.has_company(hold.tenure().key())
        };
        holds.iter().all(fits)
    }

    fn has_company(&self, key: &Key) -> bool {
        self.primitive.queue(key).is_some_and(|queue| queue.has_company(key))
    }

    /// Releases the last level of each by one command, if that can be used, also past holds that fail. The last hold
    /// comes first, and so does its error.
    pub(super) fn release_group(&self, holds: &[&Hold]) -> Option<Result<()>> {
        let store = self.primitive.group().filter(|_| self.releases_group(holds))?;
        let (mut ended, mut result) = (Vec::new(), Ok(()));
        for hold in holds.iter().rev() {
            match self.end(hold) {
                Ok(()) => ended.push(*hold),
                Err(error) => result = worse(result, Err(error)),
            }
        }
        if ended.is_empty() {
            return Some(result);
        }
        // The first answer stands, also a refusal: what was freed is not there for a second attempt.
        let mut found: Vec<Option<Result<bool, Failure>>> = vec![None; ended.len()];
        let (released, in_doubt) = self.free(&ended, |answer_by| {
            let again = mutant::is(Mutant::RepeatsAnsweredMembers);
            let open: Vec<_> = (0..ended.len()).filter(|at| again || found[*at].is_none()).collect();
            let keys: Vec<_> = open.iter().map(|at| ended[*at].tenure().key().full()).collect();
            // What a server says counts from when it came, however long the next one takes.
            let of_server = |part: Vec<usize>| {
                let part: Vec<_> = part.into_iter().map(|at| open[at]).collect();
                let tenures: Vec<_> = part.iter().map(|at| Arc::clone(ended[*at].tenure())).collect();
                part.into_iter().zip(store.release_all(&tenures, answer_by))
            };
            let mut failed = Ok(());
            for (at, freed) in self.health.apart(&keys).into_iter().flat_map(of_server) {
                match freed {
                    Err(failure) if !is_no(&failure, self.health.moves()) => failed = failed.and(Err(failure)),
                    freed => found[at] = Some(freed),
                }
            }
            failed
        });
        for (hold, found) in ended.into_iter().zip(found) {
            let one = match (found, &released) {
                (Some(found), _) => found.map_err(|failure| failure.into_error(hold.resource())),
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(())) => Err(Error::closed(hold.resource())),
            };
            result = worse(result, self.conclude(hold, one, in_doubt));
        }
        Some(result)
    }
}

/// The error that is reported for two members: the first. But a hold that was over before its release is worse than one whose release is
/// undecided: that one was believed until its release began.
pub(super) fn worse(one: Result<()>, other: Result<()>) -> Result<()> {
    let on_the_wire = |result: &Result<()>| {
        matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. } | Error::Refused { .. }))
    };
    if on_the_wire(&one) && other.is_err() && !on_the_wire(&other) { other } else { one.and(other) }
}
