//! The semaphore that a waiter sleeps on, and the signals that stop its wait.

use crate::base::error::{Error, Result};
use crate::base::meters::Woken;
use crate::base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::base::sync::{Condvar, Mutex};
use crate::base::unwind::survives_a_panic;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A semaphore that starts with no permit: [`acquire`](Self::acquire) blocks until someone releases one.
///
/// Permits beyond the first are dropped: a permit means "look again", and looking once is enough.
#[derive(Debug, Default)]
pub(crate) struct Semaphore {
    permit: Mutex<bool>,
    released: Condvar,
    onward: Option<Arc<Semaphore>>,
    deaf: AtomicBool,
    pub(crate) woken: Woken,
}

impl Semaphore {
    /// A semaphore that keeps no permit and passes each on to `onward`, unless it is deaf: for one of several sources of news.
    pub(crate) fn relay(onward: &Arc<Self>) -> Self {
        Self { onward: Some(Arc::clone(onward)), ..Self::default() }
    }

    /// Whether this relay drops all permits from now on.
    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, SeqCst);
    }

    /// Lets the waiter through, now or at its next [`acquire`](Self::acquire). Never blocks.
    pub(crate) fn release(&self) {
        match &self.onward {
            Some(_) if self.deaf.load(SeqCst) => {}
            Some(onward) => onward.release(),
            None => {
                let mut permit = self.permit.lock();
                // Before the waiter can take the permit: it reads when it was told.
                self.woken.is_told(*permit);
                *permit = true;
                drop(permit);
                self.released.notify_one();
            }
        }
    }

    /// Takes a permit, and waits for it at most `limit`. Returns whether it got one.
    pub(crate) fn acquire(&self, limit: Duration) -> bool {
        let mut permit = self.permit.lock();
        // A call that only looks does not queue and reads no clock.
        if !limit.is_zero() {
            self.released.wait_while_for(&mut permit, |permit| !*permit, limit);
        }
        let has_permit = std::mem::take(&mut *permit);
        self.woken.wakes(has_permit);
        has_permit
    }
}

/// Semaphores that are released together, each for as long as another owner keeps it.
#[derive(Debug, Default)]
struct Sleepers(Vec<Weak<Semaphore>>);

impl Sleepers {
    fn add(&mut self, sleeper: &Arc<Semaphore>) {
        self.0.retain(|known| known.strong_count() > 0);
        self.0.push(Arc::downgrade(sleeper));
    }

    fn wake(&self) {
        self.0.iter().filter_map(Weak::upgrade).for_each(|sleeper| sleeper.release());
    }
}

/// Ends the pauses of calls that the server failed: there is another server to ask.
#[derive(Debug, Default)]
pub(crate) struct Moves(Mutex<Sleepers>);

impl Moves {
    /// Releases this semaphore at each move, for as long as its owner keeps it.
    pub(crate) fn heard_by(&self, sleeper: &Arc<Semaphore>) {
        self.0.lock().add(sleeper);
    }

    pub(crate) fn tell(&self) {
        self.0.lock().wake();
    }
}

/// A subscription that releases a waiter's semaphore. Its drop ends it.
pub(crate) trait Listening: Send + Sync {
    /// Whether all messages from now on arrive.
    fn is_confirmed(&self) -> bool;
}

/// Whether a client is shut down: that ends all its waits for good.
#[derive(Debug, Default)]
pub(crate) struct Shutdown(AtomicBool);

impl Shutdown {
    /// Begins the shutdown; false if it had begun before.
    pub(crate) fn begin(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }

    /// # Errors
    /// `Closed` once it has begun.
    pub(crate) fn check(&self, resource: &str) -> Result<()> {
        if self.0.load(SeqCst) { Err(Error::closed(resource)) } else { Ok(()) }
    }
}

/// Listens to a channel. The one thread that reads for all channels calls it: it must not block, nor call its subscriber.
pub(crate) trait Ear: Send + Sync {
    /// A message came. Any user who may publish can send one, so it is a hint, unless it gives the lock to a ticket by its name.
    fn hear(&self, payload: &[u8]);

    /// Messages until now may be lost: the subscription has just begun, or was cut.
    fn missed(&self);

    /// The server refuses the channel. Returns what that means, if it is worth a line in the log.
    fn refused(&self) -> Option<&'static str> {
        Some("its waiters poll instead")
    }

    /// Whether the ear stands for as long as the client lives, and needs no connection of its own: it hears something only while others listen.
    fn is_standing(&self) -> bool {
        false
    }
}

