//! C4: a counter that trusts the lock alone. Read, work, ask `is_valid` once more, write; updates that are lost are
//! counted.
//!
//! A thread that is stopped between that last look and its write writes late: no lock can prevent it, only a
//! resource that checks a token. Such writes are known by their time, which is after the deadline that the writer
//! was shown, and what they spoil is counted apart.

use super::record::{Kind, MS, Record, Trail};

/// How long a write of a thread that was killed in it may show up.
const AFTERLIFE: u64 = 5_000 * MS;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) writes: usize,
    /// Updates that were lost though every writer was in time: which name, and when.
    pub(crate) lost: Vec<(u8, u64)>,
    /// The same, but a lock had been taken away.
    pub(crate) expected: usize,
    /// Updates that were lost to a late writer.
    pub(crate) holes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Update {
    pub(super) name: u8,
    pub(super) read: u64,
    pub(super) read_at: u64,
    pub(super) writes_at: u64,
    pub(super) wrote_at: u64,
    late: bool,
}

/// What was written too late, as no lock can prevent.
pub(super) fn late(trails: &[Trail]) -> Vec<Update> {
    trails.iter().flat_map(|trail| of_one(&trail.records)).filter(|update| update.late).collect()
}

/// The updates that met no late write, each with its thread and with the number of late writes before it. A late write may
/// leave any value, so updates with one number alone say something about each other.
pub(super) fn in_time(trails: &[Trail]) -> Vec<(usize, u64, Update)> {
    let late = late(trails);
    let of_thread = |(thread, trail): (usize, &Trail)| of_one(&trail.records).into_iter().map(move |it| (thread, it));
    let updates = trails.iter().enumerate().flat_map(of_thread);
    let before = |update: &Update| {
        late.iter().filter(|late| late.name == update.name && late.wrote_at < update.read_at).count() as u64
    };
    let in_time = updates.filter(|(_, update)| !late.iter().any(|late| meets(late, update)));
    in_time.map(|(thread, update)| (thread, before(&update), update)).collect()
}

pub(crate) fn tally(trails: &[Trail]) -> Tally {
    let mut updates: Vec<_> = trails.iter().flat_map(|trail| of_one(&trail.records)).collect();
    updates.sort_unstable_by_key(|update| (update.name, update.wrote_at));
    let late: Vec<_> = updates.iter().copied().filter(|update| update.late).collect();
    let mut tally = Tally { writes: updates.len(), ..Tally::default() };
    let mut last: Option<Update> = None;
    for update in updates {
        let holds = last.filter(|last| last.name == update.name).map_or(0, |last| last.read + 1);
        let excused = update.late || late.iter().any(|late| meets(late, &update));
        match holds == update.read {
            true => {}
            false if excused => tally.holes += 1,
            false => tally.lost.push((update.name, update.writes_at)),
        }
        last = Some(update);
    }
    tally
}

fn meets(late: &Update, update: &Update) -> bool {
    late.name == update.name && late.writes_at <= update.wrote_at && update.read_at <= late.wrote_at
}

fn of_one(records: &[Record]) -> Vec<Update> {
    let mut updates = Vec::new();
    let mut read: Option<&Record> = None;
    let mut begun: Option<Update> = None;
    for record in records {
        match (record.kind, read) {
            (Kind::Read, _) => read = Some(record),
            (Kind::Write, Some(read)) => {
                let (name, read, read_at) = (record.name, read.value, read.at);
                let (writes_at, wrote_at) = (record.at, record.at + AFTERLIFE);
                begun = Some(Update { name, read, read_at, writes_at, wrote_at, late: true });
            }
            (Kind::Wrote, _) => {
                let late = record.at > record.deadline;
                updates.extend(begun.take().map(|begun| Update { wrote_at: record.at, late, ..begun }));
            }
            _ => {}
        }
    }
    updates.extend(begun);
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One update: reads `value` at a time and writes the next one 2 later, with this deadline.
    fn update(value: u64, at: u64, wrote_at: u64, deadline: u64) -> Vec<Record> {
        let record = |at, kind, value| Record { at, kind, value, deadline, ..Record::default() };
        vec![record(at, Kind::Read, value), record(at + 1, Kind::Write, value + 1), record(wrote_at, Kind::Wrote, 0)]
    }

    fn tally_of(threads: &[&[Vec<Record>]]) -> (usize, usize, usize) {
        let trail = |records: &&[Vec<Record>]| Trail { records: records.concat(), ..Trail::default() };
        let tally = tally(&threads.iter().map(trail).collect::<Vec<_>>());
        (tally.writes, tally.lost.len(), tally.holes)
    }

    #[test]
    fn a_chain_of_updates_loses_none() {
        assert_eq!(tally_of(&[&[update(0, 1, 3, 9), update(2, 21, 23, 29)], &[update(1, 11, 13, 19)]]), (3, 0, 0));
    }

    #[test]
    fn two_who_read_the_same_lose_one() {
        assert_eq!(tally_of(&[&[update(0, 1, 5, 9)], &[update(0, 2, 6, 9)]]), (2, 1, 0));
    }

    #[test]
    fn what_a_late_writer_spoils_is_counted_apart() {
        assert_eq!(tally_of(&[&[update(0, 1, 50, 9)], &[update(0, 10, 12, 19), update(1, 20, 22, 29)]]), (3, 0, 1));
        assert_eq!(tally_of(&[&[update(0, 1, 15, 9)], &[update(0, 10, 20, 29)]]), (2, 0, 1));
    }

    #[test]
    fn a_write_without_an_end_may_have_been_done() {
        let killed = update(0, 1, 3, 9)[..2].to_vec();
        assert_eq!(
            tally_of(&[&[update(0, 1, 3, 9)[..2].to_vec()], &[update(1, 10, 12, 19), update(2, 20, 22, 29)]]),
            (3, 0, 2)
        );
        assert_eq!(tally_of(&[&[killed], &[update(0, 10, 12, 19)]]), (2, 0, 1));
    }
}
