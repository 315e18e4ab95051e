//! Who listens to what the servers are asked, until the round is over.

use crate::history::events::{Event, LISTENS, of_line};
use crate::history::record::{MS, now};
use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// A server that is down, or takes no connection, is asked again after so long.
const AGAIN: Duration = Duration::from_millis(5);

/// What a server answers so soon is compared with our clock: the error is less.
const SOON: u64 = 5 * MS;

/// So often a listener looks whether the round is over.
const LOOKS: Duration = Duration::from_millis(100);

/// Two threads for each server, which begin anew when a nemesis ends their connections. What happens meanwhile is missing.
pub(super) struct Witness {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    found: Arc<Mutex<Vec<Event>>>,
}

impl Witness {
    pub(super) fn new(sockets: Vec<PathBuf>) -> Self {
        let (stop, found) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Event>>>::default());
        let of_node = |(node, socket): (usize, PathBuf)| {
            [listen_to_commands as Listen, listen_to_ends].map(|listen| {
                let (stop, found, socket) = (Arc::clone(&stop), Arc::clone(&found), socket.clone());
                spawn(move || Listener { node, stop, found, last: 0 }.run(&socket, listen))
            })
        };
        let threads = sockets.into_iter().enumerate().flat_map(of_node).collect();
        Self { stop, threads, found }
    }

    /// All that they heard so far.
    pub(super) fn so_far(&self) -> Vec<Event> {
        self.found.lock().unwrap().clone()
    }

    /// All that they heard, in order.
    pub(super) fn end(mut self) -> Vec<Event> {
        self.stop.store(true, SeqCst);
        std::mem::take(&mut self.threads).into_iter().for_each(|thread| thread.join().expect("a witness panicked"));
        let mut events = std::mem::take(&mut *self.found.lock().unwrap());
        events.sort_by_key(|event| event.at);
        events
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

struct Listener {
    node: usize,
    stop: Arc<AtomicBool>,
    found: Arc<Mutex<Vec<Event>>>,
    /// When the last event was.
    last: u64,
}

type Listen = fn(&mut Listener, &mut Lines<'_>) -> Result<()>;

impl Listener {
    fn run(mut self, socket: &Path, listen: Listen) {
        while !self.stop.load(SeqCst) {
            let stop = Arc::clone(&self.stop);
            let _ = Lines::of(socket, &stop).and_then(|mut lines| listen(&mut self, &mut lines));
            sleep(AGAIN);
        }
    }

    /// Clocks are compared anew with each connection. Events of one listener stay in their order all the same.
    fn note(&mut self, at: u64, words: String) {
        self.last = at.max(self.last);
        let at = self.last;
        self.found.lock().unwrap().push(Event { at, node: self.node, words });
    }
}

/// The server's clock is compared with ours once for each connection: servers may differ. Whoever sets a clock ends this
/// connection, as [`is_of_witness`] knows it.
fn listen_to_commands(listener: &mut Listener, lines: &mut Lines<'_>) -> Result<()> {
    let ahead = compare_clocks(lines)?;
    lines.send("MONITOR\r\n")?;
    lines.next()?;
    listener.note(now(), LISTENS.to_owned());
    loop {
        if let Some((micros, words)) = of_line(&lines.next()?) {
            listener.note(micros * 1_000 - ahead, words);
        }
    }
}

/// How far the server's clock is ahead of ours. An answer that took long is none.
fn compare_clocks(lines: &mut Lines<'_>) -> Result<u64> {
    loop {
        let sent = now();
        lines.send("TIME\r\n")?;
        let [_, _, seconds, _, micros] = [lines.next()?, lines.next()?, lines.next()?, lines.next()?, lines.next()?];
        let answered = now();
        let is = |text: &str| text.parse::<u64>().map_err(std::io::Error::other);
        let server = (is(&seconds)? * 1_000_000 + is(&micros)?) * 1_000;
        if answered - sent < SOON {
            return Ok(server - answered);
        }
    }
}

/// Whether a line of CLIENT LIST is about a connection that compared clocks.
pub(super) fn is_of_witness(line: &str) -> bool {
    line.split(' ').any(|word| word.strip_prefix("flags=").is_some_and(|flags| flags.contains('O')))
}

/// MONITOR does not show what ends by itself.
fn listen_to_ends(listener: &mut Listener, lines: &mut Lines<'_>) -> Result<()> {
    lines.send(
        "CONFIG SET notify-keyspace-events Exe\r\nPSUBSCRIBE __keyevent@*__:expired __keyevent@*__:evicted\r\n",
    )?;
    loop {
        let line = lines.next()?;
        let event = line.strip_prefix("__keyevent@").and_then(|line| line.split_once("__:")).map(|(_, event)| event);
        if let Some(event) = event.filter(|_| !line.contains('*')) {
            lines.next()?;
            let key = lines.next()?;
            listener.note(now(), format!("{event} {key}"));
        }
    }
}

/// What a server says, line by line.
struct Lines<'a> {
    stream: BufReader<UnixStream>,
    stop: &'a AtomicBool,
}

impl<'a> Lines<'a> {
    fn of(socket: &Path, stop: &'a AtomicBool) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LOOKS))?;
        Ok(Self { stream: BufReader::new(stream), stop })
    }

    fn send(&mut self, words: &str) -> Result<()> {
        self.stream.get_mut().write_all(words.as_bytes())
    }

    fn next(&mut self) -> Result<String> {
        let mut line = Vec::new();
        loop {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if line.ends_with(b"\n") => return Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
            if self.stop.load(SeqCst) {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }
}
