//! C5 and C6 of read-write locks, whose readers may follow each other without an end, and whose writers too.
//!
//! A writer that waits keeps out who comes to read after it. So it waits for those readers that were in when it came, or when the
//! writer before it went, as far as it is not for another writer. Readers that wait for a writer have their turn when it goes, or else the
//! writer of another process that has waited longest. So neither is passed over by one writer after the other, which is counted as for
//! the queue of processes.

use super::Events;
use super::record::{MACHINE, MS, Op, Outcome, Trail};
use super::sides::{is_read, is_write, number, write};
use super::turns::{Passed, is_disturbed};
use super::waits::{Bounds, Kept, Span, calls, covered, stalls};
use std::collections::HashMap;

/// How long after that readers may still come in: their turn, and until the writer has looked.
const TURN: u64 = 100 * MS;

/// What keeps others than a writer's own hold keeps out, of each lock by its number.
#[derive(Default)]
pub(super) struct Shares {
    /// What readers had, from the first that shared it to the last.
    reads: HashMap<u8, Vec<Span>>,
    /// When writers waited, or may have left word that they do.
    waiting: HashMap<u8, Vec<Span>>,
}

impl Shares {
    pub(super) fn new(trails: &[Trail], kept: &[Kept], poll: u64) -> Self {
        let mut shares = Self { reads: reads(kept), ..Self::default() };
        for trail in trails {
            let may_wait = |op: Op| op.waits() || op.is_of_group();
            for call in calls(trail).iter().filter(|call| is_write(call.begin.name) && may_wait(call.begin.op)) {
                let until = match call.done {
                    Some(done) if matches!(done.outcome, Outcome::Yes | Outcome::No | Outcome::Cancelled) => done.at,
                    Some(done) => done.at + 2 * poll,
                    None => trail.until + 2 * poll,
                };
                shares.waiting.entry(number(call.begin.name)).or_default().push((call.begin.at, until));
            }
        }
        shares
    }

    /// When a side is rightly kept out, of a span in which nobody has the lock to write.
    pub(super) fn kept_out(&self, name: u8) -> impl Fn(Span) -> Vec<Span> {
        let of = |spans: &HashMap<u8, Vec<Span>>| spans.get(&number(name)).cloned().unwrap_or_default();
        let (reads, waiting) = match name {
            _ if is_write(name) => (of(&self.reads), Vec::new()),
            _ if is_read(name) => (Vec::new(), of(&self.waiting)),
            _ => Default::default(),
        };
        move |(begin, end)| {
            let came_before = |&&(from, until): &&Span| from <= begin + TURN && until > begin;
            let were_in = reads.iter().filter(came_before).chain(waiting.iter().filter(|span| span.0 < end));
            were_in.copied().collect()
        }
    }
}

/// Threads of one process have a share together.
fn reads(kept: &[Kept]) -> HashMap<u8, Vec<Span>> {
    let mut shares = HashMap::<(u8, u64), Span>::new();
    let mut found = HashMap::<u8, Vec<Span>>::new();
    for &Kept { name, owner, span } in kept.iter().filter(|kept| is_read(kept.name)) {
        if owner == 0 {
            found.entry(number(name)).or_default().push(span);
            continue;
        }
        let share = shares.entry((number(name), owner)).or_insert(span);
        *share = (share.0.min(span.0), share.1.max(span.1));
    }
    shares.into_iter().for_each(|((lock, _), span)| found.entry(lock).or_default().push(span));
    found
}

/// The process of a writer, when it began to wait, and when it had the lock.
type Turn = (usize, u64, u64);

