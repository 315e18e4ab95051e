//! C6: nobody is passed over again and again while others have the lock.
//!
//! Processes that queue for a lock have it in the order in which they came. What may come first all the same is bounded: a
//! call whose first ask finds the lock free, a call that was in the queue sooner than one that began before it, those behind
//! a head that does not come in time, and whoever comes while a lease runs out. A turn is from one acquire at the server to
//! the next by another process: what is passed on in memory is of the same turn, and so is what a process takes again soon.

use super::Events;
use super::record::{MACHINE, MS, Outcome, Record, Trail};
use super::sides::is_side;
use super::waits::{Bounds, Span, calls, covered, stalls};
use std::collections::HashMap;

/// A call that waited while others had so many turns that they began to wait for later than it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) name: u8,
    pub(crate) at: u64,
    pub(crate) turns: usize,
    pub(crate) waited: u64,
}

/// An acquire at the server.
struct Turn {
    process: usize,
    owner: u64,
    began: u64,
    at: u64,
}

/// So soon: half of it may pass until it asks again, the rest until it is answered.
const TURN: u64 = MS;

/// A process that stood still needs so long after that until it has asked again.
const WAKES: u64 = 20 * MS;

/// Calls that were passed over for longer and more often than they may, where nothing disturbed them. How long: until the
/// last of those turns, for a lock that nobody gets passes nobody over. Their processes queue once for all their threads: who has a turn comes last after it, so that what
/// is counted begins anew.
pub(crate) fn passed_over(trails: &[Trail], events: &Events, bounds: &Bounds) -> Vec<Passed> {
    let (turns, stalls) = (turns(trails), stalls(trails));
    let mut found = Vec::new();
    for trail in trails.iter().filter(|trail| trail.queues) {
        let deaf = events.deaf(trail.process);
        let disturbed = [&deaf, &stalls[&trail.process], &stalls[&MACHINE]].map(Vec::as_slice);
        for call in calls(trail).iter().filter(|call| has_place(call.begin)) {
            let (name, at, until) = (call.begin.name, call.begin.at, call.done.map_or(trail.until, |done| done.at));
            let turns = turns.get(&name).map_or(&[][..], Vec::as_slice);
            for ((at, until), others) in stretches(turns, trail.process, (at, until.max(at))) {
                let later = others.iter().filter(|turn| turn.process != trail.process && turn.began > at);
                let later: Vec<_> = later.filter(|turn| !is_disturbed(turn.at, &disturbed)).collect();
                let last = later.last().map_or(at, |turn| turn.at.min(until));
                let waited = last - at - covered((at, last), &disturbed);
                let is_too_much = waited > bounds.passed && later.len() > bounds.passes;
                found.extend(is_too_much.then_some(Passed { name, at, turns: later.len(), waited }));
            }
        }
    }
    found
}

/// When a process waited for its next turn, and the turns of others then.
fn stretches(turns: &[Turn], process: usize, (at, until): Span) -> impl Iterator<Item = (Span, &[Turn])> {
    let first = turns.partition_point(|turn| turn.at <= at);
    let during = &turns[first..first.max(turns.partition_point(|turn| turn.at < until))];
    let mut from = at;
    during.split_inclusive(move |turn| turn.process == process).map(move |others| {
        let own = others.last().filter(|turn| turn.process == process);
        let span = (from, own.map_or(until, |turn| turn.at));
        from = span.1;
        (span, others)
    })
}

/// A try takes no place in the queue, and read-write locks have none.
fn has_place(call: &Record) -> bool {
    call.op.waits() && call.depth == 0 && !is_side(call.name)
}

pub(super) fn is_disturbed(at: u64, by: &[&[Span]]) -> bool {
    by.iter().flat_map(|spans| spans.iter()).any(|&(from, to)| (from..=to + WAKES).contains(&at))
}

