//! The open levels of a hold: what each of them asks for, and what they ask for together.

use super::Hold;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::time::Lease;
use arrayvec::ArrayVec;
use std::time::Duration;

/// What a level asks for: renewals of a lease of so many milliseconds, or none, which is 0. A program may hold many locks,
/// so it is one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u64);

impl Level {
    /// Which one is not known: the hold was found by its name.
    const FOUND: Self = Self(u64::MAX);

    pub(super) fn new(renewed: Option<Lease>) -> Self {
        Self(renewed.map_or(0, Lease::millis))
    }

    fn renewed(self) -> Option<Lease> {
        (self.0 != 0).then(|| Lease::clamped(Duration::from_millis(self.0)))
    }
}

/// Levels that asked for the same one after the other.
#[derive(Debug, Clone, Copy)]
struct Run {
    level: Level,
    levels: usize,
}

/// What the open levels of a hold ask for, from the outermost to the innermost.
///
/// Levels close in any order: guards are values, and a program drops them when it likes. A closed level takes its own
/// terms with it. Levels that ask for the same are alike, so which of those was closed makes no difference.
pub(super) struct Levels {
    /// Only of a hold with more than two runs: a hold with fewer makes no allocation for its levels.
    outer: Vec<Run>,
    inner: ArrayVec<Run, 2>,
    /// Whether the tenure counts this hold among those that want to be renewed.
    watching: bool,
}

impl Levels {
    /// One level, on a tenure that may be watched for it already.
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

    /// Closes the innermost level that asks for just this; the innermost of all if none does.
    fn close(&mut self, level: Level) {
        let is_open = self.runs().any(|run| run.level == level);
        if let Some(run) = self.runs().rfind(|run| run.level == level || !is_open) {
            run.levels -= 1;
        }
        self.outer.retain(|run| run.levels > 0);
        self.inner.retain(|run| run.levels > 0);
    }

    /// The longest lease for whose renewals an open level asks; `None` if none asks for renewals.
    fn longest(&mut self) -> Option<Lease> {
        self.runs().map(|run| run.level).max()?.renewed()
    }
}

impl Hold {
    /// Opens the level with this number, which asks for renewals of that lease if for any; the hold that its caller
    /// gets. The tenure knows of it after [`follow`](Self::follow).
    pub(crate) fn deepen(&self, count: usize, renewed: Option<Lease>) -> Self {
        self.inner.count.store(count, SeqCst);
        let level = Level::new(renewed);
        self.inner.levels.lock().open(level);
        Self { level, ..self.clone() }
    }

    /// Closes the level that this very hold was acquired with, or one that asked for the same; the innermost one if that
    /// is closed, or if the hold was found by its name. How many are left. The tenure knows of it after
    /// [`follow`](Self::follow).
    pub(crate) fn ascend(&self) -> usize {
        let left = self.count().saturating_sub(1);
        self.inner.count.store(left, SeqCst);
        self.inner.levels.lock().close(self.level);
        left
    }

    /// Has the tenure watched, and renewed for so long, as the open levels ask for. Those of an orphan ask for nothing.
    ///
    /// Of a kind whose threads share a tenure, under the lock of the map of threads: another thread may come to share it
    /// because it is watched, and the caller is about to tell the watchdog whether it still is.
    pub(crate) fn follow(&self) {
        let mut levels = self.inner.levels.lock();
        let longest = levels.longest().filter(|_| !self.is_orphan());
        if std::mem::replace(&mut levels.watching, longest.is_some()) != longest.is_some() {
            self.inner.tenure.watch(longest.is_some());
        }
        longest.into_iter().for_each(|lease| self.inner.tenure.renew_for(lease));
    }

    /// The lease for whose renewals its open levels ask, if they do.
    pub(super) fn renewed(&self) -> Option<Lease> {
        self.inner.levels.lock().longest()
    }

    /// Its last level is gone, and others go on with its tenure.
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
