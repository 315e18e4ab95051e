//! Where locks are kept: the servers behind one URL, whatever they are to each other.
//!
//! Kinds of locks talk to a [`Store`] and know nothing below it. A new deployment is a file here, and a line in [`SCHEMES`]. It implements
//! the trait; if its master moves, [`moving`] does that for it. What it builds on are *nodes*
//! ([`Backend`](crate::store::node::Backend), the pools of one server) and their subscribers
//! ([`PubSub`](crate::store::subscriber::PubSub)); [`fixed::Fixed`] has one of each.
//!
//! Where the master moves, a store has a node for each *generation*, the time between two moves. When the next one begins, it retires the
//! node, which closes every connection to it, and leads its subscriber to the new one. [`moving`] does that for [`sentinel`] and
//! [`replicas`], which say which server is to be followed.

mod cluster;
mod fixed;
mod host_port;
mod link;
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

/// What is known of a store without asking it: where it is, and since when it has been out of reach.
pub(crate) trait Health: Send + Sync {
    /// Where it is, as the log names it.
    fn address(&self) -> String;

    /// Where a lock is, as far as that is known, as the log names it.
    fn address_of(&self, _resource: &str) -> String {
        self.address()
    }

    /// Whether other servers may take the place of those that it has.
    fn moves(&self) -> bool {
        false
    }

    /// How long it has been out of reach, as far as anyone tried.
    fn outage(&self) -> Option<Duration>;

    /// When calls for a lock without a deadline of their own give up: as long as what has this lock is out of reach.
    fn outage_ends(&self, resource: &str, now: Moment) -> Moment;

    /// What the last attempt there that failed met, whoever made it.
    fn last_failure(&self, resource: &str) -> Option<Failure>;

    /// Which keys are at one server each, those of servers that do not answer last.
    fn apart(&self, keys: &[&str]) -> Vec<Vec<usize>> {
        vec![(0..keys.len()).collect()]
    }

    /// Which of its servers has a lock, as far as that is known: what one does not answer says nothing of the others.
    fn server_of(&self, _: &str) -> usize {
        0
    }
}

/// For each key of a script for several what was said of it, and when it was asked.
pub(crate) type Answers = Vec<Result<Answer, Failure>>;

/// The servers behind one URL.
///
/// It makes single attempts and repeats none: that is for those who know what a second one would do.
pub(crate) trait Store: Health {
    /// By what it is known, whoever is its client: two stores that have one of these in common are the same servers.
    fn identity(&self) -> Vec<String>;

    /// Makes one attempt at the server that has its keys.
    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure>;

    /// The same for a script that does to each of its keys what it would do to it alone, and so may go to several servers
    /// by several commands. Its first `shared` arguments are for all keys; of the others each key has as many.
    ///
    /// `Err`: of no key is anything known.
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

    /// Whether this client itself is told what is published on a channel.
    fn hears(&self, channel: &str) -> bool;

    /// Whether a script of this lock is told how many listen for it. In a cluster without sharded pub/sub it is told of one node's.
    fn counts_listeners(&self, key: &str) -> bool;

    /// Whether scripts tell unlocks by sharded pub/sub: every channel has to be in the lock's slot.
    fn is_sharded(&self) -> bool {
        false
    }

    /// In a cluster: the slots that are at the same server as a key.
    fn slots_beside(&self, _: &str) -> Vec<u16> {
        Vec::new()
    }

    /// One round trip that asks for nothing, answered by then: how long its answer took.
    fn ping(&self, until: Moment) -> Result<Duration, Failure>;

    /// Makes a connection ready for later attempts, within the connect time-out.
    fn warm(&self, lane: Lane) -> Result<(), Failure>;

    /// Ends the subscriber. Attempts can still be made: what a shutdown left is released by whoever has it.
    fn close(&self);
}

/// What the stores that a client opens have in common. A store whose servers change keeps it, to open the next.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) config: Config,
    pub(crate) counters: Arc<Counters>,
    pub(crate) worker: Worker,
    /// Called when servers behind a store have changed, and may not know every lock that was held, or freed: has those of them
    /// asked for at once whose keys are theirs, and freed again.
    pub(crate) moved: Moved,
    /// Whether the client holds or waits for anything: then it has to hear of servers that change, though it asks for nothing.
    pub(crate) in_use: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Common {
    /// The same for one node of a quorum.
    pub(crate) fn voting(&self, vote: Vote) -> Self {
        Self { config: Config { vote: Some(vote), ..self.config.clone() }, ..self.clone() }
    }
}

/// Told which keys are on other servers now.
pub(crate) type Moved = Arc<dyn Fn(&dyn Fn(&str) -> bool) + Send + Sync>;

/// Makes the store of a URL. Nothing is connected yet.
type OpenStore = fn(&str, &Common) -> error::Result<Arc<dyn Store>>;

/// What a scheme means.
enum Scheme {
    /// A server's address.
    Server,
    Opens(OpenStore),
    /// The same with TLS as that of another scheme.
    Sealed(&'static str),
    /// Other programs know it; what its user is told.
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

/// The store of a URL without TLS in it: that is in the configuration. Nothing is connected yet.
///
/// # Errors
/// `Config` for a URL that is not understood.
pub(crate) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let url = url.trim();
    match scheme_of(url)? {
        Server => fixed::open(url, common),
        Opens(open) => open(url, common),
        // The caller takes the TLS out of the URL before.
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
