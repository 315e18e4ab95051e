//! The harness's servers: a private `redis-server` for one test, and the check of what is left on it in the end.

use crate::clock::{self, Clock};
pub use crate::member::free_port;
use crate::member::{free_cluster_port, killed_in_the_end};
use crate::papers::Papers;
use crate::program::{Program, usual, with_tls};
pub use crate::program::{name, version};
use crate::threads::eventually;
use redis::FromRedisValue;
use redlatch::{Client, ClientBuilder, ReentrantLock};
pub use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// How long a server may take to start: 15 ms are typical, but the machine may be busy.
const START: Duration = Duration::from_secs(10);

/// How long the connections of a closed client may stay: one response time-out, and time for a busy machine.
pub const GONE: Duration = Duration::from_secs(5);

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A Redis server on a Unix socket in a directory of its own.
///
/// Declare it before its clients: they are gone when it is dropped. It then checks that they left no key, no
/// subscription and no connection. If the test panics, it prints its log instead.
pub struct Server {
    dir: PathBuf,
    port: u16,
    program: &'static Program,
    settings: Vec<String>,
    /// The commands that the server has under another name.
    hidden: &'static [&'static str],
    clock: Option<Clock>,
    child: Option<Child>,
    admin: Mutex<Option<redis::Connection>>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_on(0, &[])
    }

    /// The same, but it writes each change to disk: a [`kill`](Self::kill) loses no data.
    pub fn start_with_data() -> Self {
        Self::start_on(0, &["--appendonly", "yes"])
    }

    /// The same with a clock that can be set, where there is a C compiler: see [`set_clock`](Self::set_clock).
    pub fn start_with_data_and_clock() -> Self {
        let mut server = Self::new(0);
        server.settings = ["--appendonly", "yes"].map(str::to_owned).to_vec();
        server.clock = Clock::new(&server.dir, 0);
        server.started()
    }

    /// Puts its wall clock `ahead_ms` ahead of the machine's, or back. Returns whether its clock can be set.
    pub fn set_clock(&self, ahead_ms: i64) -> bool {
        self.clock.iter().for_each(|clock| clock.set(ahead_ms));
        self.clock.is_some()
    }

    /// How far its clock is ahead of the machine's, in ms.
    pub fn clock_ahead(&self) -> i64 {
        clock::ahead(self.ask(&["TIME"]))
    }

    /// The same with a TCP port of 127.0.0.1 beside the socket.
    pub fn start_on_tcp() -> Self {
        Self::start_on(free_port(), &[])
    }

    /// The same, but it writes each change to disk, and its replicas get its data at once.
    pub fn start_on_tcp_with_data() -> Self {
        let at_once = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        Self::start_on(free_port(), &[&["--appendonly", "yes"], &at_once[..]].concat())
    }

    /// A server without these commands for clients, as in a managed service: only the test knows their names.
    pub fn start_without(commands: &'static [&'static str]) -> Self {
        let mut server = Self::new(0);
        let rename = |command: &&str| ["--rename-command".to_owned(), (*command).to_owned(), hidden(command)];
        (server.hidden, server.settings) = (commands, commands.iter().flat_map(rename).collect());
        server.started()
    }

    /// A node of a cluster, which serves no slot yet.
    pub fn start_in_cluster() -> Self {
        Self::start_on(free_cluster_port(), &["--cluster-enabled", "yes"])
    }

    /// A server whose TCP port is for TLS. If `asks`, it wants certificates of its clients.
    pub fn start_with_tls(papers: &Papers, asks: bool) -> Self {
        Self::start_with_tls_and(papers, asks, &[])
    }

    /// The same with further settings.
    pub fn start_with_tls_and(papers: &Papers, asks: bool, more: &[&str]) -> Self {
        let mut server = Self::new(free_port());
        server.program = with_tls();
        let settings = papers.settings(&server.dir, server.port, asks).into_iter();
        let settings = settings.flat_map(|(name, value)| [format!("--{name}"), value]);
        server.settings = settings.chain(more.iter().map(|word| (*word).to_owned())).collect();
        server.started()
    }

    fn start_on(port: u16, settings: &[&str]) -> Self {
        let mut server = Self::new(port);
        server.settings = settings.iter().map(|word| (*word).to_owned()).collect();
        server.started()
    }

    fn new(port: u16) -> Self {
        let number = NUMBER.fetch_add(1, SeqCst);
        let dir = std::env::temp_dir().join(format!("redlatch-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the server");
        let (program, settings, admin) = (usual(), Vec::new(), Mutex::new(None));
        Self { dir, port, program, settings, hidden: &[], clock: None, child: None, admin }
    }

    fn started(mut self) -> Self {
        self.restart();
        self
    }

    /// Starts the process, also again after a [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.spawn(Duration::ZERO);
        eventually(START, "the server answers", || self.answers());
    }

    /// The same, but the server takes `per_key` to load each of its keys, and answers `LOADING` meanwhile.
    pub fn restart_slowly(&mut self, per_key: Duration) {
        self.spawn(per_key);
        eventually(START, "the server is loading", || !self.answers() && self.admin.lock().unwrap().is_some());
    }

    fn spawn(&mut self, per_key: Duration) {
        assert!(self.child.is_none(), "it is running");
        let mut command = self.program.command();
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--unixsocket"]).arg(self.socket());
        command.args(["--save", "", "--appendfsync", "always"]).args(&self.settings);
        command.args(["--key-load-delay", &per_key.as_micros().to_string()]);
        // The log's path names the folder: a server opens its log before it changes to its own folder.
        command.args(["--loglevel", "notice", "--logfile"]).arg(self.dir.join("log")).arg("--dir").arg(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.clock.iter().for_each(|clock| clock.give_to(&mut command));
        self.child = Some(command.spawn().expect("it runs"));
    }

    /// Gives the server this number of keys.
    pub fn fill(&self, keys: usize) {
        let fill = format!("for i = 1, {keys} do redis.call('SET', 'fill:' .. i, i) end");
        let _: () = self.ask(&["EVAL", &fill, "0"]);
    }

    /// Deletes every key.
    pub fn clear(&self) {
        let _: String = self.ask(&["FLUSHALL"]);
    }

    fn answers(&self) -> bool {
        let connection = redis::Client::open(self.url()).and_then(|client| client.get_connection()).ok();
        let mut admin = self.admin.lock().unwrap();
        *admin = connection;
        admin.as_mut().is_some_and(|admin| redis::cmd("PING").query::<String>(admin).is_ok())
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    /// Gives a user these rules and no others. Returns the user's URL. Redis 6.0 has no rules for channels.
    pub fn let_in(&self, user: &str, password: &str, rules: &str) -> String {
        let channels = |rule: &&str| rule.starts_with('&') || rule.ends_with("channels");
        let known = rules.split_whitespace().filter(|rule| self.version() >= (6, 2) || !channels(rule));
        let password_rule = format!(">{password}");
        let words = ["ACL", "SETUSER", user, "reset", "on", &password_rule];
        let _: String = self.ask(&words.into_iter().chain(known).collect::<Vec<_>>());
        self.url_as(user, password)
    }

    /// The rules that keep a user from every channel. Rules for channels came with 6.2. Before 7.0 they do not count for
    /// a script that publishes.
    pub fn no_channels(&self) -> &'static str {
        match self.version() {
            version if version < (6, 2) => "-subscribe -publish",
            version if version < (7, 0) => "resetchannels -publish",
            _ => "resetchannels",
        }
    }

    /// The server's version of Redis, or the one that a Valkey is compatible with.
    pub fn version(&self) -> (u32, u32) {
        let info: String = self.ask(&["INFO", "server"]);
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
        let mut parts = version.split('.').map(|part| part.parse().unwrap());
        (parts.next().unwrap(), parts.next().unwrap())
    }

    /// Whether the server is too old to show what a test is about. If so, the reason is printed, and comes into
    /// `docs/faults.md`.
    pub fn cannot_before(&self, version: (u32, u32), reason: &str) -> bool {
        let cannot = self.version() < version;
        if cannot {
            println!("not shown: {reason}");
        }
        cannot
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    /// The locks of a new client with default settings.
    pub fn locks(&self) -> ReentrantLock {
        ReentrantLock::connect(&self.url()).unwrap()
    }

    /// The locks of a new client with this lease of the watchdog.
    pub fn locks_watched(&self, lease: Duration) -> ReentrantLock {
        ReentrantLock::new(&self.builder().watchdog_timeout(lease).build().unwrap())
    }

    /// A connection of the test's own.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Runs a command on the administrator's connection, which is open since the start.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut admin = self.admin.lock().unwrap();
        let name = if self.hidden.contains(&words[0]) { hidden(words[0]) } else { words[0].to_owned() };
        redis::cmd(&name).arg(&words[1..]).query(admin.as_mut().expect("the server runs"))
    }

    /// What is left of a key's time, in ms; -1: no end; -2: no key.
    pub fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key])
    }

    /// The one field of a lock's hash, and its count.
    pub fn owner(&self, key: &str) -> (String, i64) {
        let fields: Vec<(String, i64)> = self.ask(&["HGETALL", key]);
        assert_eq!(fields.len(), 1, "one owner: {fields:?}");
        fields.into_iter().next().unwrap()
    }

    /// The channels with listeners. Clients that have waited listen to questions of a census for as long as they live: those are left out.
    pub fn channels_of_locks(&self) -> Vec<String> {
        let all: Vec<String> = self.ask(&["PUBSUB", "CHANNELS"]);
        all.into_iter().filter(|channel| !channel.starts_with("redlatch_census:")).collect()
    }

    /// How many connections are subscribed to a channel.
    pub fn subscribers(&self, channel: &str) -> i64 {
        self.ask::<(String, i64)>(&["PUBSUB", "NUMSUB", channel]).1
    }

    /// The commands that came over the wire during `act`, one line each, as MONITOR shows them; not those of scripts.
    pub fn commands_during(&self, act: impl FnOnce()) -> Vec<String> {
        const END: &str = "the end of what is monitored";
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(START)).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("+OK"));
        act();
        self.ask::<String>(&["ECHO", END]);
        let commands = lines.take_while(|line| !line.contains(END)).filter(|line| !line.contains(" lua] "));
        commands.map(|line| line.split_once("] ").unwrap().1.to_lowercase()).collect()
    }

    pub fn kill(&mut self) {
        *self.admin.lock().unwrap() = None;
        let mut child = self.child.take().expect("it is running");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The length of the file of changes, if the server [keeps its data](Self::start_with_data).
    pub fn written(&self) -> u64 {
        self.changes().metadata().unwrap().len()
    }

    /// Kills the server, and cuts its file of changes: only the first `kept` bytes have reached the disk.
    pub fn lose_power(&mut self, kept: u64) {
        self.kill();
        std::fs::OpenOptions::new().write(true).open(self.changes()).unwrap().set_len(kept).unwrap();
    }

    /// The file of changes: a single file up to Redis 6, one in a folder since Redis 7.
    fn changes(&self) -> PathBuf {
        let folder = self.dir.join("appendonlydir");
        let mut files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let newer = files.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
        newer.unwrap_or_else(|| self.dir.join("appendonly.aof"))
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it is running").id()
    }

    /// It keeps its connections and answers nothing until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        signal(Signal::STOP, self.child.as_ref().expect("it is running").id()).unwrap();
    }

    pub fn thaw(&self) {
        signal(Signal::CONT, self.child.as_ref().expect("it is running").id()).unwrap();
    }

    fn assert_nothing_left(&self) {
        eventually(GONE, "every client's connection is closed", || self.other_clients() == 0);
        // A mark outlives the release that left it by some ms.
        eventually(GONE, "every mark has ended", || {
            !self.leftovers().iter().any(|key| key.starts_with("redlatch_turn:"))
        });
        assert_eq!(self.leftovers(), [""; 0], "keys or subscriptions are left");
    }

    /// The keys, except for those that stay by design, and the channels that somebody listens to.
    pub fn leftovers(&self) -> Vec<String> {
        let left: [Vec<String>; 2] = [self.ask(&["KEYS", "*"]), self.ask(&["PUBSUB", "CHANNELS"])];
        left.concat().into_iter().filter(|left| !stays(left) && !self.is_counter(left)).collect()
    }

    /// Whether a key is the counter of a semaphore: a number that stays for ever.
    fn is_counter(&self, key: &str) -> bool {
        let number = || self.try_ask::<String>(&["GET", key]).is_ok_and(|text| text.parse::<i64>().is_ok());
        self.ask::<i64>(&["PTTL", key]) == -1 && number()
    }

    /// Connections other than the administrator's.
    fn other_clients(&self) -> usize {
        self.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if self.child.is_some() && !panicking {
                self.assert_nothing_left();
            }
        }));
        if self.child.is_some() {
            self.kill();
        }
        if panicking || checked.is_err() {
            eprintln!("{}", std::fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The one server of this program, for all tests that leave it as it is, with a TCP port. It is never dropped.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<(Server, Child)> = OnceLock::new();
    let start = || {
        let server = Server::start_on_tcp();
        let shell = killed_in_the_end(&server.dir, std::iter::once(server.pid()));
        (server, shell)
    };
    &SHARED.get_or_init(start).0
}

/// The starts of keys that stay by design: for ever the counter of a fenced lock, and for a while the note that a reader waited, the results
/// of operations, and the end of a latch.
const STAY: [&str; 4] = ["redisson_lock_token:", "redlatch_readers:", "redlatch_op:", "redlatch_latch:"];

/// Whether a key stays by design. So does the epoch of strict clients.
pub fn stays(key: &str) -> bool {
    STAY.iter().any(|start| key.starts_with(start)) || key.ends_with("redlatch:epoch")
}

fn hidden(command: &str) -> String {
    format!("HIDDEN-{command}")
}

/// Sends a signal to a process that this test started. A program that sends it may start late on a busy machine, and leave a process stopped.
///
/// # Errors
/// The process has ended.
pub fn signal(signal: Signal, pid: u32) -> rustix::io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process has a number");
    rustix::process::kill_process(pid, signal)
}
