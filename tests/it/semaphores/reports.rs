//! What users of Redisson reported of its semaphores, a test for each report: permits that did not come back, and waiters that were not told.

use super::{
    Kind, LEASES, bounded, eventually_nobody_waits, left, of, pass, patient, placed, take, usual, with_permits,
};
use crate::harness::queue::{MINUTE, assert_served};
use crate::process::{hear, tell, with_peer};
use crate::proxy::{Flow, Proxy, pass as pass_on};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, WATCHED, eventually, finish, lost_within, ms, run_out};
use redlatch::{Client, LeasedSemaphore, LossCause, Semaphore};
use std::thread::{scope, sleep};

/// A machine went down with its permits, and they never came back. Its connections stay open: nobody closes them.
#[test]
fn redisson_2045_permits_of_a_machine_that_is_gone_come_back() {
    let (server, other) = with_permits::<LeasedSemaphore>(3);
    let proxy = Proxy::new(server.socket());
    let gone: LeasedSemaphore = of(Client::builder(&proxy.url()).watchdog_timeout(WATCHED).poll_cap(MINUTE));
    let permits = take(&gone, 2);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 3));
        proxy.set(|_, _, _| Vec::new());
        let cut = Mark::now();
        let (got, when) = finish(waiter);
        assert!(got && when - cut <= WATCHED + SOON, "{:?}", when - cut);
    });
    // It would know by itself: it has no confirmation of its permits.
    assert_eq!(lost_within(WATCHED, permits.hold().unwrap()), LossCause::Expired);
    proxy.clear();
    assert_err!(permits.release(), Lost);
    drop(gone);
    assert_eq!(left(&other), 3);
}

/// A release failed because of the network, and nothing brought the permits back.
#[test]
fn redisson_2213_permits_whose_release_failed_come_back() {
    permits_whose_release_failed_come_back::<Semaphore>();
    permits_whose_release_failed_come_back::<LeasedSemaphore>();
}

fn permits_whose_release_failed_come_back<S: Kind>() {
    for arrives in [true, false] {
        let (server, other) = with_permits::<S>(3);
        let proxy = Proxy::new(server.socket());
        let builder = Client::builder(&proxy.url()).response_timeout(ms(100)).outage_budget(LONG);
        let semaphores: S = of(builder);
        let permits = take(&semaphores, 2);
        let is_swallowed = move |flow| flow == Flow::Reply || !arrives;
        proxy.set(move |_, flow, data| if is_swallowed(flow) { Vec::new() } else { pass_on(data) });
        // The drop makes one attempt, and leaves the rest to the background.
        drop(permits);
        proxy.clear();
        eventually(LONG, "they are back", || left(&other) == 3);
        drop(semaphores);
        assert_eq!(left(&other), 3);
    }
}

/// Processes were killed before they released, and nobody could acquire any more.
#[test]
fn redisson_4462_permits_of_a_process_that_was_killed_come_back() {
    let hold = |url: &str| {
        let semaphores: LeasedSemaphore = of(Client::builder(url).watchdog_timeout(WATCHED));
        let _permits = take(&semaphores, 3);
        tell(url, "it holds");
        sleep(3 * LONG);
    };
    with_peer(hold, |start| {
        let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
        let peer = start(&server);
        hear(&server);
        assert_eq!(left(&semaphores), 0);
        scope(|scope| {
            let waiter = placed(scope, &server, || pass(&semaphores, 3));
            let killed = Mark::now();
            drop(peer);
            let (got, when) = finish(waiter);
            assert!(got && when - killed <= WATCHED + SOON, "{:?}", when - killed);
        });
        eventually_nobody_waits(&server);
    });
}

/// Threads were starved beside hundreds of semaphores of one permit: messages did not come to those that waited.
#[test]
fn redisson_3573_no_thread_is_starved_beside_hundreds_of_semaphores() {
    crowd::<Semaphore>(pass_name);
}

/// Several processes used hundreds of semaphores whose time ended while others waited, and those were starved.
#[test]
fn redisson_3728_no_thread_is_starved_if_leases_end_beside_it() {
    crowd::<LeasedSemaphore>(|client, name| {
        if name.ends_with('0') {
            // It never gives this one back.
            let permits = client.acquire(name, 1, &bounded().lease(ms(50))).unwrap().expect("its turn");
            run_out(permits.hold().unwrap());
            permits.forget();
        } else {
            pass_name(client, name);
        }
    });
}

