//! What the feature `metrics` records. docs/metrics.md says what each metric means, and when it moves.
//!
//! A client makes its handles once: those of the client when it is built, and those of a kind with the first lock object of that kind. So
//! no call allocates for them. Without the feature, `no_meters.rs` takes the place of this file.

use crate::base::error::{Error, Result};
use crate::base::say::quietly;
use crate::base::time::{Clock, Moment};
use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use metrics::{describe_counter, describe_gauge, describe_histogram};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const WAIT: &str = "redlatch_acquire_wait_seconds";
const HOLD: &str = "redlatch_hold_seconds";
const HAND_OFF: &str = "redlatch_handoff_seconds";
const HELD: &str = "redlatch_held";
const WAITERS: &str = "redlatch_waiters";
const LOST: &str = "redlatch_lost_total";
const FAILED_RENEWALS: &str = "redlatch_failed_renewals_total";
const MARGIN: &str = "redlatch_renewal_margin_seconds";
const DOUBTS: &str = "redlatch_doubtful_releases_total";
const OUTAGES: &str = "redlatch_outages_total";

/// How a call ended, in the order of `Outcome`.
const OUTCOMES: [&str; 5] = ["acquired", "busy", "timed_out", "cancelled", "error"];

#[derive(Clone, Copy)]
enum Outcome {
    Acquired,
    Busy,
    TimedOut,
    Cancelled,
    Error,
}

impl Outcome {
    fn of<T>(result: &Result<Option<T>>, tries: bool) -> Self {
        match result {
            Ok(Some(_)) => Self::Acquired,
            Ok(None) if tries => Self::Busy,
            Ok(None) => Self::TimedOut,
            Err(Error::Cancelled { .. }) => Self::Cancelled,
            Err(_) => Self::Error,
        }
    }
}

/// The causes of a loss, in the order of `LossCause`.
const CAUSES: [&str; 4] = ["expired", "overheld", "removed", "unwatched"];

/// The verdicts on releases in doubt, in the order of `Verdict`.
const VERDICTS: [&str; 3] = ["freed", "lost", "unknown"];

/// The class of a name that has none by a prefix.
const OTHER: &str = "other";

/// The classes of names, the longest prefix first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classes(Vec<(String, String)>);

impl Classes {
    /// Names with this prefix are of this class. The last word on a prefix counts.
    pub(crate) fn add(&mut self, prefix: String, class: String) {
        self.0.retain(|(known, _)| *known != prefix);
        self.0.push((prefix, class));
        self.0.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    }

    /// The place of a name's class in [`all`](Self::all).
    fn place(&self, name: &str) -> usize {
        self.0.iter().position(|(prefix, _)| name.starts_with(prefix)).unwrap_or(self.0.len())
    }

    fn all(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(_, class)| class.clone()).chain([OTHER.to_owned()])
    }
}

/// The metrics of a client.
#[derive(Debug)]
pub(crate) struct Meters {
    classes: Classes,
    held: Gauge,
    waiters: Gauge,
    hand_offs: Histogram,
    lost: [Counter; CAUSES.len()],
    failed_renewals: Counter,
    doubts: [Counter; VERDICTS.len()],
    margins: Histogram,
    outages: Counter,
    groups: OnceLock<Meter>,
}

impl Default for Meters {
    fn default() -> Self {
        Self::new(&Classes::default())
    }
}

impl Meters {
    /// The handles of the recorder that is installed now. They record nothing if there is none.
    pub(crate) fn new(classes: &Classes) -> Self {
        describe();
        Self {
            classes: classes.clone(),
            held: gauge!(HELD),
            waiters: gauge!(WAITERS),
            hand_offs: histogram!(HAND_OFF),
            lost: CAUSES.map(|cause| counter!(LOST, "cause" => cause)),
            failed_renewals: counter!(FAILED_RENEWALS),
            doubts: VERDICTS.map(|verdict| counter!(DOUBTS, "verdict" => verdict)),
            margins: histogram!(MARGIN),
            outages: counter!(OUTAGES),
            groups: OnceLock::new(),
        }
    }

    /// The metrics of a kind, by its name in messages.
    pub(crate) fn of_kind(&self, kind: &str) -> Meter {
        let kind = kind.replace('-', "").replace(' ', "_");
        let rows = self.classes.all().map(|class| Row::new(&kind, &class)).collect();
        Meter(Arc::new(OfKind { classes: self.classes.clone(), held: self.held.clone(), rows }))
    }

