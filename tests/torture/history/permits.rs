//! C10: no more permits are believed in at one time than a semaphore has, and at the end none is lost or doubled.
//!
//! A belief of leased permits is what the log proves, as that of a lock (`belief.rs`). Permits of a plain semaphore have no lease: they are
//! believed in until their release is about to be sent, and those of a killed process for ever.

use super::events::{Event, gaps};
use super::record::{Kind, Record, Trail};
use std::collections::HashMap;

/// How many permits each semaphore has.
pub(crate) const TOTAL: u64 = 5;

/// The semaphores: one of leased permits, and one without leases.
pub(crate) const LEASED: u8 = 0;
pub(crate) const COUNTED: u8 = 1;

/// Permits that were believed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Belief {
    name: u8,
    permits: u64,
    from: u64,
    to: u64,
}

/// More permits than there are, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) name: u8,
    pub(crate) at: u64,
    pub(crate) lasted: u64,
    pub(crate) permits: u64,
}

/// What the logs say of permits of the plain semaphore at the end: how many are out for certain, and how many more may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Out {
    pub(crate) surely: u64,
    pub(crate) perhaps: u64,
}

#[derive(Clone, Copy)]
struct Open {
    permits: u64,
    from: u64,
    seen: u64,
    until: u64,
}

impl Open {
    fn end(self, name: u8, record: Option<&Record>) -> Belief {
        let known = self.seen.max(self.until);
        let to = match record {
            _ if name == COUNTED => record.map_or(u64::MAX, |record| record.at),
            Some(record) if record.kind == Kind::GivesBack => known.min(record.at),
            // It was seen to be over.
            Some(record) if record.at < self.until => self.seen,
            _ => known,
        };
        Belief { name, permits: self.permits, from: self.from, to }
    }
}

fn beliefs(trail: &Trail) -> Vec<Belief> {
    let (mut found, mut open) = (Vec::new(), HashMap::<u8, Open>::new());
    for record in &trail.records {
        let name = record.name;
        match record.kind {
            Kind::HasPermits => {
                let next = Open { permits: record.value, from: record.at, seen: record.at, until: record.deadline };
                open.insert(name, next);
            }
            Kind::SeesPermits if record.valid => {
                open.entry(name).and_modify(|open| {
                    open.seen = record.at;
                    open.until = open.until.max(record.deadline);
                });
            }
            Kind::SeesPermits | Kind::GivesBack => {
                found.extend(open.remove(&name).map(|open| open.end(name, Some(record))));
            }
            _ => {}
        }
    }
    found.extend(open.into_iter().map(|(name, open)| open.end(name, None)));
    found
}

/// How many permits the logs tell of, and where they are too many.
pub(crate) fn too_many(trails: &[Trail]) -> (u64, Vec<TooMany>) {
    let all: Vec<_> = trails.iter().flat_map(beliefs).filter(|belief| belief.from < belief.to).collect();
    let found = [LEASED, COUNTED].into_iter().flat_map(|name| too_many_of(name, &all)).collect();
    (all.len() as u64, found)
}

fn too_many_of(name: u8, all: &[Belief]) -> Vec<TooMany> {
    let of_name = all.iter().filter(|belief| belief.name == name);
    let mut changes: Vec<(u64, bool, u64)> =
        of_name.flat_map(|belief| [(belief.from, true, belief.permits), (belief.to, false, belief.permits)]).collect();
    // What ends at the moment at which another begins is over.
    changes.sort_unstable_by_key(|&(at, begins, _)| (at, begins));
    let (mut found, mut sum, mut since) = (Vec::new(), 0, None::<TooMany>);
    for (at, begins, permits) in changes {
        sum = if begins { sum + permits } else { sum - permits };
        match &mut since {
            None if sum > TOTAL => since = Some(TooMany { name, at, lasted: 0, permits: sum }),
            Some(many) if sum > TOTAL => many.permits = many.permits.max(sum),
            Some(many) => {
                found.push(TooMany { lasted: at - many.at, ..*many });
                since = None;
            }
            None => {}
        }
    }
    found.extend(since);
    found
}

