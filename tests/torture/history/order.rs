//! C9: a fair lock goes to the threads that wait for it in order of arrival.
//!
//! A server shows in one order what it does: which fields join the list of a lock, which are taken out, and to which the lock is granted.
//! Two rules follow. The first needs no clock: a script that grants the lock has removed all that it skips, so nobody who came earlier may
//! be left in the list. The second is about threads that lose their place: a call that nothing disturbed is not overtaken by one whose
//! thread joined later, or never joined.
//!
//! No finding is false: what the server did while nobody listened is not judged, nor is a call that a nemesis touched. Then a script may
//! be refused the queue, and the lock goes without it. Of groups and clusters nothing is judged: a replica that copies all of its master's
//! data shows no commands for it, and neither does a slot that moves.

use super::Events;
use super::events::{Event, LISTENS};
use super::record::{MACHINE, MS, Op, Outcome, Trail, hash};
use super::waits::{Span, calls, covered, stalls};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Grants that were compared with who was left in the list, and those of them whose thread had joined and was left in peace.
    pub(crate) grants: usize,
    pub(crate) kept: usize,
    pub(crate) wrong: Vec<OutOfOrder>,
}

/// A grant before those who came earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutOfOrder {
    pub(crate) name: u8,
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// The clock of a server is compared with ours by one request, of less than 5 ms.
const AROUND: u64 = 10 * MS;

/// A call for a fair lock that got it.
struct Call {
    process: usize,
    at: u64,
    /// A group leaves the queue when it waits for another of its locks, and joins anew.
    is_of_group: bool,
}

/// A field in the list of a lock.
struct Place {
    field: String,
    joined: u64,
}

#[derive(Clone)]
struct Grant {
    thread: String,
    at: u64,
    /// When its thread joined; `None`: it did not.
    joined: Option<u64>,
}

/// What a server showed of one lock.
#[derive(Default)]
struct Queue {
    places: Vec<Place>,
    /// The last change of the list, if it took this one out: the grant to it follows in the same script.
    taken: Option<Place>,
    /// When each thread joined since its last grant.
    joins: HashMap<String, Vec<u64>>,
    /// Those that can be judged.
    grants: Vec<Grant>,
    /// The field that has the lock.
    held: Option<String>,
    /// The last command on the lock took this field out: its thread asks again, since no answer came, and has the lock by another name.
    renamed: Option<String>,
}

/// When a process was not left in peace.
struct Peace<'a> {
    events: &'a Events,
    stalls: HashMap<usize, Vec<Span>>,
    /// A thread that waits looks so often, and counts for three times as long.
    poll: u64,
}

pub(crate) fn tally(trails: &[Trail], said: &[Event], events: &Events, poll: u64) -> Tally {
    let (calls, peace) = (granted(trails), Peace { events, stalls: stalls(trails), poll });
    let (mut queues, mut since, mut known) = (HashMap::<u8, Queue>::new(), u64::MAX, HashSet::new());
    let mut tally = Tally::default();
    for event in said {
        let words: Vec<_> = event.words.split(' ').collect();
        if matches!(words[..], [LISTENS] | ["flushall" | "flushdb", ..]) {
            queues.clear();
            since = event.at;
        }
        let [command, key, field, ..] = [&words[..], &["", ""]].concat()[..] else { continue };
        if let Some(name) = list_of(key) {
            let is_understood = queues.entry(name).or_default().change(event.at, command, &words[2..]);
            if !is_understood {
                queues.remove(&name);
                since = event.at;
            }
        } else if let Some(name) = name_of(key) {
            let is_grant = queues.entry(name).or_default().is_grant(command, field);
            // Its levels are written to the same field.
            let is_new = command == "hset" && known.insert(field.to_owned());
            if !is_grant {
                continue;
            }
            let call = calls.get(&hash(field)).filter(|call| is_new && call.at > since);
            queues.entry(name).or_default().grant((name, event.at, field), call, &peace, &mut tally);
        }
    }
    tally
}

/// The lock that has this list.
fn list_of(key: &str) -> Option<u8> {
    name_of(key.strip_prefix("redisson_lock_queue:{")?.strip_suffix('}')?)
}

fn name_of(lock: &str) -> Option<u8> {
    lock.strip_prefix("torture:")?.parse().ok()
}

