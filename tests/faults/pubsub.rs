//! Rows 31 to 35: messages that are lost, forged, too many or too long, and subscriptions that break.
//!
//! Where a message must do it, lease and poll cap are a minute: nothing else could wake the waiter in time.

use crate::locks_of;
use crate::proxy::{Flow, Gate, Proxy, Step, numbers, pass};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, Took, eventually, finish, ms, spawn_asleep};
use redlatch::{Client, ClientBuilder, RedLock, RedLockExt, ReentrantLock};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const CHANNEL: &str = "redisson_lock__channel:{n}";

/// How often a waiter looks while no subscription is confirmed.
const UNTOLD: Duration = Duration::from_secs(1);

/// The locks of a client whose waiters look only when they are told to.
fn patient(builder: ClientBuilder) -> ReentrantLock {
    locks_of(builder.poll_cap(MINUTE).watchdog_timeout(MINUTE))
}

/// Takes the lock as soon as it is free and gives it back.
fn pass_on(locks: &ReentrantLock) -> bool {
    locks.try_lock_for_with_lease("n", LONG, MINUTE).unwrap() && locks.unlock("n").is_ok()
}

fn is_request_for(flow: Flow, data: &[u8], word: &str) -> bool {
    flow == Flow::Request && data.windows(word.len()).any(|window| window == word.as_bytes())
}

fn limit_output(server: &Server) {
    server.ask::<String>(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 32kb 8kb 1"]);
}

#[test]
fn fault_31_a_waiter_is_told_again_after_its_subscription_was_cut() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        for _ in 0..3 {
            assert_eq!(server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
            eventually(LONG, "it subscribes again", || server.subscribers(CHANNEL) == 1);
        }
        assert!(!waiter.is_finished());
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

/// A message that is published while the subscription is cut is made good for by the next look.
#[test]
fn fault_31_an_unlock_while_the_subscription_is_cut_is_not_missed() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    for _ in 0..10 {
        one.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || pass_on(&other));
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let unlocked = Mark::now();
            one.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= 2 * SOON, "woken after {:?}", when - unlocked);
        });
    }
}

/// A subscriber that does not read is dropped by the server, and the message of the unlock with it.
#[test]
fn fault_32_a_subscriber_that_was_dropped_for_its_backlog_looks_again() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (one, other) = (patient(server.builder()), patient(Client::builder(&proxy.url())));
    let (gate, subscriber) = (Gate::default(), OnceLock::new());
    let stalled = gate.clone();
    proxy.set(move |connection, flow, data| {
        if is_request_for(flow, data, CHANNEL) && is_request_for(flow, data, "SUBSCRIBE") {
            let _ = subscriber.set(connection);
        }
        let is_message = flow == Flow::Reply && subscriber.get() == Some(&connection) && data.len() > 2_000;
        if is_message { vec![Step::Hold(stalled.clone())] } else { pass(data) }
    });
    limit_output(&server);
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        eventually(LONG, "it is dropped", || server.ask::<i64>(&["PUBLISH", CHANNEL, &"x".repeat(2_000)]) == 0);
        one.unlock("n").unwrap();
        assert!(!waiter.is_finished());
        let opened = Mark::now();
        gate.open();
        let (got, when) = finish(waiter);
        assert!(got && when - opened <= SOON, "found after {:?}", when - opened);
    });
}

/// Whoever waits takes nothing of the subscriber's time: it reads as fast as the messages come.
#[test]
fn fault_32_a_flood_does_not_cost_the_wake_up() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        limit_output(&server);
        for _ in 0..3_000 {
            server.ask::<i64>(&["PUBLISH", CHANNEL, &"x".repeat(2_000)]);
        }
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

/// A message is a hint and proves nothing.
#[test]
fn fault_33_messages_of_strangers_grant_nothing() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let guard = one.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        for payload in ["0", "1", "", "garbage", "\r\n", &"x".repeat(70_000)] {
            assert_eq!(server.ask::<i64>(&["PUBLISH", CHANNEL, payload]), 1);
        }
        assert_eq!(server.owner("n").0, guard.owner());
        assert!(!waiter.is_finished() && guard.is_valid());
        drop(guard);
        assert!(finish(waiter).0);
    });
}

/// Payloads of any bytes.
#[test]
fn fault_33_garbage_disturbs_no_subscriber() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let (mut random, mut admin) = (numbers(0x5EED_0033), server.connection());
    let guard = one.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        let mut channels: Vec<String> = Vec::new();
        eventually(LONG, "it has all of its subscriptions", || {
            channels = server.ask(&["PUBSUB", "CHANNELS"]);
            channels.len() == 4
        });
        channels.sort();
        assert!(channels[2].starts_with("redlatch_ear:") && channels[0] == CHANNEL, "{channels:?}");
        assert_eq!([&channels[1], &channels[3]], ["redlatch_census:{0:}", "redlatch_members:{n}"]);
        for _ in 0..3_000 {
            let channel = &channels[random(4) as usize];
            let payload: Vec<u8> = (0..random(100)).map(|_| random(256) as u8).collect();
            let heard: i64 = redis::cmd("PUBLISH").arg(channel).arg(payload).query(&mut admin).unwrap();
            assert_eq!(heard, 1);
        }
        assert!(!waiter.is_finished() && guard.is_valid());
        let unlocked = Mark::now();
        drop(guard);
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
    assert_eq!(other.client().stats().reconnects, 0);
}

