//! Permits are set once, taken all or none, and given back in every way.

use super::{Kind, bounded, left, of, pass, take, usual, with_permits};
use crate::server::Server;
use crate::threads::{LONG, elsewhere, eventually};
use redlatch::{LeasedSemaphore, Semaphore};
use std::panic::{AssertUnwindSafe, catch_unwind};

of_both_kinds! {
    permits_are_set_once_and_who_comes_later_is_told
    permits_are_taken_all_or_none
    permits_say_what_they_are
    permits_go_back_by_drop
    permits_go_back_by_release
    permits_go_back_from_another_thread
    permits_go_back_in_a_panic
    permits_go_back_after_their_client_is_dropped
    a_semaphore_without_permits_gives_none_until_somebody_adds_them
    a_semaphore_that_nobody_set_gives_nothing
    semaphores_of_two_clients_share_their_permits
    names_with_braces_and_prefixes_are_semaphores_of_their_own
}

fn permits_are_set_once_and_who_comes_later_is_told<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(3);
    let other: S = usual(&server);
    assert!(!semaphores.try_set_permits("n", 5).unwrap() && !other.try_set_permits("n", 0).unwrap());
    assert_eq!((left(&semaphores), left(&other)), (3, 3));
    assert!(other.try_set_permits("m", 5).unwrap());
}

fn permits_are_taken_all_or_none<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(5);
    let one = take(&semaphores, 1);
    let three = semaphores.try_acquire("n", 3).unwrap().expect("four are left");
    assert!(semaphores.try_acquire("n", 2).unwrap().is_none());
    assert_eq!(left(&semaphores), 1);
    let last = semaphores.try_acquire("n", 1).unwrap().expect("one is left");
    assert!(semaphores.try_acquire("n", 1).unwrap().is_none());
    drop((one, three, last));
    assert_eq!(left(&semaphores), 5);
    drop(take(&semaphores, 5));
    assert!(semaphores.try_acquire("n", 6).unwrap().is_none());
}

fn permits_say_what_they_are<S: Kind>() {
    let server = Server::start();
    let semaphores: S = of(server.builder().key_prefix("app:"));
    semaphores.try_set_permits("n", 5).unwrap();
    let permits = take(&semaphores, 3);
    assert_eq!((permits.count(), permits.resource()), (3, "n"));
    assert!(format!("{permits:?}").contains("count: 3"), "{permits:?}");
    assert_eq!(server.ask::<i64>(&["GET", "app:n"]), 2);
}

fn permits_go_back_by_drop<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(3);
    let permits = take(&semaphores, 2);
    assert_eq!(left(&semaphores), 1);
    drop(permits);
    assert_eq!(left(&semaphores), 3);
}

fn permits_go_back_by_release<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(3);
    let permits = take(&semaphores, 2);
    permits.release().unwrap();
    assert_eq!(left(&semaphores), 3);
}

fn permits_go_back_from_another_thread<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(4);
    let (dropped, released) = (take(&semaphores, 1), elsewhere(|| take(&semaphores, 3)));
    elsewhere(|| drop(dropped));
    assert_eq!(left(&semaphores), 1);
    released.release().unwrap();
    assert_eq!(left(&semaphores), 4);
}

fn permits_go_back_in_a_panic<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(3);
    let panics = || {
        let _permits = take(&semaphores, 2);
        std::panic::resume_unwind(Box::new("on purpose"));
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(left(&semaphores), 3);
}

fn permits_go_back_after_their_client_is_dropped<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(3);
    let (other, permits): (S, _) = (usual(&server), [take(&semaphores, 1), take(&semaphores, 2)]);
    drop(semaphores);
    drop(permits);
    eventually(LONG, "they are back", || left(&other) == 3);
}

fn a_semaphore_without_permits_gives_none_until_somebody_adds_them<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(0);
    assert_eq!(left(&semaphores), 0);
    assert!(semaphores.try_acquire("n", 1).unwrap().is_none());
    assert!(!semaphores.try_set_permits("n", 1).unwrap());
    server.ask::<i64>(&["INCRBY", "n", "1"]);
    assert!(pass(&semaphores, 1));
}

fn a_semaphore_that_nobody_set_gives_nothing<S: Kind>() {
    let server = Server::start();
    let semaphores: S = usual(&server);
    assert_eq!(semaphores.available_permits("n").unwrap(), None);
    assert!(semaphores.try_acquire("n", 1).unwrap().is_none());
    assert_eq!(server.ask::<i64>(&["EXISTS", "n"]), 0);
}

fn semaphores_of_two_clients_share_their_permits<S: Kind>() {
    let (server, one) = with_permits::<S>(2);
    let (other, third): (S, S) = (usual(&server), usual(&server));
    let permits = [take(&one, 1), take(&other, 1)];
    assert!([&one, &other, &third].iter().all(|client| client.try_acquire("n", 1).unwrap().is_none()));
    drop(permits);
    assert_eq!(left(&third), 2);
}

fn names_with_braces_and_prefixes_are_semaphores_of_their_own<S: Kind>() {
    let server = Server::start();
    let semaphores: S = usual(&server);
    for name in ["n", "{n}", "a{n}b", "n}", "{", "ü n"] {
        assert!(semaphores.try_set_permits(name, 2).unwrap(), "{name}");
        let permits = semaphores.acquire(name, 2, &bounded()).unwrap().expect("they are left");
        assert!(semaphores.try_acquire(name, 1).unwrap().is_none(), "{name}");
        permits.release().unwrap();
        assert_eq!(semaphores.available_permits(name).unwrap(), Some(2), "{name}");
    }
}

/// Nothing but an add brings them back.
#[test]
fn forgotten_permits_stay_out_until_as_many_are_added() {
    let (server, semaphores) = with_permits::<Semaphore>(3);
    take(&semaphores, 2).forget();
    drop(semaphores);
    let other: Semaphore = usual(&server);
    assert_eq!(left(&other), 1);
    assert_eq!(other.add_permits("n", 2).unwrap(), 3);
}

#[test]
fn forgotten_permits_with_a_lease_stay_out_until_their_client_ends() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let other: LeasedSemaphore = usual(&server);
    take(&semaphores, 2).forget();
    assert_eq!((left(&other), semaphores.client().stats().holds), (1, 1));
    drop(semaphores);
    eventually(LONG, "they are back", || left(&other) == 3);
}

/// Redisson counts permits in 32 bits.
#[test]
fn as_many_permits_as_redisson_counts_are_taken_at_once() {
    let most = i32::MAX as u32;
    let (_server, semaphores) = with_permits::<Semaphore>(most);
    let permits = take(&semaphores, most);
    assert_eq!((permits.count(), left(&semaphores)), (most, 0));
    permits.release().unwrap();
    assert_eq!(left(&semaphores), i64::from(most));
}

#[test]
fn as_many_permits_as_redisson_counts_are_set_and_a_thousand_taken_at_once() {
    let most = i32::MAX as u32;
    let (server, semaphores) = with_permits::<LeasedSemaphore>(most);
    let permits = take(&semaphores, 1_000);
    assert_eq!((left(&semaphores), server.ask::<i64>(&["ZCARD", super::LEASES])), (i64::from(most) - 1_000, 1_000));
    permits.release().unwrap();
    assert_eq!(left(&semaphores), i64::from(most));
}
