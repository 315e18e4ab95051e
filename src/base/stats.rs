//! What a client counts, for a program's own metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A snapshot of what a [`Client`](crate::Client) or a [`QuorumLock`](crate::QuorumLock) did since it was made, and
/// what it has now.
///
/// ```
/// let client = redlatch::Client::connect("redis://127.0.0.1/")?;
/// let stats = client.stats();
/// assert_eq!((stats.holds, stats.acquires, stats.smallest_renewal_margin), (0, 0, None));
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks held now, by any thread of this process.
    pub holds: usize,
    /// Calls that found their lock busy and wait for it now.
    pub waiters: usize,
    /// Outermost acquires that succeeded.
    pub acquires: u64,
    /// Of these, those that took a lock over from another thread of this process, without a word to the server.
    pub passes: u64,
    /// Calls that found their lock busy, each counted once.
    pub contended: u64,
    /// Calls whose wait ended without the lock. A try waits for nothing: it only counts as contended.
    pub timed_out: u64,
    /// Calls that their [`CancelToken`](crate::CancelToken) ended.
    pub cancelled: u64,
    /// Renewals that the server confirmed, counted by lock.
    pub renewals: u64,
    /// Renewals that were not answered or refused, counted by lock; each is tried again.
    pub failed_renewals: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Connections made in place of one that was dropped, because it broke or its server had become read-only.
    pub reconnects: u64,
    /// The least time that any hold with the client's `watchdog_timeout` as its lease had left when its renewal was
    /// confirmed, since the client was made. Alert when it falls, or below a third of that: renewals are late then. `None`
    /// before the first renewal.
    pub smallest_renewal_margin: Option<Duration>,
    /// How long the server has been out of reach, as far as anyone tried; `None` when its last answer was good. A caller who
    /// waited for less than a response time-out learned nothing of the server, so his failure does not count.
    pub outage: Option<Duration>,
}

/// The running counts behind [`Stats`].
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) acquires: Counter,
    pub(crate) passes: Counter,
    pub(crate) contended: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) renewals: Counter,
    pub(crate) failed_renewals: Counter,
    pub(crate) lost: Counter,
    pub(crate) reconnects: Counter,
    waiters: AtomicUsize,
    margin: AtomicU64,
    /// A bit for each server at which renewals fail; of more than 64 some share theirs.
    failing: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: usize) {
        self.0.fetch_add(number as u64, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            acquires: Counter::default(),
            passes: Counter::default(),
            contended: Counter::default(),
            timed_out: Counter::default(),
            cancelled: Counter::default(),
            renewals: Counter::default(),
            failed_renewals: Counter::default(),
            lost: Counter::default(),
            reconnects: Counter::default(),
            waiters: AtomicUsize::new(0),
            margin: AtomicU64::new(u64::MAX),
            failing: AtomicU64::new(0),
        }
    }
}

fn bit(server: usize) -> u64 {
    1 << (server % 64)
}

impl Counters {
    /// A renewal was confirmed when its hold had so much time left.
    pub(crate) fn note_margin(&self, margin: Duration) {
        self.margin.fetch_min(u64::try_from(margin.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// A renewal failed at a server; whether it is the first since one was confirmed there.
    pub(crate) fn renewals_fail(&self, server: usize) -> bool {
        self.failing.fetch_or(bit(server), Relaxed) & bit(server) == 0
    }

    /// A renewal was confirmed at a server; whether it is the first since one failed there.
    pub(crate) fn renewals_recover(&self, server: impl FnOnce() -> usize) -> bool {
        if self.failing.load(Relaxed) == 0 {
            return false;
        }
        let bit = bit(server());
        self.failing.fetch_and(!bit, Relaxed) & bit != 0
    }

    pub(crate) fn snapshot(&self, holds: usize, outage: Option<Duration>) -> Stats {
        let margin = self.margin.load(Relaxed);
        Stats {
            holds,
            waiters: self.waiters.load(Relaxed),
            acquires: self.acquires.get(),
            passes: self.passes.get(),
            contended: self.contended.get(),
            timed_out: self.timed_out.get(),
            cancelled: self.cancelled.get(),
            renewals: self.renewals.get(),
            failed_renewals: self.failed_renewals.get(),
            lost: self.lost.get(),
            reconnects: self.reconnects.get(),
            outage,
            smallest_renewal_margin: (margin != u64::MAX).then(|| Duration::from_nanos(margin)),
        }
    }
}

/// One call that may have to wait: counted as contended once, and as a waiter from then on until it is dropped.
pub(crate) struct Contention<'c> {
    counters: &'c Counters,
    found: AtomicBool,
}

impl<'c> Contention<'c> {
    pub(crate) fn new(counters: &'c Counters) -> Self {
        Self { counters, found: AtomicBool::new(false) }
    }

    /// The call found its lock busy, and waits.
    pub(crate) fn found(&self) {
        if !self.found.swap(true, Relaxed) {
            self.counters.contended.add(1);
            self.counters.waiters.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Contention<'_> {
    fn drop(&mut self) {
        if self.found.load(Relaxed) {
            self.counters.waiters.fetch_sub(1, Relaxed);
        }
    }
}
