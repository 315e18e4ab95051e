//! The `ThreadEntry` map: who in this process holds what, and who waits behind them.
//!
//! One map for the whole process, in shards, keyed by namespace (a client, or a lock in memory) and full key.
//! No lock of a shard is ever held across I/O.

use crate::hold::Hold;
use crate::signal::Semaphore;
use crate::tenure::{Standing, Tenure};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// What this process knows of one lock.
///
/// While `hold` is occupied nobody of this process contends on the wire. Otherwise `head` does, alone, and the
/// others are parked behind it in order of arrival. A release promotes the first of them; passing the tenure
/// on to it in memory, without the wire, would take the place of that promotion.
#[derive(Default)]
struct ThreadEntry {
    /// The hold in force, or one whose end was not noticed yet.
    hold: Option<Hold>,
    /// Lost holds with levels still to be unlocked, beside whatever came after them.
    lost: Vec<Hold>,
    /// The waiter that contends on the wire.
    head: Option<Arc<Waiter>>,
    parked: VecDeque<Arc<Waiter>>,
}

/// One call that waits for a lock.
#[derive(Default)]
pub(crate) struct Waiter {
    /// Released when it should look again, for whatever reason.
    pub(crate) semaphore: Arc<Semaphore>,
}

/// What a call finds when it comes to a lock.
pub(crate) enum Entered {
    /// The current thread holds it, or lost it and has not unlocked it yet.
    Mine(Hold),
    /// Another thread of this process surely holds it.
    Sibling,
    /// The caller is the one that contends on the wire.
    Head,
    /// The caller is queued behind others of this process.
    Parked,
}

impl ThreadEntry {
    fn of(&self, thread: ThreadId) -> Option<&Hold> {
        self.lost.iter().chain(&self.hold).find(|hold| hold.thread() == thread)
    }

    /// Held, or being released right now: whoever contended would only find it busy.
    fn is_occupied(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| {
            matches!(hold.tenure().standing(), Standing::Held | Standing::Suspect | Standing::Ended)
        })
    }

    /// Lets the next waiter contend, once the lock is not occupied and nobody does.
    fn promote(&mut self) {
        if self.head.is_none() && !self.is_occupied() {
            self.head = self.parked.pop_front();
            self.wake_head();
        }
    }

    /// The lock may be free: whoever contends should look.
    fn wake_head(&self) {
        if let Some(head) = &self.head {
            head.semaphore.release();
        }
    }

    fn is_head(&self, waiter: &Arc<Waiter>) -> bool {
        self.head.as_ref().is_some_and(|head| Arc::ptr_eq(head, waiter))
    }

    fn is_empty(&self) -> bool {
        self.hold.is_none() && self.lost.is_empty() && self.head.is_none() && self.parked.is_empty()
    }

    /// Takes the hold in force out of the way; it is kept while its thread still has to unlock it.
    fn retire(&mut self) {
        self.lost.extend(self.hold.take().filter(|hold| hold.count() > 0 && !hold.is_orphan()));
    }
}

#[derive(PartialEq, Eq, Hash)]
struct EntryKey {
    space: Uuid,
    key: String,
}

/// Finds an [`EntryKey`] by a borrowed key, so that a look-up does not allocate.
trait Place {
    fn place(&self) -> (Uuid, &str);
}

impl Place for EntryKey {
    fn place(&self) -> (Uuid, &str) {
        (self.space, &self.key)
    }
}

impl Place for (Uuid, &str) {
    fn place(&self) -> (Uuid, &str) {
        *self
    }
}

impl<'a> Borrow<dyn Place + 'a> for EntryKey {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

impl PartialEq for dyn Place + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn Place + '_ {}

/// Must agree with the derived `Hash` of [`EntryKey`]: the fields in their order.
impl Hash for dyn Place + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (space, key) = self.place();
        space.hash(state);
        key.hash(state);
    }
}

type Shard = Mutex<HashMap<EntryKey, ThreadEntry>>;

/// The process-wide map.
pub(crate) struct Registry {
    shards: Vec<Shard>,
}

const SHARDS: usize = 64;

