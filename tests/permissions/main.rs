//! The permissions that users need: `docs/permissions.md`, written by `scripts/permissions` from what servers refuse.

mod ablation;
mod calls;
mod page;
mod place;
mod rows;
mod rules;

use crate::ablation::{Trial, assert_fine, trials};
use crate::place::Place;
use crate::rows::ROWS;
use crate::rules::Rule;
use harness::server::version;
use harness::threads::finish;

/// Tells the tests to write the page and not to compare it.
const WRITE: &str = "REDLATCH_WRITE_PERMISSIONS";

/// So many rows at once wait more than they compute.
const AT_ONCE: usize = 3;

/// Each row by ablation.
#[test]
fn the_page_is_written() {
    if std::env::var_os(WRITE).is_none() {
        return;
    }
    let numbers: Vec<_> = (0..ROWS.len()).collect();
    let mut sections = Vec::new();
    for some in numbers.chunks(AT_ONCE) {
        sections.extend(each(some, |number| page::section(&ROWS[number], &derive(number))));
    }
    page::write(&sections);
}

/// What comes of each of these rows, at once.
fn each<T: Send>(numbers: &[usize], act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let act = &act;
    std::thread::scope(|scope| {
        let rows: Vec<_> = numbers.iter().map(|number| scope.spawn(move || act(*number))).collect();
        rows.into_iter().map(finish).collect()
    })
}

/// The rules without which something fails, is said or is refused, or for which the self-test asks, each with what that is; and with them
/// alone nothing is.
fn derive(number: usize) -> Vec<(Rule, Trial)> {
    let place = Place::start(&ROWS[number]);
    let all: Vec<_> = Rule::all().into_iter().filter(|rule| place.knows(&rule.words)).collect();
    let words: Vec<_> = all.iter().map(|rule| rule.words.as_str()).collect();
    let without = |missing: &str| words.iter().copied().filter(|word| *word != missing).collect::<Vec<_>>();
    let sets: Vec<_> = words.iter().map(|missing| without(missing)).collect();
    let tried = trials(number, &place, &sets);
    let is_needed = |(rule, trial): &(Rule, Trial)| !trial.needs_nothing() || trial.names(&rule.words);
    let needed: Vec<_> = all.into_iter().zip(tried).filter(is_needed).collect();
    let line: Vec<_> = needed.iter().map(|(rule, _)| rule.words.as_str()).collect();
    assert_fine(number, &place, &line);
    place.clear();
    needed
}

/// With the line of the page for servers of this version and nothing more all calls work, and nothing is said or refused.
fn assert_enough(number: usize) {
    let (row, place) = (&ROWS[number], Place::start(&ROWS[number]));
    assert_fine(number, &place, &page::line_of(row));
    place.clear();
}

#[test]
fn each_line_of_the_page_is_enough() {
    let is_shown = |number: &usize| ROWS[*number].since() <= version();
    each(&(0..ROWS.len()).filter(is_shown).collect::<Vec<_>>(), assert_enough);
}

#[test]
fn the_page_begins_with_the_lines_of_the_first_row() {
    assert_eq!(page::first_lines(), page::lines_of(&ROWS[0]), "run scripts/permissions");
}

/// The one that is pasted most often.
#[test]
fn each_rule_of_the_first_line_is_named_when_it_is_missing() {
    let place = Place::start(&ROWS[0]);
    let line = page::line_of(&ROWS[0]);
    let without = |missing: &str| line.iter().copied().filter(|word| *word != missing).collect::<Vec<_>>();
    let sets: Vec<_> = line.iter().map(|missing| without(missing)).collect();
    for (rule, trial) in line.iter().zip(trials(0, &place, &sets)) {
        if *rule == "+info" {
            // The run id is for releases in doubt. On a late machine a call may fail in one of several trials.
            let is_right = |trial: &Trial| trial.is_silent() && !trial.needs_nothing();
            let others = || trials(0, &place, &vec![without(rule); 3]);
            assert!(is_right(&trial) || others().iter().any(is_right), "{rule}: {trial:#?}");
        } else if !rule.starts_with("+client|") {
            assert!(trial.names(rule) && !trial.needs_nothing(), "{rule}: {trial:#?}");
        } else if !trial.is_fine() {
            // Names of connections are for those who look. No call needs them, and nobody has chosen them, so nothing is said.
            assert_fine(0, &place, &without(rule));
        }
    }
    place.clear();
}

/// What one trial runs in a process of its own, whose log nothing else writes.
#[test]
fn one_trial() {
    ablation::child();
}
