//! Where locks are kept: the servers behind one URL.
//!
//! Kinds of locks talk to a [`Store`] and know nothing below it. A new deployment is a file here, and a line in [`SCHEMES`]. It implements
//! the trait; if its master moves, [`moving`] does that for it. It is built of *nodes*
//! ([`Backend`](crate::store::node::Backend), the pools of one server) and their subscribers
//! ([`PubSub`](crate::store::subscriber::PubSub)); [`fixed::Fixed`] has one of each.
//!
//! If the master moves, a store has one node for each *generation*, the time between two moves. At a move the store retires the old node,
//! which closes every connection to it, and leads its subscriber to the new one. [`moving`] does that for [`sentinel`] and
//! [`replicas`], which tell it the server to follow.

mod cluster;
mod fixed;
mod host_port;
mod link;
pub(crate) mod memory;
mod moving;
pub(crate) mod node;
mod replicas;
mod sentinel;
pub(crate) mod subscriber;
#[cfg(test)]
mod tests;
mod url;

use crate::base::config::Config;
use crate::base::error;
use crate::base::signal::{Ear, Listening};
use crate::base::stats::Counters;
use crate::base::time::Moment;
use crate::base::voters::Vote;
use crate::store::node::{Answer, Failure, Lane, Limits, Request, Worker, wrong_scheme, wrong_url};
use std::sync::Arc;
use std::time::Duration;

/// What is known of a store without asking a server: its address, and since when it has been out of reach.
pub(crate) trait Health: Send + Sync {
    /// The store's address, as the log names it.
    fn address(&self) -> String;

    /// The address of the server that has a lock, as the log names it, as far as it is known.
    fn address_of(&self, _resource: &str) -> String {
        self.address()
    }

    /// Whether other servers may take the place of the present ones.
    fn moves(&self) -> bool {
        false
    }

    /// How long the store has been out of reach, as far as any thread tried.
    fn outage(&self) -> Option<Duration>;

    /// When calls for a lock give up that have no deadline of their own: one budget after the outage of the lock's server began.
    fn outage_ends(&self, resource: &str, now: Moment) -> Moment;

    /// The failure of the last attempt that failed at the server that has a lock, whichever thread made it.
    fn last_failure(&self, resource: &str) -> Option<Failure>;

    /// The indexes of these keys, one list for each server. Servers that do not answer come last.
    fn apart(&self, keys: &[&str]) -> Vec<Vec<usize>> {
        vec![(0..keys.len()).collect()]
    }

    /// The number of the server that has a lock, as far as it is known. The silence of one server says nothing of the others.
    fn server_of(&self, _: &str) -> usize {
        0
    }
}

/// For each key of a script for several keys: the answer, and when the question was sent.
pub(crate) type Answers = Vec<Result<Answer, Failure>>;

/// The servers behind one URL.
///
/// It makes single attempts and repeats none: only its callers know what a second one would do.
pub(crate) trait Store: Health {
    /// Names that do not depend on the client: two stores that have one of them in common are the same servers.
    fn identity(&self) -> Vec<String>;

    /// Makes one attempt at the server that has its keys.
    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure>;

    /// The same for a script that treats each of its keys as if it were the only one. So it may go to several servers by
    /// several commands. Its first `shared` arguments are for all keys; the others are shared out equally among the keys.
    ///
    /// `Err`: nothing is known of any key.
    fn attempt_all(
        &self,
        lane: Lane,
        request: &Request<'_>,
        shared: usize,
        limits: Limits<'_>,
    ) -> Result<Answers, Failure>;

    /// Puts an ear on a channel, until what is returned is dropped.
    ///
    /// # Errors
    /// When the subscriber's thread cannot be started.
    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> std::io::Result<Box<dyn Listening>>;

    /// Whether this client's own subscription to a channel is confirmed.
    fn hears(&self, channel: &str) -> bool;

    /// Whether a script can count all listeners of this lock. In a cluster without sharded pub/sub it counts those at one node.
    fn counts_listeners(&self, key: &str) -> bool;

    /// The number of the database.
    fn database(&self) -> i64 {
        0
    }

    /// Whether scripts publish by sharded pub/sub. If so, every channel has to be in the lock's slot.
    fn is_sharded(&self) -> bool {
        false
    }

    /// In a cluster: the slots that are at the same server as a key.
    fn slots_beside(&self, _: &str) -> Vec<u16> {
        Vec::new()
    }

    /// Makes one round trip that asks for nothing, by `until`. Returns how long its answer took.
    fn ping(&self, until: Moment) -> Result<Duration, Failure>;

