//! [`QuorumLock`]: the Redlock algorithm over several independent Redis masters.

mod ballots;
mod broom;
mod ears;
mod node;
mod store;
mod tally;

use crate::base::error::{Error, Result};
use crate::base::kind::Kind;
use crate::base::say::say;
use crate::base::stats::Stats;
use crate::base::time::Clock;
use crate::base::unwind::survives_a_panic;
use crate::base::voters::Voters;
use crate::client::{ClientBuilder, Space};
use crate::lease::nodes::MOST_NODES;
use crate::lease::tenure::Keeper;
use crate::lock::RedLock;
use crate::lock::engine::Engine;
use crate::lock::forward::answered_by;
use crate::store::{self as stores, Health, Store};
use broom::Broom;
use node::Node;
use once_cell::sync::OnceCell;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::Quorum;

static QUORUM: Kind = Kind::new("quorum lock");

/// A re-entrant lock on several independent Redis masters, held while more than half of them agree: the Redlock algorithm. It
/// works on while a minority is down, hangs or is out of reach, at the speed of the others.
///
/// The nodes know nothing of each other: no node is a replica of another one, and there is no cluster. A node may be a Sentinel
/// group, whose master is followed. If a new master had not replicated a hold, it is a node that restarts without its data,
/// below. Three or five nodes are usual; an even number bears no more failures than one less. On each node the lock is a key
/// like a [`ReentrantLock`](crate::ReentrantLock)'s.
///
/// ```no_run
/// use redlatch::{QuorumLock, RedLock};
/// use std::time::Duration;
///
/// let locks = QuorumLock::connect(["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"])?;
/// locks.lock("order:42")?;
/// let (confirming, nodes) = locks.hold("order:42").and_then(|hold| hold.confirmed_by()).unwrap();
/// assert!(confirming >= 2 && nodes == 3);    // the acquire does not wait for the third
/// locks.unlock("order:42")?;
///
/// let urls = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
/// let locks = QuorumLock::builder(urls)
///     .watchdog_timeout(Duration::from_secs(10))
///     .node_timeout(Duration::from_millis(20))
///     .build()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// # How it works
///
/// All nodes are asked at the same time, and none is waited for longer than
/// [`node_timeout`](ClientBuilder::node_timeout). The lock is acquired when a majority granted it. It is valid for the
/// lease, less the time since the asking began, less 1 % and 2 ms. A round without a majority gives back what it got.
/// The next round has a new owner id and begins after a random pause, so that of several clients with a part one comes
/// first. Releases go to every node that may have the key. Unanswered ones are repeated in the background until the
/// lease ends. A waiter hears of unlocks at any node.
///
/// A renewal counts when a majority confirms it. It never puts the key back on a node that lost it: another client may
/// have a majority with that node already, and there would be two. [`Hold::confirmed_by`](crate::Hold::confirmed_by)
/// tells how many confirm. A hold that neither has nor surely lacks a majority is
/// [`Suspect`](crate::HoldState::Suspect) until that is known, or until its deadline.
///
/// # What it does not give
///
/// What Redlock promises rests on time, and on nodes that remember. That was discussed at length: the algorithm at
/// <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>, Martin Kleppmann's analysis at
/// <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>, and the reply at
/// <http://antirez.com/news/101>.
///
/// * **Clock drift.** Lease and holder are measured on different clocks. Rates that differ by less than 1 % are
///   allowed for. A node whose clock jumps forward drops its locks early: a majority of such nodes makes two holders.
/// * **A node that restarts without its data** grants again what it had granted. A hold that 3 of 5 confirmed then
///   stands beside one that has the other 2 and the restarted node. The first holder learns of it at its next renewal,
///   up to a third of the lease too late. Keep the data (`appendonly yes`, `appendfsync always`), or start such a node
///   only when it was down for longer than the longest lease. Or make all clients [`strict`](ClientBuilder::strict):
///   then such a node grants nothing until that time is over.
/// * **Pauses of a process.** A holder that is stopped for longer than its lease goes on where it was: ask
///   [`Hold::is_valid`](crate::Hold::is_valid) before each step that must not happen twice.
/// * **Fencing.** The nodes have no common counter, so there is no token that grows with each hold. If what the lock
///   protects can refuse a stale writer by itself, let it do so.
///
/// # Settings, stats and shutdown
///
/// They are methods of the quorum, where other kinds leave them to the [`Client`](crate::Client) that they share. A quorum shares
/// nothing with a client: its nodes are several servers, and its [`stats`](Self::stats) count majorities.
#[derive(Clone)]
pub struct QuorumLock {
    handle: Arc<Handle>,
}

