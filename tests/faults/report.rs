//! Writes the table of `docs/faults.md` from what runs of the tests printed; `scripts/faults` calls it.
//!
//! Arguments: one file for each run, whose first line is what the server says of its version.

mod rows;

use rows::Row;
use std::collections::{BTreeMap, BTreeSet};

/// What the runs on one server showed.
#[derive(Default)]
struct Server {
    /// Its kind and version.
    name: String,
    runs: usize,
    /// For each test in how many runs it passed.
    passed: BTreeMap<String, usize>,
    /// The tests that passed without showing anything, because this version cannot, and why.
    not_shown: BTreeMap<String, String>,
}

impl Server {
    fn failures(&self, tests: &BTreeSet<String>) -> usize {
        tests.iter().map(|test| self.runs - self.passed.get(test).unwrap_or(&0)).sum()
    }

    fn read(&mut self, output: &str) {
        // What follows was printed by the tests, some of which run tests in other processes.
        let (results, printed) = output.split_once("\nsuccesses:\n").unwrap_or((output, ""));
        for line in results.lines() {
            let Some((test, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
                continue;
            };
            if Row::number_of(test).is_some() {
                *self.passed.entry(test.to_owned()).or_default() += usize::from(result == "ok");
            }
        }
        let mut test = "";
        for line in printed.lines() {
            test = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")).unwrap_or(test);
            if let Some(reason) = line.strip_prefix("not shown: ") {
                self.not_shown.insert(test.to_owned(), reason.to_owned());
            }
        }
        self.runs += 1;
    }

    /// What of a row this server cannot show.
    fn gap(&self, tests: &BTreeSet<String>) -> Option<String> {
        let missing: Vec<_> = tests.iter().filter_map(|test| self.not_shown.get(test)).collect();
        let part = match (missing.len(), tests.len()) {
            (0, _) => return None,
            (missing, all) if missing == all => String::new(),
            (missing, all) => format!("{missing} of {all} tests "),
        };
        let reasons = missing.into_iter().collect::<BTreeSet<_>>().into_iter().map(String::as_str);
        Some(format!("{part}not on {}: {}", self.name, reasons.collect::<Vec<_>>().join(", ")))
    }
}

fn main() {
    let mut servers: Vec<Server> = Vec::new();
    for file in std::env::args().skip(1) {
        let output = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(output.contains("\ntest result: "), "{file}: the run did not end");
        let name = name_in(&output).unwrap_or_else(|| panic!("{file}: no version"));
        let known = servers.iter().position(|server| server.name == name);
        let at = known.unwrap_or_else(|| {
            servers.push(Server { name, ..Server::default() });
            servers.len() - 1
        });
        servers[at].read(&output);
    }
    print!("{}", report(&servers));
}

/// `Redis 7.0.15` of `Redis server v=7.0.15 sha=..`.
fn name_in(output: &str) -> Option<String> {
    let (kind, rest) = output.split_once(" server v=")?;
    Some(format!("{kind} {}", rest.split_whitespace().next()?))
}

fn report(servers: &[Server]) -> String {
    let runs = servers.first().expect("a run").runs;
    assert!(servers.iter().all(|server| server.runs == runs), "as many runs on each server");
    let rows = Row::all();
    let tests: BTreeSet<_> = servers.iter().flat_map(|server| server.passed.keys().cloned()).collect();
    let lines: Vec<_> = rows.iter().map(|row| line(row, servers, &tests)).collect();
    let is = |result: &str| lines.iter().filter(|(_, end)| end.starts_with(result)).count();
    let failures: usize = servers.iter().map(|server| server.failures(&tests)).sum();
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    let table: String = lines.iter().map(|(line, result)| format!("{line} {result} |\n")).collect();
    format!(
        "# Faults

What each fault leads to, by test. Made by `scripts/faults --runs {runs}`, which runs the tests of `tests/faults`
against real servers and writes this file from what they print; a row is described in `tests/faults/rows.txt`.

- Servers: {}.
- {} rows: {} passed, {} not yet applicable, {} failed.
- {} tests, each run {runs} times on each server: {failures} failures.

\"Not yet\" names what of a row belongs to a deployment, a kind of lock or a setting that is not there yet; \"not on\" names
a server that cannot show it, and why.

| # | fault | what happens | what the caller sees | tests | result |
| --- | --- | --- | --- | --- | --- |
{table}",
        names.join(", "),
        rows.len(),
        is("passed"),
        is("not yet"),
        is("failed"),
        tests.len(),
    )
}

/// A row of the table: the part that does not depend on the runs, and the result.
fn line(row: &Row, servers: &[Server], tests: &BTreeSet<String>) -> (String, String) {
    let tests = tests.iter().filter(|test| Row::number_of(test) == Some(row.number)).cloned().collect();
    let gaps = servers.iter().filter_map(|server| server.gap(&tests));
    let open = (!row.open.is_empty()).then(|| format!("not yet: {}", row.open));
    let parts: Vec<_> = verdict(row, servers, &tests).into_iter().chain(gaps).chain(open).collect();
    (row.line(&tests), parts.join("; "))
}

fn verdict(row: &Row, servers: &[Server], tests: &BTreeSet<String>) -> Option<String> {
    if tests.is_empty() {
        return row.open.is_empty().then(|| "failed: no test".to_owned());
    }
    let failed = servers.iter().map(|server| (server.failures(tests), &server.name)).filter(|(times, _)| *times > 0);
    let failed: Vec<_> = failed.map(|(times, name)| format!("{times} times on {name}")).collect();
    Some(if failed.is_empty() { "passed".to_owned() } else { format!("failed: {}", failed.join(", ")) })
}
