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
    text.push_str("| rule | what it is for | without it | the self-test says, and a call or the log |\n| --- | --- | --- | --- |\n");
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
    let calls: Vec<_> = refusals(trial).map(|(call, _)| call.as_str()).collect();
    match calls.len() {
        0 => "all calls work".to_owned(),
        count if count > 8 => "no lock is taken".to_owned(),
        _ => format!("fails: {}", calls.join(", ")),
    }
}

/// The calls that failed for want of the rule, and not of time.
fn refusals(trial: &Trial) -> impl Iterator<Item = &(String, String)> {
    trial.failed.iter().filter(|(_, why)| why.contains("NOPERM"))
}

/// Whether the self-test names the rule, and what is told or logged without a self-test.
fn said(rule: &str, trial: &Trial) -> String {
    let advice = trial.names(rule).then(|| format!("`ACL SETUSER app {}`", cell(rule)));
    let first = refusals(trial).next().map(|(_, why)| why).or(trial.logged.first());
    let first = first.map(|text| format!("`{}`", cell(&in_short(text))));
    let all: Vec<_> = advice.into_iter().chain(first).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
}

/// Without what all refusals have in common, and what each run or each version of a script says in another way.
fn in_short(text: &str) -> String {
    let text = match text.split_once("\"Which permissions\": ") {
        Some((_, rest)) => format!("NOPERM .. {rest}"),
        None => text.to_owned(),
    };
    // Its hash, and the line in it.
    let end = text.find(", on @user_script").and_then(|end| text[..end].rfind(" script: "));
    let text = &text[..end.unwrap_or(text.len())];
    text.split(' ').map(without_address).collect::<Vec<_>>().join(" ")
}

fn without_address(word: &str) -> String {
    let is_path = word.starts_with('/') || word.starts_with("127.0.0.1:");
    let tail = word.chars().last().filter(|last| [':', ','].contains(last));
    match word.find("redlatch_ear:") {
        _ if is_path => format!("redis:6379{}", tail.map(String::from).unwrap_or_default()),
        Some(_) => "\"redlatch_ear:..\",".to_owned(),
        None => word.to_owned(),
    }
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
