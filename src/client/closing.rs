//! Frees the locks that a client holds at its shutdown: in batches, on several connections.

use crate::base::error::{Cause, Error, Result};
use crate::base::say::say;
use crate::base::time::{Clock, Moment};
use crate::lease::hold::Hold;
use crate::lease::tenure::{Keeper, Tenure};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The most keys in one command, so that no command keeps the server busy for long.
const BATCH: usize = 100;

/// More connections at once do not free faster: the server executes one script at a time.
const AT_ONCE: usize = 4;

/// The tenures that one command frees.
struct Batch {
    keeper: Arc<dyn Keeper>,
    /// The number of the keeper's server, as far as it was known.
    server: usize,
    tenures: Vec<Arc<Tenure>>,
}

/// The batches, and the progress of the threads that free them.
struct Closing {
    batches: Vec<Batch>,
    next: AtomicUsize,
    left: Mutex<Unfreed>,
    clock: Clock,
    until: Moment,
}

/// The locks that could not be freed: their number, the first one, and why.
#[derive(Default)]
struct Unfreed {
    count: usize,
    first: Option<(String, Error)>,
    /// The servers that did not answer, or cannot serve now: they are not asked again.
    silent: BTreeSet<usize>,
}

/// Frees the keys of these holds, whose tenures have ended, tells of those that were gone, and logs what may stay. While the server answers it
/// goes on until `until`. If an answer is missing, it ends with the attempts under way.
pub(super) fn free_all(holds: &[Hold], connections: usize, clock: &Clock, until: Moment) {
    let batches = batches_of(holds);
    let helpers = connections.min(AT_ONCE).min(batches.len()).saturating_sub(1);
    let clock = clock.clone();
    let closing = Closing { batches, next: AtomicUsize::new(0), left: Mutex::default(), clock, until };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            let helper = std::thread::Builder::new().name("redlatch-closing".to_owned());
            // If there is no thread, the others do its share.
            let _ = helper.spawn_scoped(scope, || closing.work());
        }
        closing.work();
    });
    closing.left.into_inner().say();
}

/// Groups the holds by keeper and server. A hold whose client is gone has no keeper.
fn batches_of(holds: &[Hold]) -> Vec<Batch> {
    let (mut batches, mut seen) = (Vec::<Batch>::new(), BTreeSet::new());
    for hold in holds {
        let Some(keeper) = hold.keeper() else { continue };
        // Threads that share a tenure have a hold each.
        if !seen.insert(hold.tenure().serial()) {
            continue;
        }
        let (tenure, server) = (Arc::clone(hold.tenure()), keeper.server_of(hold.tenure()));
        let fits = |batch: &&mut Batch| {
            Arc::ptr_eq(&batch.keeper, &keeper) && batch.server == server && batch.tenures.len() < BATCH
        };
        match batches.iter_mut().rev().find(fits) {
            Some(batch) => batch.tenures.push(tenure),
            None => batches.push(Batch { keeper, server, tenures: vec![tenure] }),
        }
    }
    batches
}

impl Closing {
    fn work(&self) {
        while let Some(batch) = self.batches.get(self.next.fetch_add(1, SeqCst)) {
            match self.free(batch, &batch.tenures) {
                // The server may refuse one key of the batch: try each alone, so that it frees the others.
                Err(error @ Error::Refused { .. }) if !error.is_retryable() => {
                    batch.tenures.chunks(1).for_each(|one| self.note(batch, one, self.free(batch, one)))
                }
                freed => self.note(batch, &batch.tenures, freed),
            }
            batch.tenures.iter().for_each(|tenure| batch.keeper.tell_if_gone(tenure));
        }
    }

    fn free(&self, batch: &Batch, tenures: &[Arc<Tenure>]) -> Result<()> {
        if self.left.lock().silent.contains(&batch.server) || self.clock.now() >= self.until {
            let cause = Cause::new("it was not asked to free it, for want of time");
            return Err(Error::Unavailable { resource: tenures[0].key().resource().to_owned(), cause });
        }
        batch.keeper.sweep_all(tenures)
    }

    fn note(&self, batch: &Batch, tenures: &[Arc<Tenure>], freed: Result<()>) {
        if let Err(error) = freed {
            self.left.lock().note(batch, tenures, error);
        }
    }
}

impl Unfreed {
    fn note(&mut self, batch: &Batch, tenures: &[Arc<Tenure>], error: Error) {
        self.count += tenures.len();
        self.silent.extend(error.is_retryable().then_some(batch.server));
        self.first.get_or_insert_with(|| (batch.keeper.whereabouts(&tenures[0]), error));
    }

    fn say(self) {
        if let (count, Some((lock, error))) = (self.count, self.first) {
            say!(warn, "at shutdown {count} lock(s), {lock} first, may stay until their leases end: {error}");
        }
    }
}
