//! One call that waits, and the waiter that a thread keeps for its next wait.

use super::thread::current_thread;
use crate::base::kind::Kind;
use crate::base::signal::Semaphore;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use crate::base::sync::thread::ThreadId;
use crate::base::sync::{Mutex, thread_local};
use crate::base::time::Moment;
use crate::lease::hold::Hold;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// One call that waits for a lock.
pub(crate) struct Waiter {
    /// Released when the call should look again, for any reason.
    pub(crate) semaphore: Arc<Semaphore>,
    pub(crate) thread: ThreadId,
    /// The kind whose tenures the call can go on with, without the server. The call asked for no lease of its own, so the lease of
    /// the watchdog is enough.
    pub(super) takes: Option<&'static Kind>,
    pub(super) granted: Mutex<Option<Hold>>,
    /// The call was woken for a kept tenure, and has not looked yet.
    pub(super) roused: AtomicBool,
    /// The call is to let others ask first.
    pub(super) gives_way: AtomicBool,
    /// What is told of the wait to those who ask.
    pub(crate) report: Report,
}

/// So many circles of one wait are told, and no more. A writer may wait for hundreds of readers that all wait for it.
const MOST_LOGGED: usize = 64;

/// What a census tells of a wait, and what was found out about it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// When the call found its lock busy; zero: not yet.
    since: AtomicU64,
    /// The caller's deadline; zero: none.
    deadline: AtomicU64,
    /// The circles of waiting that were told with this wait, by their hashes.
    logged: Mutex<Vec<u64>>,
    /// The circle that the call has to break by an error.
    doom: Mutex<Option<Arc<str>>>,
}

impl Report {
    pub(crate) fn begin(&self, now: Moment, deadline: Option<Moment>) {
        self.deadline.store(deadline.map_or(0, |deadline| deadline.0), SeqCst);
        self.since.store(now.0, SeqCst);
    }

    /// Since when the call waits, and its deadline; `None`: it has not found its lock busy.
    pub(crate) fn of(&self) -> Option<(Moment, Option<Moment>)> {
        let [since, deadline] = [&self.since, &self.deadline].map(|moment| moment.load(SeqCst));
        (since != 0).then_some((Moment(since), (deadline != 0).then_some(Moment(deadline))))
    }

    pub(crate) fn age(&self, now: Moment) -> Duration {
        now.since(Moment(self.since.load(SeqCst)))
    }

    /// Whether this circle is to be told, as it was not yet. A wait may be in several at a time.
    pub(crate) fn log_once(&self, circle: u64) -> bool {
        let mut logged = self.logged.lock();
        let is_new = logged.len() < MOST_LOGGED && !logged.contains(&circle);
        if is_new {
            logged.push(circle);
        }
        is_new
    }

    /// The call has to break this circle.
    pub(crate) fn doom(&self, circle: &str) {
        *self.doom.lock() = Some(circle.into());
    }

    pub(crate) fn doomed(&self) -> Option<Arc<str>> {
        self.doom.lock().clone()
    }
}

impl Waiter {
    /// A call of the current thread.
    pub(crate) fn new(takes: Option<&'static Kind>) -> Self {
        let thread = current_thread();
        let (roused, gives_way) = (AtomicBool::new(false), AtomicBool::new(false));
        let (granted, report) = (Mutex::new(None), Report::default());
        Self { semaphore: Arc::default(), thread, takes, granted, roused, gives_way, report }
    }

    /// Whether other processes may ask first, because this one released the lock for them. True once.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.swap(false, Relaxed)
    }

    /// Takes the hold that the call was granted and has not taken yet.
    pub(super) fn take_granted(&self) -> Option<Hold> {
        self.granted.lock().take()
    }

    /// Makes the waiter as it was when it was new. `None` if somebody can still release its semaphore.
    fn reset(&mut self) -> Option<()> {
        *Arc::get_mut(&mut self.semaphore)? = Semaphore::default();
        self.granted = Mutex::new(None);
        self.roused = AtomicBool::new(false);
        self.gives_way = AtomicBool::new(false);
        self.report = Report::default();
        Some(())
    }
}

thread_local! {
    static SPARE: Cell<Option<Arc<Waiter>>> = const { Cell::new(None) };
}

/// The waiter of one wait, kept for the next wait of its thread. Most waits are over at once, and need not allocate. It
/// stays on its thread, because it names that thread.
pub(crate) struct Lent(Arc<Waiter>, PhantomData<*const ()>);

