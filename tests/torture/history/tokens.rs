//! C2: the tokens of fenced locks grow in the order of holds, whatever became of the server, and no two holds have one.
//!
//! A hold whose acquire returned before another's began was granted before it, also if both were believed at the same time
//! because a lock was taken away: so nothing excuses a token that is not greater.

use super::record::{Kind, Outcome, Record, Trail};
use std::collections::HashMap;

/// A hold that has a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) name: u8,
    /// When its acquire was called, and when that returned.
    pub(crate) asked: u64,
    pub(crate) had: u64,
    pub(crate) token: u64,
}

pub(crate) fn out_of_order(trails: &[Trail]) -> Vec<(u64, String)> {
    let (mut found, mut grants) = (Vec::new(), HashMap::<u8, Vec<Grant>>::new());
    for trail in trails {
        for grant in of_one(&trail.records, &mut found) {
            grants.entry(grant.name).or_default().push(grant);
        }
    }
    found.extend(grants.into_values().flat_map(compare));
    found
}

/// Every hold that has a token, with its thread.
pub(super) fn grants(trails: &[Trail]) -> Vec<(usize, Grant)> {
    let of_thread = |(thread, trail): (usize, &Trail)| {
        of_one(&trail.records, &mut Vec::new()).into_iter().map(move |it| (thread, it))
    };
    trails.iter().enumerate().flat_map(of_thread).collect()
}

/// The outermost acquires of a thread. An inner level has the token of the outermost one.
fn of_one(records: &[Record], found: &mut Vec<(u64, String)>) -> Vec<Grant> {
    let (mut grants, mut asked, mut known) = (Vec::new(), HashMap::new(), HashMap::new());
    for record in records.iter().filter(|record| record.op.acquires()) {
        let Record { at, name, value: token, .. } = *record;
        match (record.kind, record.depth) {
            (Kind::Call, _) => _ = asked.insert(name, at),
            (Kind::Done, 1) if record.outcome == Outcome::Yes => {
                known.insert(name, token);
                let asked = asked.get(&name).copied().unwrap_or(at);
                grants.extend((token > 0).then_some(Grant { name, asked, had: at, token }));
            }
            (Kind::Done, 2..) if known.get(&name).is_some_and(|known| *known != token) => {
                found.push((at, format!("lock {name}: an inner level has token {token}")));
            }
            _ => {}
        }
    }
    grants
}

/// Of one lock: each with the greatest of those that were had before it was asked for.
fn compare(mut asked: Vec<Grant>) -> Vec<(u64, String)> {
    let mut had = asked.clone();
    asked.sort_unstable_by_key(|grant| grant.asked);
    had.sort_unstable_by_key(|grant| grant.had);
    let (mut before, mut greatest, mut found) = (had.iter().peekable(), 0, Vec::new());
    for Grant { name, asked, had, token } in asked {
        while let Some(earlier) = before.next_if(|earlier| earlier.had < asked) {
            greatest = greatest.max(earlier.token);
        }
        if token <= greatest {
            found.push((had, format!("lock {name}: token {token} after {greatest}")));
        }
    }
    had.sort_unstable_by_key(|grant| grant.token);
    let twice = had.windows(2).filter(|pair| pair[0].token == pair[1].token);
    found.extend(
        twice.map(|pair| (pair[1].had, format!("lock {}: two holds have token {}", pair[1].name, pair[1].token))),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::Op;
    use super::*;

    /// A thread that asks and is granted these tokens.
    fn trail(grants: &[(u64, u64, u64)]) -> Trail {
        let record =
            |at, kind, outcome, value| Record { at, kind, op: Op::Lock, outcome, value, depth: 1, ..Record::default() };
        let of_one = |&(asked, had, token)| {
            [record(asked, Kind::Call, Outcome::None, 0), record(had, Kind::Done, Outcome::Yes, token)]
        };
        Trail { records: grants.iter().flat_map(of_one).collect(), ..Trail::default() }
    }

    fn count(trails: &[Trail]) -> usize {
        out_of_order(trails).len()
    }

    #[test]
    fn tokens_that_grow_are_well_and_those_of_other_kinds_are_none() {
        assert_eq!(count(&[trail(&[(1, 2, 10), (5, 6, 12)]), trail(&[(3, 4, 11), (7, 8, 0)])]), 0);
    }

    #[test]
    fn who_asks_later_has_the_greater_token() {
        assert_eq!(count(&[trail(&[(1, 2, 10)]), trail(&[(3, 4, 9)])]), 1);
        // Who asked at the same time may have been first.
        assert_eq!(count(&[trail(&[(1, 4, 10)]), trail(&[(3, 5, 9)])]), 0);
    }

    #[test]
    fn no_two_holds_have_a_token_and_levels_have_one() {
        assert_eq!(count(&[trail(&[(1, 4, 10)]), trail(&[(3, 5, 10)])]), 1);
        let mut deeper = trail(&[(1, 2, 10), (3, 4, 10)]);
        deeper.records[3].depth = 2;
        assert_eq!(count(&[deeper.clone()]), 0);
        deeper.records[3].value = 11;
        assert_eq!(count(&[deeper]), 1);
    }
}
