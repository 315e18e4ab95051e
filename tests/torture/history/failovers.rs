//! Masters that were replaced, and what was granted after each: an interval without grants proves nothing.

use super::belief::Belief;
use super::record::MS;
use super::waits::Span;

/// From the nemesis to the new master, by the clock of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failover {
    /// What the sentinels were to find out began, or one was told to replace the master.
    pub(crate) began: u64,
    /// A node was seen to be the new master.
    pub(crate) promoted: u64,
    /// The first sentinel was heard to name it.
    pub(crate) named: u64,
}

/// How soon after that every client has moved, and has verified what it holds: a third of a lease would be too late.
const MOVED: u64 = 400 * MS;

impl Failover {
    /// When two may believe, and a hold may be lost: the old master granted what it did not tell its replicas, also while some
    /// had moved already. Not for a lease longer, since each hold is verified at the new master as soon as its client moves.
    pub(crate) fn excuses(&self) -> Span {
        (self.began, self.named + MOVED)
    }
}

/// What came after a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    /// Since its master was named and before the next failover began.
    pub(crate) grants: usize,
    /// How long after it was named the first came.
    pub(crate) first: Option<u64>,
    /// How long after its promotion it was named.
    pub(crate) unnamed: u64,
}

pub(crate) fn after(beliefs: &[Belief], failovers: &[Failover]) -> Vec<After> {
    let ends = failovers.iter().skip(1).map(|next| next.began).chain([u64::MAX]);
    failovers.iter().zip(ends).map(|(failover, end)| after_one(beliefs, failover, end)).collect()
}

fn after_one(beliefs: &[Belief], failover: &Failover, end: u64) -> After {
    let Failover { promoted, named, .. } = *failover;
    let granted = || beliefs.iter().map(|belief| belief.from).filter(|at| (named..end).contains(at));
    After { grants: granted().count(), first: granted().min().map(|first| first - named), unnamed: named - promoted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover(began: u64, named: u64) -> Failover {
        Failover { began, promoted: named - 1, named }
    }

    #[test]
    fn grants_count_for_the_failover_before_them() {
        let belief = |from| Belief { name: 0, from, to: from, holder: 0, ended: from, cut_short: false };
        let beliefs = [5, 12, 25, 27, 99, 35].map(belief);
        let found = after(&beliefs, &[failover(10, 20), failover(30, 40), failover(100, 110)]);
        let all = [(2, Some(5)), (1, Some(59)), (0, None)];
        assert_eq!(found, all.map(|(grants, first)| After { grants, first, unnamed: 1 }));
    }
}
