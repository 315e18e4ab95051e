//! What a call must never say.

use super::record::{Kind, Op, Outcome, Record, Trail};

/// When and what.
pub(crate) fn wrong(trails: &[Trail]) -> Vec<(u64, String)> {
    let all = trails.iter().flat_map(|trail| &trail.records);
    let wrong = all.filter(|record| record.kind == Kind::Done && is_wrong(record));
    wrong.map(|record| (record.at, describe(record))).collect()
}

pub(crate) fn describe(record: &Record) -> String {
    format!("{:?} of lock {} said {:?}, levels {}", record.op, record.name, record.outcome, record.depth)
}

fn is_wrong(record: &Record) -> bool {
    let outermost = record.depth == 0;
    match record.outcome {
        _ if matches!(record.op, Op::Zero | Op::Upgrade) => record.outcome != Outcome::Config,
        _ if record.op == Op::Again => record.outcome != Outcome::NotHeld,
        Outcome::None | Outcome::Config | Outcome::Closed => true,
        // A release works without memory, and frees nothing that it does not hold.
        Outcome::RefusedOom => record.op.releases(),
        Outcome::Cancelled => record.op != Op::Cancellable && !record.op.is_of_group(),
        // Nothing was left to be unlocked, so there is nothing that could have been lost.
        Outcome::Lost => record.op.acquires() && outermost,
        // Who waits without an end is not told that the time is over.
        Outcome::No => record.op == Op::Lock,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_answers_that_are_wrong() {
        let said = |op, outcome, depth| is_wrong(&Record { op, outcome, depth, ..Record::default() });
        for (op, outcome, depth) in [
            (Op::Zero, Outcome::Yes, 1),
            (Op::Zero, Outcome::No, 0),
            (Op::Upgrade, Outcome::No, 0),
            (Op::Again, Outcome::Yes, 0),
            (Op::Unlock, Outcome::RefusedOom, 0),
            (Op::Lock, Outcome::Cancelled, 0),
            (Op::Lock, Outcome::No, 0),
            (Op::Lock, Outcome::Closed, 0),
            (Op::Try, Outcome::Lost, 0),
        ] {
            assert!(said(op, outcome, depth), "{op:?} {outcome:?}");
        }
        for (op, outcome, depth) in [
            (Op::Zero, Outcome::Config, 0),
            (Op::Upgrade, Outcome::Config, 0),
            (Op::Again, Outcome::NotHeld, 0),
            (Op::Lock, Outcome::RefusedOom, 0),
            (Op::Try, Outcome::Lost, 1),
            (Op::TryFor, Outcome::No, 0),
            (Op::Unlock, Outcome::Lost, 0),
        ] {
            assert!(!said(op, outcome, depth), "{op:?} {outcome:?}");
        }
    }
}
