//! The harness's clusters: masters with slots and their replicas, each a process of its own.

mod apart;
mod moves;
mod view;

use crate::member::{BUS, Member, killed_in_the_end};
use crate::papers::{Flaw, papers, sealed_if};
use crate::program::{Program, usual, with_tls};
use crate::proxy::Proxy;
use crate::threads::{LONG, eventually, ms};
pub use apart::Links;
pub use moves::{Keys, Move};
use redlatch::{Client, ClientBuilder};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
pub use view::{Known, SLOTS, names, names_in_slot, slot_of};

/// How many nodes there are, and how long a node may be silent before the others call it down.
#[derive(Clone, Copy)]
pub struct Shape {
    pub(crate) masters: usize,
    /// The replicas of each master; at least one.
    pub(crate) replicas: usize,
    pub(crate) node_timeout: Duration,
    /// Whether the nodes serve no slot at all while one slot has no master.
    pub(crate) full_coverage: bool,
    /// Whether each node has proxies in front of it, for the other nodes alone.
    pub(crate) apart: bool,
    /// If clients and nodes reach the nodes by TLS alone: what is wrong with the certificates of all nodes.
    pub(crate) sealed: Option<Flaw>,
}

impl Shape {
    /// The usual shape, with Redis' default for slots that have no master.
    pub const USUAL: Self = Self {
        masters: 3,
        replicas: 1,
        node_timeout: Duration::from_secs(1),
        full_coverage: true,
        apart: false,
        sealed: None,
    };

    /// Nodes serve the slots that have a master while other slots have none.
    pub const PARTIAL: Self = Self::USUAL.partial();

    /// No master is ever replaced, however busy the machine is.
    pub const STEADY: Self = Self { node_timeout: Duration::from_secs(600), ..Self::USUAL };

    /// The nodes can be cut off from each other while clients still reach them. The clients have to map the addresses that nodes
    /// name ([`Cluster::ways`]).
    pub const APART: Self = Self { apart: true, ..Self::USUAL };

    /// The same with as few nodes as can take each other's place in two shards. No master is ever replaced without a command.
    pub const APART_SMALL: Self = Self { masters: 2, apart: true, ..Self::STEADY };

    /// The same, but slots are served while other slots have no master.
    #[must_use]
    pub const fn partial(self) -> Self {
        Self { full_coverage: false, ..self }
    }

    /// The same by TLS.
    #[must_use]
    pub const fn sealed(self, flaw: Flaw) -> Self {
        Self { sealed: Some(flaw), ..self }
    }

    fn program(self) -> &'static Program {
        if self.sealed.is_some() { with_tls() } else { usual() }
    }

    fn nodes(self) -> usize {
        self.masters * (1 + self.replicas)
    }

    /// The slots that a master has in the beginning.
    fn slots(self, master: usize) -> String {
        let first = |master: usize| master * usize::from(SLOTS) / self.masters;
        format!("{}-{}", first(master), first(master + 1) - 1)
    }
}

/// How long nodes may take to agree on anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A manual failover that has not come about after 5 s never does.
pub const FAILOVER: Duration = Duration::from_secs(6);

/// A node that starts as a replica serves at once, and finds after 1 s that it has no master. If the machine stood still for that
/// second, the node serves nothing until it has been a master for a while, and waiting for it is of no use.
const SERVES: Duration = Duration::from_secs(2);

/// Where the numbers of shards begin, for their ids.
const SHARDS: usize = 1_000;

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A cluster whose first nodes are its masters in the beginning, and the next ones their replicas in the same order.
///
/// All nodes know each other from the start, as after a restart with their files. When the cluster is dropped, all are killed. If
/// the test panics, their logs are printed.
pub struct Cluster {
    dir: PathBuf,
    shape: Shape,
    pub nodes: Vec<Member>,
    /// The proxies through which other nodes reach each node's second port, if they do not reach it directly.
    buses: Vec<Proxy>,
    links: Links,
}

