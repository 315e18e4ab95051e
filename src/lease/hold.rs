//! A hold: one thread's possession of a lock, from its outermost acquire to its outermost release.

mod levels;
mod news;
#[cfg(test)]
mod tests;

use crate::base::error::{Error, Result};
use crate::base::kind::Kind;
use crate::base::meters::{HoldMeter, Meter};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::base::sync::thread::{self, ThreadId};
use crate::base::time::{Lease, Moment};
use crate::base::unwind::survives_a_panic;
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uuid::Uuid;

use levels::{Level, Levels};
pub(crate) use news::{Listener, listener};
pub use news::{LostHold, LostReceiver};

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
    /// The level that this hold was acquired with.
    level: Level,
}

survives_a_panic!(Hold);

struct Inner {
    space: Uuid,
    kind: &'static Kind,
    tenure: Arc<Tenure>,
    token: Option<u64>,
    keeper: Weak<dyn Keeper>,
    thread: ThreadId,
    acquired_at: Instant,
    count: AtomicUsize,
    levels: Mutex<Levels>,
    end: AtomicU8,
    hasty: AtomicBool,
    release_by: AtomicU64,
    ended: AtomicBool,
    left: AtomicBool,
    orphan: AtomicBool,
    /// No caller ever gets it.
    disowned: AtomicBool,
    /// A release that its caller does not know the end of has ended.
    decided: AtomicBool,
    listeners: Mutex<Listeners>,
    meter: HoldMeter,
}

#[derive(Default)]
struct Listeners {
    waiting: Vec<Listener>,
    lost: Option<LostHold>,
}

impl Listeners {
    /// Forgets those that are gone first, so that no more are kept than listen.
    fn add(&mut self, listener: Listener) {
        self.waiting.retain(Listener::is_there);
        self.waiting.push(listener);
    }
}

const OPEN: u8 = 0;
const RELEASED: u8 = 1;
const LOST: u8 = 2;

impl Hold {
    /// The first level of the current thread on this tenure. It asks for renewals of the lease `renewed`, or for none.
    pub(crate) fn new(
        space: Uuid,
        kind: &'static Kind,
        tenure: Arc<Tenure>,
        keeper: Weak<dyn Keeper>,
        renewed: Option<Lease>,
        meter: &Meter,
    ) -> Self {
        let (thread, meter) = (thread::current().id(), meter.hold(tenure.key().resource()));
        let hold = Self::of_thread((space, kind), tenure, keeper, thread, Level::new(renewed), false, meter);
        hold.follow();
        hold
    }

