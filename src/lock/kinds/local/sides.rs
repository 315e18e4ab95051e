//! [`LocalReadWriteLock`]: readers together or a writer alone, in memory.

use super::{AlwaysThere, LocalRedLock, OpenSpace, space_in_memory};
use crate::base::config::HandOff;
use crate::base::key::{Key, Side};
use crate::base::kind::Kind;
use crate::base::lives::Life;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::client::Space;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::lock::engine::Engine;
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::registry::{current_thread, registry};
use crate::store::node::{Failure, Lane, Limits};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// There is no server to be spared, so each reader has a tenure of its own: the loss of one is no loss of another.
static READ: Kind = Kind {
    passed_on: false,
    shared: true,
    goes_with: Some(&WRITE),
    is_of_this_process: true,
    ..Kind::new("local read lock")
};

static WRITE: Kind =
    Kind { passed_on: false, leaves_marks: true, is_of_this_process: true, ..Kind::new("local write lock") };

/// A [`ReadWriteLock`](crate::ReadWriteLock) without a server: any number of threads may [`read`](Self::read) at the same time,
/// or one may [`write`](Self::write) alone.
///
/// Its rules are the same. A thread that writes may read, and may go on reading after it unlocked the write side. A thread that reads
/// and asks to write gets an [`Error::Config`](crate::Error::Config) at once. Neither readers nor writers starve. Each instance is a
/// namespace of its own, shared by its clones. Each side is a [`LocalRedLock`] without tokens: a test can plan [what goes
/// wrong](LocalRedLock#testing-what-goes-wrong) with it.
///
/// ```
/// use redlatch::{LocalReadWriteLock, RedLock, RedLockExt};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// What is tested: in production it is given the sides of a `ReadWriteLock`.
/// struct Prices<'l> {
///     read: &'l dyn RedLock,
///     write: &'l dyn RedLock,
///     milk: AtomicU64,
/// }
///
/// impl Prices<'_> {
///     fn milk(&self) -> redlatch::Result<u64> {
///         self.read.execute_in_lock("prices", || self.milk.load(Relaxed))
///     }
///
///     fn raise(&self) -> redlatch::Result<()> {
///         self.write.execute_in_lock("prices", || self.milk.store(self.milk.load(Relaxed) + 1, Relaxed))
///     }
/// }
///
/// let locks = LocalReadWriteLock::new();
/// let prices = Prices { read: locks.read(), write: locks.write(), milk: AtomicU64::new(99) };
/// prices.raise()?;
/// assert_eq!(prices.milk()?, 100);
///
/// locks.write().busy_next("prices");
/// assert!(!locks.write().try_lock("prices")?);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LocalReadWriteLock {
    read: LocalRedLock,
    write: LocalRedLock,
}

impl LocalReadWriteLock {
    /// A new, empty namespace.
    #[must_use]
    pub fn new() -> Self {
        let space = space_in_memory(HandOff::off());
        let (open, locks) = (Arc::new(OpenSpace(Arc::clone(&space))), Arc::<Locks>::default());
        let of = |side, kind| {
            let of_side = Arc::new(OfSide { side, locks: Arc::clone(&locks), space: Arc::clone(&space) });
            let engine = Engine::new(Arc::clone(&space), kind, of_side, Arc::new(AlwaysThere));
            LocalRedLock::by(engine, Arc::clone(&open))
        };
        Self { read: of(Side::Read, &READ), write: of(Side::Write, &WRITE) }
    }

    /// The side of readers.
    #[must_use]
    pub fn read(&self) -> &LocalRedLock {
        &self.read
    }

    /// The side of the writer.
    #[must_use]
    pub fn write(&self) -> &LocalRedLock {
        &self.write
    }
}

impl Default for LocalReadWriteLock {
    fn default() -> Self {
        Self::new()
    }
}

/// How long readers that waited come before the next writer.
const TURN: Duration = Duration::from_millis(10);

/// The owners that have a side, and when the lease of each ends.
type Holders = HashMap<String, Moment>;