/// How a replica takes its master's place at a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Once the replica has all that the master has. The master waits for it.
    Orderly,
    /// By the votes of the other masters. The replica's own master is not asked.
    Force,
    /// Without asking anybody.
    Takeover,
}

impl How {
    pub const ALL: [Self; 3] = [Self::Orderly, Self::Force, Self::Takeover];

    /// The command for the replica.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Orderly => &["CLUSTER", "FAILOVER"],
            Self::Force => &["CLUSTER", "FAILOVER", "FORCE"],
            Self::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        }
    }
}

/// The id of a node by its number: known before it starts, so that the others can be given it.
fn id(node: usize) -> String {
    format!("{:040x}", node + 1)
}

/// The words behind a node's address in a file, for servers that give each shard an id. Valkey 9.1 without such an id in its file
/// ends with an assertion when it publishes to its shard soon after it took over: `nodes != NULL`.
fn shard_of(shard: usize, version: (u32, u32)) -> String {
    if version < (7, 2) { String::new() } else { format!(",,shard-id={}", id(SHARDS + shard)) }
}

fn number_of(id: &str) -> Option<usize> {
    usize::from_str_radix(id, 16).ok()?.checked_sub(1)
}

impl Cluster {
    pub fn start() -> Self {
        Self::of(Shape::USUAL)
    }

    pub fn of(shape: Shape) -> Self {
        loop {
            let mut cluster = Self::planned(shape);
            if cluster.begin() {
                return cluster;
            }
        }
    }

    fn planned(shape: Shape) -> Self {
        let number = NUMBER.fetch_add(1, SeqCst);
        let dir = std::env::temp_dir().join(format!("redlatch-cluster-{}-{number}", std::process::id()));
        let mut cluster = Self { dir, shape, nodes: Vec::new(), buses: Vec::new(), links: Links::default() };
        (0..shape.nodes()).for_each(|_| cluster.plan_node());
        cluster
    }

    /// The version of the program that its nodes run.
    fn version(&self) -> (u32, u32) {
        self.shape.program().version
    }

    fn plan_node(&mut self) {
        self.nodes.push(Member::in_cluster(&self.dir, format!("node-{}", self.nodes.len())));
        if self.shape.apart {
            self.stand_apart();
        }
        let node = self.nodes.last_mut().expect("it was planned");
        self.shape.sealed.into_iter().for_each(|flaw| node.seal(papers(flaw)));
    }

    /// Starts all processes as [`planned`](Self::planned). Returns whether no port was taken meanwhile.
    fn begin(&mut self) -> bool {
        let masters = self.shape.masters;
        (0..self.nodes.len()).for_each(|node| self.configure(node));
        let run = self.spawn(0..masters) && {
            if self.takes_over() {
                self.take_over();
            }
            self.spawn(masters..self.nodes.len())
        };
        if run {
            self.cover();
        }
        run
    }

    /// Whether the masters begin as replicas of nodes that are not there yet, and take over at once. A node that starts as a master
    /// serves nothing for 2 s. A replica serves at once, and goes on when it becomes a master.
    ///
    /// From 8.0 on they begin as masters. There, two nodes that take each other for their master search for the master of both for
    /// ever. A late master met that in 4 of 300 starts on a busy machine.
    fn takes_over(&self) -> bool {
        self.version() < (8, 0)
    }

    /// Makes the first nodes masters, and waits until each of them knows that all of them are.
    fn take_over(&self) {
        let masters = &self.nodes[..self.shape.masters];
        let end = Instant::now() + SERVES;
        for node in masters {
            while !node.serves() && Instant::now() < end {
                std::thread::sleep(ms(5));
            }
            // It may do this, and close the connection. Then it refuses to do it again. What became of it is asked below.
            let _ = node.try_ask::<String>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        }
        let with_slots = |known: Known| known.has_slots().then_some(known.node);
        let agrees = |node: &Member| node.knows().into_iter().filter_map(with_slots).eq(0..masters.len());
        eventually(LONG, "they are the masters", || masters.iter().all(agrees));
    }

