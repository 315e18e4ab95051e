//! What locks cost in things that can be counted, and so are the same on every machine: commands, allocations,
//! bytes, connections, threads. They guard what `scripts/bench` measures.

use harness::{counting, process, server, threads};

mod company;
mod fair;
mod growth;
mod permits;

use crate::counting::{Counting, allocations, bytes};
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, of_redlatch, spawn_asleep};
use redis::ConnectionLike;
use redlatch::{ClientBuilder, HandOff, RedLock, ReentrantLock, Reentry};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, scope};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// So often is done what must be the same each time.
const TIMES: usize = 50;

/// The pool's worker, the timer, two that renew, the sweeper, the subscriber, the events.
const THREADS: usize = 7;

/// A lease that is not renewed while a test runs: its renewals would be among the commands that are counted.
const UNRENEWED: Duration = Duration::from_secs(600);

/// What a call of `act` usually counts, once it has been done often enough for its buffers to have grown. Not the most: on a
/// busy machine redis-rs allocates more for some answers.
fn usual(act: impl FnMut() -> usize) -> usize {
    let mut counts: Vec<_> = std::iter::repeat_with(act).take(2 * TIMES).skip(TIMES).collect();
    counts.sort_unstable();
    counts[TIMES / 2]
}

/// Allocations of redis-rs to send a command that is packed already, and to read its answer: not ours.
fn of_an_answer(server: &Server) -> usize {
    let mut connection = server.connection();
    let packed = redis::cmd("PTTL").arg("n").get_packed_command();
    usual(|| allocations(|| connection.req_packed_command(&packed).unwrap()).1)
}

fn pair(locks: &ReentrantLock) {
    locks.lock("order:42").unwrap();
    locks.unlock("order:42").unwrap();
}

#[test]
fn a_pair_is_two_commands() {
    let server = Server::start();
    let locks = server.locks();
    pair(&locks);
    let commands = server.commands_during(|| (0..TIMES).for_each(|_| pair(&locks)));
    assert_eq!(commands.len(), 2 * TIMES, "{commands:#?}");
}

/// Each lock object of a client renewed its own holds once.
#[test]
fn the_holds_of_many_lock_objects_are_renewed_together() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(Duration::from_secs(3)).build().unwrap();
    let objects: Vec<_> = (0..40).map(|_| ReentrantLock::new(&client)).collect();
    let names: Vec<_> = (0..40).map(|number| format!("order:{number}")).collect();
    objects.iter().zip(&names).for_each(|(locks, name)| locks.lock(name).unwrap());
    let before = client.stats().renewals;
    let commands = server.commands_during(|| {
        eventually(LONG, "all are renewed twice", || client.stats().renewals >= before + 80);
    });
    println!("{} commands for 80 renewals of 40 lock objects", commands.len());
    assert!(commands.len() < 20, "{commands:#?}");
    objects.iter().zip(&names).for_each(|(locks, name)| locks.unlock(name).unwrap());
}

#[test]
fn a_try_of_a_busy_name_is_one_command() {
    let server = Server::start();
    let (holder, locks) = (server.locks(), server.locks());
    holder.lock("n").unwrap();
    assert!(!locks.try_lock("n").unwrap());
    let commands = server.commands_during(|| (0..TIMES).for_each(|_| assert!(!locks.try_lock("n").unwrap())));
    assert_eq!(commands.len(), TIMES, "{commands:#?}");
    holder.unlock("n").unwrap();
}

#[test]
fn many_turns_of_the_threads_of_a_process_are_two_commands() {
    let server = Server::start();
    let hand_off = HandOff::default().within(LONG).in_order();
    let locks = ReentrantLock::new(&server.builder().hand_off(hand_off).build().unwrap());
    pair(&locks);
    let commands = server.commands_during(|| {
        locks.lock("order:42").unwrap();
        scope(|scope| {
            let waiters = [0; 4].map(|_| spawn_asleep(scope, || pair(&locks)));
            locks.unlock("order:42").unwrap();
            for waiter in waiters {
                finish(waiter);
            }
        });
    });
    assert_eq!(commands.len(), 2, "{commands:#?}");
}

/// What a client sends with its first lock, and the unlock of that. Meanwhile it has one connection for them and one that listens.
fn first_lock(server: &Server, builder: ClientBuilder) -> Vec<String> {
    let clients = || server.ask::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).lines().count();
    pair(&server.locks());
    eventually(LONG, "the client that made the scripts known is gone", || clients() == 1);
    let commands = server.commands_during(|| {
        let locks = ReentrantLock::new(&builder.build().unwrap());
        locks.lock("n").unwrap();
        assert_eq!(clients(), 3, "the administrator, who listens, and ours");
        locks.unlock("n").unwrap();
    });
    let mut names: Vec<_> = commands.iter().map(|command| command.split(' ').next().unwrap().to_owned()).collect();
    names.retain(|name| *name != "\"client\"");
    names
}

/// The handshake is one write and ends with TIME.
#[test]
fn the_first_lock_of_a_client_is_two_round_trips() {
    let server = Server::start();
    let names = first_lock(&server, server.builder().self_test(false));
    assert_eq!(names, ["\"info\"", "\"info\"", "\"time\"", "\"evalsha\"", "\"evalsha\""]);
}

