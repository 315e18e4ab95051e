//! The tenures that were released lately, for a store whose master may be replaced.
//!
//! No replica confirms a release. So a new master may still have locks that were freed at the old one. Nobody holds them, and
//! they would be locked until their leases end. So each new master is asked to free them once more. It may also have places of waits
//! that are over, and would give the lock to each of them. Those go with what is freed.
//! The owner id of a released tenure is dead: its key may be freed at any time, and again.

use crate::base::error::Result;
use crate::base::time::{Clock, Moment};
use crate::lease::sweeper::{Chore, Sweeper};
use crate::lease::tenure::{Keeper, Tenure};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// At most so many releases are kept. If there are more within a lease, the oldest may stay locked at a new master until their leases end.
const KEPT: usize = 1_024;

/// At most so many keys in one command, so that no command keeps the server busy for long.
const BATCH: usize = 100;

/// A release that was answered just before the move may be noted after it. So what is noted within this time is freed, too.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// For how long a failed attempt is repeated.
const WORTH: Duration = Duration::from_secs(30);

/// A tenure that was released.
struct Entry {
    tenure: Arc<Tenure>,
    /// It frees the key.
    keeper: Weak<dyn Keeper>,
    noted: Moment,
}

/// The releases, the oldest first.
pub(crate) struct RecentReleases {
    clock: Clock,
    lately: Mutex<VecDeque<Entry>>,
}

impl RecentReleases {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, lately: Mutex::default() }
    }

    /// The master said that it released a tenure, or took its place out of a queue. What ends by itself before now is not kept.
    pub(crate) fn note(&self, tenure: &Arc<Tenure>, keeper: Weak<dyn Keeper>) {
        let now = self.clock.now();
        if tenure.lease_until() <= now {
            return;
        }
        let mut lately = self.lately.lock();
        while lately.front().is_some_and(|old| old.tenure.lease_until() <= now) || lately.len() >= KEPT {
            lately.pop_front();
        }
        lately.push_back(Entry { tenure: Arc::clone(tenure), keeper, noted: now });
    }

    /// Another master serves. The background frees there what was released of the keys that are meant.
    pub(crate) fn free_again(self: &Arc<Self>, sweeper: &Sweeper, is_meant: &dyn Fn(&str) -> bool) {
        let (now, until) = (self.clock.now(), self.clock.now().plus(WORTH));
        let batches = self.batches(Moment(0), is_meant);
        if !batches.is_empty() {
            sweeper.run_at(Box::new(Again { free: move || free(&batches), until }), now);
        }
        let releases = Arc::clone(self);
        let noted_since = move || free(&releases.batches(now, &|_| true));
        sweeper.run_at(Box::new(Again { free: noted_since, until }), now.plus(UNDER_WAY));
    }

    /// The releases since then of the keys that are meant, if the key may still be locked, by keeper.
    fn batches(&self, since: Moment, is_meant: &dyn Fn(&str) -> bool) -> Vec<KeeperBatch> {
        let now = self.clock.now();
        let mut batches: Vec<KeeperBatch> = Vec::new();
        let is_worth = |entry: &&Entry| {
            entry.noted >= since && entry.tenure.lease_until() > now && is_meant(entry.tenure.key().full())
        };
        for entry in self.lately.lock().iter().filter(is_worth) {
            let (tenure, Some(keeper)) = (Arc::clone(&entry.tenure), entry.keeper.upgrade()) else { continue };
            let fits = |(of, batch): &&mut KeeperBatch| Arc::ptr_eq(of, &keeper) && batch.len() < BATCH;
            match batches.iter_mut().rev().find(fits) {
                Some((_, batch)) => batch.push(tenure),
                None => batches.push((keeper, vec![tenure])),
            }
        }
        batches
    }
}

/// The tenures that one command frees, with the keeper that sends it.
type KeeperBatch = (Arc<dyn Keeper>, Vec<Arc<Tenure>>);

/// Frees some keys once more.
struct Again<F> {
    free: F,
    until: Moment,
}

impl<F: Fn() -> Result<()> + Send> Chore for Again<F> {
    fn run(&self) -> Result<()> {
        (self.free)()
    }

    fn until(&self) -> Moment {
        self.until
    }

    fn whereabouts(&self) -> String {
        "what was freed just before a master was replaced".to_owned()
    }
}

/// A batch that is refused or not answered does not keep the others from being freed.
fn free(batches: &[KeeperBatch]) -> Result<()> {
    batches.iter().map(|(keeper, tenures)| keeper.free_again(tenures)).fold(Ok(()), Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::key::{Key, Naming};
    use crate::base::owner::OwnerId;
    use crate::base::time::Lease;
    use crate::lease::tenure::LossCause;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Counts what it is asked to free, and refuses the first.
    #[derive(Default)]
    struct Refusing(AtomicUsize);

    impl Keeper for Refusing {
        fn renew(&self, _: &[Arc<Tenure>]) {}

        fn verify(&self, _: &[Arc<Tenure>]) {}

        fn sweep(&self, _: &Arc<Tenure>) -> Result<()> {
            if self.0.fetch_add(1, SeqCst) == 0 { Err(Error::closed("n")) } else { Ok(()) }
        }

        fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}

        fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_one_master_refuses_keeps_nothing_from_being_freed_at_others() {
        let keeper = Arc::<Refusing>::default();
        let tenure = || Arc::new(Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot));
        let batches: Vec<KeeperBatch> =
            (0..3).map(|_| (Arc::clone(&keeper) as Arc<dyn Keeper>, vec![tenure()])).collect();
        assert!(free(&batches).is_err());
        assert_eq!(keeper.0.load(SeqCst), 3);
    }
}
