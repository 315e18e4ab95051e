//! Who waits is served in order: threads of a process one behind the other, and processes in order of arrival.

use super::{
    Kind, PLACES, bounded, eventually_nobody_waits, in_line, left, of, pass, patient, placed, places, take, usual,
    with_permits,
};
use crate::harness::queue::{MINUTE, Over, assert_served};
use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, answered, eventually, finish, ms};
use redlatch::{CancelToken, Client, LeasedSemaphore, Semaphore};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::Duration;

of_both_kinds! {
    threads_of_a_process_are_served_first_come_first_served
    processes_are_served_first_come_first_served
    who_wants_five_is_served_beside_threads_that_want_one
    who_wants_five_is_served_beside_clients_that_want_one
    a_newcomer_does_not_pass_one_that_waits_for_more
    a_try_does_not_pass_those_that_wait
    a_try_takes_what_is_left_beside_those_that_wait
    a_wait_that_timed_out_leaves_no_place
    a_wait_that_was_cancelled_leaves_no_place
    who_was_served_leaves_no_place
    a_place_that_counts_no_more_is_in_nobodys_way
    places_that_are_no_places_are_in_nobodys_way
    places_of_another_type_are_in_nobodys_way
    one_place_is_there_for_all_threads_of_a_process
    a_waiter_keeps_its_place_however_often_it_looks
}

/// Serves `pass` for each of these, which came in this order.
fn assert_in_order(served: Mutex<Vec<usize>>, count: usize) {
    assert_eq!(served.into_inner().unwrap(), (0..count).collect::<Vec<_>>());
}

fn threads_of_a_process_are_served_first_come_first_served<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(1);
    let (permits, served) = (take(&semaphores, 1), Mutex::new(Vec::new()));
    scope(|scope| {
        for number in 0..8 {
            let (semaphores, served) = (&semaphores, &served);
            in_line(scope, semaphores.client(), move || {
                let _permits = take(semaphores, 1);
                served.lock().unwrap().push(number);
            });
        }
        permits.release().unwrap();
    });
    assert_in_order(served, 8);
}

fn processes_are_served_first_come_first_served<S: Kind>() {
    let (server, holder) = with_permits::<S>(2);
    let clients: [S; 6] = [(); 6].map(|()| patient(&server));
    let (permits, served) = (take(&holder, 2), Mutex::new(Vec::new()));
    scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let served = &served;
            placed(scope, &server, move || {
                let _permits = take(client, 2);
                served.lock().unwrap().push(number);
            });
        }
        permits.release().unwrap();
    });
    assert_in_order(served, 6);
    eventually_nobody_waits(&server);
}

/// Takes one permit again and again, for a moment each. Returns how often.
fn stream<S: Kind>(semaphores: &S, over: &AtomicBool) -> usize {
    let turns = std::iter::from_fn(|| {
        let permit = semaphores.acquire("n", 1, &bounded()).unwrap().expect("its turn");
        sleep(ms(2));
        permit.release().unwrap();
        (!over.load(SeqCst)).then_some(())
    });
    turns.count()
}

/// Eight threads that want one permit of five, and then one call that wants all five, three times.
fn assert_five_are_served<S: Kind>(streaming: &S, big: &S) {
    let over = AtomicBool::new(false);
    scope(|scope| {
        let streams: Vec<_> = (0..8).map(|_| scope.spawn(|| stream(streaming, &over))).collect();
        let _over = Over(&over);
        for _ in 0..3 {
            eventually(LONG, "few are left", || left(big) <= 1);
            let asked = Mark::now();
            assert!(pass(big, 5));
            assert!(asked.elapsed() <= 3 * SOON, "{:?}", asked.elapsed());
        }
        over.store(true, SeqCst);
        streams.into_iter().for_each(|stream| assert!(finish(stream) > 0));
    });
}

fn who_wants_five_is_served_beside_threads_that_want_one<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(5);
    assert_five_are_served(&semaphores, &semaphores);
    assert_eq!(left(&semaphores), 5);
}

fn who_wants_five_is_served_beside_clients_that_want_one<S: Kind>() {
    let (server, streaming) = with_permits::<S>(5);
    let big: S = patient(&server);
    assert_five_are_served(&streaming, &big);
    assert_eq!(left(&big), 5);
    eventually_nobody_waits(&server);
}

