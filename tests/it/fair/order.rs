//! Who is served, and when.

use super::{
    ENDS, LIST, MINUTE, TICKETS, assert_served, eventually_empty, giving, pass, patient, placed, queue, queued,
};
use crate::bytes::load_scripts;
use crate::proxy::{Proxy, Step, pass as pass_on, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually, finish, ms, spawn_asleep};
use redlatch::{Client, FairLock, HandOff, LocalRedLock, RedLock, RedLockExt};
use std::sync::Mutex;
use std::thread::scope;

/// Has `count` threads of these clients wait in turn, and returns who was served when.
fn served(server: &Server, clients: &[FairLock], count: usize) -> Vec<usize> {
    let (holder, served) = (patient(server), Mutex::new(Vec::new()));
    holder.lock("n").unwrap();
    scope(|scope| {
        for number in 0..count {
            let (locks, served) = (&clients[number % clients.len()], &served);
            placed(scope, server, move || {
                let guard = locks.request("n").wait(LONG).guard().unwrap().expect("its turn");
                served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            });
        }
        holder.unlock("n").unwrap();
    });
    eventually_empty(server);
    served.into_inner().unwrap()
}

#[test]
fn threads_of_one_client_come_in_their_order() {
    let server = Server::start();
    assert_eq!(served(&server, &[patient(&server)], 20), (0..20).collect::<Vec<_>>());
}

#[test]
fn threads_of_several_clients_come_in_their_order() {
    let server = Server::start();
    let clients = [(); 3].map(|()| patient(&server));
    assert_eq!(served(&server, &clients, 21), (0..21).collect::<Vec<_>>());
}

/// Who comes again at once comes after all that wait.
#[test]
fn in_memory_there_is_the_same_order() {
    let (locks, served) = (LocalRedLock::in_order(), Mutex::new(Vec::new()));
    locks.lock("n").unwrap();
    scope(|scope| {
        for number in 0..20 {
            let (locks, served) = (&locks, &served);
            spawn_asleep(scope, move || {
                for _ in 0..2 {
                    let guard = locks.request("n").wait(LONG).guard().unwrap().expect("its turn");
                    served.lock().unwrap().push(number);
                    guard.unlock().unwrap();
                }
            });
        }
        locks.unlock("n").unwrap();
    });
    assert_eq!(served.into_inner().unwrap()[..20], (0..20).collect::<Vec<_>>());
}

/// The hand-off of other kinds has no part in it.
#[test]
fn without_the_hand_off_there_is_an_order_too() {
    let server = Server::start();
    let builder = || server.builder().poll_cap(MINUTE).hand_off(HandOff::off());
    let clients = [(); 2].map(|()| super::locks_of(builder()));
    assert_eq!(served(&server, &clients, 8), (0..8).collect::<Vec<_>>());
}

/// A server that takes subscriptions of nobody: those who wait look each 50 ms, and keep their places.
#[test]
fn who_hears_nothing_comes_in_its_order() {
    let server = Server::start();
    let url = server.let_in("deaf", "pw", "~* +@all -subscribe &*");
    let clients = [(); 2].map(|()| super::patient_at(&url));
    assert_eq!(served(&server, &clients, 8), (0..8).collect::<Vec<_>>());
}

/// It hears what is told to all, and not that it was given the lock. So it looks each 50 ms, too.
#[test]
fn who_may_not_hear_its_own_channel_has_its_turn() {
    let server = Server::start();
    let (holder, third) = (patient(&server), patient(&server));
    let deaf = super::patient_at(&server.let_in("deaf", "pw", "~* +@all resetchannels &redisson_lock__channel:*"));
    holder.lock("n").unwrap();
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&deaf));
        let next = placed(scope, &server, || pass(&third));
        // The server has refused the channel by then.
        std::thread::sleep(ms(200));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
        assert_served(next, unlocked);
    });
    eventually_empty(&server);
}

#[test]
fn a_try_does_not_come_before_who_waits() {
    let server = Server::start();
    let (holder, other, third) = (patient(&server), patient(&server), patient(&server));
    holder.lock("n").unwrap();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        // As if the holder had died.
        server.ask::<i64>(&["DEL", "n"]);
        let freed = Mark::now();
        assert!(!third.try_lock("n").unwrap());
        assert_served(waiter, freed);
    });
    assert!(holder.unlock("n").is_err());
    eventually(LONG, "it is free", || third.try_lock("n").unwrap());
    third.unlock("n").unwrap();
    eventually_empty(&server);
}