/// The turns of each name in order, of those who queue.
fn turns(trails: &[Trail]) -> HashMap<u8, Vec<Turn>> {
    let mut found = HashMap::<u8, Vec<Turn>>::new();
    for trail in trails.iter().filter(|trail| trail.queues) {
        for call in calls(trail).iter().filter(|call| has_place(call.begin)) {
            if let Some(done) = call.done.filter(|done| done.outcome == Outcome::Yes) {
                let turn = Turn { process: trail.process, owner: done.owner, began: call.begin.at, at: done.at };
                found.entry(done.name).or_default().push(turn);
            }
        }
    }
    for turns in found.values_mut() {
        turns.sort_unstable_by_key(|turn| turn.at);
        turns.dedup_by_key(|turn| turn.owner);
        turns.dedup_by(|again, turn| again.process == turn.process && again.at < turn.at + TURN);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Deaf;
    use super::super::record::{Kind, Op};
    use super::*;

    const NONE: [usize; 0] = [];

    fn acquired(from: u64, to: u64, owner: u64) -> [Record; 2] {
        let begin = Record { at: from * MS, kind: Kind::Call, op: Op::Lock, ..Record::default() };
        [begin, Record { at: to * MS, kind: Kind::Done, outcome: Outcome::Yes, depth: 1, owner, ..begin }]
    }

    fn process(process: usize, records: &[Record]) -> Trail {
        Trail { process, queues: true, until: 1_000 * MS, records: records.to_vec(), ..Trail::default() }
    }

    /// Two others have it in turn, ten times, each with an owner of its own; `began`: how long before.
    fn others(began: u64) -> [Trail; 2] {
        [1, 2].map(|number| {
            let turns = (0..5).map(|turn| 100 + 20 * turn + 10 * number);
            let records: Vec<_> = turns.flat_map(|at| acquired(at - began, at, at)).collect();
            process(number as usize, &records)
        })
    }

    fn found(waiter: Trail, others: [Trail; 2], rough: &[Span], passes: usize) -> Vec<usize> {
        let deaf = rough.iter().map(|&span| Deaf { process: Some(0), span }).collect();
        let deaf = Events { deaf, ..Events::default() };
        let ([one, other], bounds) = (others, Bounds { passes, passed: 50 * MS, ..Bounds::default() });
        passed_over(&[waiter, one, other], &deaf, &bounds).iter().map(|passed| passed.turns).collect()
    }

    #[test]
    fn who_is_passed_over_too_often_is_found() {
        let waiter = || process(0, &acquired(80, 500, 1));
        assert_eq!(found(waiter(), others(5), &[], 9), [10]);
        assert_eq!(found(waiter(), others(5), &[], 10), NONE);
        let under_way = process(0, &acquired(80, 0, 1)[..1]);
        assert_eq!(found(under_way, others(5), &[], 9), [10]);
        assert_eq!(found(process(0, &acquired(80, 145, 1)), others(5), &[], 2), [4]);
        assert_eq!(found(process(0, &acquired(95, 145, 1)), others(5), &[], 2), NONE, "it did not wait for long");
    }

    /// Another thread of its process is given the lock at 155.
    #[test]
    fn what_is_counted_begins_anew_with_a_turn_of_its_process() {
        let [one, other] = others(5);
        let trails = [process(0, &acquired(80, 500, 1)), process(0, &acquired(81, 155, 2)), one, other];
        for (passes, expected) in [(3, vec![5, 4, 5]), (4, vec![5, 5]), (5, vec![])] {
            let bounds = Bounds { passes, passed: 40 * MS, ..Bounds::default() };
            let found = passed_over(&trails, &Events::default(), &bounds);
            assert_eq!(found.iter().map(|passed| passed.turns).collect::<Vec<_>>(), expected, "{passes} are allowed");
        }
    }

    /// The others had it until 200.
    #[test]
    fn how_long_nobody_had_it_does_not_count() {
        assert_eq!(found(process(0, &acquired(145, 500, 1)), others(5), &[], 0), [5]);
        assert_eq!(found(process(0, &acquired(155, 500, 1)), others(5), &[], 0), NONE);
    }

    #[test]
    fn those_who_came_before_pass_nobody_over() {
        assert_eq!(found(process(0, &acquired(105, 500, 1)), others(100), &[], 0), NONE);
    }

    #[test]
    fn what_is_passed_on_in_memory_is_one_turn() {
        let one = process(1, &[acquired(90, 100, 7), acquired(95, 101, 7), acquired(96, 102, 7)].concat());
        assert_eq!(found(process(0, &acquired(40, 500, 1)), [one, process(2, &[])], &[], 0), [1]);
    }

    /// The fourth comes a turn after the first.
    #[test]
    fn what_is_taken_again_soon_is_of_one_turn() {
        let taken = |us: u64| acquired(90, 100, us).map(|record| Record { at: record.at + us * 1_000, ..record });
        let one = process(1, &[100, 400, 999, 1_100].map(taken).concat());
        assert_eq!(found(process(0, &acquired(40, 500, 1)), [one, process(2, &[])], &[], 0), [2]);
    }

    #[test]
    fn who_stands_still_or_does_not_queue_is_not_passed_over() {
        let stall = Record { at: 200 * MS, kind: Kind::Stall, value: 110 * MS, ..Record::default() };
        let stopped = process(0, &[&acquired(80, 500, 1)[..1], &[stall], &acquired(80, 500, 1)[1..]].concat());
        assert_eq!(found(stopped, others(5), &[], 0), NONE);
        let waiter = process(0, &acquired(80, 500, 1));
        assert_eq!(found(waiter.clone(), others(5), &[(90 * MS, 200 * MS)], 0), NONE);
        assert_eq!(found(Trail { queues: false, ..waiter.clone() }, others(5), &[], 0), NONE);
        assert_eq!(found(waiter, others(5).map(|other| Trail { queues: false, ..other }), &[], 0), NONE);
    }
}
