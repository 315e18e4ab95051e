//! What the state of a server shows in: renewals and outages.

use crate::process::alone;
use crate::proxy::{Flow, Proxy, Step, pass};
use crate::recorded::install;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms};
use harness::queue::{patient, queued};
use redlatch::{Client, Error, RedLock, ReentrantLock};
use std::thread::{scope, sleep};
use std::time::Duration;

#[test]
fn a_confirmed_renewal_shows_what_was_left() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let locks = server.locks_watched(Duration::from_secs(3));
        locks.lock("n").unwrap();
        eventually(LONG, "two renewals", || recorded.times(&["redlatch_renewal_margin_seconds"]).len() >= 2);
        locks.unlock("n").unwrap();
        let margins = recorded.times(&["redlatch_renewal_margin_seconds"]);
        assert!(margins.iter().all(|margin| (0.1..2.5).contains(margin)), "{margins:?}");
    });
}

/// It had been given for 1.5 s, which says nothing about the server.
#[test]
fn the_first_renewal_after_a_hand_off_has_no_margin() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (one, other) = (patient(&server), patient(&server));
        // A lock that the waiter finds free by itself has a whole lease, and no renewal so soon.
        eventually(LONG, "a hold that was handed over is prolonged", || {
            one.lock("n").unwrap();
            scope(|scope| {
                let waiting = queued(scope, &server, || {
                    other.lock("n").unwrap();
                    sleep(ms(200));
                    other.unlock("n").unwrap();
                });
                one.unlock("n").unwrap();
                finish(waiting);
            });
            other.client().stats().renewals > 0
        });
        assert_eq!(recorded.times(&["redlatch_renewal_margin_seconds"]), [0.0; 0]);
    });
}

/// A server or a device between may close idle connections at any time.
#[test]
fn a_connection_that_was_closed_is_no_outage() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let locks = server.locks_watched(Duration::from_secs(3));
        locks.lock("n").unwrap();
        for _ in 0..3 {
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
            assert!(locks.try_lock("m").is_ok_and(|got| got));
            locks.unlock("m").unwrap();
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]);
            let before = locks.client().stats().renewals;
            eventually(LONG, "a renewal", || locks.client().stats().renewals > before);
        }
        println!("failed renewals {}", recorded.sum(&["redlatch_failed_renewals_total"]));
        assert_eq!(recorded.sum(&["redlatch_outages_total"]), 0.0);
        locks.unlock("n").unwrap();
    });
}

/// A thread that waits for a core sees the end of its connection late, and the next one that it takes was idle, too.
#[test]
fn connections_whose_end_is_seen_late_are_no_outage() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let proxy = Proxy::new(server.socket());
        let locks = ReentrantLock::connect(&proxy.url()).unwrap();
        locks.lock("n").unwrap();
        let mut left = 2;
        proxy.set(move |_, flow, data| {
            let is_script = flow == Flow::Request && data.windows(7).any(|word| word == b"EVALSHA");
            if !is_script || left == 0 {
                return pass(data);
            }
            left -= 1;
            vec![Step::Sleep(ms(150)), Step::Cut]
        });
        locks.unlock("n").unwrap();
        assert!(locks.client().stats().reconnects >= 2);
        assert_eq!(recorded.sum(&["redlatch_outages_total"]), 0.0);
    });
}

/// The background decides what a call left undecided, and counts it again.
#[test]
fn releases_in_doubt_are_counted_by_what_they_say_in_the_end() {
    alone(|| {
        let recorded = install();
        let mut server = Server::start();
        let proxy = Proxy::new(server.socket());
        let client = Client::builder(&proxy.url()).response_timeout(ms(200)).outage_budget(ms(600)).build().unwrap();
        let locks = ReentrantLock::new(&client);
        let seen = || {
            let of = |verdict: &str| recorded.sum(&["redlatch_doubtful_releases_total", verdict]);
            [of("freed"), of("lost"), of("unknown")]
        };
        locks.lock("n").unwrap();
        locks.unlock("n").unwrap();
        assert_eq!(seen(), [0.0; 3], "all was answered");
        let lose_answers = |number: usize| {
            let (mut left, mut ran) = (number, false);
            proxy.set(move |_, flow, data| {
                let is_lost = flow == Flow::Reply && ran && left > 0;
                ran = flow == Flow::Request && data.windows(7).any(|word| word == b"EVALSHA");
                left -= usize::from(is_lost);
                if is_lost { vec![] } else { pass(data) }
            });
        };
        locks.lock("n").unwrap();
        lose_answers(1);
        locks.unlock("n").unwrap();
        assert_eq!(seen(), [1.0, 0.0, 0.0]);
        locks.lock("n").unwrap();
        lose_answers(usize::MAX);
        assert!(matches!(locks.unlock("n"), Err(Error::OutcomeUnknown { .. })));
        assert_eq!(seen(), [1.0, 0.0, 1.0]);
        lose_answers(0);
        eventually(LONG, "the background has its answer", || seen() == [2.0, 0.0, 1.0]);
        locks.lock("n").unwrap();
        server.kill();
        server.restart();
        lose_answers(1);
        assert!(matches!(locks.unlock("n"), Err(Error::Lost { .. })));
        assert_eq!(seen(), [2.0, 1.0, 1.0]);
    });
}

/// However many calls fail.
#[test]
fn an_outage_is_counted_once_and_each_failed_renewal() {
    alone(|| {
        let recorded = install();
        let mut server = Server::start();
        let client = server.builder().watchdog_timeout(Duration::from_secs(3)).outage_budget(ms(300)).build();
        let locks = ReentrantLock::new(&client.unwrap());
        locks.lock("n").unwrap();
        let seen = || (recorded.sum(&["redlatch_outages_total"]), recorded.sum(&["redlatch_failed_renewals_total"]));
        assert_eq!(seen(), (0.0, 0.0));
        server.kill();
        for _ in 0..5 {
            assert!(locks.try_lock("m").is_err());
        }
        eventually(LONG, "renewals fail", || seen().1 >= 2.0);
        assert_eq!((seen().0, recorded.ends(&[])[4]), (1.0, 5));
        server.restart();
        eventually(LONG, "it answers", || locks.try_lock("m").unwrap_or(false));
        assert_eq!(seen().0, 1.0);
        assert_eq!(locks.client().stats().failed_renewals as f64, seen().1);
        server.kill();
        assert!(locks.try_lock("o").is_err());
        assert_eq!(seen().0, 2.0);
    });
}
