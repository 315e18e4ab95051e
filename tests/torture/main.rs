//! The torture test: worker processes fight for a few locks while servers, connections and workers are stopped, killed
//! and lied to, and checkers look at what they logged. docs/torture.md says how to run and read it.

use harness::{proxy, reaper, server, threads};

mod classes;
mod controls;
mod foreigner;
mod groups;
mod guarded;
#[allow(dead_code, unused_imports, reason = "its tests are run by tests/it")]
mod history;
mod nemesis;
mod permits;
mod plan;
mod queue;
mod report;
mod rules;
mod sides;
mod stage;
mod wish;
mod work;
mod worker;

use classes::{Class, Only};
use controls::Take;
use history::OVERLAP;
use history::events::Event;
use history::record::{MS, now};
use report::Report;
use stage::{End, Setting, Stage, explained};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Worker processes of a round.
const WORKERS: usize = 5;

/// How often a call may be passed over by others that came later, and for how long, in ms, where no nemesis is at work.
const PASSES: (usize, u64) = (24, 500);

/// How long one who waits as a JVM does has its lock, and how long not, in ms.
const FOREIGN_HOLD: u64 = 5;
const FOREIGN_PAUSE: u64 = 5;

const LONGEST_ROUND: Duration = Duration::from_secs(30);

/// So many more rounds are played at most until one is not void.
const EXTRA_ROUNDS: usize = 3;

/// How many findings of a checker are shown for a round.
const SHOWN: usize = 5;

struct Options {
    span: Duration,
    seed: u64,
    class: Option<Class>,
    only: Option<Only>,
    mutant: Option<String>,
    /// Of all controls those of these mutants.
    controls: Option<Vec<String>>,
    /// By TLS, which goes with single servers alone.
    sealed: bool,
    /// Where histories are kept for a checker from outside.
    histories: Option<PathBuf>,
}

const USAGE: &str = "usage: torture [--minutes N | --seconds N] [--seed S] [--class NAME] [--only servers|groups|clusters] \
                      [--tls] [--mutant NAME] [--controls NAME,NAME | --no-controls] [--histories FOLDER]";

fn options() -> Option<Options> {
    let span = Duration::from_secs(60);
    let mut options = Options {
        span,
        seed: now(),
        class: None,
        only: None,
        mutant: None,
        controls: None,
        sealed: false,
        histories: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => options.span = Duration::from_secs(60 * args.next()?.parse::<u64>().ok()?),
            "--seconds" => options.span = Duration::from_secs(args.next()?.parse().ok()?),
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--class" => options.class = Some(Class::named(&args.next()?)?),
            "--only" => options.only = Some(Only::named(&args.next()?)?),
            "--mutant" => options.mutant = Some(args.next()?),
            "--controls" => options.controls = Some(args.next()?.split(',').map(str::to_owned).collect()),
            "--no-controls" => options.controls = Some(Vec::new()),
            "--tls" => options.sealed = true,
            "--histories" => options.histories = Some(args.next()?.into()),
            _ => return None,
        }
    }
    // No model refuses the others, and no round is played beside one.
    if options.histories.is_some() && options.mutant.as_ref().is_some_and(|mutant| !controls::judged::is_judged(mutant))
    {
        return None;
    }
    if options.sealed {
        let only = *options.only.get_or_insert(Only::Servers);
        let fits = only == Only::Servers && options.class.is_none_or(|class| only.takes(class.servers()));
        return fits.then_some(options);
    }
    Some(options)
}

