//! Those who see a failover from inside: one that gives up what all wait for, and one that takes free locks all the time.

use super::watch::Line;
use super::{Outcome, monotonic};
use harness::threads::{LONG, eventually};
use redlatch::{RedLock, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Who has the lock for which all wait: a thread, to which the hold belongs, that gives it up when it is told.
pub(crate) struct Holder {
    locks: ReentrantLock,
    give_up: Sender<()>,
}

impl Holder {
    pub(crate) fn start(locks: ReentrantLock, name: &'static str) -> Outcome<Self> {
        let ((give_up, wanted), (tell, told)) = (channel(), channel());
        let own = locks.clone();
        spawn(move || {
            let _ = tell.send(own.lock(name));
            let _ = wanted.recv();
            // It may be lost with the master.
            let _ = own.unlock(name);
        });
        told.recv()??;
        Ok(Self { locks, give_up })
    }

    pub(crate) fn renewals(&self) -> u64 {
        self.locks.client().stats().renewals
    }

    pub(crate) fn unlock(&self) -> Outcome<()> {
        Ok(self.give_up.send(())?)
    }

    /// Once it has been renewed more often than that, or is lost.
    pub(crate) fn unlock_when_renewed(self, renewals: u64) {
        spawn(move || {
            let stats = || self.locks.client().stats();
            eventually(LONG, "it is renewed or lost", || stats().renewals > renewals || stats().lost > 0);
            self.unlock()
        });
    }
}

/// A lock that the probe was granted, and which of the nodes knew it while it was held.
struct Grant {
    held: i64,
    on: Vec<bool>,
}

/// Takes one lock after the other, each of a name of its own that nobody else wants.
pub(crate) struct Probe {
    over: Arc<AtomicBool>,
    grants: JoinHandle<Outcome<Vec<Grant>>>,
}

impl Probe {
    /// These nodes are those that may be the master next. A cluster has all these names in one slot.
    pub(crate) fn start(locks: ReentrantLock, name: &'static str, next: &[String]) -> Self {
        let mut next: Vec<_> = next.iter().map(|url| Line::to(url)).collect();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let mut grant = move |number: usize| -> Outcome<Grant> {
            let name = format!("{{{name}}}:probe:{number}");
            locks.lock(&name)?;
            let held = monotonic();
            let exists = redis::cmd("EXISTS").arg(&name).take();
            let on = next.iter_mut().map(|node| node.ask(&exists).unwrap_or(false)).collect();
            // It may be lost with the master.
            let _ = locks.unlock(&name);
            Ok(Grant { held, on })
        };
        let probe = move || {
            let numbers = (0..).take_while(|_| !until.load(Relaxed));
            numbers.inspect(|_| sleep(Duration::from_millis(1))).map(&mut grant).collect()
        };
        Self { over, grants: spawn(probe) }
    }

    /// Ends it; the first grant since then that this one of the nodes knew.
    pub(crate) fn first(self, node: usize, since: i64) -> Outcome<Option<i64>> {
        self.over.store(true, Relaxed);
        let grants = self.grants.join().map_err(|_| "the probe panicked")??;
        let granted = grants.into_iter().filter(|grant| grant.held >= since && grant.on[node]);
        Ok(granted.map(|grant| grant.held).min())
    }
}
