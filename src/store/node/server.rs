//! One server: how to connect to it and log in, and what its errors mean.

mod target;

use super::codes::{code_of, is_strange, may_have_written};
use super::greeting::{Greeting, twice};
use super::rights::{Rights, rule_in};
use super::sockets::Sockets;
use super::stream::{Stream, says_more, stray};
use super::{Broken, Failure};
use crate::base::config::{Config, SyncReplicas};
use crate::base::credentials::{Credentials, Said, Source};
use crate::base::error::{Applied, BY_CALLBACK, Cause, is_login};
use crate::base::lives::Life;
use crate::base::mutant::{self, Mutant};
use crate::base::process::Process;
use crate::base::say::say;
use crate::base::script::Dialect;
use crate::base::stats::Counters;
use crate::base::time::{Clock, Moment};
use crate::base::tls::Connector;
use crate::base::voters::Vote;
use parking_lot::Mutex;
use redis::{Cmd, ConnectionAddr, RedisError};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
pub(crate) use target::{Purpose, Target, show};

/// The code of a grant that too few replicas confirmed. A server that wants more replicas for any write uses the same code.
pub(crate) const UNCONFIRMED: &str = "NOREPLICAS";

/// A server, and how long to wait for it. Its `Debug` shows no secret.
pub(crate) struct Server {
    target: Target,
    /// Tells the servers that a client follows apart.
    number: u64,
    pub(super) clock: Clock,
    counters: Arc<Counters>,
    connect_timeout: Duration,
    response_timeout: Duration,
    strict: bool,
    vote: Option<Vote>,
    tls: Option<Connector>,
    credentials: Option<Source>,
    /// The name of its connections, and whether the user has chosen it.
    name: String,
    is_name_chosen: bool,
    /// How many replicas have to confirm a grant, and how long that may take.
    pub(super) replicas: Option<SyncReplicas>,
    sockets: Sockets,
    rights: Option<Rights>,
    login: Mutex<Login>,
    /// When a connection was last given up for a refusal that no script is known to give.
    distrusted: AtomicU64,
    /// That of the process that last greeted this client; 0: none has.
    life: AtomicU64,
}

/// The user of the last login. A callback may give another user for the next one.
#[derive(Default)]
struct Login {
    user: Option<String>,
    is_tested: bool,
    /// The rules that the user of the last self-test lacked.
    missing: Option<String>,
}

impl Login {
    fn advice(&self, rules: &str) -> String {
        let user = self.user.as_deref().unwrap_or("default");
        // redis-cli begins a quoted word at a quote, wherever the quote stands.
        let is_quoted = user.contains(['"', '\'']);
        if is_quoted { format!("ACL SETUSER {user:?} {rules}") } else { format!("ACL SETUSER {user} {rules}") }
    }
}

/// A new connection that is logged in, and what the server said of itself.
pub(crate) struct Greeted {
    pub(crate) stream: Stream,
    /// The server's clock, in microseconds.
    pub(super) time: u64,
    /// The run id of the server's process; empty if the user may not ask for it.
    pub(super) run_id: String,
    pub(super) life: Life,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.target)
    }
}

impl Server {
    pub(crate) fn new(target: Target, config: &Config, counters: Arc<Counters>) -> Self {
        let (connect_timeout, response_timeout) = (config.connect_timeout, config.response_timeout);
        let (strict, replicas, sockets) = (config.strict, config.replicas, Sockets::default());
        let (clock, tls, vote) = (Clock::Boot, config.tls.clone(), config.vote.clone());
        let (app, client) = (config.app_name.as_deref(), config.client);
        let (name, is_name_chosen) = (Process::here(app, client).connection(), app.is_some());
        let credentials = config.credentials.clone().filter(|_| target.purpose != Purpose::Sentinel);
        let tests = target.purpose.has_locks() && !config.skips_self_test;
        let rights = tests.then(|| Rights::of(config, target.purpose.dialect()));
        Self {
            target,
            number: NUMBER.fetch_add(1, SeqCst),
            clock,
            counters,
            connect_timeout,
            response_timeout,
            strict,
            vote,
            tls,
            credentials,
            name,
            is_name_chosen,
            replicas,
            sockets,
            rights,
            login: Mutex::default(),
            distrusted: AtomicU64::new(0),
            life: AtomicU64::new(0),
        }
    }

    /// That of the process that last greeted this client.
    pub(crate) fn life(&self) -> Life {
        Life(self.life.load(SeqCst))
    }

    /// Whether scripts publish by plain or by sharded pub/sub.
    pub(super) fn dialect(&self) -> Dialect {
        self.target.purpose.dialect()
    }

    fn has_locks(&self) -> bool {
        self.target.purpose.has_locks()
    }

