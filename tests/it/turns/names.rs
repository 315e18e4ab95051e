//! Where the queue of a lock is, whatever the lock is called.

use super::{MINUTE, locks_of};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish};
use redlatch::{ClientBuilder, Naming, RedLock, RedLockExt};
use std::thread::scope;

/// That those who wait for this name queue at this key, are served, and leave nothing.
#[track_caller]
fn assert_queue(name: &str, queue: &str, set: impl Fn(ClientBuilder) -> ClientBuilder) {
    let server = Server::start();
    let clients = [(); 3].map(|()| locks_of(set(server.builder()).poll_cap(MINUTE).watchdog_timeout(MINUTE)));
    let length = || server.ask::<usize>(&["ZCARD", queue]);
    for _ in 0..2 {
        clients[0].lock(name).unwrap();
        scope(|scope| {
            let mut waiters = Vec::new();
            for locks in &clients[1..] {
                let pass = move || locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok();
                waiters.push(scope.spawn(move || (pass(), Mark::now())));
                eventually(LONG, queue, || length() == waiters.len());
            }
            let unlocked = Mark::now();
            clients[0].unlock(name).unwrap();
            for waiter in waiters {
                let (got, when) = finish(waiter);
                assert!(got && when - unlocked <= SOON, "{name:?}: served after {:?}", when - unlocked);
            }
        });
    }
    eventually(LONG, "nothing is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
}

#[test]
fn a_queue_is_named_after_its_lock_by_the_brace_rule() {
    assert_queue("n", "redlatch_queue:{n}", |builder| builder);
    assert_queue("a{b}c", "redlatch_queue:a{b}c:", |builder| builder);
    assert_queue("{n}", "redlatch_queue:{n}:", |builder| builder);
    assert_queue("a{b", "redlatch_queue:a{b:", |builder| builder);
    assert_queue("{}x", "redlatch_queue:{}x:", |builder| builder);
    assert_queue("a}b", "redlatch_queue:{a}b}", |builder| builder);
}

#[test]
fn a_prefix_is_part_of_the_name() {
    assert_queue("n", "redlatch_queue:{shop:n}", |builder| builder.key_prefix("shop:"));
    assert_queue("n", "redlatch_queue:{shop}:n:", |builder| builder.key_prefix("{shop}:"));
}

#[test]
fn the_naming_of_channels_changes_no_queue() {
    assert_queue("n", "redlatch_queue:{n}", |builder| builder.naming(Naming::Jedis));
}

#[test]
fn any_bytes_may_be_in_a_name() {
    for name in ["\r\n\0", "%s [a-z]*?", "ä\u{1F512}", &"x".repeat(1_024)] {
        assert_queue(name, &format!("redlatch_queue:{{{name}}}"), |builder| builder);
    }
}

/// They share a channel, as with Redisson, and nothing else: who waits for one has no turn of the other, and is in nobody's way there.
#[test]
fn two_locks_that_differ_in_braces_have_two_queues() {
    let server = Server::start();
    let [holder, one, other] = [(); 3].map(|()| locks_of(server.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE)));
    let length = |queue| server.ask::<usize>(&["ZCARD", queue]);
    let guards = ["x", "{x}"].map(|name| holder.guard(name).unwrap());
    scope(|scope| {
        let waiters = [(&one, "x"), (&other, "{x}")].map(|(locks, name)| {
            scope.spawn(move || locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok())
        });
        eventually(LONG, "each waits where its lock is", || {
            length("redlatch_queue:{x}") == 1 && length("redlatch_queue:{x}:") == 1
        });
        guards.into_iter().for_each(|guard| guard.unlock().unwrap());
        assert!(waiters.into_iter().all(finish));
    });
}

#[test]
fn two_locks_that_differ_in_braces_are_both_served() {
    let server = Server::start();
    let clients = [(); 4].map(|()| locks_of(server.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE)));
    scope(|scope| {
        let workers: Vec<_> = clients
            .iter()
            .zip(["x", "{x}", "x", "{x}"])
            .map(|(locks, name)| {
                scope.spawn(move || {
                    (0..50).all(|_| locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok())
                })
            })
            .collect();
        assert!(workers.into_iter().all(finish));
    });
    eventually(LONG, "nothing is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
}

/// Several databases of a server have queues of their own, and share the channels.
#[test]
fn the_same_name_in_two_databases_is_two_locks_and_two_queues() {
    let server = Server::start();
    let clients = ["", "?db=1", "", "?db=1"].map(|db| super::patient_at(&format!("{}{db}", server.url())));
    scope(|scope| {
        let work = |locks| (0..50).all(|_| super::pass(locks));
        let workers: Vec<_> = clients.iter().map(|locks| scope.spawn(move || work(locks))).collect();
        assert!(workers.into_iter().all(finish));
    });
    eventually(LONG, "nothing is left", || !server.ask::<String>(&["INFO", "keyspace"]).contains("keys="));
}
