//! How long a call waits, and how long it repeats its attempts.

use super::waiting::line::Backing;
use crate::base::error::Result;
use crate::base::lives::Life;
use crate::base::signal::{CancelToken, Semaphore};
use crate::base::stop::{Lookout, Stop};
use crate::base::time::{Lease, Moment};
use crate::client::Space;
use crate::lease::hold::Hold;
use crate::registry::LeftBehind;
use crate::store::Health;
use crate::store::node::{Broken, Failure, Limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The setters of [`Terms`], which a request has too. `setters_of_terms!('r, self.terms);` stands in its `impl`; the token lives for `'r`.
macro_rules! setters_of_terms {
    ($token:lifetime, $self:ident $(.$terms:ident)?) => {
        /// Waits at most this long, for a group as a whole: zero tries once, [`Duration::MAX`] waits for ever. Default: for ever.
        /// [Time-outs](Terms#when-the-time-is-over) says how the call ends if the server is slow or away.
        pub fn wait(mut $self, wait: Duration) -> Self {
            $self$(.$terms)?.wait = wait;
            $self
        }

        /// Takes the lock, or each of a group, for this lease, without renewing it: 10 ms to 365 days. Default: renewed by the watchdog.
        ///
        /// A hold whose lease is over has to be unlocked, too. Until its thread does that or ends, the client remembers the hold, in about
        /// 1 kB, and that thread's acquires of the name are [`Error::Lost`](crate::Error::Lost). A rate limiter, which lets something
        /// happen once in a while, needs no lock: `SET <name> 1 NX PX <milliseconds>`.
        pub fn lease(mut $self, lease: Duration) -> Self {
            ($self$(.$terms)?.lease, $self$(.$terms)?.renewed) = (Some(lease), false);
            $self
        }

        /// Takes the lock, or each of a group, for this lease, 100 ms to 365 days, and renews it every third of that. So a holder that died
        /// blocks others for this lease instead of the client's [`watchdog_timeout`](crate::ClientBuilder::watchdog_timeout). A leader may
        /// have a short lease beside the long ones of the same client.
        ///
        /// A renewal waits for its answer for a third of the lease, but 200 ms at least. A lease longer than
        /// [`max_hold`](crate::ClientBuilder::max_hold) is refused. An inner level of a hold can only make it longer, while that level is
        /// open. A lock is not passed on in memory to a call that asks for another lease than it is renewed with.
        pub fn renewed_lease(mut $self, lease: Duration) -> Self {
            ($self$(.$terms)?.lease, $self$(.$terms)?.renewed) = (Some(lease), true);
            $self
        }

        /// Ends the wait when the token is cancelled. Default: nothing does.
        pub fn cancelled_by(mut $self, token: &$token CancelToken) -> Self {
            $self$(.$terms)?.token = Some(token);
            $self
        }
    };
}

pub(super) use setters_of_terms;

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
///
/// # When the time is over
///
/// A server may be slow or away when the time of an acquire ends. A wait is longer than zero and ends. A try is a wait of zero, and its
/// time is one [`response_timeout`](crate::ClientBuilder::response_timeout). The errors are those of [`Error`](crate::Error).
///
/// | the server | a wait ends with | a try ends with |
/// | --- | --- | --- |
/// | said that the lock is busy | `false` or `None` | `false` or `None` |
/// | came to the command too late, and refused to execute it | `false` or `None` | `Unavailable` |
/// | said that the lock is busy, and was away later, or no connection was free later | `false` or `None` | |
/// | was away all the time | `Unavailable` | `Unavailable` |
/// | was not asked: all connections of the pool were in use until then | `Unavailable`, which names the pool | the same |
/// | did not answer a command that it may have executed | `OutcomeUnknown` | `OutcomeUnknown` |
/// | refused to serve until the end, as while it loads its data | `Refused` | `Refused` |
///
/// So a wait of 2 ms on a machine that stalls for a moment ends without the lock. A try reports such a stall, for a whole response time-out
/// was not enough. A wait that never got a connection names the pool, since the lock may have been free all the time:
/// [`pool_size`](crate::ClientBuilder::pool_size) has their number, and how to choose it. For a [`QuorumLock`](crate::QuorumLock) "the
/// server" is a majority. A [`MultiLock`](crate::MultiLock) ends in the same way by the member that it waits for at its deadline.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Terms<'t> {
    pub(crate) wait: Duration,
    pub(crate) lease: Option<Duration>,
    pub(crate) renewed: bool,
    pub(crate) token: Option<&'t CancelToken>,
    /// For a try: the deadline of the answer, if not only one response time-out.
    pub(crate) answer_by: Option<Moment>,
    pub(crate) part: Part,
}