fn a_newcomer_does_not_pass_one_that_waits_for_more<S: Kind>() {
    let (server, holder) = with_permits::<S>(3);
    let [first, second]: [S; 2] = [(); 2].map(|()| patient(&server));
    let (permits, served) = (take(&holder, 1), Mutex::new(Vec::new()));
    let served_as = |number: usize, semaphores: &S, permits| {
        let _permits = take(semaphores, permits);
        served.lock().unwrap().push(number);
    };
    scope(|scope| {
        placed(scope, &server, || served_as(0, &first, 3));
        placed(scope, &server, || served_as(1, &second, 1));
        // It looks once more, and finds two permits that are not for it.
        sleep(ms(1_600));
        assert_eq!(left(&holder), 2);
        permits.release().unwrap();
    });
    assert_in_order(served, 2);
}

fn a_try_does_not_pass_those_that_wait<S: Kind>() {
    let (server, holder) = with_permits::<S>(5);
    let [waits, other]: [S; 2] = [(); 2].map(|()| patient(&server));
    let permits = take(&holder, 3);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&waits, 4));
        // Two are left.
        assert!([&other, &waits, &holder].iter().all(|client| client.try_acquire("n", 1).unwrap().is_none()));
        assert_eq!(places(&server).len(), 1);
        let released = Mark::now();
        permits.release().unwrap();
        assert_served(waiter, released);
    });
    assert!(other.try_acquire("n", 5).unwrap().is_some());
}

/// Nobody else gets what is wanted by the one that waits, but there is more.
fn a_try_takes_what_is_left_beside_those_that_wait<S: Kind>() {
    let (server, holder) = with_permits::<S>(5);
    let permits = take(&holder, 2);
    let other: S = patient(&server);
    // A place of a process that wants two, and came long ago.
    let (seconds, _): (u64, u64) = server.ask(&["TIME"]);
    let counts = format!("{} {}", seconds * 1_000_000, (seconds + 600) * 1_000);
    server.ask::<i64>(&["HSET", PLACES, "00000000-0000-0000-0000-00000000000d:1:2", &counts]);
    assert!(other.try_acquire("n", 2).unwrap().is_none());
    let one = other.try_acquire("n", 1).unwrap().expect("one is left beside the two");
    assert!(other.try_acquire("n", 1).unwrap().is_none());
    server.ask::<i64>(&["DEL", PLACES]);
    drop((one, permits));
}

fn a_wait_that_timed_out_leaves_no_place<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let _permits = take(&holder, 1);
    scope(|scope| {
        let waiter =
            placed(scope, &server, || answered(|| other.acquire("n", 1, &bounded().wait(ms(300)))).0.is_none());
        assert!(finish(waiter).0);
    });
    eventually_nobody_waits(&server);
}

fn a_wait_that_was_cancelled_leaves_no_place<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, token): (S, _) = (patient(&server), CancelToken::new());
    let _permits = take(&holder, 1);
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let waiter = placed(scope, &server, || other.acquire("n", 1, &terms).map(drop));
        token.cancel();
        assert_err!(finish(waiter).0, Cancelled);
    });
    eventually_nobody_waits(&server);
}

fn who_was_served_leaves_no_place<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || {
            let _permits = take(&other, 1);
            server.ask::<i64>(&["EXISTS", PLACES])
        });
        permits.release().unwrap();
        assert_eq!(finish(waiter).0, 0);
    });
}

fn a_place_that_counts_no_more_is_in_nobodys_way<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(1);
    server.ask::<i64>(&["HSET", PLACES, "00000000-0000-0000-0000-00000000000d:1:1", "1 2"]);
    assert!(semaphores.try_acquire("n", 1).unwrap().is_some());
    assert_eq!(places(&server), [""; 0]);
}

/// Whoever may write can put anything there. It is advice, so permits are given and taken back without it.
fn places_that_are_no_places_are_in_nobodys_way<S: Kind>() {
    for words in [["a:b:c", "1 99999999999999"], ["a:b:-1", "-1 99999999999999"], ["x", "y"], ["", ""]] {
        let (server, semaphores) = with_permits::<S>(3);
        let put = || drop(server.ask::<redis::Value>(&["HSET", PLACES, words[0], words[1]]));
        put();
        let permits = take(&semaphores, 1);
        put();
        permits.release().unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(left(&semaphores), 3, "{words:?}");
        server.ask::<i64>(&["DEL", PLACES]);
    }
}

fn places_of_another_type_are_in_nobodys_way<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(3);
    server.ask::<String>(&["SET", PLACES, "x"]);
    take(&semaphores, 2).release().unwrap();
    assert_eq!(left(&semaphores), 3);
    server.ask::<i64>(&["DEL", PLACES]);
}

