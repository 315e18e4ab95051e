//! The loop with bids that are no locks: a count, a look, a place in a queue at the store.

use super::*;
use crate::base::config::Settings;
use crate::base::signal::{CancelToken, Shutdown};
use crate::base::stats::Counters;
use crate::base::time::Clock;
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;

const LONG: Duration = Duration::from_secs(20);

/// Calls `contend` of a call that may wait for so long.
fn contend<B: Bid>(bid: &mut B, limit: Duration, token: Option<&CancelToken>) -> Result<Option<B::Won>> {
    contend_within(bid, limit, token, LONG)
}

fn contend_within<B: Bid>(
    bid: &mut B,
    limit: Duration,
    token: Option<&CancelToken>,
    outage_budget: Duration,
) -> Result<Option<B::Won>> {
    let settings = Settings { outage_budget: Some(outage_budget), poll_cap: Some(2 * LONG), ..Settings::default() };
    let (config, counters, shutdown, semaphore) =
        (settings.derive().unwrap(), Counters::default(), Shutdown::default(), Arc::default());
    let deadline = (limit != Duration::MAX).then(|| Clock::Boot.now().plus(limit));
    let stop = Stop::new(&Clock::Boot, &shutdown, "n").at(deadline).cancelled_by(token).woken_by(&semaphore);
    let contention = Contention::new(&counters);
    Call { config: &config, stop: &stop, contention: &contention, semaphore: &semaphore }.contend(bid)
}

/// Something at a store that changes, and tells those who listen.
#[derive(Default)]
struct Shared {
    value: Mutex<i64>,
    listeners: Mutex<Vec<Arc<Semaphore>>>,
}

impl Shared {
    fn add(&self, number: i64) {
        *self.value.lock() += number;
        self.listeners.lock().iter().for_each(|listener| listener.release());
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.listeners.lock().push(Arc::clone(semaphore));
        Some(Box::new(Told))
    }

    fn is_listened_to(&self) -> bool {
        !self.listeners.lock().is_empty()
    }
}

struct Told;

impl Listening for Told {
    fn is_confirmed(&self) -> bool {
        true
    }
}

/// So many permits at once, or none.
struct Permits<'a>(&'a Shared, i64);

impl Bid for Permits<'_> {
    type Won = i64;

    fn ask(&mut self) -> Result<Outcome<i64>> {
        let mut value = self.0.value.lock();
        if *value < self.1 {
            return Ok(Outcome::Busy(None));
        }
        *value -= self.1;
        Ok(Outcome::Won(*value))
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.0.listen(semaphore)
    }
}

/// Whether a count is down, which nobody takes from anybody: so everybody looks, and nobody stands in line.
struct Look<'a>(&'a Shared);

impl Bid for Look<'_> {
    type Won = ();

    fn ask(&mut self) -> Result<Outcome<()>> {
        Ok(if *self.0.value.lock() <= 0 { Outcome::Won(()) } else { Outcome::Busy(None) })
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.0.listen(semaphore)
    }
}

/// What the store answers to one question after the other; it remembers that it was asked until it is told otherwise.
#[derive(Default)]
struct Scripted {
    answers: Vec<fn() -> Result<Outcome<()>>>,
    is_queued: bool,
    withdrawals: usize,
}

impl Scripted {
    fn new(answers: &[fn() -> Result<Outcome<()>>]) -> Self {
        Self { answers: answers.iter().rev().copied().collect(), ..Self::default() }
    }
}

impl Bid for Scripted {
    type Won = ();

    fn ask(&mut self) -> Result<Outcome<()>> {
        self.is_queued = true;
        let outcome = self.answers.pop().unwrap_or(busy)();
        self.is_queued = !matches!(outcome, Ok(Outcome::Won(())));
        outcome
    }

    fn listen(&self, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        None
    }

    fn withdraw(&mut self) {
        (self.is_queued, self.withdrawals) = (false, self.withdrawals + 1);
    }
}

fn busy() -> Result<Outcome<()>> {
    Ok(Outcome::Busy(Some(Duration::ZERO)))
}

fn won() -> Result<Outcome<()>> {
    Ok(Outcome::Won(()))
}

fn again() -> Result<Outcome<()>> {
    Ok(Outcome::Again)
}

#[test]
fn a_count_is_waited_for_until_there_is_enough() {
    let permits = Shared::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| contend(&mut Permits(&permits, 3), LONG, None).unwrap());
        while !permits.is_listened_to() {
            std::thread::yield_now();
        }
        (0..4).for_each(|_| permits.add(1));
        assert!(waiting.join().unwrap().is_some_and(|left| left <= 1));
    });
    assert_eq!(*permits.value.lock(), 1);
}

