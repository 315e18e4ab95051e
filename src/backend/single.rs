//! One server: how to connect to it and log in, and what its errors mean.

use super::{Broken, Failure};
use crate::config::Config;
use crate::error::{Applied, Cause, Error, Result, says_full};
use crate::stats::Counters;
use crate::time::{Clock, Moment};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Cmd, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// Where a server is, how to log in, and how patient to be with it. Its `Debug` shows no secret.
pub(crate) struct Server {
    /// Without the login: redis-rs would wait for each of its replies for the whole time-out.
    info: redis::ConnectionInfo,
    login: RedisConnectionInfo,
    pub(super) clock: Clock,
    counters: Arc<Counters>,
    connect_timeout: Duration,
    response_timeout: Duration,
    strict: bool,
}

/// A new connection that is logged in, and what its server said of itself.
pub(crate) struct Greeted {
    pub(crate) connection: redis::Connection,
    /// Its clock, in microseconds.
    pub(super) time: u64,
    /// Of its process; empty unless the client is strict.
    pub(super) run_id: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.info.addr())
    }
}

impl Server {
    pub(crate) fn new(url: &str, config: &Config, counters: Arc<Counters>) -> Result<Self> {
        let info = parse(url)?;
        let login = info.redis_settings().clone();
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info = info.set_redis_settings(bare).set_tcp_settings(tcp_settings(config.response_timeout));
        let (connect_timeout, response_timeout) = (config.connect_timeout, config.response_timeout);
        let strict = config.strict;
        Ok(Self { info, login, clock: Clock::Boot, counters, connect_timeout, response_timeout, strict })
    }

    /// What went wrong, with the server's address, which holds no secret.
    fn cause(&self, error: &RedisError) -> Cause {
        let address = self.info.addr();
        match error.detail().filter(|_| error.code().is_some()) {
            Some(detail) => Cause::new(format!("{address}: {detail}")),
            None if error.is_timeout() => Cause::new(format!("{address}: no answer in time")),
            None => Cause::new(format!("{address}: {error}")),
        }
    }

    pub(super) fn classify(&self, error: &RedisError, open_until: Moment) -> Failure {
        let cause = self.cause(error);
        match code_of(error) {
            Some(code) => {
                let applied = if may_have_written(&code) { Applied::Unknown } else { Applied::No };
                Failure::Refused { code, applied, cause }
            }
            None => Failure::Unknown { open_until, broken: Broken { cause, timed_out: error.is_timeout() } },
        }
    }

    /// A connection was made in place of one that was dropped.
    pub(crate) fn count_reconnect(&self) {
        self.counters.reconnects.add(1);
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Where it is, whoever logs in to which database.
    pub(crate) fn address(&self) -> String {
        self.info.addr().to_string()
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Connects and logs in, by `until` and within the connect time-out. Nothing of a caller's request is sent here.
    ///
    /// The look-up of a host name is not bounded: the system offers no way.
    pub(crate) fn connect(&self, until: Moment) -> Result<Greeted, RedisError> {
        let until = until.min(self.clock.now().plus(self.connect_timeout));
        let client = redis::Client::open(self.info.clone())?;
        let mut connection = client.get_connection_with_timeout(self.left(until))?;
        connection.set_write_timeout(Some(self.left(until)))?;
        let commands = self.handshake();
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        connection.send_packed_command(&packed)?;
        let (mut time, mut run_id) = (Value::Nil, String::new());
        for command in &commands {
            connection.set_read_timeout(Some(self.left(until)))?;
            match (name_of(command), connection.recv_response()?.extract_error()) {
                // It came with Redis 7.2, older servers refuse it, and it only shows in CLIENT LIST.
                (b"CLIENT", Err(error)) if !is_farewell(&error) => {}
                (_, Err(error)) => return Err(error),
                (b"INFO", Ok(info)) => run_id = run_id_in(info)?,
                (_, Ok(answer)) => time = answer,
            }
        }
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
        connection.set_write_timeout(Some(self.response_timeout))?;
        let time = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(Greeted { connection, time, run_id })
    }

    /// One write, one round trip. Its last command is TIME.
    fn handshake(&self) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if let Some(password) = self.login.password() {
            commands.push(redis::cmd("AUTH").arg(self.login.username()).arg(password).take());
        }
        if self.login.db() != 0 {
            commands.push(redis::cmd("SELECT").arg(self.login.db()).take());
        }
        for (what, value) in [("LIB-NAME", "redlatch"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            commands.push(redis::cmd("CLIENT").arg("SETINFO").arg(what).arg(value).take());
        }
        if self.strict {
            commands.push(redis::cmd("INFO").arg("server").take());
        }
        commands.push(redis::cmd("TIME"));
        commands
    }

    /// The time left, as a time-out: never zero, which sockets do not take.
    fn left(&self, until: Moment) -> Duration {
        until.since(self.clock.now()).max(Duration::from_millis(1))
    }
}

fn name_of(command: &Cmd) -> &[u8] {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => name,
        _ => b"",
    }
}

/// The run id in the reply to INFO server: another one means that the process was started anew.
fn run_id_in(info: Value) -> Result<String, RedisError> {
    let info: String = redis::from_redis_value(info)?;
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let missing = || RedisError::from((redis::ErrorKind::UnexpectedReturnType, "INFO server gives no run_id"));
    run_id.map(str::to_owned).ok_or_else(missing)
}

/// What a server says instead of any answer before it closes a new connection: it is full, or lets nobody in from
/// there. Whatever was sent first seems to be refused by it.
fn is_farewell(error: &RedisError) -> bool {
    error.code() == Some("DENIED") || says_full(&error.to_string())
}

const RIGHT: &str = "write redis://[user:password@]host[:port][/database], with %-escapes for special characters, or \
                     unix:///path/to/socket[?db=n&user=..&pass=..]";

/// A misspelt or misplaced database number would silently be database 0. What is not known is not named: it may be
/// a part of a password with a `?` or `&` in it.
fn check_query(url: &str) -> Result<()> {
    let known: &[&str] = if url.starts_with("redis:") { &["protocol"] } else { &["db", "user", "pass", "protocol"] };
    let parsed = redis::parse_redis_url(url);
    if parsed.iter().flat_map(|url| url.query_pairs()).all(|(key, _)| known.contains(&&*key)) {
        return Ok(());
    }
    let known = known.join(", ");
    Err(Error::config(format!("the server's URL has something other than {known} after its `?`; {RIGHT}")))
}

/// The error names what is wrong, and never the URL: it may hold a password.
fn parse(url: &str) -> Result<redis::ConnectionInfo> {
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        return Err(Error::config("rediss:// needs TLS, which this version does not have: use redis:// or unix://"));
    }
    check_query(url)?;
    url.into_connection_info().map_err(|error| {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        Error::config(format!("the server's URL is wrong: {error}{detail}; {RIGHT}"))
    })
}

