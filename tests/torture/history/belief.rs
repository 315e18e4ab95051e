//! C1: no two threads believe at the same time that they hold the same lock, unless both read. A thread may read while it writes.
//!
//! A belief is what the log proves: it begins after the acquire returned and lasts until the release is about to be
//! sent, or until the last deadline that the holder was shown, whichever is first. A hold that was seen to be over
//! before that deadline was lost early; its belief ends with the last look that said "valid". That of a thread that ended without
//! an unlock may be over early: the last of those that share it frees it.

use super::record::{Kind, Op, Outcome, Record, Trail};
use super::sides::{is_read, lock_of};
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Belief {
    pub(crate) name: u8,
    /// When its acquire was called.
    pub(crate) asked: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Which trail.
    pub(crate) holder: usize,
    /// When that was seen.
    pub(crate) ended: u64,
    /// It was lost before its deadline.
    pub(crate) cut_short: bool,
    /// Of the hold.
    pub(crate) owner: u64,
    /// When its release returned and said that it was done. Nothing: it may be executed at any time, or never.
    pub(crate) released: Option<u64>,
}

/// A belief that began during another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) name: u8,
    pub(crate) at: u64,
    pub(crate) lasted: u64,
    pub(crate) holders: (usize, usize),
}

impl Belief {
    /// Both may be.
    fn goes_with(&self, other: &Self) -> bool {
        let (one, two) = (is_read(self.name), is_read(other.name));
        (one && two) || (one != two && self.holder == other.holder)
    }
}

#[derive(Default)]
struct Open {
    asked: u64,
    owner: u64,
    from: u64,
    seen: u64,
    until: u64,
    /// Its thread has ended.
    orphan: bool,
}

impl Open {
    fn close(&self, record: Option<&Record>, name: u8, holder: usize) -> Option<Belief> {
        let known = self.seen.max(self.until);
        let (to, cut_short) = match record {
            Some(record) if record.kind == Kind::Call => (known.min(record.at), false),
            Some(record) if record.at < self.until => (self.seen, !self.orphan),
            _ => (known, false),
        };
        let ended = record.map_or(to, |record| record.at);
        let &Self { asked, from, owner, .. } = self;
        let released = None;
        (self.seen > 0).then_some(Belief { name, asked, from, to, holder, ended, cut_short, owner, released })
    }
}

pub(crate) fn beliefs(trails: &[Trail]) -> Vec<Belief> {
    trails.iter().enumerate().flat_map(|(holder, trail)| of_one(&trail.records, holder)).collect()
}

fn of_one(records: &[Record], holder: usize) -> Vec<Belief> {
    let mut found = Vec::<Belief>::new();
    let (mut open, mut asked) = (HashMap::<u8, Open>::new(), HashMap::new());
    for record in records {
        let name = record.name;
        let over = match record.kind {
            Kind::Done if record.op.acquires() && is_outermost(record) => {
                let asked = asked.get(&name).copied().unwrap_or(record.at);
                let next = Open { asked, from: record.at, owner: record.owner, ..Open::default() };
                // A hold that was never given up is believed until its thread asks for another one.
                let given_up = Record { kind: Kind::Call, at: asked, ..*record };
                found.extend(open.insert(name, next).and_then(|last| last.close(Some(&given_up), name, holder)));
                false
            }
            Kind::Done if record.op.releases() && record.outcome == Outcome::Yes && record.depth == 0 => {
                let last = found.iter_mut().rfind(|belief| belief.name == name);
                last.into_iter().for_each(|belief| belief.released = belief.released.or(Some(record.at)));
                false
            }
            Kind::Call if record.op.acquires() => {
                asked.insert(name, record.at);
                false
            }
            Kind::Check if record.valid => {
                if let Some(open) = open.get_mut(&name) {
                    open.seen = record.at;
                    open.until = open.until.max(record.deadline);
                }
                false
            }
            Kind::Check => true,
            Kind::Ended => {
                open.entry(name).and_modify(|open| open.orphan = true);
                false
            }
            Kind::Call => record.op.releases() && record.depth == 1,
            _ => false,
        };
        if over && let Some(open) = open.remove(&name) {
            found.extend(open.close(Some(record), name, holder));
        }
    }
    found.extend(open.iter().filter_map(|(name, open)| open.close(None, *name, holder)));
    found
}

fn is_outermost(record: &Record) -> bool {
    record.depth == 1 && record.outcome == Outcome::Yes && record.op != Op::Force
}

