//! The waiting loop of the crate with bids that stand in no line: nobody sleeps through what it waits for, and who goes
//! without it leaves nothing at the store.

use crate::base::config::{Config, Settings};
use crate::base::error::{Error, Result};
use crate::base::signal::{CancelToken, Listening, Semaphore, Shutdown};
use crate::base::stats::{Contention, Counters};
use crate::base::stop::Stop;
use crate::base::time::Clock;
use crate::store::Store;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{advance, thread};
use crate::waiting::bid::{Bid, Call, Told};
use crate::waiting::wait::{News, Outcome};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A bid of its own for each thread, as in a kind whose order of waiters is kept at the store.
struct Bidder(Arc<Store>);

impl Bid for Bidder {
    type Won = ();

    fn ask(&mut self) -> Result<Outcome<()>> {
        Ok(if self.0.take() { Outcome::Won(()) } else { Outcome::Busy(None) })
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        Some(self.0.listen(semaphore))
    }

    fn withdraw(&mut self) {
        self.0.withdraw();
    }
}

/// One that is told by name, as a ticket in a queue is, behind another.
struct Queued {
    bidder: Bidder,
    told: Arc<Told>,
}

impl Bid for Queued {
    type Won = ();

    fn ask(&mut self) -> Result<Outcome<()>> {
        self.bidder.ask()
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.bidder.listen(semaphore)
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

    fn withdraw(&mut self) {
        self.bidder.withdraw();
    }
}

/// What a call waits by.
#[derive(Default, Clone)]
struct Terms {
    limit: Option<Duration>,
    poll_cap: Option<Duration>,
    token: Option<CancelToken>,
    shutdown: Arc<Shutdown>,
    semaphore: Arc<Semaphore>,
}

impl Terms {
    fn config(&self) -> Config {
        let poll_cap = self.poll_cap.or(Some(1_000_000 * SECOND));
        Settings { poll_cap, ..Settings::default() }.derive().expect("it fits together")
    }

    /// Whether the call got the lock, which it has released then.
    fn wait_for(&self, store: &Arc<Store>) -> Result<bool> {
        self.wait_as(store, &mut Bidder(Arc::clone(store)))
    }

    fn wait_as(&self, store: &Store, bid: &mut impl Bid<Won = ()>) -> Result<bool> {
        let (config, counters) = (&self.config(), &Counters::default());
        let deadline = self.limit.map(|limit| Clock::Boot.now().plus(limit));
        let stop = Stop::new(&Clock::Boot, &self.shutdown, "n").at(deadline).cancelled_by(self.token.as_ref());
        let stop = &stop.woken_by(&self.semaphore);
        let call = Call { config, stop, contention: &Contention::new(counters), semaphore: &self.semaphore };
        let won = call.contend(bid)?.is_some();
        if won {
            store.free();
        }
        Ok(won)
    }

    fn spawn(&self, store: &Arc<Store>) -> thread::JoinHandle<Result<bool>> {
        let (terms, store) = (self.clone(), Arc::clone(store));
        thread::spawn(move || terms.wait_for(&store))
    }
}

/// A store whose lock the main thread has.
fn taken(store: Store) -> Arc<Store> {
    assert!(store.take());
    Arc::new(store)
}

fn each(store: &Arc<Store>, number: usize, terms: impl Fn() -> Terms) -> Vec<thread::JoinHandle<Result<bool>>> {
    (0..number).map(|_| terms().spawn(store)).collect()
}

pub(crate) fn whoever_listens_misses_no_unlock() {
    let store = taken(Store::default());
    let waiting = each(&store, 3, Terms::default);
    store.free();
    assert!(waiting.into_iter().all(|call| call.join().unwrap().unwrap()));
    store.assert_untouched();
}

/// The unlock is not heard, for nobody's subscription is confirmed yet.
pub(crate) fn a_confirmation_that_comes_late_is_a_reason_to_look() {
    let store = taken(Store::slow());
    let waiting = each(&store, 2, Terms::default);
    store.free();
    store.confirm();
    assert!(waiting.into_iter().all(|call| call.join().unwrap().unwrap()));
    store.assert_untouched();
}

/// The lock is free, and then it is told so: whether it asks then, has its answer, or sleeps, it looks.
pub(crate) fn who_is_told_while_it_asks_does_not_sleep() {
    for news in [News::ForIt, News::ForAll { at: Clock::Boot.now(), share: 0 }] {
        let (store, terms, told) = (taken(Store::default()), Terms::default(), Arc::<Told>::default());
        let mut bid = Queued { bidder: Bidder(Arc::clone(&store)), told: Arc::clone(&told) };
        let waiting = {
            let (store, terms) = (Arc::clone(&store), terms.clone());
            thread::spawn(move || terms.wait_as(&store, &mut bid))
        };
        store.expire();
        if told.put(news) {
            terms.semaphore.release();
        }
        assert!(waiting.join().unwrap().unwrap());
        store.assert_untouched();
    }
}

pub(crate) fn a_cancelled_waiter_wakes_and_leaves_nothing() {
    let (store, token) = (taken(Store::default()), CancelToken::new());
    let waiting = each(&store, 2, || Terms { token: Some(token.clone()), ..Terms::default() });
    token.cancel();
    assert!(waiting.into_iter().all(|call| matches!(call.join().unwrap(), Err(Error::Cancelled { .. }))));
    store.free();
    store.assert_untouched();
}

pub(crate) fn a_shutdown_wakes_whoever_waits() {
    let store = taken(Store::default());
    let terms = Terms::default();
    let waiting = terms.spawn(&store);
    assert!(terms.shutdown.begin());
    // As the registry does for everyone in a line.
    terms.semaphore.release();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed { .. })));
    store.free();
    store.assert_untouched();
}

/// What a call comes to while time goes on, whenever it falls asleep.
fn in_time(terms: &Terms, store: &Arc<Store>, before: impl FnOnce()) -> bool {
    let done = Arc::new(AtomicBool::new(false));
    let (terms, store, ends) = (terms.clone(), Arc::clone(store), Arc::clone(&done));
    let waiting = thread::spawn(move || {
        let got = terms.wait_for(&store).unwrap();
        ends.store(true, SeqCst);
        got
    });
    before();
    while !done.load(SeqCst) {
        advance(SECOND);
        thread::yield_now();
    }
    waiting.join().unwrap()
}

/// Its time ends while it sleeps, and the lock is free by then though nobody told it. Not before it listens: an answer
/// that is older than its time is the last one.
pub(crate) fn a_wait_that_ends_asks_once_more() {
    let store = taken(Store::slow());
    let terms = Terms { limit: Some(SECOND / 2), ..Terms::default() };
    assert!(in_time(&terms, &store, || {
        assert!(store.listened_to.acquire(Duration::MAX));
        store.expire();
    }));
    store.assert_untouched();
}

pub(crate) fn a_poll_ends_the_sleep_of_who_is_not_told() {
    let store = taken(Store::default());
    assert!(in_time(&Terms { poll_cap: Some(SECOND), ..Terms::default() }, &store, || store.expire()));
    store.assert_untouched();
}
