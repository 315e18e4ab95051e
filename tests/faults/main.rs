//! The fault matrix: what each fault of `docs/faults.md` must lead to, each row with one test or more, named
//! `fault_NN_what`.

#[macro_use]
extern crate harness;
use harness::{lua, process, proxy, server, threads};

use crate::server::Server;
use crate::threads::{LONG, SOON, Took, eventually, ms};
use redlatch::{Applied, ClientBuilder, Error, ReentrantLock};
use std::time::Duration;

mod anew;
mod auth;
mod by_address;
mod circles;
mod client_process;
mod clocks;
mod cluster;
mod cluster_clients;
mod cluster_parts;
mod cluster_rights;
mod cluster_slots;
mod confirming;
mod data;
mod doubts;
mod doubts_corners;
mod doubts_descriptors;
mod doubts_releases;
mod doubts_strays;
mod failover;
mod fair;
mod fork;
mod ghosts;
mod inputs;
mod limits;
mod managed;
mod misuse;
mod names;
mod network;
mod outages;
mod permits;
mod pool;
mod pubsub;
mod quarantine;
mod queues;
mod quorum;
mod quorum_shutdown;
mod readers;
mod refusals;
mod replaced;
mod rotation;
mod rows;
mod safe;
mod sentinel;
mod sentinels;
mod servers;
mod signals;
mod slow_credentials;
mod table;
mod tls;
mod topology;
mod warnings;
mod writes;

/// Renewed every second: time for a machine that stalls.
const LEASE: Duration = Duration::from_secs(3);

/// A lease that does not end while a test runs, and is not due to be renewed either.
const MINUTE: Duration = Duration::from_secs(60);

/// The locks of a client whose waits and renewals come so seldom that only news can be what makes it ask.
fn patient(builder: ClientBuilder) -> ReentrantLock {
    locks_of(builder.poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(MINUTE))
}

/// A client of a cluster whose nodes know each other by the ports of proxies, which are not for clients.
fn seen_through(cluster: &harness::cluster::Cluster) -> ClientBuilder {
    let ways = cluster.ways();
    let own = move |port| ways.iter().find(|(known, _)| *known == port).map_or(port, |(_, own)| *own);
    cluster.builder().map_address(move |host, port| (host.to_owned(), own(port)))
}

/// The locks of a client that gives up soon.
fn hasty(server: &Server) -> ReentrantLock {
    let builder = server.builder().watchdog_timeout(LEASE).response_timeout(ms(300)).outage_budget(ms(500));
    ReentrantLock::new(&builder.build().unwrap())
}

/// That a call is refused with this code sooner or later: on a busy machine an answer may take too long.
#[track_caller]
fn assert_told<T: std::fmt::Debug>(code: &str, mut call: impl FnMut() -> redlatch::Result<T>) {
    eventually(LONG, code, || match call() {
        Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. }) => false,
        refused => {
            assert_refused(refused, code);
            true
        }
    });
}

/// That a call gave up at the end of the outage budget of [`hasty`], and may be repeated.
#[track_caller]
fn assert_given_up<T: std::fmt::Debug>((result, took): (redlatch::Result<T>, Took)) {
    assert!(result.as_ref().is_err_and(Error::is_retryable), "{result:?}");
    assert!(took >= ms(400) && took <= ms(500) + SOON, "took {took:?}");
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