/// The calls that got a fair lock, by the owner fields of their holds.
fn granted(trails: &[Trail]) -> HashMap<u64, Call> {
    let fair = trails.iter().filter(|trail| trail.fair);
    let all = fair.flat_map(|trail| {
        let got = calls(trail).into_iter().filter_map(|call| Some((call.begin, call.done?)));
        let got = got.filter(|(begin, done)| begin.depth == 0 && done.op.acquires() && done.outcome == Outcome::Yes);
        let call = |op: Op, at| Call { process: trail.process, at, is_of_group: op.is_of_group() };
        got.map(|(begin, done)| (done.owner, call(begin.op, begin.at))).collect::<Vec<_>>()
    });
    all.collect()
}

/// The thread in an owner field: a client and the thread's number.
fn thread_of(field: &str) -> &str {
    field.rsplit_once(':').map_or(field, |(thread, _)| thread)
}

impl Queue {
    /// A command that changes the list. False: what is in it is not known any more.
    fn change(&mut self, at: u64, command: &str, words: &[&str]) -> bool {
        if command == "pexpire" {
            return true;
        }
        self.taken = None;
        match (command, words) {
            ("rpush", [field]) => {
                self.joins.entry(thread_of(field).to_owned()).or_default().push(at);
                self.places.push(Place { field: (*field).to_owned(), joined: at });
            }
            ("linsert", [_, old, field]) => {
                let Some(place) = self.places.iter().position(|place| place.field == *old) else { return false };
                let joined = self.places[place].joined;
                self.places.insert(place, Place { field: (*field).to_owned(), joined });
            }
            ("lrem", [_, field]) => {
                let place = self.places.iter().position(|place| place.field == *field);
                self.taken = place.map(|place| self.places.remove(place));
            }
            _ => return false,
        }
        true
    }

    /// Whether a command on the lock gives it to a thread that did not have it.
    fn is_grant(&mut self, command: &str, field: &str) -> bool {
        match command {
            "hset" => {
                let is_its_own = self.renamed.take().is_some_and(|old| thread_of(&old) == thread_of(field));
                self.held = Some(field.to_owned());
                !is_its_own
            }
            "hdel" => {
                self.renamed = self.held.take_if(|held| held == field).or(self.renamed.take());
                false
            }
            "del" | "expired" => {
                (self.held, self.renamed) = (None, None);
                false
            }
            _ => false,
        }
    }

    /// The lock is granted to a field. Without a call that is known nothing is judged.
    fn grant(&mut self, (name, at, field): (u8, u64, &str), call: Option<&Call>, peace: &Peace<'_>, tally: &mut Tally) {
        let thread = thread_of(field);
        let taken = self.taken.take().filter(|taken| taken.field == field);
        let own = self.places.iter().filter(|place| thread_of(&place.field) == thread).chain(&taken);
        let joined = own.map(|place| place.joined).min();
        let joins = self.joins.remove(thread).unwrap_or_default();
        let Some(call) = call.filter(|call| !peace.events_touch(name, (call.at, at))) else { return };
        tally.grants += 1;
        let mut what = self.left_behind(thread, joined).map(|place| {
            format!("who came earlier, {}, had waited for {} ms and waits on", place.field, (at - place.joined) / MS)
        });
        let first = joins.into_iter().find(|join| *join >= call.at);
        if let Some(first) = first.filter(|_| !call.is_of_group && peace.is_kept(call.process, (call.at, at))) {
            tally.kept += 1;
            let overtakes = |grant: &Grant| {
                format!("{} overtook it, {} ms after it had joined", grant.thread, (grant.at - first) / MS)
            };
            what = what.or_else(|| self.overtaker(thread, first).map(overtakes));
        }
        self.grants.push(Grant { thread: thread.to_owned(), at, joined });
        let what = what.map(|what| format!("lock {name} was granted to {field}: {what}"));
        tally.wrong.extend(what.map(|what| OutOfOrder { name, at, what }));
    }

    /// One of another thread that is in the list, and came before.
    fn left_behind(&self, thread: &str, joined: Option<u64>) -> Option<&Place> {
        let came_before = |place: &Place| joined.is_none_or(|joined| place.joined < joined);
        self.places.iter().find(|place| thread_of(&place.field) != thread && came_before(place))
    }

