//! Waits that end without the lock: their tickets go, and the next is served.

use super::{
    MINUTE, Over, QUEUE, assert_served, eventually_empty, holder, length, line, locks_of, pass, patient, patient_at,
    queued,
};
use crate::lua;
use crate::proxy::{Flow, Proxy, Step, pass as pass_on, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, answered, eventually, finish, ms};
use redlatch::{CancelToken, Client, LocalRedLock, MultiLock, RedLock};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::scope;

/// Its last ask takes it out. A leave in the background could be late, and who is gone would be given the lock.
#[test]
fn a_timed_wait_leaves_no_ticket() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let leaves = redis::Script::new(&lua::script("queue/leave")).get_hash().to_owned();
    let asked = server.commands_during(|| {
        for _ in 0..5 {
            let (got, took) = answered(|| other.try_lock_for("n", ms(100)));
            assert!(!got && took >= ms(100) && took <= ms(100) + LATE, "{took:?}");
            assert_eq!(length(&server), 0);
        }
    });
    assert!(!asked.iter().any(|command| command.contains(&leaves)), "{asked:#?}");
    holder.unlock("n").unwrap();
}

#[test]
fn a_cancelled_wait_leaves_no_ticket() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let token = CancelToken::new();
    scope(|scope| {
        let waiter = queued(scope, &server, || other.lock_cancellable("n", &token));
        token.cancel();
        assert_err!(finish(waiter).0, Cancelled);
        eventually_empty(&server);
    });
    holder.unlock("n").unwrap();
}

#[test]
fn a_shutdown_leaves_no_ticket() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || other.lock("n"));
        other.client().shutdown();
        assert_err!(finish(waiter).0, Closed);
        eventually_empty(&server);
    });
    holder.unlock("n").unwrap();
}

/// The client goes while its ticket is still to be taken away.
#[test]
fn a_client_that_is_dropped_leaves_no_ticket() {
    let server = Server::start();
    let holder = holder(&server);
    for _ in 0..20 {
        let other = patient(&server);
        assert!(!answered(|| other.try_lock_for("n", ms(20))).0);
        drop(other);
        eventually_empty(&server);
    }
    holder.unlock("n").unwrap();
}

/// The first gives up, and the lock becomes free while its ticket is still there: the next is served all the same.
#[test]
fn who_gives_up_as_it_is_told_holds_up_nobody() {
    let server = Server::start();
    let (first, second) = (patient(&server), patient(&server));
    for _ in 0..10 {
        let holder = holder(&server);
        let token = CancelToken::new();
        scope(|scope| {
            let first = queued(scope, &server, || (first.lock_cancellable("n", &token), first.unlock("n")));
            let second = queued(scope, &server, || pass(&second));
            let both = scope.spawn(|| token.cancel());
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            finish(both);
            let (got, given_back) = finish(first).0;
            assert_eq!(got.is_ok(), given_back.is_ok(), "{got:?}");
            assert_served(second, unlocked);
        });
        eventually_empty(&server);
    }
}

/// The ask that was to join was never answered: it is executed later than its caller waits.
#[test]
fn an_ask_that_arrives_after_its_call_leaves_no_ticket() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let holder = holder(&server);
    let other =
        locks_of(Client::builder(&proxy.url()).watchdog_timeout(MINUTE).poll_cap(ms(100)).response_timeout(ms(200)));
    let asks = runs("in_turn+acquire");
    proxy.set(move |_, flow, data| match asks(flow, data) {
        // After the time-out of its caller.
        true => crate::proxy::pass_after(ms(300), data),
        false => pass_on(data),
    });
    let ended = other.try_lock_for("n", ms(500));
    println!("{ended:?}");
    proxy.clear();
    assert!(matches!(ended, Ok(false) | Err(_)));
    std::thread::sleep(ms(300));
    eventually_empty(&server);
    holder.unlock("n").unwrap();
}

/// The sweeper is told that the ticket could not be taken out, and comes again.
#[test]
fn a_leave_that_fails_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let holder = holder(&server);
    let other = locks_of(Client::builder(&proxy.url()).watchdog_timeout(MINUTE).poll_cap(MINUTE));
    assert!(!answered(|| other.try_lock_for("n", ms(50))).0);
    eventually_empty(&server);
    let (leaves, mut failed) = (runs("queue/leave"), 0);
    proxy.set(move |_, flow, data| {
        if flow == Flow::Request && leaves(flow, data) && failed < 1 {
            failed += 1;
            return vec![crate::proxy::Step::Cut];
        }
        pass_on(data)
    });
    scope(|scope| {
        let waiter = queued(scope, &server, || answered(|| other.try_lock_for("n", ms(2_000))).0);
        assert!(!finish(waiter).0);
    });
    eventually_empty(&server);
    holder.unlock("n").unwrap();
}