    /// The addresses of the servers that have locks. Locks in memory have none.
    fn servers(&self, _: Moment) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    /// Makes one attempt at each request, all in one write, at the server with this address. No request has a key that may be elsewhere.
    fn attempt_at(&self, _: &str, _: &[Request<'_>], _: Limits<'_>) -> Result<Answers, Failure> {
        Err(Failure::not_understood())
    }

    /// Makes a connection ready for later attempts, within the connect time-out.
    fn warm(&self, lane: Lane) -> Result<(), Failure>;

    /// Ends the subscriber. Attempts can still be made: the owner of a hold that a shutdown left releases it later.
    fn close(&self);
}

/// What all stores of a client have in common. A store whose servers change keeps it, to open the next server.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) counters: Arc<Counters>,
    pub(crate) worker: Worker,
    /// Called when servers of a store have changed: the new ones may not know every lock that was held or freed. The client then
    /// asks for the holds on their keys at once, and frees again what was freed.
    pub(crate) moved: Moved,
    /// Whether the client holds or waits for a lock. If so, it has to hear of servers that change even while it sends no command.
    pub(crate) in_use: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Common {
    /// The same for one node of a quorum.
    pub(crate) fn voting(&self, vote: Vote) -> Self {
        Self { config: Config { vote: Some(vote), ..self.config.clone() }, ..self.clone() }
    }
}

/// Called with a test that says which keys are on other servers now.
pub(crate) type Moved = Arc<dyn Fn(&dyn Fn(&str) -> bool) + Send + Sync>;

/// Makes the store of a URL. Nothing is connected yet.
type OpenStore = fn(&str, &Common) -> error::Result<Arc<dyn Store>>;

/// What a scheme means.
enum Scheme {
    /// A server's address.
    Server,
    Opens(OpenStore),
    /// The same as another scheme, with TLS.
    Sealed(&'static str),
    /// A scheme of other programs, and the error for it.
    Refused(&'static str),
}
use Scheme::{Opens, Refused, Sealed, Server};

const A_SOCKET: &str = "is that of a socket: write unix:// before its path";
const NOT_REDIS: &str = "is not that of a Redis server: write redis:// before the host";

/// The deployments, by the schemes of their URLs. Those that are refused come last.
const SCHEMES: &[(&str, Scheme)] = &[
    ("redis", Server),
    ("valkey", Server),
    ("unix", Server),
    ("redis+unix", Server),
    ("valkey+unix", Server),
    ("rediss", Sealed("redis")),
    ("valkeys", Sealed("redis")),
    ("redis+tls", Sealed("redis")),
    ("redis+ssl", Sealed("redis")),
    ("redis+cluster", Opens(cluster::open)),
    ("redis-cluster", Opens(cluster::open)),
    ("valkey+cluster", Opens(cluster::open)),
    ("rediss-cluster", Sealed("redis+cluster")),
    ("rediss+cluster", Sealed("redis+cluster")),
    ("redis+sentinel", Opens(sentinel::open)),
    ("redis-sentinel", Opens(sentinel::open)),
    ("valkey+sentinel", Opens(sentinel::open)),
    ("rediss-sentinel", Sealed("redis+sentinel")),
    ("rediss+sentinel", Sealed("redis+sentinel")),
    ("redis-socket", Refused(A_SOCKET)),
    ("redis+socket", Refused(A_SOCKET)),
    ("tcp", Refused(NOT_REDIS)),
    ("http", Refused(NOT_REDIS)),
    ("https", Refused(NOT_REDIS)),
];

/// What the scheme of a URL means.
fn scheme_of(url: &str) -> error::Result<&'static Scheme> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let known = SCHEMES.iter().find(|(known, _)| scheme.as_deref() == Some(known));
    known.map(|(_, scheme)| scheme).ok_or_else(|| wrong_scheme(url))
}

/// Whether a URL asks for TLS.
pub(crate) fn is_sealed(url: &str) -> bool {
    matches!(scheme_of(url.trim()), Ok(Sealed(_)))
}

/// The URL of the same servers without TLS.
pub(crate) fn unsealed(url: &str) -> String {
    match (scheme_of(url.trim()), url.trim().split_once(':')) {
        (Ok(Sealed(plain)), Some((_, rest))) => format!("{plain}:{rest}"),
        _ => url.trim().to_owned(),
    }
}

/// Whether a URL is that of a cluster, where each lock is in a slot.
pub(crate) fn is_cluster(url: &str) -> bool {
    matches!(scheme_of(url.trim()), Ok(Opens(open)) if std::ptr::fn_addr_eq(*open, cluster::open as OpenStore))
}

/// The store of a URL. TLS is in the configuration and not in the URL. Nothing is connected yet.
///
/// # Errors
/// `Config` for a URL that is not understood.
pub(crate) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let url = url.trim();
    match scheme_of(url)? {
        Server => fixed::open(url, common),
        Opens(open) => open(url, common),
        // Callers take TLS out of the URL first, by `unsealed`.
        Sealed(_) => Err(wrong_scheme(url)),
        Refused(what) => Err(wrong_url(what)),
    }
}

/// The store of a master and its replicas, each by a URL of its own. Nothing is connected yet.
///
/// # Errors
/// `Config` for a URL that is not understood, and for some that do not go together.
pub(crate) fn open_replicas(urls: &[&str], common: &Common) -> error::Result<Arc<dyn Store>> {
    replicas::open(urls, common)
}
