//! Each command on each deployment.

use crate::tool::{Said, ends, tool};
use harness::cluster::{self, Cluster};
use harness::papers::{Flaw, papers};
use harness::sentinel::{self, Group};
use harness::server::{Server, Signal, signal};
use harness::threads::{LONG, eventually};
use std::path::Path;
use std::process::Command;

/// Runs all commands, each told by `with` where the locks are.
fn all_work(with: impl Fn(&[&str]) -> Command) {
    let says = |words: &[&str]| -> Said { with(words).output().unwrap().into() };
    let mut run = with(&["run", "tool:1", "--", "sleep", "60"]).spawn().unwrap();
    eventually(LONG, "it is held", || says(&["status", "tool:1"]).code == Some(0));
    let status = says(&["status", "tool:1"]);
    assert!(status.out.contains("run/sleep@"), "{status:?}");
    let waits = with(&["run", "tool:1", "--", "true"]).spawn().unwrap();
    eventually(LONG, "who waits is named", || says(&["status", "tool:1"]).out.contains("waits    run/true@"));
    let deadlocks = says(&["deadlocks"]);
    assert!(deadlocks.out == "no circles\n" && deadlocks.err.is_empty(), "{deadlocks:?}");
    let listed = says(&["list", "--match", "tool:*"]);
    assert!(listed.out.lines().count() == 2 && listed.out.contains("run/sleep@"), "{listed:?}");
    let doctor = says(&["doctor"]);
    assert!(
        doctor.out.contains("may take and release locks") && doctor.out.contains("a waiter was woken"),
        "{doctor:?}"
    );
    let bench = says(&["bench", "--yes", "--seconds", "50ms", "--threads", "2"]);
    assert!(bench.code == Some(0) && bench.out.contains("pairs a second"), "{bench:?}");
    assert_eq!(says(&["run", "--wait", "0s", "tool:1", "--", "true"]).code, Some(75));
    assert_eq!(says(&["unlock", "--yes", "tool:1"]).code, Some(0));
    assert_eq!(ends(waits).code, Some(0));
    assert_eq!(says(&["run", "-n", "2", "tool:2", "--", "true"]).code, Some(0));
    signal(Signal::TERM, run.id()).unwrap();
    assert!(!run.wait().unwrap().success(), "its lock was freed");
}

#[test]
fn one_server() {
    let server = Server::start();
    all_work(|words| tool(&server.url(), words));
    server.clear();
}

#[test]
fn sentinels() {
    let group = Group::of(sentinel::Shape::STEADY);
    all_work(|words| tool(&group.url(), words));
}

#[test]
fn a_cluster() {
    let cluster = Cluster::of(cluster::Shape::STEADY);
    all_work(|words| tool(&cluster.url(), words));
}

/// The server asks for a certificate of the client's.
#[test]
fn tls() {
    let papers = papers(Flaw::None);
    let server = Server::start_with_tls(&papers, true);
    let dir = server.socket().parent().unwrap().to_owned();
    let file = |name: &str| Path::join(&dir, name);
    all_work(|words| {
        let mut command = tool(&server.tls_url(), words);
        command.env("REDLATCH_CA", file("ca")).env("REDLATCH_CERT", file("chain")).env("REDLATCH_KEY", file("key"));
        command
    });
    let without: Said = tool(&server.tls_url(), &["status", "n"]).output().unwrap().into();
    assert_eq!((without.code, without.err.contains("certificate")), (Some(77), true), "{without:?}");
    server.clear();
}
