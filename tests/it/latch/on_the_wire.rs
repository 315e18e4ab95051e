//! What of a latch is on the server: its keys and for how long they stay, what waiters are told, and a server without memory.

use super::{CHANNEL, END, assert_opened, at_once, patient, waiting};
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually, ms};
use redlatch::{CountDownLatch, Error};
use std::thread::scope;

/// The keys beside the latch, with what is left of their time.
fn helpers(server: &Server) -> Vec<(String, i64)> {
    let keys: Vec<String> = server.ask(&["KEYS", "redlatch_*"]);
    keys.into_iter().map(|key| (key.clone(), server.pttl(&key))).collect()
}

#[track_caller]
fn assert_they_end(server: &Server) {
    let helpers = helpers(server);
    assert!(helpers.iter().any(|(key, _)| key.starts_with("redlatch_op:{n}")), "{helpers:?}");
    // A key that is gone in between has ended.
    assert!(helpers.iter().all(|(_, left)| *left > 0 || *left == -2), "one stays for ever: {helpers:?}");
}

#[test]
fn every_key_beside_a_latch_has_a_time_to_live() {
    let server = Server::start();
    let latches = patient(&server);
    for time in [None, Some(LONG)] {
        latches.try_set_count("n", 2, time).unwrap();
        assert_they_end(&server);
        assert_eq!(server.pttl(END) > 0, time.is_some());
        latches.count_down("n").unwrap();
        assert!(!latches.wait("n", &at_once()).unwrap());
        assert_they_end(&server);
        latches.count_down("n").unwrap();
        assert!(latches.wait("n", &at_once()).unwrap());
        assert_they_end(&server);
        assert_eq!(server.pttl(END), -2, "an open latch left its end");
    }
}

#[test]
fn results_of_operations_are_gone_in_their_time() {
    let server = Server::start();
    let latches =
        CountDownLatch::new(&server.builder().outage_budget(ms(200)).response_timeout(ms(200)).build().unwrap());
    latches.try_set_count("n", 1, None).unwrap();
    latches.count_down("n").unwrap();
    assert_eq!(helpers(&server).len(), 1, "a thread has one lane: {:?}", helpers(&server));
    eventually(LONG, "nothing is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
}

/// As Redisson tells them: 1 for a new count, 0 for the end.
#[test]
fn messages_are_those_of_redisson() {
    let server = Server::start();
    let latches = patient(&server);
    let mut connection = server.connection();
    let mut heard = connection.as_pubsub();
    heard.subscribe(CHANNEL).unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    latches.try_set_count("n", 2, None).unwrap();
    (0..2).for_each(|_| _ = latches.count_down("n").unwrap());
    latches.try_set_count("n", 7, Some(LONG)).unwrap();
    latches.open("n").unwrap();
    let told = [(); 4].map(|()| heard.get_message().unwrap().get_payload::<String>().unwrap());
    assert_eq!(told, ["1", "0", "1", "0"]);
}

/// A name in braces is wrapped once more in the channel, as in Redisson.
#[test]
fn the_channel_of_a_name_with_braces_has_two_pairs() {
    let server = Server::start();
    let latches = patient(&server);
    latches.try_set_count("{n}:1", 1, Some(LONG)).unwrap();
    scope(|scope| {
        let waiter = scope.spawn(|| (latches.wait("{n}:1", &super::long()), Mark::now()));
        let channel = "redisson_countdownlatch__channel__{{n}:1}";
        eventually(LONG, "it is subscribed", || server.subscribers(channel) == 1);
        let counted = Mark::now();
        assert_eq!(latches.count_down("{n}:1").unwrap(), 0);
        assert_opened(waiter, counted);
    });
}

fn full(server: &Server, is_full: bool) {
    server.ask::<String>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", if is_full { "1" } else { "0" }]);
}

#[test]
fn without_memory_a_latch_is_counted_down_and_opened_but_not_set() {
    let server = Server::start();
    let latches =
        CountDownLatch::new(&server.builder().outage_budget(ms(300)).poll_cap(super::MINUTE).build().unwrap());
    latches.try_set_count("n", 3, Some(LONG)).unwrap();
    full(&server, true);
    scope(|scope| {
        let waiter = waiting(scope, &server, &latches);
        assert_eq!([latches.count_down("n").unwrap(), latches.count_down("n").unwrap()], [2, 1]);
        assert!(!latches.wait("n", &at_once()).unwrap() && latches.count("n").unwrap() == 1);
        let counted = Mark::now();
        assert_eq!(latches.count_down("n").unwrap(), 0);
        assert_opened(waiter, counted);
    });
    assert_eq!(latches.count_down("n").unwrap(), 0);
    let refused = latches.try_set_count("n", 1, None);
    assert!(matches!(&refused, Err(error @ Error::Refused { .. }) if error.to_string().contains("OOM")), "{refused:?}");
    full(&server, false);
    assert_eq!(latches.count("n").unwrap(), 0, "what was refused was written");
}

#[test]
fn without_memory_a_latch_is_opened_by_hand() {
    let server = Server::start();
    let latches = patient(&server);
    latches.try_set_count("n", 3, Some(LONG)).unwrap();
    full(&server, true);
    scope(|scope| {
        let waiter = waiting(scope, &server, &latches);
        let opened = Mark::now();
        assert!(latches.open("n").unwrap());
        assert_opened(waiter, opened);
    });
    assert!(!latches.open("n").unwrap());
    full(&server, false);
}

/// A server that lost its data opens its latches, as the documentation says.
#[test]
fn a_server_that_lost_its_data_opens_its_latches() {
    let mut server = Server::start();
    let latches = patient(&server);
    latches.try_set_count("n", 3, None).unwrap();
    server.kill();
    server.restart();
    assert!(latches.wait("n", &super::long()).unwrap());
    assert_eq!((latches.count("n").unwrap(), latches.count_down("n").unwrap()), (0, 0));
}