/// Whether a call is part of a group's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It is a call of its own.
    No,
    /// The group holds nothing meanwhile. If it ends without the lock, the group's wait ends, too.
    EmptyHanded,
    /// The group holds other members. If it ends without the lock, the group's wait ends, too.
    Last,
    /// If it ends without the lock, the group's wait does not end.
    Passing,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'t> Terms<'t> {
    /// Wait for ever, for a lease that the watchdog renews, without a cancel token.
    pub fn new() -> Self {
        Self { wait: Duration::MAX, lease: None, renewed: false, token: None, answer_by: None, part: Part::No }
    }

    setters_of_terms!('t, self);
}

/// How long a call repeats its attempts at the store.
pub(super) struct Patience<'a> {
    space: &'a Space,
    health: &'a dyn Health,
    pub(super) stop: Stop<'a>,
    limit: Option<Moment>,
    attempts: usize,
    takes_no: bool,
    /// The call waits for a lock, for a time that the caller gave.
    waits: bool,
    /// The store has answered this call.
    answered: AtomicBool,
}

/// The failures of a call so far.
#[derive(Default)]
struct Trouble {
    attempts: usize,
    /// When the first attempt began.
    since: Option<Moment>,
    pause: Option<Duration>,
    /// Released when the master moves.
    ear: Option<Arc<Semaphore>>,
    /// The first attempt that was sent and not answered.
    doubt: Option<Failure>,
    /// The last refused login, which the server may accept later.
    login: Option<Failure>,
}

impl Trouble {
    /// The failure that the call ends with. The last attempt before a deadline may have too little time to connect. A refused login before
    /// it tells the caller what is wrong, and a time-out does not.
    fn verdict(self, last: Failure) -> Failure {
        let has_no_news = matches!(last, Failure::Unreached(_)) && last.is_timeout();
        self.login.filter(|_| has_no_news).unwrap_or(last).after(self.doubt)
    }
}

/// The pause before an attempt is repeated, doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The error codes of a server that says "not yet": it starts, is busy with a script, or waits for the rest of its cluster.
const NOT_YET: [&str; 5] = ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN"];

/// Whether a failure is an answer. `moves`: another server may take the place of the one that refused.
pub(super) fn is_no(failure: &Failure, moves: bool) -> bool {
    let may_answer_later = |code: &str| NOT_YET.contains(&code) || (code == "READONLY" && moves);
    matches!(failure, Failure::Refused { code, .. } if !may_answer_later(code)) && !failure.is_of_login()
}

impl<'a> Patience<'a> {
    /// Patience until the store has been out of reach for the outage budget.
    pub(super) fn new(space: &'a Space, health: &'a dyn Health, resource: &'a str) -> Self {
        let stop = Stop::new(&space.clock, &space.shutdown, resource);
        let answered = AtomicBool::new(false);
        Self { space, health, stop, limit: None, attempts: usize::MAX, takes_no: false, waits: false, answered }
    }

    /// Ends at `limit` at the latest; of several limits the earliest counts.
    pub(super) fn until(self, limit: Moment) -> Self {
        Self { limit: Some(self.limit.map_or(limit, |other| other.min(limit))), ..self }
    }

    /// One attempt, for one response time-out.
    pub(super) fn once(self) -> Self {
        let limit = self.space.one_answer();
        Self { attempts: 1, ..self.until(limit) }
    }

    /// Takes a refusal as the answer, even if it may pass later. A refusal by a server that another may replace is none.
    pub(super) fn taking_no(self) -> Self {
        Self { takes_no: true, ..self }
    }