/// One lock: who has it, and who comes next.
struct Lock {
    readers: Holders,
    writer: Holders,
    /// A writer that waits for readers: it keeps new ones out.
    next_writer: Option<String>,
    readers_wait: bool,
    /// Until when readers that waited for a writer come before the next one.
    turn: Moment,
}

impl Default for Lock {
    fn default() -> Self {
        let (readers, writer) = (Holders::new(), Holders::new());
        Self { readers, writer, next_writer: None, readers_wait: false, turn: Moment(0) }
    }
}

impl Lock {
    fn of(&mut self, side: Side) -> &mut Holders {
        if side == Side::Write { &mut self.writer } else { &mut self.readers }
    }

    fn end_of(&self, side: Side) -> Option<Moment> {
        let holders = if side == Side::Write { &self.writer } else { &self.readers };
        holders.values().max().copied()
    }

    fn expire(&mut self, now: Moment) {
        self.readers.retain(|_, ends| *ends > now);
        self.writer.retain(|_, ends| *ends > now);
    }

    fn is_idle(&self, now: Moment) -> bool {
        self.readers.is_empty() && self.writer.is_empty() && self.next_writer.is_none() && self.turn <= now
    }

    /// When a reader that does not write should look again; `None`: it may come in.
    fn keeps_reader_out(&mut self, waits: bool, now: Moment) -> Option<Moment> {
        let is_marked = self.next_writer.is_some() && self.turn <= now;
        let of_mark = || is_marked.then(|| self.end_of(Side::Read).unwrap_or(now.plus(TURN)));
        let until = self.end_of(Side::Write).or_else(of_mark);
        self.readers_wait |= waits && until.is_some();
        until
    }

    /// The same for a writer. One that waits minds the readers' turn, else keeps new readers out. A try does neither.
    fn keeps_writer_out(&mut self, owner: &str, waits: bool, now: Moment) -> Option<Moment> {
        let turn = Some(self.turn).filter(|turn| waits && *turn > now);
        if let Some(until) = self.end_of(Side::Write) {
            return Some(until);
        }
        let until = self.end_of(Side::Read);
        if waits && turn.is_none() && until.is_some() {
            self.next_writer = Some(owner.to_owned());
        }
        until.into_iter().chain(turn).min()
    }

    /// An owner gives its side up, or its wait for it. Returns whether it had it.
    fn free(&mut self, side: Side, owner: &str, now: Moment) -> bool {
        let held = self.of(side).remove(owner).is_some();
        self.next_writer.take_if(|next| *next == owner);
        if held && side == Side::Write && std::mem::take(&mut self.readers_wait) {
            self.turn = now.plus(TURN);
        }
        held
    }
}

#[derive(Default)]
struct Locks {
    locks: Mutex<HashMap<String, Lock>>,
}

impl Locks {
    /// Runs `act` on a lock after leases that ran out were removed.
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Lock, Moment) -> T) -> T {
        let now = Clock::Boot.now();
        let mut locks = self.locks.lock();
        let lock = locks.entry(key.full().to_owned()).or_default();
        lock.expire(now);
        let result = act(lock, now);
        if lock.is_idle(now) {
            locks.remove(key.full());
        }
        result
    }
}

/// One side of the locks.
struct OfSide {
    side: Side,
    locks: Arc<Locks>,
    space: Arc<Space>,
}

impl OfSide {
    /// The write hold of the current thread, which lets it read.
    fn proof(&self, key: &Key) -> Option<Hold> {
        registry().find(self.space.ground(false), key.full(), current_thread()).filter(Hold::is_valid)
    }

    fn keeps_out(&self, tenure: &Tenure, waits: bool, lock: &mut Lock, now: Moment) -> Option<Moment> {
        if self.side == Side::Write {
            return lock.keeps_writer_out(tenure.owner(), waits, now);
        }
        let writes = self.proof(tenure.key()).is_some_and(|hold| lock.writer.contains_key(hold.owner()));
        if writes { None } else { lock.keeps_reader_out(waits, now) }
    }

    /// Something may be free: the waiters of both sides look.
    fn tell(&self, key: &Key) {
        [false, true].iter().for_each(|shared| registry().wake(self.space.ground(*shared), key.full()));
    }
}

