//! How long a call waits and goes on asking, and what makes it stop.

use super::primitive::Primitive;
use crate::backend::{Broken, Failure};
use crate::client::Space;
use crate::error::{Error, Result};
use crate::signal::{CancelToken, Semaphore};
use crate::time::Moment;
use std::sync::Arc;
use std::time::Duration;

/// The terms of one acquire: how long to wait, for which lease, and who may end the wait.
///
/// ```
/// use redlatch::{LocalRedLock, RedLock, Terms};
/// use std::time::Duration;
///
/// let locks = LocalRedLock::new();
/// let terms = Terms::new().wait(Duration::from_millis(500)).lease(Duration::from_secs(10));
/// let hold = locks.acquire("order:42", &terms)?.expect("it is free");
/// locks.release(&hold)?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Terms<'t> {
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) token: Option<&'t CancelToken>,
    /// A wait of zero is for the answer to a try. When that has to be there, if not only in one response time-out.
    pub(crate) answer_by: Option<Moment>,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'t> Terms<'t> {
    /// Wait for ever, for a lease that the watchdog renews; not to be cancelled.
    pub fn new() -> Self {
        Self { wait: Duration::MAX, lease: None, token: None, answer_by: None }
    }

    /// Waits at most so long: zero tries once, [`Duration::MAX`] waits for ever.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Takes the lock for so long, 10 ms to 365 days, without renewing it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Ends the wait when the token is cancelled.
    pub fn cancelled_by(mut self, token: &'t CancelToken) -> Self {
        self.token = Some(token);
        self
    }
}

/// How long a call goes on asking its store, and what makes it stop.
pub(super) struct Patience<'a> {
    space: &'a Space,
    store: &'a dyn Primitive,
    resource: &'a str,
    own_deadline: Option<Moment>,
    limit: Option<Moment>,
    token: Option<&'a CancelToken>,
    semaphore: Option<&'a Arc<Semaphore>>,
    attempts: usize,
    takes_no: bool,
}

/// What went wrong in a call so far.
#[derive(Default)]
struct Trouble {
    attempts: usize,
    /// When the first attempt began.
    since: Option<Moment>,
    pause: Option<Duration>,
    /// The first attempt that was sent and not answered.
    doubt: Option<Failure>,
}