    /// A grant to another thread after this one had joined, if that one came later.
    fn overtaker(&self, thread: &str, first: u64) -> Option<&Grant> {
        let mut since = self.grants.iter().rev().take_while(|grant| grant.at > first);
        let came_later = |grant: &&Grant| grant.joined.is_none_or(|joined| joined > first) && grant.thread != thread;
        since.find(came_later)
    }
}

impl Peace<'_> {
    /// Whether a nemesis was at work.
    fn events_touch(&self, name: u8, span: Span) -> bool {
        touches(&self.events.rough(name), span)
    }

    /// Whether a process heard what it was told, and did not stand still for so long that its threads may have counted no more.
    fn is_kept(&self, process: usize, span: Span) -> bool {
        let stalled = [process, MACHINE].map(|process| self.stalls.get(&process).map_or(&[][..], Vec::as_slice));
        !touches(&self.events.deaf(process), span) && covered(span, &stalled) < self.poll
    }
}

fn touches(spans: &[Span], (begin, end): Span) -> bool {
    spans.iter().any(|&(from, to)| from <= end + AROUND && begin <= to + AROUND)
}

#[cfg(test)]
mod tests {
    use super::super::Deaf;
    use super::super::names::During;
    use super::super::record::{Kind, Op, Record};
    use super::*;

    const NONE: [u64; 0] = [];
    const LISTED: &str = "redisson_lock_queue:{torture:0}";

    /// A thread of a process that asks and has the lock at these times, with this field.
    fn waiter(process: usize, field: &str, [asked, had]: [u64; 2]) -> Trail {
        let begin = Record { at: asked * MS, kind: Kind::Call, op: Op::Lock, ..Record::default() };
        let done =
            Record { at: had * MS, kind: Kind::Done, outcome: Outcome::Yes, depth: 1, owner: hash(field), ..begin };
        Trail { process, fair: true, records: vec![begin, done], ..Trail::default() }
    }

    /// One joins after the other.
    fn two() -> Vec<Trail> {
        vec![waiter(0, "a:1:1", [1_000, 1_099]), waiter(1, "b:1:1", [1_010, 1_099])]
    }

    fn found_in(trails: &[Trail], said: &[(u64, &str)], events: &Events) -> Vec<u64> {
        let listed = |words: &str| words.replace("LIST", LISTED).replace("LOCK", "torture:0");
        let said = [(0, LISTENS)].iter().chain(said);
        let said: Vec<_> = said.map(|(ms, words)| Event { at: ms * MS, node: 0, words: listed(words) }).collect();
        tally(trails, &said, events, 30 * MS).wrong.iter().map(|found| found.at / MS).collect()
    }

    fn found(said: &[(u64, &str)]) -> Vec<u64> {
        found_in(&two(), said, &Events::default())
    }

    const JOINED: [(u64, &str); 2] = [(1_001, "rpush LIST a:1:1"), (1_011, "rpush LIST b:1:1")];
    const TO_A: [(u64, &str); 2] = [(1_020, "lrem LIST 1 a:1:1"), (1_020, "hset LOCK a:1:1 1")];
    const TO_B: [(u64, &str); 2] = [(1_030, "lrem LIST 1 b:1:1"), (1_030, "hset LOCK b:1:1 1")];

    #[test]
    fn grants_in_the_order_of_joining_are_well() {
        assert_eq!(found(&[JOINED, TO_A, TO_B].concat()), NONE);
        let asks_itself = [(1_020, "hset LOCK a:1:1 1"), (1_020, "lrem LIST 1 a:1:1")];
        assert_eq!(found(&[JOINED, asks_itself, TO_B].concat()), NONE);
    }

    #[test]
    fn who_is_granted_the_lock_before_one_in_the_list_is_found() {
        assert_eq!(found(&[JOINED, TO_B].concat()), [1_030]);
        let tries = [(1_001, "rpush LIST a:1:1"), (1_020, "hset LOCK b:1:1 1")];
        assert_eq!(found(&tries), [1_020]);
        let stays = [(1_020, "hset LOCK a:1:1 1"), TO_B[0], TO_B[1]];
        assert_eq!(found(&[&JOINED[..], &stays].concat()), [1_030], "a place that was served is left");
    }

    #[test]
    fn the_levels_of_a_hold_are_one_grant() {
        let again = [(1_025, "hset LOCK a:1:1 2"), (1_026, "rpush LIST c:1:1"), (1_027, "hset LOCK a:1:1 1")];
        assert_eq!(found(&[&JOINED[..], &TO_A, &again].concat()), NONE);
    }