    /// Takes the terms of an acquire. A try does not wait for the lock, but does wait for the server's answer. A try of a waiting group is
    /// part of that wait.
    pub(super) fn on(self, terms: &Terms<'a>) -> Self {
        let own_deadline = match terms.wait {
            Duration::MAX => None,
            Duration::ZERO => Some(self.space.one_answer().min(terms.answer_by.unwrap_or(Moment::MAX))),
            wait => Some(self.space.clock.now().plus(wait)),
        };
        let waits = terms.answer_by.is_some() || !matches!(terms.wait, Duration::MAX | Duration::ZERO);
        Self { stop: self.stop.at(own_deadline).cancelled_by(terms.token), waits, ..self }
    }

    /// A release of the semaphore ends pauses early. The token releases it, too.
    pub(super) fn woken_by(self, semaphore: &'a Arc<Semaphore>) -> Self {
        Self { stop: self.stop.woken_by(semaphore), ..self }
    }

    pub(super) fn watched_by(self, lookout: &'a dyn Lookout) -> Self {
        Self { stop: self.stop.watched_by(lookout), ..self }
    }

    /// Repeats an attempt until it is answered, refused for good, or the patience ends.
    pub(super) fn persist<T>(&self, attempt: impl FnMut(Moment) -> Result<T, Failure>) -> Result<T> {
        self.ask(attempt)?.map_err(|failure| failure.into_error(self.stop.resource))
    }

    /// The same for a removal, which says whether something was there, and which life of the server found that. Nothing is there after an attempt
    /// that the same life has not answered: that attempt may have removed it. Also returned: whether an attempt was not answered.
    pub(super) fn remove(
        &self,
        mut attempt: impl FnMut(Moment) -> Result<(bool, Life), Failure>,
    ) -> Result<(bool, bool)> {
        let mut asked = Vec::new();
        let (was_there, life) = self.persist(|answer_by| {
            attempt(answer_by).inspect_err(|failure| {
                if let Failure::Unknown { life, .. } = failure {
                    asked.push(*life);
                }
            })
        })?;
        Ok((was_there || asked.contains(&life), !asked.is_empty()))
    }

    /// The same for an acquire. `None`: the caller's wait ended without the lock, even if the last attempt had no time.
    pub(super) fn persist_in_wait<T>(
        &self,
        mut attempt: impl FnMut(Moment) -> Result<T, Failure>,
    ) -> Result<Option<T>> {
        let answered = |result: &Result<T, Failure>| matches!(result, Ok(_) | Err(Failure::Stale));
        let noted = |ends| {
            let result = attempt(ends);
            self.answered.fetch_or(answered(&result), SeqCst);
            result
        };
        match self.ask(noted)? {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if self.ends_wait(&failure) => Ok(None),
            Err(failure) => Err(failure.into_error(self.stop.resource)),
        }
    }

    /// Whether a wait that ends with this failure returns `None` instead of an error. Nothing was applied, and the server has answered, if
    /// only that the attempt came too late: a caller that waits 2 ms need not hear that a machine stalled for 3 ms. If the server answered
    /// nothing, or may have applied an attempt, the caller gets the error.
    fn ends_wait(&self, failure: &Failure) -> bool {
        let is_in_vain = match failure {
            Failure::Stale => true,
            Failure::Unreached(_) => self.answered.load(SeqCst),
            Failure::Unknown { .. } | Failure::Refused { .. } => false,
        };
        self.waits && is_in_vain
    }

