//! What a run says in the end, on the screen and in a file.

use crate::classes::Class;
use crate::controls::Caught;
use crate::history::record::{MS, Op};
use crate::history::{commands, looks};
use crate::nemesis::Act;
use crate::stage::End;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Report {
    servers: String,
    seed: u64,
    pub(crate) took: Duration,
    pub(crate) caught: Vec<Caught>,
    rounds: BTreeMap<Class, Sum>,
    longest: BTreeMap<Op, u64>,
}

/// The rounds of one class.
#[derive(Default)]
struct Sum {
    rounds: usize,
    pairs: usize,
    overlaps: usize,
    expected_overlaps: usize,
    longest_overlap: u64,
    cut_short: usize,
    writes: usize,
    lost_updates: usize,
    expected_lost: usize,
    holes: usize,
    /// Writes to what fenced locks protect, and those of them that came after one of a later hold.
    fenced: usize,
    refused: usize,
    /// Looks of readers at what writers count, and those that saw a change.
    looks: (usize, usize, usize),
    /// What was written while locks were held, what was not answered, and what the server did not run.
    guarded: (usize, usize, usize),
    /// How often permits of semaphores were believed in.
    permits: u64,
    /// Circles of waiting that were told.
    circles: usize,
    censuses: u64,
    /// Grants of fair locks whose order was judged, and those to a thread that had joined and was left in peace.
    in_order: (usize, usize),
    hangs: usize,
    mistakes: usize,
    leaks: usize,
    findings: usize,
    /// Rounds that show nothing.
    void: usize,
    /// By how many ms clocks differed at most.
    skew: i64,
    failovers: usize,
    /// The fewest grants after a failover.
    least: Option<usize>,
    /// The longest from when a new master was named to the first grant.
    slowest: u64,
    /// The longest from its promotion until it was named.
    unnamed: u64,
    /// Grants in slots that were left halfway.
    halfway: usize,
    acts: BTreeMap<Act, usize>,
}

impl Sum {
    fn add_commands(&mut self, commands: &commands::Tally) {
        let (written, unknown, lost) = &mut self.guarded;
        *written += commands.written;
        *unknown += commands.unknown;
        *lost += commands.lost;
        self.mistakes += commands.wrong.len();
    }

    fn add_looks(&mut self, tally: &looks::Tally) {
        let (looks, changed, expected) = &mut self.looks;
        *looks += tally.looks;
        *changed += tally.changed.len();
        *expected += tally.expected;
    }
}

impl Report {
    pub(crate) fn new(servers: String, seed: u64) -> Self {
        Self { servers, seed, ..Self::default() }
    }

    pub(crate) fn add(&mut self, class: Class, end: &End, acts: &[Act], findings: usize) {
        let sum = self.rounds.entry(class).or_default();
        sum.rounds += 1;
        sum.void += usize::from(end.void().is_some());
        sum.findings += findings;
        if end.broken.is_some() {
            return;
        }
        for (op, longest) in &end.verdict.longest {
            let most = self.longest.entry(*op).or_default();
            *most = longest.max(most).to_owned();
        }
        let (sum, verdict) = (self.rounds.entry(class).or_default(), &end.verdict);
        sum.pairs += verdict.pairs;
        sum.overlaps += verdict.overlaps.len();
        sum.expected_overlaps += verdict.expected_overlaps.len();
        sum.longest_overlap =
            verdict.expected_overlaps.iter().map(|o| o.lasted).chain([sum.longest_overlap]).max().unwrap_or(0);
        sum.cut_short += verdict.cut_short.len();
        sum.writes += verdict.tally.writes;
        sum.lost_updates += verdict.tally.lost.len();
        sum.expected_lost += verdict.tally.expected;
        sum.holes += verdict.tally.holes;
        sum.hangs += verdict.hangs();
        sum.mistakes +=
            verdict.depth.len() + verdict.answers.len() + verdict.tokens.len() + verdict.resource.wrong.len();
        sum.fenced += verdict.resource.writes;
        sum.refused += verdict.resource.refused;
        sum.add_commands(&verdict.commands);
        sum.add_looks(&verdict.looks);
        sum.mistakes += verdict.untold.len() + verdict.order.wrong.len();
        sum.permits += verdict.permits;
        sum.circles += verdict.circles;
        sum.censuses += verdict.censuses;
        sum.mistakes += verdict.untrue.len();
        sum.in_order.0 += verdict.order.grants;
        sum.in_order.1 += verdict.order.kept;
        sum.leaks += end.leaks.len();
        sum.skew = sum.skew.max(end.skew);
        for after in &verdict.after {
            sum.failovers += 1;
            sum.least = sum.least.into_iter().chain(after.grants).min();
            sum.slowest = sum.slowest.max(after.first.unwrap_or_default());
            sum.unnamed = sum.unnamed.max(after.unnamed);
        }
        sum.halfway += verdict.granted_halfway;
        for act in acts {
            *sum.acts.entry(*act).or_default() += 1;
        }
    }

    /// Whether every mutant was caught, no scene was wrong without one, and a round of each class shows something.
    pub(crate) fn is_valid(&self) -> bool {
        self.caught.iter().all(Caught::proves) && self.rounds.values().all(|sum| sum.void < sum.rounds)
    }