    /// The metrics of groups, which have no lock object that could keep them.
    pub(crate) fn of_groups(&self) -> &Meter {
        self.groups.get_or_init(|| self.of_kind("multi lock"))
    }

    pub(crate) fn waits(&self) {
        quietly(|| self.waiters.increment(1));
    }

    pub(crate) fn waits_no_more(&self) {
        quietly(|| self.waiters.decrement(1));
    }

    /// A hold was lost, for the cause of this number.
    pub(crate) fn lost(&self, cause: usize) {
        quietly(|| self.lost[cause].increment(1));
    }

    /// An attempt at a release was not answered, and this is what the release says in the end, by its number.
    pub(crate) fn doubted(&self, verdict: usize) {
        quietly(|| self.doubts[verdict].increment(1));
    }

    pub(crate) fn renewal_failed(&self) {
        quietly(|| self.failed_renewals.increment(1));
    }

    /// A renewal was confirmed, and so much of the lease was left. It `tells` nothing of a hold that was given for less than its lease, nor of
    /// one that nobody renews and that was only looked for.
    pub(crate) fn renewed(&self, left: Duration, tells: bool) {
        if tells {
            quietly(|| self.margins.record(left));
        }
    }

    pub(crate) fn outage(&self) -> OutageMeter {
        OutageMeter { outages: self.outages.clone(), is_counted: AtomicBool::new(false) }
    }

    /// A call that waited has ended. If it has the lock and was woken for that, this notes how long it took since.
    pub(crate) fn handed_over<T>(&self, won: &Result<Option<T>>, woken: &Woken) {
        if let (Ok(Some(_)), Some(at)) = (won, woken.at()) {
            quietly(|| self.hand_offs.record(Clock::Boot.now().since(at)));
        }
    }
}

fn describe() {
    let seconds = Unit::Seconds;
    describe_histogram!(WAIT, seconds, "How long calls took to acquire a lock, or to end without it.");
    describe_histogram!(
        HOLD,
        seconds,
        "How long locks were held, from the outermost acquire to the release or the loss."
    );
    describe_histogram!(HAND_OFF, seconds, "The time from the wake of a waiting call until it had the lock.");
    describe_histogram!(MARGIN, seconds, "What was left of the lease when a renewal was confirmed.");
    describe_gauge!(HELD, Unit::Count, "Locks that this process holds.");
    describe_gauge!(WAITERS, Unit::Count, "Calls of this process that found their lock busy and wait for it.");
    describe_counter!(LOST, Unit::Count, "Holds that were lost.");
    describe_counter!(FAILED_RENEWALS, Unit::Count, "Renewals that were refused or not answered; each is tried again.");
    describe_counter!(DOUBTS, Unit::Count, "Releases of which an attempt was not answered.");
    describe_counter!(OUTAGES, Unit::Count, "Outages of a server, each counted once.");
}

/// An outage counts when it has lasted so long and an attempt fails. Connections that were closed while they were idle are no outage.
const OUTAGE: Duration = Duration::from_millis(100);

/// Counts the outages of a server.
pub(crate) struct OutageMeter {
    outages: Counter,
    is_counted: AtomicBool,
}

impl OutageMeter {
    /// An attempt failed, this long after the outage had begun, or after nothing if its connection was closed. `is_new`: it is the first one.
    pub(crate) fn fails(&self, is_new: bool, lasted: Duration) {
        if is_new {
            self.is_counted.store(false, Relaxed);
        }
        if lasted >= OUTAGE && !self.is_counted.swap(true, Relaxed) {
            quietly(|| self.outages.increment(1));
        }
    }
}

/// The metrics of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Meter(Arc<OfKind>);

#[derive(Debug)]
struct OfKind {
    classes: Classes,
    held: Gauge,
    /// One for each class.
    rows: Box<[Row]>,
}

/// The metrics of a kind and a class.
#[derive(Debug)]
struct Row {
    waits: [Histogram; OUTCOMES.len()],
    holds: Histogram,
}

impl Row {
    fn new(kind: &str, class: &str) -> Self {
        let labels = || [("kind", kind.to_owned()), ("class", class.to_owned())];
        let wait = |outcome| {
            let [kind, class] = labels();
            histogram!(WAIT, &[kind, ("outcome", String::from(outcome)), class])
        };
        Self { waits: OUTCOMES.map(wait), holds: histogram!(HOLD, &labels()) }
    }
}

impl Meter {
    /// A hold begins.
    pub(crate) fn hold(&self, name: &str) -> HoldMeter {
        HoldMeter::new(&self.0, self.0.classes.place(name) as u32)
    }

