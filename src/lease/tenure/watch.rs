//! What the watchdog is to do for a tenure: whether it renews, for how long, and for which hold.

use super::{LossCause, Tenure};
use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::base::time::{Lease, Moment};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How many holds want renewals.
    holds: AtomicU32,
    /// What each renewal gives, ms; zero if no level asked for any.
    lease: AtomicU64,
    /// When the hold began that reached its cap.
    overheld: AtomicU64,
    abandoned: AtomicBool,
}

impl Tenure {
    /// Whether the watchdog renews the tenure.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.holds.load(SeqCst) > 0
    }

    /// A watched hold asks for renewals of this lease. Another hold that shares the tenure may ask for a longer one.
    pub(crate) fn renew_for(&self, lease: Lease) {
        let of_others = if self.watch.holds.load(SeqCst) > 1 { self.watch.lease.load(SeqCst) } else { 0 };
        self.watch.lease.store(lease.millis().max(of_others), SeqCst);
    }

    /// What each renewal gives, or gave while the tenure was watched; `None` if no level asked for renewals.
    pub(crate) fn renewed_lease(&self) -> Option<Lease> {
        let millis = self.watch.lease.load(SeqCst);
        (millis != 0).then(|| Lease::clamped(Duration::from_millis(millis)))
    }

    /// One more hold wants renewals, or one hold no longer does.
    pub(crate) fn watch(&self, wanted: bool) {
        if wanted {
            self.watch.holds.fetch_add(1, SeqCst);
        } else {
            self.watch.holds.fetch_sub(1, SeqCst);
        }
    }

    /// The thread of the hold ended without a release, so nobody will release it.
    ///
    /// The thread is being torn down. A logger may panic there, and such a panic ends the process.
    /// So this only writes, and the watchdog logs it.
    pub(crate) fn abandon(&self) {
        self.watch.abandoned.store(true, SeqCst);
    }

    /// Whether it was abandoned. True once, for the thread that logs it.
    pub(crate) fn is_found_abandoned(&self) -> bool {
        self.watch.abandoned.load(SeqCst) && self.watch.abandoned.swap(false, SeqCst)
    }

    /// The hold that began at `since` has reached its cap: its next deadline is its last. Returns whether this is news;
    /// `None` if the tenure has been passed on meanwhile.
    ///
    /// The watchdog writes the cap here, and then reads when the hold began. A thread that takes the tenure over writes when its hold began,
    /// and then reads the cap in [`was_overheld`](Self::was_overheld). So one of the two sees the other, and the next hold is renewed.
    pub(crate) fn renew_no_more(&self, since: Moment) -> Option<bool> {
        let news = self.watch.overheld.swap(since.0, SeqCst) != since.0;
        (self.hold_began() == since).then_some(news)
    }

    /// Whether an earlier hold reached its cap, so that the tenure has to be watched anew. True once: to watch it anew
    /// puts its next renewal off.
    pub(crate) fn was_overheld(&self) -> bool {
        let capped = self.watch.overheld.load(SeqCst);
        let is_old = capped != 0 && capped != self.hold_began().0;
        is_old && self.watch.overheld.compare_exchange(capped, 0, SeqCst, SeqCst).is_ok()
    }

    /// Why the deadline passed.
    pub(crate) fn expiry(&self) -> LossCause {
        if self.watch.overheld.load(SeqCst) == self.hold_began().0 { LossCause::Overheld } else { LossCause::Expired }
    }
}
