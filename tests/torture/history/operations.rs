//! What a checker from outside is given: histories of operations, for Porcupine and the models of tests/porcupine.
//!
//! The search and the models are others' work or theirs alone, the reading of the logs is that of the checkers here: what these
//! overlook, the judge is not given.
//!
//! A history is about one lock and one model. Each hold has a number of its own, and each operation an interval: it takes
//! effect at one moment between `call` and `done`. A history without some of its holds is legal if the whole one is. So holds
//! that nobody believed in are left out, and a long history is cut by when its holds began.

use super::belief::{Belief, beliefs};
use super::commands::{Lists, Write, writes};
use super::counter::in_time;
use super::record::{Kind, MS, Op, Outcome, Record, Trail};
use super::sides::{is_read, is_side, lock_of};
use super::tokens::grants;
use super::waits::Bounds;
use super::{Events, evictions};
use std::collections::BTreeMap;
use std::io::Result;
use std::path::Path;

/// Holds that began so much later are in the next history.
const LONGEST: u64 = 60_000 * MS;

/// When an operation is done that may take effect at any time: Go's greatest time.
const NEVER: u64 = i64::MAX as u64;

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) call: u64,
    pub(crate) done: u64,
    pub(crate) client: usize,
    /// A verb of the model and its numbers.
    pub(crate) what: String,
}

/// By model, lock and part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Histories(BTreeMap<(&'static str, u8, u64), Vec<Operation>>);

/// All that can be judged. Where locks were taken away, holds overlap and counters lose updates, so tokens alone are left. Where
/// data was lost, lists say nothing.
pub(crate) fn histories(trails: &[Trail], lists: &Lists, events: &Events, bounds: &Bounds) -> Histories {
    let (mut all, mut beliefs) = (Histories::default(), beliefs(trails));
    evictions::end_beliefs(&mut beliefs, &events.evicted);
    all.add_grants(trails);
    let is_exclusive = excludes(trails, events, bounds);
    if is_exclusive {
        all.add_holds(trails, &beliefs);
        all.add_updates(trails);
    }
    if events.losses.is_empty() && keeps_data(events) {
        all.add_writes(trails, lists, if is_exclusive { &beliefs } else { &[] });
    }
    all
}

/// Whether each new master had all that the last one had.
fn keeps_data(events: &Events) -> bool {
    events.failovers.iter().all(|failover| failover.moved.is_none())
}

/// Whether nothing that happened lets two believe.
fn excludes(trails: &[Trail], events: &Events, bounds: &Bounds) -> bool {
    let is_forced = trails.iter().flat_map(|trail| &trail.records).any(|record| record.op == Op::Force);
    let is_kept = events.losses.is_empty() || bounds.strict;
    let is_confirmed = keeps_data(events) || bounds.replicated;
    !is_forced && is_kept && is_confirmed
}

impl Histories {
    pub(crate) fn has(&self, model: &str) -> bool {
        self.0.keys().any(|(of, ..)| *of == model)
    }