/// The system takes milliseconds in an `int`, and refuses a longer one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONGEST_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// A dead peer is noticed by traffic (user time-out) and without it (keepalive).
fn tcp_settings(response_timeout: Duration) -> TcpSettings {
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time(5 * second).with_interval(second);
    #[cfg(not(windows))]
    let keepalive = keepalive.with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let settings = settings.set_user_timeout(response_timeout.min(LONGEST_USER_TIMEOUT));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = response_timeout;
    settings
}

/// Errors that a script passes on from inside after it may have written, so their effect is not known.
/// Every other code is raised before anything is done, by the server or by a script's first command.
fn may_have_written(code: &str) -> bool {
    matches!(code, "NOPERM" | "ERR")
}

/// The code of an error; older servers wrap a script's error into an `ERR`, so it is looked for inside. What a script
/// may not do for its user Redis 7.0 tells without a code.
fn code_of(error: &RedisError) -> Option<String> {
    const WRAPPED: [(&str, &str); 7] = [
        ("WRONGTYPE", "WRONGTYPE"),
        ("OOM", "OOM"),
        ("READONLY", "READONLY"),
        ("MISCONF", "MISCONF"),
        ("NOREPLICAS", "NOREPLICAS"),
        ("NOPERM", "NOPERM"),
        ("The user executing the script can't", "NOPERM"),
    ];
    let code = error.code()?;
    let detail = error.detail().unwrap_or_default();
    let inner = WRAPPED.iter().find(|(sign, _)| code == "ERR" && detail.contains(sign));
    Some(inner.map_or(code, |(_, inner)| inner).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn server(url: &str) -> Result<Server> {
        Server::new(url, &Settings::default().derive().unwrap(), Arc::default())
    }

    #[test]
    fn urls_are_understood() {
        for url in ["redis://h", "redis://u:p@h:1/2", "unix:///s", "redis+unix:///s?db=3", "redis://[::1]:7/"] {
            assert!(server(url).is_ok(), "{url}");
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
    fn a_script_error_wrapped_by_an_older_server_is_found() {
        let detail = "Error running script (call to f_1): @user_script:1: -OOM command not allowed".to_owned();
        let error = RedisError::from((redis::ServerErrorKind::ResponseError.into(), "An error", detail));
        assert_eq!(code_of(&error).as_deref(), Some("OOM"));
    }

    #[test]
    fn what_may_have_been_applied_is_not_called_undone() {
        let io = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let server = server("redis://h").unwrap();
        assert_eq!(server.classify(&io, Moment(5)).applied(), Applied::Unknown);
        let kind = |kind: redis::ServerErrorKind| RedisError::from((kind.into(), "An error"));
        assert_eq!(server.classify(&kind(redis::ServerErrorKind::ReadOnly), Moment(5)).applied(), Applied::No);
        assert_eq!(server.classify(&kind(redis::ServerErrorKind::NoPerm), Moment(5)).applied(), Applied::Unknown);
    }
}
