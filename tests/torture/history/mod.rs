//! What happened, and whether it may: the event log and its checkers. They know nothing of servers and processes, so
//! that the tests of tests/it try them on logs made by hand.

pub(crate) mod answers;
pub(crate) mod belief;
pub(crate) mod circles;
pub(crate) mod commands;
pub(crate) mod counter;
pub(crate) mod depth;
pub(crate) mod events;
pub(crate) mod evictions;
pub(crate) mod excuses;
pub(crate) mod failovers;
pub(crate) mod journal;
pub(crate) mod looks;
pub(crate) mod moves;
pub(crate) mod names;
pub(crate) mod operations;
pub(crate) mod order;
pub(crate) mod permits;
pub(crate) mod record;
pub(crate) mod shares;
pub(crate) mod sides;
pub(crate) mod tokens;
pub(crate) mod turns;
pub(crate) mod waits;

use events::Event;
use excuses::Excuses;
use names::During;
use record::{MS, Op, Trail};
use std::collections::HashMap;
use tokens::Grant;
use waits::{Bounds, Span};

/// The checker of what no lock may do.
pub(crate) const OVERLAP: &str = "C1 overlap";

/// What all checkers found in one history.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Acquires that were believed.
    pub(crate) pairs: usize,
    pub(crate) overlaps: Vec<belief::Overlap>,
    /// Those that a loss of locks explains.
    pub(crate) expected_overlaps: Vec<belief::Overlap>,
    /// Holds that ended before their deadline though nobody took them away.
    pub(crate) cut_short: Vec<(u8, u64)>,
    pub(crate) tally: counter::Tally,
    pub(crate) looks: looks::Tally,
    /// Readers whose time-outs were taken away, and that were not told.
    pub(crate) untold: Vec<(u64, String)>,
    pub(crate) depth: Vec<(u64, String)>,
    pub(crate) answers: Vec<(u64, String)>,
    /// Tokens that do not grow.
    pub(crate) tokens: Vec<(u64, String)>,
    pub(crate) resource: journal::Tally,
    pub(crate) commands: commands::Tally,
    pub(crate) late: Vec<waits::Late>,
    pub(crate) missed: Vec<waits::Late>,
    pub(crate) passed: Vec<turns::Passed>,
    pub(crate) order: order::Tally,
    pub(crate) longest: HashMap<Op, u64>,
    /// Of each failover in order.
    pub(crate) after: Vec<failovers::After>,
    /// From when and for how long nothing was granted after a failover.
    pub(crate) barren: Vec<Span>,
    /// In slots that were left halfway.
    pub(crate) granted_halfway: usize,
    /// How often permits were believed in.
    pub(crate) permits: u64,
    /// More permits than there are were believed in.
    pub(crate) too_many: Vec<permits::TooMany>,
    /// How often workers were told of a circle of waiting, and which of these never was.
    pub(crate) circles: usize,
    /// How many censuses workers took beside those that waits asked for.
    pub(crate) censuses: u64,
    pub(crate) untrue: Vec<(u64, String)>,
}

/// When what was done to the workers and their server.
#[derive(Default)]
pub(crate) struct Events {
    /// A nemesis was at work.
    pub(crate) rough: Vec<During>,
    /// Some cannot hear what they are told.
    pub(crate) deaf: Vec<Deaf>,
    /// Every lock was taken away. What a hold loses then is no finding; that two believe in it is none either, unless the
    /// client is strict.
    pub(crate) losses: Vec<Span>,
    /// Masters were replaced: the same until all clients have moved, unless all replicas confirm each grant.
    pub(crate) failovers: Vec<failovers::Failover>,
    /// Slots went to other masters, which excuses nothing.
    pub(crate) moves: Vec<moves::Move>,
    /// Time-outs of readers were taken away, which excuses what those believe until they are told.
    pub(crate) evicted: Vec<evictions::Evicted>,
}

/// A process does not hear what it is told, or each of them; without its knowing it, and beyond the end of the nemesis.
pub(crate) struct Deaf {
    pub(crate) process: Option<usize>,
    pub(crate) span: Span,
}