#[test]
fn fault_33_a_flood_of_messages_makes_no_flood_of_looks() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let over = &AtomicBool::new(false);
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        let mut flooding = server.connection();
        let flood = scope.spawn(move || {
            let mut burst = redis::pipe();
            for _ in 0..50 {
                burst.cmd("PUBLISH").arg(CHANNEL).arg("0");
            }
            let publish = |_: &usize| burst.exec(&mut flooding).is_ok();
            50 * (0..).take_while(|_| !over.load(SeqCst)).filter(publish).count()
        });
        let start = Instant::now();
        let commands = server.commands_during(|| std::thread::sleep(SOON));
        let looks = commands.iter().filter(|command| command.starts_with("\"evalsha")).count();
        let allowed = 32 + start.elapsed().as_millis() as usize / 2 + 1;
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        over.store(true, SeqCst);
        let published = finish(flood);
        println!("{looks} looks for {published} messages, {allowed} allowed");
        assert!(published > 2 * allowed, "{published} messages are no flood");
        assert!((2..=allowed).contains(&looks), "{looks} looks, {allowed} allowed");
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn fault_33_a_message_of_more_than_64_kib_costs_the_connection() {
    let server = Server::start();
    let (one, other) = (patient(server.builder()), patient(server.builder()));
    let reconnects = || other.client().stats().reconnects;
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it is subscribed", || server.subscribers(CHANNEL) == 1);
        server.ask::<i64>(&["PUBLISH", CHANNEL, &"x".repeat(64 * 1024)]);
        for round in 1..=3 {
            eventually(LONG, "it is subscribed again", || server.subscribers(CHANNEL) == 1);
            assert_eq!(reconnects(), round - 1);
            server.ask::<i64>(&["PUBLISH", CHANNEL, &"x".repeat(64 * 1024 + 1)]);
            eventually(LONG, "it has another connection", || reconnects() == round);
        }
        assert!(!waiter.is_finished());
        let unlocked = Mark::now();
        one.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

/// An unlock between a try and the subscription must not be missed.
#[test]
fn fault_34_no_hand_off_between_clients_is_missed() {
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

/// An unlock while the subscription is held on its way to the server. How long its waiter takes to find it: from the
/// moment at which the subscription is let through, or from the unlock if it never is.
fn found_after(is_let_through: bool) -> Took {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let (one, other) = (patient(server.builder()), patient(Client::builder(&proxy.url())));
    let (gate, asked) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let (held, seen) = (gate.clone(), Arc::clone(&asked));
    proxy.set(move |_, flow, data| {
        if is_request_for(flow, data, "SUBSCRIBE") && is_request_for(flow, data, CHANNEL) {
            seen.store(true, SeqCst);
            return vec![Step::Hold(held.clone()), Step::Send(data.to_vec())];
        }
        pass(data)
    });
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&other));
        eventually(LONG, "it asked for the channel", || asked.load(SeqCst));
        assert_eq!(server.subscribers(CHANNEL), 0);
        one.unlock("n").unwrap();
        let since = Mark::now();
        if is_let_through {
            gate.open();
        }
        let (got, when) = finish(waiter);
        assert!(got);
        when - since
    })
}

/// Nobody heard the unlock: the look that follows the confirmation finds it, well before the next poll.
#[test]
fn fault_34_the_lock_is_tried_once_the_subscription_is_confirmed() {
    let took = found_after(true);
    assert!(took <= UNTOLD / 2, "found after {took:?}");
}

#[test]
fn fault_34_without_a_confirmed_subscription_the_lock_is_polled() {
    let took = found_after(false);
    assert!(took <= UNTOLD + SOON, "found after {took:?}");
}

/// The locks of a user that may use any key, but these channels only.
fn of_user(server: &Server, name: &str, channels: &str, cap: Duration) -> ReentrantLock {
    let builder = redlatch::Client::builder(&server.let_in(name, "pw", &format!("~* +@all {channels}")));
    ReentrantLock::new(&builder.poll_cap(cap).watchdog_timeout(MINUTE).build().unwrap())
}

/// The holder may not publish.
#[test]
fn fault_35_an_unlock_that_nobody_hears_of_is_found_by_the_poll_cap() {
    let server = Server::start();
    let quiet = of_user(&server, "quiet", server.no_channels(), MINUTE);
    let waiting = of_user(&server, "waiting", "&*", ms(300));
    quiet.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&waiting));
        let unlocked = Mark::now();
        quiet.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= ms(300) + SOON, "found after {:?}", when - unlocked);
    });
}

/// An administrator deletes the key.
#[test]
fn fault_35_a_deleted_key_is_found_by_the_poll_cap() {
    let server = Server::start();
    let waiting = of_user(&server, "waiting", "&*", ms(300));
    let one = patient(server.builder());
    one.lock("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || pass_on(&waiting));
        let deleted = Mark::now();
        server.ask::<i64>(&["DEL", "n"]);
        let (got, when) = finish(waiter);
        assert!(got && when - deleted <= ms(300) + SOON, "found after {:?}", when - deleted);
    });
    assert_err!(one.unlock("n"), Lost);
}

/// The waiter may not listen.
#[test]
fn fault_35_a_waiter_that_may_not_listen_polls() {
    let server = Server::start();
    let one = patient(server.builder());
    let deaf = of_user(&server, "deaf", server.no_channels(), MINUTE);
    for _ in 0..2 {
        one.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || pass_on(&deaf));
            let unlocked = Mark::now();
            one.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= 2 * SOON, "found after {:?}", when - unlocked);
        });
    }
}
