//! C8: what is written while a lock is held, by commands that the server runs only if the hold is there, to a list beside the lock.
//!
//! The list that is left in the end was written at one master after the other, each of which went on from the data of the last. So
//! whatever failovers lost of it, what it has stands in the order of holds, and no two believers excuse another one. Who writes has the
//! lock in that data: it is never older than whoever wrote before.

use super::excuses::Excuses;
use super::record::{Kind, Op, Outcome, Record, Trail};
use std::collections::HashMap;

/// What a list has of each lock: the numbers of writes.
pub(crate) type Lists = Vec<Vec<u64>>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Calls that said that it was written, and those that did not know.
    pub(crate) written: usize,
    pub(crate) unknown: usize,
    /// Those that said that it was not, for the hold was over.
    pub(crate) lost: usize,
    pub(crate) wrong: Vec<(u64, String)>,
}

/// When a hold may have been put back, and when what was written may be lost.
pub(crate) struct Around {
    /// Locks were taken away.
    pub(crate) taken: Excuses,
    /// Data was lost.
    pub(crate) lost: Excuses,
    /// So long after its acquire was answered another copy of it may still be executed.
    pub(crate) response: u64,
}

/// One call and its hold.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) number: u64,
    pub(super) name: u8,
    pub(super) trail: usize,
    pub(super) called: u64,
    /// Never, if it did not return.
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
    /// When the acquire of its hold was called, and when that returned.
    pub(super) asked: u64,
    pub(super) had: u64,
    /// When its release began.
    over: u64,
}

/// What came before in the list.
#[derive(Default)]
struct Before {
    asked: u64,
    had: u64,
    /// Of each thread.
    called: HashMap<usize, u64>,
}

pub(crate) fn tally(trails: &[Trail], lists: &[Vec<u64>], around: &Around) -> Tally {
    let writes = writes(trails);
    let mut times = HashMap::<u64, usize>::new();
    lists.iter().flatten().for_each(|number| *times.entry(*number).or_default() += 1);
    let count = |outcome| writes.iter().filter(|write| write.outcome == outcome).count();
    let mut tally = Tally {
        written: count(Outcome::Yes),
        unknown: count(Outcome::Unknown),
        lost: count(Outcome::Lost),
        wrong: Vec::new(),
    };
    for write in &writes {
        let times = times.get(&write.number).copied().unwrap_or_default();
        tally.wrong.extend(miscounted(write, times, around).map(|what| (write.called, what)));
    }
    let of_number: HashMap<_, _> = writes.iter().map(|write| (write.number, write)).collect();
    for list in lists {
        let mut before = Before::default();
        let known = list.iter().filter_map(|number| of_number.get(number));
        tally.wrong.extend(known.filter_map(|write| Some((write.called, before.take(write, around)?))));
    }
    tally
}

/// The calls of all threads.
pub(crate) fn writes(trails: &[Trail]) -> Vec<Write> {
    trails.iter().enumerate().flat_map(|(trail, of)| of_one(trail, &of.records)).collect()
}

/// The calls of a thread.
fn of_one(trail: usize, records: &[Record]) -> Vec<Write> {
    let (mut writes, mut asked, mut holds) = (Vec::<Write>::new(), HashMap::new(), HashMap::new());
    for &Record { at, kind, op, outcome, name, depth, owner: number, .. } in records {
        match kind {
            Kind::Call if op.acquires() => _ = asked.insert(name, at),
            Kind::Done if op.acquires() && depth == 1 && outcome == Outcome::Yes => {
                holds.insert(name, (asked.get(&name).copied().unwrap_or(at), at));
            }
            Kind::Call if op.releases() && depth == 1 => {
                let (_, had) = holds.get(&name).copied().unwrap_or_default();
                let of_hold = writes.iter_mut().rev().take_while(|write| write.called >= had);
                of_hold.filter(|write| write.name == name).for_each(|write| write.over = at);
            }
            Kind::Call if op == Op::Commands => {
                let (asked, had) = holds.get(&name).copied().unwrap_or_default();
                let (called, returned, outcome, over) = (at, u64::MAX, Outcome::Unknown, u64::MAX);
                writes.push(Write { number, name, trail, called, returned, outcome, asked, had, over });
            }
            Kind::Done if op == Op::Commands => {
                writes.last_mut().into_iter().for_each(|write| (write.returned, write.outcome) = (at, outcome));
            }
            _ => {}
        }
    }
    writes
}

/// What a call said, and how often it is there.
fn miscounted(write: &Write, times: usize, around: &Around) -> Option<String> {
    let may_be_gone = || around.lost.touch(write.name, (write.called, u64::MAX));
    let is_well = match write.outcome {
        Outcome::Yes => times == 1 || (times == 0 && may_be_gone()),
        Outcome::Unknown => times <= 1,
        _ => times == 0,
    };
    (!is_well).then(|| format!("what said {:?} was written {times} times under lock {}", write.outcome, write.name))
}

