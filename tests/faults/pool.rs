//! Row 132: more calls at once than the pool has connections.

use crate::MINUTE;
use crate::proxy::{Flow, Gate, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms, once_asleep, spawn_asleep, timed};
use redlatch::{Applied, CancelToken, Client, Error, RedLock, ReentrantLock};
use std::thread::scope;
use std::time::Duration;

/// Longer than [`LONG`]: what waits for an answer or for a turn does not give up before that.
const ANSWER: Duration = Duration::from_secs(25);

/// A client that holds `held`, with one connection to a server whose replies wait at a gate.
struct Narrow {
    gate: Gate,
    locks: ReentrantLock,
    _proxy: Proxy,
    server: Server,
}

impl Narrow {
    fn new() -> Self {
        let (server, gate) = (Server::start(), Gate::default());
        let proxy = Proxy::new(server.socket());
        let builder = Client::builder(&proxy.url()).pool_size(1).watchdog_timeout(MINUTE).response_timeout(ANSWER);
        let locks = ReentrantLock::new(&builder.outage_budget(MINUTE).build().unwrap());
        locks.lock("held").unwrap();
        let closed = gate.clone();
        proxy.set(move |_, flow, data| match flow {
            Flow::Request => pass(data),
            Flow::Reply => vec![Step::Hold(closed.clone()), Step::Send(data.to_vec())],
        });
        Self { gate, locks, _proxy: proxy, server }
    }

    /// Which locks the server was asked for during `act`, in this order.
    fn asked_for(&self, act: impl FnOnce()) -> Vec<String> {
        let commands = self.server.commands_during(act);
        let name = |command: &String| command.split('"').nth(7).unwrap_or_default().to_owned();
        commands.iter().filter(|command| command.contains("evalsha")).map(name).collect()
    }
}

#[test]
fn fault_132_calls_that_wait_for_a_connection_have_it_in_order_of_arrival() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let narrow = Narrow::new();
    let lock = &|name| narrow.locks.lock(name).unwrap();
    let asked = narrow.asked_for(|| {
        scope(|scope| {
            let first = spawn_asleep(scope, || ["first", "again"].map(lock));
            let waiting = NAMES.map(|name| spawn_asleep(scope, move || lock(name)));
            narrow.gate.open();
            finish(first);
            waiting.into_iter().for_each(|call| _ = finish(call));
        });
    });
    assert_eq!(asked, [&["first"], &NAMES[..], &["again"]].concat());
}

/// A lock would be held for longer by all the calls that want others.
#[test]
fn fault_132_a_release_goes_before_the_calls_that_wait_for_a_connection() {
    let narrow = Narrow::new();
    let lock = &|name| narrow.locks.lock(name).unwrap();
    let asked = narrow.asked_for(|| {
        scope(|scope| {
            let first = spawn_asleep(scope, || lock("first"));
            let waiting = ["a", "b", "c"].map(|name| spawn_asleep(scope, move || lock(name)));
            once_asleep(|| narrow.locks.unlock("held").unwrap(), || narrow.gate.open());
            finish(first);
            waiting.into_iter().for_each(|call| _ = finish(call));
        });
    });
    assert_eq!(asked, ["first", "held", "a", "b", "c"]);
}

/// The lock is free, so `false` would be no answer; and nothing was asked of the server.
#[test]
fn fault_132_a_wait_that_had_no_turn_names_the_pool_and_leaves_the_line() {
    let narrow = Narrow::new();
    scope(|scope| {
        let first = spawn_asleep(scope, || narrow.locks.lock("first"));
        let late = narrow.locks.try_lock_for("late", ms(10)).unwrap_err();
        assert!(late.to_string().contains("all 1 connections of the pool were in use"), "{late}");
        assert!(late.to_string().contains("ClientBuilder::pool_size"), "{late}");
        assert!(matches!(late, Error::Unavailable { .. }) && late.applied() == Applied::No && late.is_retryable());
        let next = spawn_asleep(scope, || narrow.locks.lock("next"));
        narrow.gate.open();
        finish(first).0.unwrap();
        finish(next).0.unwrap();
    });
    assert!(!narrow.locks.is_locked("late").unwrap());
}

#[test]
fn fault_132_a_call_that_is_cancelled_leaves_the_line() {
    let (narrow, token) = (Narrow::new(), CancelToken::new());
    scope(|scope| {
        let first = spawn_asleep(scope, || narrow.locks.lock("first"));
        let cancelled = spawn_asleep(scope, || narrow.locks.lock_cancellable("cancelled", &token));
        let next = spawn_asleep(scope, || narrow.locks.lock("next"));
        token.cancel();
        let ((cancelled, _), took) = timed(|| finish(cancelled));
        assert_err!(cancelled, Cancelled);
        assert!(took <= LONG, "it waited for the answer to another call: {took:?}");
        narrow.gate.open();
        finish(first).0.unwrap();
        finish(next).0.unwrap();
    });
    assert!(!narrow.locks.is_locked("cancelled").unwrap());
}

#[test]
fn fault_132_a_shutdown_ends_the_calls_that_wait_for_a_connection() {
    let narrow = Narrow::new();
    let locks = &narrow.locks;
    scope(|scope| {
        let first = spawn_asleep(scope, || locks.lock("first"));
        let waiting = ["a", "b", "c"].map(|name| spawn_asleep(scope, move || locks.lock(name)));
        let closing = spawn_asleep(scope, || locks.client().shutdown());
        let (waited, took) = timed(|| waiting.map(|call| finish(call).0));
        waited.into_iter().for_each(|call| assert_err!(call, Closed));
        assert!(took <= LONG, "they waited for the answer to another call: {took:?}");
        narrow.gate.open();
        finish(closing);
        assert_err!(finish(first).0, Closed);
    });
    eventually(LONG, "nothing is left", || narrow.server.leftovers().is_empty());
}

/// More connections would only wait for the same server.
#[test]
fn fault_132_in_an_outage_the_server_is_named_and_not_the_size_of_the_pool() {
    let server = Server::start();
    let builder = server.builder().pool_size(1).response_timeout(ms(300)).outage_budget(MINUTE);
    let (locks, token) = (ReentrantLock::new(&builder.build().unwrap()), CancelToken::new());
    scope(|scope| {
        server.freeze();
        let first = spawn_asleep(scope, || locks.lock_cancellable("first", &token));
        eventually(LONG, "it is said that the server does not answer", || {
            let error = locks.try_lock_for("late", ms(10)).unwrap_err().to_string();
            error.contains("all 1 connections of the pool wait for a server that does not answer: ")
        });
        token.cancel();
        assert_err!(finish(first).0, Cancelled);
        server.thaw();
    });
}