/// Who waited for longer than it may, while writers which came later had the lock again and again: to a writer those of other
/// processes, for its own stand in line.
pub(crate) fn passed_over(trails: &[Trail], events: &Events, bounds: &Bounds) -> Vec<Passed> {
    let (turns, stalls) = (turns(trails), stalls(trails));
    let mut found = Vec::new();
    for trail in trails {
        let deaf = events.deaf(trail.process);
        let of_sides = |name| is_read(name) || is_write(name);
        for call in calls(trail).iter().filter(|call| of_sides(call.begin.name) && call.begin.op.waits()) {
            let (name, at, until) = (call.begin.name, call.begin.at, call.done.map_or(trail.until, |done| done.at));
            let rough = events.rough(name);
            let disturbed = [&deaf, &rough, &stalls[&trail.process], &stalls[&MACHINE]].map(Vec::as_slice);
            let turns = turns.get(&number(name)).map_or(&[][..], Vec::as_slice);
            let during = turns.iter().filter(|(_, began, had)| *began > at && *had < until);
            let during = during.filter(|(process, ..)| is_read(name) || *process != trail.process);
            let later: Vec<_> = during.filter(|(.., had)| !is_disturbed(*had, &disturbed)).collect();
            let last = later.last().map_or(at, |turn| turn.2);
            let (turns, waited) = (later.len(), last - at - covered((at, last), &disturbed));
            let is_too_much = call.begin.depth == 0 && waited > bounds.passed && turns > bounds.passes;
            found.extend(is_too_much.then_some(Passed { name, at, turns, waited }));
        }
    }
    found
}

