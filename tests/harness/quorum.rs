//! The harness's quorums: several servers, and locks on all of them.

use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms};
use redlatch::{ClientBuilder, QuorumLock, RedLock};
use std::time::Duration;

/// A node time-out that no passing test waits out: a call that is faster than this has not waited for the node.
pub const SLOW: Duration = Duration::from_secs(2);

/// A lease that is not renewed and does not end while a test runs.
pub const MINUTE: Duration = Duration::from_secs(60);

/// A watchdog's lease long enough for a busy machine to make every renewal in time.
pub const UNHURRIED: Duration = Duration::from_secs(3);

/// By then a hold that was never renewed is over for sure.
pub const OUTLIVED: Duration = Duration::from_millis(3_500);

pub fn start(nodes: usize) -> Vec<Server> {
    std::iter::repeat_with(Server::start).take(nodes).collect()
}

pub fn builder(servers: &[Server]) -> ClientBuilder<QuorumLock> {
    QuorumLock::builder(servers.iter().map(Server::url)).node_timeout(ms(1_000))
}

pub fn connect(servers: &[Server]) -> QuorumLock {
    builder(servers).build().unwrap()
}

/// Locks that wait for each node much longer than a test may take.
pub fn patient(servers: &[Server]) -> QuorumLock {
    builder(servers).node_timeout(SLOW).build().unwrap()
}

/// Takes the lock on a node for another owner.
pub fn occupy(server: &Server, lease: Duration) {
    let _: i64 = server.ask(&["HSET", "n", "someone", "1"]);
    let _: i64 = server.ask(&["PEXPIRE", "n", &lease.as_millis().to_string()]);
}

pub fn vacate(server: &Server) {
    let _: i64 = server.ask(&["DEL", "n"]);
}

pub fn has_key(server: &Server) -> bool {
    server.ask::<i64>(&["EXISTS", "n"]) == 1
}

#[track_caller]
pub fn eventually_free(servers: &[Server]) {
    eventually(SOON, "no node has the key", || !servers.iter().any(has_key));
}

#[track_caller]
pub fn eventually_confirmed(locks: &QuorumLock, by: usize) {
    let confirmed = || locks.hold("n").unwrap().confirmed_by().unwrap().0;
    eventually(LONG, "so many nodes confirm the hold", || confirmed() == by);
}
