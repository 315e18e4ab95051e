//! The rows: each kind of lock, deployment and feature that asks for rules of its own.

use harness::threads::{WATCHED, ms};
use redlatch::{Client, ClientBuilder, HandOff, Naming, QuorumLock, ShardedPubsub};

/// Where a user logs in whose rules are tried.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum At {
    Server,
    Servers,
    Replicas,
    Sentinel,
    /// At the sentinels themselves.
    Sentinels,
    Cluster,
}

pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) at: At,
    pub(crate) set: fn(ClientBuilder) -> ClientBuilder,
    pub(crate) of: Of,
}

/// The kind of its locks, or what it has beside them.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Of {
    Plain,
    Fenced,
    Fair,
    Sides,
    Counted,
    Leased,
    Latch,
}

const fn row(title: &'static str, at: At, set: fn(ClientBuilder) -> ClientBuilder) -> Row {
    Row { title, at, set, of: Of::Plain }
}

const fn fenced(title: &'static str, at: At, set: fn(ClientBuilder) -> ClientBuilder) -> Row {
    Row { title, at, set, of: Of::Fenced }
}

const fn fair(title: &'static str, at: At, set: fn(ClientBuilder) -> ClientBuilder) -> Row {
    Row { title, at, set, of: Of::Fair }
}

const fn sides(title: &'static str, at: At, set: fn(ClientBuilder) -> ClientBuilder) -> Row {
    Row { title, at, set, of: Of::Sides }
}

/// Of a kind that is no lock.
const fn other(title: &'static str, at: At, of: Of) -> Row {
    Row { title, at, set: |builder| builder, of }
}

pub(crate) const ROWS: &[Row] = &[
    row("`ReentrantLock`, `MultiLock`: one server", At::Server, |builder| builder),
    row("the same with `HandOff::off()`", At::Server, |builder| builder.hand_off(HandOff::off())),
    row("the same with `Naming::Jedis`", At::Server, |builder| builder.naming(Naming::Jedis)),
    row("the same with `strict`", At::Server, |builder| builder.strict(true)),
    row("the same with an `app_name`, and a database of its own", At::Server, |builder| builder.app_name("app")),
    fenced("`FencedLock`: one server", At::Server, |builder| builder),
    fenced("`FencedLock` with `HandOff::off()`: one server", At::Server, |builder| builder.hand_off(HandOff::off())),
    fair("`FairLock` beside `ReentrantLock`: one server", At::Server, |builder| builder),
    fair("`FairLock` with `HandOff::off()`: one server", At::Server, |builder| builder.hand_off(HandOff::off())),
    sides("`ReadWriteLock` beside `ReentrantLock`: one server", At::Server, |builder| builder),
    other("`Semaphore` beside `ReentrantLock`: one server", At::Server, Of::Counted),
    other("`LeasedSemaphore` beside `ReentrantLock`: one server", At::Server, Of::Leased),
    other("`CountDownLatch` beside `ReentrantLock`: one server", At::Server, Of::Latch),
    row("`QuorumLock`: each server", At::Servers, |builder| builder),
    row("`ReentrantLock`, `MultiLock`: each node of `.replicas`", At::Replicas, |builder| builder),
    row("the same with `sync_replicas`", At::Replicas, |builder| builder.sync_replicas(1, ms(200))),
    row("`ReentrantLock`, `MultiLock`: each node that sentinels keep", At::Sentinel, |builder| builder),
    row("the same with a user of its own: each sentinel", At::Sentinels, |builder| builder),
    row("`ReentrantLock`, `MultiLock`: each node of a cluster, sharded pub/sub", At::Cluster, |builder| builder),
    row("the same without sharded pub/sub", At::Cluster, |builder| builder.sharded_pubsub(ShardedPubsub::Off)),
    fenced("`FencedLock`: each node of a cluster, sharded pub/sub", At::Cluster, |builder| builder),
    fair("`FairLock` beside `ReentrantLock`: each node of a cluster, sharded pub/sub", At::Cluster, |builder| builder),
    sides("`ReadWriteLock` beside `ReentrantLock`: each node of a cluster, sharded pub/sub", At::Cluster, |builder| {
        builder
    }),
    other("`Semaphore` beside `ReentrantLock`: each node of a cluster, sharded pub/sub", At::Cluster, Of::Counted),
    other("`LeasedSemaphore` beside `ReentrantLock`: each node of a cluster, sharded pub/sub", At::Cluster, Of::Leased),
    other("`CountDownLatch` beside `ReentrantLock`: each node of a cluster, sharded pub/sub", At::Cluster, Of::Latch),
];

impl Row {
    /// A client that logs in there.
    pub(crate) fn builder(&self, urls: &[String], self_test: bool) -> ClientBuilder {
        let builder = match self.at {
            At::Replicas => Client::builder(&urls[0]).replicas(&urls[1..]),
            _ => Client::builder(&urls[0]),
        };
        (self.set)(usual(builder)).self_test(self_test)
    }

    /// A client that logs in to each of several servers.
    pub(crate) fn quorum(urls: &[String], self_test: bool) -> ClientBuilder<QuorumLock> {
        usual(QuorumLock::builder(urls)).node_timeout(WATCHED / 4).self_test(self_test)
    }

    /// The first version of a server that has such users: those of sentinels came with 6.2, pub/sub of a shard with 7.0.
    pub(crate) fn since(&self) -> (u32, u32) {
        match self.at {
            At::Sentinels => (6, 2),
            At::Cluster if !self.title.contains("without") => (7, 0),
            _ => (6, 0),
        }
    }

    /// The database that its users are in.
    pub(crate) fn database(&self) -> &'static str {
        if self.title.contains("database") { "&db=1" } else { "" }
    }
}

fn usual<B>(builder: ClientBuilder<B>) -> ClientBuilder<B> {
    builder.key_prefix("shop:").watchdog_timeout(WATCHED).outage_budget(ms(1_000)).poll_cap(ms(20_000))
}
