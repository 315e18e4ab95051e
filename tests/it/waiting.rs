//! How waiters hear of a lock that became free: messages between clients and processes, the queue inside of a
//! process, and the poll cap where no message comes.
//!
//! Where a message must do it, lease and poll cap are a minute: nothing else could wake the waiter in time.

use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, elsewhere, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{CancelToken, ClientBuilder, RedLock, RedLockExt, ReentrantLock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

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
        assert_eq!(server.subscribers(CHANNEL), 1);
        let unlocked = Instant::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < SOON, "woken after {:?}", when - unlocked);
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
            let unlocked = Instant::now();
            locks.unlock("n").unwrap();
            assert_eq!(hear(&server), "acquired");
            assert!(unlocked.elapsed() < SOON, "woken after {:?}", unlocked.elapsed());
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
        let forced = Instant::now();
        assert!(one.force_unlock("n").unwrap());
        let (got, when) = finish(waiter);
        assert!(got && when - forced < SOON, "woken after {:?}", when - forced);
    });
    assert_err!(one.unlock("n"), Lost);
}

/// `fault_34`: an unlock between a try and the subscription must not be missed.
#[test]
fn no_hand_off_between_clients_is_missed() {
    let server = Server::start();
    let clients = [patient(server.builder()), patient(server.builder()), patient(server.builder())];
    let inside = AtomicBool::new(false);
    let work = |locks: &ReentrantLock| {
        for _ in 0..100 {
            assert!(locks.try_lock_for_with_lease("n", LONG, MINUTE).unwrap(), "a wake-up was lost");
            assert!(!inside.swap(true, SeqCst), "two clients hold the lock");
            inside.store(false, SeqCst);
            locks.unlock("n").unwrap();
        }
    };
    std::thread::scope(|scope| clients.iter().for_each(|locks| drop(scope.spawn(|| work(locks)))));
}

#[test]
fn one_thread_of_a_process_contends_for_all_that_wait() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    assert!(pass(&other));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let mut waiters = Vec::new();
        let commands = server.commands_during(|| {
            waiters.extend((0..8).map(|_| spawn_asleep(scope, || pass(&other))));
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
        let (got, took) = timed(|| other.try_lock_for("n", ms(200)).unwrap());
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
        let unlocked = Instant::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(second);
        assert!(got && when - unlocked < SOON, "woken after {:?}", when - unlocked);
    });
}

/// `fault_31`.
#[test]
fn a_waiter_is_told_again_after_its_subscription_was_cut() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        for _ in 0..3 {
            assert_eq!(server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
            eventually(LONG, "it subscribes again", || server.subscribers(CHANNEL) == 1);
        }
        assert!(!waiter.is_finished());
        let unlocked = Instant::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < SOON, "woken after {:?}", when - unlocked);
    });
}

/// `fault_31`: a message that is published while the subscription is cut is made good for by the next look.
#[test]
fn an_unlock_while_the_subscription_is_cut_is_not_missed() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    for _ in 0..10 {
        one.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || pass(&other));
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let unlocked = Instant::now();
            one.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked < 2 * SOON, "woken after {:?}", when - unlocked);
        });
    }
}

/// `fault_33`: a message is a hint and proves nothing.
#[test]
fn messages_of_strangers_grant_nothing() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let guard = one.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        for payload in ["0", "1", "", "garbage", "\r\n", &"x".repeat(70_000)] {
            assert_eq!(server.ask::<i64>(&["PUBLISH", CHANNEL, payload]), 1);
        }
        assert_eq!(server.owner("n").0, guard.owner());
        assert!(!waiter.is_finished() && guard.is_valid());
        drop(guard);
        assert!(finish(waiter).0);
    });
}

/// The locks of a user that may use any key, but these channels only.
fn of_user(server: &Server, name: &str, channels: &[&str], cap: Duration) -> ReentrantLock {
    let rules = [&["ACL", "SETUSER", name, "on", ">pw", "~*", "+@all", "resetchannels"], channels].concat();
    server.ask::<String>(&rules);
    let builder = redlatch::Client::builder(&server.url_as(name, "pw"));
    ReentrantLock::new(&builder.poll_cap(cap).watchdog_timeout(MINUTE).build().unwrap())
}

/// `fault_35`: the holder may not publish.
#[test]
fn an_unlock_that_nobody_hears_of_is_found_by_the_poll_cap() {
    let server = Server::start();
    let quiet = of_user(&server, "quiet", &[], MINUTE);
    let waiting = of_user(&server, "waiting", &["&*"], ms(300));
    quiet.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&waiting));
        let unlocked = Instant::now();
        quiet.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < ms(300) + SOON, "found after {:?}", when - unlocked);
    });
}

/// `fault_35`: an administrator deletes the key.
#[test]
fn a_deleted_key_is_found_by_the_poll_cap() {
    let server = Server::start();
    let waiting = of_user(&server, "waiting", &["&*"], ms(300));
    let one = patient(server.builder());
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&waiting));
        let deleted = Instant::now();
        server.ask::<i64>(&["DEL", "n"]);
        let (got, when) = finish(waiter);
        assert!(got && when - deleted < ms(300) + SOON, "found after {:?}", when - deleted);
    });
    assert_err!(one.unlock("n"), Lost);
}

/// The waiter may not listen, neither to the lock nor to its own subscriber's channel.
#[test]
fn a_waiter_that_may_not_listen_polls() {
    let server = Server::start();
    let one = patient(server.builder());
    let deaf = of_user(&server, "deaf", &[], MINUTE);
    for _ in 0..2 {
        one.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || pass(&deaf));
            let unlocked = Instant::now();
            one.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked < 2 * SOON, "found after {:?}", when - unlocked);
        });
    }
}

#[test]
fn a_subscription_ends_when_nobody_waits_any_more() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    assert!(!other.try_lock_for("n", ms(50)).unwrap());
    eventually(LONG, "the channel is left", || server.subscribers(CHANNEL) == 0);
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass(&other));
        eventually(LONG, "it is subscribed again", || server.subscribers(CHANNEL) == 1);
        let unlocked = Instant::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < SOON, "woken after {:?}", when - unlocked);
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
        let unlocked = Instant::now();
        names.iter().for_each(|name| one.unlock(name).unwrap());
        eventually(SOON, "all got theirs", || got.load(SeqCst) == names.len());
        assert!(unlocked.elapsed() < SOON);
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
