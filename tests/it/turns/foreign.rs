//! Those who know no queue: Redisson's clients, those of ours that want none, and monitors.

use super::{CHANNEL, Over, assert_served, eventually_empty, holder, length, locks_of, pass, patient, queued};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, spawn_asleep};
use redlatch::{HandOff, RedLock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

/// A JVM that waits listens to the common channel, and is told of each release, whoever else queues.
#[test]
fn a_foreign_waiter_is_told_of_a_release_though_others_queue() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let mut jvm = server.connection();
    jvm.set_read_timeout(Some(LONG)).unwrap();
    let mut jvm = jvm.as_pubsub();
    jvm.subscribe(CHANNEL).unwrap();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_eq!(jvm.get_message().unwrap().get_payload::<String>().unwrap(), "0");
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// It takes the lock when it comes first, by the plain script; who queues waits for it as for anyone.
#[test]
fn a_foreign_holder_is_waited_for_in_the_queue() {
    let server = Server::start();
    let other = patient(&server);
    for _ in 0..3 {
        server.ask::<i64>(&["HSET", "n", "a JVM", "1"]);
        server.ask::<i64>(&["PEXPIRE", "n", "60000"]);
        scope(|scope| {
            let waiter = queued(scope, &server, || pass(&other));
            assert!(!waiter.is_finished());
            let unlocked = Mark::now();
            server.ask::<i64>(&["DEL", "n"]);
            server.ask::<i64>(&["PUBLISH", CHANNEL, "0"]);
            assert_served(waiter, unlocked);
        });
        eventually_empty(&server);
    }
}

/// A client that wants no queue is told as a JVM is, and served.
#[test]
fn a_client_without_a_queue_is_served_beside_one_with() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let minute = super::MINUTE;
    let off = locks_of(server.builder().hand_off(HandOff::off()).poll_cap(minute).watchdog_timeout(minute));
    scope(|scope| {
        let without = spawn_asleep(scope, || pass(&off));
        assert_eq!(length(&server), 0);
        let with = queued(scope, &server, || pass(&other));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(without, unlocked);
        assert_served(with, unlocked);
    });
    eventually_empty(&server);
}

/// Somebody who listens and never wants the lock costs a message each time, and no turn.
#[test]
fn a_monitor_keeps_nobody_from_being_served() {
    let server = Server::start();
    let clients = [(); 3].map(|()| patient(&server));
    let mut monitor = server.connection();
    let mut monitor = monitor.as_pubsub();
    monitor.subscribe(CHANNEL).unwrap();
    monitor.psubscribe("redlatch_*").unwrap();
    let counts = [(); 3].map(|()| AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    scope(|scope| {
        for (locks, count) in clients.iter().zip(&counts) {
            let over = &over;
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    assert!(pass(locks));
                    count.fetch_add(1, SeqCst);
                }
            });
        }
        let _over = Over(&over);
        eventually(LONG, "all had their turns", || counts.iter().all(|count| count.load(SeqCst) >= 20));
    });
    println!("{counts:?}");
    eventually_empty(&server);
}

/// A pattern is a subscription too: the ear of a client that is gone seems to be listened to.
#[test]
fn a_monitor_of_all_ears_does_not_keep_the_dead_alive() {
    let server = Server::start();
    let (holder, other, dead) = (holder(&server), patient(&server), patient(&server));
    let mut monitor = server.connection();
    let mut monitor = monitor.as_pubsub();
    monitor.psubscribe("*").unwrap();
    scope(|scope| {
        let gone = queued(scope, &server, || dead.lock("n"));
        let ticket = super::line(&server).swap_remove(0);
        dead.client().shutdown();
        assert!(finish(gone).0.is_err());
        eventually_empty(&server);
        let waiter = queued(scope, &server, || pass(&other));
        server.ask::<i64>(&["ZADD", super::QUEUE, &ticket.1.to_string(), &ticket.0]);
        std::thread::sleep(SOON / 10);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    server.ask::<i64>(&["DEL", super::QUEUE]);
}
