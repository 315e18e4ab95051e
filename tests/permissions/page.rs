//! The page that is written, and read again by the tests.

use crate::ablation::Trial;
use crate::place::line;
use crate::rows::Row;
use crate::rules::Rule;
use harness::ROOT;
use harness::server::version;
use std::fmt::Write;

/// What is between them is made: the lines of the first row, and all rows.
const MARKS: [[&str; 2]; 2] = [
    ["<!-- lines by scripts/permissions: -->\n", "<!-- until here -->\n"],
    ["<!-- rows by scripts/permissions: -->\n", "<!-- until here -->\n"],
];

/// Servers know the same rules from one of these versions to the next.
const SERVERS: [(u32, u32); 3] = [(6, 0), (6, 2), (7, 2)];

/// What the library's name in `CLIENT LIST` needs: other servers refuse a whole line for it.
const NAME: &str = "+client|setinfo";

const PAGE: &str = include_str!("../../docs/permissions.md");

fn path() -> String {
    format!("{ROOT}/docs/permissions.md")
}

/// One row: what to paste, and what each rule is for.
pub(crate) fn section(row: &Row, needed: &[(Rule, Trial)]) -> String {
    let rules: Vec<_> = needed.iter().map(|(rule, _)| rule.words.as_str()).collect();
    let mut text = format!("## {}\n\n{}", row.title, lines(row, &rules));
    text.push_str("| rule | what it is for | without it | the self-test says, and a call or the log |\n| --- | --- | --- | --- |\n");
    for (rule, trial) in needed {
        let (failed, said) = (failed(trial), said(&rule.words, trial));
        writeln!(text, "| `{}` | {} | {failed} | {said} |", cell(&rule.words), rule.purpose).unwrap();
    }
    text + "\n"
}

/// What is pasted, for each group of servers a line that all of them understand.
fn lines(row: &Row, rules: &[&str]) -> String {
    let ends = SERVERS.into_iter().skip(1).chain([(u32::MAX, 0)]);
    let shown = SERVERS.into_iter().zip(ends).filter(|(_, end)| row.since() < *end);
    let blocks = shown.map(|(from, _)| {
        let pasted = line(from, "app", ">secret", &known_since(from, rules));
        format!("{}:\n\n```text\n{pasted}\n```\n\n", name_of(from, row))
    });
    blocks.collect()
}

fn name_of(from: (u32, u32), row: &Row) -> &'static str {
    match from {
        (6, 0) => "Redis 6.0",
        (6, _) if row.since() > from => "Redis 7.0",
        (6, _) => "Redis 6.2 and 7.0",
        _ => "Redis 7.2 and later, Valkey",
    }
}

/// The rules that servers know from this version on: those of 6.0 have none for channels.
fn known_since<'r>(from: (u32, u32), rules: &[&'r str]) -> Vec<&'r str> {
    let is_known = |rule: &&str| (from >= (7, 2) || *rule != NAME) && (from >= (6, 2) || !rule.starts_with('&'));
    rules.iter().copied().filter(is_known).collect()
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
    let text = match text.split_once("docs/permissions.md lists: ") {
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
    let (_, first) = sections[0].split_once("\n\n").unwrap();
    let (first, _) = first.split_once("| rule |").unwrap();
    let page = with_part(&page, MARKS[0], first);
    std::fs::write(path(), with_part(&page, MARKS[1], &sections.concat())).unwrap();
}

/// The page with other text between two marks.
fn with_part(page: &str, [from, to]: [&str; 2], text: &str) -> String {
    let (before, rest) = page.split_once(from).unwrap();
    let (_, after) = rest.split_once(to).unwrap();
    format!("{before}{from}\n{text}{to}{after}")
}

/// What the page tells its readers to paste first.
pub(crate) fn first_lines() -> &'static str {
    let (_, rest) = PAGE.split_once(MARKS[0][0]).unwrap();
    rest.split_once(MARKS[0][1]).unwrap().0.trim()
}

/// The lines of a row.
pub(crate) fn lines_of(row: &Row) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("## {}\n\n", row.title)).expect(row.title);
    rest.split_once("| rule |").unwrap().0.trim()
}

/// The rules that the page lists for a row, in the line for servers of this version.
pub(crate) fn line_of(row: &Row) -> Vec<&'static str> {
    let from = SERVERS.into_iter().rfind(|from| *from <= version()).unwrap();
    let (_, rest) = lines_of(row).split_once(&format!("{}:\n\n```text\n", name_of(from, row))).expect(row.title);
    let words = rest.lines().next().unwrap().split(' ');
    words.skip(3).filter(|word| word.starts_with(['+', '~', '&'])).collect()
}
