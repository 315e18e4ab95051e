//! Count-down latches: they open when so many parties have counted them down, or expire, and wake all that wait.
//!
//! Where a message or the end of a time to live must wake a waiter, the poll cap is a minute: nothing else could wake it in time.

mod bytes;
mod crowd;
mod ends;
mod expiry;
mod on_the_wire;

use crate::harness::queue::MINUTE;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, timed};
use redlatch::{Client, CountDownLatch, Result, Terms};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::Duration;

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";
const END: &str = "redlatch_latch:{n}";

/// The latches of a client whose waiters look only when a message or the end of a time tells them to.
fn patient(server: &Server) -> CountDownLatch {
    CountDownLatch::new(&server.builder().poll_cap(MINUTE).build().unwrap())
}

fn long() -> Terms<'static> {
    Terms::new().wait(LONG)
}

fn at_once() -> Terms<'static> {
    Terms::new().wait(Duration::ZERO)
}

/// How a wait ended, and when.
type Waiter<'s> = ScopedJoinHandle<'s, (Result<bool>, Mark)>;

/// Starts a thread that waits for the latch "n", and returns when its subscription is confirmed.
#[track_caller]
fn waiting<'s>(scope: &'s Scope<'s, '_>, server: &Server, latches: &CountDownLatch) -> Waiter<'s> {
    let latches = latches.clone();
    let waiter = scope.spawn(move || (latches.wait("n", &long()), Mark::now()));
    eventually(LONG, "it is subscribed", || waiter.is_finished() || server.subscribers(CHANNEL) > 0);
    waiter
}

/// The wait ended with an open latch soon after this moment, and not before it.
#[track_caller]
fn assert_opened(waiter: Waiter<'_>, since: Mark) {
    let (opened, when) = finish(waiter);
    assert!(opened.unwrap(), "the latch is closed");
    assert!(when - since <= SOON, "woken after {:?}", when - since);
}

#[test]
fn a_count_is_set_once() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    assert!(one.try_set_count("n", 3, None).unwrap());
    assert!(!one.try_set_count("n", 5, None).unwrap() && !other.try_set_count("n", 5, Some(LONG)).unwrap());
    assert_eq!((one.count("n").unwrap(), server.pttl("n")), (3, -1));
    assert_eq!(server.pttl(END), -2, "a set that was refused left an end");
    assert!(other.open("n").unwrap());
}

#[test]
fn a_count_has_bounds() {
    let server = Server::start();
    let latches = patient(&server);
    assert_err!(latches.try_set_count("n", 0, None), Config);
    assert_err!(latches.try_set_count("n", 2_147_483_648, None), Config);
    assert_err!(latches.try_set_count("n", u32::MAX, None), Config);
    assert!(latches.try_set_count("n", 2_147_483_647, None).unwrap());
    assert_eq!(latches.count_down("n").unwrap(), 2_147_483_646);
    assert!(latches.open("n").unwrap());
}

#[test]
fn a_time_to_live_has_bounds() {
    let server = Server::start();
    let latches = patient(&server);
    let year = Duration::from_secs(365 * 24 * 3_600);
    for time in [Duration::ZERO, Duration::from_millis(9), year + Duration::from_millis(1), Duration::MAX] {
        assert_err!(latches.try_set_count("n", 1, Some(time)), Config);
    }
    assert!(latches.try_set_count("n", 1, Some(year)).unwrap());
    let (left, end) = (server.pttl("n"), server.pttl(END));
    assert!(left > 364 * 86_400_000 && left <= 365 * 86_400_000, "{left}");
    assert!(end > left && end <= 2 * 365 * 86_400_000, "{end}");
    assert!(latches.open("n").unwrap());
}

#[test]
fn every_call_refuses_a_bad_name() {
    let server = Server::start();
    let latches = patient(&server);
    for name in ["", "redlatch_latch:{n}", "redlatch_op:{n}"] {
        assert_err!(latches.try_set_count(name, 1, None), Config);
        assert_err!(latches.count_down(name), Config);
        assert_err!(latches.count(name), Config);
        assert_err!(latches.wait(name, &at_once()), Config);
        assert_err!(latches.open(name), Config);
    }
}

#[test]
fn the_count_is_how_many_have_not_counted_down() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    assert_eq!(one.count("n").unwrap(), 0);
    one.try_set_count("n", 3, None).unwrap();
    for (latches, left) in [(&one, 2), (&other, 1), (&one, 0)] {
        assert_eq!(latches.count_down("n").unwrap(), left);
        assert_eq!([one.count("n").unwrap(), other.count("n").unwrap()], [left; 2]);
    }
    assert!(!server.ask::<bool>(&["EXISTS", "n"]), "an open latch has no key");
}