/// The pause before an attempt is repeated, doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl<'a> Patience<'a> {
    /// Until the store has been out of reach for the outage budget.
    pub(super) fn new(space: &'a Space, store: &'a dyn Primitive, resource: &'a str) -> Self {
        Self {
            space,
            store,
            resource,
            own_deadline: None,
            limit: None,
            token: None,
            semaphore: None,
            attempts: usize::MAX,
            takes_no: false,
        }
    }

    /// Not beyond a point in time.
    pub(super) fn until(self, limit: Moment) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// One attempt.
    pub(super) fn once(self) -> Self {
        let limit = self.space.one_answer();
        Self { attempts: 1, ..self.until(limit) }
    }

    /// A refusal is an answer, also one that could pass.
    pub(super) fn taking_no(self) -> Self {
        Self { takes_no: true, ..self }
    }

    /// As an acquire's terms say. A try waits for no lock, but it does wait for the server's answer.
    pub(super) fn on(self, terms: &Terms<'a>) -> Self {
        let own_deadline = match terms.wait {
            Duration::MAX => None,
            Duration::ZERO => Some(self.space.one_answer().min(terms.answer_by.unwrap_or(Moment::MAX))),
            wait => Some(self.space.clock.now().plus(wait)),
        };
        Self { own_deadline, token: terms.token, ..self }
    }

    /// Pauses end early when the semaphore is released, which the token does too.
    pub(super) fn woken_by(self, semaphore: &'a Arc<Semaphore>) -> Self {
        if let Some(token) = self.token {
            token.wake(semaphore);
        }
        Self { semaphore: Some(semaphore), ..self }
    }

    pub(super) fn token(&self) -> Option<&'a CancelToken> {
        self.token
    }

    /// Repeats an attempt until it is answered, refused for good, or the patience ends. With the answer comes
    /// whether any attempt before it was left unanswered.
    pub(super) fn persist<T>(&self, mut attempt: impl FnMut(Moment) -> Result<T, Failure>) -> Result<(T, bool)> {
        let mut trouble = Trouble::default();
        loop {
            let now = self.space.clock.now();
            trouble.since.get_or_insert(now);
            match attempt(self.attempt_ends(&trouble, now)) {
                Ok(answer) => return Ok((answer, trouble.doubt.is_some())),
                Err(failure) if self.is_spent(&failure, &mut trouble) => {
                    return Err(failure.after(trouble.doubt).into_error(self.resource));
                }
                Err(failure) => self.recover(failure, &mut trouble),
            }
            self.check_stopped()?;
        }
    }

    /// Whether this failure is the last. A call without a deadline bears failures for one outage budget, also
    /// when others are answered meanwhile.
    fn is_spent(&self, failure: &Failure, trouble: &mut Trouble) -> bool {
        let now = self.space.clock.now();
        trouble.attempts += 1;
        let since = trouble.since.unwrap_or(now);
        let borne = self.own_deadline.is_none() && now >= since.plus(self.space.config.outage_budget);
        let refused = self.takes_no && matches!(failure, Failure::Refused { .. });
        refused || borne || trouble.attempts >= self.attempts || !failure.may_pass() || now >= self.ends(now)
    }

    /// Pauses before the next attempt. The first that was not answered may have met an idle connection which
    /// the server had closed: a fresh one is tried at once.
    fn recover(&self, failure: Failure, trouble: &mut Trouble) {
        if trouble.doubt.is_none() && matches!(failure, Failure::Unknown { .. }) {
            trouble.doubt = Some(failure);
            return;
        }
        let pause = trouble.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        trouble.pause = Some(pause);
        self.sleep(pause);
    }

    /// The first attempt of a call without a deadline gets time for an answer, however old the outage is: else
    /// nobody would ever find out that it is over.
    fn attempt_ends(&self, trouble: &Trouble, now: Moment) -> Moment {
        match self.own_deadline {
            None if trouble.attempts == 0 => {
                let ends = self.ends(now).max(now.plus(self.space.config.response_timeout));
                self.limit.map_or(ends, |limit| limit.min(ends))
            }
            _ => self.ends(now),
        }
    }

    /// When asking ends: the caller's deadline, or else the outage's; never beyond the limit.
    fn ends(&self, now: Moment) -> Moment {
        let ends = self.own_deadline.unwrap_or_else(|| self.store.outage_ends(now));
        self.limit.map_or(ends, |limit| limit.min(ends))
    }

    /// Sleeps at most so long, at most until the patience ends, and less when the call is woken.
    fn sleep(&self, span: Duration) {
        let now = self.space.clock.now();
        let span = span.min(self.ends(now).since(now));
        match self.semaphore {
            Some(semaphore) => drop(semaphore.acquire(span)),
            // A release, a try or a look of its own: nobody could wake it, and it pauses for 200 ms at most.
            None => std::thread::sleep(span),
        }
    }

    /// # Errors
    /// `Closed` after a shutdown, `Cancelled` by the token.
    pub(super) fn check_stopped(&self) -> Result<()> {
        self.space.check_not_shut(self.resource)?;
        match self.token {
            Some(token) if token.is_cancelled() => Err(Error::cancelled(self.resource)),
            _ => Ok(()),
        }
    }

    /// Whether the caller's time is up.
    pub(super) fn is_over(&self) -> bool {
        self.own_deadline.is_some_and(|deadline| deadline <= self.space.clock.now())
    }

    /// A call that is queued fails with the outage, as the one that contends does.
    pub(super) fn check_outage(&self) -> Result<()> {
        let now = self.space.clock.now();
        if self.own_deadline.is_none() && self.ends(now) <= now {
            let unreached = || Failure::Unreached(Broken::new("the outage budget is spent"));
            return Err(self.store.last_failure().unwrap_or_else(unreached).never_sent().into_error(self.resource));
        }
        Ok(())
    }

    /// The time left to the caller, no more than `cap`.
    pub(super) fn at_most(&self, cap: Duration) -> Duration {
        let left = self.own_deadline.map(|deadline| deadline.since(self.space.clock.now()));
        left.map_or(cap, |left| left.min(cap))
    }
}
