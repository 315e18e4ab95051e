//! A contender with nothing between it and the sockets: one thread, its commands packed beforehand, no library.
//!
//! The thread that takes the lock reads the unlock messages itself, so none has to be woken by another. Whatever a
//! client does beyond that costs time; whatever this takes is the machine's.

use crate::support::floor::Name;
use crate::support::turns::Turn;
use crate::support::{Outcome, monotonic, sleep_until};
use harness::lua;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

struct Bare {
    stream: UnixStream,
    buffer: [u8; 4_096],
}

impl Bare {
    fn connect(path: &str) -> Outcome<Self> {
        Ok(Self { stream: UnixStream::connect(path)?, buffer: [0; 4_096] })
    }

    /// The answer to one packed command; short enough to come in one piece.
    fn ask(&mut self, packed: &[u8]) -> Outcome<&[u8]> {
        self.stream.write_all(packed)?;
        let length = self.stream.read(&mut self.buffer)?;
        Ok(&self.buffer[..length])
    }

    /// The command that runs a script, known to the server from now on.
    fn prepare(&mut self, script: &str, arguments: &[&str]) -> Outcome<Vec<u8>> {
        let answer = self.ask(&redis::cmd("SCRIPT").arg("LOAD").arg(script).get_packed_command())?;
        let sha = answer.get(5..45).ok_or("no hash of a script")?.to_vec();
        Ok(redis::cmd("EVALSHA").arg(sha).arg(1).arg(arguments).get_packed_command())
    }

    /// Waits for news that came after the last ones were forgotten.
    fn listen(&mut self) -> Outcome<()> {
        match self.stream.read(&mut self.buffer) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn forget_news(&mut self) -> Outcome<()> {
        self.stream.set_nonblocking(true)?;
        while self.stream.read(&mut self.buffer).is_ok() {}
        Ok(self.stream.set_nonblocking(false)?)
    }
}

/// Takes and frees the lock from `start` to `end`.
pub(crate) fn contend(path: &str, name: &Name, (start, end): (i64, i64)) -> Outcome<Vec<Turn>> {
    let (mut commands, mut news, mut turns) = (Bare::connect(path)?, Bare::connect(path)?, Vec::new());
    let owner = format!("01234567-89ab-cdef-0123-456789abcdef:1:{}", std::process::id());
    // The acquire answers with it. It is the greatest whole number that Lua keeps as it is.
    let (lease, never) = ("30000", "9007199254740991");
    let taken = format!(":{never}\r\n");
    let acquire = commands.prepare(&lua::script("acquire"), &[&name.key, never, lease, &owner, "1"])?;
    let release = commands.prepare(&lua::script("release"), &[&name.key, &owner, "0", &name.channel])?;
    news.ask(&redis::cmd("SUBSCRIBE").arg(&name.channel).get_packed_command())?;
    news.stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    sleep_until(start);
    let mut asked = monotonic();
    while asked < end {
        news.forget_news()?;
        while commands.ask(&acquire)? != taken.as_bytes() {
            news.listen()?;
        }
        let held = monotonic();
        commands.ask(&release)?;
        turns.push(Turn { thread: 0, asked, held, left: held });
        asked = monotonic();
    }
    Ok(turns)
}
