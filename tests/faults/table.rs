//! That no row is without a test or a reason, and `docs/faults.md` tells of all of them.

use crate::rows::Row;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(harness::ROOT)
}

/// Every test that is of a row, as `module::name`, sorted as the table is.
fn tests() -> Vec<String> {
    let files = std::fs::read_dir(root().join("tests/faults")).unwrap().map(|entry| entry.unwrap().path());
    let mut tests: Vec<_> = files.filter(|path| path.is_file()).flat_map(|path| tests_in(&path)).collect();
    tests.sort();
    assert!(tests.len() > 50, "the tests were not found");
    tests
}

fn tests_in(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let module = path.file_stem().unwrap().to_string_lossy().into_owned();
    let functions = text.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split('(').next());
    let functions = functions.filter(|name| name.starts_with("fault_"));
    functions.map(|name| format!("{module}::{name}")).collect()
}

fn of_row<'t>(tests: &'t [String], row: &Row) -> Vec<&'t String> {
    tests.iter().filter(|test| Row::number_of(test) == Some(row.number)).collect()
}

#[test]
fn there_are_160_rows() {
    let numbers: Vec<_> = Row::all().iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=160).collect::<Vec<_>>());
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    let tests = tests();
    for row in Row::all() {
        let count = of_row(&tests, &row).len();
        assert!(count > 0 || !row.open.is_empty(), "row {} has neither a test nor a reason", row.number);
    }
}

#[test]
fn every_test_is_of_a_row() {
    let rows = Row::all();
    for test in tests() {
        let number = Row::number_of(&test);
        assert!(rows.iter().any(|row| Some(row.number) == number), "{test} is of no row");
    }
}

#[test]
fn the_report_tells_of_these_rows_and_tests() {
    let report = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let tests = tests();
    for row in Row::all() {
        let line = row.line(of_row(&tests, &row));
        let shown = report.lines().filter(|shown| shown.starts_with(&line)).count();
        assert_eq!(shown, 1, "docs/faults.md is old, run scripts/faults: it does not have\n{line}");
    }
    let shown = report.lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(shown, Row::all().len() + 2, "docs/faults.md has other rows too");
}
