//! One process of a group.

use super::clocks::Clock;
use super::{ANSWER, Fields, NAME, NUMBER, Shape};
use crate::proxy::Proxy;
use crate::server::{redis_program, signal};
use crate::threads::{LONG, eventually};
use redis::FromRedisValue;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;

/// It has a TCP port of 127.0.0.1, unless it [moves](Member::move_to).
pub struct Member {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) host: &'static str,
    pub(super) port: u16,
    kind: &'static [&'static str],
    pub(super) child: Option<Child>,
    /// Through which the other processes of the group reach it, if they do not do so directly.
    pub(super) between: Option<Proxy>,
    /// If it is not the machine's.
    pub(super) clock: Option<Clock>,
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
    pub(super) fn new(group: &Path, name: String, kind: &'static [&'static str]) -> Self {
        let dir = group.join(&name);
        std::fs::create_dir_all(&dir).expect("a directory for a process");
        Self {
            name,
            dir,
            host: "127.0.0.1",
            port: port(),
            kind,
            child: None,
            between: None,
            clock: None,
            admin: Mutex::default(),
        }
    }

    /// From now on the other processes know it by a port of a proxy, which is theirs alone.
    pub(super) fn stand_apart(&mut self) {
        self.between = Some(Proxy::on_tcp(self.socket()));
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    pub(super) fn configure(&self, lines: &str) {
        let (port, host, dir, socket) = (self.port, self.host, self.dir.display(), self.socket().display().to_string());
        let text = format!("port {port}\nbind {host}\nunixsocket {socket}\ndir {dir}\nlogfile log\n{lines}");
        std::fs::write(self.file(), text).unwrap();
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("conf")
    }

    /// What a node is told before its start: the port of its master, if it has one.
    pub(super) fn file_of(&self, master: Option<u16>) -> String {
        let follows = master.map_or_else(String::new, |master| format!("replicaof 127.0.0.1 {master}\n"));
        let known = format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {}\n", self.known_as());
        format!("save \"\"\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 1\n{known}{follows}")
    }

    pub(super) fn spawn(&mut self) {
        assert!(self.child.is_none(), "{} is running", self.name);
        let mut command = Command::new(redis_program());
        command.arg(self.file()).args(self.kind).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.clock.iter().for_each(|clock| clock.put_ahead(&mut command));
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
        signal("-STOP", self.pid());
    }

    pub fn thaw(&self) {
        signal("-CONT", self.pid());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port by which the other processes of the group know it, and so what sentinels name.
    pub fn known_as(&self) -> u16 {
        self.between.as_ref().map_or(self.port, Proxy::port)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
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

    /// The connections that are neither sentinels', nor to or from another node, nor the one that asks.
    pub fn clients(&self) -> usize {
        let list: String = self.ask(&["CLIENT", "LIST"]);
        let known = ["name=sentinel", " flags=S", " flags=M", " cmd=client"];
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
    pub(super) fn is_linked(&self) -> bool {
        self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    }

    pub(super) fn offset(&self, of: &str) -> u64 {
        let info: String = self.ask(&["INFO", "replication"]);
        info.lines().find_map(|line| line.strip_prefix(of)).expect("it is told").parse().unwrap()
    }

    /// Which port a sentinel names as that of the master.
    pub fn names(&self) -> Option<u16> {
        let named: (String, u16) = self.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        Some(named.1)
    }

    /// What a sentinel knows of each replica.
    pub(super) fn replicas(&self) -> Vec<Fields> {
        self.try_ask(&["SENTINEL", "REPLICAS", NAME]).unwrap_or_default()
    }

    pub(super) fn has_seen_replica(&self, node: &Member) -> bool {
        let is_so = |known: &Fields| known["port"] == node.known_as().to_string() && known["role-reported"] == "slave";
        self.replicas().iter().any(is_so)
    }

    /// Whether a sentinel knows all others and would carry a failover out.
    pub(super) fn is_ready(&self, shape: Shape) -> bool {
        let usable = format!("OK {} usable", shape.sentinels);
        let replicas = self.replicas();
        let is_up = |replica: &Fields| replica["flags"] == "slave" && replica["master-link-status"] == "ok";
        replicas.len() == shape.nodes - 1
            && replicas.iter().all(is_up)
            && self.try_ask::<String>(&["SENTINEL", "CKQUORUM", NAME]).is_ok_and(|said| said.starts_with(&usable))
    }

    pub fn log(&self) -> String {
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
