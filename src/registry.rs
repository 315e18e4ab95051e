//! The `ThreadEntry` map: which threads of this process hold each lock, and which wait for it.
//!
//! There is one map for the process, in shards. Its keys are namespaces (a client, or a lock in memory) and full keys.
//! No lock of a shard is ever held across I/O.

mod entry;
mod holders;
mod thread;
mod waiter;
mod waiters;

use crate::base::config::HandOff;
use crate::base::kind::Kind;
use crate::base::sync::thread::ThreadId;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::time::Moment;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use once_cell::sync::Lazy;
use smol_str::SmolStr;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use entry::ThreadEntry;
pub(crate) use entry::{Entered, LeftBehind};
use thread::count_holds;
pub(crate) use thread::{TakesGroup, current_thread, holds_any, is_ending, is_part_of_group, known, thread_number};
pub(crate) use waiter::{Lent, Waiter};

#[cfg(test)]
mod tests;

struct EntryKey {
    space: Uuid,
    key: SmolStr,
}

impl EntryKey {
    fn is(&self, space: Uuid, key: &str) -> bool {
        self.space == space && self.key == key
    }
}

/// A key that an entry may have to keep. A long key need not be copied if the caller can share it.
pub(crate) trait Name: AsRef<str> + Into<SmolStr> {}

impl<N: AsRef<str> + Into<SmolStr>> Name for N {}

type Shard = HashTable<(EntryKey, ThreadEntry)>;

