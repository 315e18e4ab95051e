//! What a release that found nothing says, if an attempt before it was not answered: by which lives of the server they went
//! (docs/protocol.md, 6).

use crate::base::mutant::{self, Mutant};
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::hash::{DefaultHasher, Hash, Hasher};

/// One process of a server, for as long as it is a master and this client follows it. What one life has done, another need not know: a server
/// that starts anew may have lost it, and a new master may never have heard of it. A master that was a replica for a while has what the master in
/// between had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life(pub(crate) u64);

impl Life {
    /// That of a store in memory, which has no other.
    pub(crate) const ONLY: Self = Self(1);

    /// The life of a server that says this of its process and of the data that it has. `number`: of the server, as this client follows it.
    pub(crate) fn of(run_id: &str, replication_id: &str, number: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        (run_id, replication_id, number).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// No life has these numbers.
const FREED: u64 = u64::MAX;
const GONE: u64 = u64::MAX - 1;

/// The lives of one server that a tenure has met. Zero: none.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// The one that last confirmed the tenure, or was asked for it before another client's release gave it.
    confirmed: AtomicU64,
    /// The one that a release went to that was not answered; [`FREED`] once a release has freed the tenure, [`GONE`] once one did
    /// not find it and nothing explained that.
    asked: AtomicU64,
}

impl Lives {
    /// It was granted or prolonged, or asked for.
    pub(crate) fn confirm(&self, life: Life) {
        self.confirmed.store(life.0, SeqCst);
    }

    /// A release went there as a whole, and was not answered. Only the life that confirmed the tenure can have freed it by that: another one
    /// may never have had the lock.
    pub(crate) fn leave(&self, life: Life) {
        let counts = self.confirmed.load(SeqCst) == life.0
            || mutant::is(Mutant::ExplainsByAnyDoubt)
            || mutant::is(Mutant::ExplainsByTheAttemptsLife);
        if counts {
            let _ = self.asked.fetch_update(SeqCst, SeqCst, |asked| (asked < GONE).then_some(life.0));
        }
    }

    /// One was refused after it may have freed the tenure: by the life that confirmed it, or by one that never had it.
    pub(crate) fn leave_where_it_was(&self) {
        self.leave(Life(self.confirmed.load(SeqCst)));
    }

    /// The first answer stands: a sweep and a release of the same tenure may both go on until they are answered.
    pub(crate) fn free(&self) {
        if mutant::is(Mutant::RepeatsAnsweredMembers) {
            return;
        }
        let _ = self.asked.fetch_update(SeqCst, SeqCst, |asked| (asked != GONE).then_some(FREED));
    }

    /// Whether a release freed it, or one that was not answered may have.
    pub(crate) fn may_have_freed(&self) -> bool {
        !matches!(self.asked.load(SeqCst), 0 | GONE)
    }

    /// Whether a release did not find it, and nothing explained that.
    pub(crate) fn is_gone(&self) -> bool {
        self.asked.load(SeqCst) == GONE
    }

    /// This life finds the tenure gone. Whether a release before explains that, or the end of the lease, which `is_over`.
    pub(crate) fn explain(&self, gone: Life, is_over: bool) -> bool {
        let asked = self.asked.load(SeqCst);
        let by_any = mutant::is(Mutant::ExplainsByAnyDoubt) && asked != 0;
        let is_explained = asked != GONE && (is_over || asked == FREED || asked == gone.0 || by_any);
        if !is_explained {
            self.asked.store(GONE, SeqCst);
        }
        is_explained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_life_that_confirmed_a_tenure_explains_that_it_is_gone() {
        let [one, other] = [Life(7), Life(8)];
        let explained = |asked: &[Life], gone| {
            let lives = Lives::default();
            lives.confirm(one);
            asked.iter().for_each(|life| lives.leave(*life));
            lives.explain(gone, false)
        };
        assert!(!explained(&[], one), "nothing was left unanswered");
        assert!(!explained(&[other], other) && !explained(&[other], one));
        assert!(explained(&[one], one) && !explained(&[one], other));
        let lives = Lives::default();
        lives.free();
        assert!(lives.explain(other, false) && !lives.is_gone(), "it was freed before");
        let lives = Lives::default();
        assert!(lives.explain(one, true), "its lease is over");
        assert!(!lives.explain(one, false) && lives.is_gone() && !lives.may_have_freed());
        lives.free();
        assert!(!lives.explain(one, true) && lives.is_gone(), "the first answer stands");
    }
}
