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
const KEPT: usize = 4_096;

/// At most so many keys in one command, so that the server is not busy for long with any.
const BATCH: usize = 100;

/// A release that was answered just before the move may be noted after it: all are freed once more after so long.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// A failed attempt is made again for so long.
const WORTH: Duration = Duration::from_secs(30);

/// A tenure that was released, and by whom its key is freed.
type Entry = (Arc<Tenure>, Weak<dyn Keeper>);

/// In the order of their releases.
pub(crate) struct Freed {
    clock: Clock,
    lately: Mutex<VecDeque<Entry>>,
}

impl Freed {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, lately: Mutex::default() }
    }

    /// A tenure was released, as the master says.
    pub(crate) fn note(&self, tenure: &Arc<Tenure>, keeper: Weak<dyn Keeper>) {
        let (now, mut lately) = (self.clock.now(), self.lately.lock());
        while lately.front().is_some_and(|(old, _)| old.lease_until() <= now) || lately.len() >= KEPT {
            lately.pop_front();
        }
        lately.push_back((Arc::clone(tenure), keeper));
    }

    /// Another master serves: what it may not know to be free is freed there in the background.
    pub(crate) fn free_again(self: &Arc<Self>, sweeper: &Sweeper) {
        let now = self.clock.now();
        for due in [now, now.plus(UNDER_WAY)] {
            let chore = Again { freed: Arc::clone(self), until: now.plus(WORTH) };
            sweeper.run_at(Box::new(chore), due);
        }
    }

    /// Those that may still be locked, by who frees them.
    fn batches(&self) -> Vec<(Arc<dyn Keeper>, Vec<Arc<Tenure>>)> {
        let now = self.clock.now();
        let mut batches: Vec<(Arc<dyn Keeper>, Vec<Arc<Tenure>>)> = Vec::new();
        for (tenure, keeper) in self.lately.lock().iter().filter(|(tenure, _)| tenure.lease_until() > now) {
            let Some(keeper) = keeper.upgrade() else { continue };
            let fits = |(of, batch): &&mut (Arc<dyn Keeper>, Vec<_>)| Arc::ptr_eq(of, &keeper) && batch.len() < BATCH;
            match batches.iter_mut().rev().find(fits) {
                Some((_, batch)) => batch.push(Arc::clone(tenure)),
                None => batches.push((keeper, vec![Arc::clone(tenure)])),
            }
        }
        batches
    }
}

/// All of them, once more.
struct Again {
    freed: Arc<Freed>,
    until: Moment,
}

impl Chore for Again {
    fn run(&self) -> Result<()> {
        self.freed.batches().iter().try_for_each(|(keeper, tenures)| keeper.sweep_all(tenures))
    }

    fn until(&self) -> Moment {
        self.until
    }

    fn whereabouts(&self) -> String {
        "what was freed just before a master was replaced".to_owned()
    }
}