    fn ended(&self, name: &str, outcome: Outcome, took: Duration) {
        quietly(|| self.0.rows[self.0.classes.place(name)].waits[outcome as usize].record(took));
    }
}

/// The time of a call that acquires.
pub(crate) struct Timer(Option<Moment>);

impl Timer {
    /// Begins now, if the call is one of its caller's own. A part of a group's call is none.
    pub(crate) fn begin(is_own: bool) -> Self {
        Self(is_own.then(|| Clock::Boot.now()))
    }

    /// The call enters a hold of its thread once more, which is no acquire.
    pub(crate) fn enters_again(&mut self) {
        self.0 = None;
    }

    /// The call has ended. `of` is its kind, or `None` if it is not to be recorded.
    pub(crate) fn end<'m, T>(
        self,
        of: impl FnOnce() -> Option<&'m Meter>,
        name: &str,
        tries: bool,
        result: &Result<Option<T>>,
    ) {
        let Some(took) = self.0.map(|began| Clock::Boot.now().since(began)) else { return };
        of().into_iter().for_each(|meter| meter.ended(name, Outcome::of(result, tries), took));
    }
}

/// A hold that is counted. It is over with the first call of [`end`](Self::end). A hold that never ends counts until it is dropped. It is two
/// words, because a program may hold many locks.
#[derive(Debug)]
pub(crate) struct HoldMeter {
    of: Arc<OfKind>,
    class: u32,
    is_over: AtomicBool,
}

impl HoldMeter {
    fn new(of: &Arc<OfKind>, class: u32) -> Self {
        quietly(|| of.held.increment(1));
        Self { of: Arc::clone(of), class, is_over: AtomicBool::new(false) }
    }

    /// A hold of another thread begins, of the same lock.
    pub(crate) fn beside(&self) -> Self {
        Self::new(&self.of, self.class)
    }

    /// The hold that began then is over.
    pub(crate) fn end(&self, began: Instant) {
        if self.ends() {
            quietly(|| self.of.rows[self.class as usize].holds.record(began.elapsed()));
        }
    }

    /// Whether it was not over.
    fn ends(&self) -> bool {
        let ends = !self.is_over.swap(true, Relaxed);
        if ends {
            quietly(|| self.of.held.decrement(1));
        }
        ends
    }
}

impl Drop for HoldMeter {
    fn drop(&mut self) {
        self.ends();
    }
}

/// When a call was woken: by the first permit since it last learned that the lock is busy. Nanoseconds since boot; 0: not yet.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// When the permit came that is there now or was there last.
    told: AtomicU64,
    woke: AtomicU64,
}

impl Woken {
    /// A permit is given. `again`: the last one is still there.
    pub(crate) fn is_told(&self, again: bool) {
        if !again {
            self.told.store(Clock::Boot.now().0, Relaxed);
        }
    }

    /// The call took the permit, if there was one.
    pub(crate) fn wakes(&self, has_permit: bool) {
        if has_permit && self.woke.load(Relaxed) == 0 {
            self.woke.store(self.told.load(Relaxed), Relaxed);
        }
    }

    /// The call learned that it was woken in vain.
    pub(crate) fn in_vain(&self) {
        self.woke.store(0, Relaxed);
    }

    fn at(&self) -> Option<Moment> {
        let woke = self.woke.load(Relaxed);
        (woke != 0).then_some(Moment(woke))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let mut classes = Classes::default();
        for (prefix, class) in [("order:", "orders"), ("order:big:", "old"), ("", "all"), ("order:big:", "big")] {
            classes.add(prefix.to_owned(), class.to_owned());
        }
        let class = |name| classes.all().nth(classes.place(name)).unwrap();
        let seen = ["order:big:1", "order:1", "stock", ""].map(class);
        assert_eq!(seen, ["big", "orders", "all", "all"]);
    }

    #[test]
    fn a_wake_counts_from_the_first_permit_after_the_lock_was_busy() {
        let woken = Woken::default();
        assert_eq!(woken.at(), None);
        woken.is_told(false);
        woken.wakes(true);
        let first = woken.at();
        assert!(first.is_some());
        woken.is_told(false);
        woken.wakes(true);
        assert_eq!(woken.at(), first, "it has not asked yet");
        woken.in_vain();
        woken.wakes(false);
        assert_eq!(woken.at(), None, "its time was over");
        woken.wakes(true);
        assert!(woken.at() > first);
    }
}
