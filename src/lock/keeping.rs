//! What the background threads do to the tenures of a kind: renew them, sweep them, and find them lost.

use super::engine::Engine;
use super::primitive::Renewed;
use super::waiting::queue::{Ticket, stays};
use crate::base::error::Result;
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::time::{Lease, Moment};
use crate::lease::sweeper::Chore;
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use crate::registry::registry;
use crate::store::node::{Failure, GRACE, Lane};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// Warns once per outage of a server: each retry is a failure, and there are many.
    fn log_failed_renewals(&self, batch: &[Arc<Tenure>], failure: Failure) {
        let Some(first) = batch.first() else { return };
        let (count, lock, error) = (batch.len(), self.whereabouts(first), failure.into_error(first.key().resource()));
        if self.space.counters.renewals_fail(self.server_of(first)) {
            say!(warn, "renewing {count} lock(s), {lock} first, failed, tried again until their leases end: {error}");
        } else {
            say!(debug, "renewing {count} lock(s), {lock} first, failed: {error}");
        }
    }

    /// When to stop waiting for the answer to a renewal. For a short lease that is before the next renewal is due. For a hold that was
    /// given for less than its lease, it is early enough for another attempt.
    fn renewal_ends(&self, batch: &[Arc<Tenure>], lease: Lease) -> Moment {
        let (now, third) = (self.space.clock.now(), lease.span() / 3);
        let short = (lease < self.space.config.watchdog_lease).then_some(third);
        let young = batch.iter().filter(|tenure| tenure.granted_for() < lease.span());
        let left = young.filter_map(|tenure| tenure.deadline()).map(|deadline| deadline.since(now) / 2).min();
        let spans = short.into_iter().chain(left);
        spans.map(|span| now.plus(span)).fold(self.space.one_answer(), Moment::min)
    }

    fn book_renewal(&self, tenure: &Arc<Tenure>, answer: Option<Moment>, lease: Lease) {
        if self.space.counters.renewals_recover(|| self.server_of(tenure)) {
            say!(info, "renewals are confirmed again at {}", self.health.address_of(tenure.key().resource()));
        }
        if let Some(deadline) = tenure.deadline().filter(|_| answer.is_some()) {
            self.space.counters.renewals.add(1);
            let now = self.space.clock.now();
            // A hold that was given has less than a lease at first.
            let had = lease.span().min(tenure.granted_for());
            let left = deadline.since(now);
            self.space.counters.note_margin(left.as_secs_f64() / had.as_secs_f64(), now);
            self.space.counters.meters.renewed(left, had >= lease.span() && tenure.is_watched());
        }
        let _ = self.book(tenure, answer, lease);
    }

    fn renew_failed(&self, batch: &[Arc<Tenure>], lease: Lease, failure: Failure) {
        batch.iter().for_each(|tenure| self.book_failure(tenure, lease, &failure));
        self.log_failed_renewals(batch, failure);
    }

    fn book_failure(&self, tenure: &Arc<Tenure>, lease: Lease, failure: &Failure) {
        let _ = self.note_open(tenure, lease, Err::<(), _>(failure.clone()));
        tenure.suspect();
        self.space.counters.failed_renewals.add(1);
        self.space.counters.meters.renewal_failed();
    }

    /// Books the answer for each tenure. Failures are logged by server: servers fail one by one.
    fn book_each(&self, batch: &[Arc<Tenure>], renewed: Renewed, lease: Lease) {
        let mut failed: BTreeMap<usize, (Vec<Arc<Tenure>>, Failure)> = BTreeMap::new();
        for (tenure, answer) in batch.iter().zip(renewed) {
            match answer {
                Ok(answer) => self.book_renewal(tenure, answer, lease),
                Err(failure) => {
                    self.book_failure(tenure, lease, &failure);
                    let of_server = failed.entry(self.server_of(tenure)).or_insert_with(|| (Vec::new(), failure));
                    of_server.0.push(Arc::clone(tenure));
                }
            }
        }
        failed.into_values().for_each(|(tenures, failure)| self.log_failed_renewals(&tenures, failure));
    }
}

impl Engine {
    /// Prolongs one tenure for a caller that waits until `limit`.
    pub(super) fn renew_one(&self, tenure: &Arc<Tenure>, lease: Lease, limit: Moment) -> Result<()> {
        let renew = |answer_by: Moment| {
            // As in `in_force`.
            tenure.may_last(answer_by.plus(GRACE).plus(lease.at_most()));
            if tenure.state() == TenureState::Ended {
                return Ok(None);
            }
            let renewed = self.primitive.renew(Lane::Calls, std::slice::from_ref(tenure), lease, answer_by)?;
            renewed.into_iter().next().unwrap_or(Ok(None))
        };
        let patience = self.patience(tenure.key().resource()).until(limit);
        let answer = patience.persist(|answer_by| self.note_open(tenure, lease, renew(answer_by)))?;
        self.book(tenure, answer, lease)
    }
}

