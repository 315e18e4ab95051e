//! The contract of a kind with the engine: what one command does at its store.

use super::waiting::queue::{Manner, Queue};
use crate::base::key::Key;
use crate::base::lives::Life;
use crate::base::say::say;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment};
use crate::lease::tenure::Tenure;
use crate::store::node::{Failure, Lane, Limits};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use super::waiting::Take;

/// What an attempt to take several locks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeAll {
    /// All locks are their tenures', by the command that was sent at this moment.
    Acquired(Moment),
    /// Another owner has the lock with this index, and none was taken.
    Busy(usize),
    /// No command can take them together now: some are at this node and some elsewhere.
    Apart,
}

/// For each tenure, when the renewal that found it in the store was sent: not all may have gone by one command. `None`:
/// it was not there. `Err`: why that is not known.
pub(crate) type Renewed = Vec<Result<Option<Moment>, Failure>>;

/// What one command does to several locks at once. The contract is that of [`Primitive`], for each of the tenures.
pub(crate) trait GroupPrimitive {
    /// Takes all of the locks for their tenures, or none.
    fn take_all(&self, tenures: &[Arc<Tenure>], lease: Lease, limits: Limits<'_>) -> Result<TakeAll, Failure>;

    /// Frees all; returns for each whether its tenure was in the store.
    fn release_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Vec<Result<bool, Failure>>;
}

/// What one command does at the store of a kind. Each method makes one attempt and never repeats it.
///
/// The contract: every method is idempotent for the same tenure and count, and answers by `answer_by` (a command once
/// sent gets 200 ms beyond it). It reports as [`Failure::Unknown`] whatever may have been executed unanswered.
///
/// A method that a kind could forget to hand on has no default, so the compiler asks each kind for it.
pub(crate) trait Primitive: Send + Sync {
    /// Takes the lock for the tenure, or confirms that the tenure has it. If a kind ends a tenure that it could not
    /// take, the next attempt gets a tenure with a new owner id.
    ///
    /// A kind with a [queue](Self::queue) gives a free lock to the first in the queue. For a try only a queue of threads does so.
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, manner: Manner<'_>, limits: Limits<'_>)
    -> Result<Take, Failure>;

    /// Writes the count and prolongs; `None` if the tenure is not in the store.
    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure>;

    /// Prolongs all.
    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure>;

    /// Writes the count that is left, and frees the lock at zero; returns whether the tenure was in the store.
    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure>;

    /// Frees what the store may still have of a tenure that is over.
    fn sweep(&self, tenure: &Arc<Tenure>, answer_by: Moment) -> Result<(), Failure> {
        self.release(tenure, 0, answer_by).map(drop)
    }

    /// The same for several tenures, until one fails.
    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure>;

    /// Frees the lock, whoever has it; returns whether anyone had it, and which life of the server says so.
    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure>;

    /// How to take and free several locks by one command, if the store can.
    fn group(&self) -> Option<&dyn GroupPrimitive>;

    /// `None`: free. `Some(None)`: locked without an end.
    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure>;

    /// The queue, if the kind has one. Its waiters listen through it.
    fn queue(&self, key: &Key) -> Option<&Queue>;

    /// Releases the semaphore whenever the lock may have become free. `None`: no messages will come, so poll.
    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>>;
}

/// Logs why there is no place at a subscriber.
pub(super) fn heard(listening: io::Result<Box<dyn Listening>>) -> Option<Box<dyn Listening>> {
    listening.inspect_err(|error| say!(warn, "no thread for the subscriber, waiters poll: {error}")).ok()
}