/// The process-wide map.
pub(crate) struct Registry {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

const SHARDS: usize = 64;

static REGISTRY: Lazy<Registry> = Lazy::new(Registry::new);

/// The map of this process.
pub(crate) fn registry() -> &'static Registry {
    &REGISTRY
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self { shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(), hasher: RandomState::default() }
    }

    fn hash(&self, space: Uuid, key: &str) -> u64 {
        self.hasher.hash_one((space.as_u128(), key))
    }

    /// The shard is chosen by bits of the hash that a table does not use. The table looks where the lowest bits say, and compares
    /// the highest seven.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 48) as usize % SHARDS].lock()
    }

    /// Runs `act` on the entry. A missing entry is made, and an empty one is removed afterwards.
    fn with<T>(&self, space: Uuid, key: impl Name, act: impl FnOnce(&mut ThreadEntry) -> T) -> T {
        let hash = self.hash(space, key.as_ref());
        match self.shard(hash).find_entry(hash, |(known, _)| known.is(space, key.as_ref())) {
            Ok(mut found) => {
                let result = act(&mut found.get_mut().1);
                if found.get().1.is_empty() {
                    found.remove();
                }
                result
            }
            Err(absent) => {
                let mut entry = ThreadEntry::default();
                let result = act(&mut entry);
                if !entry.is_empty() {
                    let rehash = |(known, _): &(EntryKey, ThreadEntry)| self.hash(known.space, &known.key);
                    absent.into_table().insert_unique(hash, (EntryKey { space, key: key.into() }, entry), rehash);
                }
                result
            }
        }
    }

    /// Looks without making an entry or allocating.
    fn look<T>(&self, space: Uuid, key: &str, see: impl FnOnce(&ThreadEntry) -> Option<T>) -> Option<T> {
        self.look_mut(space, key, |entry| see(entry))
    }

    /// The same for a step that changes the entry, and does not empty it.
    fn look_mut<T>(&self, space: Uuid, key: &str, step: impl FnOnce(&mut ThreadEntry) -> Option<T>) -> Option<T> {
        let hash = self.hash(space, key);
        let mut shard = self.shard(hash);
        shard.find_mut(hash, |(known, _)| known.is(space, key)).and_then(|(_, entry)| step(entry))
    }

    /// The hold of a thread, also one that was lost and that the thread has not unlocked yet.
    pub(crate) fn find(&self, space: Uuid, key: &str, thread: ThreadId) -> Option<Hold> {
        self.look(space, key, |entry| entry.of(thread).map(Hold::found))
    }

    /// The holds that may still be believed in, of any thread: first lost ones that were not told yet, then the others.
    pub(crate) fn believed(&self, space: Uuid, key: &str) -> Vec<Hold> {
        self.look(space, key, |entry| Some(entry.believed().cloned().collect())).unwrap_or_default()
    }

    /// Whether no thread of this process has a lock, lost it or waits for it.
    pub(crate) fn is_idle(&self, space: Uuid, key: &str) -> bool {
        self.look(space, key, |_| Some(())).is_none()
    }

    /// Whether another call of this process waits for a lock.
    pub(crate) fn is_awaited(&self, space: Uuid, key: &str) -> bool {
        self.look(space, key, |entry| Some(!entry.waiters.is_empty())).unwrap_or(false)
    }

    /// Comes to a lock without waiting. Returns what can be said without the wire; `None` means: ask the server.
    pub(crate) fn glance(&self, space: Uuid, key: &str, takes: Option<&'static Kind>) -> Option<Entered> {
        self.look_mut(space, key, |entry| entry.glance(takes)).map(counted)
    }

    /// Comes to a lock to wait for it.
    pub(crate) fn enter(&self, space: Uuid, key: impl Name, waiter: &Arc<Waiter>) -> Entered {
        counted(self.with(space, key, |entry| entry.enter(waiter)))
    }

    /// A parked waiter looks whether its turn has come. This also notices a hold that ended and was told to nobody.
    pub(crate) fn turn(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) -> Entered {
        counted(self.with(space, key, |entry| entry.look_of(waiter)))
    }

    /// The waiter stops waiting, with the lock or without it. The next one contends if it may.
    pub(crate) fn leave(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) -> LeftBehind {
        let left = self.with(space, key, |entry| entry.leave(waiter));
        if let LeftBehind::Granted(hold) = &left {
            count(hold, 1);
        }
        left
    }

    /// A thread acquired the lock.
    pub(crate) fn settle(&self, space: Uuid, key: impl Name, hold: &Hold) {
        count(hold, 1);
        self.with(space, key, |entry| entry.settle(hold));
    }

    /// Threads of this process may share the tenure of a hold until then.
    pub(crate) fn open(&self, space: Uuid, hold: &Hold, until: Moment) {
        self.with(space, hold.tenure().place(), |entry| entry.open(hold, until));
    }

    /// No thread may come to share a tenure any more.
    pub(crate) fn shut(&self, space: Uuid, key: &str) {
        self.look_mut(space, key, |entry| {
            entry.holders.shut(None);
            Some(())
        });
    }

    /// The tenure of a hold follows what the open levels of the hold ask for. No thread comes to share it meanwhile.
    pub(crate) fn follow(&self, space: Uuid, hold: &Hold) {
        self.look_mut(space, &hold.tenure().place(), |_| {
            hold.follow();
            Some(())
        });
    }

    /// Passes the tenure of the current thread's hold on to a parked thread, or leaves it to those that share it, without the wire.
    /// The hold is then released. False if that cannot be: then the release has to go to the wire.
    pub(crate) fn pass_on(&self, space: Uuid, hold: &Hold, bounds: &HandOff, lease: Duration) -> bool {
        let key = hold.tenure().place();
        let passed = self.look_mut(space, &key, |entry| entry.pass_on(hold, bounds, lease).then_some(())).is_some();
        if passed {
            count(hold, -1);
        }
        passed
    }

    /// The outermost level of a hold is gone.
    pub(crate) fn clear(&self, space: Uuid, hold: &Hold) {
        let counted = self.with(space, hold.tenure().place(), |entry| entry.remove(hold));
        if counted && hold.thread() == current_thread() {
            count(hold, -1);
        }
    }

    /// A tenure was lost: its holds go out of the way of the next one. Returns them to the first caller only. They are found
    /// and announced under one lock, so that no thread clears one in between.
    pub(crate) fn lose(&self, space: Uuid, tenure: &Arc<Tenure>) -> Vec<Hold> {
        self.with(space, tenure.place(), |entry| {
            let holds = entry.lose(tenure);
            if holds.is_empty() || tenure.announce_once() { holds } else { Vec::new() }
        })
    }

    /// The lock may be free: wakes the waiter that contends.
    pub(crate) fn wake(&self, space: Uuid, key: &str) {
        if let Some(head) = self.look(space, key, |entry| entry.waiters.head().cloned()) {
            head.semaphore.release();
        }
    }

    /// Every hold of a namespace.
    pub(crate) fn holds(&self, space: Uuid) -> Vec<Hold> {
        let mut holds = Vec::new();
        self.each(|key, entry| {
            if key.space == space {
                holds.extend(entry.lost.iter().chain(entry.holders.holds()).cloned());
            }
        });
        holds
    }

    /// How many holds a namespace has, and how many calls wait or are about to: they may not have found the lock busy yet.
    pub(crate) fn census(&self, space: Uuid) -> (usize, usize) {
        let (mut holds, mut waiters) = (0, 0);
        self.each(|key, entry| {
            if key.space == space {
                holds += entry.holders.in_force().count();
                waiters += entry.waiters.len();
            }
        });
        (holds, waiters)
    }

    /// Tells each hold and each wait of a namespace, with the name of its lock. No step of a lock falls between its holds and its waits.
    pub(crate) fn tell(&self, space: Uuid, mut hold: impl FnMut(&Hold), mut wait: impl FnMut(&str, &Waiter)) {
        self.each(|key, entry| {
            if key.space == space {
                entry.holders.in_force().for_each(&mut hold);
                entry.waiters.iter().for_each(|waiter| wait(&key.key, waiter));
            }
        });
    }

    /// The call of a thread with this number that waits for a lock.
    pub(crate) fn waiter(&self, space: Uuid, key: &str, thread: u64) -> Option<Arc<Waiter>> {
        let is_of = |waiter: &&Arc<Waiter>| known(waiter.thread).is_some_and(|(number, _)| number == thread);
        self.look(space, key, |entry| entry.waiters.iter().find(is_of).cloned())
    }

    /// Wakes every waiter of a namespace.
    pub(crate) fn wake_all(&self, space: Uuid) {
        self.each(|key, entry| {
            if key.space == space {
                entry.waiters.iter().for_each(|waiter| waiter.semaphore.release());
            }
        });
    }

    /// A thread ended: its holds are no longer renewed, and end by their deadlines. This runs in a destructor of the thread,
    /// so it neither logs nor allocates.
    fn thread_ended(&self, thread: ThreadId) {
        self.each(|_, entry| entry.thread_ended(thread));
    }

    fn each(&self, mut act: impl FnMut(&EntryKey, &mut ThreadEntry)) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|(key, entry)| {
                act(key, entry);
                !entry.is_empty()
            });
        }
    }
}

/// The current thread counts a hold that it was granted.
fn counted(entered: Entered) -> Entered {
    if let Entered::Granted(hold) = &entered {
        count(hold, 1);
    }
    entered
}

/// The current thread counts its holds. Permits are no thread's: another one may release them, and could not count that here.
fn count(hold: &Hold, change: isize) {
    if hold.kind().of_thread {
        count_holds(change);
    }
}