/// What a call that stops waiting leaves in a queue.
pub(super) struct Departure {
    key: Key,
    /// The names that its ticket may have there: the last one, and those before it.
    names: [String; 2],
    /// The owner that may be given the lock while the ticket is there.
    owner: Option<Arc<Tenure>>,
}

impl Departure {
    /// The departure of a ticket, by its present names.
    pub(super) fn of(ticket: &Ticket, owner: Option<&Arc<Tenure>>) -> Self {
        Self { key: ticket.key().clone(), names: ticket.names(), owner: owner.map(Arc::clone) }
    }
}

/// Takes the ticket out, and then releases its owner: in the other order a release in between could give the lock to nobody.
struct Leave {
    /// Keeps the client alive until then: its user may drop it as soon as the last call has ended.
    engine: Arc<Engine>,
    departure: Departure,
    until: Moment,
}

impl Leave {
    fn release_owner(&self) -> Result<()> {
        self.departure.owner.iter().try_for_each(|owner| self.engine.sweep(owner))
    }
}

impl Chore for Leave {
    fn run(&self) -> Result<()> {
        let Departure { key, names, .. } = &self.departure;
        let answer_by = self.engine.space.one_answer();
        match self.engine.primitive.queue(key).map_or(Ok(()), |queue| queue.leave(key, names, answer_by)) {
            // No script gives the lock to the place before the queue has arrived with its slot. So the owner need not wait for that.
            Err(failure) if failure.is_on_its_way() => {
                self.release_owner()?;
                Err(failure.into_error(key.resource()))
            }
            Err(failure) if failure.may_pass() => Err(failure.into_error(key.resource())),
            // Refused for good: the ticket was never in the queue, or ends with it.
            _ => self.release_owner(),
        }
    }

    fn until(&self) -> Moment {
        self.until
    }

    fn whereabouts(&self) -> String {
        format!("a place in the queue of lock {:?}", self.departure.key.full())
    }
}

impl Engine {
    /// Takes out the places of these tenures' waits, which a new master may have, by one script for each lock. A server that does not answer
    /// is not asked for the rest.
    fn leave_again(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        let mut of_locks = BTreeMap::<_, (&Key, Vec<&str>)>::new();
        for (tenure, names) in tenures.iter().filter_map(|tenure| Some((tenure, tenure.ticket()?))) {
            let (_, all) = of_locks.entry(tenure.key().full()).or_insert_with(|| (tenure.key(), Vec::new()));
            all.extend(names.iter().map(String::as_str).filter(|names| !names.is_empty()));
        }
        of_locks.into_values().try_for_each(|(key, names)| self.leave_lock_again(key, &names))
    }

    fn leave_lock_again(&self, key: &Key, names: &[&str]) -> Result<()> {
        let ([first, others @ ..], Some(queue)) = (names, self.primitive.queue(key)) else { return Ok(()) };
        let names = [(*first).to_owned(), others.join(" ")];
        let leave = || queue.leave(key, &names, self.space.one_answer());
        let left = match leave() {
            // As in `sweep_all`.
            Err(Failure::Unknown { broken, .. }) if !broken.timed_out => leave(),
            left => left,
        };
        match left {
            Err(failure) if failure.may_pass() || failure.is_on_its_way() => Err(failure.into_error(key.resource())),
            // Refused for good: there is no place.
            _ => Ok(()),
        }
    }

    /// Has the sweeper take a ticket out at `due`.
    pub(super) fn leave_queue(&self, departure: Departure, due: Moment) {
        if let Some(leave) = self.leave(departure, due) {
            self.space.sweeper.run_at(Box::new(leave), due);
        }
    }

    /// The same now. A shutdown waits for that.
    pub(super) fn leave_queue_now(&self, departure: Departure) {
        if let Some(leave) = self.leave(departure, self.space.clock.now()) {
            self.space.sweeper.run_now(Box::new(leave));
        }
    }

    fn leave(&self, departure: Departure, due: Moment) -> Option<Leave> {
        // The sweep of the owner is part of this chore: a lease that nobody renews may last longer than the place.
        let owned_until = departure.owner.as_ref().map_or(due, |owner| owner.lease_until());
        let until = stays(&self.space.config, due).max(owned_until);
        Some(Leave { engine: self.strong()?, departure, until })
    }
}

impl Engine {
    /// Sends one call to each server, so that the answer of one does not wait for the silence of another.
    fn each_apart(&self, batch: &[Arc<Tenure>], mut ask: impl FnMut(&[Arc<Tenure>])) {
        let keys: Vec<_> = batch.iter().map(|tenure| tenure.key().full()).collect();
        for part in self.health.apart(&keys) {
            ask(&part.into_iter().map(|at| Arc::clone(&batch[at])).collect::<Vec<_>>());
        }
    }