static REGISTRY: Lazy<Registry> =
    Lazy::new(|| Registry { shards: std::iter::repeat_with(Shard::default).take(SHARDS).collect() });

/// The map of this process.
pub(crate) fn registry() -> &'static Registry {
    &REGISTRY
}

impl Registry {
    fn shard(&self, space: Uuid, key: &str) -> &Shard {
        let mut hasher = DefaultHasher::new();
        (space, key).hash(&mut hasher);
        &self.shards[hasher.finish() as usize % SHARDS]
    }

    /// Runs `act` on the entry, which is made if missing and removed if nothing is left in it.
    fn with<T>(&self, space: Uuid, key: &str, act: impl FnOnce(&mut ThreadEntry) -> T) -> T {
        let mut shard = self.shard(space, key).lock();
        let place = (space, key);
        let Some(entry) = shard.get_mut::<dyn Place>(&place) else {
            let mut entry = ThreadEntry::default();
            let result = act(&mut entry);
            if !entry.is_empty() {
                shard.insert(EntryKey { space, key: key.to_owned() }, entry);
            }
            return result;
        };
        let result = act(entry);
        if entry.is_empty() {
            shard.remove::<dyn Place>(&place);
        }
        result
    }

    /// Looks without making an entry or allocating.
    fn look<T>(&self, space: Uuid, key: &str, see: impl FnOnce(&ThreadEntry) -> Option<T>) -> Option<T> {
        let shard = self.shard(space, key).lock();
        let place = (space, key);
        shard.get::<dyn Place>(&place).and_then(see)
    }

    /// The hold of a thread, also a lost one that it has not unlocked yet.
    pub(crate) fn find(&self, space: Uuid, key: &str, thread: ThreadId) -> Option<Hold> {
        self.look(space, key, |entry| entry.of(thread).cloned())
    }

    /// The hold in force, whichever thread has it.
    pub(crate) fn current(&self, space: Uuid, key: &str) -> Option<Hold> {
        self.look(space, key, |entry| entry.hold.clone())
    }

    /// Comes to a lock without waiting: what can be said without the wire; `None` means ask the server.
    pub(crate) fn glance(&self, space: Uuid, key: &str) -> Option<Entered> {
        let thread = std::thread::current().id();
        self.look(space, key, |entry| match entry.of(thread) {
            Some(hold) => Some(Entered::Mine(hold.clone())),
            None => entry.hold.as_ref().filter(|hold| hold.is_valid()).map(|_| Entered::Sibling),
        })
    }

    /// Comes to a lock to wait for it.
    pub(crate) fn enter(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) -> Entered {
        let thread = std::thread::current().id();
        self.with(space, key, |entry| {
            if let Some(hold) = entry.of(thread) {
                return Entered::Mine(hold.clone());
            }
            if entry.head.is_none() && entry.parked.is_empty() && !entry.is_occupied() {
                entry.head = Some(Arc::clone(waiter));
                return Entered::Head;
            }
            entry.parked.push_back(Arc::clone(waiter));
            entry.promote();
            if entry.is_head(waiter) { Entered::Head } else { Entered::Parked }
        })
    }

    /// Whether a parked waiter is the one that contends now. Also notices what ended without anyone telling.
    pub(crate) fn is_head(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) -> bool {
        self.with(space, key, |entry| {
            entry.promote();
            entry.is_head(waiter)
        })
    }

    /// The waiter stops waiting, with or without the lock; the next one contends if it may.
    pub(crate) fn leave(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) {
        self.with(space, key, |entry| {
            if entry.is_head(waiter) {
                entry.head = None;
                entry.promote();
            } else {
                entry.parked.retain(|parked| !Arc::ptr_eq(parked, waiter));
            }
        });
    }

    /// A thread acquired the lock.
    pub(crate) fn settle(&self, space: Uuid, key: &str, hold: &Hold) {
        count_holds(1);
        self.with(space, key, |entry| {
            entry.retire();
            entry.hold = Some(hold.clone());
        });
    }

