//! Waits that end without an open latch: in their time, by a token, by a shutdown, by an error.

use super::{CHANNEL, at_once, patient, waiting};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, eventually, finish, ms};
use redlatch::{CancelToken, CountDownLatch, Error, Terms};
use std::thread::scope;

/// The latches of the server's test, and the latch "n" closed.
fn closed(server: &Server) -> CountDownLatch {
    let latches = patient(server);
    assert!(latches.try_set_count("n", 1, None).unwrap());
    latches
}

#[track_caller]
fn assert_nobody_waits(server: &Server, latches: &CountDownLatch) {
    eventually(LONG, "the subscription is gone", || server.subscribers(CHANNEL) == 0);
    assert_eq!(latches.client().stats().waiters, 0);
    assert!(latches.open("n").unwrap());
}

#[test]
fn a_wait_of_zero_asks_once() {
    let server = Server::start();
    let latches = closed(&server);
    let commands = server.commands_during(|| assert!(!latches.wait("n", &at_once()).unwrap()));
    assert!(commands.iter().all(|line| !line.contains("SUBSCRIBE")), "{commands:?}");
    let stats = latches.client().stats();
    assert_eq!((stats.timed_out, stats.waiters), (0, 0));
    assert_nobody_waits(&server, &latches);
}

#[test]
fn a_wait_ends_in_its_time() {
    let server = Server::start();
    let latches = closed(&server);
    for wait in [ms(50), ms(300)] {
        let before = latches.client().stats().timed_out;
        let (opened, took) = answered(|| latches.wait("n", &Terms::new().wait(wait)));
        assert!(!opened && took >= wait && took <= wait + LATE, "{opened} after {took:?}");
        assert_eq!(latches.client().stats().timed_out, before + 1);
    }
    assert_nobody_waits(&server, &latches);
}

#[test]
fn a_token_ends_a_wait() {
    let server = Server::start();
    let (latches, token) = (closed(&server), CancelToken::new());
    scope(|scope| {
        let wait = || (latches.wait("n", &Terms::new().wait(LONG).cancelled_by(&token)), Mark::now());
        let waiter = scope.spawn(wait);
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        let cancelled = Mark::now();
        token.cancel();
        let (ended, when) = finish(waiter);
        assert_err!(ended, Cancelled);
        assert!(when - cancelled <= SOON, "{:?}", when - cancelled);
    });
    assert_err!(latches.wait("n", &Terms::new().cancelled_by(&token)), Cancelled);
    assert_eq!(latches.client().stats().cancelled, 2);
    assert_nobody_waits(&server, &latches);
}

#[test]
fn a_shutdown_ends_a_wait_and_every_call_after_it() {
    let server = Server::start();
    let (latches, other) = (closed(&server), patient(&server));
    scope(|scope| {
        let waiter = waiting(scope, &server, &latches);
        let closed = Mark::now();
        latches.client().shutdown();
        let (ended, when) = finish(waiter);
        assert_err!(ended, Closed);
        assert!(when - closed <= SOON, "{:?}", when - closed);
    });
    assert_err!(latches.wait("n", &at_once()), Closed);
    assert_err!(latches.count_down("n"), Closed);
    assert_err!(latches.count("n"), Closed);
    assert_err!(latches.try_set_count("n", 1, None), Closed);
    assert_err!(latches.open("n"), Closed);
    assert_eq!(other.count("n").unwrap(), 1, "a call of a client that was shut down took effect");
    assert_nobody_waits(&server, &other);
}

#[test]
fn a_wait_has_no_lease() {
    let server = Server::start();
    let latches = closed(&server);
    let commands = server.commands_during(|| {
        assert_err!(latches.wait("n", &Terms::new().lease(LONG)), Config);
        assert_err!(latches.wait("n", &at_once().lease(LONG)), Config);
    });
    assert!(commands.is_empty(), "{commands:?}");
    assert_nobody_waits(&server, &latches);
}

/// Types of keys that are no counter, each with the command that makes one.
const OTHERS: [&[&str]; 5] = [
    &["SET", "n", "no number"],
    &["HSET", "n", "field", "1"],
    &["RPUSH", "n", "1"],
    &["SADD", "n", "1"],
    &["SET", "n", "1.5"],
];

#[track_caller]
fn assert_wrongtype<T: std::fmt::Debug>(result: redlatch::Result<T>) {
    let is_wrongtype = matches!(&result, Err(Error::Refused { .. })) && format!("{result:?}").contains("WRONGTYPE");
    assert!(is_wrongtype, "{result:?}");
}

#[test]
fn a_key_of_another_type_is_refused_and_stays_as_it_is() {
    let server = Server::start();
    let latches = patient(&server);
    for other in OTHERS {
        let _: redis::Value = server.ask(other);
        let before: Vec<u8> = server.ask(&["DUMP", "n"]);
        assert_wrongtype(latches.try_set_count("n", 2, None));
        assert_wrongtype(latches.try_set_count("n", 2, Some(LONG)));
        assert_wrongtype(latches.count_down("n"));
        assert_wrongtype(latches.wait("n", &at_once()));
        assert_wrongtype(latches.wait("n", &Terms::new().wait(LONG)));
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "n"]), before, "{other:?}");
        assert_eq!(server.pttl(super::END), -2, "{other:?}");
        server.clear();
    }
}

#[test]
fn a_key_of_another_type_is_neither_counted_nor_opened() {
    let server = Server::start();
    let latches = patient(&server);
    for other in OTHERS {
        let _: redis::Value = server.ask(other);
        let before: Vec<u8> = server.ask(&["DUMP", "n"]);
        assert_wrongtype(latches.count("n"));
        assert_wrongtype(latches.open("n"));
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "n"]), before, "{other:?}");
        server.clear();
    }
}