    /// Closes each connection to the server. From now on nothing is sent to it, and no answer of it is believed.
    pub(crate) fn retire(&self) {
        if !mutant::is(Mutant::BelievesRetired) {
            self.sockets.close();
        }
    }

    /// Whether the server was the master and is not any more.
    pub(crate) fn is_retired(&self) -> bool {
        self.sockets.are_closed()
    }

    /// The error of an attempt at a retired server.
    pub(super) fn retired(&self) -> Broken {
        Broken::new(format!("{}: it is not the master any more", self.target))
    }

    /// What went wrong, with the server's address, which holds no secret.
    fn cause(&self, error: &RedisError) -> Cause {
        let (address, source) = (&self.target, self.source_of(error));
        match error.detail().filter(|_| error.code().is_some()) {
            Some(detail) => Cause::new(format!("{address}: {detail}{source}{}", self.advice_on(error))),
            None if error.is_timeout() && !says_more(error) => Cause::new(format!("{address}: no answer in time")),
            None => Cause::new(format!("{address}: {error}{source}")),
        }
    }

    /// Marks a refused login whose credentials a callback gave: such a refusal may pass.
    fn source_of(&self, error: &RedisError) -> &'static str {
        if self.credentials.is_some() && is_of_login(error) { BY_CALLBACK } else { "" }
    }

    /// For a NOPERM: the command that grants what is missing. It grants all rules that the self-test found missing, or else the one
    /// that the server names.
    pub(crate) fn advice_on(&self, error: &RedisError) -> String {
        let login = self.login.lock();
        let known = || login.missing.clone().filter(|missing| login.is_tested && !missing.is_empty());
        let named = || rule_in(&error.to_string());
        let rules = if code_of(error).as_deref() == Some("NOPERM") { known().or_else(named) } else { None };
        rules.map_or_else(String::new, |rules| format!("; {} grants what is missing", login.advice(&rules)))
    }

    /// Whether this user still needs the self-test. Notes a change of the user.
    fn is_untested(&self, user: &str) -> bool {
        let mut login = self.login.lock();
        if login.user.as_deref() != Some(user) {
            (login.user, login.is_tested) = (Some(user.to_owned()), false);
        }
        !login.is_tested
    }

    /// Keeps and logs what the self-test found missing. It is logged once, and again if a user lacks something else.
    fn note_rights(&self, greeting: &Greeting, user: &str) {
        let missing: BTreeSet<_> = greeting.missing.iter().map(String::as_str).collect();
        // Without a prefix, no narrower rule covers the names of all locks.
        let any =
            if missing.contains("~*") { " (~* is for locks of any name, since there is no key_prefix)" } else { "" };
        let missing = missing.into_iter().collect::<Vec<_>>().join(" ");
        let login = Login { user: Some(user.to_owned()), is_tested: true, missing: Some(missing.clone()) };
        let (advice, address) = (login.advice(&missing), &self.target);
        let before = std::mem::replace(&mut *self.login.lock(), login);
        if before.missing.as_ref() == Some(&missing) {
            return;
        }
        if missing == "+client|setname" {
            say!(
                warn,
                "user {user:?} may not name its connections at {address}, which changes nothing for its locks: {advice}"
            );
        } else if !missing.is_empty() {
            say!(warn, "user {user:?} may not do all that locks need at {address}{any}: {advice}");
        }
        if let Some(error) = &greeting.nameless {
            say!(warn, "{address} gives this client no name, which changes nothing for its locks: {error}");
        }
    }

    /// The failure of a grant that too few replicas confirmed. The master has applied it.
    pub(super) fn unconfirmed(&self, confirmed: i64, required: usize) -> Failure {
        let address = &self.target;
        let cause = Cause::new(format!("{address}: {confirmed} of {required} replicas confirmed it in time"));
        Failure::Refused { code: UNCONFIRMED.to_owned(), applied: Applied::Unknown, cause }
    }

    /// The same where nothing of a caller's request was sent.
    pub(crate) fn unsent(&self, error: &RedisError) -> Failure {
        self.classify(error, Life::ONLY, Moment::MAX).never_sent()
    }

    pub(super) fn classify(&self, error: &RedisError, life: Life, open_until: Moment) -> Failure {
        match code_of(error) {
            Some(code) => {
                let applied = if may_have_written(error) { Applied::Unknown } else { Applied::No };
                Failure::Refused { code, applied, cause: self.cause(error) }
            }
            None => self.unanswered(error, life, open_until),
        }
    }

    /// The failure if this error came in the place of an answer. A master that is demoted answers WAIT with an error.
    pub(super) fn unanswered(&self, error: &RedisError, life: Life, open_until: Moment) -> Failure {
        let broken = Broken { cause: self.cause(error), timed_out: error.is_timeout() };
        Failure::Unknown { open_until, life, broken }
    }

    /// Whether the connection of this refusal is given up: it may have been no answer, and that is still to come. Once a second at most, since a
    /// server may refuse each request in words that are not known here.
    pub(super) fn distrusts(&self, refusal: &Failure) -> bool {
        let Failure::Refused { code, cause, .. } = refusal else { return false };
        let (now, last) = (self.clock.now(), self.distrusted.load(SeqCst));
        is_strange(code, &cause.to_string())
            && now >= Moment(last).plus(Duration::from_secs(1))
            && self.distrusted.compare_exchange(last, now.0, SeqCst, SeqCst).is_ok()
    }

    /// A connection was made in place of one that was dropped.
    pub(crate) fn count_reconnect(&self) {
        self.counters.reconnects.add(1);
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The server's address, without user and database.
    pub(crate) fn address(&self) -> String {
        self.target.to_string()
    }

    pub(crate) fn database(&self) -> i64 {
        self.target.login.db()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Connects and logs in, by `until` and within the connect time-out. Nothing of a caller's request is sent here.
    ///
    /// The look-up of a host name is not bounded: the system offers no way.
    pub(crate) fn connect(&self, until: Moment) -> Result<Greeted, RedisError> {
        let until = until.min(self.clock.now().plus(self.connect_timeout));
        let Some(credentials) = &self.credentials else { return self.connect_as(None, until) };
        let address = self.address();
        let pause = credentials.take_turn(&address, self.clock.now()).map_err(said_before)?;
        let asked = credentials.ask(until).map_err(RedisError::from);
        let greeted = asked.and_then(|who| self.connect_as(Some(who), until));
        match &greeted {
            Err(error) if is_of_login(error) => {
                credentials.note_refused(&address, said(error), self.clock.now(), pause)
            }
            // A login without an answer leaves the pause as it is. Else short calls would have every thread log in at once.
            Err(error) if error.code().is_none() => {}
            _ => credentials.forget_refused(&address),
        }
        greeted
    }

    fn connect_as(&self, who: Option<Credentials>, until: Moment) -> Result<Greeted, RedisError> {
        let (address, tls) = (&self.target.addr, self.tls.as_ref());
        let mut stream = Stream::connect(address, tls, &self.sockets, self.response_timeout, &self.clock, until)?;
        let user = match &who {
            Some(credentials) => credentials.user.clone(),
            None => self.target.login.username().map(str::to_owned),
        };
        let user = user.unwrap_or_else(|| "default".to_owned());
        let tests = self.is_untested(&user) && self.rights.is_some();
        let commands = self.handshake(who.as_ref(), tests);
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let test = self.rights.as_ref().filter(|_| tests);
        let sent = stream.send(&packed);
        let greeting =
            sent.and_then(|()| Greeting::read(&mut stream, &commands, test, (self.strict, self.is_name_chosen)));
        let is_tcp = matches!(address, ConnectionAddr::Tcp(..));
        let greeting = greeting.map_err(|error| if is_tcp { stream.why_not_plain(error) } else { error })?;
        if greeting.tested {
            self.note_rights(&greeting, &user);
        }
        match greeting {
            // A connection that cannot stop listening is of no use for locks. The next one makes no self-test.
            Greeting { listens_on: true, .. } => self.connect_as(who, until),
            Greeting { refused: Some(error), .. } => Err(error),
            Greeting { time, run_id, replication_id, .. } => {
                self.vote.iter().try_for_each(|vote| vote.cast(&run_id, &self.address())).map_err(twice)?;
                // What came beyond the last answer would be taken for that to the first request.
                if !stream.is_quiet() {
                    return Err(stray());
                }
                let life = Life::of(&run_id, &replication_id, self.number);
                self.life.store(life.0, SeqCst);
                Ok(Greeted { stream, time, run_id, life })
            }
        }
    }

    /// The commands of the handshake: one write, one round trip.
    fn handshake(&self, who: Option<&Credentials>, tests: bool) -> Vec<Cmd> {
        let mut commands = Vec::new();
        let login = &self.target.login;
        if let Some(Credentials { user, password }) = who {
            commands.push(redis::cmd("AUTH").arg(user).arg(password).take());
        } else if let Some(password) = login.password() {
            commands.push(redis::cmd("AUTH").arg(login.username()).arg(password).take());
        }
        if login.db() != 0 {
            commands.push(redis::cmd("SELECT").arg(login.db()).take());
        }
        for (what, value) in [("LIB-NAME", "redlatch"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            commands.push(redis::cmd("CLIENT").arg("SETINFO").arg(what).arg(value).take());
        }
        commands.push(redis::cmd("CLIENT").arg("SETNAME").arg(&self.name).take());
        // The self-test goes before all that may be refused: the error of a refusal then names all that is missing.
        commands.extend(self.rights.iter().filter(|_| tests).flat_map(Rights::commands));
        if self.has_locks() {
            // Before Redis 7 it takes one section.
            commands.extend(["server", "replication"].map(|section| redis::cmd("INFO").arg(section).take()));
        }
        commands.extend(self.asked_by_purpose());
        if self.replicas.is_some() && self.has_locks() {
            // If the server has no WAIT, or the user may not call it, this fails the connection, and no lock later.
            commands.push(redis::cmd("WAIT").arg(0).arg(0).take());
        }
        commands
    }

    /// A sentinel has no TIME. It is asked and listened to on one connection, which needs protocol 3.
    fn asked_by_purpose(&self) -> Vec<Cmd> {
        match self.target.purpose {
            Purpose::Any | Purpose::Shard => vec![redis::cmd("TIME")],
            Purpose::Master => vec![redis::cmd("ROLE"), redis::cmd("TIME")],
            Purpose::Candidate => Vec::new(),
            Purpose::Sentinel => vec![redis::cmd("HELLO").arg(3).take()],
        }
    }
}

fn is_of_login(error: &RedisError) -> bool {
    error.code().is_some_and(is_login)
}

fn said(error: &RedisError) -> Said {
    [error.code(), error.detail()].map(|words| words.unwrap_or_default().to_owned()).into()
}

fn said_before((code, detail): Said) -> RedisError {
    redis::make_extension_error(code, Some(detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Settings;
    use crate::base::error::Result;

    fn server(url: &str) -> Result<Server> {
        Ok(Server::new(Target::of(url)?, &Settings::default().derive().unwrap(), Arc::default()))
    }

    #[test]
    fn urls_are_understood() {
        for url in ["redis://h", "redis://u:p@h:1/2", "unix:///s", "redis+unix:///s?db=3", "redis://[::1]:7/"] {
            assert!(server(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_written_in_a_url() {
        for (url, shown) in [
            ("redis://u:secret@[::1]:7/", "[::1]:7"),
            ("redis://[fe80::2]", "[fe80::2]:6379"),
            ("redis://127.0.0.1:7", "127.0.0.1:7"),
            ("redis://h", "h:6379"),
            ("unix:///s", "/s"),
        ] {
            let server = server(url).unwrap();
            let io = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
            let failure = server.classify(&io, Life::ONLY, Moment(5)).into_error("n").to_string();
            assert_eq!((server.address(), format!("{server:?}")), (shown.to_owned(), format!("Server({shown})")));
            assert!(failure.contains(&format!(": {shown}: no answer in time")), "{failure}");
        }
    }

    #[test]
    fn wrong_urls_say_what_is_right_and_no_secret() {
        for url in
            ["", "h", "http://u:secret@h", "redis://u:secret@h/x", "redis://u:secret@:99999", "rediss://u:secret@h"]
        {
            let text = server(url).unwrap_err().to_string();
            assert!(text.contains("redis://"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        assert!(!format!("{:?}", server("redis://u:secret@h").unwrap()).contains("secret"));
    }

    #[test]
    fn what_may_have_been_applied_is_not_called_undone() {
        let io = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let server = server("redis://h").unwrap();
        assert_eq!(server.classify(&io, Life::ONLY, Moment(5)).applied(), Applied::Unknown);
        let kind = |kind: redis::ServerErrorKind| RedisError::from((kind.into(), "An error"));
        assert_eq!(
            server.classify(&kind(redis::ServerErrorKind::ReadOnly), Life::ONLY, Moment(5)).applied(),
            Applied::No
        );
        // Of the whole script. One inside of it is worded as an ERR.
        assert_eq!(
            server.classify(&kind(redis::ServerErrorKind::NoPerm), Life::ONLY, Moment(5)).applied(),
            Applied::No
        );
        let inside = RedisError::from((
            redis::ServerErrorKind::ResponseError.into(),
            "ERR",
            "ACL failure in script: User app".into(),
        ));
        assert_eq!(server.classify(&inside, Life::ONLY, Moment(5)).applied(), Applied::Unknown);
    }

    /// The other side accepts the connection and never answers the handshake of TLS.
    #[cfg(feature = "tls")]
    #[test]
    fn a_server_that_is_retired_ends_the_handshake_that_is_under_way() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect_timeout = Duration::from_secs(20);
        let tls = Some(crate::Tls::new().connector().unwrap());
        let config = Config { tls, connect_timeout, ..Settings::default().derive().unwrap() };
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let server = Arc::new(Server::new(Target::of(&url).unwrap(), &config, Arc::default()));
        let connecting = Arc::clone(&server);
        let connecting = std::thread::spawn(move || connecting.connect(Moment(u64::MAX)).map(drop));
        let mut heard = silent.accept().unwrap().0;
        std::io::Read::read(&mut heard, &mut [0]).unwrap();
        let began = server.clock.now();
        server.retire();
        assert!(connecting.join().unwrap().is_err());
        assert!(server.clock.now().since(began) < connect_timeout / 2);
    }
}
