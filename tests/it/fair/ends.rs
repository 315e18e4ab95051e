//! Waits that end without the lock.

use super::{MINUTE, assert_served, eventually_empty, giving, locks_of, pass, patient, patient_at, queue, queued};
use crate::bytes::load_scripts;
use crate::harness::lua;
use crate::process::{hear, tell, with_peer};
use crate::proxy::{Proxy, pass as pass_on, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, answered, eventually, finish, ms};
use redlatch::{CancelToken, Client, Error, RedLock, RedLockExt};
use std::thread::scope;
use std::time::Duration;

#[test]
fn whose_time_is_over_leaves_nothing() {
    let server = Server::start();
    let (holder, other) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    // On a busy machine its time may end before its last ask is answered: then the sweeper takes the place out.
    let leave = redis::Script::new(&lua::script("queue/leave_order")).get_hash().to_owned();
    let leaves_by_itself = || {
        let commands = server.commands_during(|| {
            assert!(!answered(|| other.try_lock_for("n", ms(200))).0);
            eventually_empty(&server);
        });
        !commands.iter().any(|command| command.contains(&leave))
    };
    assert!((0..10).any(|_| leaves_by_itself()));
    holder.unlock("n").unwrap();
}

/// A place that its thread cannot leave would stay, and a thread of Redisson's that finds one without an end waits for ever.
#[test]
fn who_could_not_leave_gets_no_place() {
    let server = Server::start();
    let holder = patient(&server);
    for command in ["lrem", "zrem", "hdel"] {
        let other = patient_at(&server.let_in("other", "pw", &format!("~* +@all -{command} &*")));
        holder.lock("n").unwrap();
        assert!(!other.try_lock_for("n", ms(50)).unwrap(), "{command}");
        holder.unlock("n").unwrap();
        eventually_empty(&server);
        assert!(pass(&other), "{command}");
    }
}

#[test]
fn who_is_cancelled_is_passed_over() {
    let server = Server::start();
    let (holder, other, third) = (patient(&server), patient(&server), patient(&server));
    holder.lock("n").unwrap();
    let token = CancelToken::new();
    scope(|scope| {
        let cancelled = queued(scope, &server, || other.request("n").wait(LONG).cancelled_by(&token).guard().map(drop));
        let waiter = queued(scope, &server, || pass(&third));
        token.cancel();
        assert!(matches!(finish(cancelled).0, Err(Error::Cancelled { .. })));
        eventually(LONG, "it left", || queue(&server).len() == 1);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

#[test]
fn a_client_that_is_gone_is_passed_over() {
    let server = Server::start();
    let (holder, third) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    // A client whose ear nobody listens to.
    let dead = "00000000-0000-0000-0000-000000000001";
    let field = format!("{dead}:1:1");
    server.ask::<i64>(&["RPUSH", super::LIST, &field]);
    server.ask::<i64>(&["ZADD", super::ENDS, "9e15", &field]);
    server.ask::<i64>(&["HSET", super::TICKETS, &field, &format!("{dead}:1.1.1.1.1500")]);
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&third));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// An ask takes the lock for a long lease, its answer is lost, and the server is away for longer than a place could have lasted.
#[test]
fn what_a_wait_left_is_taken_back_after_an_outage() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let cut_off = locks_of(Client::builder(&proxy.url()).poll_cap(ms(100)).response_timeout(ms(100)));
    load_scripts(&cut_off, "warm");
    let (asks, mut is_asked) = (runs("fair/in_order+acquire"), false);
    proxy.set(move |_, flow, data| {
        let is_lost = is_asked;
        is_asked |= asks(flow, data);
        if is_lost { Vec::new() } else { pass_on(data) }
    });
    assert!(cut_off.request("n").wait(ms(300)).lease(MINUTE).guard().is_err());
    std::thread::sleep(ms(1_500));
    assert!(server.pttl("n") > 10_000);
    proxy.clear();
    eventually(LONG, "it is free", || server.pttl("n") == -2);
    eventually_empty(&server);
}

#[test]
fn a_force_unlock_serves_the_first() {
    let server = Server::start();
    let (holder, other, third) = (patient(&server), patient(&server), giving(&server));
    holder.lock("n").unwrap();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let forced = Mark::now();
        assert!(third.force_unlock("n").unwrap());
        assert_served(waiter, forced);
    });
    assert!(holder.unlock("n").is_err());
    eventually_empty(&server);
}

/// For so long one that is stopped has what it was given.
const OFFER: Duration = Duration::from_millis(1_500);

/// Its connections are there, and it hears nothing. It has what it is given for an offer, once. When it goes on it comes last.
#[test]
fn a_process_that_is_stopped_costs_an_offer() {
    with_peer(
        |url| {
            let locks = patient_at(url);
            let guard = locks.request("n").wait(2 * LONG).guard().unwrap().expect("its turn");
            tell(url, "served");
            drop(guard);
        },
        |start| {
            let server = Server::start();
            let (holder, clients) = (patient(&server), [(); 2].map(|()| patient(&server)));
            holder.lock("n").unwrap();
            let peer = start(&server);
            eventually(LONG, "it is queued", || queue(&server).len() == 1);
            super::eventually_heard(&server);
            peer.freeze();
            scope(|scope| {
                let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, move || pass(locks))).collect();
                // Else one that looks once more after it subscribed would know the end of the offer.
                std::thread::sleep(ms(200));
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                for waiter in waiters {
                    let (got, when) = finish(waiter);
                    let took = when - unlocked;
                    assert!(got && took >= OFFER - ms(10) && took <= OFFER + SOON, "served after {took:?}");
                }
            });
            peer.thaw();
            assert_eq!(hear(&server), "served");
            peer.join();
            eventually_empty(&server);
        },
    );
}
