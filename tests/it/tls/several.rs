//! Several servers: which names their certificates must have, and that a wrong one is named with its server.

use super::locks;
use crate::harness::cluster::{self, Cluster};
use crate::harness::member::Member;
use crate::harness::papers::{Flaw, OTHER_HOST, known, papers};
use crate::harness::sentinel::{Group, Shape};
use crate::threads::{SOON, timed};
use redlatch::{ClientBuilder, Error, RedLock, RedLockExt};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The same group for clients that are told of its sentinels, and those that are told of its nodes.
fn group(flaw: Flaw) -> Group {
    Group::of(Shape::STEADY.sealed(flaw))
}

fn cluster(flaw: Flaw) -> Cluster {
    Cluster::of(cluster::Shape::STEADY.sealed(flaw))
}

fn works(builder: ClientBuilder, name: &str) {
    locks(builder).guard(name).unwrap().unlock().unwrap();
}

/// At once and for good, with the server's address.
#[track_caller]
fn assert_told(builder: ClientBuilder, name: &str, words: &str, at: &[&Member]) {
    let locks = locks(builder);
    let (told, took) = timed(|| locks.lock(name));
    let error = told.unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "TLS"), "{error:?}");
    assert!(took <= SOON && !error.is_retryable(), "{error} after {took:?}");
    let text = error.to_string();
    assert!(text.contains(words) && at.iter().any(|node| text.contains(&node.address())), "{text}");
}

/// Whatever comes unsealed is not answered, so what works came sealed.
fn assert_sealed(member: &Member) {
    let mut stream = TcpStream::connect(member.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!said.starts_with(b"+PONG") && !said.starts_with(b"-"), "{said:?}");
}

#[test]
fn no_process_of_a_sealed_deployment_answers_who_comes_unsealed() {
    let (group, cluster) = (group(Flaw::None), cluster(Flaw::None));
    works(group.builder(), "n");
    works(group.by_address(1), "n");
    works(cluster.builder(), "n");
    group.nodes.iter().chain(&group.sentinels).chain(&cluster.nodes).for_each(assert_sealed);
}

/// One that all of them share is given to the client, in whichever way it finds them.
#[test]
fn a_name_that_all_certificates_have_does_for_all_servers() {
    let (group, cluster) = (group(Flaw::OtherHost), cluster(Flaw::OtherHost));
    let named = || known().server_name(OTHER_HOST);
    works(group.builder().tls(named()), "n");
    works(group.by_address(1).tls(named()), "n");
    works(cluster.builder().tls(named()), "n");
    let (nodes, sentinels) = (group.nodes.iter().collect::<Vec<_>>(), group.sentinels.iter().collect::<Vec<_>>());
    assert_told(group.builder(), "n", "is of another host", &sentinels);
    assert_told(group.by_address(1), "n", "is of another host", &nodes);
    assert_told(cluster.builder(), "n", "is of another host", &cluster.nodes.iter().collect::<Vec<_>>());
}

/// Sentinels and clusters name servers by addresses, and what they name is mapped: the certificate has to name where that leads.
#[test]
fn a_certificate_names_the_host_to_which_the_map_leads() {
    let (group, cluster) = (group(Flaw::None), cluster(Flaw::None));
    let map = |_: &str, port| ("localhost".to_owned(), port);
    let told = |builder: ClientBuilder| locks(builder.map_address(map)).lock("n").unwrap_err().to_string();
    for text in [told(group.builder()), told(cluster.builder())] {
        assert!(text.contains("localhost:") && text.contains("is of another host"), "{text}");
    }
    works(group.builder().map_address(map).tls(known().server_name("127.0.0.1")), "n");
}

/// The others vouch for it: it is the client that has to see it.
fn show(member: &mut Member, flaw: Flaw) {
    member.kill();
    member.show(&papers(flaw));
    member.restart();
}

#[test]
fn a_master_with_a_foreign_certificate_is_named_where_sentinels_and_addresses_lead_to_it() {
    let mut group = group(Flaw::None);
    show(&mut group.nodes[0], Flaw::Foreign);
    assert_told(group.builder(), "n", "not trusted here", &[&group.nodes[0]]);
    group.nodes[1].promote();
    works(group.by_address(2), "n");
}

#[test]
fn a_node_of_a_cluster_with_a_wrong_certificate_is_named_and_the_others_go_on() {
    let mut cluster = cluster(Flaw::None);
    let [wrong, right] = [0, 1].map(|node| cluster.name_at(node, 0));
    show(&mut cluster.nodes[0], Flaw::OtherHost);
    cluster.settled();
    assert_told(cluster.builder(), &wrong, "is of another host", &[&cluster.nodes[0]]);
    works(cluster.builder(), &right);
}

#[test]
fn a_sentinel_with_a_foreign_certificate_is_named_if_there_is_no_other() {
    let mut group = Group::of(Shape::SMALL.sealed(Flaw::None));
    show(&mut group.sentinels[0], Flaw::Foreign);
    assert_told(group.builder(), "n", "not trusted here", &[&group.sentinels[0]]);
}