    fn spawn(&mut self, which: std::ops::Range<usize>) -> bool {
        let nodes = &mut self.nodes[which];
        nodes.iter_mut().for_each(Member::spawn);
        eventually(LONG, "they answer or end", || {
            nodes.iter_mut().all(|node| node.came_too_late() || node.try_ask::<String>(&["PING"]).is_ok())
        });
        !nodes.iter_mut().any(Member::came_too_late)
    }

    /// From now on the nodes treat slots without a master as the shape says.
    fn cover(&self) {
        self.settled();
        if self.shape.full_coverage {
            let setting = ["CONFIG", "SET", "cluster-require-full-coverage", "yes"];
            self.nodes.iter().for_each(|node| drop(node.ask::<String>(&setting)));
            (0..self.nodes.len()).for_each(|node| self.set(node, true));
        }
    }

    fn configure(&self, node: usize) {
        self.set(node, false);
        self.write(node, &self.file_of(node));
    }

    /// Writes the file by which a node knows the cluster at its start.
    fn write(&self, node: usize, known: &str) {
        std::fs::write(self.nodes[node].dir.join("nodes.conf"), known).unwrap();
    }

    /// Gives a node its settings. By default a replica keeps the data that it was sent in a file, and would have it again after a
    /// restart.
    fn set(&self, node: usize, covers: bool) {
        let (timeout, covers) = (self.shape.node_timeout.as_millis(), if covers { "yes" } else { "no" });
        // Before 7.0 the barrier keeps replicas where they are, but a master that gave away its last slot becomes a replica.
        let stays = if self.version() < (7, 0) { "" } else { "cluster-allow-replica-migration no\n" };
        self.nodes[node].configure(&format!(
            "save \"\"\nrdb-del-sync-files yes\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\ncluster-enabled yes\n\
             cluster-node-timeout {timeout}\ncluster-require-full-coverage {covers}\ncluster-migration-barrier 100\n\
             cluster-announce-ip 127.0.0.1\n{stays}{}",
            self.announced(node)
        ));
    }

    /// The file that a node would have written in an earlier life. If the first nodes take over, the next ones were their masters in
    /// that life.
    fn file_of(&self, node: usize) -> String {
        let (Shape { masters, .. }, version) = (self.shape, self.version());
        let before = if node < masters && self.takes_over() { masters } else { 0 };
        let mut text = String::new();
        for other in 0..self.shape.nodes() {
            let myself = if other == node { "myself," } else { "" };
            let part = if (before..before + masters).contains(&other) {
                format!("master - 0 0 {} connected {}", other + 1, self.shape.slots(other % masters))
            } else {
                format!("slave {} 0 0 0 connected", id(before + other % masters))
            };
            let shard = shard_of(other % masters, version);
            writeln!(text, "{} {}{shard} {myself}{part}", id(other), self.address_of(other)).unwrap();
        }
        text + &format!("vars currentEpoch {} lastVoteEpoch 0\n", 2 * masters)
    }

    /// The address at which other nodes find a node.
    fn address_of(&self, node: usize) -> String {
        format!("127.0.0.1:{}@{}", self.nodes[node].known_as(), self.bus_of(node))
    }

    fn bus_of(&self, node: usize) -> u16 {
        self.buses.get(node).map_or(self.nodes[node].port() + BUS, Proxy::port)
    }