    /// The answer to the grant was late, and the thread asks by a new owner id.
    #[test]
    fn a_hold_goes_over_to_a_new_field() {
        let trails = [waiter(0, "a:1:2", [1_000, 1_099]), waiter(1, "b:1:1", [1_010, 1_099])];
        let again = [(1_030, "hdel LOCK a:1:1"), (1_030, "hset LOCK a:1:2 1"), (1_031, "hset LOCK a:1:2 2")];
        let freed = [(1_040, "del LOCK"), TO_B[0], TO_B[1]];
        assert_eq!(found_in(&trails, &[&JOINED[..], &TO_A, &again, &freed].concat(), &Events::default()), NONE);
        let lost = [(1_025, "expired LOCK"), again[0], again[1]];
        assert_eq!(found_in(&trails, &[&JOINED[..], &TO_A, &lost].concat(), &Events::default()), [1_030]);
    }

    #[test]
    fn a_place_goes_over_to_a_new_field() {
        let trails = [waiter(0, "a:1:2", [1_000, 1_099]), waiter(1, "b:1:1", [1_010, 1_099])];
        let kept = [(1_015, "linsert LIST BEFORE a:1:1 a:1:2"), (1_015, "lrem LIST 1 a:1:1")];
        let lost = [(1_015, "rpush LIST a:1:2"), (1_015, "lrem LIST 1 a:1:1")];
        let to_a = [(1_040, "lrem LIST 1 a:1:2"), (1_040, "hset LOCK a:1:2 1")];
        assert_eq!(found_in(&trails, &[JOINED, kept, to_a].concat(), &Events::default()), NONE);
        assert_eq!(found_in(&trails, &[JOINED, kept, TO_B].concat(), &Events::default()), [1_030]);
        assert_eq!(found_in(&trails, &[JOINED, lost, TO_B, to_a].concat(), &Events::default()), [1_040]);
    }

    /// It was taken out, and joins again.
    #[test]
    fn who_loses_its_place_is_found_unless_it_was_disturbed() {
        let again = [(1_020, "lrem LIST 1 a:1:1"), (1_021, "rpush LIST a:1:1")];
        let to_a = [(1_050, "lrem LIST 1 a:1:1"), (1_050, "hset LOCK a:1:1 1")];
        let said = [JOINED, again, TO_B, to_a].concat();
        assert_eq!(found(&said), [1_050]);
        let deaf = |process| vec![Deaf { process: Some(process), span: (1_005 * MS, 1_006 * MS) }];
        let of = |process| Events { deaf: deaf(process), ..Events::default() };
        assert_eq!([of(0), of(1)].map(|events| found_in(&two(), &said, &events).len()), [0, 1]);
        let stalled = |ms| {
            let stall = Record { at: 1_049 * MS, kind: Kind::Stall, value: ms * MS, ..Record::default() };
            let stalled = [two(), vec![Trail { process: 0, records: vec![stall], ..Trail::default() }]].concat();
            found_in(&stalled, &said, &Events::default())
        };
        assert_eq!((stalled(29), stalled(30)), (vec![1_050], vec![]));
        let mut trails = two();
        trails[0].records.iter_mut().for_each(|record| record.op = Op::Group);
        assert_eq!(found_in(&trails, &said, &Events::default()), NONE, "a group joins again and again");
    }

    #[test]
    fn what_a_nemesis_touched_is_not_judged() {
        let wrong = [JOINED, TO_B].concat();
        let rough = |ms: u64| Events { rough: vec![During::of_all((ms * MS, ms * MS))], ..Events::default() };
        let found = [500, 1_015, 1_039, 1_041, 2_000].map(|ms| found_in(&two(), &wrong, &rough(ms)).len());
        assert_eq!(found, [1, 0, 0, 1, 1]);
    }

    #[test]
    fn what_was_not_heard_is_not_judged() {
        for gap in [(1_015, LISTENS), (1_015, "flushall"), (1_015, "expired LIST"), (1_015, "lpush LIST b:1:1")] {
            assert_eq!(found(&[&JOINED[..], &[gap], &TO_B].concat()), NONE, "{gap:?}");
        }
        let unknown = [two()[0].clone(), Trail { fair: false, ..two()[1].clone() }];
        assert_eq!(found_in(&unknown, &[JOINED, TO_B].concat(), &Events::default()), NONE, "it is no fair lock");
    }
}