fn main() -> ExitCode {
    if let Ok(order) = std::env::var(stage::ORDER) {
        worker::run(&plan::Order::of(&order));
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(reaper::ROLE).is_some() {
        reaper::run();
        return ExitCode::SUCCESS;
    }
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    if options.has_controls() && !cfg!(mutants) {
        eprintln!(
            "torture: built without the mistakes that the controls must catch; scripts/torture builds it with them"
        );
        return ExitCode::from(2);
    }
    reaper::start();
    orchestrate(&options)
}

/// What makes a run fail is a line that begins with `error`, as scripts/lib/steps.sh tells again at the end. 0: nothing found; 1: something; 2: the run is void.
fn orchestrate(options: &Options) -> ExitCode {
    println!("torture: {}, seed {}", options.servers(), options.seed);
    nemesis::assert_repeats(options.seed);
    let (start, dir) = (Instant::now(), std::env::temp_dir().join(format!("redlatch-torture-{}", std::process::id())));
    reaper::tidy(&dir);
    let mut report = Report::new(options.servers(), options.seed);
    if options.has_controls() {
        let (seed, sealed) = (options.seed, options.sealed);
        let take = Take { dir: dir.join("controls"), seed, sealed, histories: options.histories.clone() };
        let chosen = |mutant: &str, servers| {
            options.mutant.as_ref().is_none_or(|only| only == mutant)
                && options.controls.as_ref().is_none_or(|some| some.iter().any(|one| one == mutant))
                && options.only.is_none_or(|only| only.takes(servers))
        };
        let known = controls::mutants();
        if let Some(wrong) = options.controls.iter().flatten().find(|one| !known.contains(&one.as_str())) {
            eprintln!("torture: there is no control {wrong}: docs/torture.md lists them");
            return ExitCode::from(64);
        }
        report.caught = controls::run(&take, chosen);
        // Of some controls none may be for these servers.
        if report.caught.is_empty() && options.controls.is_none() {
            eprintln!("torture: no control was played: docs/torture.md lists them, and those that TLS leaves out");
            return ExitCode::from(64);
        }
    }
    if options.mutant.is_none() && report.is_valid() {
        rounds(options, &dir, &mut report);
    }
    report.took = start.elapsed();
    report.save(&output().join(options.report_name()));
    let _ = std::fs::remove_dir_all(&dir);
    print!("{}", report.text());
    match (report.is_valid(), report.findings()) {
        (false, _) => ExitCode::from(2),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::FAILURE,
    }
}

impl Options {
    fn has_controls(&self) -> bool {
        self.controls.as_ref().is_none_or(|some| !some.is_empty())
    }

    /// What the locks are on.
    fn servers(&self) -> String {
        format!("{}{}", server::name(self.sealed), if self.sealed { " by TLS" } else { "" })
    }

    /// A run of one class, or by TLS, leaves the report of all classes as it is.
    fn report_name(&self) -> String {
        let class = self.class.map_or_else(String::new, |class| format!("-{}", class.name()));
        format!("report{class}{}.txt", if self.sealed { "-tls" } else { "" })
    }
}

/// The folder `torture` in cargo's target folder.
fn output() -> PathBuf {
    let program = std::env::current_exe().expect("the program's path");
    let dir = program.ancestors().nth(2).expect("it is two folders down").join("torture");
    std::fs::create_dir_all(&dir).expect("a directory for the report");
    dir
}

/// Their time begins when the controls have ended.
fn rounds(options: &Options, dir: &Path, report: &mut Report) {
    let (start, mut late, order) =
        (Instant::now(), 0, options.class.map_or_else(|| Class::order(options.only), |class| vec![class]));
    for (round, class) in order.iter().copied().cycle().enumerate() {
        let (least, seed) = (class.least_round(), options.seed.wrapping_add(round as u64));
        let length = (options.span / 6).clamp(least, LONGEST_ROUND);
        let left = options.span.saturating_sub(start.elapsed());
        if left < length / 2 {
            // A class has no verdict yet of which only void rounds were played, or none beside the long scenes of groups.
            let had_each = !matches!(options.only, Some(Only::Groups | Only::Clusters)) || round >= order.len();
            if had_each && (report.is_valid() || late == EXTRA_ROUNDS) {
                return;
            }
            late += usize::from(had_each);
        }
        let (span, dir) = (left.clamp(least, length), dir.join(seed.to_string()));
        let end = play(class, seed, options.sealed, span, &dir, report);
        if let Some(histories) = options.histories.as_ref().filter(|_| end.broken.is_none()) {
            let dir = histories.join("accept").join(format!("{}-{seed}", class.name()));
            let may_be_empty = class.expects_overlaps() || end.void().is_some();
            assert!(may_be_empty || end.histories.has("mutex"), "the round has nothing to judge");
            end.histories.save(&dir, |_| true).expect("room for the histories");
        }
    }
}

/// One round: a server, its workers and its nemeses.
fn play(class: Class, seed: u64, sealed: bool, span: Duration, dir: &Path, report: &mut Report) -> End {
    let (plan, dir_of_logs) = (class.plan(seed), dir.to_owned());
    let mut stage = Stage::open(Setting {
        plan,
        workers: WORKERS,
        servers: class.servers(),
        sealed,
        mutant: None,
        seed,
        dir: dir_of_logs,
        free: class.free(),
        passes: PASSES,
        enough: class.enough(),
    });
    stage.start();
    if class.has_foreigners() {
        stage.invite_foreigner(FOREIGN_HOLD, FOREIGN_PAUSE);
    }
    let mut acts = Vec::new();
    for step in nemesis::schedule(seed, class, WORKERS) {
        if u128::from(now() - stage.started) > span.as_nanos() || stage.broken().is_some() {
            break;
        }
        acts.extend(Some(step.act).filter(|act| *act != nemesis::Act::Rest));
        stage.perform(step);
    }
    stage.rest();
    let started = stage.started;
    let end = stage.finish();
    let found = findings(&end, started);
    println!(
        "round of class {}, seed {seed}: {} pairs, {} nemeses, {} findings",
        class.name(),
        end.verdict.pairs,
        acts.len(),
        found.len()
    );
    end.void().iter().for_each(|why| println!("  VOID: {why}"));
    shown(&found).for_each(|found| println!("error: {found}"));
    report.add(class, &end, &acts, found.len());
    if !found.is_empty() || end.void().is_some() {
        keep_logs(dir, &seed.to_string(), &found, &end.events, started);
    }
    let _ = std::fs::remove_dir_all(dir);
    end
}

/// The first of each checker.
fn shown(found: &[String]) -> impl Iterator<Item = &String> {
    let checker = |found: &str| found.split(" at ").next().map(str::to_owned);
    let of_same = move |at: usize| found[..at].iter().filter(|other| checker(other) == checker(&found[at])).count();
    found.iter().enumerate().filter(move |(at, _)| of_same(*at) < SHOWN).map(|(_, found)| found)
}

fn keep_logs(dir: &Path, name: &str, found: &[String], events: &[Event], started: u64) {
    let kept = output().join(name);
    std::fs::write(dir.join("findings.txt"), found.join("\n")).expect("room for the findings");
    let line = |event: &Event| {
        let ms = (event.at as f64 - started as f64) / MS as f64;
        format!("{ms:.3} ms, node {}: {}\n", event.node, event.words)
    };
    std::fs::write(dir.join("events.txt"), events.iter().map(line).collect::<String>()).expect("room for the events");
    println!("  logs: {}", keep(dir, &kept).map_or_else(|error| error.to_string(), |()| kept.display().to_string()));
}

/// Logs are written where the system keeps what is temporary, which may be in memory.
fn keep(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// What came about in a round that is broken says nothing, but where no failover whatever may make two believe.
fn findings(end: &End, started: u64) -> Vec<String> {
    let counts = |checker: &str| end.broken.is_none() || (end.replicated && checker == OVERLAP);
    let found = end.verdict.findings().into_iter().filter(|found| counts(found.checker));
    let found = found.map(|found| {
        let (at, explained) = (found.at.saturating_sub(started) / MS, explained(&found, &end.events));
        format!("{} at {at} ms: {}{}", found.checker, found.what, explained.unwrap_or_default())
    });
    found.chain(end.leaks.iter().filter(|_| end.broken.is_none()).cloned()).collect()
}