    /// One file for each, with a line for each operation.
    pub(crate) fn save(&self, dir: &Path, chosen: impl Fn(&str) -> bool) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        for ((model, lock, part), operations) in self.0.iter().filter(|((model, ..), _)| chosen(model)) {
            let line = |it: &Operation| format!("{} {} {} {}\n", it.client, it.call, it.done, it.what);
            let lines: String = operations.iter().map(line).collect();
            std::fs::write(dir.join(format!("{model}-{lock}-{part}.txt")), lines)?;
        }
        Ok(())
    }

    fn put(&mut self, at: (&'static str, u8, u64), client: usize, (call, done): (u64, u64), what: String) {
        self.0.entry(at).or_default().push(Operation { call, done, client, what });
    }

    fn add_grants(&mut self, trails: &[Trail]) {
        let grants = grants(trails);
        let begin = grants.iter().map(|(_, grant)| grant.asked).min().unwrap_or_default();
        for (client, grant) in grants {
            let part = (grant.asked - begin) / LONGEST;
            self.put(("fenced", grant.name, part), client, (grant.asked, grant.had), format!("grant {}", grant.token));
        }
    }

    fn add_holds(&mut self, trails: &[Trail], beliefs: &[Belief]) {
        let begin = beliefs.iter().map(|belief| belief.asked).min().unwrap_or_default();
        for (hold, belief) in beliefs.iter().enumerate() {
            let (client, part) = (belief.holder, (belief.asked - begin) / LONGEST);
            let (acquire, release) = ((belief.asked, belief.from), (belief.to, belief.released.unwrap_or(NEVER)));
            let at = |model| (model, lock_of(belief.name), part);
            if is_side(belief.name) {
                let verb = if is_read(belief.name) { "read" } else { "write" };
                self.put(at("read-write"), client, acquire, format!("{verb} {hold} {client}"));
                self.put(at("read-write"), client, release, format!("release {hold}"));
                continue;
            }
            self.put(at("mutex"), client, acquire, format!("acquire {hold}"));
            self.put(at("mutex"), client, release, format!("release {hold}"));
            self.put(at("reentrant"), client, acquire, format!("acquire {hold} 1"));
            let (inner, is_last) = levels(&trails[client].records, belief);
            for (verb, depth, span) in inner {
                self.put(at("reentrant"), client, span, format!("{verb} {hold} {depth}"));
            }
            let end = if is_last { format!("release {hold} 0") } else { format!("expire {hold}") };
            self.put(at("reentrant"), client, release, end);
        }
    }

    /// A late write cuts the history of its counter.
    fn add_updates(&mut self, trails: &[Trail]) {
        for (client, part, update) in in_time(trails) {
            let span = (update.read_at, update.wrote_at);
            self.put(("counter", lock_of(update.name), part), client, span, format!("add {}", update.read));
        }
    }

    /// The holds that are believed in are in the histories, too, if two never are: nobody writes while another believes.
    fn add_writes(&mut self, trails: &[Trail], lists: &Lists, beliefs: &[Belief]) {
        let writes = writes(trails);
        for (lock, list) in (0..).zip(lists) {
            let of_lock: Vec<_> = writes.iter().filter(|write| write.name == lock).collect();
            let believed = beliefs.iter().filter(|belief| belief.name == lock);
            self.add_list(lock, &of_lock, list, believed);
        }
    }

    /// The writes to one list, the holds in whose name they are there, and those in which somebody believed.
    fn add_list<'a>(&mut self, lock: u8, writes: &[&Write], list: &[u64], believed: impl Iterator<Item = &'a Belief>) {
        let at = ("commands", lock, 0);
        let of_belief = |it: &Belief| ((it.holder, it.from), (it.asked, it.to, it.released.unwrap_or(NEVER)));
        let mut holds: BTreeMap<_, _> = believed.map(of_belief).collect();
        for write in writes {
            let place = list.iter().position(|number| *number == write.number);
            let Some(place) = answered(write.outcome, place) else { continue };
            let hold = (write.trail, write.had);
            let (_, last, released) = holds.entry(hold).or_insert((write.asked, write.called, NEVER));
            *last = write.called.max(*last);
            *released = (*released).max(*last);
            let span = (write.called, write.returned.min(NEVER));
            self.put(at, write.trail, span, format!("write {} {place}", name_of(hold)));
        }
        for (hold, (asked, last, released)) in holds {
            self.put(at, hold.0, (asked, hold.1), format!("acquire {}", name_of(hold)));
            self.put(at, hold.0, (last, released), format!("release {}", name_of(hold)));
        }
        if !writes.is_empty() {
            self.put(at, 0, (NEVER, NEVER), format!("end {}", list.len()));
        }
    }
}

