//! The harness's Sentinel groups: a master, its replicas and sentinels, each a process of its own.

mod apart;
mod later;
mod member;

use crate::clock::Clock;
pub use crate::member::Member;
use crate::member::killed_in_the_end;
use crate::papers::{Flaw, papers, sealed_if};
use crate::program::with_tls;
use crate::threads::{LONG, eventually, ms};
pub use apart::Cut;
use redlatch::{Client, ClientBuilder};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Child;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// What the sentinels call the group.
pub const NAME: &str = "mymaster";

/// How many processes there are, and how long one may be silent before a sentinel calls it down.
#[derive(Clone, Copy)]
pub struct Shape {
    pub(crate) nodes: usize,
    pub(crate) sentinels: usize,
    pub(crate) down_after: Duration,
    /// Whether each node has a proxy in front of it, for the other processes of the group alone.
    pub(crate) apart: bool,
    /// By how many ms the clocks of the first nodes are ahead of the machine's.
    pub(crate) ahead: [i64; 3],
    /// If clients and processes reach the processes by TLS alone: what is wrong with the certificates of all processes.
    pub(crate) sealed: Option<Flaw>,
}

impl Shape {
    /// The usual shape. Half of its time was too short on a busy machine: a node closes the sentinels' connections when it is
    /// promoted, and was replaced in its turn.
    pub const USUAL: Self =
        Self { nodes: 3, sentinels: 3, down_after: Duration::from_secs(1), apart: false, ahead: [0; 3], sealed: None };

    /// The smallest group that can replace its master, once.
    pub const SMALL: Self = Self { nodes: 2, sentinels: 1, ..Self::USUAL };

    /// No master is replaced because the machine stands still for a moment. A dead one is replaced 4 s later than usual.
    pub const CALM: Self = Self { down_after: Duration::from_secs(5), ..Self::USUAL };

    /// The master is never replaced, however busy the machine is.
    pub const STEADY: Self = Self { down_after: Duration::from_secs(600), ..Self::USUAL };

    /// The nodes can be cut off from each other and from the sentinels while clients still reach them. The clients have to map
    /// the addresses that sentinels name ([`Group::ways`]).
    pub const APART: Self = Self { apart: true, ..Self::USUAL };

    /// The same, but the nodes' clocks differ by a hundredth of a lease of 2 s, if a library can be preloaded.
    pub const ASKEW: Self = Self { ahead: [0, 10, -10], ..Self::APART };

    /// The same by TLS.
    #[must_use]
    pub const fn sealed(self, flaw: Flaw) -> Self {
        Self { sealed: Some(flaw), ..self }
    }

    pub(crate) fn is_sealed(self) -> bool {
        self.sealed.is_some()
    }

    fn majority(self) -> usize {
        self.sentinels / 2 + 1
    }
}

/// A sentinel that did not become the leader tries again after twice this.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long sentinels may take for anything. A sentinel that stood still for 2 s does nothing for 30 s: it is in tilt mode. On a
/// machine that stands still twice within a minute, 60 s were too short.
pub const PATIENCE: Duration = Duration::from_secs(180);

type Fields = HashMap<String, String>;

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A group whose first node is the master in the beginning.
///
/// Nodes and sentinels know each other from the start, as after a restart with their files. No test tells them what real ones
/// would find out later. When the group is dropped, all are killed. If the test panics, their logs are printed.
pub struct Group {
    dir: PathBuf,
    pub(crate) shape: Shape,
    pub nodes: Vec<Member>,
    pub sentinels: Vec<Member>,
}

/// The run id of a sentinel by its number: known before it starts, so that the others can be given it.
fn id(sentinel: usize) -> String {
    format!("{sentinel:040x}")
}

impl Group {
    pub fn start() -> Self {
        Self::of(Shape::USUAL)
    }