/// How many permits of the plain semaphore killed processes have. What they asked for and were not told may be out too, and what they were
/// giving back may be in.
pub(crate) fn out(trails: &[Trail]) -> Out {
    trails
        .iter()
        .filter(|trail| trail.killed)
        .map(out_of_one)
        .fold(Out::default(), |sum, out| Out { surely: sum.surely + out.surely, perhaps: sum.perhaps + out.perhaps })
}

fn out_of_one(trail: &Trail) -> Out {
    let mut out = Out::default();
    for record in trail.records.iter().filter(|record| record.name == COUNTED) {
        out = match record.kind {
            Kind::AsksForPermits => Out { surely: 0, perhaps: record.value },
            Kind::HasPermits => Out { surely: record.value, perhaps: 0 },
            Kind::GivesBack => Out { surely: 0, perhaps: record.value },
            Kind::HasNoPermits => Out::default(),
            _ => out,
        };
    }
    out
}

/// How many permits of a plain semaphore these clients have, each by what it said of itself, and by what the servers were asked. A call that
/// ends without an answer, or is refused, leaves its operation to the background: if the process is killed before that is done, the permits stay
/// out, and no log says so.
pub(crate) fn taken(events: &[Event], semaphore: &str, clients: &[String]) -> i64 {
    let lanes = format!("redlatch_op:{{{semaphore}}}");
    let (mut is_theirs, mut sum) = (HashMap::new(), 0);
    for Event { node, words, .. } in events {
        match words.split(' ').collect::<Vec<_>>()[..] {
            [change @ ("decrby" | "incrby"), key, permits, ..] if key == semaphore => {
                let permits: i64 = permits.parse().expect("a number of permits");
                let out = if change == "decrby" { permits } else { -permits };
                sum += if is_theirs.get(node) == Some(&true) { out } else { 0 };
            }
            [_, key, ..] if key.starts_with(&lanes) => {
                let client = key[lanes.len()..].split(':').next().expect("a client");
                is_theirs.insert(*node, clients.iter().any(|said| said.contains(client)));
            }
            _ => {}
        }
    }
    sum
}

/// How many permits of the plain semaphore killed processes asked for or gave back in vain while commands of the servers are missing.
pub(crate) fn unseen(trails: &[Trail], events: &[Event]) -> u64 {
    let gaps = gaps(events);
    let is_unseen = |from: u64, to: u64| gaps.iter().any(|gap| from <= gap.1 && gap.0 <= to);
    let of_one = |trail: &Trail| {
        let (mut began, mut sum) = (None, 0);
        for record in trail.records.iter().filter(|record| record.name == COUNTED) {
            match record.kind {
                Kind::AsksForPermits | Kind::GivesBack => began = Some(record.at),
                Kind::HasNoPermits if began.take().is_some_and(|began| is_unseen(began, record.at)) => {
                    sum += record.value
                }
                _ => {}
            }
        }
        sum
    };
    trails.iter().filter(|trail| trail.killed).map(of_one).sum()
}

#[cfg(test)]
mod tests {
    use super::super::record::MS;
    use super::*;

    fn record(kind: Kind, name: u8, at: u64, value: u64) -> Record {
        Record { at, kind, name, value, deadline: 100, valid: true, ..Record::default() }
    }

    fn trail(records: &[Record]) -> Trail {
        Trail { records: records.to_vec(), ..Trail::default() }
    }

    fn found(trails: &[Trail]) -> Vec<(u64, u64, u64)> {
        too_many(trails).1.iter().map(|many| (many.at, many.lasted, many.permits)).collect()
    }

    #[test]
    fn more_than_there_are_is_found_and_all_of_them_is_not() {
        let has = |name, at, permits| record(Kind::HasPermits, name, at, permits);
        let gives = |name, at| record(Kind::GivesBack, name, at, 3);
        let one = trail(&[has(LEASED, 10, 3), gives(LEASED, 50)]);
        assert_eq!(found(&[one.clone(), trail(&[has(LEASED, 20, 2), gives(LEASED, 60)])]), []);
        assert_eq!(found(&[one.clone(), trail(&[has(LEASED, 20, 3), gives(LEASED, 60)])]), [(20, 30, 6)]);
        assert_eq!(found(&[one.clone(), trail(&[has(LEASED, 50, 3), gives(LEASED, 60)])]), [], "one after the other");
        assert_eq!(found(&[one, trail(&[has(COUNTED, 20, 3), gives(COUNTED, 60)])]), [], "of another");
    }