    /// Those that have not ended, of which each may last for longer now. This is noted first: a release that ends a tenure after the look
    /// knows of the renewal, and waits for what it may keep.
    fn in_force(&self, batch: &[Arc<Tenure>], ends: Moment, lease: Lease) -> Vec<Arc<Tenure>> {
        let until = ends.plus(GRACE).plus(lease.at_most());
        batch.iter().for_each(|tenure| tenure.may_last(until));
        batch.iter().filter(|tenure| tenure.state() != TenureState::Ended).cloned().collect()
    }

    fn renew_by(&self, batch: &[Arc<Tenure>], lease: Lease) {
        let ends = self.renewal_ends(batch, lease);
        let batch = &self.in_force(batch, ends, lease);
        if batch.is_empty() {
            return;
        }
        match self.primitive.renew(Lane::Renewals, batch, lease, ends) {
            Ok(renewed) => {
                let usual = self.space.config.watchdog_lease;
                let booked = if mutant::is(Mutant::BooksUsualLease) { usual } else { lease };
                self.book_each(batch, renewed, booked);
            }
            // The server may refuse one key to this user: the others must not be lost for that.
            Err(failure) if batch.len() > 1 && !failure.may_pass() => {
                batch.chunks(1).for_each(|one| self.renew_by(one, lease));
            }
            Err(failure) => self.renew_failed(batch, lease, failure),
        }
    }
}

impl Keeper for Engine {
    fn renew(&self, batch: &[Arc<Tenure>]) {
        let usual = self.space.config.watchdog_lease;
        // All asked for the same when the batch was made. If one asks for more now, the others must not get it.
        let lease = batch.iter().filter_map(|tenure| tenure.renewed_lease()).min().unwrap_or(usual);
        self.each_apart(batch, |part| self.renew_by(part, lease));
    }

    /// By the renewal's script, which always writes, so that a demoted master refuses it. The lease is the least that any
    /// of them has left, as no script shortens a lease.
    fn verify(&self, batch: &[Arc<Tenure>]) {
        self.each_apart(batch, |part| {
            let now = self.space.clock.now();
            let left = part.iter().filter_map(|tenure| tenure.deadline()).map(|deadline| deadline.since(now)).min();
            self.renew_by(part, Lease::clamped(left.unwrap_or_default()));
        });
    }

    fn sweep(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let swept = self.primitive.sweep(tenure, self.space.one_answer());
        if swept.is_ok() {
            self.note_freed(tenure);
        }
        // A lock in memory publishes nothing: wake its waiters here.
        if swept.is_ok() && self.kind.is_of_this_process {
            registry().wake(self.ground(), tenure.key().full());
        }
        swept.map_err(|failure| failure.into_error(tenure.key().resource()))
    }

    /// Places in queues go first: else the release of one tenure could give the lock to the place of the next. The keys are freed whatever
    /// becomes of the places.
    fn free_again(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        let left = self.leave_again(tenures);
        self.sweep_all(tenures).and(left)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>]) -> Result<()> {
        let answer_by = self.space.one_answer();
        let sweep = || self.primitive.sweep_all(tenures, answer_by);
        let swept = match sweep() {
            // The attempt may have met an idle connection that the server had closed: try a fresh one at once.
            Err(Failure::Unknown { broken, .. }) if !broken.timed_out => sweep(),
            swept => swept,
        };
        swept.map_err(|failure| failure.into_error(tenures.first().map_or("", |tenure| tenure.key().resource())))
    }

    fn whereabouts(&self, tenure: &Tenure) -> String {
        format!("{:?} at {}", tenure.key().full(), self.health.address_of(tenure.key().resource()))
    }

    fn server_of(&self, tenure: &Tenure) -> usize {
        self.health.server_of(tenure.key().resource())
    }

    fn lost(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        if tenure.state() == TenureState::Lost {
            self.space.watchdog.forget(tenure);
            let is_gone = cause == LossCause::Removed;
            // Its key does not end with its lease, or its writer may have waited: a new master may have the mark and not the hold.
            if tenure.lease_until() == Moment::MAX || is_gone && self.kind.leaves_marks {
                self.sweep_now(tenure);
            } else if self.kind.leaves_marks {
                // Not before the lease is over at the server, too: it lasts as long as its holder asked for.
                self.sweep_at(tenure, self.space.clock.now().plus(tenure.margin()));
            }
            self.sweep_open(tenure);
            self.announce(tenure, cause);
        }
    }

    fn tell_if_gone(&self, tenure: &Arc<Tenure>) {
        if tenure.is_gone() && !mutant::is(Mutant::TellsNoLateLoss) {
            self.announce(tenure, LossCause::Removed);
        }
    }

    fn extend(&self, tenure: &Arc<Tenure>, lease: Lease) -> Result<()> {
        self.space.check_open(tenure.key().resource())?;
        let lease = self.space.config.lease(lease.span())?;
        self.renew_one(tenure, lease, tenure.deadline().unwrap_or(self.space.clock.now()))
    }
}