    pub fn of(shape: Shape) -> Self {
        let number = NUMBER.fetch_add(1, SeqCst);
        let dir = std::env::temp_dir().join(format!("redlatch-group-{}-{number}", std::process::id()));
        let nodes = (0..shape.nodes).map(|number| Member::new(&dir, format!("node-{number}"), &[])).collect();
        let sentinel = |number| Member::new(&dir, format!("sentinel-{number}"), &["--sentinel"]);
        let mut group = Self { nodes, sentinels: (0..shape.sentinels).map(sentinel).collect(), shape, dir };
        group.nodes.iter_mut().filter(|_| shape.apart).for_each(Member::stand_apart);
        let members = group.nodes.iter_mut().chain(&mut group.sentinels);
        members.for_each(|member| shape.sealed.into_iter().for_each(|flaw| member.seal(papers(flaw))));
        group.set_clocks();
        group.start_nodes();
        group.start_sentinels();
        group
    }

    fn set_clocks(&mut self) {
        for (node, ahead) in self.nodes.iter_mut().zip(self.shape.ahead).filter(|(_, ahead)| *ahead != 0) {
            node.clock = Clock::new(&node.dir, ahead);
        }
    }

    /// Starts the master first: a replica that finds no master tries again only after 1 s.
    fn start_nodes(&mut self) {
        let master = self.nodes[0].known_as();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.configure(&node.file_of(if number == 0 { None } else { Some(master) }));
            if number == 0 { node.restart() } else { node.spawn() }
        }
        let linked = |node: &Member| node.try_ask::<String>(&["PING"]).is_ok() && node.is_linked();
        eventually(LONG, "the replicas are linked", || self.nodes[1..].iter().all(linked));
    }

    fn start_sentinels(&mut self) {
        for number in 0..self.shape.sentinels {
            self.sentinels[number].configure(&self.file_of(number));
        }
        self.sentinels.iter_mut().for_each(Member::spawn);
        eventually(LONG, "the sentinels are ready", || {
            self.sentinels.iter().all(|sentinel| sentinel.is_ready(self.shape))
        });
    }

    /// The file that a sentinel would have written in an earlier life.
    fn file_of(&self, sentinel: usize) -> String {
        let mut text = self.first_file_of(sentinel);
        for node in &self.nodes[1..] {
            writeln!(text, "sentinel known-replica {NAME} 127.0.0.1 {}", node.known_as()).unwrap();
        }
        for (number, other) in self.sentinels.iter().enumerate().filter(|(number, _)| *number != sentinel) {
            writeln!(text, "sentinel known-sentinel {NAME} 127.0.0.1 {} {}", other.port, id(number)).unwrap();
        }
        text
    }

    /// The file that a user would have written for it.
    fn first_file_of(&self, sentinel: usize) -> String {
        let (down, failover) = (self.shape.down_after.as_millis(), FAILOVER_TIMEOUT.as_millis());
        format!(
            "sentinel myid {}\nsentinel monitor {NAME} 127.0.0.1 {} {}\n\
             sentinel down-after-milliseconds {NAME} {down}\nsentinel failover-timeout {NAME} {failover}\n",
            id(sentinel),
            self.nodes[0].known_as(),
            self.shape.majority()
        )
    }

    /// The URL by which a client finds the master.
    pub fn url(&self) -> String {
        self.url_at(&self.sentinels)
    }

    /// The same, with one sentinel alone.
    pub fn url_of(&self, sentinel: usize) -> String {
        self.url_at(&self.sentinels[sentinel..=sentinel])
    }

    fn url_at(&self, sentinels: &[Member]) -> String {
        let scheme = if self.shape.is_sealed() { "rediss+sentinel" } else { "redis+sentinel" };
        let hosts: Vec<_> = sentinels.iter().map(Member::address).collect();
        format!("{scheme}://{}/{NAME}", hosts.join(","))
    }

    pub fn builder(&self) -> ClientBuilder {
        sealed_if(self.shape.is_sealed(), Client::builder(&self.url()))
    }

    /// The node that a sentinel names; `None` if the sentinel does not answer.
    pub fn named_by(&self, sentinel: usize) -> Option<usize> {
        let port = self.sentinels[sentinel].names()?;
        self.nodes.iter().position(|node| node.known_as() == port)
    }

    /// The node that the first answering sentinel names.
    pub fn master(&self) -> usize {
        (0..self.sentinels.len()).find_map(|sentinel| self.named_by(sentinel)).expect("a sentinel answers")
    }

    /// Has a sentinel replace a master that is well, and waits until it names another one. If it knows no replica that is well
    /// now, it refuses, or gives up later, and is asked again.
    #[track_caller]
    pub fn fail_over(&self, sentinel: usize) {
        let old = self.named_by(sentinel).expect("it answers");
        self.eventually("a sentinel replaces the master", || {
            let named = self.named_by(sentinel)?;
            if named != old {
                return Some(());
            }
            let _ = self.sentinels[sentinel].try_ask::<String>(&["SENTINEL", "FAILOVER", NAME]);
            None
        });
    }

    /// Waits until a sentinel names another node than this one. Returns that node.
    #[track_caller]
    pub fn replaced(&self, node: usize) -> usize {
        self.eventually("a sentinel names another master", || {
            (0..self.sentinels.len()).filter_map(|sentinel| self.named_by(sentinel)).find(|named| *named != node)
        })
    }

    /// Waits until every sentinel names the same node, that node says that it is the master, and all other running nodes follow it.
    #[track_caller]
    pub fn settled(&self) -> usize {
        self.eventually("all agree", || {
            let master = self.named_by(0)?;
            let follows = |node: &Member| node.role() == "slave" && node.is_linked();
            let others =
                self.nodes.iter().enumerate().filter(|(number, node)| *number != master && node.child.is_some());
            let agreed = (1..self.sentinels.len()).all(|sentinel| self.named_by(sentinel) == Some(master));
            let is_so = agreed && self.nodes[master].role() == "master" && others.map(|(_, node)| node).all(follows);
            is_so.then_some(master)
        })
    }

    /// Waits until every sentinel has seen that a node became a replica; they look every 10 s. If the node is promoted again before
    /// that, a sentinel takes it for a master that was never told to give way, and demotes it.
    #[track_caller]
    pub fn seen_as_replica(&self, node: usize) {
        let seen = || self.sentinels.iter().all(|sentinel| sentinel.has_seen_replica(&self.nodes[node]));
        eventually(LONG, "all sentinels have seen it", seen);
    }

    /// Waits until the replicas of a master have all that it has now.
    #[track_caller]
    pub fn replicated(&self, master: usize) {
        let written = self.written_at(master);
        eventually(LONG, "the replicas have it", || self.has_replicated(master, written));
    }

    /// The replication offset up to which a master has written.
    pub fn written_at(&self, master: usize) -> u64 {
        self.nodes[master].offset("master_repl_offset:")
    }

    /// Whether the replicas of a master have its writes up to this offset.
    pub fn has_replicated(&self, master: usize, written: u64) -> bool {
        let others = self.nodes.iter().enumerate().filter(|(at, node)| *at != master && node.child.is_some());
        let has_all = |node: &Member| node.is_linked() && node.offset("slave_repl_offset:") >= written;
        others.map(|(_, node)| node).all(has_all)
    }

    /// Cuts the replicas off from a master, until one of them takes its place.
    pub fn sever(&self, master: usize) {
        for (_, node) in self.nodes.iter().enumerate().filter(|(number, _)| *number != master) {
            let _: String = node.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        }
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
}

/// The one group of this program, for all tests that leave it as it is. It is never dropped.
pub fn shared() -> &'static Group {
    shared_if(false)
}

/// The same, or the one by TLS.
pub(crate) fn shared_if(is_sealed: bool) -> &'static Group {
    static SHARED: [OnceLock<(Group, Child)>; 2] = [const { OnceLock::new() }; 2];
    let start = || {
        let group = Group::of(if is_sealed { Shape::STEADY.sealed(Flaw::None) } else { Shape::STEADY });
        let shell = killed_in_the_end(&group.dir, group.nodes.iter().chain(&group.sentinels).map(Member::pid));
        (group, shell)
    };
    if is_sealed {
        // Each test that uses the group, not only the one that starts it, prints on which server it showed nothing.
        with_tls();
    }
    &SHARED[usize::from(is_sealed)].get_or_init(start).0
}

impl Drop for Group {
    fn drop(&mut self) {
        let members = || self.nodes.iter().chain(&self.sentinels);
        if std::thread::panicking() {
            members().for_each(|member| eprintln!("{}, {}:\n{}", member.name, member.address(), member.log()));
        }
        self.nodes.clear();
        self.sentinels.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
