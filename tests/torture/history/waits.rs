//! C5: no call outlives its budget, and no waiter sleeps beside a lock that is free.
//!
//! A process that stands still, because it was stopped or the machine was busy, cannot return: what its heartbeat
//! missed is taken off, and what the orchestrator's missed, which no nemesis stops. Likewise the time in which a nemesis kept the server out of reach.

use super::Events;
use super::record::{Kind, MACHINE, MS, Op, Outcome, Record, Trail};
use super::shares::Shares;
use super::sides::{is_read, is_write, number, read};
use std::collections::HashMap;

/// From when to when.
pub(crate) type Span = (u64, u64);

/// How much later than its budget a call may come back: its last word to the server may take one response time-out. What the
/// machine then takes to run the thread counts as a stall only if a heartbeat, of 5 ms, came 8 ms late.
const LATE: u64 = (250 + 13) * MS;

/// Nothing is taken off what is shorter: it is in time anyway, and most calls are.
const SHORT: u64 = MS;

#[derive(Default)]
pub(crate) struct Bounds {
    /// How long a waiter may sleep beside a free lock.
    pub(crate) free: u64,
    /// The longest lease.
    pub(crate) lease: u64,
    /// How long an attempt may be executed.
    pub(crate) response: u64,
    /// How often a call may be passed over that waits for longer than `passed`.
    pub(crate) passes: usize,
    pub(crate) passed: u64,
    /// A server that lost its data grants nothing until every forgotten lease is over.
    pub(crate) strict: bool,
    /// All replicas confirm each grant: no failover takes a lock away.
    pub(crate) replicated: bool,
    /// A writer that is gone keeps readers out for two of them.
    pub(crate) poll: u64,
    /// Of each semaphore: a server may forget that its permits are out, and they are given out again.
    pub(crate) forgets_permits: [bool; 2],
}

impl Bounds {
    pub(crate) fn forgets_permits(&self, semaphore: u8) -> bool {
        self.forgets_permits[usize::from(semaphore)]
    }

    pub(crate) fn quarantine(&self) -> Option<u64> {
        self.strict.then_some(self.lease)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) op: Op,
    pub(crate) name: u8,
    pub(crate) at: u64,
    /// How long it took, or the lock was free beside it, stalls taken off.
    pub(crate) took: u64,
    pub(crate) allowed: u64,
}

/// So many calls of a thread are under way at most: those of one group.
const MEMBERS: usize = 8;

/// A call from its begin to its end. `None`: it never came back.
pub(super) struct Call<'a> {
    pub(super) begin: &'a Record,
    pub(super) done: Option<&'a Record>,
}

pub(super) fn calls(trail: &Trail) -> Vec<Call<'_>> {
    let mut found: Vec<Call<'_>> = Vec::new();
    for record in &trail.records {
        match record.kind {
            Kind::Call => found.push(Call { begin: record, done: None }),
            Kind::Done => {
                let is_open = |call: &&mut Call<'_>| call.done.is_none() && call.begin.name == record.name;
                let open = found.iter_mut().rev().take(MEMBERS).find(is_open);
                open.into_iter().for_each(|call| call.done = Some(record));
            }
            _ => {}
        }
    }
    found
}

/// The stalls of each process.
pub(super) fn stalls(trails: &[Trail]) -> HashMap<usize, Vec<Span>> {
    let mut found = HashMap::<usize, Vec<Span>>::from([(MACHINE, Vec::new())]);
    for trail in trails {
        let of_trail = trail.records.iter().filter(|record| record.kind == Kind::Stall);
        found.entry(trail.process).or_default().extend(of_trail.map(|stall| (stall.at - stall.value, stall.at)));
    }
    found
}

/// How much of a span is covered by any of the others, which may lie over each other.
pub(super) fn covered(span: Span, by: &[&[Span]]) -> u64 {
    if span.1 - span.0 < SHORT {
        return 0;
    }
    let mut parts: Vec<_> = by.iter().flat_map(|spans| spans.iter()).map(|&part| cut(part, span)).collect();
    parts.sort_unstable();
    let (mut sum, mut end) = (0, span.0);
    for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
        sum += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    sum
}