#[test]
fn the_last_count_wakes_all_that_wait() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    one.try_set_count("n", 2, None).unwrap();
    scope(|scope| {
        let waiters = [&one, &other].map(|latches| waiting(scope, &server, latches));
        eventually(LONG, "both clients are subscribed", || server.subscribers(CHANNEL) == 2);
        assert_eq!(one.count_down("n").unwrap(), 1);
        assert!(!one.wait("n", &at_once()).unwrap() && waiters.iter().all(|waiter| !waiter.is_finished()));
        let counted = Mark::now();
        assert_eq!(other.count_down("n").unwrap(), 0);
        waiters.into_iter().for_each(|waiter| assert_opened(waiter, counted));
    });
}

#[test]
fn a_count_below_zero_and_of_an_absent_latch_does_nothing() {
    let server = Server::start();
    let latches = patient(&server);
    assert_eq!(latches.count_down("n").unwrap(), 0);
    assert!(!server.ask::<bool>(&["EXISTS", "n"]));
    latches.try_set_count("n", 1, None).unwrap();
    assert_eq!([(); 3].map(|()| latches.count_down("n").unwrap()), [0; 3]);
    assert!(!server.ask::<bool>(&["EXISTS", "n"]));
    assert!(latches.try_set_count("n", 2, None).unwrap());
    assert_eq!(latches.count("n").unwrap(), 2, "counts of the time before count now");
    assert!(latches.open("n").unwrap());
}

/// It asks once and does not subscribe.
#[test]
fn a_wait_for_an_open_latch_returns_at_once() {
    let server = Server::start();
    let latches = patient(&server);
    let wait = |terms: &Terms<'_>| assert!(latches.wait("n", terms).unwrap());
    let ends_at_once = || {
        let (_, took) = timed(|| [Terms::new(), long(), at_once()].iter().for_each(wait));
        assert!(took <= SOON, "{took:?}");
    };
    ends_at_once();
    latches.try_set_count("n", 1, None).unwrap();
    latches.count_down("n").unwrap();
    ends_at_once();
    latches.try_set_count("n", 1, None).unwrap();
    assert!(latches.open("n").unwrap());
    let commands = server.commands_during(ends_at_once);
    assert!(commands.iter().all(|line| !line.contains("SUBSCRIBE")), "{commands:?}");
}

#[test]
fn a_latch_is_opened_by_hand_whatever_its_count() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    assert!(!one.open("n").unwrap(), "an absent latch is open");
    for time in [None, Some(LONG)] {
        one.try_set_count("n", 1_000, time).unwrap();
        scope(|scope| {
            let waiter = waiting(scope, &server, &one);
            let opened = Mark::now();
            assert!(other.open("n").unwrap());
            assert_opened(waiter, opened);
        });
        assert!(!other.open("n").unwrap() && one.count("n").unwrap() == 0);
        assert!(one.wait("n", &at_once()).unwrap());
        assert_eq!([server.pttl("n"), server.pttl(END)], [-2; 2]);
    }
}

/// Each round of the same name wakes its own waiters and no others.
#[test]
fn a_name_is_used_again() {
    let server = Server::start();
    let (one, other) = (patient(&server), patient(&server));
    for round in 1..=20 {
        assert!(one.try_set_count("n", round, Some(LONG).filter(|_| round % 2 == 0)).unwrap());
        scope(|scope| {
            let waiter = waiting(scope, &server, &other);
            for left in (1..round).rev() {
                assert_eq!(one.count_down("n").unwrap(), u64::from(left));
            }
            assert!(!waiter.is_finished(), "woken by too few of {round}");
            let counted = Mark::now();
            assert_eq!(one.count_down("n").unwrap(), 0);
            assert_opened(waiter, counted);
        });
    }
}

/// Clones, and latches made again on the same client, are the same; those under another prefix are others.
#[test]
fn latches_of_one_name_are_one_and_prefixes_keep_them_apart() {
    let server = Server::start();
    let latches = patient(&server);
    let again = CountDownLatch::new(latches.client());
    let apart = CountDownLatch::new(&Client::builder(&server.url()).key_prefix("shop:").build().unwrap());
    latches.try_set_count("n", 2, None).unwrap();
    assert_eq!((again.count_down("n").unwrap(), latches.clone().count("n").unwrap()), (1, 1));
    assert_eq!((apart.count_down("n").unwrap(), apart.count("n").unwrap()), (0, 0));
    assert!(apart.try_set_count("n", 7, None).unwrap() && server.ask::<i64>(&["GET", "shop:n"]) == 7);
    assert!(latches.open("n").unwrap() && apart.open("n").unwrap());
}

#[test]
fn a_latch_survives_a_panic() {
    let server = Server::start();
    let latches = patient(&server);
    latches.try_set_count("n", 2, None).unwrap();
    let panics = || {
        latches.count_down("n").unwrap();
        panic!("as it should");
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(latches.count_down("n").unwrap(), 0);
}