    /// The outermost level of a hold is gone.
    pub(crate) fn clear(&self, space: Uuid, hold: &Hold) {
        if hold.thread() == std::thread::current().id() {
            count_holds(-1);
        }
        self.with(space, hold.tenure().key().full(), |entry| {
            entry.lost.retain(|lost| !lost.is(hold));
            if entry.hold.as_ref().is_some_and(|current| current.is(hold)) {
                entry.hold = None;
            }
            entry.wake_head();
            entry.promote();
        });
    }

    /// A tenure was lost: its hold is out of the way of the next one. Returns that hold to the first who asks, found
    /// and told under one lock, so that nobody clears it in between.
    pub(crate) fn lose(&self, space: Uuid, tenure: &Arc<Tenure>) -> Option<Hold> {
        self.with(space, tenure.key().full(), |entry| {
            let of_tenure = |hold: &&Hold| Arc::ptr_eq(hold.tenure(), tenure);
            let hold = entry.lost.iter().chain(&entry.hold).find(of_tenure).cloned();
            if entry.hold.as_ref().is_some_and(|current| of_tenure(&current)) {
                entry.retire();
            }
            entry.wake_head();
            entry.promote();
            hold.filter(|_| tenure.tell_once())
        })
    }

    /// Something may have changed: the waiter that contends should look.
    pub(crate) fn wake(&self, space: Uuid, key: &str) {
        if let Some(head) = self.look(space, key, |entry| entry.head.clone()) {
            head.semaphore.release();
        }
    }

    /// Every hold of a namespace.
    pub(crate) fn holds(&self, space: Uuid) -> Vec<Hold> {
        let mut holds = Vec::new();
        self.each(|key, entry| {
            if key.space == space {
                holds.extend(entry.lost.iter().chain(&entry.hold).cloned());
            }
        });
        holds
    }

    /// How many holds and how many waiting calls a namespace has.
    pub(crate) fn census(&self, space: Uuid) -> (usize, usize) {
        let (mut holds, mut waiters) = (0, 0);
        self.each(|key, entry| {
            if key.space == space {
                holds += entry.hold.iter().count();
                waiters += entry.head.iter().count() + entry.parked.len();
            }
        });
        (holds, waiters)
    }

    /// Wakes every waiter of a namespace.
    pub(crate) fn wake_all(&self, space: Uuid) {
        self.each(|key, entry| {
            if key.space == space {
                entry.head.iter().chain(&entry.parked).for_each(|waiter| waiter.semaphore.release());
            }
        });
    }

    /// A thread ended: its holds are no longer renewed, and end by their deadlines.
    fn thread_ended(&self, thread: ThreadId) {
        let mut left = Vec::new();
        self.each(|_, entry| {
            left.extend(entry.lost.iter().chain(&entry.hold).filter(|hold| hold.thread() == thread).cloned());
            entry.lost.retain(|hold| hold.thread() != thread);
        });
        for hold in left {
            hold.orphan();
            log::warn!("a thread ended while it held lock {:?}: it is no longer renewed", hold.resource());
        }
    }

    fn each(&self, mut act: impl FnMut(&EntryKey, &mut ThreadEntry)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.iter_mut().for_each(|(key, entry)| act(key, entry));
            shard.retain(|_, entry| !entry.is_empty());
        }
    }
}

/// The current thread's number and how many holds it has; its end is noticed by the destructor.
struct Mark {
    number: u64,
    thread: ThreadId,
    holds: Cell<isize>,
}

thread_local! {
    static MARK: Mark = Mark::new();
}

/// Thread numbers are never reused, as the system's are.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Mark {
    fn new() -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { number, thread: std::thread::current().id(), holds: Cell::new(0) }
    }
}

impl Drop for Mark {
    /// Looks through the map only if the thread took more holds than it gave back.
    fn drop(&mut self) {
        if self.holds.get() > 0 {
            registry().thread_ended(self.thread);
        }
    }
}

/// The number of the current thread. Zero while the thread is being torn down.
pub(crate) fn thread_number() -> u64 {
    MARK.try_with(|mark| mark.number).unwrap_or(0)
}

fn count_holds(change: isize) {
    let _ = MARK.try_with(|mark| mark.holds.set(mark.holds.get() + change));
}
