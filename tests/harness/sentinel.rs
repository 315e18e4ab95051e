//! The harness's Sentinel groups: a master, its replicas and sentinels, each a process of its own.

use crate::server::{redis_program, signal};
use crate::threads::{LONG, eventually, ms};
use redis::FromRedisValue;
use redlatch::{Client, ClientBuilder};
use std::collections::HashMap;
use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// What the sentinels call the group.
pub const NAME: &str = "mymaster";

/// How many there are, and how long a process may be silent before a sentinel calls it down.
#[derive(Clone, Copy)]
pub struct Shape {
    pub(crate) nodes: usize,
    pub(crate) sentinels: usize,
    pub(crate) down_after: Duration,
}

impl Shape {
    /// The usual one. Half of its time was too short on a busy machine: a node that has just been promoted, which closes the
    /// sentinels' connections, was replaced in its turn.
    pub const USUAL: Self = Self { nodes: 3, sentinels: 3, down_after: Duration::from_secs(1) };

    /// The smallest that can replace its master, once.
    pub const SMALL: Self = Self { nodes: 2, sentinels: 1, ..Self::USUAL };

    /// One whose master nobody replaces, however busy the machine is.
    pub const STEADY: Self = Self { down_after: Duration::from_secs(600), ..Self::USUAL };

    fn majority(self) -> usize {
        self.sentinels / 2 + 1
    }
}

/// A sentinel that did not become the leader tries again after twice this.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long sentinels may take for anything: one that got no core for 2 s does nothing for 30 s, in what it calls tilt.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an answer of one that is frozen is waited for.
const ANSWER: Duration = Duration::from_secs(1);

type Fields = HashMap<String, String>;

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A group whose first node is the master in the beginning.
///
/// Nodes and sentinels know each other from the start, as after a restart with their files, and are told nothing by hand
/// that real ones would find out later. When it is dropped all are killed; if the test panics their logs are printed.
pub struct Group {
    dir: PathBuf,
    shape: Shape,
    pub nodes: Vec<Member>,
    pub sentinels: Vec<Member>,
}

/// One process of a group, on a TCP port of 127.0.0.1.
pub struct Member {
    name: String,
    dir: PathBuf,
    port: u16,
    kind: &'static [&'static str],
    child: Option<Child>,
    admin: Mutex<Option<redis::Connection>>,
}

