//! When locks were taken away from their holders: by a server that lost its data, by a master that was replaced, or by a
//! forced unlock. Then two may believe at the same time, for as long as the first one's lease lasts, or until its client has
//! moved to the new master. All else stays a finding.

use super::failovers::Failover;
use super::names::{During, Names};
use super::record::{Kind, Op, Trail};
use super::waits::Span;

#[derive(Clone)]
pub(crate) struct Excuses(Vec<During>);

impl Excuses {
    /// `losses` concern every name, a failover those of its master; forced unlocks are in the logs.
    pub(crate) fn new(losses: &[Span], failovers: &[Failover], trails: &[Trail], lease: u64) -> Self {
        let lost = losses.iter().map(|&(from, to)| During::of_all((from, to + lease)));
        let forced = trails.iter().flat_map(|trail| forced(trail, lease));
        Self(lost.chain(failovers.iter().filter_map(Failover::excuses)).chain(forced).collect())
    }

    pub(crate) fn cover(&self, name: u8, at: u64) -> bool {
        self.cover_all(name, (at, at))
    }

    /// Whether any of it falls into that time.
    pub(crate) fn touch(&self, name: u8, (begin, end): Span) -> bool {
        self.0.iter().any(|&During { names, span: (from, to) }| names.has(name) && from <= end && begin <= to)
    }

    /// From its beginning to its end.
    pub(crate) fn cover_all(&self, name: u8, (begin, end): Span) -> bool {
        self.0.iter().any(|&During { names, span: (from, to) }| names.has(name) && from <= begin && end <= to)
    }
}

/// One that was not answered may be executed for a while after: by then its caller is at the next call.
fn forced(trail: &Trail, lease: u64) -> Vec<During> {
    let mut found: Vec<During> = Vec::new();
    for record in trail.records.iter().filter(|record| record.op == Op::Force) {
        match (record.kind, found.last_mut()) {
            (Kind::Call, _) => {
                found.push(During { names: Names::of([record.name]), span: (record.at, record.at + 2 * lease) })
            }
            (Kind::Done, Some(last)) => last.span.1 = record.at + 2 * lease,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    #[test]
    fn a_loss_excuses_every_name_for_a_lease() {
        let excuses = Excuses::new(&[(100, 110)], &[], &[], 50);
        assert!(excuses.cover(0, 100) && excuses.cover(1, 160));
        assert!(!excuses.cover(0, 99) && !excuses.cover(0, 161));
        assert!(excuses.touch(0, (90, 100)) && excuses.touch(0, (160, 200)) && !excuses.touch(0, (161, 200)));
    }

    #[test]
    fn a_failover_excuses_until_all_have_moved() {
        let names = Names::of([0, 1]);
        let failover = Failover { began: 100, promoted: 200, named: 300, whole: None, names, moved: Some(50) };
        let excuses = Excuses::new(&[], &[failover], &[], u64::from(u32::MAX));
        assert!(!excuses.cover(0, 99) && excuses.cover(0, 100) && excuses.cover(1, 350) && !excuses.cover(0, 351));
        assert!(excuses.cover_all(0, (100, 350)) && !excuses.cover_all(0, (349, 351)));
        assert!(!excuses.cover(2, 200), "it is at another master");
        let orderly = Failover { moved: None, ..failover };
        assert!(!Excuses::new(&[], &[orderly], &[], 1).cover(0, 200), "nothing was lost");
    }

    #[test]
    fn a_forced_unlock_excuses_its_own_name() {
        let record = |kind, at| Record { kind, at, op: Op::Force, name: 1, ..Record::default() };
        let records = vec![record(Kind::Call, 100), record(Kind::Done, 110)];
        let excuses = Excuses::new(&[], &[], &[Trail { records, ..Trail::default() }], 50);
        assert!(excuses.cover(1, 100) && excuses.cover(1, 210));
        assert!(!excuses.cover(1, 211) && !excuses.cover(2, 105));
    }
}