/// Nobody may take a ticket out: it ends with the queue, and the server is not asked again and again.
#[test]
fn a_leave_that_is_refused_is_not_repeated() {
    let server = Server::start();
    let holder = holder(&server);
    let url = server.let_in("user", "pw", "~* +@all -zadd -zrem &*");
    let other = patient_at(&url);
    let leave = redis::Script::new(&crate::lua::script("queue/leave")).get_hash().to_owned();
    for _ in 0..3 {
        assert!(!answered(|| other.try_lock_for("n", ms(50))).0);
    }
    let commands = server.commands_during(|| std::thread::sleep(ms(2_500)));
    let leaves = commands.iter().filter(|command| command.contains(&leave)).count();
    assert!(leaves <= 3, "{leaves} times: {commands:#?}");
    holder.unlock("n").unwrap();
}

/// A group waits for one member after the other, in the queue of each.
#[test]
fn a_group_leaves_no_ticket_and_is_served() {
    let server = Server::start();
    let (holder, other, local) = (holder(&server), patient(&server), LocalRedLock::new());
    let group = MultiLock::of([(&other as &dyn RedLock, "n"), (&other, "m"), (&local, "l")]);
    assert!(!answered(|| group.try_lock_for(ms(100))).0);
    eventually_empty(&server);
    scope(|scope| {
        let waiter = scope.spawn(|| (group.try_lock_for(LONG).unwrap() && group.unlock().is_ok(), Mark::now()));
        eventually(LONG, "it waits", || other.client().stats().waiters == 1);
        std::thread::sleep(ms(20));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

/// A group of a client that has a waiter in the queue is no member of it, and must not be forgotten.
#[test]
fn a_group_is_served_beside_a_waiter_of_its_client() {
    let server = Server::start();
    let (holder, other, third) = (holder(&server), patient(&server), patient(&server));
    let group = MultiLock::of([(&other as &dyn RedLock, "n"), (&other, "m")]);
    scope(|scope| {
        let third = queued(scope, &server, || pass(&third));
        let grouped = scope.spawn(|| (group.try_lock_for(LONG).unwrap() && group.unlock().is_ok(), Mark::now()));
        eventually(LONG, "it waits", || other.client().stats().waiters == 1);
        std::thread::sleep(ms(20));
        let alone = scope.spawn(|| (pass(&other), Mark::now()));
        eventually(LONG, "both wait", || other.client().stats().waiters == 2);
        std::thread::sleep(ms(20));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        for waiter in [third, alone, grouped] {
            assert_served(waiter, unlocked);
        }
    });
    eventually_empty(&server);
}

/// It polls in the queue. The last is not refused: its connection ends as soon as it listens, as with a server that has none left.
#[test]
fn who_cannot_listen_is_served_beside_those_who_queue() {
    let server = Server::start();
    let clients = [(); 2].map(|()| patient(&server));
    let proxy = Proxy::new(server.socket());
    // A new connection asks for the right to listen behind other commands.
    proxy.set(|_, flow, data| match flow == Flow::Request && data.starts_with(b"*2\r\n$9\r\nSUBSCRIBE\r\n") {
        true => vec![Step::Cut],
        false => pass_on(data),
    });
    let rules = [("one", "~* +@all -subscribe &*"), ("other", "~* +@all resetchannels")];
    let refused = rules.map(|(user, rules)| server.let_in(user, "pw", rules));
    for url in refused.into_iter().chain([proxy.url()]) {
        let deaf = patient_at(&url);
        let over = AtomicBool::new(false);
        scope(|scope| {
            for locks in &clients {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        assert!(pass(locks));
                    }
                });
            }
            let _over = Over(&over);
            (0..3).for_each(|_| assert!(pass(&deaf), "{url}"));
            // Who is not given the lock has a short wait succeed now and then: by luck.
            let is_served = |_: &usize| deaf.try_lock_for("n", ms(500)).unwrap() && deaf.unlock("n").is_ok();
            let served = (0..20).filter(is_served).count();
            assert!(served >= 15, "{url}: {served} of 20 short waits");
        });
        eventually_empty(&server);
    }
}

/// A queue that nobody joins any more ends by itself.
#[test]
fn a_queue_lasts_for_three_of_the_longest_poll_caps() {
    let server = Server::start();
    let holder = holder(&server);
    let [short, long, shorter] = [ms(500), ms(10_000), ms(400)].map(|cap| locks_of(server.builder().poll_cap(cap)));
    let assert_left = |least: i64, most: i64| {
        let left = server.pttl(QUEUE);
        assert!(left > least && left <= most, "{left} ms");
    };
    scope(|scope| {
        let first = queued(scope, &server, || pass(&short));
        assert_left(0, 1_500);
        let second = queued(scope, &server, || pass(&long));
        assert_left(20_000, 30_000);
        let third = queued(scope, &server, || pass(&shorter));
        assert_left(20_000, 30_000);
        assert_eq!(length(&server), line(&server).len());
        holder.unlock("n").unwrap();
        assert!([first, second, third].into_iter().all(|waiter| finish(waiter).0));
    });
    eventually_empty(&server);
}
