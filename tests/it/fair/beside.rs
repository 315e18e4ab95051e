//! A fair lock beside a plain one of the same name, and two locks that share a queue.

use super::{assert_served, eventually_empty, locks_of, pass, patient, queued};
use crate::harness::sentinel::Group;
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually, spawn_asleep};
use redlatch::{FairLock, RedLock, RedLockExt, ReentrantLock};
use std::sync::Mutex;
use std::thread::scope;

/// They exclude each other, and an unlock of either serves who waits for the other, if nobody waits in its own queue.
#[test]
fn plain_and_fair_locks_exclude_and_wake_each_other() {
    let server = Server::start();
    let (fair, plain) = (patient(&server), crate::harness::queue::patient(&server));
    plain.lock("n").unwrap();
    assert!(!fair.try_lock("n").unwrap());
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&fair));
        let unlocked = Mark::now();
        plain.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
    fair.lock("n").unwrap();
    assert!(!plain.try_lock("n").unwrap());
    scope(|scope| {
        let waiter = spawn_asleep(scope, || plain.try_lock_for("n", LONG).unwrap() && plain.unlock("n").is_ok());
        eventually(LONG, "it listens", || server.subscribers("redisson_lock__channel:{n}") == 1);
        let unlocked = Mark::now();
        fair.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
}

/// One thread cannot have both: it would wait for itself.
#[test]
fn a_thread_that_has_the_plain_lock_is_told_so() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let (fair, plain) = (FairLock::new(&client), ReentrantLock::new(&client));
    plain.lock("n").unwrap();
    assert_err!(fair.lock("n"), Config);
    plain.unlock("n").unwrap();
    fair.lock("n").unwrap();
    assert_err!(plain.lock("n"), Config);
    fair.unlock("n").unwrap();
}

/// By Redisson's names `x` and `{x}` are two locks with one queue. Who waits for one does not keep the other from its waiters.
#[test]
fn two_locks_that_share_a_queue_are_in_no_others_way() {
    let server = Server::start();
    let clients = [(); 4].map(|()| locks_of(server.builder()));
    let [one, other, first, second] = &clients;
    one.lock("{n}").unwrap();
    other.lock("n").unwrap();
    scope(|scope| {
        let braces = queued(scope, &server, || first.try_lock_for("{n}", LONG).unwrap() && first.unlock("{n}").is_ok());
        let plain = queued(scope, &server, || pass(second));
        let unlocked = Mark::now();
        other.unlock("n").unwrap();
        assert_served(plain, unlocked);
        let unlocked = Mark::now();
        one.unlock("{n}").unwrap();
        assert_served(braces, unlocked);
    });
    eventually_empty(&server);
}

/// The queue is data, so the new master has it. Each client asks there again, and finds its place.
#[test]
fn the_order_is_kept_where_a_master_is_replaced() {
    let group = Group::start();
    let builder = || group.builder().outage_budget(LONG);
    let clients = [(); 3].map(|()| FairLock::new(&builder().build().unwrap()));
    let (holder, served) = (FairLock::new(&builder().build().unwrap()), Mutex::new(Vec::new()));
    holder.lock("n").unwrap();
    scope(|scope| {
        for number in 0..6 {
            let (locks, served) = (&clients[number % 3], &served);
            scope.spawn(move || {
                let guard = locks.request("n").wait(3 * LONG).guard().unwrap().expect("its turn");
                served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            });
            let queued = |node: usize| group.nodes[node].ask::<usize>(&["LLEN", super::LIST]);
            eventually(LONG, "it is queued at all nodes", || {
                (0..group.nodes.len()).all(|node| queued(node) == number + 1)
            });
        }
        let old = group.master();
        group.fail_over(0);
        let new = group.replaced(old);
        let tickets = || -> Vec<String> { group.nodes[new].ask(&["HVALS", super::TICKETS]) };
        let listens = |ticket: &String| {
            group.nodes[new].subscribers(&format!("redlatch_ear:{}", ticket.split(':').next().unwrap())) == 1
        };
        eventually(LONG, "all listen at the new master", || {
            tickets().iter().all(|ticket| !ticket.ends_with('p') && listens(ticket))
        });
        holder.unlock("n").unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
}