survives_a_panic!(QuorumLock);

/// What the user's clones share.
struct Handle {
    space: Arc<Space>,
    engine: Arc<Engine>,
    quorum: Arc<Quorum>,
    stores: Vec<Arc<dyn Store>>,
}

impl Handle {
    fn close(&self) {
        if !self.space.is_forked() {
            self.space.close();
            self.quorum.broom.settle(&self.quorum.nodes);
            self.stores.iter().for_each(|store| store.close());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
        if self.space.is_forked() {
            // Dropping a pool or a connection may use its locks and sockets, which belong to the parent.
            std::mem::forget((Arc::clone(&self.engine), self.stores.clone()));
        }
    }
}

/// How long a node's answer is waited for by default: long for a network that works, short for a caller.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// The default number of connections to each node that calls may use.
const CONNECTIONS: u32 = 2;

impl QuorumLock {
    /// The locks of 3 to 64 independent masters, with every setting at its default.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`](ClientBuilder#method.build-1). Nothing is connected yet.
    pub fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        Self::builder(urls).build()
    }

    /// Settings for the locks of these 3 to 64 masters; each URL is one as of
    /// [`Client::builder`](crate::Client::builder).
    pub fn builder<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> ClientBuilder<Self> {
        ClientBuilder::for_servers(urls.into_iter().map(|url| url.as_ref().to_owned()).collect())
    }

    /// Releases what this process holds through these locks, wakes waiters with [`Error::Closed`] and ends the
    /// background threads. The second time it does nothing. Dropping the last clone does the same.
    ///
    /// It waits at most 1.2 s for a node that lags, until that has executed each release. Earlier unlocks count, too: they
    /// returned when a majority had answered. A key that a node then still has stays there until its lease ends.
    pub fn shutdown(&self) {
        self.handle.close();
    }

