//! A server's answers to the handshake.

use super::rights::Rights;
use super::stream::Stream;
use crate::base::error::says_full;
use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

/// What the answers say together.
#[derive(Default)]
pub(super) struct Greeting {
    /// The server's clock, in microseconds.
    pub(super) time: u64,
    /// The run id of the server's process, if it was asked for.
    pub(super) run_id: String,
    /// The replication id of a master that was a replica before; else empty.
    pub(super) replication_id: String,
    /// The connection cannot do without the run id.
    strict: bool,
    /// The caller chose the name of the connection.
    is_name_chosen: bool,
    /// The rules that the user lacks, by the self-test and by what was refused beside it.
    pub(super) missing: Vec<String>,
    /// Why the server refused the client's name, if not for want of permission.
    pub(super) nameless: Option<RedisError>,
    /// The refusal of a command that the connection needs. The answers behind it are read too: they say what else is missing.
    pub(super) refused: Option<RedisError>,
    /// Whether the self-test was made. A server that is not ready yet refuses it.
    pub(super) tested: bool,
    /// Whether a subscription of the self-test began.
    began: bool,
    /// Whether the user may not end that subscription: the connection is then of no use for locks.
    pub(super) listens_on: bool,
}

impl Greeting {
    /// Reads the answers to these commands; `test`: a self-test is among them. Only a `strict` client needs the run id, and a refused name
    /// matters only to a caller who chose it.
    ///
    /// # Errors
    /// If the connection breaks, or after a refusal that makes all other answers worthless.
    pub(super) fn read(
        stream: &mut Stream,
        commands: &[Cmd],
        test: Option<&Rights>,
        (strict, is_name_chosen): (bool, bool),
    ) -> Result<Self, RedisError> {
        let mut greeting = Self { strict, is_name_chosen, ..Self::default() };
        for command in commands {
            match stream.answer()?.extract_error() {
                Ok(answer) => greeting.hear(command, answer, test)?,
                Err(error) => greeting.hear_refusal(command, error, test)?,
            }
        }
        Ok(greeting)
    }

    fn hear(&mut self, command: &Cmd, answer: Value, test: Option<&Rights>) -> Result<(), RedisError> {
        match name_of(command) {
            b"EVAL" => {
                self.tested = true;
                self.missing.extend(test.iter().flat_map(|rights| rights.missing(command, &answer)));
            }
            b"SUBSCRIBE" | b"SSUBSCRIBE" => self.began = true,
            b"INFO" if is_of_replication(command) => {
                self.replication_id = replication_id_in(answer).unwrap_or_default()
            }
            b"INFO" if self.strict => self.run_id = run_id_in(answer)?,
            b"INFO" => self.run_id = run_id_in(answer).unwrap_or_default(),
            b"ROLE" => check_role(&answer)?,
            b"TIME" => self.time = micros_in(answer)?,
            _ => {}
        }
        Ok(())
    }

    /// A refusal of what no caller asked for does no harm. That is the self-test, and the library's name, which came with Redis 7.2
    /// and shows in CLIENT LIST alone.
    fn hear_refusal(&mut self, command: &Cmd, error: RedisError, test: Option<&Rights>) -> Result<(), RedisError> {
        if is_farewell(&error) {
            return Err(error);
        }
        let error = discreet(command, error);
        if is_of_nobody(&error) {
            return Err(nobody());
        }
        let is_wish = match name_of(command) {
            b"INFO" => !self.strict || is_of_replication(command),
            _ => is_name(command) && !self.is_name_chosen,
        };
        let lack = test.filter(|_| !is_wish).and_then(|rights| rights.lack(command, &error));
        match name_of(command) {
            _ if is_wish => {}
            b"CLIENT" if lack.is_none() && is_name(command) => self.nameless = Some(error),
            b"CLIENT" | b"ASKING" | b"EVAL" | b"EVALSHA" | b"PING" | b"SUBSCRIBE" | b"SSUBSCRIBE" => {}
            b"UNSUBSCRIBE" | b"SUNSUBSCRIBE" => self.listens_on |= self.began,
            // A connection that listens may send no other commands.
            _ if self.listens_on => {}
            // A replica refuses WAIT in these words, without a code of its own.
            b"WAIT" if error.to_string().contains("replica instances") => return Err(no_master()),
            _ if lack.is_some() => self.refused = self.refused.take().or(Some(error)),
            _ => return Err(error),
        }
        self.tested |= self.listens_on || (lack.is_some() && name_of(command) == b"EVAL");
        self.missing.extend(lack);
        Ok(())
    }
}

