//! [`LocalRedLock`]: the same trait in memory, for unit tests and single-process use.

use super::RedLock;
use super::engine::Engine;
use super::patience::Terms;
use super::primitive::{Listening, Primitive, Renewed, Take};
use super::wait;
use crate::backend::{Failure, Lane};
use crate::client::Space;
use crate::config::{HandOff, Settings};
use crate::error::Result;
use crate::hold::Hold;
use crate::key::Key;
use crate::signal::Semaphore;
use crate::tenure::Tenure;
use crate::time::{Clock, Lease, Moment};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

/// The same lock without a server: leases, re-entry, waiting, losses and errors are as on Redis.
///
/// Each instance is a namespace of its own, shared by its clones. The watchdog's lease is 30 s. There is no client,
/// so no settings, callback or stats. To test what your code does when a lock is lost, call
/// [`force_unlock`](RedLock::force_unlock); for [`Error::Unavailable`](crate::Error::Unavailable) use a client on a
/// port where nobody listens, with a short [`outage_budget`](crate::ClientBuilder::outage_budget).
///
/// ```
/// use redlatch::{LocalRedLock, RedLock, RedLockExt};
///
/// fn reserve(locks: &dyn RedLock, stock: &mut u32) -> redlatch::Result<()> {
///     locks.execute_in_lock("stock:7", || *stock -= 1)
/// }
///
/// let mut stock = 3;
/// reserve(&LocalRedLock::new(), &mut stock)?;
/// assert_eq!(stock, 2);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
pub struct LocalRedLock {
    handle: Arc<Handle>,
}

struct Handle {
    engine: Arc<Engine>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.space.close();
    }
}

impl LocalRedLock {
    /// A new, empty namespace.
    #[must_use]
    pub fn new() -> Self {
        let engine = engine_in_memory(HandOff::default());
        Self { handle: Arc::new(Handle { engine }) }
    }
}

impl Default for LocalRedLock {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for LocalRedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalRedLock").field("id", &self.handle.engine.space.id).finish_non_exhaustive()
    }
}

impl RedLock for LocalRedLock {
    fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        wait::acquire(&self.handle.engine, resource, terms)
    }

    fn release(&self, hold: &Hold) -> Result<()> {
        self.handle.engine.release(hold)
    }

    fn verify(&self, hold: &Hold) -> Result<bool> {
        self.handle.engine.verify(hold)
    }

    fn hold_of(&self, resource: &str, thread: ThreadId) -> Option<Hold> {
        self.handle.engine.hold_of(resource, thread)
    }

    fn force_unlock(&self, resource: &str) -> Result<bool> {
        self.handle.engine.force_unlock(resource)
    }

    fn is_locked(&self, resource: &str) -> Result<bool> {
        self.handle.engine.is_locked(resource)
    }

    fn remaining_time_to_live(&self, resource: &str) -> Result<Option<Duration>> {
        self.handle.engine.remaining_time_to_live(resource)
    }

    fn unlock(&self, resource: &str) -> Result<()> {
        self.handle.engine.unlock(resource)
    }
}

/// The engine of such a lock, which passes it on in this way.
pub(super) fn engine_in_memory(hand_off: HandOff) -> Arc<Engine> {
    let settings = Settings { hand_off, ..Settings::default() };
    let config = settings.derive().unwrap_or_else(|error| unreachable!("the defaults fit: {error}"));
    Engine::new(Arc::new(Space::new(config, Arc::default(), None)), Arc::new(Memory::default()))
}

/// What a server keeps: who has each lock, and until when.
#[derive(Default)]
struct Memory {
    locks: Mutex<HashMap<String, Kept>>,
}

struct Kept {
    owner: String,
    until: Moment,
}

impl Memory {
    /// Runs `act` on a lock that is kept and has not run out.
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut HashMap<String, Kept>, Moment) -> T) -> T {
        let now = Clock::Boot.now();
        let mut locks = self.locks.lock();
        if locks.get(key.full()).is_some_and(|kept| kept.until <= now) {
            locks.remove(key.full());
        }
        act(&mut locks, now)
    }
}

fn end_of(lease: Lease, now: Moment) -> Moment {
    now.plus(Duration::from_millis(lease.millis()))
}

impl Primitive for Memory {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, _: Moment) -> Result<Take, Failure> {
        self.with(tenure.key(), |locks, now| match locks.get(tenure.key().full()) {
            Some(kept) => Ok(Take::Busy(Some(kept.until.since(now)))),
            None => {
                let kept = Kept { owner: tenure.owner().to_owned(), until: end_of(lease, now) };
                locks.insert(tenure.key().full().to_owned(), kept);
                Ok(Take::Acquired(now))
            }
        })
    }

    fn reenter(&self, tenure: &Arc<Tenure>, _: usize, lease: Lease, _: Moment) -> Result<Option<Moment>, Failure> {
        self.with(tenure.key(), |locks, now| {
            let kept = locks.get_mut(tenure.key().full()).filter(|kept| kept.owner == tenure.owner());
            Ok(kept.map(|kept| {
                kept.until = kept.until.max(end_of(lease, now));
                now
            }))
        })
    }

    fn renew(&self, _: Lane, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<Renewed, Failure> {
        let sent = Clock::Boot.now();
        let renewed = tenures.iter().map(|tenure| self.reenter(tenure, 0, lease, until).map(|held| held.is_some()));
        Ok((sent, renewed.collect()))
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, _: Moment) -> Result<bool, Failure> {
        self.with(tenure.key(), |locks, _| {
            let held = locks.get(tenure.key().full()).is_some_and(|kept| kept.owner == tenure.owner());
            if held && left == 0 {
                locks.remove(tenure.key().full());
            }
            Ok(held)
        })
    }

    fn force_unlock(&self, key: &Key, _: Moment) -> Result<bool, Failure> {
        self.with(key, |locks, _| Ok(locks.remove(key.full()).is_some()))
    }

    fn time_to_live(&self, key: &Key, _: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.with(key, |locks, now| Ok(locks.get(key.full()).map(|kept| Some(kept.until.since(now)))))
    }

    fn is_of_this_process(&self) -> bool {
        true
    }

    fn listen(&self, _: &Key, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        None
    }

    fn last_failure(&self) -> Option<Failure> {
        None
    }

    fn outage_ends(&self, _: Moment) -> Moment {
        Moment::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn fault_49_a_count_at_its_end_is_an_error_and_stays() {
        let locks = LocalRedLock::new();
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        hold.deepen(usize::MAX, false);
        assert!(matches!(locks.lock("n"), Err(Error::Config { .. })));
        assert_eq!(hold.count(), usize::MAX);
        assert!(hold.is_valid());
    }
}