fn cut((from, to): Span, (low, high): Span) -> Span {
    (from.clamp(low, high), to.clamp(low, high))
}

/// Calls that took longer than they may, and the longest of each kind, stalls taken off.
pub(crate) fn overdue(trails: &[Trail]) -> (Vec<Late>, HashMap<Op, u64>) {
    let (mut found, mut longest) = (Vec::new(), HashMap::<Op, u64>::new());
    let stalls = stalls(trails);
    for trail in trails {
        for call in calls(trail) {
            let (op, name, at) = (call.begin.op, call.begin.name, call.begin.at);
            let Some(done) = call.done else {
                if !trail.killed {
                    found.push(Late { op, name, at, took: u64::MAX, allowed: call.begin.value * MS });
                }
                continue;
            };
            let took = done.at - at - covered((at, done.at), &[&stalls[&trail.process], &stalls[&MACHINE]]);
            let allowed = call.begin.value * MS + LATE;
            let most = longest.entry(op).or_default();
            *most = took.max(*most);
            let late = call.begin.value > 0 && took > allowed;
            found.extend(late.then_some(Late { op, name, at, took, allowed }));
        }
    }
    (found, longest)
}

/// Waiters that slept beside a free lock for longer than they may, the time of nemeses taken off.
pub(crate) fn missed(trails: &[Trail], events: &Events, bounds: &Bounds) -> Vec<Late> {
    let (kept, stalls) = (kept(trails, bounds.lease), stalls(trails));
    let (shares, busy) = (Shares::new(trails, &kept, bounds.poll), busy(&kept));
    let mut found = Vec::new();
    for trail in trails {
        // What a group waits for is one member, and the log does not say which.
        let alone = |call: &&Call<'_>| call.begin.op.acquires() && !call.begin.op.is_of_group();
        for call in calls(trail).iter().filter(alone) {
            let waits = (call.begin.at, call.done.map_or(trail.until, |done| done.at));
            if call.begin.depth > 0 || waits.1.saturating_sub(waits.0) <= bounds.free {
                continue;
            }
            let (op, name) = (call.begin.op, call.begin.name);
            let (rough, kept_out) = (events.rough(name), shares.kept_out(name));
            for gap in gaps(busy.get(&name).map_or(&[], Vec::as_slice), waits) {
                let others = kept_out(gap);
                let disturbed = [&others, &rough, &stalls[&trail.process], &stalls[&MACHINE]].map(Vec::as_slice);
                let (took, at) = ((gap.1 - gap.0).saturating_sub(covered(gap, &disturbed)), gap.0);
                found.extend((took > bounds.free).then_some(Late { op, name, at, took, allowed: bounds.free }));
            }
        }
    }
    found
}

/// When a name's key was, or may have been, on the server for a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) name: u8,
    /// Zero where it is not known.
    pub(super) owner: u64,
    pub(super) span: Span,
}

fn kept(trails: &[Trail], lease: u64) -> Vec<Kept> {
    let mut found = Vec::new();
    for trail in trails {
        held(&trail.records, lease, |name, owner, span| found.push(Kept { name, owner, span }));
        // What was granted to one that was killed may not be in its log.
        let calls = calls(trail).into_iter().filter(|_| !trail.empty_handed);
        let granted = calls.filter(|call| call.done.is_none() && call.begin.op.acquires());
        let span = (trail.until, trail.until + lease);
        found.extend(granted.map(|call| Kept { name: call.begin.name, owner: 0, span }));
    }
    found
}

/// When each name's key was, or may have been, on the server; that of a read-write lock for a writer.
fn busy(kept: &[Kept]) -> HashMap<u8, Vec<Span>> {
    let mut found = HashMap::<u8, Vec<Span>>::new();
    for &Kept { name, span, .. } in kept.iter().filter(|kept| !is_read(kept.name)) {
        found.entry(name).or_default().push(span);
    }
    found.values_mut().for_each(|spans| *spans = joined(std::mem::take(spans)));
    let of_writers: Vec<_> = found.iter().filter(|(name, _)| is_write(**name)).collect();
    let of_readers: Vec<_> = of_writers.iter().map(|(name, spans)| (read(number(**name)), (*spans).clone())).collect();
    found.extend(of_readers);
    found
}