/// Whether the command names the connection.
fn is_name(command: &Cmd) -> bool {
    matches!(command.args_iter().nth(1), Some(Arg::Simple(b"SETNAME")))
}

/// Whether an INFO asks for the history of the data.
fn is_of_replication(command: &Cmd) -> bool {
    matches!(command.args_iter().nth(1), Some(Arg::Simple(b"replication")))
}

fn name_of(command: &Cmd) -> &[u8] {
    match command.args_iter().next() {
        Some(Arg::Simple(name)) => name,
        _ => b"",
    }
}

fn micros_in(time: Value) -> Result<u64, RedisError> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time)?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// # Errors
/// `READONLY`, as a replica answers a write, if the server says that it is not a master.
fn check_role(role: &Value) -> Result<(), RedisError> {
    if says_master(role)? { Ok(()) } else { Err(no_master()) }
}

fn no_master() -> RedisError {
    let what = "it says that it is not the master".to_owned();
    (ServerErrorKind::ReadOnly.into(), "An error was signalled by the server", what).into()
}

/// Whether the reply to ROLE is that of a master.
pub(crate) fn says_master(role: &Value) -> Result<bool, RedisError> {
    let Value::Array(said) = role else { return Err((ErrorKind::UnexpectedReturnType, "ROLE gives no role").into()) };
    Ok(matches!(said.first(), Some(Value::BulkString(name)) if name == b"master"))
}

/// The error if two nodes of a quorum are one server.
pub(super) fn twice(other: String) -> RedisError {
    let what = format!("it is the same server as {other}, which is in the quorum already");
    redis::make_extension_error("TWICE".to_owned(), Some(what))
}

/// The run id in the reply to INFO server. If it changes, the process was started anew.
fn run_id_in(info: Value) -> Result<String, RedisError> {
    let run_id = told(&redis::from_redis_value::<String>(info)?, "run_id:");
    let what = "INFO server gives no run_id, by which a strict client knows that it was started anew".to_owned();
    let missing =
        || RedisError::from((ServerErrorKind::ResponseError.into(), "An error was signalled by the server", what));
    run_id.ok_or_else(missing)
}

/// The replication id in the reply to INFO replication, if the server has a second one: that of the master before, when it was a replica. A server
/// without one takes a new id when its first replica comes, and nothing is lost by that.
fn replication_id_in(info: Value) -> Option<String> {
    let info: String = redis::from_redis_value(info).ok()?;
    let was_replica = told(&info, "master_replid2:")?.bytes().any(|digit| digit != b'0');
    told(&info, "master_replid:").filter(|_| was_replica)
}

/// What a reply to INFO says behind these words.
fn told(info: &str, words: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix(words)).map(str::to_owned)
}

/// Whether the server says that it is full, or lets nobody in from this address. It says so once, before it closes the
/// connection, and that reads like the answer to the first command.
fn is_farewell(error: &RedisError) -> bool {
    error.code() == Some("DENIED") || says_full(&error.to_string())
}

/// Hides the password: a server without AUTH, or with another name for it, repeats the words, and cuts a long password.
fn discreet(command: &Cmd, error: RedisError) -> RedisError {
    let (words, said) = (command.args_iter().collect::<Vec<_>>(), error.detail().unwrap_or_default());
    let repeats = |word: &[u8]| said.contains("with args") || said.contains(&*String::from_utf8_lossy(word));
    match words.as_slice() {
        [Arg::Simple(b"AUTH"), .., Arg::Simple(password)] if repeats(password) => {
            let what = "it refuses AUTH, in words that repeat the password: is the command renamed or disabled?";
            redis::make_extension_error(error.code().unwrap_or("ERR").to_owned(), Some(what.to_owned()))
        }
        _ => error,
    }
}

/// Whether the server refuses because nobody has logged in. It takes ten words at most then, so it may take the many words of the
/// self-test for an attack, and close the connection.
fn is_of_nobody(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH") || error.to_string().contains("unauthenticated")
}

fn nobody() -> RedisError {
    redis::make_extension_error("NOAUTH".to_owned(), Some("Authentication required.".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_master_is_one() {
        let said = |words: &str| redis::parse_redis_value(words.as_bytes()).unwrap();
        assert!(check_role(&said("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")).is_ok());
        let error = check_role(&said("*1\r\n$5\r\nslave\r\n")).unwrap_err();
        assert_eq!(error.code(), Some("READONLY"));
        assert!(check_role(&said("+OK\r\n")).is_err());
    }
}
