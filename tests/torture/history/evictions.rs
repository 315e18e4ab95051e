//! C1 of a reader whose time-out was taken away: a key beside the lock, by which it has its share. Others may come in from then on, so
//! what it believes is no belief any more; but it has to be told by its next renewal.
//!
//! So nothing that is asked after that says that it has its share, and nothing makes it believe in that for longer than its lease from
//! there. One whose lease is renewed is told a third of a lease later, where nothing disturbs it.

use super::Events;
use super::belief::Belief;
use super::record::{Kind, MACHINE, MS, Op, Outcome, Record, Trail};
use super::waits::{Bounds, Span, covered, stalls};
use std::collections::HashMap;

/// The time-out of a reader that was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) name: u8,
    /// Of all holds that share it.
    pub(crate) owner: u64,
    pub(crate) span: Span,
}

/// How much later it may be told.
const LATE: u64 = 250 * MS;

/// What is believed after that is an overlap with nothing, and lost.
pub(crate) fn end_beliefs(beliefs: &mut [Belief], evicted: &[Evicted]) {
    for belief in beliefs {
        let gone = evicted.iter().find(|evicted| evicted.owner == belief.owner && evicted.name == belief.name);
        if let Some(gone) = gone.filter(|gone| gone.span.0 < belief.ended) {
            belief.to = gone.span.0.clamp(belief.from, belief.to);
            belief.cut_short = false;
        }
    }
}

/// Holds that were not told.
pub(crate) fn untold(trails: &[Trail], events: &Events, bounds: &Bounds) -> Vec<(u64, String)> {
    let (stalls, mut found) = (stalls(trails), Vec::new());
    for trail in trails {
        for evicted in &events.evicted {
            let rough = events.rough(evicted.name);
            let disturbed = [&rough, &stalls[&trail.process], &stalls[&MACHINE]].map(Vec::as_slice);
            let of_hold = since(trail, evicted, bounds.response);
            found.extend(of_hold.iter().find_map(|(record, is_renewed)| {
                let what = believes(record, evicted, *is_renewed, &disturbed, bounds)?;
                Some((record.at, format!("lock {} without its time-out: {what}", evicted.name)))
            }));
        }
    }
    found
}

/// What is shown to a hold after that, and whether its lease is renewed. Nothing of one that was had just before: another copy of its
/// acquire may have made it whole again.
fn since<'a>(trail: &'a Trail, evicted: &Evicted, response: u64) -> Vec<(&'a Record, bool)> {
    let (mut hold, mut asked, mut found) = (None, HashMap::<Op, u64>::new(), Vec::new());
    for record in trail.records.iter().filter(|record| record.name == evicted.name) {
        match record.kind {
            Kind::Done if record.op.acquires() && record.outcome == Outcome::Yes && record.depth == 1 => {
                let is_it = record.owner == evicted.owner && record.at + response < evicted.span.0;
                hold = is_it.then_some(!record.op.is_leased());
            }
            Kind::Ended => hold = hold.map(|_| false),
            Kind::Call => drop(asked.insert(record.op, record.at)),
            _ => {}
        }
        let was_asked = match record.kind {
            Kind::Done => asked.get(&record.op).copied().unwrap_or_default(),
            _ => record.at,
        };
        if let Some(is_renewed) = hold.filter(|_| was_asked > evicted.span.1) {
            found.push((record, is_renewed));
        }
    }
    found
}

/// Why that must not be.
fn believes(
    record: &Record,
    evicted: &Evicted,
    is_renewed: bool,
    disturbed: &[&[Span]],
    bounds: &Bounds,
) -> Option<&'static str> {
    let from = evicted.span.1;
    let asks = matches!(record.op, Op::Extend | Op::Verify) && record.kind == Kind::Done;
    if asks && record.outcome == Outcome::Yes {
        return Some("the server is said to have it");
    }
    let sees = record.kind == Kind::Check && record.valid;
    if sees && record.deadline > from + bounds.lease {
        return Some("it was renewed");
    }
    let took = || record.at - from - covered((from, record.at), disturbed);
    (sees && is_renewed && took() > bounds.lease / 3 + LATE).then_some("it was not told by its next renewal")
}

