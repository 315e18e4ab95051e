//! Leases of permits: renewed, extended, and over.

use super::{LEASES, bounded, left, of, patient, placed, take, usual, with_permits};
use crate::harness::queue::{MINUTE, assert_served};
use crate::server::Server;
use crate::threads::{LONG, Mark, OUTLIVED, SOON, WATCHED, eventually, finish, lost_within, ms, run_out};
use redlatch::{HoldState, LeasedSemaphore, LossCause, Permits, Terms};
use std::thread::{scope, sleep};
use std::time::Duration;

/// One permit with a lease that nobody renews.
fn take_for(semaphores: &LeasedSemaphore, lease: Duration) -> Permits {
    semaphores.acquire("n", 1, &bounded().lease(lease)).unwrap().expect("one is left")
}

#[test]
fn the_watchdog_renews_permits_beyond_their_lease() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let watched: LeasedSemaphore = of(server.builder().watchdog_timeout(WATCHED));
    let permits = [take(&watched, 1), take(&watched, 2)];
    sleep(OUTLIVED);
    assert!(permits.iter().all(|permits| permits.hold().unwrap().is_valid()), "{permits:?}");
    assert!(left(&semaphores) == 0 && watched.client().stats().renewals >= 2);
    permits.into_iter().for_each(|permits| permits.release().unwrap());
    assert_eq!(left(&semaphores), 3);
}

#[test]
fn a_lease_of_their_own_is_renewed_if_the_terms_say_so() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let terms = bounded().renewed_lease(WATCHED);
    let permits = semaphores.acquire("n", 2, &terms).unwrap().expect("they are left");
    assert!(semaphores.next_return("n").unwrap().expect("two are out") <= WATCHED);
    sleep(OUTLIVED);
    assert!(permits.hold().unwrap().is_valid() && left(&semaphores) == 1);
    permits.release().unwrap();
    assert_eq!(left(&semaphores), 3);
}

#[test]
fn a_lease_that_is_not_renewed_ends_and_its_permits_come_back_once() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let lease = bounded().lease(ms(300));
    let permits = semaphores.acquire("n", 2, &lease).unwrap().expect("they are left");
    let hold = permits.hold().unwrap().clone();
    run_out(&hold);
    assert!(!hold.is_valid() && hold.state() == HoldState::Lost);
    eventually(LONG, "they are back", || left(&semaphores) == 3);
    let other = take(&semaphores, 3);
    assert_err!(permits.release(), Lost);
    assert_eq!(left(&semaphores), 0);
    other.release().unwrap();
    assert_eq!((left(&semaphores), semaphores.acquired_permits("n").unwrap()), (3, Some(0)));
}

/// Nobody else asked meanwhile, so the release finds its own permits. Its holder was told that they are lost all the same.
#[test]
fn a_release_after_the_end_of_a_lease_is_lost_and_gives_back_once() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = take_for(&semaphores, ms(200));
    run_out(permits.hold().unwrap());
    assert_err!(permits.release(), Lost);
    eventually(LONG, "it is back", || left(&semaphores) == 3);
    assert_eq!(server.ask::<i64>(&["EXISTS", LEASES]), 0);
}

#[test]
fn the_end_of_the_nearest_lease_serves_a_waiter() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(2);
    let (other, lease) = (patient::<LeasedSemaphore>(&server), ms(500));
    let late = take(&semaphores, 1);
    let (taken, early) = (Mark::now(), take_for(&semaphores, lease));
    scope(|scope| {
        let waiter = placed(scope, &server, || super::pass(&other, 1));
        let (got, when) = finish(waiter);
        assert!(got && when - taken >= lease && when - taken <= lease + SOON, "{:?}", when - taken);
    });
    assert!(late.hold().unwrap().is_valid());
    assert_err!(early.release(), Lost);
}

/// It wants two: the end of the first lease is not enough, and it sleeps until that of the second.
#[test]
fn a_waiter_for_two_is_served_at_the_end_of_the_second_lease() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(2);
    let (other, lease) = (patient::<LeasedSemaphore>(&server), ms(900));
    let first = take_for(&semaphores, ms(400));
    let (taken, second) = (Mark::now(), take_for(&semaphores, lease));
    scope(|scope| {
        let (got, when) = finish(placed(scope, &server, || super::pass(&other, 2)));
        assert!(got && when - taken >= lease && when - taken <= lease + SOON, "{:?}", when - taken);
    });
    drop((first, second));
}

/// A script takes a thousand at a time, until none is left.
#[test]
fn thousands_of_leases_that_end_at_once_come_back_by_one_call() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(2_500);
    let lease = bounded().lease(MINUTE);
    let permits =
        [1_000, 1_000, 500].map(|wants| semaphores.acquire("n", wants, &lease).unwrap().expect("they are left"));
    let ids: Vec<String> = server.ask(&["ZRANGE", LEASES, "0", "-1"]);
    let over = ids.iter().flat_map(|id| ["1", id.as_str()]);
    server.ask::<i64>(&["ZADD", LEASES].into_iter().chain(over).collect::<Vec<_>>());
    assert_eq!(left(&semaphores), 2_500);
    permits.into_iter().for_each(|permits| assert_err!(permits.release(), Lost));
    assert_eq!(left(&semaphores), 2_500);
}