/// In order, without overlaps.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut().filter(|last| span.0 <= last.1) {
            Some(last) => last.1 = last.1.max(span.1),
            None => joined.push(span),
        }
    }
    joined
}

/// A key outlives its holder by a lease when nobody knows whether it was released.
fn held(records: &[Record], lease: u64, mut note: impl FnMut(u8, u64, Span)) {
    let mut open = HashMap::<u8, (u64, u64, u64)>::new();
    for record in records {
        match record.kind {
            Kind::Done if record.op.acquires() && record.outcome == Outcome::Yes && record.depth == 1 => {
                open.insert(record.name, (record.at, record.at, record.owner));
            }
            Kind::Done if record.op.acquires() && record.depth == 0 && may_have_it(record.outcome) => {
                note(record.name, 0, (record.at, record.at + 2 * lease));
            }
            Kind::Check if record.valid => {
                if let Some(open) = open.get_mut(&record.name) {
                    open.1 = record.deadline;
                }
            }
            // A renewal may have been under way.
            Kind::Ended => {
                if let Some((from, until, owner)) = open.remove(&record.name) {
                    note(record.name, owner, (from, until.max(record.at) + lease));
                }
            }
            Kind::Done if record.op.releases() && record.depth == 0 => {
                let sure = record.op == Op::Unlock && matches!(record.outcome, Outcome::Yes | Outcome::Lost);
                if let Some((from, until, owner)) = open.remove(&record.name) {
                    note(record.name, owner, (from, if sure { record.at } else { until.max(record.at) + lease }));
                }
            }
            _ => {}
        }
    }
    for (name, (from, until, owner)) in open {
        note(name, owner, (from, until + lease));
    }
}

/// Whether something may have been granted all the same; not to what was not asked for.
fn may_have_it(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::No | Outcome::Config)
}