fn pass_name<S: Kind>(client: &S, name: &str) {
    client.acquire(name, 1, &bounded()).unwrap().expect("its turn").release().unwrap();
}

/// Three clients with four threads each pass through 200 semaphores, each thread in an order of its own. Nothing but messages and ends of
/// leases can serve them.
fn crowd<S: Kind>(act: impl Fn(&S, &str) + Sync) {
    let server = Server::start();
    let clients: [S; 3] = [(); 3].map(|()| patient(&server));
    (0..200).for_each(|number| assert!(clients[0].try_set_permits(&format!("n{number}"), 1).unwrap()));
    let work = &|client: &S, step: usize| {
        (0..200).map(|turn| turn * step % 200).for_each(|number| act(client, &format!("n{number}")));
    };
    // No step has a divisor in common with 200: so each thread comes to each semaphore.
    let steps = [1, 3, 7, 9, 11, 13, 17, 19, 21, 23, 27, 29];
    scope(|scope| {
        let start = |(step, client)| scope.spawn(move || work(client, step));
        let workers: Vec<_> = steps.into_iter().zip(clients.iter().cycle()).map(start).collect();
        workers.into_iter().for_each(finish);
    });
    for number in 0..200 {
        let name = format!("n{number}");
        eventually(LONG, &name, || clients[0].available_permits(&name).unwrap() == Some(1));
    }
}

/// Semaphores that were acquired once and never released kept their leases on the server for ever. Here they go with the next look, and the
/// counter stays.
#[test]
fn redisson_4100_leases_that_are_over_leave_no_key() {
    let server = Server::start();
    let [gone, other]: [LeasedSemaphore; 2] = [(); 2].map(|()| usual(&server));
    let names: Vec<_> = (0..50).map(|number| format!("n{number}")).collect();
    let lease = bounded().lease(ms(200));
    for name in &names {
        gone.try_set_permits(name, 1).unwrap();
        gone.acquire(name, 1, &lease).unwrap().expect("it is left").forget();
    }
    for name in &names {
        eventually(LONG, name, || other.available_permits(name).unwrap() == Some(1));
    }
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*:timeout"]), [""; 0]);
}

/// The same for a client that goes on: it gives them back by itself, and nobody has to look.
#[test]
fn redisson_4100_permits_that_are_dropped_after_their_lease_leave_no_key() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(1);
    let lease = bounded().lease(ms(200));
    let permits = semaphores.acquire("n", 1, &lease).unwrap().expect("it is left");
    run_out(permits.hold().unwrap());
    drop(permits);
    eventually(LONG, "the leases are gone", || server.ask::<i64>(&["EXISTS", LEASES]) == 0);
    assert_eq!(server.ask::<i64>(&["GET", "n"]), 1);
}

/// A waiter missed the message of a release, and slept until its next look or for ever. 200 hand-offs of one permit among six threads: if
/// one of them were missed, a thread would sleep for a minute.
#[test]
fn redisson_5762_no_release_is_missed() {
    no_release_is_missed::<Semaphore>();
    no_release_is_missed::<LeasedSemaphore>();
}

fn no_release_is_missed<S: Kind>() {
    let (server, one) = with_permits::<S>(1);
    let other: S = patient(&server);
    let began = Mark::now();
    scope(|scope| {
        let work = |client: &S| (0..100).for_each(|_| assert!(pass(client, 1)));
        let workers: Vec<_> =
            [&one, &other].repeat(3).into_iter().map(|client| scope.spawn(move || work(client))).collect();
        workers.into_iter().for_each(finish);
    });
    assert!(began.elapsed() <= LONG, "{:?}", began.elapsed());
    assert_eq!(left(&one), 1);
}

/// The same if a release serves several at once, and each wants another number.
#[test]
fn redisson_5762_a_release_serves_all_that_it_is_enough_for() {
    let (server, holder) = with_permits::<LeasedSemaphore>(6);
    let clients: [LeasedSemaphore; 3] = [(); 3].map(|()| patient(&server));
    let permits = take(&holder, 6);
    scope(|scope| {
        let wait = |(wants, client)| placed(scope, &server, move || take(client, wants).hold().is_some());
        let waiters: Vec<_> = [1, 2, 3].into_iter().zip(&clients).map(wait).collect();
        let released = Mark::now();
        permits.release().unwrap();
        waiters.into_iter().for_each(|waiter| assert_served(waiter, released));
    });
}