impl Events {
    fn deaf(&self, process: usize) -> Vec<Span> {
        let hits = |deaf: &&Deaf| deaf.process.is_none_or(|hit| hit == process);
        self.deaf.iter().filter(hits).map(|deaf| deaf.span).collect()
    }

    /// What a server lost goes with the locks, strict clients and confirmed grants or not.
    fn around(&self, trails: &[Trail], bounds: &Bounds) -> commands::Around {
        let later = |failover: &failovers::Failover| {
            failover.moved.map(|moved| failovers::Failover { moved: Some(moved + bounds.lease), ..*failover })
        };
        let longer: Vec<_> = self.failovers.iter().filter_map(later).collect();
        commands::Around {
            taken: Excuses::new(&self.losses, &self.failovers, trails, 0),
            lost: Excuses::new(&self.losses, &longer, &[], bounds.lease),
            response: bounds.response,
        }
    }

    fn rough(&self, name: u8) -> Vec<Span> {
        self.rough.iter().filter(|rough| rough.names.has(name)).map(|rough| rough.span).collect()
    }
}

/// Runs every checker; `writes` are those to what fenced locks protect, `lists` what was written while locks were held, `said` what the
/// one server did.
pub(crate) fn judge(
    trails: &[Trail],
    writes: &[Grant],
    lists: &[Vec<u64>],
    said: &[Event],
    events: &Events,
    bounds: &Bounds,
) -> Verdict {
    let Events { losses, failovers, moves, .. } = events;
    let taking: &[_] = if bounds.replicated { &[] } else { failovers };
    let excuses = Excuses::new(losses, taking, trails, bounds.lease);
    let shared = if bounds.strict { Excuses::new(&[], &[], trails, bounds.lease) } else { excuses.clone() };
    let mut beliefs = belief::beliefs(trails);
    evictions::end_beliefs(&mut beliefs, &events.evicted);
    let short = beliefs.iter().filter(|belief| belief.cut_short && !excuses.cover(belief.name, belief.ended));
    let (late, longest) = waits::overdue(trails);
    let mut tally = counter::tally(trails);
    let all = tally.lost.len();
    tally.lost.retain(|&(name, at)| !shared.cover(name, at));
    tally.expected = all - tally.lost.len();
    let after = failovers::after(&beliefs, failovers, bounds.quarantine());
    let barren = failovers::barren(&beliefs, failovers, bounds.quarantine(), trails);
    let granted_halfway = moves::granted_halfway(&beliefs, moves);
    let (permits, mut too_many) = permits::too_many(trails);
    too_many.retain(|many| !bounds.forgets_permits(many.name));
    let (pairs, cut_short) = (beliefs.len(), short.map(|belief| (belief.name, belief.ended)).collect());
    let (expected_overlaps, overlaps) = belief::overlaps(beliefs)
        .into_iter()
        .partition(|overlap| shared.cover_all(overlap.name, (overlap.at, overlap.at + overlap.lasted)));
    Verdict {
        pairs,
        overlaps,
        expected_overlaps,
        cut_short,
        tally,
        looks: looks::tally(trails, &events.evicted, &shared),
        untold: evictions::untold(trails, events, bounds),
        depth: depth::mistakes(trails),
        answers: answers::wrong(trails),
        tokens: tokens::out_of_order(trails),
        resource: journal::tally(writes),
        commands: commands::tally(trails, lists, &events.around(trails, bounds)),
        late,
        missed: waits::missed(trails, events, bounds),
        passed: [turns::passed_over(trails, events, bounds), shares::passed_over(trails, events, bounds)].concat(),
        order: order::tally(trails, said, events, bounds.poll),
        longest,
        after,
        barren,
        granted_halfway,
        permits,
        too_many,
        ..Verdict::default()
    }
}

/// Something that must not be, and when it was.
pub(crate) struct Finding {
    pub(crate) checker: &'static str,
    pub(crate) at: u64,
    pub(crate) what: String,
    /// Of which lock, and how long it lasted, where that is known.
    pub(crate) of: Option<(u8, u64)>,
}