impl Lent {
    /// For a call of the current thread. A wait inside another wait finds no kept waiter.
    pub(crate) fn new(takes: Option<&'static Kind>) -> Self {
        let kept = SPARE.try_with(Cell::take).ok().flatten().and_then(|mut waiter| {
            Arc::get_mut(&mut waiter)?.takes = takes;
            Some(waiter)
        });
        Self(kept.unwrap_or_else(|| Arc::new(Waiter::new(takes))), PhantomData)
    }
}

impl Drop for Lent {
    /// The waiter is not kept if anybody else has a reference to it or to its semaphore, also a weak one. That one wakes the wait it
    /// was given for, at any time.
    fn drop(&mut self) {
        if Arc::get_mut(&mut self.0).and_then(Waiter::reset).is_some() {
            let _ = SPARE.try_with(|spare| spare.set(Some(Arc::clone(&self.0))));
        }
    }
}

impl Deref for Lent {
    type Target = Arc<Waiter>;

    fn deref(&self) -> &Arc<Waiter> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::signal::CancelToken;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    static KIND: Kind = Kind::new("lock");

    fn is_woken(waiter: &Waiter) -> bool {
        waiter.semaphore.acquire(Duration::ZERO)
    }

    /// Whether the next wait of this thread gets the same waiter. Others are made in between, so that a new one is not
    /// put where it was by chance.
    fn is_kept(lent: Lent) -> bool {
        let before = Arc::as_ptr(&lent);
        drop(lent);
        let _others = [0; 8].map(|_| Arc::new(Waiter::new(Some(&KIND))));
        Arc::as_ptr(&Lent::new(Some(&KIND))) == before
    }

    #[test]
    fn a_waiter_is_used_again_as_if_it_were_new() {
        let first = Lent::new(None);
        first.semaphore.release();
        first.roused.store(true, SeqCst);
        first.gives_way.store(true, SeqCst);
        let address = Arc::as_ptr(&first);
        assert!(is_kept(first));
        let second = Lent::new(Some(&KIND));
        assert_eq!(Arc::as_ptr(&second), address);
        assert!(second.takes.is_some() && !is_woken(&second), "a stale permit");
        assert!(!second.roused.load(SeqCst) && !second.gives_way());
        drop(second);
        assert!(Lent::new(None).takes.is_none());
    }

    #[test]
    fn a_waiter_that_somebody_has_is_not_used_again() {
        let lent = Lent::new(Some(&KIND));
        let queued = Arc::clone(&lent);
        assert!(!is_kept(lent));
        let lent = Lent::new(Some(&KIND));
        let told = Arc::clone(&lent.semaphore);
        drop(lent);
        let next = Lent::new(Some(&KIND));
        queued.semaphore.release();
        told.release();
        assert!(!is_woken(&next), "by who had waited for it before");
    }

    #[test]
    fn a_waiter_that_a_token_can_wake_is_not_used_again() {
        let (token, lent) = (CancelToken::new(), Lent::new(Some(&KIND)));
        token.wake(&lent.semaphore);
        assert!(!is_kept(lent));
        let next = Lent::new(Some(&KIND));
        token.cancel();
        assert!(!is_woken(&next));
    }

    #[test]
    fn a_wait_inside_of_another_has_a_waiter_of_its_own() {
        let outer = Lent::new(Some(&KIND));
        let inner = Lent::new(Some(&KIND));
        assert!(!Arc::ptr_eq(&outer, &inner));
        inner.semaphore.release();
        drop(inner);
        assert!(!is_woken(&outer));
        assert!(is_kept(outer));
    }

    #[test]
    fn a_wait_that_panics_gives_its_waiter_back() {
        let address = Arc::as_ptr(&Lent::new(Some(&KIND)));
        let panicked = std::panic::catch_unwind(|| {
            let lent = Lent::new(Some(&KIND));
            lent.semaphore.release();
            std::panic::resume_unwind(Box::new(Arc::as_ptr(&lent) as usize));
        });
        assert_eq!(*panicked.unwrap_err().downcast::<usize>().unwrap(), address as usize);
        assert!(!is_woken(&Lent::new(Some(&KIND))));
    }

    /// A destructor of the program's may lock when ours has run: then nothing is kept, and nothing panics.
    #[test]
    fn a_thread_that_ends_may_still_wait() {
        struct Last(std::sync::mpsc::Sender<bool>);
        impl Drop for Last {
            fn drop(&mut self) {
                let lent = Lent::new(Some(&KIND));
                let _ = self.0.send(SPARE.try_with(|_| ()).is_err() && !is_woken(&lent));
            }
        }
        std::thread_local! {
            static LAST: Cell<Option<Last>> = const { Cell::new(None) };
        }
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(|| {
            LAST.set(Some(Last(tell)));
            drop(Lent::new(Some(&KIND)));
        });
        assert!(told.recv().unwrap(), "it was torn down before");
    }
}
