//! Freeing all that a client holds when it is shut down: in batches, on several connections.

use crate::base::error::{Cause, Error, Result};
use crate::base::say::say;
use crate::base::time::{Clock, Moment};
use crate::lease::hold::Hold;
use crate::lease::tenure::{Keeper, Tenure};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// At most so many keys in one command, so that the server is not busy for long with any.
const BATCH: usize = 100;

/// More connections at once do not free faster: the server executes one script at a time.
const AT_ONCE: usize = 4;

/// What one command frees.
type Batch = (Arc<dyn Keeper>, Vec<Arc<Tenure>>);

/// The batches, and how far the threads that free them are.
struct Closing {
    batches: Vec<Batch>,
    next: AtomicUsize,
    left: Mutex<Left>,
    clock: Clock,
    until: Moment,
}

/// What could not be freed, of which lock first, and why.
#[derive(Default)]
struct Left {
    count: usize,
    first: Option<(String, Error)>,
    /// The server did not answer, or cannot serve now: it is not asked for the rest.
    silent: bool,
}

/// Frees the keys of these holds, whose tenures have ended; says what may stay. As long as the server answers it goes
/// on until `until`; without an answer it ends with the attempts under way.
pub(super) fn free_all(holds: &[Hold], connections: usize, clock: &Clock, until: Moment) {
    let batches = batches_of(holds);
    let helpers = connections.min(AT_ONCE).min(batches.len()).saturating_sub(1);
    let clock = clock.clone();
    let closing = Closing { batches, next: AtomicUsize::new(0), left: Mutex::default(), clock, until };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            let helper = std::thread::Builder::new().name("redlatch-closing".to_owned());
            // Without a thread the others do its share.
            let _ = helper.spawn_scoped(scope, || closing.work());
        }
        closing.work();
    });
    closing.left.into_inner().say();
}

/// Those of one keeper go together. A hold whose client is gone has none.
fn batches_of(holds: &[Hold]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for hold in holds {
        let Some(keeper) = hold.keeper() else { continue };
        let tenure = Arc::clone(hold.tenure());
        let fits = |(of, batch): &&mut Batch| Arc::ptr_eq(of, &keeper) && batch.len() < BATCH;
        match batches.iter_mut().rev().find(fits) {
            Some((_, batch)) => batch.push(tenure),
            None => batches.push((keeper, vec![tenure])),
        }
    }
    batches
}

impl Closing {
    fn work(&self) {
        while let Some((keeper, tenures)) = self.batches.get(self.next.fetch_add(1, SeqCst)) {
            match self.free(&**keeper, tenures) {
                // One key may be refused to us: that is no reason to leave the others.
                Err(error @ Error::Refused { .. }) if !error.is_retryable() => {
                    tenures.chunks(1).for_each(|one| self.note(&**keeper, one, self.free(&**keeper, one)))
                }
                freed => self.note(&**keeper, tenures, freed),
            }
        }
    }

    fn free(&self, keeper: &dyn Keeper, tenures: &[Arc<Tenure>]) -> Result<()> {
        if self.left.lock().silent || self.clock.now() >= self.until {
            let cause = Cause::new("it was not asked to free it, for want of time");
            return Err(Error::Unavailable { resource: tenures[0].key().resource().to_owned(), cause });
        }
        keeper.sweep_all(tenures)
    }

    fn note(&self, keeper: &dyn Keeper, tenures: &[Arc<Tenure>], freed: Result<()>) {
        if let Err(error) = freed {
            self.left.lock().note(tenures.len(), || keeper.whereabouts(&tenures[0]), error);
        }
    }
}

impl Left {
    fn note(&mut self, count: usize, lock: impl FnOnce() -> String, error: Error) {
        self.count += count;
        self.silent |= error.is_retryable();
        self.first.get_or_insert_with(|| (lock(), error));
    }

    fn say(self) {
        if let (count, Some((lock, error))) = (self.count, self.first) {
            say!(warn, "at shutdown {count} lock(s), {lock} first, may stay until their leases end: {error}");
        }
    }
}
