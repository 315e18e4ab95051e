//! What a client counts, for a program's own metrics.

use crate::base::meters::{Classes, Meters};
use crate::base::sync::Mutex;
use crate::base::time::Moment;
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
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks held now, by any thread of this process.
    pub holds: usize,
    /// Calls that found their lock busy and wait for it now.
    pub waiters: usize,
    /// Outermost acquires that succeeded.
    pub acquires: u64,
    /// Of these: acquires that took a lock over from another thread of this process, without a command to the server.
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
    /// Holds that were lost, also those of which that was found after their release.
    pub lost: u64,
    /// Connections made in place of one that was dropped, because it broke or its server had become read-only.
    pub reconnects: u64,
    /// The smallest share of its lease, 0 to 1, that a hold had left when its renewal was confirmed, in this minute and the one before. A
    /// healthy value is about 2/3. Alert below 1/3: renewals are late then, because the server, the network or this machine is overloaded.
    /// `None` if nothing was renewed in that time.
    pub smallest_renewal_margin: Option<f64>,
    /// How long the server has been out of reach, as far as calls tried; `None` if its last answer was good. The failure of a call that
    /// waited for less than a response time-out does not count: it says nothing about the server.
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
    pub(crate) meters: Meters,
    waiters: AtomicUsize,
    margins: Mutex<Margins>,
    /// One bit for each server at which renewals fail: server modulo 64.
    failing: AtomicU64,
}

/// The smallest margin of this minute and the one before. A minimum for ever would show one bad moment until the program ends.
#[derive(Debug, Default)]
struct Margins {
    minute: u64,
    this: Option<f64>,
    before: Option<f64>,
}

impl Margins {
    fn roll(&mut self, now: Moment) {
        let minute = now.0 / 60_000_000_000;
        if minute != self.minute {
            self.before = self.this.take().filter(|_| minute == self.minute + 1);
            self.minute = minute;
        }
    }

    fn least(&mut self, now: Moment) -> Option<f64> {
        self.roll(now);
        self.this.into_iter().chain(self.before).reduce(f64::min)
    }
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
        Self::new(&Classes::default())
    }
}

impl Counters {
    pub(crate) fn new(classes: &Classes) -> Self {
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
            meters: Meters::new(classes),
            waiters: AtomicUsize::new(0),
            margins: Mutex::default(),
            failing: AtomicU64::new(0),
        }
    }
}

fn bit(server: usize) -> u64 {
    1 << (server % 64)
}

impl Counters {
    /// A renewal was confirmed when its hold had this share of its lease left.
    pub(crate) fn note_margin(&self, share: f64, now: Moment) {
        let mut margins = self.margins.lock();
        margins.roll(now);
        margins.this = Some(margins.this.map_or(share, |least| least.min(share)));
    }

    /// A renewal failed at a server. Returns whether it is the first since a renewal was confirmed there.
    pub(crate) fn renewals_fail(&self, server: usize) -> bool {
        self.failing.fetch_or(bit(server), Relaxed) & bit(server) == 0
    }

    /// A renewal was confirmed at a server. Returns whether it is the first since a renewal failed there.
    pub(crate) fn renewals_recover(&self, server: impl FnOnce() -> usize) -> bool {
        if self.failing.load(Relaxed) == 0 {
            return false;
        }
        let bit = bit(server());
        self.failing.fetch_and(!bit, Relaxed) & bit != 0
    }

    pub(crate) fn snapshot(&self, holds: usize, outage: Option<Duration>, now: Moment) -> Stats {
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
            smallest_renewal_margin: self.margins.lock().least(now),
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

    /// The call found its lock busy, and waits. Returns whether it is the first time.
    pub(crate) fn found(&self) -> bool {
        let is_first = !self.found.swap(true, Relaxed);
        if is_first {
            self.counters.contended.add(1);
            self.counters.waiters.fetch_add(1, Relaxed);
            self.counters.meters.waits();
        }
        is_first
    }
}

impl Drop for Contention<'_> {
    fn drop(&mut self) {
        if self.found.load(Relaxed) {
            self.counters.waiters.fetch_sub(1, Relaxed);
            self.counters.meters.waits_no_more();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_margin_is_that_of_this_minute_and_the_one_before() {
        let (counters, at) = (Counters::default(), |seconds: u64| Moment(seconds * 1_000_000_000));
        let least = |seconds| counters.snapshot(0, None, at(seconds)).smallest_renewal_margin;
        assert_eq!(least(0), None);
        counters.note_margin(0.2, at(59));
        counters.note_margin(0.7, at(61));
        assert_eq!([least(62), least(119), least(120), least(180)], [Some(0.2), Some(0.2), Some(0.7), None]);
    }
}