/// Where a write has to be in the list: -1 if it can be nowhere, for answer and list disagree. Nothing: it left no trace, and its
/// answer does not say that it should.
fn answered(outcome: Outcome, place: Option<usize>) -> Option<i64> {
    match (outcome, place) {
        (Outcome::Yes | Outcome::Unknown, Some(place)) => Some(place as i64),
        (Outcome::Yes, None) | (_, Some(_)) => Some(-1),
        (_, None) => None,
    }
}

/// A thread has no two holds at once.
fn name_of((thread, had): (usize, u64)) -> String {
    format!("{thread}@{had}")
}

/// A verb, the levels after it, and from when to when it was called.
type Level = (&'static str, u8, (u64, u64));

/// What a thread does with the inner levels of a hold while it believes in it, and whether the belief ends with the last release.
fn levels(records: &[Record], belief: &Belief) -> (Vec<Level>, bool) {
    let (mut found, mut called) = (Vec::new(), 0);
    let inside = records.iter().filter(|record| record.name == belief.name && record.at > belief.from);
    for record in inside.take_while(|record| record.at <= belief.to) {
        match record.kind {
            Kind::Call if record.op.releases() && record.depth == 1 => return (found, true),
            Kind::Call => called = record.at,
            Kind::Done if record.op.acquires() && record.outcome == Outcome::Yes && record.depth > 1 => {
                found.push(("acquire", record.depth, (called, record.at)));
            }
            Kind::Done if record.op.releases() => found.push(("release", record.depth, (called, record.at))),
            _ => {}
        }
    }
    (found, false)
}

#[cfg(test)]
mod tests {
    use super::super::failovers::Failover;
    use super::super::names::Names;
    use super::super::sides::{read, write};
    use super::*;

    fn call(at: u64, op: Op, depth: u8) -> Record {
        Record { at, kind: Kind::Call, op, depth, ..Record::default() }
    }

    fn done(at: u64, op: Op, depth: u8) -> Record {
        Record { at, kind: Kind::Done, op, depth, outcome: Outcome::Yes, ..Record::default() }
    }

    fn check(at: u64, deadline: u64) -> Record {
        Record { at, kind: Kind::Check, valid: true, deadline, ..Record::default() }
    }

    /// Asked for at 1, had at 3, believed from 4 on until 50 at most.
    fn hold(rest: &[Record]) -> Vec<Record> {
        [&[call(1, Op::Lock, 0), done(3, Op::Lock, 1), check(4, 50)], rest].concat()
    }

    fn released() -> [Record; 2] {
        [call(20, Op::Unlock, 1), done(22, Op::Unlock, 0)]
    }

    fn of(records: &[Record], lists: &Lists, events: &Events, bounds: &Bounds) -> Histories {
        histories(&[Trail { records: records.to_vec(), ..Trail::default() }], lists, events, bounds)
    }

    /// Each line of the first history of a model and lock: from when to when, and what.
    fn lines(histories: &Histories, model: &'static str, lock: u8) -> Vec<(u64, u64, String)> {
        let found = histories.0.get(&(model, lock, 0)).into_iter().flatten();
        found.map(|it| (it.call, it.done, it.what.clone())).collect()
    }

    fn quiet(records: &[Record], model: &'static str) -> Vec<(u64, u64, String)> {
        lines(&of(records, &vec![], &Events::default(), &Bounds::default()), model, 0)
    }

    fn line(call: u64, done: u64, what: &str) -> (u64, u64, String) {
        (call, done, what.to_owned())
    }

    #[test]
    fn a_hold_ends_with_its_release_or_at_any_time_after_its_deadline() {
        let acquired = line(1, 3, "acquire 0");
        assert_eq!(quiet(&hold(&released()), "mutex"), [acquired.clone(), line(20, 22, "release 0")]);
        assert_eq!(quiet(&hold(&[]), "mutex"), [acquired.clone(), line(50, NEVER, "release 0")]);
        let mut unanswered = released();
        unanswered[1].outcome = Outcome::Unknown;
        assert_eq!(quiet(&hold(&unanswered), "mutex"), [acquired, line(20, NEVER, "release 0")]);
        assert_eq!(quiet(&[call(1, Op::Lock, 0), done(3, Op::Lock, 1)], "mutex"), [], "nobody believed in it");
    }

    #[test]
    fn levels_are_those_of_the_time_in_which_the_hold_is_believed() {
        let inner = [call(5, Op::Try, 1), done(6, Op::Try, 2), call(7, Op::Drop, 2), done(8, Op::Drop, 1)];
        let outer = [line(1, 3, "acquire 0 1"), line(5, 6, "acquire 0 2"), line(7, 8, "release 0 1")];
        let whole = [&outer[..], &[line(20, 22, "release 0 0")]].concat();
        assert_eq!(quiet(&hold(&[&inner[..], &released()].concat()), "reentrant"), whole);
        let late = [call(60, Op::Try, 1), done(61, Op::Try, 2)];
        let expired = [&outer[..], &[line(50, NEVER, "expire 0")]].concat();
        assert_eq!(quiet(&hold(&[&inner[..], &late].concat()), "reentrant"), expired);
    }

    #[test]
    fn sides_are_of_one_lock() {
        let of_side = |name| hold(&released()).into_iter().map(move |record| Record { name, ..record });
        let records: Vec<_> = of_side(write(2)).chain(of_side(read(2))).collect();
        let all = of(&records, &vec![], &Events::default(), &Bounds::default());
        let told: Vec<_> = lines(&all, "read-write", write(2)).into_iter().map(|(.., what)| what).collect();
        assert_eq!(told, ["write 0 0", "release 0", "read 1 0", "release 1"]);
        assert_eq!(lines(&all, "mutex", write(2)), []);
    }

    #[test]
    fn holds_are_cut_by_when_they_began() {
        let later = hold(&released()).into_iter().map(|it| Record { at: it.at + LONGEST, ..it });
        let later = later.map(|it| Record { deadline: it.deadline + LONGEST, ..it });
        let all = of(
            &hold(&released()).into_iter().chain(later).collect::<Vec<_>>(),
            &vec![],
            &Events::default(),
            &Bounds::default(),
        );
        assert_eq!([0, 1].map(|part| all.0[&("mutex", 0, part)].len()), [2, 2]);
    }

    #[test]
    fn tokens_alone_are_judged_where_locks_were_taken_away() {
        let mut records = hold(&released());
        records[1].value = 7;
        let lost = || Events { losses: vec![(5, 6)], ..Events::default() };
        let orderly = Failover { began: 5, promoted: 6, named: 7, whole: None, names: Names::ALL, moved: None };
        let failover = |moved| Events { failovers: vec![Failover { moved, ..orderly }], ..Events::default() };
        let moved = || failover(Some(400));
        let (strict, replicated) =
            (Bounds { strict: true, ..Bounds::default() }, Bounds { replicated: true, ..Bounds::default() });
        let kept = |events, bounds: &Bounds| {
            let all = of(&records, &vec![vec![]], &events, bounds);
            assert_eq!(lines(&all, "fenced", 0), [line(1, 3, "grant 7")]);
            !lines(&all, "mutex", 0).is_empty()
        };
        assert!(kept(Events::default(), &Bounds::default()) && kept(failover(None), &Bounds::default()));
        assert_eq!([lost(), moved()].map(|events| kept(events, &Bounds::default())), [false, false]);
        assert!(kept(lost(), &strict) && kept(moved(), &replicated));
        assert!(!kept(moved(), &strict) && !kept(lost(), &replicated));
        let forced = [records.clone(), vec![call(30, Op::Force, 0)]].concat();
        assert_eq!(quiet(&forced, "mutex"), []);
    }

    #[test]
    fn writes_have_their_places_in_the_list() {
        let asked = |number, at| Record { owner: number, ..call(at, Op::Commands, 1) };
        let wrote = |at, outcome| Record { outcome, ..done(at, Op::Commands, 1) };
        let two = [asked(70, 5), wrote(6, Outcome::Yes), asked(80, 7), wrote(8, Outcome::Unknown)];
        let records = hold(&[&two[..], &released()].concat());
        let of_list = |list: &[u64], events: &Events| {
            lines(&of(&records, &vec![list.to_vec()], events, &Bounds::default()), "commands", 0)
        };
        let ends = |from, to| [line(1, 3, "acquire 0@3"), line(from, to, "release 0@3")];
        let told = of_list(&[70, 80], &Events::default());
        assert_eq!(told[..2], [line(5, 6, "write 0@3 0"), line(7, 8, "write 0@3 1")]);
        assert_eq!(told[2..], [&ends(20, 22)[..], &[line(NEVER, NEVER, "end 2")]].concat());
        // The second may be missing, the first may not. The end is that of the list.
        assert_eq!(
            of_list(&[70], &Events::default())[1..],
            [&ends(20, 22)[..], &[line(NEVER, NEVER, "end 1")]].concat()
        );
        assert_eq!(of_list(&[70, 90], &Events::default()).last().unwrap().2, "end 2", "nobody wrote the other");
        // Where two may believe it is in its list while it is written.
        let forced = [records.clone(), vec![call(30, Op::Force, 0)]].concat();
        let forced = of(&forced, &vec![vec![70, 80]], &Events::default(), &Bounds::default());
        assert_eq!(lines(&forced, "commands", 0)[2..4], ends(7, NEVER));
        assert_eq!(of_list(&[80], &Events::default())[0].2, "write 0@3 -1");
        assert_eq!(of_list(&[70, 70], &Events::default()).last().unwrap().2, "end 2", "one write, twice in the list");
        let lost = Events { losses: vec![(5, 6)], ..Events::default() };
        assert_eq!(of_list(&[70, 80], &lost), []);
    }

    #[test]
    fn who_believes_and_writes_nothing_is_beside_no_write() {
        let all = of(&hold(&released()), &vec![vec![]], &Events::default(), &Bounds::default());
        assert_eq!(lines(&all, "commands", 0), [line(1, 3, "acquire 0@3"), line(20, 22, "release 0@3")]);
    }

    #[test]
    fn what_was_refused_is_nowhere() {
        for (outcome, place, told) in [
            (Outcome::Yes, Some(3), Some(3)),
            (Outcome::Unknown, Some(3), Some(3)),
            (Outcome::Yes, None, Some(-1)),
            (Outcome::Lost, Some(3), Some(-1)),
            (Outcome::Unknown, None, None),
            (Outcome::Lost, None, None),
        ] {
            assert_eq!(answered(outcome, place), told, "{outcome:?} {place:?}");
        }
    }

    #[test]
    fn a_late_write_cuts_the_history_of_its_counter() {
        let update = |value, at, deadline| {
            let record = |at, kind, value| Record { at, kind, value, deadline, ..Record::default() };
            [record(at, Kind::Read, value), record(at + 1, Kind::Write, value + 1), record(at + 2, Kind::Wrote, 0)]
        };
        let all = [update(0, 1, 9), update(1, 11, 12), update(9, 21, 29)].concat();
        let all = of(&all, &vec![], &Events::default(), &Bounds::default());
        assert_eq!(lines(&all, "counter", 0), [line(1, 3, "add 0")]);
        assert_eq!(all.0[&("counter", 0, 1)].len(), 1);
    }

    #[test]
    fn a_history_is_a_file_with_a_line_for_each_operation() {
        let dir = std::env::temp_dir().join(format!("redlatch-histories-{}", std::process::id()));
        let all = of(&hold(&released()), &vec![], &Events::default(), &Bounds::default());
        all.save(&dir, |model| model == "mutex").unwrap();
        let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["mutex-0-0.txt"]);
        assert_eq!(std::fs::read_to_string(dir.join("mutex-0-0.txt")).unwrap(), "0 1 3 acquire 0\n0 20 22 release 0\n");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