impl Verdict {
    /// What must not be.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut note = |checker, at, of, what| found.push(Finding { checker, at, what, of });
        for &belief::Overlap { name, at, lasted, holders } in &self.overlaps {
            let what = format!("lock {name} believed by {holders:?} for {} us", lasted / 1_000);
            note(OVERLAP, at, Some((name, lasted)), what);
        }
        for &(name, at) in &self.cut_short {
            note("C1 lost early", at, Some((name, 0)), format!("a hold of lock {name} was over before its deadline"));
        }
        for &(name, at) in &self.tally.lost {
            note("C4 lost update", at, Some((name, 0)), format!("counter {name} was overwritten"));
        }
        for &(name, at) in &self.looks.changed {
            note("C4 seen change", at, Some((name, 0)), format!("counter {name} changed beside a reader"));
        }
        for (checker, mistakes) in [
            ("C1 untold", &self.untold),
            ("C2 tokens", &self.tokens),
            ("C2 resource", &self.resource.wrong),
            ("C8 commands", &self.commands.wrong),
            ("C3 levels", &self.depth),
            ("answers", &self.answers),
            ("C11 circles", &self.untrue),
        ] {
            mistakes.iter().for_each(|(at, what)| note(checker, *at, None, what.clone()));
        }
        for (checker, lates) in [("C5 late", &self.late), ("C5 missed", &self.missed)] {
            for late in lates {
                let is_over = late.took != u64::MAX;
                let took = if is_over { format!("{} ms", late.took / MS) } else { "never came back".to_owned() };
                let what = format!("{:?} of lock {}: {took}, allowed {} ms", late.op, late.name, late.allowed / MS);
                note(checker, late.at, Some((late.name, if is_over { late.took } else { 0 })), what);
            }
        }
        for (at, lasted) in &self.barren {
            note("C5 barren", *at, None, format!("nothing was granted for {} ms after a failover", lasted / MS));
        }
        for passed in &self.passed {
            let (name, turns, waited) = (passed.name, passed.turns, passed.waited / MS);
            let what = format!("a call for lock {name}: {turns} turns of others that came later, in {waited} ms");
            note("C6 passed over", passed.at, Some((name, passed.waited)), what);
        }
        for permits::TooMany { name, at, lasted, permits } in &self.too_many {
            let what = format!("{permits} permits of semaphore {name} believed for {} us", lasted / 1_000);
            note("C10 permits", *at, None, what);
        }
        for order::OutOfOrder { name, at, what } in &self.order.wrong {
            note("C9 order", *at, Some((*name, 0)), what.clone());
        }
        found
    }

    pub(crate) fn hangs(&self) -> usize {
        self.late.len() + self.missed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::record::{Kind, Outcome, Record};
    use super::*;

    /// A holder whose lock is taken away and granted again while it believes.
    fn two_believers() -> [Trail; 2] {
        let acquired =
            |at| Record { at, kind: Kind::Done, op: Op::Lock, outcome: Outcome::Yes, depth: 1, ..Record::default() };
        let check = |at| Record { at, kind: Kind::Check, valid: true, deadline: 100, depth: 1, ..Record::default() };
        [[acquired(10), check(11)], [acquired(50), check(51)]]
            .map(|records| Trail { records: records.to_vec(), ..Trail::default() })
    }

    #[test]
    fn a_loss_excuses_two_believers_unless_the_clients_are_strict() {
        for strict in [false, true] {
            let bounds = Bounds { free: 1_000, lease: 100, strict, ..Bounds::default() };
            let verdict = judge(
                &two_believers(),
                &[],
                &[],
                &[],
                &Events { losses: vec![(40, 45)], ..Events::default() },
                &bounds,
            );
            assert_eq!((verdict.overlaps.len(), verdict.expected_overlaps.len()), if strict { (1, 0) } else { (0, 1) });
        }
    }
}
