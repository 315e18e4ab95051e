//! How waiters hear of a lock that became free: messages between clients and processes, the queue inside of a
//! process, and the poll cap where no message comes.
//!
//! Where a message must do it, lease and poll cap are a minute: nothing else could wake the waiter in time.

use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, elsewhere, eventually, finish, ms, spawn_asleep};
use redlatch::{CancelToken, ClientBuilder, RedLock, RedLockExt, ReentrantLock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const CHANNEL: &str = "redisson_lock__channel:{n}";

/// The locks of a client whose waiters look only when they are told to.
fn patient(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.poll_cap(MINUTE).watchdog_timeout(MINUTE).build().unwrap())
}

/// Takes the lock as soon as it is free and gives it back.
fn pass(locks: &ReentrantLock) -> bool {
    locks.try_lock_for_with_lease("n", LONG, MINUTE).unwrap() && locks.unlock("n").is_ok()
}

#[test]
fn an_unlock_wakes_a_waiter_in_another_client() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn an_unlock_wakes_a_waiter_in_another_process() {
    with_peer(
        |url| {
            let locks = patient(redlatch::Client::builder(url));
            let _guard = locks.request("n").wait(LONG).lease(MINUTE).guard().unwrap().unwrap();
            tell(url, "acquired");
        },
        |start| {
            let server = Server::start();
            let locks = patient(server.builder());
            locks.lock("n").unwrap();
            let peer = start(&server);
            eventually(LONG, "the peer listens", || server.subscribers(CHANNEL) == 1);
            let unlocked = Mark::now();
            locks.unlock("n").unwrap();
            assert_eq!(hear(&server), "acquired");
            assert!(unlocked.elapsed() <= SOON, "woken after {:?}", unlocked.elapsed());
            peer.join();
        },
    );
}

#[test]
fn a_force_unlock_wakes_a_waiter_in_another_client() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        let forced = Mark::now();
        assert!(one.force_unlock("n").unwrap());
        let (got, when) = finish(waiter);
        assert!(got && when - forced <= SOON, "woken after {:?}", when - forced);
    });
    assert_err!(one.unlock("n"), Lost);
}

/// How many scripts the server was asked for.
fn scripts_run(server: &Server) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok();
    stats.lines().find_map(calls).unwrap_or(0)
}

#[test]
fn one_thread_of_a_process_contends_for_all_that_wait() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    assert!(pass(&other));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let mut waiters = Vec::new();
        let before = scripts_run(&server);
        let commands = server.commands_during(|| {
            waiters.extend((0..8).map(|_| spawn_asleep(scope, || pass(&other))));
            eventually(LONG, "one looks again", || scripts_run(&server) >= before + 2);
        });
        let subscribers = server.subscribers(CHANNEL);
        one.unlock("n").unwrap();
        assert!(waiters.into_iter().all(|waiter| finish(waiter).0));
        assert_eq!(subscribers, 1);
        assert_eq!(commands.iter().filter(|command| command.contains(CHANNEL)).count(), 1, "{commands:?}");
        // One try before and one after the subscription, and one more if that took a second to be confirmed.
        let tries = commands.iter().filter(|command| command.starts_with("\"eval")).count();
        assert!((2..=3).contains(&tries), "{tries} tries of 8 waiters: {commands:?}");
    });
}

#[test]
fn waiters_of_a_process_are_served_in_the_order_they_came() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let served = Mutex::new(Vec::new());
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (served, other) = (&served, &other);
            spawn_asleep(scope, move || {
                assert!(other.try_lock_for("n", LONG).unwrap());
                served.lock().unwrap().push(number);
                other.unlock("n").unwrap();
            });
        }
        one.unlock("n").unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_waiter_that_joins_a_queue_keeps_to_its_own_deadline() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let first = spawn_asleep(scope, || pass(&other));
        let (got, took) = answered(|| other.try_lock_for("n", ms(200)));
        assert!(!got && took >= ms(200) && took <= ms(200) + LATE, "took {took:?}");
        one.unlock("n").unwrap();
        assert!(finish(first).0);
    });
}

#[test]
fn the_next_waiter_contends_when_the_first_gives_up() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let token = CancelToken::new();
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let first = spawn_asleep(scope, || other.lock_cancellable("n", &token));
        let second = spawn_asleep(scope, || pass(&other));
        token.cancel();
        assert_err!(finish(first).0, Cancelled);
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(second);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn a_subscription_ends_when_nobody_waits_any_more() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    assert!(!answered(|| other.try_lock_for("n", ms(50))).0);
    eventually(LONG, "the channel is left", || server.subscribers(CHANNEL) == 0);
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        eventually(LONG, "it is subscribed again", || server.subscribers(CHANNEL) == 1);
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn many_names_are_waited_for_on_one_connection() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let names: Vec<_> = (0..12).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| one.lock(name).unwrap());
    let got = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for name in &names {
            let (other, got) = (&other, &got);
            spawn_asleep(scope, move || {
                assert!(other.try_lock_for(name, LONG).unwrap());
                got.fetch_add(1, SeqCst);
                other.unlock(name).unwrap();
            });
        }
        let clients: String = server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        assert_eq!(clients.lines().count(), 1, "{clients}");
        let unlocked = Mark::now();
        names.iter().for_each(|name| one.unlock(name).unwrap());
        eventually(SOON, "all got theirs", || got.load(SeqCst) == names.len());
        assert!(unlocked.elapsed() <= SOON);
    });
}

#[test]
fn threads_of_several_clients_exclude_each_other() {
    let server = Server::start();
    let clients = [server.locks(), server.locks(), server.locks(), server.locks()];
    let counter = AtomicUsize::new(0);
    let work = |locks: &ReentrantLock| {
        for _ in 0..25 {
            locks
                .execute_in_lock("n", || {
                    let seen = counter.load(SeqCst);
                    std::thread::yield_now();
                    counter.store(seen + 1, SeqCst);
                })
                .unwrap();
        }
    };
    std::thread::scope(|scope| {
        for locks in clients.iter().cycle().take(16) {
            scope.spawn(|| work(locks));
        }
    });
    assert_eq!(counter.into_inner(), 16 * 25);
    assert!(elsewhere(|| pass(&clients[0])));
}