/// Listens to a channel only to be counted. The semaphore, if given, is released when the subscription begins.
pub(crate) struct Deaf(pub(crate) Option<Arc<Semaphore>>);

impl Ear for Deaf {
    fn hear(&self, _: &[u8]) {}

    fn missed(&self) {
        self.0.iter().for_each(|waiter| waiter.release());
    }

    /// A refused listener is not counted, and that is all.
    fn refused(&self) -> Option<&'static str> {
        None
    }
}

/// Whatever the reason is, the waiter has to look.
impl Ear for Semaphore {
    fn hear(&self, _: &[u8]) {
        self.release();
    }

    fn missed(&self) {
        self.release();
    }
}

/// Ends the waits of the calls that have this token, from any thread. A lock that is already held stays held.
///
/// A cancelled token stays cancelled. A cancel takes effect between commands, so at the latest one response time-out later.
///
/// ```
/// use redlatch::{CancelToken, Error, LocalRedLock, RedLock};
///
/// let locks = LocalRedLock::new();
/// let token = CancelToken::new();
/// locks.lock("job")?;
/// std::thread::scope(|scope| {
///     let waiting = scope.spawn(|| locks.lock_cancellable("job", &token));
///     token.cancel();
///     assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled { .. })));
/// });
/// locks.unlock("job")?;
/// # Ok::<(), Error>(())
/// ```
///
/// A cancelled call returns at once, and the client takes back in the background what the call left at the server. If the lock is given to
/// the call just then, it is free again within milliseconds, or 1.5 s later if the client cannot release it so soon.
///
/// A token has no deadline. Each call has its own [`wait`](crate::Terms::wait), and a [`MultiLock`](crate::MultiLock) has one for all
/// members. For several calls under one deadline give each the time that is left:
///
/// ```
/// use redlatch::{CancelToken, LocalRedLock, RedLockExt};
/// use std::time::{Duration, Instant};
///
/// let (locks, token) = (LocalRedLock::new(), CancelToken::new());
/// let deadline = Instant::now() + Duration::from_secs(5);
/// for name in ["order:42", "stock:7"] {
///     let left = deadline.saturating_duration_since(Instant::now()); // zero tries once
///     let guard = locks.request(name).wait(left).cancelled_by(&token).guard()?;
///     assert!(guard.is_some());
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    state: Arc<Mutex<Cancel>>,
}

survives_a_panic!(CancelToken);

#[derive(Debug, Default)]
struct Cancel {
    cancelled: bool,
    waiting: Sleepers,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all waiting under this token, now and later.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        state.cancelled = true;
        std::mem::take(&mut state.waiting).wake();
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.lock().cancelled
    }

    /// Wakes this waiter when the token is cancelled.
    pub(crate) fn wake(&self, waiter: &Arc<Semaphore>) {
        self.state.lock().waiting.add(waiter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_without_a_permit_and_keeps_one() {
        let semaphore = Semaphore::default();
        assert!(!semaphore.acquire(Duration::ZERO));
        semaphore.release();
        semaphore.release();
        assert!(semaphore.acquire(Duration::MAX));
        assert!(!semaphore.acquire(Duration::from_millis(1)));
    }

    #[test]
    fn a_release_wakes_a_sleeper() {
        let semaphore = Arc::new(Semaphore::default());
        let sleeper = Arc::clone(&semaphore);
        let sleeping = std::thread::spawn(move || sleeper.acquire(Duration::MAX));
        semaphore.release();
        assert!(sleeping.join().unwrap());
    }

    #[test]
    fn a_relay_passes_on_what_it_hears() {
        let semaphore = Arc::new(Semaphore::default());
        let relay = Semaphore::relay(&semaphore);
        relay.release();
        assert!(semaphore.acquire(Duration::ZERO));
        relay.set_deaf(true);
        relay.release();
        assert!(!semaphore.acquire(Duration::ZERO));
        relay.set_deaf(false);
        relay.release();
        assert!(semaphore.acquire(Duration::ZERO));
    }

    #[test]
    fn a_cancelled_token_forgets_waiters_that_are_gone() {
        let token = CancelToken::new();
        for _ in 0..100 {
            token.wake(&Arc::new(Semaphore::default()));
        }
        assert_eq!(token.state.lock().waiting.0.len(), 1);
    }
}
