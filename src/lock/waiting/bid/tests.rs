//! The loop with bids that are no locks: a count, a look, a place in a queue at the store.

use super::*;
use crate::base::config::Settings;
use crate::base::signal::{CancelToken, Shutdown};
use crate::base::stats::Counters;
use crate::base::time::{Clock, Moment};
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;

const LONG: Duration = Duration::from_secs(20);

/// Runs `contend` for a call that waits at most for `limit`.
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

/// A value at a store that reports its changes to listeners.
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
        Some(Box::new(Heard))
    }

    fn is_listened_to(&self) -> bool {
        !self.listeners.lock().is_empty()
    }
}

struct Heard;

impl Listening for Heard {
    fn is_confirmed(&self) -> bool {
        true
    }
}

/// A bid for this number of permits, all at once or none.
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

/// A bid that ends when a count is down. It takes nothing: all calls look at once, without a line.
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

/// A store with scripted answers. It remembers the ask until the bid wins or is withdrawn.
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

/// A holder that works for longer than the budget, and then an answer that came too late: once, which says nothing of the next.
#[test]
fn a_long_wait_survives_an_answer_that_comes_too_late() {
    let budget = Duration::from_millis(20);
    let busy_for_long = || {
        std::thread::sleep(Duration::from_millis(30));
        busy()
    };
    let mut bid = Scripted::new(&[busy_for_long, again, busy_for_long, again, won]);
    assert_eq!(contend_within(&mut bid, LONG, None, budget).unwrap(), Some(()));
}

/// The grant whose answer came too late is still there when the call asks again.
#[test]
fn a_late_grant_that_the_next_ask_finds_busy_does_not_begin_the_time_anew() {
    let late = || {
        std::thread::sleep(Duration::from_millis(2));
        again()
    };
    let answers = [late, busy].repeat(1_000);
    let result = contend_within(&mut Scripted::new(&answers), LONG, None, Duration::from_millis(200));
    assert!(matches!(result, Err(Error::Unavailable { .. })));
}

/// A bid that passes its news on, and counts its asks.
#[derive(Default)]
struct Noted {
    told: Told,
    asked: usize,
    semaphore: std::cell::OnceCell<Arc<Semaphore>>,
}

impl Bid for Noted {
    type Won = ();

    /// The second ask gets news for a far moment, the third one news for this bid alone.
    fn ask(&mut self) -> Result<Outcome<()>> {
        self.asked += 1;
        let news = match self.asked {
            2 => Some(News::ForAll { at: Moment::MAX, share: 1 }),
            3 => Some(News::ForIt),
            _ => None,
        };
        if let (Some(news), Some(semaphore)) = (news, self.semaphore.get()) {
            assert!(!self.told.put(news), "it looks for news when it has its answer");
            semaphore.release();
        }
        Ok(Outcome::Busy(None))
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        _ = self.semaphore.set(Arc::clone(semaphore));
        Some(Box::new(Heard))
    }

    fn rank(&self) -> Option<u32> {
        Some(1)
    }

    fn forget_news(&self) {
        self.told.forget();
    }

    fn take_news(&self) -> Option<News> {
        self.told.take()
    }
}

/// A wake for news that are not due does not end the sleep. News for this bid alone do.
#[test]
fn what_is_told_while_it_asks_is_heard_after_the_answer() {
    let mut bid = Noted::default();
    assert!(contend(&mut bid, Duration::from_millis(50), None).unwrap().is_none());
    assert_eq!(bid.asked, 3, "at first, when it listens, and when its time is over");
    let mut bid = Noted { asked: 1, ..Noted::default() };
    assert!(contend(&mut bid, Duration::from_millis(50), None).unwrap().is_none());
    assert_eq!(bid.asked, 5, "and at once, as it was told for itself");
}

#[test]
fn a_reason_of_its_own_is_kept_and_so_is_the_first_of_all() {
    let (first, later) = ([1, 2]).map(|at| News::ForAll { at: Moment(at), share: 0 }).into();
    let told = Told::default();
    [first, later].into_iter().for_each(|news| assert!(told.put(news)));
    assert_eq!([told.take(), told.take()], [Some(first), None]);
    [first, News::ForIt, later].into_iter().for_each(|news| assert!(told.put(news)));
    assert_eq!(told.take(), Some(News::ForIt));
}

/// A bid that gets news for all during an ask, with the last share of the time. Its rank before the answer differs from the one after it.
struct Promoted {
    told: Told,
    ranks: [u32; 2],
    asked: usize,
}

impl Bid for Promoted {
    type Won = usize;

    fn ask(&mut self) -> Result<Outcome<usize>> {
        self.asked += 1;
        if self.asked == 2 {
            _ = self.told.put(News::ForAll { at: Clock::Boot.now(), share: 1_023 });
        }
        Ok(if self.asked > 2 { Outcome::Won(self.asked) } else { Outcome::Busy(None) })
    }

    fn listen(&self, _: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        Some(Box::new(Heard))
    }

    fn rank(&self) -> Option<u32> {
        Some(self.ranks[usize::from(self.asked > 1)])
    }

    fn forget_news(&self) {
        self.told.forget();
    }

    fn take_news(&self) -> Option<News> {
        self.told.take()
    }
}

/// At rank 31 the call asks half a second later.
#[test]
fn what_is_told_while_it_asks_is_judged_by_the_rank_of_the_answer() {
    for (ranks, waits) in [([31, 0], false), ([0, 31], true)] {
        let began = Clock::Boot.now();
        let mut bid = Promoted { told: Told::default(), ranks, asked: 0 };
        assert_eq!(contend(&mut bid, LONG, None).unwrap(), Some(3));
        let took = Clock::Boot.now().since(began);
        assert_eq!(took >= Duration::from_millis(500), waits, "{ranks:?}: {took:?}");
    }
}