    fn of_thread(
        (space, kind): (Uuid, &'static Kind),
        tenure: Arc<Tenure>,
        keeper: Weak<dyn Keeper>,
        thread: ThreadId,
        level: Level,
        watching: bool,
        meter: HoldMeter,
    ) -> Self {
        let inner = Inner {
            space,
            kind,
            token: tenure.token().get(),
            tenure,
            keeper,
            thread,
            acquired_at: Instant::now(),
            count: AtomicUsize::new(1),
            levels: Mutex::new(Levels::new(level, watching)),
            end: AtomicU8::new(OPEN),
            hasty: AtomicBool::new(false),
            release_by: AtomicU64::new(u64::MAX),
            ended: AtomicBool::new(false),
            left: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            disowned: AtomicBool::new(false),
            decided: AtomicBool::new(false),
            listeners: Mutex::default(),
            meter,
        };
        Self { inner: Arc::new(inner), level }
    }

    /// The first level of another thread on the same tenure. The thread of this hold has released it, and the watchdog goes on to renew it.
    pub(crate) fn pass_to(&self, thread: ThreadId) -> Self {
        self.inner.tenure.begin_hold();
        self.inner.tenure.token().pass_on();
        self.beside(thread, self.renewed(), true)
    }

    /// The first level of another thread on the same tenure, beside this hold. It asks for renewals of the lease `renewed`.
    pub(crate) fn share_with(&self, thread: ThreadId, renewed: Option<Lease>) -> Self {
        let hold = self.beside(thread, renewed, false);
        hold.follow();
        hold
    }

    fn beside(&self, thread: ThreadId, renewed: Option<Lease>, watching: bool) -> Self {
        let Inner { space, kind, tenure, keeper, meter, .. } = &*self.inner;
        let (level, meter) = (Level::new(renewed), meter.beside());
        Self::of_thread((*space, kind), Arc::clone(tenure), Weak::clone(keeper), thread, level, watching, meter)
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
            _ => match self.inner.tenure.state() {
                TenureState::Held => HoldState::Held,
                TenureState::Suspect => HoldState::Suspect,
                TenureState::Lost => HoldState::Lost,
                TenureState::Pending | TenureState::Ended => HoldState::Released,
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

    /// How long the hold is still surely valid if it is not renewed; zero when it is not valid. After a wait it may be less than 1.5 s at
    /// first, until the watchdog has prolonged it: see [`HandOff`](crate::HandOff).
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
    /// the server; of a write lock with `:write` behind it. A lock that was passed on or is shared in memory keeps it, so several holds may have the same.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.inner.tenure.owner()
    }

    /// The token of a [`FencedLock`](crate::FencedLock)'s hold, or a [`LocalRedLock`](crate::LocalRedLock)'s: greater than that of every
    /// hold of this lock before it. The same on each level and for as long as the hold is known; `None` for other kinds.
    ///
    /// Hand it to what the lock protects with each write, and let that refuse a smaller one than it has seen.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, RedLockExt};
    ///
    /// let locks = LocalRedLock::new();
    /// let first = locks.guard("order:42")?.token();
    /// assert!(first.is_some() && locks.guard("order:42")?.token() > first);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.inner.token
    }

    /// How many nodes of a [`QuorumLock`](crate::QuorumLock) confirmed the hold when they were last asked, and how
    /// many nodes there are; `None` for other kinds, but with [`sync_replicas`](crate::ClientBuilder::sync_replicas) how many
    /// replicas confirmed it when that was last asked for, and how many had to.
    ///
    /// All of them are asked by an acquire, each re-entry and each renewal, and an answer counts when it comes: right
    /// after an acquire it may be just the majority. A node that fails to answer, or lost the key (it came back
    /// empty, or evicted it), is not counted; the latter does not get the key back for as long as the hold lasts. Below
    /// a majority the hold turns [`Suspect`](HoldState::Suspect) or [`Lost`](HoldState::Lost) with the next renewal.
    #[must_use]
    pub fn confirmed_by(&self) -> Option<(usize, usize)> {
        self.inner.tenure.confirmed()
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

    /// A channel that gets one message if the hold is lost, and is disconnected once it is released. If the release was not answered, or was
    /// refused, it stays open until the background knows, or gives up when the lease is over.
    ///
    /// Each call makes a channel of its own, which is gone when its receiver is dropped. After a loss the message is
    /// already there.
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
    pub fn lost(&self) -> LostReceiver {
        let (listener, receiver) = listener();
        self.tell(listener);
        receiver
    }

    /// Has a listener told of the loss. It may listen to several holds.
    pub(crate) fn tell(&self, listener: Listener) {
        let mut listeners = self.inner.listeners.lock();
        match (&listeners.lost, self.inner.end.load(SeqCst)) {
            (Some(lost), _) => listener.hear(lost),
            (None, RELEASED) => {}
            (None, _) => listeners.add(listener),
        }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.inner.tenure
    }

    /// Whether it was acquired in this namespace.
    pub(crate) fn is_of(&self, space: Uuid) -> bool {
        self.inner.space == space
    }

    /// Whether a lock of this kind acquired it.
    pub(crate) fn is_of_kind(&self, kind: &Kind) -> bool {
        self.inner.kind.is(kind)
    }

    /// The kind of lock that acquired it.
    pub(crate) fn kind(&self) -> &'static Kind {
        self.inner.kind
    }

    /// Whether it ends with this thread.
    pub(crate) fn ends_with(&self, thread: ThreadId) -> bool {
        self.inner.kind.of_thread && self.inner.thread == thread
    }

    /// Whether both are the same hold.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// No level is left: the hold is over. If it was released, its listeners hear nothing more. A hold that was lost stays lost.
    pub(crate) fn close(&self, released: bool) {
        self.inner.count.store(0, SeqCst);
        let end = if released { RELEASED } else { LOST };
        let _ = self.inner.end.compare_exchange(OPEN, end, SeqCst, SeqCst);
        self.inner.meter.end(self.inner.acquired_at);
        if released {
            self.hear_no_more();
        }
    }

    /// The same while nobody knows yet whether it was lost: its listeners may hear of that later.
    pub(crate) fn close_undecided(&self) {
        self.inner.count.store(0, SeqCst);
        let _ = self.inner.end.compare_exchange(OPEN, RELEASED, SeqCst, SeqCst);
        self.inner.meter.end(self.inner.acquired_at);
    }

    /// The background knows what became of its release: a server has said it.
    pub(crate) fn note_decided(&self) {
        self.inner.decided.store(true, SeqCst);
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.inner.decided.load(SeqCst)
    }

    /// It was released, so nobody is told of a loss any more.
    pub(crate) fn hear_no_more(&self) {
        self.inner.listeners.lock().waiting.clear();
    }

    /// The news that the hold was lost.
    pub(crate) fn loss(&self, cause: LossCause) -> LostHold {
        LostHold::new(self.resource(), self.owner(), cause)
    }

    /// Tells every listener of the loss.
    pub(crate) fn announce(&self, lost: LostHold) {
        let _ = self.inner.end.compare_exchange(OPEN, LOST, SeqCst, SeqCst);
        self.inner.meter.end(self.inner.acquired_at);
        let mut listeners = self.inner.listeners.lock();
        for listener in listeners.waiting.drain(..) {
            listener.hear(&lost);
        }
        listeners.lost = Some(lost);
    }

    /// The lock as the log names it.
    pub(crate) fn whereabouts(&self) -> String {
        let key = || format!("{:?}", self.inner.tenure.key().full());
        self.keeper().map_or_else(key, |keeper| keeper.whereabouts(&self.inner.tenure))
    }

    /// The keeper, which renews and releases the hold; `None` once its client is gone.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.inner.keeper.upgrade()
    }

