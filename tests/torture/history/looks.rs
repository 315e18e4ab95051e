//! C4, the other half: a reader of a read-write lock sees no change of what its writers count up, from a look at which its hold was valid
//! to another one at which it was.
//!
//! What a writer spoils that was stopped after its own look is no finding, here as there.

use super::counter::{self, Update};
use super::evictions::Evicted;
use super::excuses::Excuses;
use super::record::{Kind, Record, Trail};
use super::sides::lock_of;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) looks: usize,
    /// Those that saw a change: of which name, and when.
    pub(crate) changed: Vec<(u8, u64)>,
    /// The same, but a lock had been taken away, or a writer was late.
    pub(crate) expected: usize,
}

pub(crate) fn tally(trails: &[Trail], evicted: &[Evicted], excuses: &Excuses) -> Tally {
    let late = counter::late(trails);
    let mut tally = Tally::default();
    for look in trails.iter().flat_map(|trail| &trail.records).filter(|record| record.kind == Kind::Look) {
        tally.looks += 1;
        let is_excused = || {
            excuses.touch(look.name, (look.at, look.deadline))
                || late.iter().any(|late| meets(late, look))
                || evicted.iter().any(|evicted| evicted.owner == look.owner && evicted.span.0 <= look.deadline)
        };
        match look.valid {
            true => {}
            false if is_excused() => tally.expected += 1,
            false => tally.changed.push((look.name, look.at)),
        }
    }
    tally
}

fn meets(late: &Update, look: &Record) -> bool {
    lock_of(late.name) == lock_of(look.name) && late.writes_at <= look.deadline && look.at <= late.wrote_at
}

#[cfg(test)]
mod tests {
    use super::super::sides::{read, write};
    use super::*;

    /// A look from 10 to 20 at the first lock.
    fn look(valid: bool) -> Trail {
        let record =
            Record { kind: Kind::Look, name: read(0), at: 10, deadline: 20, owner: 7, valid, ..Record::default() };
        Trail { records: vec![record], ..Trail::default() }
    }

    fn none() -> Excuses {
        Excuses::new(&[], &[], &[], 0)
    }

    fn count(trails: &[Trail], evicted: &[Evicted], excuses: &Excuses) -> (usize, usize, usize) {
        let tally = tally(trails, evicted, excuses);
        (tally.looks, tally.changed.len(), tally.expected)
    }

    #[test]
    fn a_change_beside_a_reader_is_found_unless_its_lock_was_taken_away() {
        assert_eq!(count(&[look(true)], &[], &none()), (1, 0, 0));
        assert_eq!(count(&[look(false)], &[], &none()), (1, 1, 0));
        for (lost, found) in [((1, 9), 1), ((1, 10), 0), ((20, 30), 0), ((21, 30), 1)] {
            assert_eq!(count(&[look(false)], &[], &Excuses::new(&[lost], &[], &[], 0)).1, found, "{lost:?}");
        }
    }

    #[test]
    fn whose_time_out_was_taken_away_may_see_a_change() {
        for (owner, from, found) in [(7, 20, 0), (7, 21, 1), (8, 15, 1)] {
            let evicted = [Evicted { owner, name: read(0), span: (from, from + 1) }];
            assert_eq!(count(&[look(false)], &evicted, &none()).1, found, "{owner} at {from}");
        }
    }

    /// It was about to write at 15 with a deadline.
    #[test]
    fn a_late_writer_is_no_finding() {
        for (name, wrote, deadline, found) in
            [(write(0), 16, 15, 0), (write(0), 16, 16, 1), (write(0), 9, 8, 1), (write(1), 16, 15, 1)]
        {
            let record = |at, kind| Record { at, kind, name, deadline, ..Record::default() };
            let records = vec![record(1, Kind::Read), record(wrote - 1, Kind::Write), record(wrote, Kind::Wrote)];
            let writer = Trail { records, ..Trail::default() };
            assert_eq!(count(&[look(false), writer], &[], &none()).1, found, "{name} at {wrote} until {deadline}");
        }
    }
}