/// The holder's own clock says that its lease has an hour to go.
#[test]
fn leases_end_by_the_clock_of_the_server() {
    let server = Server::start_with_data_and_clock();
    let [holder, other] = [(); 2].map(|()| patient::<LeasedSemaphore>(&server));
    holder.try_set_permits("n", 1).unwrap();
    let permits = take_for(&holder, 60 * MINUTE);
    if !server.set_clock(2 * 3_600_000) {
        return println!("not shown: there is no C compiler, so the server's clock cannot be set");
    }
    let waits = bounded().lease(MINUTE);
    let taken = other.acquire("n", 1, &waits).unwrap().expect("it is over by the server's clock");
    assert_err!(permits.release(), Lost);
    assert!(other.try_acquire("n", 1).unwrap().is_none());
    taken.release().unwrap();
    assert_eq!(left(&other), 1);
}

#[test]
fn a_client_that_is_shut_down_gives_its_permits_back() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let other: LeasedSemaphore = usual(&server);
    let permits = [take(&semaphores, 1), take(&semaphores, 2), take_for(&semaphores, MINUTE)];
    semaphores.client().shutdown();
    assert_eq!((left(&other), server.ask::<i64>(&["EXISTS", LEASES])), (5, 0));
    assert!(permits.iter().all(|permits| !permits.hold().unwrap().is_valid()), "{permits:?}");
    assert_err!(semaphores.try_acquire("n", 1), Closed);
    drop(permits);
    assert_eq!(left(&other), 5);
}

#[test]
fn permits_keep_their_client_and_with_the_last_of_them_it_gives_all_back() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let other: LeasedSemaphore = usual(&server);
    let (kept, forgotten) = (take(&semaphores, 2), take(&semaphores, 1));
    forgotten.forget();
    drop(semaphores);
    std::thread::sleep(2 * WATCHED);
    assert!(kept.hold().unwrap().is_valid() && left(&other) == 2);
    drop(kept);
    eventually(LONG, "they are back", || left(&other) == 5);
}

#[test]
fn a_hold_is_extended_and_never_shortened() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = semaphores.acquire("n", 2, &bounded().lease(LONG)).unwrap().expect("they are left");
    let next = || semaphores.next_return("n").unwrap().expect("two are out");
    permits.hold().unwrap().extend(2 * MINUTE).unwrap();
    assert!(next() > MINUTE && permits.hold().unwrap().remaining() > MINUTE);
    permits.hold().unwrap().extend(ms(20)).unwrap();
    assert!(next() > MINUTE && permits.hold().unwrap().remaining() > MINUTE);
    permits.release().unwrap();
}

#[test]
fn permits_that_are_gone_are_not_extended() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = take(&semaphores, 2);
    let other: LeasedSemaphore = usual(&server);
    assert!(other.force_release("n").unwrap());
    assert_err!(permits.hold().unwrap().extend(MINUTE), Lost);
    assert_eq!(lost_within(SOON, permits.hold().unwrap()), LossCause::Removed);
    assert_err!(permits.release(), Lost);
    assert_eq!((left(&other), other.acquired_permits("n").unwrap()), (3, Some(0)));
}

#[test]
fn permits_are_renewed_for_max_hold_and_then_lost() {
    let (server, other) = with_permits::<LeasedSemaphore>(3);
    let semaphores: LeasedSemaphore = of(server.builder().watchdog_timeout(ms(600)).max_hold(WATCHED));
    let permits = semaphores.acquire("n", 2, &Terms::new().wait(LONG)).unwrap().expect("they are left");
    assert_eq!(lost_within(WATCHED + SOON, permits.hold().unwrap()), LossCause::Overheld);
    eventually(LONG, "they are back", || left(&other) == 3);
    drop(permits);
    assert_eq!(left(&other), 3);
}

/// A thread may have several permits, each with a hold of its own.
#[test]
fn a_thread_has_a_hold_for_each_acquire() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = [take(&semaphores, 1), take(&semaphores, 1)];
    let [one, two] = permits.each_ref().map(|permits| permits.hold().unwrap().owner().to_owned());
    assert!(one != two && semaphores.client().stats().holds == 2);
    permits.into_iter().for_each(|permits| permits.release().unwrap());
    assert_eq!((left(&semaphores), semaphores.client().stats().holds), (3, 0));
}

#[test]
fn a_waiter_is_served_when_the_client_that_holds_is_shut_down() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(1);
    let other: LeasedSemaphore = patient(&server);
    let permits = take(&semaphores, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || super::pass(&other, 1));
        let ended = Mark::now();
        semaphores.client().shutdown();
        assert_served(waiter, ended);
    });
    drop(permits);
}