#[test]
fn a_look_is_everybodys_at_once() {
    let count = Shared::default();
    count.add(1);
    std::thread::scope(|scope| {
        let looking = [(); 3].map(|()| scope.spawn(|| contend(&mut Look(&count), LONG, None).unwrap()));
        while count.listeners.lock().len() < 3 {
            std::thread::yield_now();
        }
        count.add(-1);
        assert!(looking.into_iter().all(|look| look.join().unwrap().is_some()));
    });
}

#[test]
fn what_has_won_is_not_withdrawn() {
    let mut bid = Scripted::new(&[busy, again, won]);
    assert!(contend(&mut bid, LONG, None).unwrap().is_some());
    assert_eq!((bid.is_queued, bid.withdrawals), (false, 0));
}

#[test]
fn whoever_goes_without_having_won_is_withdrawn_once() {
    let too_late: fn() -> Result<Outcome<()>> = || Ok(Outcome::Busy(None));
    let mut late = Scripted::new(&[busy, too_late, too_late]);
    assert!(contend(&mut late, Duration::from_millis(20), None).unwrap().is_none());

    let mut failed = Scripted::new(&[busy, || Err(Error::unavailable("n", "on purpose"))]);
    assert!(contend(&mut failed, LONG, None).is_err());

    let mut panicked = Scripted::new(&[busy, || std::panic::resume_unwind(Box::new("on purpose"))]);
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| contend(&mut panicked, LONG, None))).is_err());

    static TOKEN: once_cell::sync::Lazy<CancelToken> = once_cell::sync::Lazy::new(CancelToken::new);
    let mut cancelled = Scripted::new(&[|| {
        TOKEN.cancel();
        Ok(Outcome::Busy(None))
    }]);
    assert!(matches!(contend(&mut cancelled, LONG, Some(&TOKEN)), Err(Error::Cancelled { .. })));

    for bid in [late, failed, panicked, cancelled] {
        assert_eq!((bid.is_queued, bid.withdrawals), (false, 1));
    }
}

#[test]
fn what_was_never_asked_is_not_withdrawn() {
    let token = CancelToken::new();
    token.cancel();
    let mut bid = Scripted::new(&[won]);
    assert!(contend(&mut bid, LONG, Some(&token)).is_err());
    assert_eq!((bid.answers.len(), bid.withdrawals), (1, 0));
}

#[test]
fn what_is_never_believed_is_not_asked_for_without_end() {
    let mut bid = Scripted::new(&[again, again, again]);
    let result = contend_within(&mut bid, Duration::MAX, None, Duration::ZERO);
    assert!(matches!(result, Err(Error::Unavailable { .. })));
    assert_eq!((bid.answers.len(), bid.withdrawals), (2, 1));
}

/// Who waits long for a lock in demand looks at as many of its unlocks as who has just come; what an answer says of an
/// unchanged lock, however late it comes, is no reason to follow more hints.
#[test]
fn only_hints_without_a_change_of_the_lock_are_put_off() {
    let (began, minute, ms) = (Moment(1), Duration::from_secs(60), Duration::from_millis);
    let mut hints = Hints::default();
    let mut is_forgiven = |asked: Moment, answered: Moment, left: Option<Duration>| {
        hints.paid = Moment::MAX;
        hints.note_end(asked, answered, left);
        hints.paid == Moment(0)
    };
    let late = began.plus(ms(50));
    assert!(!is_forgiven(began, began, Some(minute)));
    assert!(!is_forgiven(began, began, Some(minute)));
    assert!(!is_forgiven(began, late, Some(minute)), "the answer took 50 ms");
    assert!(!is_forgiven(began.plus(ms(40)), late, Some(minute - ms(40))));
    assert!(is_forgiven(began, late, Some(2 * minute)), "taken anew, or prolonged");
    assert!(is_forgiven(began, late, Some(minute)), "taken anew, for less");
    assert!(is_forgiven(began, late, None), "without an end");
    assert!(!is_forgiven(began, late, None));
}

#[test]
fn a_row_of_hints_is_followed_at_once_and_more_in_their_time() {
    let now = Moment(1_000_000_000);
    let mut hints = Hints::default();
    assert!((0..HINTS_AT_ONCE).all(|_| hints.pay(now).is_zero()));
    assert_eq!([hints.pay(now), hints.pay(now)], [HINT_EVERY, 2 * HINT_EVERY]);
    assert!(hints.pay(now.plus(3 * HINT_EVERY)).is_zero());
}
