//! The page that is written, and read again by the tests.

use crate::ablation::Trial;
use crate::place::line;
use crate::rows::Row;
use crate::rules::Rule;
use harness::ROOT;
use std::fmt::Write;

/// What is between them is made.
const MARKS: [&str; 2] = ["<!-- by scripts/permissions: -->\n", "<!-- until here -->\n"];

fn path() -> String {
    format!("{ROOT}/docs/permissions.md")
}

/// One row: what to paste, and what each rule is for.
pub(crate) fn section(row: &Row, needed: &[(Rule, Trial)]) -> String {
    let rules: Vec<_> = needed.iter().map(|(rule, _)| rule.words.as_str()).collect();
    let mut text = format!("## {}\n\n```text\n{}\n```\n\n", row.title, line("app", ">secret", &rules));
    text.push_str("| rule | what it is for | without it | what is said |\n| --- | --- | --- | --- |\n");
    for (rule, trial) in needed {
        let (failed, said) = (failed(trial), said(&rule.words, trial));
        writeln!(text, "| `{}` | {} | {failed} | {said} |", cell(&rule.words), rule.purpose).unwrap();
    }
    text + "\n"
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn failed(trial: &Trial) -> String {
    let calls: Vec<_> = trial.failed.iter().map(|(call, _)| call.as_str()).collect();
    match calls.len() {
        0 => "all calls work".to_owned(),
        count if count > 8 => "no lock is taken".to_owned(),
        _ => calls.join(", ") + " fail",
    }
}

/// The words for `ACL SETUSER` if the self-test says them, and what is logged or told without it.
fn said(rule: &str, trial: &Trial) -> String {
    let advice = trial.names(rule).then(|| "the self-test names it".to_owned());
    let first = trial.failed.first().map(|(_, why)| why).or(trial.logged.first());
    let first = first.map(|text| format!("`{}`", cell(&without_addresses(text))));
    let all: Vec<_> = advice.into_iter().chain(first).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
}

/// Each run has others.
fn without_addresses(text: &str) -> String {
    let word = |word: &str| {
        let is_path = word.starts_with("/") || word.starts_with("127.0.0.1:");
        let end = word.trim_end_matches(|letter| letter != ':' && letter != ',');
        let tail = if word.ends_with([':', ',']) { &end[end.len() - 1..] } else { "" };
        if is_path { format!("redis:6379{tail}") } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn write(sections: &[String]) {
    let page = std::fs::read_to_string(path()).unwrap();
    let (before, rest) = page.split_once(MARKS[0]).unwrap();
    let (_, after) = rest.split_once(MARKS[1]).unwrap();
    let [from, to] = MARKS;
    std::fs::write(path(), format!("{before}{from}\n{}{to}{after}", sections.concat())).unwrap();
}

/// The rules that the page lists for a row.
pub(crate) fn line_of(row: &Row) -> Vec<&'static str> {
    let page = include_str!("../../docs/permissions.md");
    let (_, rest) = page.split_once(&format!("## {}\n\n```text\n", row.title)).expect(row.title);
    let words = rest.lines().next().unwrap().split(' ');
    words.skip(3).filter(|word| word.starts_with(['+', '~', '&'])).collect()
}