/// A port below those that the system gives to outgoing connections: who connects to one of those while nobody listens there
/// may be connected to itself, and a process that was killed would not get its port back.
fn port() -> u16 {
    loop {
        let number = std::process::id() as usize * 64 + NUMBER.fetch_add(1, SeqCst);
        let port = u16::try_from(10_000 + number % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Member {
    /// Its file is what it is started with, and where it writes what it becomes.
    fn new(group: &Path, name: String, kind: &'static [&'static str]) -> Self {
        let dir = group.join(&name);
        std::fs::create_dir_all(&dir).expect("a directory for a process");
        Self { name, dir, port: port(), kind, child: None, admin: Mutex::default() }
    }

    fn configure(&self, lines: &str) {
        let (port, dir) = (self.port, self.dir.display());
        let text = format!("port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile log\n{lines}");
        std::fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.dir.join("conf")
    }

    fn spawn(&mut self) {
        assert!(self.child.is_none(), "{} is running", self.name);
        let mut command = Command::new(redis_program());
        command.arg(self.file()).args(self.kind).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("redis-server or valkey-server is on the PATH"));
    }

    /// Starts it, also again after a [`kill`](Self::kill): with what it wrote into its file, and no data.
    pub fn restart(&mut self) {
        self.spawn();
        eventually(LONG, "it answers", || self.try_ask::<String>(&["PING"]).is_ok());
    }

    pub fn kill(&mut self) {
        *self.admin.lock().unwrap() = None;
        let mut child = self.child.take().expect("it is running");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// It keeps its connections and answers nothing until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        signal("-STOP", self.child.as_ref().expect("it is running").id());
    }

    pub fn thaw(&self) {
        signal("-CONT", self.child.as_ref().expect("it is running").id());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{}: {words:?}: {error}", self.name))
    }

    /// One that is frozen or gone costs a second at most. A sentinel has the connections to a node closed that it demotes:
    /// then it is asked again.
    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut admin = self.admin.lock().unwrap();
        let is_new = admin.is_none();
        match self.ask_on(&mut admin, words) {
            Err(error) if !is_new && !error.is_timeout() && error.code().is_none() => self.ask_on(&mut admin, words),
            answer => answer,
        }
    }

    fn ask_on<T: FromRedisValue>(
        &self,
        admin: &mut Option<redis::Connection>,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut connection = admin.take().map_or_else(|| connect(&self.url()), Ok)?;
        let answer = redis::cmd(words[0]).arg(&words[1..]).query(&mut connection);
        if answer.as_ref().err().is_none_or(|error| error.code().is_some()) {
            *admin = Some(connection);
        }
        answer
    }

    /// What is left of a key's time, in ms; -1: no end; -2: no key.
    pub fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key])
    }

    /// How many connections are subscribed to a channel.
    pub fn subscribers(&self, channel: &str) -> i64 {
        self.ask::<(String, i64)>(&["PUBSUB", "NUMSUB", channel]).1
    }

    /// How many clients listen to a sentinel.
    pub fn listeners(&self) -> usize {
        self.ask::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(" sub=2 ")).count()
    }

    /// The connections that are neither sentinels', nor replicas', nor to a master, nor the one that asks.
    pub fn clients(&self) -> usize {
        let list: String = self.ask(&["CLIENT", "LIST"]);
        let known = ["name=sentinel", " flags=S ", " flags=M ", " cmd=client"];
        list.lines().filter(|line| !known.iter().any(|sign| line.contains(sign))).count()
    }

    /// The connections that call themselves so.
    pub fn clients_named(&self, name: &str) -> usize {
        let sign = format!(" name={name} ");
        self.ask::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(&sign)).count()
    }

    /// How a node calls itself: `master` or `slave`.
    pub fn role(&self) -> String {
        let redis::Value::Array(role) = self.ask(&["ROLE"]) else { panic!("a role is an array") };
        redis::from_redis_value(role.into_iter().next().unwrap()).unwrap()
    }

    /// Has a node that is a replica what its master has, as far as both know?
    fn is_linked(&self) -> bool {
        self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    }

    fn offset(&self, of: &str) -> u64 {
        let info: String = self.ask(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(of)).expect("it is told").parse().unwrap()
    }

    /// Which port a sentinel names as that of the master.
    pub fn names(&self) -> Option<u16> {
        let named: (String, u16) = self.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        Some(named.1)
    }

    /// What a sentinel knows of each replica.
    fn replicas(&self) -> Vec<Fields> {
        self.try_ask(&["SENTINEL", "REPLICAS", NAME]).unwrap_or_default()
    }

    fn has_seen_replica(&self, node: &Member) -> bool {
        let is_so = |known: &Fields| known["port"] == node.port.to_string() && known["role-reported"] == "slave";
        self.replicas().iter().any(is_so)
    }

    /// Whether a sentinel knows all others and would carry a failover out.
    fn is_ready(&self, shape: Shape) -> bool {
        let usable = format!("OK {} usable", shape.sentinels);
        let replicas = self.replicas();
        let is_up = |replica: &Fields| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
        replicas.len() == shape.nodes - 1
            && replicas.iter().all(is_up)
            && self.try_ask::<String>(&["SENTINEL", "CKQUORUM", NAME]).is_ok_and(|said| said.starts_with(&usable))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn connect(url: &str) -> redis::RedisResult<redis::Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(ANSWER)?;
    connection.set_read_timeout(Some(ANSWER))?;
    Ok(connection)
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
        group.start_nodes();
        group.start_sentinels();
        group
    }

    /// A replica that finds no master tries again after a second: so the master comes first.
    fn start_nodes(&mut self) {
        let master = self.nodes[0].port;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let follows = if number == 0 { String::new() } else { format!("replicaof 127.0.0.1 {master}\n") };
            node.configure(&format!("save \"\"\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n{follows}"));
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

    /// What a sentinel would have written into its file in an earlier life.
    fn file_of(&self, sentinel: usize) -> String {
        let (down, failover) = (self.shape.down_after.as_millis(), FAILOVER_TIMEOUT.as_millis());
        let mut text = format!(
            "sentinel myid {}\nsentinel monitor {NAME} 127.0.0.1 {} {}\n\
             sentinel down-after-milliseconds {NAME} {down}\nsentinel failover-timeout {NAME} {failover}\n",
            id(sentinel),
            self.nodes[0].port,
            self.shape.majority()
        );
        for node in &self.nodes[1..] {
            writeln!(text, "sentinel known-replica {NAME} 127.0.0.1 {}", node.port).unwrap();
        }
        for (number, other) in self.sentinels.iter().enumerate().filter(|(number, _)| *number != sentinel) {
            writeln!(text, "sentinel known-sentinel {NAME} 127.0.0.1 {} {}", other.port, id(number)).unwrap();
        }
        text
    }

    /// What a client is given to find the master.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Member::address).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    /// The node that a sentinel names; nothing while it does not answer.
    pub fn named_by(&self, sentinel: usize) -> Option<usize> {
        let port = self.sentinels[sentinel].names()?;
        self.nodes.iter().position(|node| node.port == port)
    }

    /// The node that the first of the sentinels names which answers.
    pub fn master(&self) -> usize {
        (0..self.sentinels.len()).find_map(|sentinel| self.named_by(sentinel)).expect("a sentinel answers")
    }

    /// Has a sentinel replace a master that is well, and waits until it names another one. A sentinel that knows no replica which
    /// is well now refuses, or gives up later, and is asked again.
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

    /// Waits until a sentinel names another node than this one; which.
    #[track_caller]
    pub fn replaced(&self, node: usize) -> usize {
        self.eventually("a sentinel names another master", || {
            (0..self.sentinels.len()).filter_map(|sentinel| self.named_by(sentinel)).find(|named| *named != node)
        })
    }

    /// Waits until every sentinel names the same node, which says so itself, and the others that answer follow it.
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

    /// Waits until every sentinel has seen that a node became a replica; they look every 10 s. One that has not would take it, when
    /// it is promoted again, for a master that was never told to give way, and demote it.
    #[track_caller]
    pub fn seen_as_replica(&self, node: usize) {
        let seen = || self.sentinels.iter().all(|sentinel| sentinel.has_seen_replica(&self.nodes[node]));
        eventually(LONG, "all sentinels have seen it", seen);
    }

    /// Waits until the replicas of a master have all that it has now.
    #[track_caller]
    pub fn replicated(&self, master: usize) {
        let written = self.nodes[master].offset("master_repl_offset:");
        let others = self.nodes.iter().enumerate().filter(|(at, node)| *at != master && node.child.is_some());
        let has_all = |node: &Member| node.is_linked() && node.offset("slave_repl_offset:") >= written;
        others.for_each(|(_, node)| eventually(LONG, "the replica has it", || has_all(node)));
    }

    /// From now on the replicas of a master learn nothing, until one of them takes its place.
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

/// The one group of all tests of this program that leave it as it is.
///
/// It is never dropped, and its processes have to end however this one does: they are killed by a shell that reads from a
/// pipe whose other end only this process has.
pub fn shared() -> &'static Group {
    static SHARED: OnceLock<(Group, Child)> = OnceLock::new();
    let start = || {
        let group = Group::of(Shape::STEADY);
        let members = group.nodes.iter().chain(&group.sentinels);
        let pids = members.map(|member| member.child.as_ref().expect("it is running").id().to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"read -r _; kill -9 "$@"; rm -rf "$0""#]).arg(&group.dir).args(pids);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        (group, shell.expect("a shell"))
    };
    &SHARED.get_or_init(start).0
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
