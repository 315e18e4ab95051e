//! Every call at a server that does not serve: it comes back within its budget, and a quarter of a second.
//!
//! What each call's budget is: docs/protocol.md, 5 and 6, and the documentation of each method. All calls of a
//! fault are made at once, each by a client of its own, which was prepared before the fault began. Each
//! test prints one line for each call: the fault, the call, its budget and what it took, in milliseconds.

mod calls;

use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, Took, eventually, finish};
use calls::{CALLS, Call};
use redlatch::{Client, RedLock, ReentrantLock};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long an answer may take, and how long connecting.
const ANSWER: Duration = Duration::from_millis(300);

/// How long an outage is ridden out.
const BUDGET: Duration = Duration::from_millis(500);

/// Long enough for a hold to outlast the fault.
const LEASE: Duration = Duration::from_secs(5);

/// Counts those who came; whoever waits for them gives up if one never comes.
#[derive(Default)]
struct Gate {
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    fn arrive(&self) {
        *self.arrived.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn await_all(&self, number: usize) {
        let arrived = self.arrived.lock().unwrap();
        let waited = self.changed.wait_timeout_while(arrived, LONG, |arrived| *arrived < number).unwrap();
        assert!(!waited.1.timed_out(), "one of the others failed");
    }
}

/// What one call needs: a client that is not yet in trouble, and the moment at which it is.
struct Stage<'a> {
    locks: ReentrantLock,
    /// Of the call, and of its lock.
    name: &'static str,
    url: &'a str,
    /// Somebody whom the fault does not concern until it begins.
    other: &'a ReentrantLock,
    prepared: &'a Gate,
    begun: &'a Gate,
}

impl Stage<'_> {
    /// Comes back when the fault has begun, for all calls.
    fn begins(&self) {
        self.prepared.arrive();
        self.begun.await_all(1);
    }

    /// Gives back what the call left of its own, once the fault is over.
    fn give_back(self) {
        for locks in [&self.locks, self.other] {
            while locks.hold_count(self.name) > 0 {
                let _ = locks.unlock(self.name);
            }
        }
        self.locks.client().shutdown();
    }
}

fn locks_at(url: &str) -> ReentrantLock {
    let builder = Client::builder(url).response_timeout(ANSWER).connect_timeout(ANSWER);
    ReentrantLock::new(&builder.outage_budget(BUDGET).watchdog_timeout(LEASE).build().unwrap())
}

/// One way of not serving.
struct Fault<'a> {
    name: &'static str,
    url: String,
    begin: &'a dyn Fn(&mut Server),
    end: &'a dyn Fn(&mut Server),
}

impl Fault<'_> {
    /// Makes every call while the fault lasts, and looks at the locks when it is over.
    fn run(self, mut server: Server) {
        let other = server.locks();
        let [prepared, begun, made, over] = [(); 4].map(|()| Gate::default());
        let late: Vec<_> = std::thread::scope(|scope| {
            let make = |call: &'static Call| {
                let (prepared, begun, made, over) = (&prepared, &begun, &made, &over);
                let (locks, url) = (locks_at(&self.url), &self.url);
                let stage = Stage { locks, name: call.name, url, other: &other, prepared, begun };
                scope.spawn(move || {
                    let took = (call.make)(&stage);
                    made.arrive();
                    over.await_all(1);
                    stage.give_back();
                    (call, took)
                })
            };
            let calling: Vec<_> = CALLS.iter().map(make).collect();
            prepared.await_all(CALLS.len());
            (self.begin)(&mut server);
            begun.arrive();
            made.await_all(CALLS.len());
            (self.end)(&mut server);
            over.arrive();
            calling.into_iter().map(finish).filter(|(call, took)| self.report(call, *took)).collect()
        });
        for call in CALLS {
            assert!(other.try_lock_for(call.name, LONG).unwrap(), "{} left its lock", call.name);
            other.unlock(call.name).unwrap();
        }
        let left = || server.ask::<Vec<String>>(&["KEYS", "*"]);
        eventually(LONG, "the leases end what a shutdown could not give back", || left().is_empty());
        let late: Vec<_> = late.iter().map(|(call, took)| (call.name, took)).collect();
        assert!(late.is_empty(), "late under {}: {late:?}", self.name);
    }

    /// Whether the call was late. A wait and the time-out of its last command are two timers, one after the other.
    fn report(&self, call: &Call, took: Took) -> bool {
        let (name, call, budget) = (self.name, call.name, call.budget);
        println!("bounded | {name} | {call} | {} | {:.0}", budget.as_millis(), took.real().as_secs_f64() * 1_000.0);
        took > budget + LATE
    }
}

#[test]
fn every_call_at_a_black_hole() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (begin, end) = (|_: &mut Server| proxy.set(|_, _, _| Vec::new()), |_: &mut Server| proxy.clear());
    Fault { name: "black hole", url: proxy.url(), begin: &begin, end: &end }.run(server);
}

#[test]
fn every_call_at_a_stopped_server() {
    let server = Server::start();
    let (begin, end) = (|server: &mut Server| server.freeze(), |server: &mut Server| server.thaw());
    Fault { name: "SIGSTOP", url: server.url(), begin: &begin, end: &end }.run(server);
}

#[test]
fn every_call_at_a_server_that_loads_its_data() {
    let server = Server::start_with_data();
    server.fill(100_000);
    let begin = |server: &mut Server| {
        server.kill();
        server.restart_slowly(Duration::from_micros(50));
    };
    let end = |server: &mut Server| {
        let loading = server.try_ask::<String>(&["PING"]).is_err_and(|error| error.code() == Some("LOADING"));
        assert!(loading, "it was loading all the time");
        server.kill();
        server.restart();
        server.clear();
    };
    Fault { name: "LOADING", url: server.url(), begin: &begin, end: &end }.run(server);
}

#[test]
fn every_call_at_a_server_that_is_busy_with_a_script() {
    let server = Server::start();
    let _: String = server.ask(&["CONFIG", "SET", "lua-time-limit", "100"]);
    let begin = |server: &mut Server| {
        let mut connection = server.connection();
        std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection));
        let busy = || server.try_ask::<String>(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"));
        eventually(LONG, "it is busy", busy);
    };
    let end = |server: &mut Server| drop(server.ask::<String>(&["SCRIPT", "KILL"]));
    Fault { name: "BUSY", url: server.url(), begin: &begin, end: &end }.run(server);
}

#[test]
fn every_call_at_a_server_that_is_gone() {
    let server = Server::start();
    let (begin, end) = (|server: &mut Server| server.kill(), |server: &mut Server| server.restart());
    Fault { name: "refused", url: server.url(), begin: &begin, end: &end }.run(server);
}

#[test]
fn every_call_at_a_server_that_answers_no_handshake() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let begin = |server: &mut Server| {
        proxy.set(|_, _, _| Vec::new());
        for kind in ["normal", "pubsub"] {
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", kind]);
        }
    };
    let end = |_: &mut Server| proxy.clear();
    Fault { name: "half-open", url: proxy.url(), begin: &begin, end: &end }.run(server);
}