    /// Asks every node for a sign of life, for a health check. Returns how many gave one within that time, and how many
    /// nodes there are. It waits for all of them, so one that hangs costs the whole time. Nodes are asked as by
    /// [`Client::ping`](crate::Client::ping), but the time is not exceeded: too short for connecting counts a node out.
    ///
    /// ```no_run
    /// use redlatch::QuorumLock;
    /// use std::time::Duration;
    ///
    /// let locks = QuorumLock::connect(["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"])?;
    /// let (answering, nodes) = locks.ping(Duration::from_millis(500))?;
    /// println!("{answering} of {nodes} nodes are up, which is enough");
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`] if fewer than a majority answered, and says how many did; [`Error::Refused`] if so many
    /// refuse that there never is a majority; [`Error::Closed`]. They name no resource.
    pub fn ping(&self, within: Duration) -> Result<(usize, usize)> {
        let Handle { space, quorum, .. } = &*self.handle;
        space.check_open("")?;
        let answered = quorum.ping(space.clock.now().plus(within)).map_err(|failure| failure.into_error(""))?;
        Ok((answered, self.handle.stores.len()))
    }

    /// The number of these locks as a client, a UUID, as of [`Client::id`](crate::Client::id).
    #[must_use]
    pub fn id(&self) -> String {
        self.handle.space.id.to_string()
    }

    /// What these locks did since they were made, and what they have now, without a round trip. An outage here is one
    /// of so many nodes that there is no majority.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.space.stats(self.handle.quorum.outage())
    }
}

impl ClientBuilder<QuorumLock> {
    /// How long the answer of a node is waited for, 1 ms to the response time-out. Default 50 ms, or the response
    /// time-out if that is shorter. Set it to several round trips of the farthest node that should count.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.settings.node_timeout = Some(timeout);
        self
    }

    /// Checks every setting against the others. Nothing is connected yet. Here [`pool_size`](Self::pool_size) is by
    /// node, and 2 by default.
    ///
    /// # Errors
    /// [`Error::Config`] names the setting that is wrong: also for fewer than 3 nodes, more than 64, or two at the same
    /// address. Two addresses of one server are found with the first connections: the node that is connected to later is
    /// refused, [`Error::Refused`] with the code `TWICE`, and counts as one that is down.
    pub fn build(mut self) -> Result<QuorumLock> {
        check_count(self.urls.len())?;
        self.settings.pool_size.get_or_insert(CONNECTIONS);
        // No node could say whose turn it is, so no user needs permissions for queues.
        self.settings.hand_off.queues = false;
        self.read_schemes()?;
        let node_timeout = self.settings.node_timeout;
        let config = self.settings.derive()?;
        let node_timeout = node_timeout.unwrap_or(NODE_TIMEOUT.min(config.response_timeout));
        check_timeout(node_timeout, config.response_timeout)?;
        let space = Arc::new(Space::new(config, self.listeners));
        let (common, voters) = (space.common()?, Voters::default());
        let open = |(number, url): (usize, &String)| stores::open(url, &common.voting(voters.vote(number)));
        let stores = self.urls.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        check_places(&stores)?;
        let node = |(number, store)| Node::new(number, Arc::clone(store), &space.config);
        let nodes = stores.iter().enumerate().map(node).collect();
        let broom = Arc::new(Broom { space: Arc::clone(&space), keeper: OnceCell::new(), settles_by: OnceCell::new() });
        let (clock, ears) = (Clock::Boot, Arc::default());
        let quorum = Arc::new(Quorum { nodes, node_timeout, clock, ears, broom: Arc::clone(&broom) });
        let health = Arc::<Quorum>::clone(&quorum);
        let engine = Engine::new(Arc::clone(&space), &QUORUM, Arc::<Quorum>::clone(&quorum), health);
        let keeper: Weak<dyn Keeper> = Arc::<Engine>::downgrade(&engine);
        let _ = broom.keeper.set(keeper);
        say!(info, "this is client {}", space.id);
        Ok(QuorumLock { handle: Arc::new(Handle { space, engine, quorum, stores }) })
    }
}

fn check_count(nodes: usize) -> Result<()> {
    if (3..=MOST_NODES).contains(&nodes) {
        return Ok(());
    }
    Err(Error::config(format!(
        "a quorum of {nodes} nodes: give it 3 to {MOST_NODES} independent masters, best an odd number; with fewer none \
         may fail, and a ReentrantLock on one server is as good"
    )))
}

fn check_timeout(node_timeout: Duration, response_timeout: Duration) -> Result<()> {
    if node_timeout >= Duration::from_millis(1) && node_timeout <= response_timeout {
        return Ok(());
    }
    Err(Error::config("node_timeout must be 1 ms to response_timeout"))
}

/// Refuses a server that is in the quorum twice: its two votes are no majority.
fn check_places(stores: &[Arc<dyn Store>]) -> Result<()> {
    let mut known: Vec<_> = stores.iter().flat_map(|store| store.identity()).collect();
    known.sort_unstable();
    match known.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            Err(Error::config(format!("{} is in the quorum twice: each node must be a server of its own", pair[0])))
        }
        None => Ok(()),
    }
}

impl std::fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuorumLock").field("id", &self.handle.space.id).finish_non_exhaustive()
    }
}

impl RedLock for QuorumLock {
    answered_by!(self => self.handle.engine);
}
