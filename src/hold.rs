//! A hold: one thread's possession of a lock, from its outermost acquire to its outermost release.

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use crate::sync::thread::{self, ThreadId};
use crate::tenure::{Keeper, LossCause, Standing, Tenure};
use crate::time::Lease;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How a hold stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Surely held.
    Held,
    /// Still held, but a renewal failed: it turns `Held` or `Lost` by its deadline.
    Suspect,
    /// It ended under its holder, for good: someone else may hold the lock.
    Lost,
    /// It was released.
    Released,
}

/// The news that a hold was lost. Its `Display` says it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostHold {
    resource: String,
    owner: String,
    cause: LossCause,
}

impl LostHold {
    /// The resource, as the caller named it.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The owner field that the hold had on the wire.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Why it was lost.
    #[must_use]
    pub fn cause(&self) -> LossCause {
        self.cause
    }
}

impl fmt::Display for LostHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} was lost while held by {}: {}", self.resource, self.owner, self.cause)
    }
}

/// One thread's possession of a lock: live, cheap to clone, and safe to ask from any thread.
///
/// It shows what this process knows; every question is answered without a round trip, but
/// [`extend`](Self::extend). To ask the server, use [`RedLock::verify`](crate::RedLock::verify).
///
/// ```
/// use redlatch::{HoldState, LocalRedLock, RedLock};
///
/// let locks = LocalRedLock::new();
/// locks.lock("order:42")?;
/// locks.lock("order:42")?;
/// let hold = locks.hold("order:42").unwrap();
/// assert_eq!((hold.count(), hold.state(), hold.is_valid()), (2, HoldState::Held, true));
/// locks.unlock("order:42")?;
/// locks.unlock("order:42")?;
/// assert_eq!((hold.count(), hold.state(), hold.is_valid()), (0, HoldState::Released, false));
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
pub struct Hold {
    inner: Arc<Inner>,
}

struct Inner {
    space: Uuid,
    tenure: Arc<Tenure>,
    keeper: Weak<dyn Keeper>,
    thread: ThreadId,
    acquired_at: Instant,
    count: AtomicUsize,
    watched_from: AtomicUsize,
    end: AtomicU8,
    hasty: AtomicBool,
    orphan: AtomicBool,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    waiting: Vec<Sender<LostHold>>,
    lost: Option<LostHold>,
}

const OPEN: u8 = 0;
const RELEASED: u8 = 1;
const LOST: u8 = 2;

/// No open level asked for the watchdog.
const NEVER: usize = usize::MAX;

impl Hold {
    /// The first level of the current thread on this tenure, in a namespace of locks.
    pub(crate) fn new(space: Uuid, tenure: Arc<Tenure>, keeper: Weak<dyn Keeper>, watched: bool) -> Self {
        tenure.watch(watched);
        Self::of_thread(space, tenure, keeper, watched, thread::current().id())
    }

    fn of_thread(space: Uuid, tenure: Arc<Tenure>, keeper: Weak<dyn Keeper>, watched: bool, thread: ThreadId) -> Self {
        let inner = Inner {
            space,
            tenure,
            keeper,
            thread,
            acquired_at: Instant::now(),
            count: AtomicUsize::new(1),
            watched_from: AtomicUsize::new(if watched { 1 } else { NEVER }),
            end: AtomicU8::new(OPEN),
            hasty: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            listeners: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The first level of another thread on the same tenure, which this hold's thread has released.
    pub(crate) fn pass_to(&self, thread: ThreadId) -> Self {
        let Inner { space, tenure, keeper, .. } = &*self.inner;
        Self::of_thread(*space, Arc::clone(tenure), Weak::clone(keeper), true, thread)
    }

    /// The resource, as the caller named it.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.inner.tenure.key().resource()
    }

    /// How many levels are open: unlocks that are still due. Zero after the outermost one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.count.load(SeqCst)
    }

    /// How the hold stands, as far as this process knows.
    #[must_use]
    pub fn state(&self) -> HoldState {
        match self.inner.end.load(SeqCst) {
            RELEASED => HoldState::Released,
            LOST => HoldState::Lost,
            _ => match self.inner.tenure.standing() {
                Standing::Held => HoldState::Held,
                Standing::Suspect => HoldState::Suspect,
                Standing::Lost => HoldState::Lost,
                Standing::Pending | Standing::Ended => HoldState::Released,
            },
        }
    }

