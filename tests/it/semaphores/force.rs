//! Permits that are taken back from their holders.

use super::{LEASES, left, of, take, usual, with_permits};
use crate::threads::{LONG, SOON, WATCHED, eventually, lost_within};
use redlatch::{HoldState, LeasedSemaphore, LossCause};

#[test]
fn a_holder_in_this_process_is_told_at_once() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let (one, two) = (take(&semaphores, 1), take(&semaphores, 2));
    assert!(semaphores.force_release("n").unwrap());
    for permits in [&one, &two] {
        let hold = permits.hold().unwrap();
        assert!(!hold.is_valid() && hold.state() == HoldState::Lost, "{hold:?}");
        assert_eq!(lost_within(SOON, hold), LossCause::Removed);
    }
    assert_eq!(left(&semaphores), 3);
    assert_err!(one.release(), Lost);
    drop(two);
    assert_eq!(left(&semaphores), 3);
    assert!(!semaphores.force_release("n").unwrap());
}

#[test]
fn a_holder_of_another_client_is_told_at_its_next_renewal() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let other: LeasedSemaphore = of(server.builder().watchdog_timeout(WATCHED));
    let permits = take(&other, 2);
    assert!(semaphores.force_release("n").unwrap());
    assert_eq!(left(&semaphores), 3);
    assert_eq!(lost_within(WATCHED, permits.hold().unwrap()), LossCause::Removed);
    assert_err!(permits.release(), Lost);
    assert_eq!(left(&semaphores), 3);
}

#[test]
fn what_was_given_after_a_force_release_stays_with_its_holder() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let other: LeasedSemaphore = usual(&server);
    let lost = take(&other, 3);
    assert!(semaphores.force_release("n").unwrap());
    let permits = take(&semaphores, 3);
    assert_err!(lost.release(), Lost);
    assert_eq!((left(&semaphores), semaphores.acquired_permits("n").unwrap()), (0, Some(3)));
    permits.release().unwrap();
}

#[test]
fn a_semaphore_that_nobody_set_has_nothing_to_take_back() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    assert!(!semaphores.force_release("m").unwrap());
    assert_eq!(semaphores.available_permits("m").unwrap(), None);
}

/// Somebody else took one permit of two. The hold is lost, and what it still had goes back.
#[test]
fn a_hold_that_lost_one_of_its_permits_is_lost_and_gives_the_others_back() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let other: LeasedSemaphore = of(server.builder().watchdog_timeout(WATCHED));
    let permits = take(&other, 3);
    let ids: Vec<String> = server.ask(&["ZRANGE", LEASES, "0", "-1"]);
    assert_eq!(server.ask::<i64>(&["ZREM", LEASES, &ids[1]]), 1);
    server.ask::<i64>(&["INCR", "n"]);
    assert_eq!(lost_within(WATCHED, permits.hold().unwrap()), LossCause::Removed);
    assert_err!(permits.release(), Lost);
    eventually(LONG, "the others are back", || left(&semaphores) == 5);
}

/// Its client does not know yet that one of them is gone.
#[test]
fn a_release_that_finds_one_of_its_permits_gone_says_so_and_gives_the_others_back() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let permits = take(&semaphores, 3);
    let ids: Vec<String> = server.ask(&["ZRANGE", LEASES, "0", "-1"]);
    assert_eq!(server.ask::<i64>(&["ZREM", LEASES, &ids[1]]), 1);
    server.ask::<i64>(&["INCR", "n"]);
    assert_err!(permits.release(), Lost);
    assert_eq!((left(&semaphores), semaphores.acquired_permits("n").unwrap()), (5, Some(0)));
}
