//! Processes that stop or end while they wait.

use super::{MINUTE, assert_served, eventually_empty, holder, length, line, patient, patient_at, queued};
use crate::process::{Peer, hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{RedLock, RedLockExt};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

/// A process that waits for the lock, says that it got it, and gives it back.
fn wait_in_turn(url: &str) {
    let locks = patient_at(url);
    let guard = locks.request("n").wait(LONG).lease(MINUTE).guard().unwrap().expect("its turn");
    tell(url, &std::process::id().to_string());
    drop(guard);
}

/// Starts a process and comes back when it is queued.
fn start_queued(server: &Server, start: &dyn Fn(&Server) -> Peer) -> (Peer, (String, u64)) {
    let before = length(server);
    let peer = start(server);
    eventually(LONG, "the process is queued", || length(server) == before + 1);
    let place = line(server).swap_remove(before);
    (peer, place)
}

#[test]
fn processes_are_served_one_after_the_other() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| {
            let server = Server::start();
            let holder = holder(&server);
            let peers = [(); 3].map(|()| start_queued(&server, start).0);
            holder.unlock("n").unwrap();
            let served = [(); 3].map(|()| hear(&server));
            println!("{served:?}");
            peers.into_iter().for_each(Peer::join);
            eventually_empty(&server);
        },
    );
}

#[test]
fn a_process_that_is_killed_while_it_waits_is_skipped() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| {
            let server = Server::start();
            let (holder, other) = (holder(&server), patient(&server));
            scope(|scope| {
                let (dead, _) = start_queued(&server, start);
                let waiter = queued(scope, &server, || super::pass(&other));
                drop(dead);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(waiter, unlocked);
            });
            eventually_empty(&server);
        },
    );
}

/// For so long one that is stopped has what it was given.
const OFFER: Duration = Duration::from_millis(1_500);

/// That a waiter got the lock once so many that were stopped had had it, and soon after that.
#[track_caller]
fn assert_served_after(stopped: u32, waiter: ScopedJoinHandle<'_, (bool, Mark)>, since: Mark) {
    let (got, when) = finish(waiter);
    let took = when - since;
    assert!(got && took >= (OFFER - ms(10)) * stopped && took <= OFFER * stopped + SOON, "served after {took:?}");
}

/// Its connections are there, and it hears nothing. It has what it is given for an offer, once. When it goes on it comes last.
fn assert_stopped_one_costs_an_offer(start: &dyn Fn(&Server) -> Peer, behind: usize) {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 3].map(|()| patient(&server)));
    scope(|scope| {
        let (stopped, _) = start_queued(&server, start);
        stopped.freeze();
        let behind = &clients[..behind];
        let waiters: Vec<_> = behind.iter().map(|locks| queued(scope, &server, || super::pass(locks))).collect();
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| assert_served_after(1, waiter, unlocked));
        holder.lock("n").unwrap();
        let later = queued(scope, &server, || super::pass(&clients[0]));
        let unlocked = Mark::now();
        stopped.thaw();
        eventually(LONG, "it is queued again", || length(&server) == 2);
        holder.unlock("n").unwrap();
        assert_served(later, unlocked);
        hear(&server);
        stopped.join();
    });
    eventually_empty(&server);
}

#[test]
fn a_process_that_is_stopped_costs_the_only_one_behind_it_an_offer() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| assert_stopped_one_costs_an_offer(start, 1),
    );
}

#[test]
fn a_process_that_is_stopped_costs_those_behind_it_an_offer() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| assert_stopped_one_costs_an_offer(start, 3),
    );
}

#[test]
fn two_processes_that_are_stopped_cost_an_offer_each() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| {
            let server = Server::start();
            let (holder, clients) = (holder(&server), [(); 2].map(|()| patient(&server)));
            scope(|scope| {
                let (first, _) = start_queued(&server, start);
                let between = queued(scope, &server, || super::pass(&clients[0]));
                let (second, _) = start_queued(&server, start);
                let behind = queued(scope, &server, || super::pass(&clients[1]));
                first.freeze();
                second.freeze();
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served_after(1, between, unlocked);
                assert_served_after(2, behind, unlocked);
                first.thaw();
                second.thaw();
                hear(&server);
                hear(&server);
                first.join();
                second.join();
            });
            eventually_empty(&server);
        },
    );
}

#[test]
fn a_process_that_ends_while_it_holds_is_followed_by_the_next() {
    with_peer(
        |url| {
            let locks = patient_at(url);
            locks.lock_with_lease("n", ms(400)).unwrap();
            tell(url, "held");
            std::process::exit(0);
        },
        |start| {
            let server = Server::start();
            let holder = holder(&server);
            let (peer, _) = start_queued(&server, start);
            let other = patient(&server);
            scope(|scope| {
                let waiter = queued(scope, &server, || super::pass(&other));
                holder.unlock("n").unwrap();
                assert_eq!(hear(&server), "held");
                let (got, _) = finish(waiter);
                assert!(got, "when the lease had ended");
            });
            drop(peer);
            eventually_empty(&server);
            // On a busy machine the peer may have come second.
            eventually(LONG, "its lease is over", || server.pttl("n") == -2);
        },
    );
}
