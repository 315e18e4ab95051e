//! Calls that cannot be done: they say why, and change nothing.

use super::{Kind, LEASES, bounded, left, take, usual, with_permits};
use crate::server::Server;
use crate::threads::ms;
use redlatch::{Applied, Error, LeasedSemaphore, Permits, Result, Semaphore, Terms};

of_both_kinds! {
    zero_permits_and_too_many_are_refused
    a_name_of_another_type_is_refused_and_keeps_what_it_holds
    names_that_no_lock_may_have_are_refused
}

fn zero_permits_and_too_many_are_refused<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(3);
    let too_many = i32::MAX as u32 + 1;
    for permits in [0, too_many, u32::MAX] {
        assert_err!(semaphores.try_acquire("n", permits), Config);
        assert_err!(semaphores.acquire("n", permits, &bounded()), Config);
    }
    assert_err!(semaphores.try_set_permits("m", too_many), Config);
    assert_eq!((left(&semaphores), semaphores.available_permits("m").unwrap()), (3, None));
}

#[test]
fn zero_permits_and_too_many_are_not_added_or_removed() {
    let (_server, semaphores) = with_permits::<Semaphore>(3);
    for permits in [0, i32::MAX as u32 + 1] {
        assert_err!(semaphores.add_permits("n", permits), Config);
        assert_err!(semaphores.remove_permits("n", permits), Config);
    }
    assert_eq!(left(&semaphores), 3);
}

#[test]
fn more_leased_permits_than_a_script_can_take_are_refused() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3_000);
    assert_err!(semaphores.try_acquire("n", 1_001), Config);
    assert_err!(semaphores.set_permits("n", i32::MAX as u32 + 1), Config);
    assert_eq!(left(&semaphores), 3_000);
}

#[test]
fn permits_of_a_semaphore_have_no_lease() {
    let (_server, semaphores) = with_permits::<Semaphore>(3);
    assert_err!(semaphores.acquire("n", 1, &bounded().lease(ms(1_000))), Config);
    assert_err!(semaphores.acquire("n", 1, &bounded().renewed_lease(ms(1_000))), Config);
    let permits = take(&semaphores, 1);
    assert!(permits.hold().is_none());
}

#[test]
fn a_lease_that_is_too_short_is_refused() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    assert_err!(semaphores.acquire("n", 1, &bounded().lease(ms(9))), Config);
    assert_err!(semaphores.acquire("n", 1, &bounded().renewed_lease(ms(99))), Config);
    assert_eq!(left(&semaphores), 3);
}

fn names_that_no_lock_may_have_are_refused<S: Kind>() {
    let server = Server::start();
    let semaphores: S = usual(&server);
    for name in ["", &"x".repeat(2_000), "redlatch_places:{n}", "redlatch_op:{n}"] {
        assert_err!(semaphores.try_set_permits(name, 1), Config);
        assert_err!(semaphores.try_acquire(name, 1), Config);
        assert_err!(semaphores.available_permits(name), Config);
    }
}

/// What the key may hold instead of a number.
const OTHERS: [&[&str]; 4] =
    [&["SET", "n", "x"], &["SET", "n", "1.5"], &["HSET", "n", "field", "1"], &["ZADD", "n", "1", "member"]];

/// Runs `calls` on each of these. They must be refused, and change nothing.
fn assert_refused<S: Kind>(calls: impl Fn(&S) -> Vec<(&'static str, Result<()>)>) {
    for other in OTHERS {
        let server = Server::start();
        let semaphores: S = usual(&server);
        server.ask::<redis::Value>(other);
        let before: Vec<u8> = server.ask(&["DUMP", "n"]);
        for (call, result) in calls(&semaphores) {
            assert!(is_wrong_type(&result), "{call} of {other:?}: {result:?}");
        }
        assert_eq!(server.ask::<Vec<u8>>(&["DUMP", "n"]), before, "{other:?}");
        assert_eq!(server.ask::<i64>(&["DEL", "n"]), 1);
    }
}

fn is_wrong_type(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Refused { code, applied: Applied::No, .. }) if code == "WRONGTYPE")
}

fn none(permits: Option<Permits>) {
    assert!(permits.is_none());
}

fn a_name_of_another_type_is_refused_and_keeps_what_it_holds<S: Kind>() {
    assert_refused(|semaphores: &S| {
        vec![
            ("set", semaphores.try_set_permits("n", 3).map(drop)),
            ("try", semaphores.try_acquire("n", 1).map(none)),
            ("acquire", semaphores.acquire("n", 1, &bounded()).map(none)),
            ("available", semaphores.available_permits("n").map(drop)),
        ]
    });
}

#[test]
fn a_name_of_another_type_is_refused_by_add_remove_and_drain() {
    assert_refused(|semaphores: &Semaphore| {
        vec![
            ("add", semaphores.add_permits("n", 1).map(drop)),
            ("remove", semaphores.remove_permits("n", 1).map(drop)),
            ("drain", semaphores.drain_permits("n").map(drop)),
        ]
    });
}

#[test]
fn a_name_of_another_type_is_refused_by_set_force_and_look() {
    assert_refused(|semaphores: &LeasedSemaphore| {
        vec![
            ("set_permits", semaphores.set_permits("n", 1).map(drop)),
            ("force_release", semaphores.force_release("n").map(drop)),
            ("acquired", semaphores.acquired_permits("n").map(drop)),
            ("next_return", semaphores.next_return("n").map(drop)),
        ]
    });
}

#[test]
fn leases_of_another_type_are_refused_and_no_permit_is_taken() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    server.ask::<String>(&["SET", LEASES, "x"]);
    let refused = [
        semaphores.acquire("n", 1, &Terms::new()).map(none),
        semaphores.set_permits("n", 5),
        semaphores.force_release("n").map(drop),
        semaphores.available_permits("n").map(drop),
    ];
    assert!(refused.iter().all(is_wrong_type), "{refused:?}");
    let both: (String, String) = server.ask(&["MGET", "n", LEASES]);
    assert_eq!(both, ("3".to_owned(), "x".to_owned()));
    server.ask::<i64>(&["DEL", LEASES]);
}

/// The permits came back to a key that somebody used for something else: what it holds stays.
#[test]
fn permits_are_not_given_back_to_a_key_of_another_type() {
    let (server, semaphores) = with_permits::<Semaphore>(3);
    let (released, dropped) = (take(&semaphores, 1), take(&semaphores, 1));
    server.ask::<String>(&["SET", "n", "x"]);
    assert_err!(released.release(), Refused);
    drop(dropped);
    assert_eq!(server.ask::<String>(&["GET", "n"]), "x");
    server.ask::<i64>(&["DEL", "n"]);
}