    pub(crate) fn findings(&self) -> usize {
        self.rounds.values().map(|sum| sum.findings).sum()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes it");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "torture: {}, seed {}, {} s", self.servers, self.seed, self.took.as_secs())?;
        for caught in &self.caught {
            write_caught(text, caught)?;
        }
        for (class, sum) in &self.rounds {
            write_sum(text, *class, sum)?;
        }
        writeln!(text, "longest calls:")?;
        for (op, longest) in &self.longest {
            writeln!(text, "  {:12} {:6} ms", format!("{op:?}"), longest / MS)?;
        }
        if !self.is_valid() {
            return writeln!(
                text,
                "error: VOID: a mutant was not caught, or a scene was wrong without it, or all rounds of a class were void"
            );
        }
        writeln!(text, "{}", if self.findings() == 0 { "nothing found" } else { "FOUND, see above" })
    }

    pub(crate) fn save(&self, path: &Path) {
        std::fs::write(path, self.text()).expect("room for the report");
    }
}

fn write_caught(text: &mut String, caught: &Caught) -> std::fmt::Result {
    match &caught.by {
        Some((by, took)) => writeln!(text, "mutant {:24} caught after {took:5} ms by {by}", caught.mutant)?,
        None => writeln!(text, "error: the mutant {} was not caught", caught.mutant)?,
    }
    for found in &caught.without {
        writeln!(text, "error: without the mutant {}: {found}", caught.mutant)?;
    }
    writeln!(text, "  without it: {} findings in {} pairs", caught.without.len(), caught.pairs_without)
}

fn write_sum(text: &mut String, class: Class, sum: &Sum) -> std::fmt::Result {
    writeln!(text, "class {}: {} rounds, {} pairs, {} findings", class.name(), sum.rounds, sum.pairs, sum.findings)?;
    writeln!(text, "  overlaps of beliefs: {}, holds lost early: {}", sum.overlaps, sum.cut_short)?;
    if sum.overlaps == 0 && sum.pairs > 0 {
        writeln!(text, "  so p(overlap of a pair) < 3/{} = {:.1e} at 95 %", sum.pairs, 3.0 / sum.pairs as f64)?;
    }
    let (writes, holes) = (sum.writes, sum.holes);
    writeln!(text, "  lost updates: {} of {writes}; by writers stopped after their check: {holes}", sum.lost_updates)?;
    let (looks, changed, expected) = sum.looks;
    writeln!(
        text,
        "  looks of readers: {looks}, that saw a change: {changed}, because locks were taken away: {expected}"
    )?;
    writeln!(text, "  writes with a token: {}, refused because they came too late: {}", sum.fenced, sum.refused)?;
    let (written, unknown, lost) = sum.guarded;
    writeln!(text, "  writes while held: {written}, not answered: {unknown}, refused because it was lost: {lost}")?;
    let (grants, kept) = sum.in_order;
    writeln!(text, "  grants of fair locks that were in order: {grants}, to threads that nothing disturbed: {kept}")?;
    writeln!(text, "  acquires of permits: {}", sum.permits)?;
    writeln!(text, "  circles of waiting that were told: {}, of {} censuses at least", sum.circles, sum.censuses)?;
    if class.expects_overlaps() {
        let longest = sum.longest_overlap / MS;
        writeln!(
            text,
            "  expected, because locks were taken away: {} overlaps, longest {longest} ms, {} lost updates",
            sum.expected_overlaps, sum.expected_lost
        )?;
    }
    if let Some(least) = sum.least {
        let (count, named, first) = (sum.failovers, sum.unnamed / MS, sum.slowest / MS);
        let (of, from) = match class {
            _ if class.is_replicated() => ("quarantine", "the end of the quarantine, with all replicas,"),
            _ => ("failover", "there"),
        };
        writeln!(text, "  failovers: {count}, grants after each {of}: {least} or more")?;
        writeln!(
            text,
            "  at most {named} ms from the promotion until it was named, {first} ms from {from} to the first grant"
        )?;
    }
    let moved = |act| sum.acts.get(&act).copied().unwrap_or_default();
    let (all, half) = (moved(Act::MoveSlot) + moved(Act::HalfMove), moved(Act::HalfMove));
    if all > 0 {
        writeln!(text, "  slots moved: {all}, {half} of them left halfway, where {} locks were granted", sum.halfway)?;
    }
    match class {
        Class::Replicated => writeln!(text, "  the clocks of servers differed by {} ms", sum.skew)?,
        Class::Safe => writeln!(text, "  the clock of a server was put back by up to {} ms", sum.skew)?,
        _ => {}
    }
    if sum.void > 0 {
        writeln!(text, "  void rounds: {}", sum.void)?;
    }
    writeln!(text, "  hangs: {}, wrong levels, answers and tokens: {}, leaks: {}", sum.hangs, sum.mistakes, sum.leaks)?;
    let acts: Vec<_> = sum.acts.iter().map(|(act, count)| format!("{act:?} {count}")).collect();
    writeln!(text, "  nemeses: {}: {}", sum.acts.values().sum::<usize>(), acts.join(", "))
}
