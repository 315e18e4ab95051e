//! Who says when that there is another master: asked every few milliseconds, each on a connection of its own.

use super::{Outcome, connect, monotonic};
use redis::{Cmd, Connection, FromRedisValue, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(3);

/// How long those who replace a master may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is made anew when it breaks: those to a node are closed when its role changes.
pub(crate) struct Line {
    url: String,
    connection: Option<Connection>,
}

impl Line {
    pub(crate) fn to(url: &str) -> Self {
        Self { url: url.to_owned(), connection: None }
    }

    /// Nothing when it does not answer.
    pub(crate) fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Option<T> {
        if self.connection.is_none() {
            self.connection = connect(&self.url).ok();
        }
        let answer = command.query(self.connection.as_mut()?);
        if answer.is_err() {
            self.connection = None;
        }
        answer.ok()
    }
}

/// What was seen, and when.
pub(crate) enum Seen {
    Named(i64, usize),
    Promoted(i64, usize),
}

/// A failover, as those tell of it who know of it.
#[derive(Clone, Copy)]
pub(crate) struct Replaced {
    /// When somebody named another master first.
    pub(crate) named: i64,
    /// When that one said first that it is the master.
    pub(crate) promoted: i64,
    pub(crate) node: usize,
}

/// Watches until there is another master. Dropping it ends it.
pub(crate) struct Watch {
    tell: Sender<Seen>,
    seen: Receiver<Seen>,
    named: Option<(i64, usize)>,
    promoted: Vec<(i64, usize)>,
    over: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let ((tell, seen), over) = (channel(), Arc::default());
        Self { tell, seen, named: None, promoted: Vec::new(), over }
    }

    /// Sees when a node says first that it is the master.
    pub(crate) fn role(&self, number: usize, url: &str) {
        self.poll(Line::to(url), move |line| {
            let role = line.ask::<Vec<Value>>(&redis::cmd("ROLE"))?.into_iter().next()?;
            (role == Value::BulkString(b"master".to_vec())).then(|| Seen::Promoted(monotonic(), number))
        });
    }

    /// Looks every few milliseconds, until it sees something.
    pub(crate) fn poll(&self, mut line: Line, mut look: impl FnMut(&mut Line) -> Option<Seen> + Send + 'static) {
        let (over, tell) = (Arc::clone(&self.over), self.tell.clone());
        spawn(move || {
            while !over.load(Relaxed) {
                if let Some(seen) = look(&mut line) {
                    let _ = tell.send(seen);
                    return;
                }
                sleep(EVERY);
            }
        });
    }

    /// Waits for news, but for no longer than this; the failover, once both is known of it.
    pub(crate) fn look(&mut self, wait: Duration) -> Option<Replaced> {
        match self.seen.recv_timeout(wait) {
            Ok(Seen::Named(when, node)) => self.named = self.named.or(Some((when, node))),
            Ok(Seen::Promoted(when, node)) => self.promoted.push((when, node)),
            Err(_) => {}
        }
        let (named, node) = self.named?;
        let (promoted, _) = *self.promoted.iter().find(|(_, promoted)| *promoted == node)?;
        Some(Replaced { named, promoted, node })
    }

    pub(crate) fn replaced(&mut self) -> Outcome<Replaced> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(replaced) = self.look(EVERY) {
                return Ok(replaced);
            }
        }
        Err("no other master is named".into())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}