    /// The thread ended without a release, or nothing will notice its end. The hold is not renewed any more, and not kept once lost.
    /// This only writes, for the reason of [`Tenure::abandon`].
    pub(crate) fn orphan(&self) {
        self.inner.orphan.store(true, SeqCst);
        self.follow();
        if !self.inner.tenure.is_watched() {
            self.inner.tenure.abandon();
        }
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.inner.orphan.load(SeqCst)
    }

    /// Its group gives it back: no caller ever gets it, so nobody is told of its loss, however late that is found.
    pub(crate) fn disown(&self) {
        self.inner.disowned.store(true, SeqCst);
    }

    pub(crate) fn is_disowned(&self) -> bool {
        self.inner.disowned.load(SeqCst)
    }

    /// Whether a release may make one attempt only, because a `Drop` waits for it.
    pub(crate) fn is_hasty(&self) -> bool {
        self.inner.hasty.load(SeqCst)
    }

    /// From now on a release has to be over at `limit`, because several releases share the time; `MAX` takes that back.
    /// A release after that sends nothing: the background frees the lock.
    pub(crate) fn release_within(&self, limit: Moment) {
        self.inner.release_by.store(limit.0, SeqCst);
    }

    /// Its tenure ended before its own release: that of a group ends all of them first.
    pub(crate) fn note_ended(&self) {
        self.inner.ended.store(true, SeqCst);
    }

    pub(crate) fn has_ended_first(&self) -> bool {
        self.inner.ended.load(SeqCst)
    }

    /// True for the first caller only, which takes it out of the map of threads.
    pub(crate) fn leave_once(&self) -> bool {
        !self.inner.left.swap(true, SeqCst)
    }

    /// When a release has to be over.
    pub(crate) fn release_by(&self) -> Moment {
        Moment(self.inner.release_by.load(SeqCst))
    }

    /// From now on a release makes one attempt only; `false` takes that back.
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
