//! A queue that is lost, and connections that break, while many wait in it.

use super::{
    CHANNEL, MEMBERS, QUEUE, assert_served, ear_of, eventually_empty, holder, length, line, locks_of, pass, patient,
    queued,
};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, finish, ms, spawn_asleep};
use redlatch::RedLock;
use std::thread::scope;
use std::time::Duration;

/// The connections of all subscribers are cut, and the queue is lost.
#[test]
fn who_loses_its_subscriber_queues_again() {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 3].map(|()| patient(&server)));
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let before = line(&server);
        server.ask::<i64>(&["DEL", QUEUE]);
        server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually(LONG, "all are queued again", || length(&server) == 3);
        eventually(LONG, "all listen again", || {
            before.iter().all(|(ticket, _)| server.subscribers(&ear_of(ticket)) == 1)
        });
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| assert_served(waiter, unlocked));
    });
    eventually_empty(&server);
}

/// It is taken for dead and removed; it is not told so, and looks when it listens again.
#[test]
fn who_is_taken_for_dead_comes_again() {
    let server = Server::start();
    let (first, second) = (patient(&server), patient(&server));
    for _ in 0..5 {
        let holder = holder(&server);
        scope(|scope| {
            let first = queued(scope, &server, || pass(&first));
            let second = queued(scope, &server, || pass(&second));
            let before = line(&server);
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            for waiter in [first, second] {
                let (got, when) = finish(waiter);
                assert!(got && when - unlocked <= 2 * SOON, "{before:?}: served after {:?}", when - unlocked);
            }
        });
        eventually_empty(&server);
    }
}

#[test]
fn a_queue_that_is_deleted_while_all_wait_costs_nobody_the_lock() {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 5].map(|()| patient(&server)));
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        server.ask::<i64>(&["DEL", QUEUE]);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| assert_served(waiter, unlocked));
    });
    eventually_empty(&server);
}

/// With the lock and the queue the news is lost: the poll cap finds it.
#[test]
fn a_flush_while_all_wait_is_found_by_the_poll_cap() {
    const CAP: Duration = Duration::from_millis(300);
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 4].map(|()| locks_of(server.builder().poll_cap(CAP))));
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let flushed = Mark::now();
        server.clear();
        for waiter in waiters {
            let (got, when) = finish(waiter);
            assert!(got && when - flushed <= CAP + SOON, "served after {:?}", when - flushed);
        }
    });
    eventually_empty(&server);
    assert_err!(holder.unlock("n"), Lost);
}

#[test]
fn all_who_wait_are_served_after_a_restart() {
    let mut server = Server::start();
    let (holder, clients) = (holder(&server), [(); 4].map(|()| patient(&server)));
    for _ in 0..2 {
        let _ = holder.try_lock_for("n", LONG).unwrap();
        let (begun, waiting) = std::sync::mpsc::channel();
        scope(|scope| {
            let waiters = clients.each_ref().map(|locks| {
                let begun = begun.clone();
                scope.spawn(move || {
                    begun.send(()).unwrap();
                    (pass(locks), Mark::now())
                })
            });
            (0..clients.len()).for_each(|_| waiting.recv().unwrap());
            eventually(LONG, "all are queued", || length(&server) == clients.len());
            server.kill();
            std::thread::sleep(ms(100));
            server.restart();
            assert!(waiters.into_iter().all(|waiter| finish(waiter).0), "not served after a restart");
        });
        eventually_empty(&server);
        while holder.hold_count("n") > 0 {
            let _ = holder.unlock("n");
        }
    }
}

/// Nobody who listens in vain is left when all have gone.
#[test]
fn its_channels_are_left_when_nobody_waits_any_more() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let channels: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", "redlatch_ear:*"]);
        let ticket = &line(&server)[0].0;
        assert!(channels.contains(&ear_of(ticket)), "{channels:?}");
        assert_eq!(server.subscribers(MEMBERS), server.subscribers(CHANNEL));
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
    eventually(LONG, "nobody listens", || server.channels_of_locks().is_empty());
}

