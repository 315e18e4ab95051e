//! Writes the table of `docs/faults.md` from what runs of the tests printed; `scripts/faults` calls it.
//!
//! Arguments: the server's version, and one file for each run.

mod rows;

use rows::Row;
use std::collections::BTreeMap;

/// For each test in how many runs it passed.
type Results = BTreeMap<String, usize>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let version = arguments.next().expect("the server's version");
    let mut results = Results::new();
    let mut runs = 0;
    for file in arguments {
        let output = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(output.contains("\ntest result: "), "{file}: the run did not end");
        count(&output, &mut results);
        runs += 1;
    }
    assert!(runs > 0, "no run");
    print!("{}", report(&version, runs, &results));
}

/// Lines of the kind `test data::fault_05_what ... ok`.
fn count(output: &str, results: &mut Results) {
    for line in output.lines() {
        let Some((test, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            continue;
        };
        if Row::number_of(test).is_some() {
            *results.entry(test.to_owned()).or_default() += usize::from(result == "ok");
        }
    }
}

fn report(version: &str, runs: usize, results: &Results) -> String {
    let rows = Row::all();
    let lines: Vec<_> = rows.iter().map(|row| line(row, runs, results)).collect();
    let is = |result: &str| lines.iter().filter(|(_, end)| end.starts_with(result)).count();
    let failures: usize = results.values().map(|passed| runs - passed).sum();
    let table: String = lines.iter().map(|(line, result)| format!("{line} {result} |\n")).collect();
    format!(
        "# Faults

What each fault leads to, by test. Made by `scripts/faults --runs {runs}`, which runs the tests of `tests/faults`
against real servers and writes this file from what they print; a row is described in `tests/faults/rows.txt`.

- Server: {version}.
- {} rows: {} passed, {} not yet applicable, {} failed.
- {} tests, each run {runs} times: {failures} failures.

\"Not yet\" names what of a row belongs to a deployment, a kind of lock or a setting that is not there yet.

| # | fault | what happens | what the caller sees | tests | result |
| --- | --- | --- | --- | --- | --- |
{table}",
        rows.len(),
        is("passed"),
        is("not yet"),
        is("failed"),
        results.len(),
    )
}

/// A row of the table: the part that does not depend on the runs, and the result.
fn line(row: &Row, runs: usize, results: &Results) -> (String, String) {
    let tests = || results.iter().filter(|(test, _)| Row::number_of(test) == Some(row.number));
    let failed: usize = tests().map(|(_, passed)| runs - passed).sum();
    let verdict = match tests().count() {
        0 if row.open.is_empty() => "failed: no test".to_owned(),
        0 => String::new(),
        _ if failed > 0 => format!("failed: {failed} times"),
        _ => "passed".to_owned(),
    };
    let open = if row.open.is_empty() { String::new() } else { format!("not yet: {}", row.open) };
    let result = [verdict, open].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    (row.line(tests().map(|(test, _)| test)), result)
}