impl Before {
    /// The next in the list, and whether it comes too late.
    fn take(&mut self, write: &Write, around: &Around) -> Option<String> {
        let called = self.called.entry(write.trail).or_default();
        let may_be_back = || around.taken.touch(write.name, (write.asked, write.had + around.response));
        let why = if write.returned < *called {
            Some("the next of its own thread")
        } else if write.over <= self.had {
            Some("one of a hold that came after its release")
        } else if write.had < self.asked && !may_be_back() {
            Some("one of a later hold")
        } else {
            None
        };
        *called = write.called.max(*called);
        self.asked = self.asked.max(write.asked);
        self.had = self.had.max(write.had);
        why.map(|why| format!("under lock {} a write came after {why}", write.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of a thread that asks, has, writes and gives up at these times.
    fn turn(number: u64, times: [u64; 5], outcome: Outcome) -> Vec<Record> {
        let record = |at, kind, op, outcome, depth| Record { at, kind, op, outcome, depth, ..Record::default() };
        let [asked, had, called, returned, over] = times;
        vec![
            record(asked, Kind::Call, Op::Lock, Outcome::None, 0),
            record(had, Kind::Done, Op::Lock, Outcome::Yes, 1),
            Record { owner: number, ..record(called, Kind::Call, Op::Commands, Outcome::None, 1) },
            record(returned, Kind::Done, Op::Commands, outcome, 1),
            record(over, Kind::Call, Op::Unlock, Outcome::None, 1),
        ]
    }

    fn trail(turns: &[Vec<Record>]) -> Trail {
        Trail { records: turns.concat(), ..Trail::default() }
    }

    fn around(taken: &[(u64, u64)]) -> Around {
        let excuses = || Excuses::new(taken, &[], &[], 0);
        Around { taken: excuses(), lost: excuses(), response: 5 }
    }

    fn count(trails: &[Trail], list: &[u64], taken: &[(u64, u64)]) -> usize {
        tally(trails, &[list.to_vec()], &around(taken)).wrong.len()
    }

    #[test]
    fn what_was_answered_is_there_once_unless_data_was_lost() {
        for (outcome, well) in [
            (Outcome::Yes, [false, true, false]),
            (Outcome::Unknown, [true, true, false]),
            (Outcome::Lost, [true, false, false]),
            (Outcome::Unavailable, [true, false, false]),
        ] {
            let one = [trail(&[turn(7, [1, 2, 3, 4, 5], outcome)])];
            let found =
                [&[][..], &[7], &[7, 7]].map(|list| tally(&one, &[list.to_vec()], &around(&[])).wrong.is_empty());
            assert_eq!(found, well, "{outcome:?}");
        }
        let one = [trail(&[turn(7, [11, 12, 13, 14, 15], Outcome::Yes)])];
        assert_eq!((count(&one, &[], &[(14, 16)]), count(&one, &[], &[(1, 10)])), (0, 1));
    }

    #[test]
    fn a_later_hold_writes_later() {
        let two =
            [trail(&[turn(1, [1, 2, 3, 90, 91], Outcome::Yes)]), trail(&[turn(2, [10, 11, 12, 13, 14], Outcome::Yes)])];
        assert_eq!((count(&two, &[1, 2], &[]), count(&two, &[2, 1], &[])), (0, 1));
        assert_eq!(count(&two, &[2, 1], &[(8, 9)]), 1, "no copy of its acquire is left by then");
        assert_eq!(count(&two, &[2, 1], &[(7, 8)]), 0, "it may have been put back");
    }

    /// Who waited for it had asked before.
    #[test]
    fn nothing_is_written_after_what_came_after_the_release() {
        let two =
            [trail(&[turn(1, [1, 5, 6, 7, 8], Outcome::Unknown)]), trail(&[turn(2, [2, 9, 10, 11, 12], Outcome::Yes)])];
        assert_eq!((count(&two, &[1, 2], &[]), count(&two, &[2, 1], &[])), (0, 1));
    }

    #[test]
    fn a_thread_writes_in_its_order() {
        let mut records = turn(1, [1, 2, 3, 4, 9], Outcome::Unknown);
        let more = turn(2, [1, 2, 5, 6, 9], Outcome::Yes);
        records.splice(4..4, more[2..4].iter().copied());
        let one = [trail(&[records])];
        assert_eq!((count(&one, &[1, 2], &[]), count(&one, &[2, 1], &[])), (0, 1));
    }

    #[test]
    fn one_that_never_came_back_may_be_there() {
        let mut records = turn(1, [1, 2, 3, 4, 5], Outcome::Yes);
        records.truncate(3);
        let one = [trail(&[records])];
        assert_eq!([&[][..], &[1], &[1, 1]].map(|list| count(&one, list, &[])), [0, 0, 1]);
    }
}