#[test]
fn a_release_is_all_that_it_costs() {
    let server = Server::start();
    let (holder, other) = (giving(&server), patient(&server));
    holder.lock("n").unwrap();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// Who subscribes slowly would else stand behind those who came later.
#[test]
fn a_call_has_its_place_with_its_first_ask() {
    let server = Server::start();
    let (proxy, holder) = (Proxy::new(server.socket()), patient(&server));
    let other = super::locks_of(Client::builder(&proxy.url()).response_timeout(ms(500)).outage_budget(LONG));
    holder.lock("n").unwrap();
    let (is_ask, mut has_asked) = (runs("fair/in_order+acquire"), false);
    proxy.set(move |_, flow, data| {
        let is_late = has_asked;
        has_asked |= is_ask(flow, data);
        if is_late { Vec::new() } else { pass_on(data) }
    });
    scope(|scope| {
        let waiter = scope.spawn(|| pass(&other));
        eventually(LONG, "it is queued", || queue(&server).len() == 1);
        proxy.clear();
        holder.unlock("n").unwrap();
        assert!(finish(waiter));
    });
    eventually_empty(&server);
}

/// The holder may not publish. The place is at the front again, also of an empty queue.
#[test]
fn who_cannot_be_told_keeps_its_place() {
    for count in [1, 3] {
        let server = Server::start();
        let holder = super::patient_at(&server.let_in("mute", "pw", "~* +@all -publish &*"));
        let clients = [(); 3].map(|()| patient(&server));
        holder.lock("n").unwrap();
        scope(|scope| {
            let waiters: Vec<_> =
                clients[..count].iter().map(|locks| queued(scope, &server, move || pass(locks))).collect();
            let before = queue(&server);
            holder.unlock("n").unwrap();
            assert_eq!(queue(&server), before);
            let told = Mark::now();
            clients[0].try_lock_for("n", ms(1)).unwrap();
            waiters.into_iter().for_each(|waiter| assert_served(waiter, told));
        });
        eventually_empty(&server);
    }
}

/// One part of the queue was evicted. All but the first ask within an offer, and mend it.
#[test]
fn a_queue_that_lost_a_key_is_mended() {
    for key in [LIST, ENDS, TICKETS] {
        let server = Server::start();
        let (holder, clients) = (patient(&server), [(); 3].map(|()| patient(&server)));
        holder.lock("n").unwrap();
        scope(|scope| {
            let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, move || pass(locks))).collect();
            server.ask::<i64>(&["DEL", key]);
            let places =
                || -> [usize; 3] { [&["LLEN", LIST], &["ZCARD", ENDS], &["HLEN", TICKETS]].map(|ask| server.ask(ask)) };
            eventually(LONG, key, || places().iter().all(|count| *count >= 2));
            holder.unlock("n").unwrap();
            waiters.into_iter().for_each(|waiter| assert!(finish(waiter).0, "{key}"));
        });
        eventually_empty(&server);
    }
}

/// An attempt is cut, and its repetition is queued. The ask by the next owner id is lost once. Meanwhile that place is given the lock, and
/// the sweep of its owner id is due: it must not come before the next owner id has taken over.
#[test]
fn what_a_place_is_given_before_its_next_owner_id_comes_is_kept() {
    let server = Server::start();
    let (proxy, holder, second) = (Proxy::new(server.socket()), patient(&server), patient(&server));
    let first = super::locks_of(Client::builder(&proxy.url()).poll_cap(MINUTE).response_timeout(ms(500)));
    load_scripts(&first, "warm");
    holder.lock("n").unwrap();
    let (asks, mut asked, served) = (runs("fair/in_order+acquire"), 0, Mutex::new(Vec::new()));
    proxy.set(move |_, flow, data| {
        let is_ask = asks(flow, data);
        asked += usize::from(is_ask);
        match asked {
            1 if is_ask => vec![Step::Cut],
            3 if is_ask => Vec::new(),
            _ => pass_on(data),
        }
    });
    scope(|scope| {
        for (number, locks) in [&first, &second].into_iter().enumerate() {
            let served = &served;
            queued(scope, &server, move || {
                let guard = locks.request("n").wait(LONG).guard().unwrap().expect("its turn");
                served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            });
        }
        holder.unlock("n").unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [0, 1]);
    eventually_empty(&server);
}