/// The user loses the right to the queue while it waits in it.
#[test]
fn who_may_no_longer_queue_is_served_all_the_same() {
    let server = Server::start();
    let url = server.let_in("user", "pw", "~* +@all &*");
    let (holder, other) = (holder(&server), super::patient_at(&url));
    for _ in 0..3 {
        scope(|scope| {
            let waiter = queued(scope, &server, || pass(&other));
            server.let_in("user", "pw", "~n +@all &*");
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            assert_served(waiter, unlocked);
            server.let_in("user", "pw", "~* +@all &*");
        });
        server.ask::<i64>(&["DEL", QUEUE]);
        holder.lock("n").unwrap();
    }
    holder.unlock("n").unwrap();
    server.ask::<i64>(&["DEL", QUEUE]);
}

const CHANNELS_OF_LOCKS: &str = "&redisson_lock__channel:*";

/// It polls in the queue or waits outside, and does not count as one of those who are told in turn. Then its user is given the channels, and
/// it has a place, on the same connection.
#[test]
fn who_is_allowed_to_listen_while_it_waits_has_a_place() {
    let server = Server::start();
    let holder = holder(&server);
    for channels in ["", CHANNELS_OF_LOCKS, "&redlatch_members:* &redlatch_ear:*"] {
        let deaf = super::patient_at(&server.let_in("deaf", "pw", &format!("~* +@all resetchannels {channels}")));
        scope(|scope| {
            let waiter = spawn_asleep(scope, || pass(&deaf));
            eventually(LONG, "it does not count as a member", || server.subscribers(MEMBERS) == 0);
            let is_told = channels == CHANNELS_OF_LOCKS;
            assert!(!is_told || length(&server) == 0, "it is told with all");
            eventually(LONG, "it polls", || is_told || line(&server).iter().any(|(ticket, _)| ticket.ends_with('p')));
            server.let_in("deaf", "pw", "~* +@all resetchannels &*");
            let hears = || line(&server).iter().all(|(ticket, _)| !ticket.ends_with('p'));
            let is_queued = || length(&server) == 1 && hears() && server.subscribers(MEMBERS) == 1;
            eventually(LONG, "it is queued", is_queued);
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            assert_served(waiter, unlocked);
        });
        assert_eq!(deaf.client().stats().reconnects, 0, "{channels}");
        eventually_empty(&server);
        holder.lock("n").unwrap();
    }
    holder.unlock("n").unwrap();
}

/// The subscriber asks again 3 s after the refusal. A connection that is older pings meanwhile, and the next ping is 3 s later.
#[test]
fn a_refused_channel_is_asked_for_again_in_time() {
    let server = Server::start();
    let holder = holder(&server);
    let deaf = super::patient_at(&server.let_in("deaf", "pw", "~* +@all resetchannels"));
    holder.lock("older").unwrap();
    assert!(!deaf.try_lock_for("older", ms(50)).unwrap());
    holder.unlock("older").unwrap();
    std::thread::sleep(ms(1_000));
    scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&deaf));
        server.let_in("deaf", "pw", "~* +@all resetchannels &*");
        let allowed = Mark::now();
        eventually(LONG, "it is queued", || length(&server) == 1);
        let took = allowed.elapsed();
        assert!(took <= ms(3_000) + LATE, "after {took:?}");
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0);
    });
}

/// Nobody may use the queue's keys: all is as without it.
#[test]
fn without_rights_to_the_queue_the_lock_is_passed_on_by_messages_to_all() {
    let server = Server::start();
    let url = server.let_in("user", "pw", "~n +@all &*");
    let clients = [(); 3].map(|()| super::patient_at(&url));
    scope(|scope| {
        let work = |locks: &redlatch::ReentrantLock| (0..20).all(|_| pass(locks));
        let workers = clients.each_ref().map(|locks| scope.spawn(move || work(locks)));
        assert!(workers.into_iter().all(finish));
    });
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

/// What is released may be given without memory.
#[test]
fn a_lock_is_given_while_the_server_has_no_memory() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
        server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    });
    eventually_empty(&server);
}
