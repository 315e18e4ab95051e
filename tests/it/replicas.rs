//! A master and replicas that are given by their addresses, and replaced by hand.

mod finding;
mod log;
mod masters;
mod switches;

use crate::harness::sentinel::Group;
use crate::threads::{LONG, SOON};
use redlatch::{ClientBuilder, ReentrantLock};
use std::time::Duration;

/// A lease that is not renewed and does not end while a test runs.
const MINUTE: Duration = Duration::from_secs(60);

/// How soon a switch is followed that breaks no connection: all are asked each second.
const FOLLOWED: Duration = Duration::from_secs(1).saturating_add(SOON);

fn group() -> Group {
    Group::without_sentinels()
}

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// The locks of a client whose waits and renewals come so seldom that only news can be what makes it ask.
fn patient(group: &Group) -> ReentrantLock {
    locks_of(group.by_address(0).poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(LONG))
}

/// A client has one connection to each node on which it asks what it is, and others to the master alone.
fn is_followed(group: &Group, master: usize) -> bool {
    let used =
        |number: usize| group.nodes[number].try_ask::<String>(&["PING"]).is_ok() && group.nodes[number].clients() > 1;
    (0..group.nodes.len()).all(|number| used(number) == (number == master))
}