#[cfg(test)]
mod tests {
    use super::super::names::During;
    use super::super::sides::read;
    use super::*;

    const GONE: Evicted = Evicted { name: 128, owner: 7, span: (1_000 * MS, 1_001 * MS) };

    fn acquired(at: u64, op: Op) -> Record {
        let name = read(0);
        Record {
            at: at * MS,
            kind: Kind::Done,
            op,
            outcome: Outcome::Yes,
            depth: 1,
            owner: 7,
            name,
            ..Record::default()
        }
    }

    fn check(at: u64, deadline: u64) -> Record {
        let (at, deadline) = (at * MS, deadline * MS);
        Record { at, deadline, kind: Kind::Check, valid: true, name: read(0), ..Record::default() }
    }

    /// With leases of .9 s.
    fn count(records: &[Record], rough: &[Span]) -> usize {
        let trail = Trail { records: records.to_vec(), ..Trail::default() };
        let rough = rough.iter().copied().map(During::of_all).collect();
        let bounds = Bounds { lease: 900 * MS, response: 100 * MS, ..Bounds::default() };
        untold(
            &[trail, Trail { process: MACHINE, ..Trail::default() }],
            &Events { rough, evicted: vec![GONE], ..Events::default() },
            &bounds,
        )
        .len()
    }

    #[test]
    fn what_was_believed_before_may_be_believed_until_the_next_renewal() {
        let had = acquired(800, Op::Lock);
        assert_eq!(count(&[had, check(1_551, 1_800)], &[]), 0);
        assert_eq!(count(&[had, check(1_552, 1_800)], &[]), 1);
        assert_eq!(count(&[had, check(1_552, 1_800)], &[(1_100 * MS, 1_200 * MS)]), 0);
        assert_eq!(count(&[acquired(800, Op::Leased), check(1_552, 1_800)], &[]), 0, "nobody renews it");
    }

    #[test]
    fn nothing_prolongs_it() {
        for op in [Op::Lock, Op::Leased] {
            assert_eq!(count(&[acquired(800, op), check(1_100, 1_901)], &[]), 0);
            assert_eq!(count(&[acquired(800, op), check(1_100, 1_902)], &[(0, 2_000 * MS)]), 1);
        }
        assert_eq!(count(&[acquired(901, Op::Lock), check(1_100, 1_902)], &[]), 0, "a copy of its acquire may have");
        let other = Record { owner: 8, ..acquired(1_050, Op::Lock) };
        assert_eq!(count(&[acquired(800, Op::Lock), other, check(1_100, 1_902)], &[]), 0);
    }

    #[test]
    fn who_asks_is_told() {
        let asked = |at| Record { at: at * MS, kind: Kind::Call, op: Op::Verify, name: read(0), ..Record::default() };
        let said = |outcome| Record { outcome, ..acquired(1_100, Op::Verify) };
        for (at, outcome, found) in [(1_002, Outcome::Yes, 1), (1_002, Outcome::No, 0), (1_001, Outcome::Yes, 0)] {
            assert_eq!(count(&[acquired(800, Op::Lock), asked(at), said(outcome)], &[]), found);
        }
    }

    #[test]
    fn its_belief_ends_there() {
        let (name, to, ended) = (read(0), 1_200 * MS, 1_300 * MS);
        let belief = Belief { name, from: 1, to, holder: 0, ended, cut_short: true, owner: 7, ..Belief::default() };
        let early = Belief { to: 900 * MS, ..belief };
        let mut beliefs = [belief, Belief { owner: 8, ..belief }, early, Belief { ended: 950 * MS, ..early }];
        end_beliefs(&mut beliefs, &[GONE]);
        let ends = beliefs.map(|belief| (belief.to / MS, belief.cut_short));
        assert_eq!(ends, [(1_000, false), (1_200, true), (900, false), (900, true)]);
    }
}
