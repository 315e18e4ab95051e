//! The time to live of a latch: at its end all that wait learn that it did not open, and so do those that come soon after.

use super::{CHANNEL, END, assert_opened, at_once, long, patient, waiting};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, eventually, finish, ms};
use redlatch::{Client, CountDownLatch};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::scope;
use std::time::Duration;

/// Long enough for a waiter to subscribe on a busy machine, and short enough to wait for.
const TIME: Duration = Duration::from_millis(1_500);

/// Sets the latch "n", which lives for [`TIME`]. It did not live before the moment that this returns.
fn set(latches: &CountDownLatch, count: u32) -> Mark {
    let before = Mark::now();
    assert!(latches.try_set_count("n", count, Some(TIME)).unwrap());
    before
}

fn eventually_over(server: &Server) {
    eventually(LONG, "its time is over", || server.pttl("n") == -2);
}

fn eventually_forgotten(server: &Server) {
    eventually(LONG, "its end is forgotten", || server.pttl(END) == -2);
}

/// The poll cap is a minute, so it is the end that wakes them. One count is missing.
#[test]
fn all_that_wait_expire_at_its_end() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    let began = set(&one, 2);
    scope(|scope| {
        let waiters = [&one, &one, &other].map(|latches| waiting(scope, &server, latches));
        assert_eq!(other.count_down("n").unwrap(), 1);
        for waiter in waiters {
            let (ended, when) = finish(waiter);
            assert_err!(ended, Expired);
            assert!(when - began >= TIME && when - began <= TIME + LATE, "{:?}", when - began);
        }
    });
    eventually(LONG, "the subscriptions are gone", || server.subscribers(CHANNEL) == 0);
    assert_eq!(one.client().stats().waiters, 0);
}

#[test]
fn a_count_down_keeps_the_time() {
    let server = Server::start();
    let latches = patient(&server);
    set(&latches, 1_000);
    let (of_latch, of_end) = (server.pttl("n"), server.pttl(END));
    (0..100).for_each(|_| _ = latches.count_down("n").unwrap());
    (0..100).for_each(|_| assert!(!latches.wait("n", &at_once()).unwrap()));
    assert!((1..=of_latch).contains(&server.pttl("n")), "a call prolonged the latch");
    assert!((1..=of_end).contains(&server.pttl(END)), "a call prolonged its end");
    eventually_over(&server);
}

/// Late comers learn of it for as long again, whatever they say their wait is. After that the latch counts as open.
#[test]
fn late_comers_expire_for_as_long_again_and_then_it_counts_as_open() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    let began = set(&one, 1);
    eventually_over(&server);
    for latches in [&one, &other] {
        assert_err!(latches.wait("n", &at_once()), Expired);
        assert_err!(latches.wait("n", &long()), Expired);
    }
    assert_eq!(one.count("n").unwrap(), 0);
    assert_err!(one.count_down("n"), Expired);
    assert!(!one.open("n").unwrap(), "it has no count");
    eventually_forgotten(&server);
    assert!(began.elapsed() >= 2 * TIME - ms(1), "forgotten after {:?}", began.elapsed());
    assert!(other.wait("n", &at_once()).unwrap() && one.wait("n", &long()).unwrap());
}

/// The looks in between must not prolong what they look at.
#[test]
fn looks_do_not_make_it_expire_for_longer() {
    let server = Server::start();
    let latches = patient(&server);
    let began = set(&latches, 1);
    eventually(LONG, "it counts as open", || {
        let found = latches.wait("n", &at_once());
        found.is_ok_and(|open| open)
    });
    let took = began.elapsed();
    assert!(took >= 2 * TIME - ms(1) && took <= 2 * TIME + LATE, "{took:?}");
}

#[test]
fn a_new_count_after_the_end_is_waited_for() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    for time in [None, Some(LONG)] {
        set(&one, 1);
        eventually_over(&server);
        assert_err!(one.wait("n", &at_once()), Expired);
        assert!(other.try_set_count("n", 2, time).unwrap(), "a latch that expired has no count");
        assert!(!one.wait("n", &at_once()).unwrap());
        scope(|scope| {
            let waiter = waiting(scope, &server, &one);
            assert_eq!(other.count_down("n").unwrap(), 1);
            let counted = Mark::now();
            assert_eq!(other.count_down("n").unwrap(), 0);
            assert_opened(waiter, counted);
        });
        assert!(one.wait("n", &at_once()).unwrap(), "it opened in time");
        assert_eq!([server.pttl("n"), server.pttl(END)], [-2; 2]);
    }
}