    /// The limits of an attempt that takes or prolongs: whatever ends the call ends its wait for a connection, too.
    pub(super) fn limits(&self, lease: Lease, answer_by: Moment) -> Limits<'_> {
        Limits { stop: Some(&self.stop), ..Limits::of_lease(lease, answer_by) }
    }

    fn ask<T>(&self, mut attempt: impl FnMut(Moment) -> Result<T, Failure>) -> Result<Result<T, Failure>> {
        let mut trouble = Trouble::default();
        loop {
            let now = self.space.clock.now();
            trouble.since.get_or_insert(now);
            match attempt(self.attempt_ends(&trouble, now)) {
                Ok(answer) => return Ok(Ok(answer)),
                Err(failure) if self.is_spent(&failure, &mut trouble) => {
                    self.hold_back(&failure, now)?;
                    return Ok(Err(trouble.verdict(failure)));
                }
                Err(failure) => {
                    self.stop.check()?;
                    self.recover(failure, &mut trouble);
                }
            }
            self.stop.check()?;
        }
    }

    /// Whether this failure is the last. A call without a deadline bears failures for one outage budget, even if other calls are answered
    /// meanwhile.
    fn is_spent(&self, failure: &Failure, trouble: &mut Trouble) -> bool {
        let now = self.space.clock.now();
        trouble.attempts += 1;
        let since = trouble.since.unwrap_or(now);
        let borne = self.stop.deadline.is_none() && now >= since.plus(self.space.config.outage_budget);
        let settled = self.is_no(failure) || !failure.may_pass();
        settled || borne || trouble.attempts >= self.attempts || now >= self.ends(now)
    }

    /// Whether a refusal is the answer. A server that is no master any more may be replaced by one that does not refuse. A server that
    /// refuses the login has not executed the request.
    fn is_no(&self, failure: &Failure) -> bool {
        self.takes_no && is_no(failure, self.health.moves())
    }

    /// Pauses before the next attempt. The first unanswered attempt may have met an idle connection that the server had closed: so the next
    /// attempt starts at once, on a fresh connection.
    fn recover(&self, failure: Failure, trouble: &mut Trouble) {
        if trouble.doubt.is_none() && matches!(failure, Failure::Unknown { .. }) {
            trouble.doubt = Some(failure);
            return;
        }
        if failure.is_of_login() {
            trouble.login = Some(failure);
        }
        let pause = trouble.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        trouble.pause = Some(pause);
        self.sleep(pause, trouble.ear.get_or_insert_with(|| self.ear()));
    }

    /// Once the outage budget is spent, each attempt may fail within microseconds. A program that repeats retryable errors would spin. So a
    /// call without a limit takes [its time](Stop::take_least). A call with a limit repeats its attempts until then.
    ///
    /// # Errors
    /// As [`Stop::check`].
    fn hold_back(&self, failure: &Failure, last_began: Moment) -> Result<()> {
        if self.limit.is_none() && failure.may_pass() { self.stop.take_least(last_began) } else { Ok(()) }
    }

    /// The first attempt of a call without a deadline gets one response time-out, however old the outage is. Else no call would ever find
    /// out that the outage is over.
    fn attempt_ends(&self, trouble: &Trouble, now: Moment) -> Moment {
        match self.stop.deadline {
            None if trouble.attempts == 0 => {
                let ends = self.ends(now).max(now.plus(self.space.config.response_timeout));
                self.limit.map_or(ends, |limit| limit.min(ends))
            }
            _ => self.ends(now),
        }
    }

    /// The end of all attempts: the caller's deadline, or else the outage's; never beyond the limit.
    fn ends(&self, now: Moment) -> Moment {
        let ends = self.stop.deadline.unwrap_or_else(|| self.health.outage_ends(self.stop.resource, now));
        self.limit.map_or(ends, |limit| limit.min(ends))
    }

    /// A semaphore for pauses, which a move of the master releases.
    fn ear(&self) -> Arc<Semaphore> {
        let ear = self.stop.ear();
        self.space.moves.heard_by(&ear);
        ear
    }

    /// Sleeps for `span`, and not beyond the end of the patience. A wake of the call or a move of the master ends it early.
    fn sleep(&self, span: Duration, ear: &Semaphore) {
        let now = self.space.clock.now();
        self.stop.pause(span.min(self.ends(now).since(now)), ear);
    }

    /// Fails a parked call with the same outage as the call that contends.
    pub(super) fn check_outage(&self) -> Result<()> {
        let now = self.space.clock.now();
        if self.stop.deadline.is_none() && self.ends(now) <= now {
            let unreached = || Failure::Unreached(Broken::new("the outage budget is spent"));
            return Err(self
                .health
                .last_failure(self.stop.resource)
                .unwrap_or_else(unreached)
                .never_sent()
                .into_error(self.stop.resource));
        }
        Ok(())
    }
}

