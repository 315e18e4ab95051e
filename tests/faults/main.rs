//! The fault matrix: what each fault of `docs/faults.md` must lead to, each row with one test or more, named
//! `fault_NN_what`.

#[macro_use]
#[allow(dead_code, reason = "each binary uses a part")]
#[path = "../harness/mod.rs"]
mod harness;
use harness::{process, proxy, server, threads};

use redlatch::{Applied, ClientBuilder, Error, ReentrantLock};

mod auth;
mod client_process;
mod clocks;
mod data;
mod failover;
mod fork;
mod ghosts;
mod inputs;
mod limits;
mod misuse;
mod network;
mod outages;
mod pubsub;
mod refusals;
mod servers;
mod topology;

/// The locks of a client that gives up soon.
fn hasty(server: &server::Server) -> ReentrantLock {
    let builder = server.builder().watchdog_timeout(threads::WATCHED).outage_budget(threads::ms(500));
    ReentrantLock::new(&builder.build().unwrap())
}

/// That a call was refused with this code, for certain without an effect.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: redlatch::Result<T>, code: &str) -> Error {
    let refused = matches!(&result, Err(Error::Refused { code: said, applied: Applied::No, .. }) if said == code);
    assert!(refused, "expected {code}, got {result:?}");
    result.unwrap_err()
}

/// The locks of a new client with these settings.
fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}
