//! `redlatch doctor` on servers that are not fit for locks: the right line for each.

use crate::tool::tool;
use harness::cluster::{Cluster, Shape};
use harness::proxy::{Flow, Proxy, Step, pass};
use harness::server::Server;
use serde_json::Value;
use std::time::Duration;

/// What it said of one thing, and its exit code.
fn said(url: &str, words: &[&str], check: &str) -> (String, String, i32) {
    let output = tool(url, &[&["doctor", "--json"], words].concat()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["check"] == check).unwrap_or_else(|| panic!("no line of {check}: {text}"));
    let word = |key: &str| line[key].as_str().unwrap().to_owned();
    (word("verdict"), word("found"), output.status.code().unwrap())
}

#[track_caller]
fn is(server: &str, check: &str, verdict: &str, found: &str) {
    let (was, words, code) = said(server, &[], check);
    assert_eq!((was.as_str(), words.contains(found)), (verdict, true), "{check}: {words}");
    assert!(verdict != "bad" || code == 2, "{check}: {code}");
}

#[test]
fn one_that_evicts() {
    let server = Server::start();
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    is(&server.url(), "memory", "good", "nothing is evicted");
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    is(&server.url(), "memory", "bad", "allkeys-lru");
}

#[test]
fn one_without_persistence() {
    let server = Server::start();
    is(&server.url(), "persistence", "bad", "none");
    let _: () = server.ask(&["CONFIG", "SET", "save", "60 1"]);
    is(&server.url(), "persistence", "bad", "snapshots");
    is(&Server::start_with_data().url(), "persistence", "good", "on disk");
}

#[test]
fn a_replica() {
    let (master, server) = (Server::start_on_tcp(), Server::start());
    let _: () = server.ask(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    is(&server.url(), "role", "bad", "a replica");
}

#[test]
fn one_whose_clock_is_wrong() {
    let server = Server::start_with_data_and_clock();
    if !server.set_clock(5_000) {
        return println!("not shown: no library can be preloaded here");
    }
    is(&server.url(), "clock", "mind", "ahead of ours");
    assert!(server.set_clock(-100_000));
    is(&server.url(), "clock", "bad", "behind ours");
}

#[test]
fn one_that_refuses_this_user() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "~other:* &* +@all");
    let (verdict, found, code) = said(&url, &[], "permissions");
    assert_eq!((verdict.as_str(), found.contains("ACL SETUSER app"), code), ("bad", true, 2), "{found}");
    let few = server.let_in("few", "secret", "~* &* +@all -config -slowlog");
    assert_eq!(said(&few, &[], "slow log").0, "unknown", "what it may not ask is no fault");
}

/// A server that says so. The oldest that can be installed here is newer.
#[test]
fn one_of_an_old_version() {
    let server = Server::start();
    let version: String = server.ask(&["INFO", "server"]);
    let version = version.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap().trim().to_owned();
    let old = format!("5{}", &version[1..]);
    let proxy = Proxy::new(server.socket());
    proxy.set(move |_, flow, data| match flow {
        Flow::Reply => vec![Step::Send(
            String::from_utf8_lossy(data)
                .replace(&format!("version:{version}"), &format!("version:{old}"))
                .into_bytes(),
        )],
        Flow::Request => pass(data),
    });
    is(&proxy.url(), "version", "bad", "5.");
    is(&server.url(), "version", "good", "");
}

#[test]
fn a_cluster_by_the_url_of_a_server() {
    let cluster = Cluster::of(Shape::STEADY);
    let node = cluster.url().replace("redis+cluster://", "redis://");
    let node = node.split(',').next().unwrap().to_owned();
    is(&node, "cluster", "bad", "by the URL of a single server");
}

#[test]
fn one_that_is_slow() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    proxy.delay(Duration::from_millis(15));
    is(&proxy.url(), "speed", "mind", "p50");
    is(&server.url(), "speed", "good", "p50");
}

#[test]
fn one_whose_commands_were_slow() {
    let server = Server::start();
    let busy = "local sum = 0 for number = 1, 3e7 do sum = sum + number end return 1";
    let _: i64 = server.ask(&["EVAL", busy, "0"]);
    is(&server.url(), "slow log", "mind", "the slowest took");
}

#[test]
fn it_leaves_nothing() {
    let server = Server::start();
    let output = tool(&server.url(), &["doctor"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("a waiter was woken"), "{output:?}");
}
