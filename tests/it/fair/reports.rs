//! What users of Redisson reported of its fair lock, a test for each report: a queue that is stuck, or out of order.

use super::{ENDS, LIST, TICKETS, eventually_empty, locks_of, pass, patient, queue, queued};
use crate::proxy::{Flow, Proxy, pass as pass_on};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, if_answered, ms};
use redlatch::{Client, FairLock, RedLock, RedLockExt};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::Duration;

/// The server's clock, ms.
fn now(server: &Server) -> f64 {
    let (seconds, micros): (f64, f64) = server.ask(&["TIME"]);
    seconds * 1e3 + micros / 1e3
}

/// The latest end in the queue, in ms from now.
fn latest_end(server: &Server) -> f64 {
    let ends: Vec<(String, f64)> = server.ask(&["ZRANGE", ENDS, "-1", "-1", "WITHSCORES"]);
    ends.first().map_or(0.0, |(_, end)| end - now(server))
}

/// Waiters whose process was killed: so many fields with tickets of a client whose ear nobody listens to.
fn leave_dead(server: &Server, count: usize) {
    for number in 0..count {
        let field = format!("00000000-0000-0000-0000-00000000000d:1:{number}");
        let ticket = format!("00000000-0000-0000-0000-00000000000d:1.1.1.{number}.1500");
        server.ask::<i64>(&["RPUSH", LIST, &field]);
        server.ask::<i64>(&["ZADD", ENDS, &format!("{:.0}", now(server) + 15_000.0), &field]);
        server.ask::<i64>(&["HSET", TICKETS, &field, &ticket]);
    }
}

/// Whether a short wait got the lock. On a busy machine the server may not answer in time.
fn try_for(locks: &FairLock, wait: Duration) -> bool {
    if_answered(|| locks.try_lock_for("n", wait)).is_some_and(|(got, _)| got)
}

/// Short waits beside a long lease moved the ends of all who wait hours away, and then a dead waiter kept the lock from the others for as long.
#[test]
fn redisson_1104_short_waits_move_no_end_away_and_a_dead_waiter_costs_nothing() {
    let server = Server::start();
    let (holder, clients, last) =
        (patient(&server), [(); 3].map(|()| server.builder().build().unwrap()), patient(&server));
    holder.lock("n").unwrap();
    scope(|scope| {
        for client in &clients {
            let locks = FairLock::new(client);
            scope.spawn(move || (0..30).for_each(|_| assert!(!try_for(&locks, ms(50)))));
        }
        for _ in 0..20 {
            sleep(ms(50));
            let latest = latest_end(&server);
            assert!(latest <= 15_100.0, "{latest} ms");
        }
    });
    leave_dead(&server, 1);
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&last));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "{:?}", when - unlocked);
    });
    eventually_empty(&server);
}

/// Each thread that had died cost five seconds.
#[test]
fn redisson_1353_five_dead_waiters_cost_nothing() {
    let server = Server::start();
    let (holder, other) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    leave_dead(&server, 5);
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "{:?}", when - unlocked);
    });
    eventually_empty(&server);
}

