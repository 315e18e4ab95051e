//! Holds: how long they last, how many there are, and why some are lost.

use crate::process::alone;
use crate::recorded::{Recorded, install};
use crate::server::Server;
use crate::threads::{LONG, lost_within, ms};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use redlatch::{LocalRedLock, LossCause, RedLock, ReentrantLock};
use std::sync::Arc;
use std::time::Duration;

fn held(recorded: &Recorded) -> f64 {
    recorded.sum(&["redlatch_held"])
}

fn lost(recorded: &Recorded, cause: &str) -> f64 {
    recorded.sum(&["redlatch_lost_total", &format!("cause=\"{cause}\"")])
}

#[test]
fn a_hold_ends_with_its_outermost_release() {
    alone(|| {
        let recorded = install();
        let holds = || recorded.times(&["redlatch_hold_seconds", "kind=\"reentrant_lock\""]);
        let server = Server::start();
        let locks = server.locks();
        locks.lock("n").unwrap();
        locks.lock("n").unwrap();
        locks.lock("m").unwrap();
        let _known = locks.hold("n");
        assert_eq!(held(&recorded), 2.0);
        std::thread::sleep(ms(50));
        locks.unlock("n").unwrap();
        assert_eq!((held(&recorded), holds().len()), (2.0, 0));
        locks.unlock("n").unwrap();
        locks.unlock("m").unwrap();
        assert_eq!(held(&recorded), 0.0);
        let seen = holds();
        assert!(seen.len() == 2 && seen.iter().all(|held| (0.05..10.0).contains(held)), "{seen:?}");
    });
}

#[test]
fn a_lost_hold_is_over_and_has_its_cause() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let cap = Duration::from_secs(2);
        let locks = ReentrantLock::new(&server.builder().watchdog_timeout(cap).max_hold(cap).build().unwrap());
        locks.lock_with_lease("expired", ms(60)).unwrap();
        assert_eq!(lost_within(LONG, &locks.hold("expired").unwrap()), LossCause::Expired);
        locks.lock("removed").unwrap();
        let hold = locks.hold("removed").unwrap();
        locks.force_unlock("removed").unwrap();
        assert_eq!(lost_within(LONG, &hold), LossCause::Removed);
        locks.lock("overheld").unwrap();
        assert_eq!(lost_within(LONG, &locks.hold("overheld").unwrap()), LossCause::Overheld);
        let causes = ["expired", "removed", "overheld", "unwatched"].map(|cause| lost(&recorded, cause));
        assert_eq!((causes, held(&recorded)), ([1.0, 1.0, 1.0, 0.0], 0.0));
        assert_eq!(recorded.times(&["redlatch_hold_seconds"]).len(), 3);
        for name in ["expired", "removed", "overheld"] {
            assert_err!(locks.unlock(name), Lost);
        }
        assert_eq!((held(&recorded), recorded.times(&["redlatch_hold_seconds"]).len()), (0.0, 3), "once");
    });
}

#[test]
fn the_end_of_a_client_ends_its_holds() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (locks, other) = (server.locks(), server.locks());
        locks.lock("n").unwrap();
        other.lock("m").unwrap();
        assert_eq!(held(&recorded), 2.0, "of all clients");
        locks.client().shutdown();
        drop(other);
        assert_eq!((held(&recorded), recorded.times(&["redlatch_hold_seconds"]).len()), (0.0, 2));
    });
}

#[test]
fn names_have_the_class_of_the_longest_prefix() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let builder = server.builder().key_prefix("shop:").metrics_class("order:", "orders");
        let locks = ReentrantLock::new(&builder.metrics_class("order:big:", "big").build().unwrap());
        for name in ["order:1", "order:big:1", "shop:order:1", "stock"] {
            locks.lock(name).unwrap();
            locks.unlock(name).unwrap();
        }
        for (class, calls) in [("orders", 1), ("big", 1), ("other", 2)] {
            let class = format!("class=\"{class}\"");
            assert_eq!(recorded.ends(&[&class])[0], calls, "{class}");
            assert_eq!(recorded.times(&["redlatch_hold_seconds", &class]).len(), calls, "{class}");
        }
    });
}

#[test]
fn each_metric_is_described_with_a_unit() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let _locks = server.locks();
        let described = recorded.described();
        // Five outcomes, four causes, three verdicts, and seven more.
        assert!(described.len() == 19 && described.iter().all(|described| *described), "{described:?}");
    });
}

#[test]
fn locks_in_memory_record_too() {
    alone(|| {
        let recorded = install();
        let locks = LocalRedLock::new();
        locks.lock("n").unwrap();
        assert_eq!((held(&recorded), recorded.ends(&["kind=\"local_lock\""])), (1.0, [1, 0, 0, 0, 0]));
        locks.unlock("n").unwrap();
        assert_eq!(held(&recorded), 0.0);
    });
}

/// Each value that it is given is the end of whoever gives it.
struct Broken;

impl CounterFn for Broken {
    fn increment(&self, _: u64) {
        break_off();
    }

    fn absolute(&self, _: u64) {
        break_off();
    }
}

impl GaugeFn for Broken {
    fn increment(&self, _: f64) {
        break_off();
    }

    fn decrement(&self, _: f64) {
        break_off();
    }

    fn set(&self, _: f64) {
        break_off();
    }
}

impl HistogramFn for Broken {
    fn record(&self, _: f64) {
        break_off();
    }
}

fn break_off() {
    std::panic::resume_unwind(Box::new("on purpose"));
}

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Self))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Self))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Self))
    }
}

/// A recorder is foreign code in the middle of an acquire, a pass, a release and a loss.
#[test]
fn a_recorder_that_panics_changes_nothing_for_a_lock() {
    alone(|| {
        metrics::set_global_recorder(Broken).unwrap();
        let locks = LocalRedLock::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let pass = || (0..500).all(|_| locks.lock("n").is_ok() && locks.unlock("n").is_ok());
                scope.spawn(move || assert!(pass()));
            }
        });
        assert!(locks.try_lock("n").unwrap());
        let hold = locks.hold("n").unwrap();
        locks.force_unlock("n").unwrap();
        assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
        assert_err!(locks.unlock("n"), Lost);
    });
}