    #[test]
    fn leased_permits_are_believed_until_their_deadline_and_the_others_for_ever() {
        let has = |name, at| record(Kind::HasPermits, name, at, 3);
        let both = |name| found(&[trail(&[has(name, 10)]), trail(&[has(name, 101)])]).len();
        assert_eq!((both(LEASED), both(COUNTED)), (0, 1));
        let lost = Record { valid: false, ..record(Kind::SeesPermits, LEASED, 40, 3) };
        let seen = record(Kind::SeesPermits, LEASED, 20, 3);
        assert_eq!(found(&[trail(&[has(LEASED, 10), seen, lost]), trail(&[has(LEASED, 21)])]), []);
        assert_eq!(found(&[trail(&[has(LEASED, 10), seen, lost]), trail(&[has(LEASED, 19)])]).len(), 1);
    }

    #[test]
    fn what_killed_processes_have_is_out_and_what_they_were_about_to_have_may_be() {
        let steps = [Kind::AsksForPermits, Kind::HasPermits, Kind::GivesBack, Kind::HasNoPermits];
        let steps: Vec<_> = (0..).zip(steps).map(|(at, kind)| record(kind, COUNTED, at, 2)).collect();
        let out = |steps: &[Record]| {
            let Out { surely, perhaps } = out(&[Trail { killed: true, ..trail(steps) }, trail(steps)]);
            (surely, perhaps)
        };
        assert_eq!([1, 2, 3, 4].map(|count| out(&steps[..count])), [(0, 2), (2, 0), (0, 2), (0, 0)]);
    }

    fn event(at: u64, node: usize, words: &str) -> Event {
        Event { at, node, words: words.to_owned() }
    }

    #[test]
    fn what_the_background_of_a_killed_process_left_is_out() {
        let events = [
            event(1, 0, "set redlatch_op:{n}a:s1 1:taken PX 19"),
            event(2, 0, "decrby n 3"),
            event(3, 0, "set redlatch_op:{n}b:s1 1:taken PX 19"),
            event(4, 1, "set redlatch_op:{n}a:s2 1:taken PX 19"),
            event(5, 0, "decrby n 1"),
            event(6, 0, "del redlatch_op:{n}a:s1"),
            event(7, 0, "incrby n 2"),
            event(8, 1, "decrby other 5"),
            event(9, 0, "set redlatch_op:{n}b:s1 2:taken PX 19"),
            event(10, 1, "decrby n 4"),
        ];
        let of = |clients: &[&str]| {
            taken(&events, "n", &clients.iter().map(|client| client.to_string()).collect::<Vec<_>>())
        };
        assert_eq!([of(&["a"]), of(&["b"]), of(&["a", "b"]), of(&[])], [5, 1, 6, 0]);
    }

    #[test]
    fn what_was_asked_for_in_vain_is_unseen_only_while_nobody_listened() {
        let events =
            [event(0, 0, "listens"), event(100, 0, "del n"), event(200, 0, "expired n"), event(300, 0, "listens")];
        let asks = |from, to| {
            trail(&[record(Kind::AsksForPermits, COUNTED, from, 2), record(Kind::HasNoPermits, COUNTED, to, 2)])
        };
        let in_vain = |from, to| unseen(&[Trail { killed: true, ..asks(from, to) }, asks(from, to)], &events);
        assert_eq!([in_vain(10, 90), in_vain(10, 150), in_vain(150, 160)], [0, 2, 2]);
        let has = [Kind::AsksForPermits, Kind::HasPermits, Kind::GivesBack, Kind::HasNoPermits];
        let steps: Vec<_> =
            has.into_iter().zip([150, 151, 152, 153]).map(|(kind, at)| record(kind, COUNTED, at, 2)).collect();
        let of_killed = |steps: &[Record]| unseen(&[Trail { killed: true, ..trail(steps) }], &events);
        assert_eq!([of_killed(&steps[..2]), of_killed(&steps)], [0, 2]);
        let later: Vec<_> = has
            .into_iter()
            .zip([150, 151, 10 * MS, 10 * MS + 1])
            .map(|(kind, at)| record(kind, COUNTED, at, 2))
            .collect();
        assert_eq!(of_killed(&later), 0, "it gave them back when somebody listened");
    }
}
