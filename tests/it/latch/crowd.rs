//! Many that wait, and many that count.

use super::{CHANNEL, END, long, patient};
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually, finish};
use redlatch::CountDownLatch;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

const WAITERS: usize = 400;

/// A late core wakes this many threads one after the other.
const ALL: Duration = Duration::from_secs(2);

/// Runs `act` while so many wait, asserts that they have one connection that is subscribed, and gives when each wait ended.
fn while_they_wait(
    server: &Server,
    latches: &CountDownLatch,
    act: impl FnOnce(),
) -> (Mark, Vec<(redlatch::Result<bool>, Mark)>) {
    scope(|scope| {
        let wait = || (latches.wait("n", &long()), Mark::now());
        let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(wait)).collect();
        let waiting = || latches.client().stats().waiters;
        eventually(LONG, "all wait", || waiting() == WAITERS && server.subscribers(CHANNEL) == 1);
        let acted = Mark::now();
        act();
        (acted, waiters.into_iter().map(finish).collect())
    })
}

#[test]
fn hundreds_of_one_client_are_woken_by_one_connection() {
    let server = Server::start();
    let latches = patient(&server);
    latches.try_set_count("n", 1, None).unwrap();
    let (acted, ended) = while_they_wait(&server, &latches, || assert_eq!(latches.count_down("n").unwrap(), 0));
    for (opened, when) in ended {
        assert!(opened.unwrap() && when - acted <= ALL, "woken after {:?}", when - acted);
    }
    assert_eq!(latches.client().stats().waiters, 0);
}

#[test]
fn hundreds_of_one_client_expire() {
    let server = Server::start();
    let latches = patient(&server);
    let time = Duration::from_secs(4);
    latches.try_set_count("n", 1, Some(time)).unwrap();
    let (_, ended) = while_they_wait(&server, &latches, || {});
    for (ended, _) in ended {
        assert_err!(ended, Expired);
    }
    eventually(LONG, "its end is forgotten", || server.pttl(END) == -2);
}

#[test]
fn a_shutdown_sends_hundreds_home() {
    let server = Server::start();
    let (latches, other) = (patient(&server), patient(&server));
    latches.try_set_count("n", 1, None).unwrap();
    let (_, ended) = while_they_wait(&server, &latches, || latches.client().shutdown());
    for (ended, _) in ended {
        assert_err!(ended, Closed);
    }
    assert!(other.open("n").unwrap());
}

const THREADS: usize = 8;
const EACH: usize = 50;

/// Each number is answered to one call, and the last opens.
#[test]
fn those_that_count_at_once_count_once_each() {
    let server = Server::start();
    let clients = [patient(&server), patient(&server)];
    let (total, start) = (THREADS * EACH, Barrier::new(THREADS));
    assert!(clients[0].try_set_count("n", total as u32, None).unwrap());
    let mut left: Vec<u64> = scope(|scope| {
        let count = |thread: usize| {
            start.wait();
            (0..EACH).map(|_| clients[thread % 2].count_down("n").unwrap()).collect::<Vec<_>>()
        };
        let counting: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || count(thread))).collect();
        counting.into_iter().flat_map(finish).collect()
    });
    left.sort_unstable();
    assert_eq!(left, (0..total as u64).collect::<Vec<_>>());
}

/// One of those that set at once wins.
#[test]
fn those_that_set_at_once_set_once() {
    let server = Server::start();
    let clients = [patient(&server), patient(&server)];
    for _ in 0..20 {
        let start = Barrier::new(THREADS);
        let set = |thread: usize| {
            start.wait();
            clients[thread % 2].try_set_count("n", thread as u32 + 1, None).unwrap()
        };
        let won: Vec<_> = scope(|scope| {
            let setting: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || set(thread))).collect();
            setting.into_iter().map(finish).collect()
        });
        let winner = won.iter().position(|&won| won).expect("one sets it");
        assert_eq!(won.iter().filter(|&&won| won).count(), 1);
        assert_eq!(clients[0].count("n").unwrap(), winner as u64 + 1);
        assert!(clients[1].open("n").unwrap());
    }
}