fn one_place_is_there_for_all_threads_of_a_process<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(1);
    let permits = take(&semaphores, 1);
    scope(|scope| {
        let first = placed(scope, &server, || pass(&semaphores, 1));
        let others: Vec<_> = (0..4).map(|_| in_line(scope, semaphores.client(), || pass(&semaphores, 1))).collect();
        assert_eq!(places(&server).len(), 1);
        permits.release().unwrap();
        assert!(finish(first).0 && others.into_iter().all(|other| finish(other).0));
    });
    eventually_nobody_waits(&server);
}

fn a_waiter_keeps_its_place_however_often_it_looks<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = of(server.builder().poll_cap(ms(50)));
    let permits = take(&holder, 1);
    let place = || server.ask::<Vec<(String, String)>>(&["HGETALL", PLACES]);
    let arrival = |(place, counts): &(String, String)| format!("{place} {}", counts.split(' ').next().unwrap());
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        let first = place();
        eventually(LONG, "it looked again", || place().last().is_some_and(|now| *now != first[0]));
        assert!(place().iter().map(arrival).eq(first.iter().map(arrival)), "{first:?}");
        permits.release().unwrap();
        assert!(finish(waiter).0);
    });
}

const DEADS_CAP: Duration = Duration::from_millis(500);

fn with_short_cap<S: Kind>(url: &str) -> S {
    of(Client::builder(url).poll_cap(DEADS_CAP).watchdog_timeout(MINUTE))
}

/// Its process is killed while it waits for all permits, before one that waits for one.
fn assert_a_dead_waiter_costs_three_poll_caps<S: Kind>(server: &Server, peer: crate::process::Peer) {
    let holder: S = patient(server);
    let waits: S = with_short_cap(&server.url());
    hear(server);
    eventually(LONG, "the other process has a place", || places(server).len() == 1);
    scope(|scope| {
        let waiter = placed(scope, server, || pass(&waits, 1));
        assert!(!waiter.is_finished() && holder.try_acquire("n", 1).unwrap().is_none());
        let killed = Mark::now();
        drop(peer);
        let (got, when) = finish(waiter);
        assert!(got && when - killed <= 3 * DEADS_CAP + SOON, "{:?}", when - killed);
    });
    eventually_nobody_waits(server);
}

fn wait_for_all<S: Kind>(url: &str) {
    let semaphores: S = with_short_cap(url);
    let _ = semaphores.acquire("n", 3, &bounded());
}

#[test]
fn a_process_that_dies_while_it_waits_delays_others_by_three_poll_caps() {
    let waits = |url: &str| {
        tell(url, "it waits");
        wait_for_all::<Semaphore>(url);
    };
    with_peer(waits, |start| {
        let (server, holder) = with_permits::<Semaphore>(3);
        let _permits = take(&holder, 1);
        assert_a_dead_waiter_costs_three_poll_caps::<Semaphore>(&server, start(&server));
    });
}

#[test]
fn a_process_that_dies_while_it_waits_for_leased_permits_delays_others_by_three_poll_caps() {
    let waits = |url: &str| {
        tell(url, "it waits");
        wait_for_all::<LeasedSemaphore>(url);
    };
    with_peer(waits, |start| {
        let (server, holder) = with_permits::<LeasedSemaphore>(3);
        let _permits = take(&holder, 1);
        assert_a_dead_waiter_costs_three_poll_caps::<LeasedSemaphore>(&server, start(&server));
    });
}

/// Four clients with two threads each, of different wants: all are served, and never more are out than there are.
#[test]
fn no_more_permits_are_out_than_there_are() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let clients: [LeasedSemaphore; 4] = [(); 4].map(|()| usual(&server));
    let (out, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let turn = &|client: &LeasedSemaphore, wants: usize| {
        let permits = take(client, wants as u32);
        most.fetch_max(out.fetch_add(wants, SeqCst) + wants, SeqCst);
        out.fetch_sub(wants, SeqCst);
        permits.release().unwrap();
    };
    scope(|scope| {
        for (client, wants) in clients.iter().zip([1, 2, 3, 5]) {
            (0..2).for_each(|_| drop(scope.spawn(move || (0..40).for_each(|_| turn(client, wants)))));
        }
    });
    assert!(most.load(SeqCst) <= 5 && left(&semaphores) == 5, "{most:?}");
    eventually_nobody_waits(&server);
}