/// By a sweep over the beliefs of each lock in the order of their beginnings: each with the longest of those that it may not be beside.
/// A belief that was over before it began is beside no other: the time-out of its reader was taken away before its acquire returned.
pub(crate) fn overlaps(mut beliefs: Vec<Belief>) -> Vec<Overlap> {
    beliefs.retain(|belief| belief.from < belief.to);
    beliefs.sort_unstable_by_key(|belief| (lock_of(belief.name), belief.from));
    let mut found = Vec::new();
    let mut open = Vec::<Belief>::new();
    for belief in beliefs {
        open.retain(|earlier| lock_of(earlier.name) == lock_of(belief.name) && earlier.to > belief.from);
        let others = open.iter().filter(|earlier| !earlier.goes_with(&belief));
        found.extend(others.max_by_key(|earlier| earlier.to).map(|earlier| {
            let lasted = earlier.to.min(belief.to).saturating_sub(belief.from);
            Overlap { name: belief.name, at: belief.from, lasted, holders: (earlier.holder, belief.holder) }
        }));
        open.push(belief);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sides::{read, write};
    use super::*;

    fn acquired(at: u64) -> Record {
        Record { at, kind: Kind::Done, op: Op::Lock, outcome: Outcome::Yes, depth: 1, ..Record::default() }
    }

    fn check(at: u64, valid: bool, deadline: u64) -> Record {
        Record { at, kind: Kind::Check, valid, deadline, depth: 1, ..Record::default() }
    }

    fn unlock(at: u64) -> Record {
        Record { at, kind: Kind::Call, op: Op::Unlock, depth: 1, ..Record::default() }
    }

    fn ends(records: &[Record]) -> Vec<(u64, u64, bool)> {
        of_one(records, 0).iter().map(|belief| (belief.from, belief.to, belief.cut_short)).collect()
    }

    #[test]
    fn what_an_ended_thread_had_may_be_over_early_and_is_believed_until_then() {
        let ended = Record { at: 12, kind: Kind::Ended, ..Record::default() };
        assert_eq!(
            ends(&[acquired(10), check(11, true, 50), ended, check(30, true, 50), check(40, false, 0)]),
            [(10, 30, false)]
        );
        assert_eq!(ends(&[acquired(10), check(11, true, 50), ended, check(60, false, 0)]), [(10, 50, false)]);
    }

    #[test]
    fn a_belief_ends_with_the_release_or_with_its_deadline() {
        assert_eq!(ends(&[acquired(10), check(11, true, 50), unlock(30)]), [(10, 30, false)]);
        assert_eq!(ends(&[acquired(10), check(11, true, 50), unlock(70)]), [(10, 50, false)]);
        assert_eq!(ends(&[acquired(10), check(11, true, 50), check(60, true, 0), unlock(70)]), [(10, 60, false)]);
        assert_eq!(ends(&[acquired(10), check(11, true, 50), check(60, false, 0)]), [(10, 50, false)]);
    }

    #[test]
    fn one_that_was_lost_early_ends_where_it_was_last_seen() {
        assert_eq!(ends(&[acquired(10), check(11, true, 50), check(20, false, 0), unlock(21)]), [(10, 11, true)]);
    }

    #[test]
    fn a_killed_thread_believed_until_its_deadline() {
        assert_eq!(ends(&[acquired(10), check(11, true, 50)]), [(10, 50, false)]);
    }

    #[test]
    fn what_was_never_seen_valid_is_no_belief() {
        assert_eq!(ends(&[acquired(10), check(11, false, 0), unlock(12)]), []);
        assert_eq!(ends(&[acquired(10)]), []);
    }

    #[test]
    fn one_that_was_never_given_up_is_believed_until_the_next_is_asked_for() {
        let asked = Record { at: 20, kind: Kind::Call, op: Op::Lock, ..Record::default() };
        let twice = [acquired(10), check(11, true, 50), asked, acquired(30), check(31, true, 60), unlock(40)];
        assert_eq!(ends(&twice), [(10, 20, false), (30, 40, false)]);
    }

    #[test]
    fn an_inner_release_ends_nothing() {
        let inner = Record { depth: 2, ..unlock(20) };
        assert_eq!(ends(&[acquired(10), check(11, true, 50), inner, unlock(30)]), [(10, 30, false)]);
    }

    fn belief(name: u8, from: u64, to: u64, holder: usize) -> Belief {
        Belief { name, from, to, holder, ended: to, ..Belief::default() }
    }

    fn count(beliefs: &[Belief]) -> usize {
        overlaps(beliefs.to_vec()).len()
    }

    #[test]
    fn readers_are_together_and_a_writer_is_alone() {
        let (one, other) = (belief(read(1), 0, 50, 0), belief(read(1), 10, 100, 1));
        assert_eq!(count(&[one, other]), 0);
        assert_eq!(count(&[one, other, belief(write(1), 90, 110, 2)]), 1, "the other one is still in");
        assert_eq!(count(&[one, other, belief(write(1), 100, 110, 2)]), 0);
        assert_eq!(count(&[belief(write(1), 0, 20, 2), one]), 1);
        assert_eq!(count(&[one, belief(write(2), 10, 20, 2), belief(1, 10, 20, 3)]), 0, "these are other locks");
    }

    #[test]
    fn a_belief_that_was_over_before_it_began_is_beside_no_other() {
        let (writes, reads) = (belief(write(1), 10, 20, 0), belief(read(1), 15, 15, 1));
        assert_eq!(count(&[writes, reads]), 0);
        assert_eq!(count(&[writes, Belief { to: 16, ..reads }]), 1);
    }

    #[test]
    fn who_writes_may_read_and_others_may_not() {
        let (writes, reads) = (belief(write(1), 0, 20, 0), belief(read(1), 10, 90, 0));
        assert_eq!(count(&[writes, reads, belief(read(1), 20, 40, 1)]), 0);
        assert_eq!(count(&[writes, reads, belief(read(1), 19, 40, 1)]), 1);
        assert_eq!(count(&[writes, belief(write(1), 10, 15, 0)]), 1, "nobody writes twice");
    }

    #[test]
    fn overlaps_are_found_by_name_and_also_behind_a_short_one() {
        let apart = vec![belief(1, 10, 20, 0), belief(1, 20, 30, 1), belief(2, 15, 25, 2)];
        assert_eq!(overlaps(apart), []);
        let long = vec![belief(1, 0, 100, 0), belief(1, 10, 20, 1), belief(1, 50, 60, 2)];
        let found: Vec<_> =
            overlaps(long).iter().map(|overlap| (overlap.at, overlap.lasted, overlap.holders)).collect();
        assert_eq!(found, [(10, 10, (0, 1)), (50, 10, (0, 2))]);
    }
}
