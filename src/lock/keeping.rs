//! What the background threads do to the tenures of a kind: renew them, sweep them, and find them lost.

use super::engine::Engine;
use crate::backend::{Failure, Lane};
use crate::error::Result;
use crate::registry::registry;
use crate::tenure::{Keeper, LossCause, Standing, Tenure};
use crate::time::{Lease, Moment};
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Warns once an outage: each retry is a failure, and there are many.
    fn log_failed_renewals(&self, batch: &[Arc<Tenure>], failure: Failure) {
        let error = failure.into_error(batch.first().map_or("", |tenure| tenure.key().resource()));
        if self.space.counters.renewals_fail() {
            log::warn!("renewing {} lock(s) failed, tried again until their leases end: {error}", batch.len());
        } else {
            log::debug!("renewing {} lock(s) failed: {error}", batch.len());
        }
    }

    fn book_renewal(&self, tenure: &Arc<Tenure>, answer: Option<Moment>, lease: Lease) {
        if let Some(deadline) = tenure.deadline().filter(|_| answer.is_some()) {
            self.space.counters.renewals.add(1);
            self.space.counters.note_margin(deadline.since(self.space.clock.now()));
        }
        let _ = self.book(tenure, answer, lease);
    }

    fn renew_failed(&self, batch: &[Arc<Tenure>], lease: Lease, failure: Failure) {
        for tenure in batch {
            let _ = self.note_open(tenure, lease, Err::<(), _>(failure.clone()));
            tenure.suspect();
        }
        self.space.counters.failed_renewals.add(batch.len());
        self.log_failed_renewals(batch, failure);
    }
}

impl Keeper for Engine {
    fn renew(&self, batch: &[Arc<Tenure>]) {
        let lease = self.space.config.watchdog_lease;
        match self.primitive.renew(Lane::Renewals, batch, lease, self.space.one_answer()) {
            Ok((sent, held)) => {
                if self.space.counters.renewals_recover() {
                    log::info!("renewals are confirmed again");
                }
                for (tenure, held) in batch.iter().zip(held) {
                    match held {
                        Ok(held) => self.book_renewal(tenure, held.then_some(sent), lease),
                        Err(failure) => self.renew_failed(std::slice::from_ref(tenure), lease, failure),
                    }
                }
            }
            // One key may be refused to us: that is no reason to lose the others.
            Err(failure) if batch.len() > 1 && !failure.may_pass() => {
                batch.chunks(1).for_each(|one| self.renew(one));
            }
            Err(failure) => self.renew_failed(batch, lease, failure),
        }
    }

    fn sweep(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let swept = self.primitive.sweep(tenure, self.space.one_answer());
        // Nobody publishes in memory.
        if swept.is_ok() && self.primitive.is_of_this_process() {
            registry().wake(self.space.id, tenure.key().full());
        }
        swept.map_err(|failure| failure.into_error(tenure.key().resource()))
    }

    fn lost(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        if tenure.standing() == Standing::Lost {
            self.space.watchdog.release(tenure);
            self.sweep_open(tenure);
            self.announce(tenure, cause);
        }
    }

    fn extend(&self, tenure: &Arc<Tenure>, lease: Lease) -> Result<()> {
        self.space.check_open(tenure.key().resource())?;
        let lease = self.space.config.lease(Duration::from_millis(lease.millis()))?;
        let limit = tenure.deadline().unwrap_or(self.space.clock.now());
        let renew = |until| {
            let (sent, held) = self.primitive.renew(Lane::Calls, std::slice::from_ref(tenure), lease, until)?;
            Ok(held.into_iter().next().unwrap_or(Ok(false))?.then_some(sent))
        };
        let patience = self.patience(tenure.key().resource()).until(limit);
        let (answer, _) = patience.persist(|until| self.note_open(tenure, lease, renew(until)))?;
        self.book(tenure, answer, lease)
    }
}