/// Nothing is passed on in memory to a call that waits for what no thread holds.
impl Backing for Patience<'_> {
    fn accept(&self, _: &Hold) -> Result<bool> {
        Ok(false)
    }

    fn take_back(&self, _: LeftBehind) {}

    fn check_outage(&self) -> Result<()> {
        Patience::check_outage(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::HandOff;
    use crate::base::error::{Applied, BY_CALLBACK, Cause, Error};
    use crate::lock::kinds::local::engine_in_memory;

    /// Fifty pauses that nothing ends take 9 s.
    #[test]
    fn a_pause_ends_when_the_master_moves() {
        let engine = engine_in_memory(HandOff::default());
        let (moved, semaphore) = (engine.space.common().unwrap().moved, Arc::default());
        for patience in [engine.patience("n"), engine.patience("n").woken_by(&semaphore)] {
            let (start, mut asked) = (engine.space.clock.now(), 0);
            let answer = patience.persist(|_| {
                asked += 1;
                // Before its first pause a call does not listen for moves.
                if asked > 1 {
                    moved(&|_| true);
                }
                if asked == 50 { Ok(()) } else { Err(Failure::Unreached(Broken::new("nobody is there"))) }
            });
            let took = engine.space.clock.now().since(start);
            assert!(answer.is_ok() && took < Duration::from_secs(4), "{took:?}");
        }
    }

    #[test]
    fn a_call_whose_time_ends_while_it_connects_tells_of_the_login_that_was_refused_before() {
        let (cause, applied) = (Cause::new(BY_CALLBACK), Applied::No);
        let refused = || Failure::Refused { code: "WRONGPASS".to_owned(), applied, cause: cause.clone() };
        let broken = |timed_out| Broken { timed_out, ..Broken::new("nobody is there") };
        let verdict = |last| Trouble { login: Some(refused()), ..Trouble::default() }.verdict(last);
        assert!(verdict(Failure::Unreached(broken(true))).is_of_login());
        assert!(matches!(verdict(Failure::Unreached(broken(false))), Failure::Unreached(_)), "that is news");
        assert!(matches!(Trouble::default().verdict(Failure::Unreached(broken(true))), Failure::Unreached(_)));
    }

    /// How a call ends if the store answers `answers` times, and then fails in this way until the end.
    fn ends(terms: &Terms<'_>, answers: usize, failure: &Failure) -> Result<bool> {
        let engine = engine_in_memory(HandOff::default());
        let patience = engine.patience("n").on(terms);
        (0..answers).for_each(|_| assert!(patience.persist_in_wait(|_| Ok(())).unwrap().is_some()));
        let told = patience.persist_in_wait(|_| Err::<(), _>(failure.clone()));
        told.map(|answer| answer.is_some())
    }

    #[test]
    fn a_wait_ends_in_vain_if_the_store_answered_and_with_an_error_if_it_did_not() {
        const SHORT: Duration = Duration::from_millis(5);
        let (wait, part) = (Terms::new().wait(SHORT), Terms { answer_by: Some(Moment(0)), ..Terms::new() });
        let of_group = part.wait(Duration::ZERO);
        let broken = || Broken::new("nobody is there");
        let unknown = Failure::Unknown { open_until: Moment(0), life: Life::ONLY, broken: broken() };
        for terms in [wait, of_group] {
            assert!(!ends(&terms, 0, &Failure::Stale).unwrap());
            assert!(!ends(&terms, 1, &Failure::Unreached(broken())).unwrap());
            assert!(matches!(ends(&terms, 0, &Failure::Unreached(broken())), Err(Error::Unavailable { .. })));
            assert!(matches!(ends(&terms, 1, &unknown), Err(Error::OutcomeUnknown { .. })));
            assert!(matches!(ends(&terms, 1, &Failure::not_understood()), Err(Error::Refused { .. })));
        }
    }
}
