//! Groups of a master, replicas and sentinels, which replace the master when it goes.

mod crowd;
mod failovers;
mod finding;
mod groups;
pub(crate) mod log;
mod places;
mod quorum;
mod safe;
mod sentinels;

use crate::harness::sentinel::Group;
use crate::threads::{LONG, eventually};
use redlatch::{ClientBuilder, ReentrantLock};
use std::time::Duration;

/// A lease that is not renewed and does not end while a test runs.
const MINUTE: Duration = Duration::from_secs(60);

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// The locks of a client whose waits and renewals come so seldom that only news can be what makes it ask.
fn patient(group: &Group) -> ReentrantLock {
    locks_of(group.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(MINUTE))
}

#[track_caller]
fn eventually_free(group: &Group) {
    // A sentinel may name the old master for a while, which is gone.
    let is_free = || group.nodes[group.master()].try_ask::<i64>(&["PTTL", "n"]).is_ok_and(|left| left == -2);
    eventually(LONG, "the lock is free at the master", is_free);
}
