//! What was freed lately, for a store whose master may be replaced.
//!
//! A release is not confirmed by replicas, so the master that takes another one's place may have locks that were freed at the
//! old one: nobody holds them, and they would be locked until their leases end. So they are freed once more at each new master.
//! The owner id of a tenure that was released is dead: that may be done at any time, and again.

use crate::base::error::Result;
use crate::base::time::{Clock, Moment};
use crate::lease::sweeper::{Chore, Sweeper};
use crate::lease::tenure::{Keeper, Tenure};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// So many are kept in mind: of more than that in a lease the first may stay locked until theirs end.
const KEPT: usize = 1_024;

/// At most so many keys in one command, so that the server is not busy for long with any.
const BATCH: usize = 100;

/// A release that was answered just before the move may be noted after it: what was noted since is freed after so long.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// A failed attempt is made again for so long.
const WORTH: Duration = Duration::from_secs(30);

/// A tenure that was released.
struct Entry {
    tenure: Arc<Tenure>,
    /// By whom its key is freed.
    keeper: Weak<dyn Keeper>,
    noted: Moment,
}

/// In the order of their releases.
pub(crate) struct RecentReleases {
    clock: Clock,
    lately: Mutex<VecDeque<Entry>>,
}

impl RecentReleases {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, lately: Mutex::default() }
    }

    /// A tenure was released, as the master says.
    pub(crate) fn note(&self, tenure: &Arc<Tenure>, keeper: Weak<dyn Keeper>) {
        let (now, mut lately) = (self.clock.now(), self.lately.lock());
        while lately.front().is_some_and(|old| old.tenure.lease_until() <= now) || lately.len() >= KEPT {
            lately.pop_front();
        }
        lately.push_back(Entry { tenure: Arc::clone(tenure), keeper, noted: now });
    }

    /// Another master serves: what it may not know to be free is freed there in the background.
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

    /// Those of such keys that were noted since then and may still be locked, by who frees them.
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

/// What one command frees.
type KeeperBatch = (Arc<dyn Keeper>, Vec<Arc<Tenure>>);

/// Frees some of them once more.
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

/// One that is refused, or not answered, keeps none of the others from being freed.
fn free(batches: &[KeeperBatch]) -> Result<()> {
    batches.iter().map(|(keeper, tenures)| keeper.sweep_all(tenures)).fold(Ok(()), Result::and)
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

    /// Counts what it was asked to free, and refuses the first.
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
