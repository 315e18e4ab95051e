//! C3: the levels of a hold, as an automaton of each thread and name.
//!
//! An acquire that says yes opens one level, a release closes one whatever it says, and nothing else changes their
//! number, but for the end of the thread. Who has none is told `NotHeld`, and only he. After the outermost release the hold is not valid.

use super::answers::describe;
use super::record::{Kind, Outcome, Record, Trail};
use std::collections::HashMap;

pub(crate) fn mistakes(trails: &[Trail]) -> Vec<(u64, String)> {
    trails.iter().flat_map(|trail| of_one(&trail.records)).collect()
}

fn of_one(records: &[Record]) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut levels = HashMap::<u8, u8>::new();
    for record in records {
        let level = levels.entry(record.name).or_default();
        match record.kind {
            Kind::Done => {
                let not_held = record.outcome == Outcome::NotHeld;
                let expected = match record {
                    _ if record.op.acquires() && record.outcome == Outcome::Yes => *level + 1,
                    _ if record.op.releases() => level.saturating_sub(1),
                    _ => *level,
                };
                let wrongly_told = not_held != (*level == 0) && (record.op.releases() || not_held);
                if record.depth != expected || wrongly_told {
                    found.push((record.at, format!("{level} levels, then {}", describe(record))));
                }
                *level = record.depth;
            }
            Kind::Ended => *level = 0,
            Kind::Over if record.valid => {
                found.push((record.at, format!("lock {} is valid after its release", record.name)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::Op;
    use super::*;

    fn done(op: Op, outcome: Outcome, depth: u8) -> Record {
        Record { kind: Kind::Done, op, outcome, depth, ..Record::default() }
    }

    #[test]
    fn levels_go_up_and_down() {
        let good = [
            done(Op::Lock, Outcome::Yes, 1),
            done(Op::Try, Outcome::Yes, 2),
            done(Op::Try, Outcome::Lost, 2),
            done(Op::Unlock, Outcome::Unknown, 1),
            done(Op::Extend, Outcome::Yes, 1),
            done(Op::Drop, Outcome::Yes, 0),
            done(Op::Again, Outcome::NotHeld, 0),
        ];
        assert_eq!(of_one(&good), []);
    }

    #[test]
    fn the_end_of_a_thread_closes_all_levels() {
        let ended = Record { kind: Kind::Ended, ..Record::default() };
        let again = done(Op::Group, Outcome::Yes, 1);
        assert_eq!(of_one(&[done(Op::Group, Outcome::Yes, 1), ended, again]), []);
        assert_eq!(of_one(&[done(Op::Group, Outcome::Yes, 1), again]).len(), 1);
    }

    #[test]
    fn what_does_not_fit_is_found() {
        let bad: [&[Record]; 6] = [
            &[done(Op::Lock, Outcome::Yes, 2)],
            &[done(Op::Try, Outcome::No, 1)],
            &[done(Op::Lock, Outcome::Yes, 1), done(Op::Unlock, Outcome::Yes, 1)],
            &[done(Op::Lock, Outcome::Yes, 1), done(Op::Unlock, Outcome::NotHeld, 0)],
            &[done(Op::Unlock, Outcome::Yes, 0)],
            &[Record { kind: Kind::Over, valid: true, ..Record::default() }],
        ];
        for records in bad {
            assert_eq!(of_one(records).len(), 1, "{records:?}");
        }
    }

    #[test]
    fn names_are_counted_apart() {
        let other = Record { name: 1, ..done(Op::Lock, Outcome::Yes, 1) };
        assert_eq!(of_one(&[done(Op::Lock, Outcome::Yes, 1), other]), []);
    }
}
