//! Masters that share the slots: the way to the right one, masters that are replaced, and slots that move.

mod crowd;
mod failovers;
mod log;
mod moves;
mod routes;

use crate::harness::cluster::Cluster;
use redlatch::{ClientBuilder, ReentrantLock, ShardedPubsub};
use std::time::Duration;

/// A lease that does not end while a test runs.
const MINUTE: Duration = Duration::from_secs(60);

/// In both ways of telling who waits.
const BOTH: [ShardedPubsub; 2] = [ShardedPubsub::Auto, ShardedPubsub::Off];

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// Of a client whose waits and renewals come so seldom that only news can be what makes it ask.
fn patient(cluster: &Cluster, told: ShardedPubsub) -> ReentrantLock {
    locks_of(patient_builder(cluster).sharded_pubsub(told))
}

fn patient_builder(cluster: &Cluster) -> ClientBuilder {
    cluster.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(MINUTE)
}
