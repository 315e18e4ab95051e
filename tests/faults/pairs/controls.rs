//! The mistakes that the trials have to find: each is played by a process of its own.

use crate::of_line;
use crate::trial::Trial;
use std::process::Command;
use std::time::{Duration, Instant};

/// The names of controls.txt, each with its trials. Several lines of a name are several trials.
fn controls() -> Vec<(&'static str, Vec<Trial>)> {
    let mut controls: Vec<(&str, Vec<Trial>)> = Vec::new();
    for line in include_str!("controls.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, trial) = line.split_once(' ').unwrap_or((line, ""));
        let trial = (!trial.is_empty()).then(|| of_line(trial));
        match controls.iter_mut().find(|(known, _)| *known == name) {
            Some((_, trials)) => trials.extend(trial),
            None => controls.push((name, trial.into_iter().collect())),
        }
    }
    controls
}

/// This program again, with these trials. The first that found something, if any did.
fn finds(mutant: Option<&str>, trials: &[Trial], more: &[String]) -> Option<Option<Trial>> {
    let mut program = Command::new(std::env::current_exe().expect("it has a path"));
    program.env_remove("REDLATCH_MUTANT").envs(mutant.map(|name| ("REDLATCH_MUTANT", name)));
    trials.iter().for_each(|trial| _ = program.args(["--trial", &trial.to_string()]));
    let output = program.args(more).output().expect("it runs");
    if output.status.code() != Some(1) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let is_news = |line: &&str| line.starts_with("error") || line.starts_with("trial");
    text.lines().filter(is_news).take(2).for_each(|line| println!("  {}", line.trim_start_matches("error: ")));
    let mut named = text.lines().filter(is_news).filter_map(|line| line.rsplit_once("trial ").map(|(_, trial)| trial));
    let mut hangs = text.lines().filter_map(|line| line.strip_prefix("error: a call hangs: "));
    Some(named.next().or(hangs.next()).and_then(|trial| trial.trim_start_matches("panicked: ").parse().ok()))
}

/// Plays each of these controls, `all` or names with commas. Whether each mistake was found by a trial that finds nothing without it.
pub(crate) fn play(names: &str, within: Duration, lanes: usize) -> bool {
    let controls = controls();
    let known = |name: &&str| *name == "all" || controls.iter().any(|(known, _)| known == name);
    if let Some(name) = names.split(',').find(|name| !known(name)) {
        println!("error: there is no control {name}");
        return false;
    }
    let mut are_good = true;
    for (name, mut trials) in controls {
        if names != "all" && !names.split(',').any(|one| one == name) {
            continue;
        }
        let lanes = ["--lanes".to_owned(), lanes.to_string()];
        let minutes = ["--minutes".to_owned(), (within.as_secs_f64() / 60.0).to_string()];
        let until = ["--until-found".to_owned(), "yes".to_owned()];
        let start = Instant::now();
        println!("control {name}");
        let found = finds(Some(name), &trials, &[lanes.clone(), minutes, until].concat());
        let seconds = start.elapsed().as_secs_f64();
        match &found {
            Some(_) => println!("control {name}: found in {seconds:.1} s"),
            None => println!("error: control {name}: not found in {seconds:.1} s"),
        }
        // What finds something without the mistake says nothing about it.
        trials.extend(found.iter().flatten().filter(|trial| !trials.contains(trial)).cloned().collect::<Vec<_>>());
        let is_right = trials.is_empty() || finds(None, &trials, &lanes).is_none();
        if !is_right {
            println!("error: control {name}: a trial finds something without it");
        }
        are_good &= found.is_some() && is_right;
    }
    are_good
}