    /// Adds a master without slots. Returns its number.
    pub fn add_node(&mut self) -> usize {
        let node = self.nodes.len();
        self.plan_node();
        self.set(node, self.shape.full_coverage);
        let itself = format!("{} {} myself,master - 0 0 0 connected", id(node), self.address_of(node));
        self.write(node, &format!("{itself}\nvars currentEpoch 0 lastVoteEpoch 0\n"));
        self.nodes[node].restart();
        let [port, bus] = [self.nodes[node].known_as(), self.bus_of(node)].map(|port| port.to_string());
        for other in self.nodes[..node].iter().filter(|other| other.is_running()) {
            other.ask::<String>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        self.settled();
        node
    }

    /// The URL by which a client finds the masters.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(Member::address).collect();
        let scheme = if self.shape.sealed.is_some() { "rediss+cluster" } else { "redis+cluster" };
        format!("{scheme}://{}", hosts.join(","))
    }

    pub fn builder(&self) -> ClientBuilder {
        sealed_if(self.shape.sealed.is_some(), Client::builder(&self.url()))
    }

    /// Whether a node says that it is the master of slots now; false if it does not answer.
    pub fn says_master(&self, node: usize) -> bool {
        self.nodes[node].knows().iter().any(|known| known.node == node && known.is_master() && known.has_slots())
    }

    /// Waits until another node says that it is the master in place of this one. Returns its number.
    #[track_caller]
    pub fn replaced(&self, node: usize) -> usize {
        let masters = self.shape.masters;
        let others = || (node % masters..self.shape.nodes()).step_by(masters).filter(|other| *other != node);
        let running = || others().filter(|other| self.nodes[*other].is_running());
        self.eventually("a replica is the master", || running().find(|other| self.says_master(*other)))
    }

    /// Waits until all running nodes agree and serve their slots.
    #[track_caller]
    pub fn settled(&self) {
        self.eventually("all agree", || self.is_whole().then_some(()));
    }

    /// Has a replica take its master's place, and waits until it has. If it does not get there in time, it is told again.
    #[track_caller]
    pub fn fail_over(&self, replica: usize, how: How) {
        let mut told: Option<Instant> = None;
        self.eventually("the replica is the master", || {
            let is_new = told.is_none_or(|told| told.elapsed() > FAILOVER);
            if is_new && self.nodes[replica].try_ask::<String>(how.words()).is_ok() {
                told = Some(Instant::now());
            }
            self.says_master(replica).then_some(())
        });
    }

    #[track_caller]
    fn eventually<T>(&self, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
        let mut found = None;
        eventually(PATIENCE, what, || {
            std::thread::sleep(ms(5));
            found = find();
            found.is_some()
        });
        found.unwrap()
    }

    /// Kills all nodes.
    pub fn kill(&mut self) {
        self.nodes.iter_mut().filter(|node| node.is_running()).for_each(Member::kill);
    }

    /// Starts all nodes again as in the beginning, on their ports and without data.
    pub fn restart(&mut self) {
        assert!(self.begin(), "a port was taken");
    }

    /// The folder of the cluster's files.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }
}

/// The one cluster of this program, for all tests that leave it as it is. It is never dropped.
pub fn shared() -> &'static Cluster {
    shared_if(false)
}

/// The same, or the one by TLS.
pub(crate) fn shared_if(is_sealed: bool) -> &'static Cluster {
    static SHARED: [OnceLock<(Cluster, Child)>; 2] = [const { OnceLock::new() }; 2];
    let start = || {
        let cluster = Cluster::of(if is_sealed { Shape::STEADY.sealed(Flaw::None) } else { Shape::STEADY });
        let shell = killed_in_the_end(&cluster.dir, cluster.nodes.iter().map(Member::pid));
        (cluster, shell)
    };
    if is_sealed {
        // Each test that uses the cluster, not only the one that starts it, prints on which server it showed nothing.
        with_tls();
    }
    &SHARED[usize::from(is_sealed)].get_or_init(start).0
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.nodes.iter().for_each(|node| {
                let nodes = node.try_ask::<String>(&["CLUSTER", "NODES"]).unwrap_or_default();
                eprintln!("{}, {}:\n{nodes}\n{}", node.name, node.address(), node.log());
            });
        }
        self.nodes.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
