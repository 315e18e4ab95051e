//! The health checks: what they say of a server that is there, is not, hangs or does not let in, and how soon.

use crate::harness::quorum;
use crate::proxy::{Flow, Proxy, cut_after, pass};
use crate::server::{Server, free_port};
use crate::threads::{LATE, LONG, SOON, answered, ms, timed};
use redlatch::{Applied, Client, Error, RedLock, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A ping's time that is over while a test waits for it.
const SHORT: Duration = Duration::from_millis(100);

/// That the ping says that nobody answered, no later than its time and the margins allow.
fn assert_unavailable<T: std::fmt::Debug>(ping: impl FnOnce() -> Result<T>) -> String {
    let (result, took) = timed(ping);
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(took <= SHORT + LATE, "took {took:?}");
    assert_eq!((error.resource(), error.applied(), error.is_retryable()), (None, Applied::No, true));
    assert!(error.to_string().starts_with("no server answered in time"), "{error}");
    error.to_string()
}

#[test]
fn a_server_that_is_there_answers_in_one_round_trip() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    assert!(client.ping(SOON).unwrap() < SOON);
    let commands = server.commands_during(|| assert!(client.ping(SOON).unwrap() < SOON));
    assert_eq!(commands, ["\"ping\""]);
    answered(|| client.ping(Duration::ZERO));
}

#[test]
fn where_nobody_listens_it_says_so_at_once() {
    let client = Client::connect(&format!("redis://127.0.0.1:{}", free_port())).unwrap();
    assert_unavailable(|| client.ping(SHORT));
    let (_, took) = timed(|| client.ping(Duration::MAX).unwrap_err());
    assert!(took <= SOON, "took {took:?}");
}

#[test]
fn a_server_that_hangs_costs_no_more_than_the_time() {
    let server = Server::start();
    let (cold, warm) = (server.builder().build().unwrap(), server.builder().build().unwrap());
    warm.ping(SOON).unwrap();
    server.freeze();
    assert_unavailable(|| cold.ping(SHORT));
    assert_unavailable(|| warm.ping(SHORT));
    assert!(warm.stats().outage.is_none(), "who had less time than an answer may take learned nothing");
    server.thaw();
    assert!(cold.ping(SOON).is_ok() && warm.ping(SOON).is_ok());
}

#[test]
fn no_answer_is_waited_for_longer_than_the_response_timeout() {
    let server = Server::start();
    let client = server.builder().response_timeout(SHORT).build().unwrap();
    answered(|| client.ping(SOON));
    server.freeze();
    assert_unavailable(|| client.ping(Duration::MAX));
    assert!(client.stats().outage.is_some());
    server.thaw();
}

#[test]
fn a_connection_that_was_closed_while_idle_is_made_anew() {
    let mut server = Server::start();
    let client = server.builder().build().unwrap();
    client.ping(SOON).unwrap();
    server.kill();
    assert_unavailable(|| client.ping(SHORT));
    server.restart();
    client.ping(SOON).unwrap();
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    client.ping(SOON).unwrap();
}

/// The first may have met a connection that was closed while idle; the second did not.
#[test]
fn a_ping_that_is_cut_is_sent_twice_and_no_more() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let client = Client::connect(&proxy.url()).unwrap();
    let cut = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&cut);
    proxy.set(move |_, flow, data| {
        let is_ping = flow == Flow::Request && data.ends_with(b"PING\r\n");
        count.fetch_add(usize::from(is_ping), SeqCst);
        if is_ping { cut_after(0, data) } else { pass(data) }
    });
    assert_err!(client.ping(LONG), Unavailable);
    assert_eq!(cut.load(SeqCst), 2);
    proxy.clear();
    client.ping(SOON).unwrap();
}

#[test]
fn after_a_shutdown_it_is_closed() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    client.ping(SOON).unwrap();
    client.shutdown();
    let error = client.ping(SOON).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert_eq!((error.resource(), &error.to_string()[..23]), (None, "the client is shut down"));
}

#[test]
fn a_wrong_password_is_refused() {
    let server = Server::start();
    let client = Client::connect(&server.url_as("nobody", "Sesame-0815")).unwrap();
    let error = client.ping(SOON).unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
    let text = "the server refused (WRONGPASS), check user and password: ";
    assert!(error.to_string().starts_with(text) && !error.to_string().contains("Sesame"), "{error}");
    assert_eq!(error.resource(), None);
}

#[test]
fn a_quorum_says_how_many_of_its_nodes_answer() {
    let mut servers = quorum::start(3);
    let locks = quorum::connect(&servers);
    assert_eq!(locks.ping(SOON).unwrap(), (3, 3));
    servers[0].kill();
    assert_eq!(locks.ping(SOON).unwrap(), (2, 3));
    servers[1].kill();
    let said = assert_unavailable(|| locks.ping(SHORT));
    assert!(said.contains("1 of 3 nodes answered, 2 are needed"), "{said}");
    servers[0].restart();
    servers[1].restart();
    crate::threads::eventually(SOON, "all answer again", || locks.ping(SOON).is_ok_and(|(up, _)| up == 3));
}

#[test]
fn a_node_that_hangs_costs_the_whole_time_and_not_more() {
    let servers = quorum::start(3);
    // A lock's rounds are shorter; a ping's time is the caller's.
    let locks = quorum::builder(&servers).node_timeout(SHORT / 5).build().unwrap();
    locks.ping(SOON).unwrap();
    servers[2].freeze();
    let (answers, took) = timed(|| locks.ping(SOON).unwrap());
    assert_eq!(answers, (2, 3));
    assert!(took >= SOON && took <= SOON + LATE, "took {took:?}");
    servers[1].freeze();
    assert_unavailable(|| locks.ping(SHORT));
    servers[1..].iter().for_each(Server::thaw);
}

#[test]
fn a_quorum_that_lets_nobody_in_or_is_closed_says_so() {
    let servers = quorum::start(3);
    let strangers = redlatch::QuorumLock::connect(servers.iter().map(|server| server.url_as("nobody", "pw"))).unwrap();
    let error = strangers.ping(SOON).unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error:?}");
    assert_eq!((error.resource(), error.applied()), (None, Applied::No));
    let locks = quorum::connect(&servers);
    assert!(!locks.is_locked("n").unwrap());
    locks.shutdown();
    assert_err!(locks.ping(ms(50)), Closed);
}
