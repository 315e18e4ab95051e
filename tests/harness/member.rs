//! One process of several that make up a deployment: a node, or a sentinel.

use crate::clock::{self, Clock};
use crate::papers::Papers;
use crate::program::{usual, with_tls};
use crate::proxy::Proxy;
use crate::server::{Signal, signal};
use crate::threads::{LONG, eventually};
use redis::FromRedisValue;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How long a test waits for the answer of a process that may be frozen.
const ANSWER: Duration = Duration::from_secs(1);

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// One process. It has a TCP port of 127.0.0.1, unless it [moves](Member::move_to).
pub struct Member {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) host: &'static str,
    pub(crate) port: u16,
    kind: &'static [&'static str],
    pub(crate) child: Option<Child>,
    /// The proxy through which the other processes of the group reach it, if they do not reach it directly.
    pub(crate) between: Option<Proxy>,
    /// The certificate that it shows, if its port is for TLS.
    papers: Option<Papers>,
    /// Its clock, if it is not the machine's.
    pub(crate) clock: Option<Clock>,
    admin: Mutex<Option<redis::Connection>>,
}

/// A free port below those of outgoing connections. If nobody listens on one of those, a client that connects to it may be
/// connected to itself, and a process that was killed would not get its port back.
fn port(of: usize, is_free: impl Fn(u16) -> bool) -> u16 {
    loop {
        let number = std::process::id() as usize * 64 + NUMBER.fetch_add(1, SeqCst);
        let port = u16::try_from(10_000 + number % of).unwrap();
        if is_free(port) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    port(20_000, is_free)
}

/// The same for a node of a cluster, which has two ports.
pub(crate) fn free_cluster_port() -> u16 {
    port(usize::from(BUS), |port| is_free(port) && is_free(port + BUS))
}

/// How far above its port a node of a cluster listens for the other nodes.
pub(crate) const BUS: u16 = 10_000;

impl Member {
    /// A process with a file. It starts with the settings in the file, and writes there what it becomes.
    pub(crate) fn new(group: &Path, name: String, kind: &'static [&'static str]) -> Self {
        Self::at(free_port(), group, name, kind)
    }

    /// A node of a cluster.
    pub(crate) fn in_cluster(cluster: &Path, name: String) -> Self {
        Self::at(free_cluster_port(), cluster, name, &[])
    }

    fn at(port: u16, group: &Path, name: String, kind: &'static [&'static str]) -> Self {
        let dir = group.join(&name);
        std::fs::create_dir_all(&dir).expect("a directory for a process");
        Self {
            name,
            dir,
            host: "127.0.0.1",
            port,
            kind,
            child: None,
            between: None,
            papers: None,
            clock: None,
            admin: Mutex::default(),
        }
    }

    /// From now on the other processes know it by the port of a proxy that only they use.
    pub(crate) fn stand_apart(&mut self) {
        self.between = Some(Proxy::on_tcp(self.socket()));
    }

    /// From its next start on, it uses TLS alone, on its port and to the other processes.
    pub(crate) fn seal(&mut self, papers: Papers) {
        self.papers = Some(papers);
    }

    /// From its next start on, it shows these papers to others.
    pub fn show(&mut self, papers: &Papers) {
        papers.put_into(&self.dir);
    }

    /// The settings of its port.
    fn port_settings(&self) -> String {
        let Some(papers) = &self.papers else { return format!("port {}\n", self.port) };
        let settings = papers.settings(&self.dir, self.port, true).into_iter();
        let lines = settings.map(|(name, value)| format!("{name} {value}\n")).collect::<String>();
        format!("{lines}tls-replication yes\ntls-cluster yes\n")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    pub(crate) fn configure(&self, lines: &str) {
        let (port, host, dir, socket) = (self.port_settings(), self.host, self.dir.display(), self.socket());
        let socket = socket.display();
        let text = format!("{port}bind {host}\nunixsocket {socket}\ndir {dir}\nlogfile log\n{lines}");
        std::fs::write(self.file(), text).unwrap();
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// The file of a node of a group, with the port of its master, if it has one.
    pub(crate) fn file_of(&self, master: Option<u16>) -> String {
        let follows = master.map_or_else(String::new, |master| format!("replicaof 127.0.0.1 {master}\n"));
        let known = format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {}\n", self.known_as());
        format!("save \"\"\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n{known}{follows}")
    }

    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "{} is running", self.name);
        let mut command = if self.papers.is_some() { with_tls() } else { usual() }.command();
        command.arg(self.file()).args(self.kind).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.clock.iter().for_each(|clock| clock.give_to(&mut command));
        self.child = Some(command.spawn().expect("it runs"));
    }

    /// Starts it, also again after a [`kill`](Self::kill), with the file as it left it, and without data.
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

    /// Whether it ended because one of its ports was taken. Panics if it ended for another reason.
    pub(crate) fn came_too_late(&mut self) -> bool {
        let has_ended = self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some());
        let log = if has_ended { self.log() } else { String::new() };
        assert!(!has_ended || log.contains("Address already in use"), "{} has ended:\n{log}", self.name);
        has_ended
    }

    /// It keeps its connections and answers nothing until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        signal(Signal::STOP, self.pid()).unwrap();
    }

    pub fn thaw(&self) {
        signal(Signal::CONT, self.pid()).unwrap();
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port by which the other processes of the group know it. Sentinels name this port.
    pub fn known_as(&self) -> u16 {
        self.between.as_ref().map_or(self.port, Proxy::port)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }

    /// How far its clock is ahead of the machine's, in ms.
    pub fn clock_ahead(&self) -> i64 {
        clock::ahead(self.ask(&["TIME"]))
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn url(&self) -> String {
        let scheme = if self.papers.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}/", self.address())
    }

    /// The URL at which this test asks it.
    fn own_url(&self) -> String {
        if self.papers.is_some() { format!("unix://{}", self.socket().display()) } else { self.url() }
    }

    /// Asks and waits for a late answer, too: no test uses this to find out that a process is late.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.ask_within(LONG, words).unwrap_or_else(|error| panic!("{}: {words:?}: {error}", self.name))
    }

    /// Asks, and waits for 1 s at most if the process is frozen or gone. If the connection was closed, asks again on a new one:
    /// a sentinel has the connections to a node closed that it demotes.
    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        self.ask_within(ANSWER, words)
    }

    fn ask_within<T: FromRedisValue>(&self, bound: Duration, words: &[&str]) -> redis::RedisResult<T> {
        let mut admin = self.admin.lock().unwrap();
        let is_new = admin.is_none();
        match self.ask_on(&mut admin, bound, words) {
            Err(error) if !is_new && !error.is_timeout() && error.code().is_none() => {
                self.ask_on(&mut admin, bound, words)
            }
            answer => answer,
        }
    }

    fn ask_on<T: FromRedisValue>(
        &self,
        admin: &mut Option<redis::Connection>,
        bound: Duration,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut connection = admin.take().map_or_else(|| connect(&self.own_url(), bound), Ok)?;
        connection.set_read_timeout(Some(bound))?;
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

    pub fn keys(&self) -> Vec<String> {
        self.ask(&["KEYS", "*"])
    }

    /// The channels that somebody listens to.
    pub fn channels(&self) -> Vec<String> {
        self.ask(&["PUBSUB", "CHANNELS"])
    }

    /// How many connections are subscribed to a channel.
    pub fn subscribers(&self, channel: &str) -> i64 {
        self.ask::<(String, i64)>(&["PUBSUB", "NUMSUB", channel]).1
    }

    /// The number of clients' connections. Not counted are those of sentinels, those to and from other nodes, which also move
    /// keys, the one that asks, and those without a command yet: a sentinel's has no name before.
    pub fn clients(&self) -> usize {
        self.clients_but(&[])
    }

    /// The same without those that ask it for the slots of its cluster: a client may ask any node for them. Servers before 7.0 name no subcommand.
    pub fn clients_but_scouts(&self) -> usize {
        self.clients_but(&[" cmd=cluster"])
    }

    fn clients_but(&self, others: &[&str]) -> usize {
        let list: String = self.ask(&["CLIENT", "LIST"]);
        let known = ["name=sentinel", " flags=S", " flags=M", " cmd=client", " cmd=restore", " cmd=NULL"];
        list.lines().filter(|line| !known.iter().chain(others).any(|sign| line.contains(sign))).count()
    }

    /// The number of connections with this name.
    pub fn clients_named(&self, name: &str) -> usize {
        let sign = format!(" name=redlatch:{name}@");
        self.ask::<String>(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(&sign)).count()
    }

    /// How often commands of these names were executed so far, also by scripts.
    pub fn calls(&self, names: &[&str]) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let fields = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        let fields = fields.filter(|(name, _)| names.contains(name));
        fields.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// What a node says that it is: `master` or `slave`.
    pub fn role(&self) -> String {
        let redis::Value::Array(role) = self.ask(&["ROLE"]) else { panic!("a role is an array") };
        redis::from_redis_value(role.into_iter().next().unwrap()).unwrap()
    }

    /// Whether a replica has what its master has, as far as both know.
    pub(crate) fn is_linked(&self) -> bool {
        self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    }

    pub(crate) fn offset(&self, of: &str) -> u64 {
        let info: String = self.ask(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(of)).expect("it is told").parse().unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

/// Starts a shell that kills these processes and removes their folder, however this process ends. The shell reads from a
/// pipe. Only this process has the other end, as long as it keeps the returned child.
pub(crate) fn killed_in_the_end(dir: &Path, pids: impl Iterator<Item = u32>) -> Child {
    let pids = pids.map(|pid| pid.to_string());
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"read -r _; kill -9 "$@"; rm -rf "$0""#]).arg(dir).args(pids);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    shell.expect("a shell")
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

fn connect(url: &str, bound: Duration) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(url)?.get_connection_with_timeout(bound)
}
