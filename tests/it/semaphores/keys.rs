//! The keys that semaphores leave on the server, and a server that has no memory for more.

use super::{Kind, LEASES, bounded, left, of, pass, patient, placed, take, usual, with_permits};
use crate::server::Server;
use crate::threads::{LONG, OUTLIVED, WATCHED, eventually, finish};
use redlatch::{LeasedSemaphore, Semaphore};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

of_both_kinds! {
    each_key_but_the_counter_and_the_leases_has_an_end
    only_the_counter_is_left_when_all_permits_are_in
    results_of_operations_are_as_many_as_threads
    permits_go_back_to_a_server_without_memory
}

fn keys(server: &Server, pattern: &str) -> Vec<String> {
    server.ask(&["KEYS", pattern])
}

/// Of each key that must have an end: the most that it may have left, 2 budgets of 10 s and a second, or 3 poll caps of a minute.
fn assert_keys_end(server: &Server) {
    let others = keys(server, "*").into_iter().filter(|key| key != "n" && key != LEASES);
    let ends: Vec<_> = others.map(|key| (server.pttl(&key), key)).collect();
    assert!(ends.iter().all(|(left, _)| *left != -1 && *left <= 180_000), "{ends:?}");
}

fn each_key_but_the_counter_and_the_leases_has_an_end<S: Kind>() {
    let (server, holder) = with_permits::<S>(2);
    let other: S = patient(&server);
    let permits = [take(&holder, 1), take(&holder, 1)];
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 2));
        assert_keys_end(&server);
        assert!(server.pttl("n") == -1 && keys(&server, "redlatch_op:{n}*").len() == 1);
        permits.into_iter().for_each(|permits| permits.release().unwrap());
        assert!(finish(waiter).0);
    });
    assert_keys_end(&server);
    assert!(keys(&server, "*").iter().all(|key| key == "n" || key.starts_with("redlatch_op:{n}")));
}

/// Results of operations end after twelve outage budgets and a second.
fn only_the_counter_is_left_when_all_permits_are_in<S: Kind>() {
    let server = Server::start();
    let semaphores: S = of(server.builder().outage_budget(Duration::from_millis(500)).response_timeout(WATCHED / 4));
    assert!(semaphores.try_set_permits("n", 3).unwrap());
    take(&semaphores, 2).release().unwrap();
    drop(take(&semaphores, 3));
    let ends: Vec<_> = keys(&server, "redlatch_op:*").iter().map(|key| server.pttl(key)).collect();
    assert!(ends.iter().all(|left| (0..=7_000).contains(left)), "{ends:?}");
    eventually(LONG, "the counter alone is left", || keys(&server, "*") == ["n"]);
    assert_eq!(left(&semaphores), 3);
}

fn results_of_operations_are_as_many_as_threads<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(3);
    let ends = Instant::now() + Duration::from_secs(2);
    scope(|scope| {
        let turns = || std::iter::repeat_with(|| pass(&semaphores, 1)).take_while(|_| Instant::now() < ends).count();
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(turns)).collect();
        let turns: usize = workers.into_iter().map(finish).sum();
        assert!(turns >= 100, "{turns}");
    });
    let results = keys(&server, "redlatch_op:{n}*");
    assert!((1..=4).contains(&results.len()), "{results:?}");
    assert_eq!(left(&semaphores), 3);
}

/// Redis and Valkey refuse commands that need memory, and no others.
fn fill(server: &Server) {
    server.ask::<String>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
}

fn permits_go_back_to_a_server_without_memory<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(5);
    let other: S = usual(&server);
    let (released, dropped) = (take(&semaphores, 1), take(&semaphores, 2));
    let others = take(&other, 1);
    fill(&server);
    released.release().unwrap();
    drop(dropped);
    others.release().unwrap();
    assert_eq!(left(&semaphores), 5);
    assert_err!(semaphores.try_acquire("n", 1), Refused);
    assert_eq!(left(&semaphores), 5);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(pass(&semaphores, 5));
}

#[test]
fn permits_are_added_to_a_server_without_memory() {
    let (server, semaphores) = with_permits::<Semaphore>(1);
    fill(&server);
    assert_eq!(semaphores.add_permits("n", 2).unwrap(), 3);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(left(&semaphores), 3);
}

#[test]
fn permits_are_renewed_on_a_server_without_memory() {
    let (server, other) = with_permits::<LeasedSemaphore>(3);
    let semaphores: LeasedSemaphore = of(server.builder().watchdog_timeout(WATCHED));
    let permits = take(&semaphores, 2);
    fill(&server);
    sleep(OUTLIVED);
    assert!(permits.hold().unwrap().is_valid() && left(&other) == 1);
    permits.release().unwrap();
    assert_eq!((left(&other), other.acquired_permits("n").unwrap()), (3, Some(0)));
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[test]
fn leases_that_are_over_go_back_to_a_server_without_memory() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let lease = bounded().lease(crate::threads::ms(300));
    let permits = semaphores.acquire("n", 2, &lease).unwrap().expect("they are left");
    fill(&server);
    crate::threads::run_out(permits.hold().unwrap());
    eventually(LONG, "they are back", || left(&semaphores) == 3);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_err!(permits.release(), Lost);
    assert_eq!(left(&semaphores), 3);
}