/// What of a span is not covered by others, which are in order and apart.
fn gaps(busy: &[Span], span: Span) -> Vec<Span> {
    let mut found = Vec::new();
    let mut free_from = span.0;
    let first = busy.partition_point(|&(_, to)| to <= span.0);
    for &(from, to) in busy[first..].iter().take_while(|(from, _)| *from < span.1) {
        if from > free_from {
            found.push((free_from, from));
        }
        free_from = free_from.max(to);
    }
    if free_from < span.1 {
        found.push((free_from, span.1));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::names::During;
    use super::*;

    fn record(at: u64, kind: Kind, op: Op) -> Record {
        Record { at: at * MS, kind, op, ..Record::default() }
    }

    fn call(from: u64, to: u64, op: Op, budget: u64) -> [Record; 2] {
        [Record { value: budget, ..record(from, Kind::Call, op) }, record(to, Kind::Done, op)]
    }

    fn trail(records: &[Record]) -> Trail {
        Trail { records: records.to_vec(), ..Trail::default() }
    }

    #[test]
    fn a_call_may_take_its_budget_and_a_little_more() {
        let in_time = trail(&call(0, 563, Op::TryFor, 300));
        assert_eq!(overdue(&[in_time]).0, []);
        let late = trail(&call(0, 564, Op::TryFor, 300));
        let (found, longest) = overdue(std::slice::from_ref(&late));
        assert_eq!((found.len(), longest[&Op::TryFor]), (1, 564 * MS));
        let stall = trail(&[Record { value: 2 * MS, ..record(100, Kind::Stall, Op::Lock) }]);
        assert_eq!(overdue(&[late, stall]).0, []);
        assert_eq!(overdue(&[trail(&call(0, 9_000, Op::Lock, 0))]).0, []);
    }

    #[test]
    fn a_call_that_never_came_back_is_found() {
        let hung = trail(&call(0, 1, Op::Lock, 0)[..1]);
        assert_eq!(overdue(std::slice::from_ref(&hung)).0.len(), 1);
        assert_eq!(overdue(&[Trail { killed: true, ..hung }]).0, []);
    }

    #[test]
    fn each_member_of_a_group_is_a_call_of_its_own() {
        let named = |at, kind, name| Record { name, ..record(at, kind, Op::Group) };
        let begun = [named(0, Kind::Call, 1), named(0, Kind::Call, 2)];
        let trail = trail(&[&begun[..], &[named(5, Kind::Done, 1), named(6, Kind::Done, 2)]].concat());
        let took: Vec<_> =
            calls(&trail).iter().map(|call| call.done.map(|done| (call.begin.name, done.at / MS))).collect();
        assert_eq!(took, [Some((1, 5)), Some((2, 6))]);
    }

    #[test]
    fn covered_time_is_counted_once() {
        assert_eq!(covered((10 * MS, 20 * MS), &[&[(0, 12 * MS), (11 * MS, 13 * MS)], &[(18 * MS, 30 * MS)]]), 5 * MS);
        assert_eq!(covered((10 * MS, 20 * MS), &[&[(0, 5 * MS)]]), 0);
    }

    #[test]
    fn gaps_are_what_is_between() {
        assert_eq!(gaps(&[(0, 5), (10, 20), (25, 30)], (3, 28)), [(5, 10), (20, 25)]);
        assert_eq!(gaps(&[(10, 20)], (0, 30)), [(0, 10), (20, 30)]);
        assert_eq!(gaps(&[], (0, 30)), [(0, 30)]);
        assert_eq!(gaps(&[(0, 50)], (10, 30)), []);
    }

    fn acquired(at: u64) -> Record {
        Record { outcome: Outcome::Yes, depth: 1, ..record(at, Kind::Done, Op::Lock) }
    }

    /// One holds from 0 to 100, another waits from 50 until it is given the lock.
    fn missed_by(until: u64, release: Op, rough: &[Span]) -> usize {
        let out = Record { outcome: Outcome::Yes, ..record(100, Kind::Done, release) };
        let holder = trail(&[acquired(0), out]);
        let waiter = trail(&[record(50, Kind::Call, Op::Lock), acquired(until)]);
        let rough = rough.iter().copied().map(During::of_all).collect();
        missed(
            &[holder, waiter],
            &Events { rough, ..Events::default() },
            &Bounds { free: 500 * MS, lease: 300 * MS, ..Bounds::default() },
        )
        .len()
    }

    #[test]
    fn a_waiter_beside_a_free_lock_is_found() {
        assert_eq!(missed_by(600, Op::Unlock, &[]), 0);
        assert_eq!(missed_by(601, Op::Unlock, &[]), 1);
        assert_eq!(missed_by(601, Op::Unlock, &[(200 * MS, 300 * MS)]), 0);
        assert_eq!(missed_by(900, Op::Drop, &[]), 0, "a drop does not say whether it released");
        assert_eq!(missed_by(901, Op::Drop, &[]), 1);
    }
    /// One holds from 0 to 100, a second is killed at 200 while it waits, a third is given the lock at 701.
    #[test]
    fn what_was_granted_to_one_that_was_killed_may_not_be_in_its_log() {
        let out = Record { outcome: Outcome::Yes, ..record(100, Kind::Done, Op::Unlock) };
        let (holder, waits) = (trail(&[acquired(0), out]), record(50, Kind::Call, Op::Lock));
        let bounds = Bounds { free: 500 * MS, lease: 300 * MS, ..Bounds::default() };
        for empty_handed in [false, true] {
            let killed = Trail { killed: true, until: 200 * MS, empty_handed, ..trail(&[waits]) };
            let found = missed(&[holder.clone(), killed, trail(&[waits, acquired(701)])], &Events::default(), &bounds);
            assert_eq!(found.len(), usize::from(empty_handed));
        }
    }
}