/// A client of Redisson's knows of no end: it deletes the latch alone, or sets a new one.
#[test]
fn a_count_that_redisson_sets_after_the_end_is_waited_for() {
    let server = Server::start();
    let (latches, looks) = (patient(&server), patient(&server));
    set(&latches, 1);
    eventually_over(&server);
    assert!(server.ask::<bool>(&["SET", "n", "1", "NX"]));
    assert!(!looks.wait("n", &at_once()).unwrap(), "the end of the latch before counts");
    scope(|scope| {
        let waiter = waiting(scope, &server, &latches);
        let counted = Mark::now();
        let _: i64 = server.ask(&["DEL", "n"]);
        let _: i64 = server.ask(&["PUBLISH", CHANNEL, "0"]);
        assert_opened(waiter, counted);
    });
}

/// One that opened in its time is open at once and for ever.
#[test]
fn a_latch_that_opened_in_time_never_expires() {
    let server = Server::start();
    let latches = patient(&server);
    let began = set(&latches, 1);
    assert_eq!(latches.count_down("n").unwrap(), 0);
    eventually(LONG, "its time is over", || {
        assert!(latches.wait("n", &at_once()).unwrap());
        began.elapsed().real() > 2 * TIME
    });
}

#[test]
fn a_wait_that_ends_before_the_latch_does_not_expire() {
    let server = Server::start();
    let latches = patient(&server);
    set(&latches, 1);
    assert!(!latches.wait("n", &redlatch::Terms::new().wait(ms(100))).unwrap());
    eventually_over(&server);
}

/// A short poll cap looks more often, and sees the same.
#[test]
fn a_client_that_polls_expires_too() {
    let server = Server::start();
    let polling = Client::builder(&server.url()).poll_cap(ms(50)).build().unwrap();
    let latches = CountDownLatch::new(&polling);
    let began = set(&latches, 1);
    assert_err!(latches.wait("n", &long()), Expired);
    let took = began.elapsed();
    assert!(took >= TIME && took <= TIME + LATE, "{took:?}");
}

const SETTERS: usize = 4;
const SETS: usize = 250;

/// The server may stand still between two steps of the script, and the script may be new to it. If the latch ended before its noted end,
/// it would read as open in between. A key is gone 1 ms after its end at the earliest.
#[test]
fn a_latch_does_not_end_before_its_noted_end() {
    let server = Server::start();
    if server.cannot_before((7, 0), "when a key ends cannot be asked") {
        return;
    }
    let (latches, done) = (patient(&server), AtomicUsize::new(0));
    scope(|scope| {
        for setter in 0..SETTERS {
            let (server, latches, done) = (&server, &latches, &done);
            scope.spawn(move || {
                let mut connection = server.connection();
                for number in 0..SETS {
                    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut connection).unwrap();
                    assert!(latches.try_set_count(&format!("{setter}:{number}"), 1, Some(6 * LONG)).unwrap());
                }
                done.fetch_add(1, SeqCst);
            });
        }
        eventually(6 * LONG, "all are set", || {
            server.freeze();
            server.thaw();
            done.load(SeqCst) == SETTERS
        });
    });
    let number = |words: &[&str]| server.ask::<i64>(words);
    let names = (0..SETTERS).flat_map(|setter| (0..SETS).map(move |number| format!("{setter}:{number}")));
    let ends =
        names.map(|name| [number(&["PEXPIRETIME", &name]), number(&["GET", &format!("redlatch_latch:{{{name}}}")])]);
    let early: Vec<_> = ends.map(|[gone, noted]| noted - gone).filter(|ms| *ms > 1).collect();
    assert!(early.is_empty(), "of {} latches some end so many ms before: {early:?}", SETTERS * SETS);
    server.clear();
}
