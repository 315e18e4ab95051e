//! Pairs of faults: what a holder is told, whatever two things happen.

mod apart;
mod controls;
mod faults;
mod ground;
mod machine;
mod party;
mod site;
mod trial;
mod truth;
mod verdict;

use faults::{Fault, Phase};
use ground::{Deployment, Leaves};
use harness::reaper;
use std::collections::{BTreeMap, HashSet};
use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use trial::Trial;
use truth::{MS, Micros, now};

struct Options {
    span: Duration,
    seed: u64,
    lanes: usize,
    trials: u64,
    /// On these servers alone.
    deployment: Option<Deployment>,
    /// These alone.
    chosen: Vec<Trial>,
    /// After those, others at random until something is found.
    until_found: bool,
    /// Mistakes that have to be found, each within this time.
    controls: Option<String>,
    within: Duration,
    /// Each trial is told, also if nothing was wrong.
    verbose: bool,
}

fn options() -> Option<Options> {
    let mut options = Options {
        span: Duration::from_secs(180),
        seed: 1,
        lanes: 12,
        trials: u64::MAX,
        deployment: None,
        chosen: Vec::new(),
        until_found: false,
        controls: None,
        within: Duration::from_secs(60),
        verbose: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next()?;
        match name.as_str() {
            "--minutes" => options.span = Duration::from_secs_f64(value.parse::<f64>().ok()? * 60.0),
            "--seed" => options.seed = value.parse().ok()?,
            "--lanes" => options.lanes = value.parse().ok()?,
            "--trial" => options.chosen.push(value.parse().ok()?),
            "--deployment" => options.deployment = Some(Deployment::named(&value)?),
            "--trials" => options.trials = value.parse().ok()?,
            "--until-found" => options.until_found = value == "yes",
            "--controls" => options.controls = Some(value),
            "--verbose" => options.verbose = value == "yes",
            "--within" => options.within = Duration::from_secs(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(options)
}

/// Threads that want to run for 5 ms and come so much later show that the machine is late.
const LATE: Micros = 40 * MS;

/// How often a trial is played until the machine is on time, if something was wrong.
const TURNS: usize = 4;

/// When the machine was late last.
static WAS_LATE: AtomicU64 = AtomicU64::new(0);

/// Plays a trial. None: something was wrong whenever it was played, or it panicked, and the machine was late each time.
fn play(trial: &Trial) -> Option<verdict::Verdict> {
    for _ in 0..TURNS {
        let begun = now();
        let judged = catch_unwind(|| verdict::judge(trial, &trial::play(trial)));
        let is_wrong = judged.as_ref().map_or(true, |verdict| !verdict.wrong.is_empty());
        if !is_wrong || WAS_LATE.load(SeqCst) < begun {
            return Some(judged.unwrap_or_else(|panic| resume_unwind(panic)));
        }
    }
    None
}

#[derive(Default)]
struct Sum {
    trials: usize,
    void: usize,
    untold: usize,
    alarms: usize,
    found: usize,
    pairs: HashSet<[(Phase, Fault); 2]>,
    kinds: BTreeMap<String, usize>,
}

fn of_line(line: &str) -> Trial {
    line.parse().unwrap_or_else(|()| panic!("not a trial: {line}"))
}

impl Sum {
    /// What is no finding is told only if all is, so that findings are the last that is read.
    fn add(&mut self, trial: &Trial, verdict: &verdict::Verdict, verbose: bool) {
        self.trials += 1;
        if let [first, second] = trial.faults[..] {
            self.pairs.insert([first, second]);
        }
        *self.kinds.entry(format!("{:?}", trial.kind)).or_default() += 1;
        self.untold += usize::from(verdict.untold);
        self.alarms += usize::from(verdict.alarm);
        if verbose {
            println!("played {trial}; {}", verdict.story);
            let counted = [(verdict.untold, "untold"), (verdict.alarm, "alarm")];
            counted.iter().filter(|(is, _)| *is).for_each(|(_, what)| println!("{what}: {trial}"));
        }
        if !verdict.wrong.is_empty() {
            self.found += 1;
            println!("trial {trial}");
            verdict.wrong.iter().for_each(|what| println!("error: {what}"));
        }
    }
}

/// Says of a panic what it is, if it is not meant.
fn forgive(panic: &std::panic::PanicHookInfo<'_>) {
    let is_meant = panic.payload().downcast_ref::<&str>().is_some_and(|text| *text == "on purpose");
    if !is_meant {
        eprintln!("error: {panic}");
    }
}

fn main() -> ExitCode {
    if std::env::var_os(reaper::ROLE).is_some() {
        reaper::run();
        return ExitCode::SUCCESS;
    }
    if let Some(party) = std::env::var_os(apart::ROLE) {
        std::panic::set_hook(Box::new(forgive));
        apart::run(party.to_str().expect("a word"));
        return ExitCode::SUCCESS;
    }
    let Some(options) = options() else {
        eprintln!(
            "usage: pairs [--minutes N] [--seed S] [--lanes N] [--trials N] [--trial TEXT] [--until-found yes] [--verbose yes]"
        );
        eprintln!("             [--deployment server|sentinel|cluster]");
        eprintln!("       pairs --controls NAMES|all [--within SECONDS] [--lanes N]");
        return ExitCode::from(64);
    };
    if let Some(names) = &options.controls {
        return ExitCode::from(u8::from(!controls::play(names, options.within, options.lanes)));
    }
    reaper::start();
    std::panic::set_hook(Box::new(forgive));
    let known = include_str!("found.txt").lines().filter(|line| !line.starts_with('#')).map(of_line);
    let is_wanted = |trial: &Trial| options.deployment.is_none_or(|deployment| trial.deployment == deployment);
    let known: Vec<Trial> = known.filter(is_wanted).collect();
    // What was ever found comes first.
    let found = if options.chosen.is_empty() && !options.until_found { &known } else { &options.chosen };
    let is_random = options.chosen.is_empty() || options.until_found;
    let (start, next, sum) = (Instant::now(), AtomicU64::new(0), Mutex::new(Sum::default()));
    let is_over = AtomicBool::new(false);
    std::thread::spawn(|| {
        loop {
            let at = now();
            std::thread::sleep(Duration::from_millis(5));
            if now() > at + 5 * MS + LATE {
                WAS_LATE.store(now(), SeqCst);
            }
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..options.lanes {
            scope.spawn(|| {
                let _leaves = Leaves;
                while start.elapsed() < options.span && !is_over.load(SeqCst) {
                    let number = next.fetch_add(1, SeqCst);
                    if number >= options.trials {
                        return;
                    }
                    let trial = match found.get(number as usize) {
                        Some(trial) => trial.clone(),
                        None if is_random => Trial::of(options.seed + number - found.len() as u64, options.deployment),
                        None => return,
                    };
                    let played = catch_unwind(|| play(&trial));
                    let mut sum = sum.lock().unwrap();
                    match played {
                        Ok(None) => {
                            sum.void += 1;
                            println!("void, the machine was late: {trial}");
                        }
                        Ok(Some(verdict)) => sum.add(&trial, &verdict, options.verbose),
                        Err(_) => {
                            sum.found += 1;
                            println!("error: a trial panicked: {trial}");
                        }
                    }
                    if options.until_found && sum.found > 0 {
                        is_over.store(true, SeqCst);
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    let all = (Fault::ALL.len() * Phase::ALL.len()) * (Fault::ALL.len() * Phase::ALL.len() + 1) / 2;
    println!(
        "pairs: {} trials in {} s, {} pairs of {all}, {} void, {} trials with findings",
        sum.trials,
        start.elapsed().as_secs(),
        sum.pairs.len(),
        sum.void,
        sum.found
    );
    println!(
        "a key that a release leaves would have decided: {} losses untold, {} false alarms",
        sum.untold, sum.alarms
    );
    println!("kinds: {:?}", sum.kinds);
    ExitCode::from(u8::from(sum.found > 0))
}