impl Primitive for OfSide {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, manner: Manner<'_>, _: Limits<'_>) -> Result<Take, Failure> {
        let waits = !matches!(manner, Manner::Try);
        self.locks.with(tenure.key(), |lock, now| {
            if let Some(until) = self.keeps_out(tenure, waits, lock, now) {
                return Ok(Take::Busy(Some(until.since(now))));
            }
            lock.of(self.side).insert(tenure.owner().to_owned(), now.plus(lease.span()));
            lock.next_writer.take_if(|next| *next == tenure.owner());
            Ok(Take::Acquired(now))
        })
    }

    fn reenter(&self, tenure: &Arc<Tenure>, _: usize, lease: Lease, _: Limits<'_>) -> Result<Option<Moment>, Failure> {
        self.locks.with(tenure.key(), |lock, now| {
            let ends = lock.of(self.side).get_mut(tenure.owner());
            Ok(ends.map(|ends| {
                *ends = now.plus(lease.span()).max(*ends);
                now
            }))
        })
    }

    fn renew(&self, _: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let limits = Limits::of_lease(lease, answer_by);
        Ok(tenures.iter().map(|tenure| self.reenter(tenure, 0, lease, limits)).collect())
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, _: Moment) -> Result<bool, Failure> {
        let (key, owner) = (tenure.key(), tenure.owner());
        if left > 0 {
            return Ok(self.locks.with(key, |lock, _| lock.of(self.side).contains_key(owner)));
        }
        let held = self.locks.with(key, |lock, now| lock.free(self.side, owner, now));
        self.tell(key);
        Ok(held)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, _: Moment) -> Result<(bool, Life), Failure> {
        let holders = self.locks.with(key, |lock, _| std::mem::take(lock.of(self.side)));
        self.tell(key);
        Ok((!holders.is_empty(), Life::ONLY))
    }

    fn time_to_live(&self, key: &Key, _: Moment) -> Result<Option<Option<Duration>>, Failure> {
        Ok(self.locks.with(key, |lock, now| lock.end_of(self.side).map(|ends| Some(ends.since(now)))))
    }

    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, _: &Key, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment(0).plus(Duration::from_millis(millis))
    }

    /// A writer that has just released asks again before the reader that it woke can come.
    #[test]
    fn readers_that_waited_come_before_the_next_writer() {
        let mut lock = Lock::default();
        lock.writer.insert("one".to_owned(), at(1_000));
        assert_eq!(lock.keeps_reader_out(true, at(1)), Some(at(1_000)));
        assert!(lock.free(Side::Write, "one", at(2)));
        assert_eq!(lock.keeps_writer_out("two", true, at(3)), Some(at(12)));
        assert_eq!(lock.keeps_writer_out("three", false, at(3)), None, "a try minds no turn");
        assert_eq!(lock.keeps_reader_out(true, at(3)), None);
        lock.readers.insert("reader".to_owned(), at(1_000));
        assert_eq!(lock.keeps_writer_out("two", true, at(4)), Some(at(12)), "to leave its mark then");
        assert_eq!(lock.keeps_reader_out(true, at(5)), None);
        assert_eq!(lock.keeps_writer_out("two", true, at(12)), Some(at(1_000)));
        assert_eq!(lock.keeps_reader_out(true, at(13)), Some(at(1_000)), "the turn is over, and a writer waits");
        assert!(!lock.free(Side::Write, "two", at(14)));
        assert_eq!(lock.keeps_reader_out(true, at(15)), None, "it waits no more");
    }

    /// Names come and go.
    #[test]
    fn nothing_is_kept_of_a_lock_that_nobody_has() {
        let known = Locks::default();
        let key = Key::new(crate::base::key::Naming::default(), "", "n");
        known.with(&key, |lock, now| lock.readers.insert("one".to_owned(), now.plus(TURN)));
        assert_eq!(known.locks.lock().len(), 1);
        known.with(&key, |lock, now| lock.free(Side::Read, "one", now));
        assert_eq!(known.locks.lock().len(), 0);
    }
}
