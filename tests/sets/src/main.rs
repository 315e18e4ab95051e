//! Jepsen's set workloads of its test of etcd's locks, for redlatch: docs/jepsen.md. Worker processes add elements to sets, each add under
//! a lock: it reads the set, waits for up to 2 s and writes the set. A nemesis pauses, kills and cuts off.

mod checker;
mod history;
mod nemesis;
mod place;
mod report;
mod stage;
mod way;
mod worker;

use harness::reaper;
use stage::{End, Setting};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use way::{WAYS, Way};

struct Options {
    span: Duration,
    seed: u64,
    /// Of a way.
    sets: usize,
    is_renewed: bool,
    way: Option<&'static Way>,
}

/// Shorter runs may have controls without a loss.
const SHORTEST: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: sets [--seconds N] [--seed S] [--sets N] [--renewed] [WAY]; N is 30 seconds at least";

fn options() -> Option<Options> {
    let seed = SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_millis() as u64;
    let mut options = Options { span: Duration::from_secs(60), seed, sets: 5, is_renewed: false, way: None };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => options.span = Duration::from_secs(args.next()?.parse().ok()?),
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--sets" => options.sets = args.next()?.parse().ok().filter(|sets| *sets > 0)?,
            "--renewed" => options.is_renewed = true,
            way => options.way = Some(Way::named(way)?),
        }
    }
    (options.span >= SHORTEST).then_some(options)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, order @ ..] = &words[..]
        && role == stage::WORKER
    {
        worker::run(&worker::Order::of(order));
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(reaper::ROLE).is_some() {
        reaper::run();
        return ExitCode::SUCCESS;
    }
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        WAYS.iter().for_each(|way| eprintln!("  {}", way.name));
        return ExitCode::from(64);
    };
    reaper::start();
    orchestrate(&options)
}

/// 0: as expected; 1: a way lost what it must not lose; 2: the run is void.
fn orchestrate(options: &Options) -> ExitCode {
    println!("sets: {}, seed {}, {:?}", harness::server::name(false), options.seed, options.span);
    let folder = std::env::temp_dir().join(format!("redlatch-sets-{}", std::process::id()));
    reaper::tidy(&folder);
    let ends = play(options, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let logs = keep_logs(&ends);
    print!("{}", report::table(&ends));
    let findings: Vec<_> = ends.iter().filter_map(report::finding).collect();
    let void: Vec<_> = ends.iter().filter_map(report::void).collect();
    // scripts/test repeats lines of errors at its end.
    findings.iter().for_each(|finding| println!("error: finding: {finding}; logs: {}", logs.display()));
    void.iter().for_each(|why| println!("error: void: {why}"));
    match (findings.is_empty(), void.is_empty()) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(2),
        (true, true) => ExitCode::SUCCESS,
    }
}

/// All ways at once, for they wait most of the time; the controls beside each choice of a way.
fn play(options: &Options, folder: &Path) -> Vec<End> {
    let is_played = |way: &&Way| way.is_control() || options.way.is_none_or(|only| only.name == way.name);
    let Options { span, seed, sets, is_renewed, .. } = *options;
    std::thread::scope(|scope| {
        let play = |(number, way): (usize, &'static Way)| {
            let (seed, folder) = (seed.wrapping_add(number as u64), folder.join(way.name));
            scope.spawn(move || stage::play(Setting { way, span, seed, sets, is_renewed, folder }))
        };
        let played: Vec<_> = WAYS.iter().enumerate().filter(|(_, way)| is_played(way)).map(play).collect();
        played.into_iter().map(|played| played.join().expect("a way was played")).collect()
    })
}

/// In the folder `sets` of Cargo's target folder.
fn keep_logs(ends: &[End]) -> PathBuf {
    let program = std::env::current_exe().expect("the program's path");
    let folder = program.ancestors().nth(2).expect("it is two folders down").join("sets");
    std::fs::create_dir_all(&folder).expect("a folder for the logs");
    ends.iter().for_each(|end| std::fs::write(folder.join(end.way.name), &end.log).expect("room for a log"));
    folder
}