/// The turns of writers that waited of each lock, in order. Tries mind nobody.
fn turns(trails: &[Trail]) -> HashMap<u8, Vec<Turn>> {
    let mut found = HashMap::<u8, Vec<Turn>>::new();
    for trail in trails {
        for call in calls(trail).iter().filter(|call| is_write(call.begin.name) && call.begin.depth == 0) {
            if let Some(done) = call.done.filter(|done| call.begin.op.waits() && done.outcome == Outcome::Yes) {
                found.entry(number(call.begin.name)).or_default().push((trail.process, call.begin.at, done.at));
            }
        }
    }
    found.values_mut().for_each(|turns| turns.sort_unstable_by_key(|turn| turn.2));
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::{Kind, Record};
    use super::super::sides::read;
    use super::super::waits;
    use super::*;

    fn process(process: usize, records: &[Record]) -> Trail {
        Trail { process, records: records.to_vec(), ..Trail::default() }
    }

    fn call(name: u8, at: u64) -> Record {
        Record { at: at * MS, kind: Kind::Call, op: Op::Lock, name, ..Record::default() }
    }

    /// Asks, has and gives up at these times.
    fn turn(name: u8, owner: u64, [asked, had, over]: [u64; 3]) -> Vec<Record> {
        let done = |at, op, depth| {
            let (at, kind, outcome) = (at * MS, Kind::Done, Outcome::Yes);
            Record { at, kind, op, outcome, depth, name, owner, ..Record::default() }
        };
        vec![call(name, asked), done(had, Op::Lock, 1), done(over, Op::Unlock, 0)]
    }

    /// Holds beside a call that waits from 50 on, and until when, if that ever ended.
    fn missed(name: u8, until: Option<u64>, others: &[&[Record]]) -> usize {
        let waits = until.map_or_else(|| vec![call(name, 50)], |until| turn(name, 99, [50, until, until + 1]));
        let mut trails: Vec<_> = others.iter().enumerate().map(|(number, turns)| process(number + 1, turns)).collect();
        trails.push(Trail { until: 10_000 * MS, ..process(0, &waits) });
        let bounds = Bounds { free: 500 * MS, lease: 300 * MS, poll: 1_000 * MS, ..Bounds::default() };
        let found = waits::missed(&trails, &Events::default(), &bounds);
        found.iter().filter(|late| late.name == name).count()
    }

    #[test]
    fn a_writer_waits_for_the_readers_that_were_in_and_for_no_others() {
        let was_in = turn(read(0), 1, [0, 10, 800]);
        assert_eq!(missed(write(0), Some(1_300), &[&was_in]), 0);
        assert_eq!(missed(write(0), Some(1_301), &[&was_in]), 1);
        let came_later = turn(read(0), 2, [150, 151, 1_300]);
        assert_eq!(missed(write(0), Some(1_301), &[&was_in, &came_later]), 1);
        let in_its_turn = turn(read(0), 2, [100, 140, 1_300]);
        assert_eq!(missed(write(0), Some(1_301), &[&was_in, &in_its_turn]), 0);
        let shares = turn(read(0), 1, [150, 151, 1_300]);
        assert_eq!(missed(write(0), Some(1_301), &[&was_in, &shares]), 0, "it is one hold of their process");
    }

    #[test]
    fn a_writer_waits_for_writers_and_for_those_who_come_in_behind_them() {
        let others = [turn(write(0), 1, [0, 10, 800]), turn(read(0), 2, [100, 850, 1_400])];
        let others: [&[Record]; 2] = [&others[0], &others[1]];
        assert_eq!(missed(write(0), Some(1_850), &others), 0, "50 ms pass until they are in");
        assert_eq!(missed(write(0), Some(1_851), &others), 1);
        assert_eq!(missed(write(1), Some(1_850), &others), 1, "that is another lock");
        assert_eq!(missed(0, Some(1_850), &others), 1, "and so is that");
    }

    #[test]
    fn a_reader_waits_for_writers_and_for_those_who_wait() {
        let writer = turn(write(0), 1, [0, 10, 800]);
        assert_eq!(missed(read(0), Some(1_300), &[&writer]), 0);
        assert_eq!(missed(read(0), Some(1_301), &[&writer]), 1);
        assert_eq!(
            missed(read(0), Some(1_301), &[&writer, &turn(read(0), 2, [0, 810, 1_290])]),
            1,
            "readers may be together"
        );
        let waits = turn(write(0), 1, [60, 900, 910]);
        assert_eq!(missed(read(0), Some(1_410), &[&waits]), 0);
        assert_eq!(missed(read(0), None, &[&waits]), 1);
    }

    /// A writer that gives up at 60, and one that is killed.
    #[test]
    fn who_is_gone_keeps_readers_out_for_two_polls() {
        let gives_up = |outcome| {
            let done =
                Record { at: 60 * MS, kind: Kind::Done, op: Op::Lock, outcome, name: write(0), ..Record::default() };
            vec![call(write(0), 40), done]
        };
        assert_eq!(missed(read(0), Some(560), &[&gives_up(Outcome::No)]), 0);
        assert_eq!(missed(read(0), Some(561), &[&gives_up(Outcome::No)]), 1);
        let unavailable = || gives_up(Outcome::Unavailable);
        assert_eq!(missed(read(0), Some(2_560), &[&unavailable()]), 0);
        assert_eq!(missed(read(0), Some(2_561), &[&unavailable()]), 1);
    }

    /// A side waits from 80 to 500, and a writer of another process comes every 10 ms from 90 on.
    fn passed_by(name: u8, other: usize, turns: u64, passes: usize, deaf: &[Span]) -> Vec<usize> {
        let writes: Vec<_> =
            (0..turns).flat_map(|at| turn(write(0), at, [90, 100, 105].map(|ms| ms + 10 * at))).collect();
        let waits = turn(name, 99, [80, 500, 501]);
        let trails = [process(0, &waits), process(other, &writes), process(MACHINE, &[])];
        let deaf = deaf.iter().map(|&span| super::super::Deaf { process: Some(0), span }).collect();
        let bounds = Bounds { passes, passed: 40 * MS, ..Bounds::default() };
        let found = passed_over(&trails, &Events { deaf, ..Events::default() }, &bounds);
        found.iter().map(|passed| passed.turns).collect()
    }

    fn passed(turns: u64, passes: usize, deaf: &[Span]) -> Vec<usize> {
        passed_by(read(0), 1, turns, passes, deaf)
    }

    #[test]
    fn a_writer_that_those_of_another_process_pass_over_is_found() {
        assert_eq!(passed_by(write(0), 1, 10, 9, &[]), [10]);
        assert_eq!(passed_by(write(1), 1, 10, 9, &[]), [0; 0], "that is another lock");
        assert_eq!(passed_by(write(0), 0, 10, 9, &[]), [0; 0], "they stand in line behind it in its own process");
    }

    #[test]
    fn a_reader_that_writers_pass_over_again_and_again_is_found() {
        assert_eq!((passed(10, 9, &[]), passed(10, 10, &[])), (vec![10], vec![]));
        assert_eq!(passed(3, 1, &[]), Vec::<usize>::new(), "it did not wait for long");
        assert_eq!(passed(10, 1, &[(90 * MS, 200 * MS)]), Vec::<usize>::new(), "it may not have heard of its turn");
    }
}
