//! Who says when that there is another master: asked every few milliseconds, each on a connection of its own.

use crate::support::{Outcome, connect, monotonic};
use harness::sentinel::{Group, NAME};
use redis::{Cmd, Connection, FromRedisValue, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(3);

/// How long sentinels may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is made anew when it breaks: sentinels close those to a node whose role they change.
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
enum Seen {
    Named(i64, usize),
    Promoted(i64, usize),
}

/// A failover, as the sentinels and nodes of its group tell of it.
#[derive(Clone, Copy)]
pub(crate) struct Replaced {
    /// When the first sentinel named another master.
    pub(crate) named: i64,
    /// When that one said first that it is the master.
    pub(crate) promoted: i64,
    pub(crate) node: usize,
}

/// Watches a group whose first node is the master until another one is. Dropping it ends it.
pub(crate) struct Watch {
    seen: Receiver<Seen>,
    named: Option<(i64, usize)>,
    promoted: Vec<(i64, usize)>,
    over: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn start(group: &Group) -> Self {
        let (tell, seen) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let ports: Vec<_> = group.nodes.iter().map(|node| node.port()).collect();
        for sentinel in &group.sentinels {
            let (ports, line) = (ports.clone(), Line::to(&sentinel.url()));
            poll(&over, &tell, line, move |line| {
                let named = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).take();
                let (_, port): (String, u16) = line.ask(&named)?;
                let node = ports.iter().position(|known| *known == port)?;
                (node != 0).then(|| Seen::Named(monotonic(), node))
            });
        }
        for (number, node) in group.nodes.iter().enumerate().skip(1) {
            poll(&over, &tell, Line::to(&node.url()), move |line| {
                let role = line.ask::<Vec<Value>>(&redis::cmd("ROLE"))?.into_iter().next()?;
                (role == Value::BulkString(b"master".to_vec())).then(|| Seen::Promoted(monotonic(), number))
            });
        }
        Self { seen, named: None, promoted: Vec::new(), over }
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

fn poll(
    over: &Arc<AtomicBool>,
    tell: &Sender<Seen>,
    mut line: Line,
    mut look: impl FnMut(&mut Line) -> Option<Seen> + Send + 'static,
) {
    let (over, tell) = (Arc::clone(over), tell.clone());
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
