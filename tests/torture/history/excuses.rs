//! When locks were taken away from their holders: by a server that lost its data, or by a forced unlock. Then two may
//! believe at the same time, for as long as the first one's lease lasts. All else stays a finding.

use super::record::{Kind, Op, Trail};
use super::waits::Span;

pub(crate) struct Excuses(Vec<(Option<u8>, Span)>);

impl Excuses {
    /// `losses` concern every name; forced unlocks are in the logs.
    pub(crate) fn new(losses: &[Span], trails: &[Trail], lease: u64) -> Self {
        let all = losses.iter().map(|&(from, to)| (None, (from, to + lease)));
        let forced = trails.iter().flat_map(|trail| forced(trail, lease));
        Self(all.chain(forced).collect())
    }

    pub(crate) fn cover(&self, name: u8, at: u64) -> bool {
        self.0.iter().any(|(of, (from, to))| of.is_none_or(|of| of == name) && (*from..=*to).contains(&at))
    }
}

/// One that was not answered may be executed for a while after: by then its caller is at the next call.
fn forced(trail: &Trail, lease: u64) -> Vec<(Option<u8>, Span)> {
    let mut found: Vec<(Option<u8>, Span)> = Vec::new();
    for record in trail.records.iter().filter(|record| record.op == Op::Force) {
        match (record.kind, found.last_mut()) {
            (Kind::Call, _) => found.push((Some(record.name), (record.at, record.at + 2 * lease))),
            (Kind::Done, Some((_, span))) => span.1 = record.at + 2 * lease,
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
        let excuses = Excuses::new(&[(100, 110)], &[], 50);
        assert!(excuses.cover(0, 100) && excuses.cover(1, 160));
        assert!(!excuses.cover(0, 99) && !excuses.cover(0, 161));
    }

    #[test]
    fn a_forced_unlock_excuses_its_own_name() {
        let record = |kind, at| Record { kind, at, op: Op::Force, name: 1, ..Record::default() };
        let records = vec![record(Kind::Call, 100), record(Kind::Done, 110)];
        let excuses = Excuses::new(&[], &[Trail { records, ..Trail::default() }], 50);
        assert!(excuses.cover(1, 100) && excuses.cover(1, 210));
        assert!(!excuses.cover(1, 211) && !excuses.cover(2, 105));
    }
}