/// It is in the handshake, and once a server.
#[test]
fn a_self_test_is_no_round_trip_of_its_own() {
    let server = Server::start();
    let names = first_lock(&server, server.builder());
    let (time, rest) = names.split_at(names.iter().position(|name| name == "\"time\"").unwrap());
    assert_eq!(rest, ["\"time\"", "\"evalsha\"", "\"evalsha\""]);
    assert_eq!(time.iter().filter(|name| *name == "\"eval\"").count(), 1, "{time:?}");
    assert!(time.len() <= 9, "{time:?}");
}

/// The allocations of an acquire and of a release, those of redis-rs for the answer left out.
fn of_a_pair(server: &Server, prefix: &str, name: &str) -> (usize, usize) {
    let locks = ReentrantLock::new(&server.builder().key_prefix(prefix).build().unwrap());
    let answer = of_an_answer(server);
    let (lock, unlock) = (|| locks.lock(name).unwrap(), || locks.unlock(name).unwrap());
    let acquired = usual(|| {
        let (_, made) = allocations(lock);
        unlock();
        made
    });
    let released = usual(|| {
        lock();
        allocations(unlock).1
    });
    println!("{} and {} allocations for {prefix}{name}", acquired - answer, released - answer);
    (acquired - answer, released - answer)
}

#[test]
fn few_allocations_of_an_acquire_and_none_of_a_release() {
    let server = Server::start();
    for (prefix, name) in [("", "order:42"), ("shop:", "order:42"), ("", "a-name-of-23-bytes:1234")] {
        let (acquired, released) = of_a_pair(&server, prefix, name);
        assert!(acquired <= ACQUIRE, "{acquired} allocations for {prefix}{name}");
        assert_eq!(released, 0, "{prefix}{name}");
    }
}

/// The aim, and what there is: the tenure and the hold.
const ACQUIRE: usize = 2;

/// A name that does not fit where short ones are kept: all share it.
#[test]
fn few_more_allocations_of_a_long_name() {
    let server = Server::start();
    let (acquired, released) = of_a_pair(&server, "", "order:01234567-89ab-cdef-0123-456789abcdef");
    assert!(acquired <= ACQUIRE + 1, "{acquired} allocations");
    assert_eq!(released, 0);
    // They are put together to be looked for.
    let (acquired, released) = of_a_pair(&server, "shop:", "order:01234567-89ab-cdef-0123-456789abcdef");
    assert!(acquired <= ACQUIRE + 2 && released <= 1, "{acquired} and {released} allocations");
}

#[test]
fn no_allocation_of_an_inner_level() {
    let server = Server::start();
    let answer = of_an_answer(&server);
    for (reentry, of_redis) in [(Reentry::Local, 0), (Reentry::Mirrored, 2 * answer)] {
        let locks = ReentrantLock::new(&server.builder().reentry(reentry).build().unwrap());
        locks.lock("order:42").unwrap();
        assert_eq!(usual(|| allocations(|| pair(&locks)).1), of_redis, "{reentry:?}");
        locks.unlock("order:42").unwrap();
    }
}

#[test]
fn no_allocation_of_a_look() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    let look = || (0..TIMES).for_each(|_| assert!(hold.is_valid() && locks.hold_count("n") == 1));
    assert_eq!(allocations(look).1, 0);
    locks.unlock("n").unwrap();
}

#[test]
fn ten_thousand_holds_are_small() {
    alone(|| {
        const HOLDS: usize = 10_000;
        let server = Server::start();
        let locks = server.locks();
        pair(&locks);
        let names: Vec<_> = (0..HOLDS).map(|number| format!("order:{number}")).collect();
        let ((), more) = bytes(|| names.iter().for_each(|name| locks.lock(name).unwrap()));
        println!("{} bytes a hold", more / HOLDS.cast_signed());
        assert!(more <= (HOLDS * 1_024).cast_signed(), "{more} bytes");
        assert!(of_redlatch().len() <= THREADS, "{:?}", of_redlatch());
        assert_eq!(server.ask::<String>(&["CLIENT", "LIST"]).lines().count(), 2, "connections");
        let ((), less) = bytes(|| names.iter().for_each(|name| locks.unlock(name).unwrap()));
        println!("{} bytes a hold come back", -less / HOLDS.cast_signed());
        assert!(-less >= more / 2, "{less} bytes");
    });
}

/// A thread with a small stack, as there are many.
fn spawn(act: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().stack_size(128 * 1024).spawn(act).unwrap()
}

#[test]
fn a_thousand_waiters_are_small() {
    alone(|| {
        const WAITERS: usize = 1_000;
        let server = Server::start();
        let (holder, locks) = (server.locks_watched(UNRENEWED), server.locks());
        let names: Arc<Vec<_>> = Arc::new((0..WAITERS).map(|number| format!("n{number}")).collect());
        names.iter().for_each(|name| holder.lock(name).unwrap());
        let (waiters, more) = bytes(|| {
            let waiters = (0..WAITERS).map(|number| {
                let (locks, names) = (locks.clone(), Arc::clone(&names));
                spawn(move || {
                    locks.lock(&names[number]).unwrap();
                    locks.unlock(&names[number]).unwrap();
                })
            });
            let waiters: Vec<_> = waiters.collect();
            eventually(LONG, "all are subscribed", || {
                server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel:{n*"]).len() == WAITERS
            });
            waiters
        });
        // What the standard library keeps of each thread is in it.
        println!("{} bytes a waiter", more / WAITERS.cast_signed());
        assert!(more <= (WAITERS * 8_192).cast_signed(), "{more} bytes");
        assert!(of_redlatch().len() <= THREADS, "{:?}", of_redlatch());
        assert_eq!(server.ask::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count(), 1);
        names.iter().for_each(|name| holder.unlock(name).unwrap());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}
