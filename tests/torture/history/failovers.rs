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
    /// When the group was whole again; nothing if another failover followed as soon as it was, so that none had to be granted.
    pub(crate) whole: Option<u64>,
}

/// How soon after that every client has moved, and has verified what it holds: a third of a lease would be too late.
const MOVED: u64 = 400 * MS;

impl Failover {
    /// When two may believe, and a hold may be lost: the old master granted what it did not tell its replicas, also while some
    /// had moved already. Not for a lease longer, since each hold is verified at the new master as soon as its client moves.
    pub(crate) fn excuses(&self) -> Span {
        (self.began, self.named + MOVED)
    }

    /// From when on locks are granted again. To strict clients whose grants all replicas confirm after the quarantine, and when
    /// all are there.
    pub(crate) fn grants_from(&self, quarantine: Option<u64>) -> u64 {
        quarantine.map_or(self.named, |lease| (self.named + lease).max(self.whole.unwrap_or_default()))
    }

    /// Whether it proves something that locks were granted after it.
    fn is_to_grant(&self, quarantine: Option<u64>) -> bool {
        quarantine.is_none() || self.whole.is_some()
    }
}

/// What came after a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    /// Since locks were to be granted again and before the next failover began; nothing if none had to be.
    pub(crate) grants: Option<usize>,
    /// How long after that the first came, less the time for which somebody held that very lock.
    pub(crate) first: Option<u64>,
    /// How long after its promotion it was named.
    pub(crate) unnamed: u64,
}

/// `quarantine`: of strict clients whose grants all replicas confirm.
pub(crate) fn after(beliefs: &[Belief], failovers: &[Failover], quarantine: Option<u64>) -> Vec<After> {
    let ends = failovers.iter().skip(1).map(|next| next.began).chain([u64::MAX]);
    failovers.iter().zip(ends).map(|(failover, end)| after_one(beliefs, failover, quarantine, end)).collect()
}

fn after_one(beliefs: &[Belief], failover: &Failover, quarantine: Option<u64>, end: u64) -> After {
    let (from, unnamed) = (failover.grants_from(quarantine), failover.named - failover.promoted);
    let granted = || beliefs.iter().filter(|belief| (from..end).contains(&belief.from));
    let grants = failover.is_to_grant(quarantine).then(|| granted().count());
    let first = granted().min_by_key(|belief| belief.from).filter(|_| grants.is_some());
    After { grants, first: first.map(|first| first.from - free_from(beliefs, first).max(from)), unnamed }
}

/// When nobody held a lock any more before it was granted.
fn free_from(beliefs: &[Belief], granted: &Belief) -> u64 {
    let before = beliefs.iter().filter(|belief| belief.name == granted.name && belief.from < granted.from);
    before.map(|belief| belief.to.min(granted.from)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover(began: u64, named: u64) -> Failover {
        Failover { began, promoted: named - 1, named, whole: None }
    }

    fn beliefs<const N: usize>(from: [u64; N]) -> [Belief; N] {
        from.map(|from| Belief { name: 0, from, to: from, holder: 0, ended: from, cut_short: false })
    }

    #[test]
    fn grants_count_for_the_failover_before_them() {
        let failovers = [failover(10, 20), failover(30, 40), failover(100, 110)];
        let found = after(&beliefs([5, 12, 25, 27, 99, 35]), &failovers, None);
        let all = [(2, Some(5)), (1, Some(59)), (0, None)];
        assert_eq!(found, all.map(|(grants, first)| After { grants: Some(grants), first, unnamed: 1 }));
    }

    #[test]
    fn who_holds_it_delays_no_grant() {
        let holder = Belief { to: 26, ..beliefs([15])[0] };
        let first = |found: &[Belief]| after(found, &[failover(10, 20)], None)[0].first;
        let next = beliefs([29])[0];
        assert_eq!(
            [first(&[holder, next]), first(&[next]), first(&[Belief { name: 1, ..holder }, next])],
            [Some(3), Some(9), Some(9)]
        );
    }

    #[test]
    fn strict_grants_count_after_the_quarantine_and_when_all_are_there() {
        let whole = |whole| Failover { whole: Some(whole), ..failover(10, 20) };
        let grants = |failover| after(&beliefs([21, 30, 45, 60]), &[failover], Some(10))[0].grants;
        assert_eq!([whole(25), whole(40), failover(10, 20)].map(grants), [Some(3), Some(2), None]);
    }
}
