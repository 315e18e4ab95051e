//! C11: a circle of waiting that was told had been there, whole, at one moment before.
//!
//! A member was in it from when its call for the one lock began until that returned, if it held the other one all the time. Where all take
//! locks in one order, no circle is true.

use super::record::{Kind, Record, Trail};
use super::sides::lock_of;
use super::waits::Span;
use std::collections::HashMap;

/// A circle that a worker was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) at: u64,
    pub(crate) members: Vec<Member>,
}

/// A thread of a worker. `None`: one that the logs do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) process: usize,
    pub(crate) hand: Option<usize>,
    pub(crate) holds: u8,
    pub(crate) waits: u8,
}

impl Told {
    /// A line: when, and four words for each member.
    pub(crate) fn to_line(&self) -> String {
        let members = self.members.iter().map(|Member { process, hand, holds, waits }| {
            let hand = hand.map_or(-1, |hand| hand as i64);
            format!(" {process} {hand} {holds} {waits}")
        });
        std::iter::once(self.at.to_string()).chain(members).collect::<String>() + "\n"
    }

    /// `None` for half a line, which a process leaves that is killed.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let words: Vec<i64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let (at, rest) = words.split_first()?;
        let member = |words: &[i64]| Member {
            process: words[0] as usize,
            hand: usize::try_from(words[1]).ok(),
            holds: words[2] as u8,
            waits: words[3] as u8,
        };
        (!rest.is_empty() && rest.len() % 4 == 0)
            .then(|| Self { at: *at as u64, members: rest.chunks_exact(4).map(member).collect() })
    }
}

/// Those that were never there.
pub(crate) fn untrue(trails: &[Trail], told: &[Told]) -> Vec<(u64, String)> {
    let is_untrue = |told: &&Told| moments(trails, told).is_empty();
    told.iter().filter(is_untrue).map(|told| (told.at, format!("told, and never there: {:?}", told.members))).collect()
}

/// When all members were in it, before it was told.
fn moments(trails: &[Trail], told: &Told) -> Vec<Span> {
    let each = told.members.iter().map(|member| {
        let is_its = |trail: &&Trail| trail.process == member.process && Some(trail.hand) == member.hand;
        trails.iter().find(is_its).map_or_else(Vec::new, |trail| stuck(trail, member, told.at))
    });
    each.reduce(|all, one| all.iter().flat_map(|span| one.iter().filter_map(|other| common(*span, *other))).collect())
        .unwrap_or_default()
}

fn common(one: Span, other: Span) -> Option<Span> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 < both.1).then_some(both)
}

/// When the thread held the one lock and waited for the other, from before `until` on.
fn stuck(trail: &Trail, member: &Member, until: u64) -> Vec<Span> {
    let (mut held, mut found) = (HashMap::<u8, u8>::new(), Vec::new());
    let mut begun: Option<&Record> = None;
    for record in trail.records.iter().take_while(|record| record.kind != Kind::Call || record.at < until) {
        match record.kind {
            Kind::Call if lock_of(record.name) == member.waits => {
                begun = Some(record)
                    .filter(|_| held.iter().any(|(name, depth)| lock_of(*name) == member.holds && *depth > 0));
            }
            Kind::Done => {
                let ended = begun.take_if(|begin| begin.name == record.name);
                found.extend(ended.map(|begin| (begin.at, record.at)));
                held.insert(record.name, record.depth);
            }
            Kind::Ended => drop(held.remove(&record.name)),
            _ => {}
        }
    }
    // It has not returned yet, or was killed there.
    found.extend(begun.map(|begin| (begin.at, u64::MAX)));
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::Op;
    use super::*;

    fn call(at: u64, name: u8) -> Record {
        Record { at, kind: Kind::Call, op: Op::Lock, name, ..Record::default() }
    }

    fn done(at: u64, name: u8, depth: u8) -> Record {
        Record { at, kind: Kind::Done, op: Op::Lock, name, depth, ..Record::default() }
    }

    /// Holds one lock from 10 on, and waits for another from `from` until `until`.
    fn trail(process: usize, [holds, waits]: [u8; 2], (from, until): Span) -> Trail {
        let records =
            vec![call(5, holds), done(10, holds, 1), call(from, waits), done(until, waits, 0), done(90, holds, 0)];
        Trail { process, hand: 1, records, ..Trail::default() }
    }

    fn told(at: u64) -> Told {
        let member = |process, holds, waits| Member { process, hand: Some(1), holds, waits };
        Told { at, members: vec![member(0, 0, 1), member(1, 1, 0)] }
    }

    #[test]
    fn a_circle_is_true_if_all_were_in_it_at_one_moment_before() {
        for (spans, at, is_true) in [
            ([(20, 40), (30, 50)], 45, true),
            ([(20, 40), (30, 50)], 31, true),
            ([(20, 40), (30, 50)], 30, false),
            ([(20, 30), (30, 50)], 45, false),
            ([(20, 30), (40, 50)], 45, false),
        ] {
            let trails = [trail(0, [0, 1], spans[0]), trail(1, [1, 0], spans[1])];
            assert_eq!(untrue(&trails, &[told(at)]).is_empty(), is_true, "{spans:?} told at {at}");
        }
    }

    #[test]
    fn who_does_not_hold_is_in_no_circle() {
        let mut trails = [trail(0, [0, 1], (20, 40)), trail(1, [1, 0], (20, 40))];
        assert!(untrue(&trails, &[told(45)]).is_empty());
        trails[0].records[1].depth = 0;
        assert_eq!(untrue(&trails, &[told(45)]).len(), 1, "it did not get it");
        let trails = [trail(0, [2, 1], (20, 40)), trail(1, [1, 0], (20, 40))];
        assert_eq!(untrue(&trails, &[told(45)]).len(), 1, "it holds another one");
    }

    #[test]
    fn who_was_killed_in_its_wait_was_in_it_and_a_stranger_never() {
        let mut trails = [trail(0, [0, 1], (20, 40)), trail(1, [1, 0], (20, 40))];
        trails[1].records.truncate(3);
        assert!(untrue(&trails, &[told(45)]).is_empty());
        let mut stranger = told(45);
        stranger.members[0].hand = None;
        assert_eq!(untrue(&trails, &[stranger]).len(), 1);
    }

    #[test]
    fn a_circle_comes_back_as_it_was() {
        let mut circle = told(77);
        circle.members[1].hand = None;
        assert_eq!(Told::of(circle.to_line().trim_end()), Some(circle));
        assert!(["", "7", "7 1 2 3", "7 1 2 3 x"].iter().all(|line| Told::of(line).is_none()));
    }
}
