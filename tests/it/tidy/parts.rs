//! What `scripts/lib/parts` shares out among eight runs: all of it is in one of them.

use super::root;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

const PARTS: usize = 8;

/// What the script says for a part and a server, given these lines.
fn said(part: usize, server: &str, args: &[&str], lines: &str) -> Vec<String> {
    let mut command = Command::new(root().join("scripts/lib/parts"));
    command.args(args).env("REDLATCH_PART", part.to_string()).env("REDLATCH_SERVER", server);
    // Nothing has changed: else all controls may be in all parts.
    command.env("REDLATCH_BASE", "HEAD");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    // A script that answers before it has read all must not stop this.
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writing.join().unwrap();
    assert!(output.status.success(), "part {part}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The tests of this program, as the runner of Cargo hands them over.
fn tests() -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format", "terse"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// In how many parts a test is.
fn count(parts: &[Vec<String>], name: &str) -> usize {
    parts.iter().filter(|part| part.iter().any(|one| one == name)).count()
}

#[test]
fn every_test_is_in_one_part_or_in_all() {
    let all = tests();
    for (server, least, most) in [("system", 0.75, 0.9), ("valkey-9.1", 0.125, 0.25)] {
        let of_it = |part| said(part, server, &["--tests", "it"], &all.join("\n"));
        let parts: Vec<_> = (0..PARTS).map(of_it).collect();
        for name in &all {
            let count = count(&parts, name);
            assert!(count == 1 || count == PARTS, "{name} is in {count} parts on {server}");
        }
        for part in &parts {
            let share = part.len() as f64 / all.len() as f64;
            assert!(least < share && share < most, "a part has {share} of the tests on {server}");
        }
    }
}

/// What a run of any part shows at each deployment, and on each server.
#[test]
fn what_each_part_must_have_is_in_all() {
    let all = tests().join("\n");
    let in_all = [
        ("system", "conformance::tcp::reentrant::an_unlock_wakes_a_waiter"),
        ("system", "conformance::cluster_by_tls::reentrant::a_watched_hold_is_renewed"),
        ("system", "conformance::sentinel::fair::an_unlock_wakes_a_waiter"),
        ("system", "conformance::single::fenced::every_form_re_enters"),
        ("system", "conformance::quorum::an_unlock_wakes_a_waiter"),
        ("valkey-9.1", "conformance::single::fair::an_unlock_wakes_a_waiter"),
        ("valkey-9.1", "rights::several::what_sentinels_refuse_is_named"),
        ("valkey-9.1", "scripts::a_stale_acquire_of_a_strict_client_begins_no_quarantine"),
    ];
    for (server, name) in in_all {
        let parts: Vec<_> = (0..PARTS).map(|part| said(part, server, &["--tests", "it"], &all)).collect();
        assert_eq!(count(&parts, name), PARTS, "{name} on {server}");
    }
    let other = "conformance::tcp::fair::an_unlock_wakes_a_waiter";
    let parts: Vec<_> = (0..PARTS).map(|part| said(part, "system", &["--tests", "it"], &all)).collect();
    assert_eq!(count(&parts, other), 1, "{other}");
}

/// The script reads them out of the source. Some are hunted by the torture test, and the others by pairs of faults.
#[test]
fn every_mutant_is_hunted_in_some_part() {
    let text = std::fs::read_to_string(root().join("src/base/mutant.rs")).unwrap();
    let named = text.lines().filter(|line| line.contains("\" => Mutant::")).count();
    let hunted = |by: &'static str| -> BTreeSet<String> {
        let lines = (0..PARTS).flat_map(|part| said(part, "system", &[by], ""));
        lines.flat_map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let [torture, pairs] = ["--controls", "--pairs"].map(hunted);
    assert!(torture.len() > 40 && pairs.len() > 5 && torture.is_disjoint(&pairs), "{torture:?} and {pairs:?}");
    assert_eq!(torture.len() + pairs.len(), named, "mutants of the source");
}
