//! The contract of a kind with the engine: what one command does at its store.

use crate::backend::{Failure, Lane};
use crate::hold::Hold;
use crate::key::Key;
use crate::pubsub::Subscription;
use crate::signal::Semaphore;
use crate::tenure::Tenure;
use crate::time::{Lease, Moment};
use std::sync::Arc;
use std::time::Duration;

/// What an attempt to take the lock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The lock is the tenure's, by the command that was sent then.
    Acquired(Moment),
    /// Someone else's, for so long by what the store knows; `None`: without an end.
    Busy(Option<Duration>),
}

/// How an attempt to acquire ended.
pub(crate) enum Taken {
    Held(Hold),
    /// Acquired, but not to be believed: try again with a new owner id.
    Disbelieved,
    Busy(Option<Duration>),
}

/// What an attempt to take several locks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeAll {
    /// All are their tenures', by the command that was sent then.
    Acquired(Moment),
    /// The one with this index is someone else's, and none was taken.
    Busy(usize),
}

/// When a renewal was sent, and for each tenure whether it was in the store, or why that is not known.
pub(crate) type Renewed = (Moment, Vec<Result<bool, Failure>>);

/// A waiter's place where unlocks are told; given up when dropped.
pub(crate) trait Listening: Send {
    /// Whether an unlock from now on will be heard.
    fn is_confirmed(&self) -> bool;
}

impl Listening for Subscription {
    fn is_confirmed(&self) -> bool {
        self.is_confirmed()
    }
}

/// What one command does to several locks at once. The contract is that of [`Primitive`], for each of the tenures.
pub(crate) trait GroupPrimitive {
    /// Takes all of the locks for their tenures, or none.
    fn take_all(&self, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<TakeAll, Failure>;

    /// Frees all; for each whether its tenure was in the store.
    fn release_all(&self, tenures: &[Arc<Tenure>], until: Moment) -> Result<Vec<bool>, Failure>;
}

/// What one command does at the store of a kind. Each method makes one attempt and never repeats it.
///
/// The contract: every method is idempotent for the same tenure and count, answers by `until` (a command once
/// sent gets 200 ms beyond it), and reports as [`Failure::Unknown`] whatever may have been executed unanswered.
pub(crate) trait Primitive: Send + Sync {
    /// Takes the lock for the tenure, or confirms that it has it. A kind that ends a tenure which it could not take
    /// gets one with a new owner id for the next attempt.
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, until: Moment) -> Result<Take, Failure>;

    /// Writes the count and prolongs; `None` when the tenure is not in the store.
    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        until: Moment,
    ) -> Result<Option<Moment>, Failure>;

    /// Prolongs all.
    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<Renewed, Failure>;

    /// Writes the count that is left, and frees the lock at zero; whether the tenure was in the store.
    fn release(&self, tenure: &Arc<Tenure>, left: usize, until: Moment) -> Result<bool, Failure>;

    /// Frees what may still be there of a tenure that is over.
    fn sweep(&self, tenure: &Arc<Tenure>, until: Moment) -> Result<(), Failure> {
        self.release(tenure, 0, until).map(drop)
    }

    /// Frees the lock, whoever has it; whether anyone had.
    fn force_unlock(&self, key: &Key, until: Moment) -> Result<bool, Failure>;

    /// How to take and free several locks by one command, where the store can.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    /// Where the store is, as far as that is known; the same for every client of it.
    fn place(&self) -> String {
        String::new()
    }

    /// `None`: free. `Some(None)`: locked without an end.
    fn time_to_live(&self, key: &Key, until: Moment) -> Result<Option<Option<Duration>>, Failure>;

    /// Whether every holder is of this process: then the registry tells of each unlock.
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// Releases the semaphore whenever the lock may have become free. `None`: nobody tells, so poll.
    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>>;

    /// What the last attempt that failed met, whoever made it.
    fn last_failure(&self) -> Option<Failure>;

    /// When calls without a deadline of their own give up.
    fn outage_ends(&self, now: Moment) -> Moment;
}