/// Each acquire and each end of a lease moved the ends a little further.
#[test]
fn redisson_2099_ends_do_not_drift_while_the_queue_is_never_empty() {
    let server = Server::start();
    let clients = [(); 4].map(|()| server.builder().build().unwrap());
    scope(|scope| {
        let workers: Vec<_> = clients
            .iter()
            .map(|client| {
                let locks = FairLock::new(client);
                scope.spawn(move || {
                    for turn in 0..200 {
                        let guard = locks.request("n").wait(LONG).lease(ms(500)).guard().unwrap().expect("its turn");
                        if turn % 40 == 39 {
                            // Its lease ends in its hands.
                            std::mem::forget(guard);
                            sleep(ms(510));
                            let _ = locks.unlock("n");
                        }
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            let latest = latest_end(&server);
            assert!(latest <= 15_100.0, "{latest} ms");
            sleep(ms(20));
        }
        workers.into_iter().for_each(finish);
    });
    eventually_empty(&server);
}

/// Of five hundred threads a hundred were served.
#[test]
fn redisson_2883_five_hundred_threads_are_all_served() {
    let server = Server::start();
    let clients = [(); 5].map(|()| server.builder().build().unwrap());
    let served = Mutex::new(0);
    scope(|scope| {
        for number in 0..500 {
            let (locks, served) = (FairLock::new(&clients[number % 5]), &served);
            scope.spawn(move || {
                let guard =
                    locks.request("n").wait(6 * LONG).lease(Duration::from_secs(5)).guard().unwrap().expect("its turn");
                *served.lock().unwrap() += 1;
                guard.unlock().unwrap();
            });
        }
    });
    assert_eq!(served.into_inner().unwrap(), 500);
    eventually_empty(&server);
}

/// Who had waited for longer than its time in the queue was taken out, and never told.
#[test]
fn redisson_3004_who_waits_for_longer_than_its_end_is_served_in_order() {
    let server = Server::start();
    let clients = [(); 3].map(|()| locks_of(Client::builder(&server.url()).poll_cap(ms(500))));
    let (holder, served) = (patient(&server), Mutex::new(Vec::new()));
    holder.lock("n").unwrap();
    scope(|scope| {
        for (number, locks) in clients.iter().enumerate() {
            let served = &served;
            queued(scope, &server, move || {
                let guard = locks.request("n").wait(LONG).guard().unwrap().expect("its turn");
                served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            });
        }
        sleep(ms(2_500));
        holder.unlock("n").unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [0, 1, 2]);
    eventually_empty(&server);
}

/// A holder ended without an unlock, and its lease ended: the next was stuck, and so were the keys of the queue.
#[test]
fn redisson_3730_a_lease_that_ends_serves_the_next() {
    let server = Server::start();
    let (gone, other) = (patient(&server), patient(&server));
    assert!(gone.request("n").lease(ms(700)).guard().unwrap().map(std::mem::forget).is_some());
    let taken = Mark::now();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let (got, when) = finish(waiter);
        assert!(got && when - taken <= ms(700) + SOON, "{:?}", when - taken);
    });
    eventually_empty(&server);
    let _ = gone.unlock("n");
}

/// An application ended while its threads waited. After its restart nobody could lock.
#[test]
fn redisson_4661_what_a_dead_application_left_is_in_nobodys_way() {
    let server = Server::start();
    server.ask::<i64>(&["HSET", "n", "00000000-0000-0000-0000-00000000000d:1:99", "1"]);
    server.ask::<i64>(&["PEXPIRE", "n", "500"]);
    leave_dead(&server, 20);
    let (locks, started) = (patient(&server), Mark::now());
    assert!(locks.try_lock_for("n", LONG).unwrap());
    assert!(started.elapsed() <= ms(500) + SOON, "{:?}", started.elapsed());
    locks.unlock("n").unwrap();
    eventually_empty(&server);
}

/// A wait ended with an error while the server did not answer, and its place stayed.
#[test]
fn redisson_5019_a_wait_that_fails_leaves_no_place() {
    for arrives in [true, false] {
        let server = Server::start();
        let (proxy, holder) = (Proxy::new(server.socket()), patient(&server));
        let cut_off = locks_of(Client::builder(&proxy.url()).response_timeout(ms(100)).outage_budget(ms(300)));
        holder.lock("n").unwrap();
        scope(|scope| {
            let waiter = queued(scope, &server, || cut_off.try_lock_for("n", ms(1_500)));
            // Nothing comes back of what it sends.
            let is_swallowed = move |flow| flow == Flow::Reply || !arrives;
            proxy.set(move |_, flow, data| if is_swallowed(flow) { Vec::new() } else { pass_on(data) });
            assert!(matches!(finish(waiter).0, Err(_) | Ok(false)));
        });
        proxy.clear();
        eventually(LONG, "it left", || queue(&server).is_empty());
        holder.unlock("n").unwrap();
        eventually_empty(&server);
    }
}

/// A thread without an end made each script fail: 'attempt to compare nil with number'.
#[test]
fn redisson_5989_a_field_without_an_end_is_in_nobodys_way() {
    let server = Server::start();
    let (holder, other, third) = (patient(&server), patient(&server), patient(&server));
    holder.lock("n").unwrap();
    for field in ["java:7", "java:8"] {
        server.ask::<i64>(&["RPUSH", LIST, field]);
    }
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        assert!(!try_for(&third, ms(50)));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "{:?}", when - unlocked);
    });
    eventually_empty(&server);
}
