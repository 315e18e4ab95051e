//! Who reads and who writes in each row, and the table. A row with a round that was not as it was assumed is void.

use crate::Plan;
use crate::seen::{Readers, Round, Writer};
use crate::stage::Stage;
use crate::support::{Outcome, Samples, cell};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

/// Readers that do nothing with what they read, and as many processes that go to the server for each read.
const BUSY: Readers = Readers { processes: 4, threads: 4, hold: Duration::ZERO, shares: true, mutant: None };
const ON_THE_WIRE: Readers = Readers { threads: 1, shares: false, ..BUSY };

/// Those that stay for some time.
const STAYING: Readers = Readers { threads: 8, hold: Duration::from_millis(5), ..BUSY };

/// A writer that waits for as long as it takes. It stays long enough for every reader to notice.
const WRITER: Writer = Writer {
    period: Duration::from_millis(10),
    hold: Duration::from_micros(200),
    patience: Duration::from_secs(60),
    least: 0,
};

/// What a round showed, or why it is void.
type Told = Result<Round, String>;

fn told(round: Outcome<Round>) -> Told {
    round.map_err(|error| error.to_string())
}

const TITLES: [&str; 9] = [
    "reads/s",
    "x on the wire (>= 10)",
    "scripts a read",
    "writes",
    "wait p50, ms",
    "p99 (<= 100)",
    "longest (<= 100)",
    "a reader out, longest, ms",
    "writer's tries in vain",
];

pub(crate) fn show_head() {
    println!("| readers and writer | {} |", TITLES.join(" | "));
    println!("| --- |{}", " ---: |".repeat(TITLES.len()));
}

/// Beside one process, which is on the wire alone: how often as many reads.
fn show(label: &str, rounds: &[Told], wire: &[Told]) {
    if let Some(void) = rounds.iter().chain(wire).find_map(|round| round.as_ref().err()) {
        println!("| {label} | void: {void} |{}", " |".repeat(TITLES.len() - 1));
        return;
    }
    let all = || rounds.iter().flatten();
    let of = |figure: &dyn Fn(&Round) -> f64, digits| cell(&all().map(figure).collect(), digits);
    let ratios: Samples =
        all().zip(wire.iter().flatten()).map(|(one, wire)| one.reads_a_second / wire.reads_a_second).collect();
    let cells = [
        of(&|round| round.reads_a_second, 0),
        cell(&ratios, 1),
        of(&|round| round.scripts_a_read, 3),
        of(&|round| round.waits.all().len() as f64, 0),
        of(&|round| round.waits.p50(), 1),
        of(&|round| round.waits.quantile(0.99), 1),
        of(&|round| round.waits.quantile(1.0), 1),
        of(&|round| round.longest_out, 1),
        of(&|round| round.vain as f64, 0),
    ];
    println!("| {label} | {} |", cells.join(" | "));
}

/// Threads that read all the time, and a writer that comes often.
pub(crate) fn busy(stage: &Stage, plan: &Plan) {
    // It waits for the turn of readers that it kept out, and is late for every other time then.
    let due = plan.span.div_duration_f64(WRITER.period) as usize;
    let writer = Writer { least: due / 4, ..WRITER };
    let on_the_wire = || told(stage.round(&ON_THE_WIRE, None, plan.span).and_then(two_scripts));
    let together = || told(stage.round(&BUSY, Some(&writer), plan.span));
    let (mut wire, mut all) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        if round % 2 == 0 {
            wire.push(on_the_wire());
            all.push(together());
        } else {
            all.push(together());
            wire.push(on_the_wire());
        }
    }
    show("4 processes x 1 thread, each read on the wire, nobody writes", &wire, &[]);
    show("4 processes x 4 threads, a writer every 10 ms", &all, &wire);
}

/// What is compared with goes to the server with each lock and each unlock.
fn two_scripts(round: Round) -> Outcome<Round> {
    let scripts = round.scripts_a_read;
    if (scripts - 2.0).abs() < 0.01 { Ok(round) } else { Err(format!("{scripts} scripts a read on the wire").into()) }
}

/// A writer among readers that never pause.
pub(crate) fn among(stage: &Stage, plan: &Plan) {
    let writer = Writer { period: 20 * MILLI, least: plan.writes, ..WRITER };
    // Each write may wait for the turn of the readers, and for the longest of them.
    let span = plan.span.max(2 * writer.period * plan.writes as u32);
    let round = |shares| told(stage.round(&Readers { shares, ..STAYING }, Some(&writer), span));
    let rounds: (Vec<_>, Vec<_>) = (0..plan.rounds).map(|_| (round(true), round(false))).unzip();
    let label = "4 processes x 8 threads that stay for 5 ms, a writer every 20 ms";
    show(label, &rounds.0, &[]);
    show(&format!("{label}; each read on the wire"), &rounds.1, &[]);
}

/// The same where readers come in though a writer waits.
pub(crate) fn starved(stage: &Stage, plan: &Plan) {
    let writer = Writer { period: MILLI, patience: plan.patience, ..WRITER };
    let readers = Readers { mutant: Some("readers_ignore_the_mark"), ..STAYING };
    let span = plan.patience * (plan.tries + 1) as u32;
    let rounds: Vec<_> = (0..plan.rounds).map(|_| told(stage.round(&readers, Some(&writer), span))).collect();
    show(&format!("the same without the mark, tries of {:?}", plan.patience), &rounds, &[]);
}
