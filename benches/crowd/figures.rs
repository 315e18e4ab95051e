//! What is told from a round, and the table.

use crate::stage::Round;
use crate::support::turns::{MILLI, hand_offs, jain};
use crate::support::{Samples, cell};

/// Titles, and digits after the point.
const COLUMNS: [(&str, usize); 12] = [
    ("pairs/s", 0),
    ("Jain", 2),
    ("longest wait, ms", 1),
    ("wait p99, ms", 1),
    ("passed on", 2),
    ("hand-off p50, µs", 0),
    ("hand-off p99, µs", 0),
    ("scripts a pair", 2),
    ("commands a pair", 1),
    ("publishes a pair", 2),
    ("server, µs a pair", 0),
    ("processes, µs a pair", 0),
];

pub(crate) type Figures = [f64; COLUMNS.len()];

/// Rates and shares are of all processes, Jain's index and waits of those that were not disturbed. A wait that lasts
/// beyond the end counts, for it is who never gets the lock.
pub(crate) fn figures(round: &Round) -> Figures {
    let within = round.turns.partition_point(|(_, turn)| turn.held < round.end);
    let turns = &round.turns[..within];
    let pairs = turns.len() as f64;
    let seat = |process: &usize| round.living.iter().position(|one| one == process);
    let fair = jain(round.living.len(), turns.iter().filter_map(|(process, _)| seat(process)));
    let living = round.turns.iter().filter(|(process, _)| seat(process).is_some());
    let waits: Samples = living.map(|(_, turn)| (turn.held - turn.asked) as f64 / MILLI).collect();
    let passes = hand_offs(turns);
    let passed = passes.all().len() as f64 / (pairs - 1.0).max(1.0);
    [
        pairs * 1e9 / (round.end - round.from) as f64,
        fair,
        waits.quantile(1.0),
        waits.quantile(0.99),
        passed,
        passes.p50() / 1_000.0,
        passes.quantile(0.99) / 1_000.0,
        round.scripts / pairs,
        round.commands / pairs,
        round.publishes / pairs,
        round.server_micros / pairs,
        round.micros_a_pair,
    ]
}

/// Pairs a second, and the processor time of all for one.
pub(crate) fn rate_and_cost(figures: &Figures) -> [f64; 2] {
    let [rate, .., server, processes] = figures;
    [*rate, server + processes]
}

pub(crate) fn show_head() {
    let titles: Vec<_> = COLUMNS.iter().map(|(title, _)| *title).collect();
    println!("| setting | contender | {} |", titles.join(" | "));
    println!("| --- | --- |{}", " ---: |".repeat(COLUMNS.len()));
}

pub(crate) fn show(setting: &str, label: &str, rounds: &[Figures]) {
    let column = |number: usize| rounds.iter().map(|figures| figures[number]).collect::<Samples>();
    let cells: Vec<_> =
        COLUMNS.iter().enumerate().map(|(number, (_, digits))| cell(&column(number), *digits)).collect();
    println!("| {setting} | {label} | {} |", cells.join(" | "));
}
