//! What recording costs: no allocation.

use crate::counting::allocations;
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, finish, spawn_asleep};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use redlatch::{HandOff, RedLock, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::scope;

/// How often anything was recorded, and how many handles there are.
static RECORDED: AtomicUsize = AtomicUsize::new(0);
static HANDLES: AtomicUsize = AtomicUsize::new(0);

/// A recorder whose handles only count, so all allocations of a call are redlatch's.
struct Tally;

impl CounterFn for Tally {
    fn increment(&self, _: u64) {
        RECORDED.fetch_add(1, Relaxed);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Tally {
    fn increment(&self, _: f64) {
        RECORDED.fetch_add(1, Relaxed);
    }

    fn decrement(&self, _: f64) {
        RECORDED.fetch_add(1, Relaxed);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Tally {
    fn record(&self, _: f64) {
        RECORDED.fetch_add(1, Relaxed);
    }
}

fn handle() -> Arc<Tally> {
    HANDLES.fetch_add(1, Relaxed);
    Arc::new(Tally)
}

impl Recorder for Tally {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(handle())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(handle())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(handle())
    }
}

/// What a call of `act` usually allocates, once it was done often enough for its buffers to have grown.
fn usual(mut act: impl FnMut()) -> usize {
    let mut counts: Vec<_> = (0..100).map(|_| allocations(&mut act).1).skip(50).collect();
    counts.sort_unstable();
    counts[25]
}

fn locks(server: &Server) -> ReentrantLock {
    ReentrantLock::new(&server.builder().metrics_class("order:", "orders").build().unwrap())
}

/// The allocations of a pair and of a pair inside of another, and how often each recorded something.
fn of_pairs(locks: &ReentrantLock) -> [usize; 2] {
    let pair = || {
        locks.lock("order:42").unwrap();
        locks.unlock("order:42").unwrap();
    };
    let alone = usual(pair);
    locks.lock("order:42").unwrap();
    let inside = usual(pair);
    locks.unlock("order:42").unwrap();
    [alone, inside]
}

/// The same client code with a recorder and without one, in one process: the client that was made first has no recorder.
#[test]
fn a_recorder_costs_no_allocation_of_a_pair() {
    alone(|| {
        let server = Server::start();
        let (silent, before) = (locks(&server), RECORDED.load(Relaxed));
        let without = of_pairs(&silent);
        assert_eq!(RECORDED.load(Relaxed), before);
        metrics::set_global_recorder(Tally).unwrap();
        let locks = locks(&server);
        let handles = HANDLES.load(Relaxed);
        let with = of_pairs(&locks);
        println!("{without:?} allocations without a recorder, {with:?} with one");
        assert_eq!(with, without);
        // Of each of the 101 outermost pairs: a wait, a hold begun, a hold ended, its time.
        assert_eq!((RECORDED.load(Relaxed), HANDLES.load(Relaxed)), (404, handles));
    });
}

/// The allocations of an unlock that passes the lock to another thread.
fn of_a_pass(locks: &ReentrantLock) -> usize {
    let mut least = usize::MAX;
    for _ in 0..10 {
        locks.lock("order:42").unwrap();
        scope(|scope| {
            let waiting = spawn_asleep(scope, || locks.lock("order:42").is_ok() && locks.unlock("order:42").is_ok());
            least = least.min(allocations(|| locks.unlock("order:42").unwrap()).1);
            assert!(finish(waiting).0);
        });
    }
    least
}

#[test]
fn a_recorder_costs_no_allocation_of_a_pass() {
    alone(|| {
        let server = Server::start();
        let passing = || server.builder().hand_off(HandOff::default().within(LONG).in_order()).build().unwrap();
        let without = of_a_pass(&ReentrantLock::new(&passing()));
        metrics::set_global_recorder(Tally).unwrap();
        let locks = ReentrantLock::new(&passing());
        let handles = HANDLES.load(Relaxed);
        let with = of_a_pass(&locks);
        println!("{without} allocations without a recorder, {with} with one");
        assert_eq!((with, HANDLES.load(Relaxed)), (without, handles));
        assert!(locks.client().stats().passes > 0);
    });
}
