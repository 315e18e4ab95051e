//! Masters that were replaced, and what was granted after each: an interval without grants proves nothing.

use super::belief::Belief;
use super::names::{During, Names};
use super::record::{MACHINE, MS, Trail};
use super::sides::lock_of;
use super::waits::{Span, covered, stalls};

/// From the nemesis to the new master, by the clock of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failover {
    /// What was to be found out began, or a sentinel or a replica was told to replace the master.
    pub(crate) began: u64,
    /// A node was seen to be the new master.
    pub(crate) promoted: u64,
    /// The first sentinel, or a node of another master, was heard to name it.
    pub(crate) named: u64,
    /// When the group was whole again; nothing if another failover followed as soon as it was, so that none had to be granted.
    pub(crate) whole: Option<u64>,
    /// Whose locks were at that master.
    pub(crate) names: Names,
    /// How soon after it was named every client has moved, and has verified what it holds. Nothing: the new master has all that
    /// the old one had.
    pub(crate) moved: Option<u64>,
}

/// That of clients whom sentinels tell: a third of a lease would be too late.
pub(crate) const TOLD: u64 = 400 * MS;

/// That of clients who ask nodes of a cluster, once a second, for nobody tells them.
pub(crate) const ASKS: u64 = 1_000 * MS + TOLD;

/// A failover that follows so soon leaves no time for grants: nodes of a cluster agree in some hundredths of a second.
const AT_ONCE: u64 = 1_000 * MS;

impl Failover {
    /// When two may believe, and a hold may be lost: the old master granted what it did not tell its replicas, also while some
    /// had moved already. Not for a lease longer, since each hold is verified at the new master as soon as its client moves.
    pub(crate) fn excuses(&self) -> Option<During> {
        self.moved.map(|moved| During { names: self.names, span: (self.began, self.named + moved) })
    }

    /// From when on locks are granted again. To strict clients whose grants all replicas confirm after the quarantine, and when
    /// all are there.
    pub(crate) fn grants_from(&self, quarantine: Option<u64>) -> u64 {
        quarantine.map_or(self.named, |lease| (self.named + lease).max(self.whole.unwrap_or_default()))
    }

    /// Whether it proves something that locks were granted after it, and before the next one. Not if somebody held any
    /// lock for nearly as long: those who wait for it, which may be all, ask for no other.
    fn is_to_grant(&self, quarantine: Option<u64>, beliefs: &[Belief], end: u64) -> bool {
        let held = || longest_hold(beliefs, (self.named, end));
        if quarantine.is_some() { self.whole.is_some() } else { end > self.named + AT_ONCE + held() }
    }
}

/// What came after a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    /// Of those locks, since they were to be granted again and before the next failover began; nothing if none had to be.
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
    let granted =
        || beliefs.iter().filter(|belief| failover.names.has(belief.name) && (from..end).contains(&belief.from));
    let grants = failover.is_to_grant(quarantine, beliefs, end).then(|| granted().count());
    let first = granted().min_by_key(|belief| belief.from).filter(|_| grants.is_some());
    After { grants, first: first.map(|first| first.from - free_from(beliefs, first).max(from)), unnamed }
}

/// For so long clients may grant nothing after a failover, if nobody holds a lock.
const BARREN: u64 = 5_000 * MS;

/// From when and for how long nothing was granted after a failover, though the machine was well and nobody held a lock so long.
pub(crate) fn barren(
    beliefs: &[Belief],
    failovers: &[Failover],
    quarantine: Option<u64>,
    trails: &[Trail],
) -> Vec<Span> {
    let last = trails.iter().filter_map(|trail| trail.records.last()).map(|record| record.at).max().unwrap_or_default();
    let ends = failovers.iter().skip(1).map(|next| next.began).chain([last]);
    let stalled = &stalls(trails)[&MACHINE];
    let spans = failovers.iter().zip(ends).map(|(failover, end)| {
        let from = failover.grants_from(quarantine);
        let granted = |belief: &&Belief| failover.names.has(belief.name) && (from..end).contains(&belief.from);
        let to = beliefs.iter().filter(granted).map(|belief| belief.from).min().unwrap_or(end).max(from);
        let excused = longest_hold(beliefs, (from, to)) + covered((from, to), &[stalled]);
        (from, (to - from).saturating_sub(excused))
    });
    spans.filter(|(_, lasted)| *lasted > BARREN).collect()
}