    /// Whether the lock is still surely held: conservative by 1 % of the lease and 2 ms, lock-free, no round trip.
    ///
    /// In a forked child it still shows what the parent knew at the fork.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inner.end.load(SeqCst) == OPEN && self.inner.tenure.is_valid()
    }

    /// How long the hold is still surely valid if it is not renewed; zero when it is not valid.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let deadline = self.inner.tenure.deadline().filter(|_| self.inner.end.load(SeqCst) == OPEN);
        deadline.map_or(Duration::ZERO, |deadline| deadline.since(self.inner.tenure.now()))
    }

    /// When the outermost level was acquired.
    #[must_use]
    pub fn acquired_at(&self) -> Instant {
        self.inner.acquired_at
    }

    /// The thread that acquired it, the only one that can release it.
    #[must_use]
    pub fn thread(&self) -> ThreadId {
        self.inner.thread
    }

    /// The field in the lock's hash on the server, `<client>:<thread number>:<hold number>`: those of the acquire at
    /// the server. A lock that was passed on in memory keeps it, so several holds one after the other may have the same.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.inner.tenure.owner()
    }

    /// How many nodes of a [`QuorumLock`](crate::QuorumLock) confirmed the hold when they were last asked, and how
    /// many nodes there are; `None` for other kinds.
    ///
    /// All of them are asked by an acquire, each re-entry and each renewal, and an answer counts when it comes: right
    /// after an acquire it may be just the majority. A node that fails to answer, or lost the key (it came back
    /// empty, or evicted it), is not counted; the latter does not get the key back for as long as the hold lasts. Below
    /// a majority the hold turns [`Suspect`](HoldState::Suspect) or [`Lost`](HoldState::Lost) with the next renewal.
    #[must_use]
    pub fn confirmed_by(&self) -> Option<(usize, usize)> {
        self.inner.tenure.nodes().confirmed()
    }

    /// Prolongs the hold so that it lasts at least `lease` from now: one round trip. Never shortens it.
    ///
    /// # Errors
    /// [`Error::Config`] for a lease outside of 10 ms to 365 days; [`Error::Lost`] when it is no longer held;
    /// [`Error::NotHeld`] after its release; otherwise what kept the server from answering, in which case the
    /// hold stays as it was.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        let lease = Lease::new(lease)?;
        match self.state() {
            HoldState::Released => Err(Error::not_held(self.resource())),
            HoldState::Lost => Err(Error::lost(self.resource())),
            HoldState::Held | HoldState::Suspect => match self.keeper() {
                Some(keeper) => keeper.extend(&self.inner.tenure, lease),
                None => Err(Error::closed(self.resource())),
            },
        }
    }

    /// A channel that gets one message if the hold is lost, and is disconnected once it is released.
    ///
    /// Each call makes a channel of its own. After a loss the message is already there.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, LossCause, RedLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// locks.lock_with_lease("order:42", Duration::from_millis(20))?;
    /// let lost = locks.hold("order:42").unwrap().lost();
    /// assert_eq!(lost.recv().unwrap().cause(), LossCause::Expired);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn lost(&self) -> Receiver<LostHold> {
        let (sender, receiver) = bounded(1);
        self.tell(sender);
        receiver
    }

    /// Sends the news to a channel that may be of several holds, if there is room in it.
    pub(crate) fn tell(&self, listener: Sender<LostHold>) {
        let mut listeners = self.inner.listeners.lock();
        match (&listeners.lost, self.inner.end.load(SeqCst)) {
            (Some(lost), _) => {
                let _ = listener.try_send(lost.clone());
            }
            (None, RELEASED) => {}
            (None, _) => listeners.waiting.push(listener),
        }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.inner.tenure
    }

    /// Whether it was acquired in this namespace.
    pub(crate) fn is_of(&self, space: Uuid) -> bool {
        self.inner.space == space
    }

    /// Whether both are the very same hold.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Opens the level with this number. It is watched already if an open level asked for it.
    pub(crate) fn deepen(&self, count: usize, watched: bool) {
        self.inner.count.store(count, SeqCst);
        if watched && count < self.inner.watched_from.load(SeqCst) {
            self.inner.watched_from.store(count, SeqCst);
            self.inner.tenure.watch(true);
        }
    }

    /// Closes the innermost level, and the watch if no open level asked for it. How many are left.
    ///
    /// Levels close in the reverse order of opening, so the watch lasts while the *outermost* level that
    /// asked for it is open, and that level's number is all that has to be remembered.
    pub(crate) fn ascend(&self) -> usize {
        let left = self.count().saturating_sub(1);
        self.inner.count.store(left, SeqCst);
        if left < self.inner.watched_from.load(SeqCst) {
            self.inner.watched_from.store(NEVER, SeqCst);
            self.inner.tenure.watch(false);
        }
        left
    }

    /// No level is left: the hold is over, and listeners hear nothing more. Lost stays lost.
    pub(crate) fn close(&self, released: bool) {
        self.inner.count.store(0, SeqCst);
        let end = if released { RELEASED } else { LOST };
        let _ = self.inner.end.compare_exchange(OPEN, end, SeqCst, SeqCst);
        if released {
            self.inner.listeners.lock().waiting.clear();
        }
    }

    /// Tells every listener of the loss.
    pub(crate) fn announce(&self, cause: LossCause) -> LostHold {
        let _ = self.inner.end.compare_exchange(OPEN, LOST, SeqCst, SeqCst);
        let lost = LostHold { resource: self.resource().to_owned(), owner: self.owner().to_owned(), cause };
        let mut listeners = self.inner.listeners.lock();
        listeners.lost = Some(lost.clone());
        for listener in listeners.waiting.drain(..) {
            let _ = listener.try_send(lost.clone());
        }
        lost
    }

    /// What renews and releases it; `None` once its client is gone.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.inner.keeper.upgrade()
    }

    /// Its thread ended without releasing it: nobody will, so it is not renewed and not kept once lost.
    pub(crate) fn orphan(&self) {
        self.inner.orphan.store(true, SeqCst);
        self.inner.tenure.watch(false);
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.inner.orphan.load(SeqCst)
    }

    /// Whether a release may make one attempt only, because a `Drop` waits for it.
    pub(crate) fn is_hasty(&self) -> bool {
        self.inner.hasty.load(SeqCst)
    }

    /// Runs `release`, which may make one attempt only.
    pub(crate) fn in_haste<T>(&self, release: impl FnOnce() -> T) -> T {
        self.hurry(true);
        let result = release();
        self.hurry(false);
        result
    }

    /// From now on a release makes one attempt only, or no longer so.
    pub(crate) fn hurry(&self, hasty: bool) {
        self.inner.hasty.store(hasty, SeqCst);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("resource", &self.resource())
            .field("owner", &self.owner())
            .field("count", &self.count())
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, Naming};
    use crate::owner::OwnerId;
    use crate::tenure::Nobody;
    use crate::time::Clock;

    /// A hold on a tenure that is held, whose client is gone.
    fn hold() -> Hold {
        let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot);
        assert!(tenure.confirm(tenure.now(), Lease::new(Duration::from_secs(60)).unwrap()));
        Hold::new(Uuid::nil(), Arc::new(tenure), Weak::<Nobody>::new(), false)
    }

    #[test]
    fn how_a_hold_ended_does_not_depend_on_its_tenure() {
        let (released, lost) = (hold(), hold());
        released.close(true);
        lost.close(false);
        assert_eq!((released.state(), lost.state()), (HoldState::Released, HoldState::Lost));
        for hold in [released, lost] {
            assert_eq!(hold.tenure().standing(), Standing::Held);
            assert!(!hold.is_valid() && hold.remaining().is_zero() && hold.count() == 0);
        }
    }

    #[test]
    fn a_loss_is_told_in_a_sentence() {
        let told = |cause| hold().announce(cause).to_string();
        assert_eq!(told(LossCause::Expired), "lock \"n\" was lost while held by : its lease ended");
        assert!(told(LossCause::Overheld).ends_with("it was held for as long as max_hold allows"));
        assert!(told(LossCause::Removed).ends_with("the server no longer has it"));
        assert!(told(LossCause::Unwatched).ends_with("the thread that renews it failed"));
    }

    /// Each level: whether it asks for the watchdog, and whether the tenure is watched once it is open.
    #[test]
    fn the_watch_lasts_while_a_level_that_asked_for_it_is_open() {
        let hold = hold();
        let is_watched = || hold.tenure().is_watched();
        let levels = [(false, false), (true, true), (false, true), (true, true)];
        for (count, (asks, watched)) in (2..).zip(levels) {
            hold.deepen(count, asks);
            assert_eq!((hold.count(), is_watched()), (count, watched));
        }
        let closed: Vec<_> = std::iter::repeat_with(|| (hold.ascend(), is_watched())).take(4).collect();
        assert_eq!(closed, [(4, true), (3, true), (2, false), (1, false)]);
        hold.deepen(2, true);
        assert!(is_watched(), "once more");
    }
}
