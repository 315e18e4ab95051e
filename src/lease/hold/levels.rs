//! The open levels of a hold: the renewals that each of them asks for, and those that the hold asks for.

use super::Hold;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::time::Lease;
use arrayvec::ArrayVec;
use std::time::Duration;

/// What a level asks for: renewals of a lease of so many milliseconds; 0 for none. It is one word, because a program may hold many locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u64);

impl Level {
    /// The hold was found by its name, so its level is not known.
    const FOUND: Self = Self(u64::MAX);

    pub(super) fn new(renewed: Option<Lease>) -> Self {
        Self(renewed.map_or(0, Lease::millis))
    }

    fn renewed(self) -> Option<Lease> {
        (self.0 != 0).then(|| Lease::clamped(Duration::from_millis(self.0)))
    }
}

/// Levels that were opened one after the other and ask for the same.
#[derive(Debug, Clone, Copy)]
struct Run {
    level: Level,
    levels: usize,
}

/// What the open levels of a hold ask for, from the outermost to the innermost.
///
/// Levels close in any order: guards are values, and a program drops them when it likes. What a closed level asked for goes with it.
/// Levels that ask for the same are alike: it makes no difference which of them closes.
pub(super) struct Levels {
    /// Empty if the hold has at most two runs. So such a hold makes no allocation for its levels.
    outer: Vec<Run>,
    inner: ArrayVec<Run, 2>,
    /// Whether the tenure counts this hold among those that want renewals.
    watching: bool,
}

impl Levels {
    /// One level. `watching` says whether the tenure counts its hold already.
    pub(super) fn new(level: Level, watching: bool) -> Self {
        let mut levels = Self { outer: Vec::new(), inner: ArrayVec::new(), watching };
        levels.open(level);
        levels
    }

    fn runs(&mut self) -> impl DoubleEndedIterator<Item = &mut Run> {
        self.outer.iter_mut().chain(&mut self.inner)
    }

    fn open(&mut self, level: Level) {
        if let Some(run) = self.runs().next_back().filter(|run| run.level == level) {
            run.levels += 1;
            return;
        }
        if self.inner.is_full() {
            self.outer.extend(self.inner.pop_at(0));
        }
        self.inner.push(Run { level, levels: 1 });
    }

    /// Closes the innermost level that asks for the same as `level`; if none does, the innermost of all.
    fn close(&mut self, level: Level) {
        let is_open = self.runs().any(|run| run.level == level);
        if let Some(run) = self.runs().rfind(|run| run.level == level || !is_open) {
            run.levels -= 1;
        }
        self.outer.retain(|run| run.levels > 0);
        self.inner.retain(|run| run.levels > 0);
    }

    /// The longest lease of which an open level wants renewals; `None` if no level wants renewals.
    fn longest(&mut self) -> Option<Lease> {
        self.runs().map(|run| run.level).max()?.renewed()
    }
}

impl Hold {
    /// Opens the level with this number. It asks for renewals of the lease `renewed`, or for none. Returns the hold for the caller.
    /// The tenure knows of it after [`follow`](Self::follow).
    pub(crate) fn deepen(&self, count: usize, renewed: Option<Lease>) -> Self {
        self.inner.count.store(count, SeqCst);
        let level = Level::new(renewed);
        self.inner.levels.lock().open(level);
        Self { level, ..self.clone() }
    }

    /// Closes the level that this hold was acquired with, or one that asks for the same. If that is closed, or if the hold was found
    /// by its name, closes the innermost level. Returns how many are left. The tenure knows of it after [`follow`](Self::follow).
    pub(crate) fn ascend(&self) -> usize {
        let left = self.count().saturating_sub(1);
        self.inner.count.store(left, SeqCst);
        self.inner.levels.lock().close(self.level);
        left
    }

    /// Has the tenure watched and renewed as the open levels ask for. The levels of an orphan ask for nothing.
    ///
    /// If threads share the tenure, the caller has the lock of the map of threads. Another thread may come to share the tenure
    /// because it is watched, and the caller is about to tell the watchdog whether it still is.
    pub(crate) fn follow(&self) {
        let mut levels = self.inner.levels.lock();
        let longest = levels.longest().filter(|_| !self.is_orphan());
        if std::mem::replace(&mut levels.watching, longest.is_some()) != longest.is_some() {
            self.inner.tenure.watch(longest.is_some());
        }
        longest.into_iter().for_each(|lease| self.inner.tenure.renew_for(lease));
    }

    /// The lease of which the open levels want renewals, if any does.
    pub(super) fn renewed(&self) -> Option<Lease> {
        self.inner.levels.lock().longest()
    }

    /// The last level is gone, and other holds go on with the tenure.
    pub(crate) fn part(&self) {
        self.ascend();
        self.follow();
        self.close(true);
    }

    /// The same hold, found by its name and not acquired: its release closes the innermost level.
    pub(crate) fn found(&self) -> Self {
        Self { level: Level::FOUND, ..self.clone() }
    }
}