/// The longest time of a span for which one and the same had a lock.
fn longest_hold(beliefs: &[Belief], (from, to): (u64, u64)) -> u64 {
    let held = beliefs.iter().map(|belief| belief.to.min(to).saturating_sub(belief.from.max(from)));
    held.max().unwrap_or_default()
}

/// When nobody held a lock any more before it was granted.
fn free_from(beliefs: &[Belief], granted: &Belief) -> u64 {
    let before =
        beliefs.iter().filter(|belief| lock_of(belief.name) == lock_of(granted.name) && belief.from < granted.from);
    before.map(|belief| belief.to.min(granted.from)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::record::{Kind, Record};
    use super::*;

    fn failover(began: u64, named: u64) -> Failover {
        Failover { began, promoted: named - 1, named, whole: None, names: Names::of([0]), moved: None }
    }

    fn beliefs<const N: usize>(from: [u64; N]) -> [Belief; N] {
        from.map(|from| Belief { name: 0, from, to: from, holder: 0, ended: from, ..Belief::default() })
    }

    #[test]
    fn grants_count_for_the_failover_before_them() {
        let s = 1_000 * MS;
        let failovers =
            [failover(s, 2 * s), failover(4 * s, 5 * s), failover(5 * s + 1, 6 * s), failover(8 * s, 9 * s)];
        let elsewhere = Belief { name: 1, ..beliefs([3 * s])[0] };
        let granted = beliefs([1, s + 1, 2 * s + 5, 3 * s, 5 * s, 7 * s, 8 * s]);
        let found = after(&[&granted[..], &[elsewhere]].concat(), &failovers, None);
        let all = [(Some(2), Some(5)), (None, None), (Some(1), Some(s)), (Some(0), None)];
        assert_eq!(
            found,
            all.map(|(grants, first)| After { grants, first, unnamed: 1 }),
            "the second one shows nothing"
        );
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
    fn a_failover_after_which_nobody_is_granted_anything_is_found() {
        let (s, failovers) = (1_000 * MS, [failover(MS, 2 * MS), failover(8_000 * MS, 9_000 * MS)]);
        let record = |at, kind, value| Record { at, kind, value, ..Record::default() };
        let found = |granted: &[Belief], stall| {
            let records = vec![record(7 * s, Kind::Stall, stall), record(12 * s, Kind::Call, 0)];
            barren(granted, &failovers, None, &[Trail { process: MACHINE, records, ..Trail::default() }])
        };
        let held = Belief { from: 0, to: 4 * s, ..beliefs([0])[0] };
        assert_eq!(found(&[], 0), [(2 * MS, 8 * s - 2 * MS)], "the last one had no time");
        assert_eq!([found(&beliefs([4 * s]), 0), found(&[], 4 * s), found(&[held], 0)], [const { vec![] }; 3]);
    }

    #[test]
    fn who_holds_a_lock_until_the_next_failover_leaves_no_time_for_grants() {
        let s = 1_000 * MS;
        let failovers = [failover(s, 2 * s), failover(4 * s, 5 * s)];
        let held = |name, to| after(&[Belief { name, to, ..beliefs([2 * s + 5])[0] }], &failovers, None)[0].grants;
        assert_eq!([held(0, 3 * s), held(0, 3 * s + 5), held(1, 3 * s + 5)], [Some(1), None, None]);
    }

    #[test]
    fn strict_grants_count_after_the_quarantine_and_when_all_are_there() {
        let whole = |whole| Failover { whole: Some(whole), ..failover(10, 20) };
        let grants = |failover| after(&beliefs([21, 30, 45, 60]), &[failover], Some(10))[0].grants;
        assert_eq!([whole(25), whole(40), failover(10, 20)].map(grants), [Some(3), Some(2), None]);
    }
}
