//! Permits that are added, taken away and set while some are out.

use super::{bounded, left, take, usual, with_permits};
use crate::server::Server;
use redlatch::{LeasedSemaphore, Semaphore};

#[test]
fn permits_are_added_and_removed_while_some_are_out() {
    let (_server, semaphores) = with_permits::<Semaphore>(3);
    let permits = take(&semaphores, 2);
    assert_eq!(semaphores.add_permits("n", 4).unwrap(), 5);
    assert_eq!(semaphores.remove_permits("n", 2).unwrap(), 3);
    permits.release().unwrap();
    assert_eq!(left(&semaphores), 5);
}

#[test]
fn more_permits_are_removed_than_are_left_and_the_first_that_come_back_stay_away() {
    let (_server, semaphores) = with_permits::<Semaphore>(3);
    let (one, two) = (take(&semaphores, 1), take(&semaphores, 2));
    assert_eq!(semaphores.remove_permits("n", 2).unwrap(), -2);
    assert_eq!(left(&semaphores), -2);
    two.release().unwrap();
    assert!(left(&semaphores) == 0 && semaphores.try_acquire("n", 1).unwrap().is_none());
    one.release().unwrap();
    assert_eq!(left(&semaphores), 1);
}

#[test]
fn a_semaphore_that_nobody_set_gets_its_first_permits_by_an_add() {
    let server = Server::start();
    let semaphores: Semaphore = usual(&server);
    assert_eq!(semaphores.add_permits("n", 2).unwrap(), 2);
    assert!(!semaphores.try_set_permits("n", 5).unwrap());
    assert_eq!(left(&semaphores), 2);
}

#[test]
fn a_drain_takes_what_is_left_and_no_more() {
    let (_server, semaphores) = with_permits::<Semaphore>(5);
    let permits = take(&semaphores, 2);
    assert_eq!(semaphores.drain_permits("n").unwrap(), 3);
    assert_eq!((left(&semaphores), semaphores.drain_permits("n").unwrap()), (0, 0));
    permits.release().unwrap();
    assert_eq!(semaphores.drain_permits("n").unwrap(), 2);
}

#[test]
fn a_drain_of_nothing_or_of_less_takes_nothing() {
    let server = Server::start();
    let semaphores: Semaphore = usual(&server);
    assert_eq!(semaphores.drain_permits("n").unwrap(), 0);
    assert_eq!(semaphores.available_permits("n").unwrap(), None);
    assert_eq!(semaphores.remove_permits("n", 2).unwrap(), -2);
    assert_eq!((semaphores.drain_permits("n").unwrap(), left(&semaphores)), (0, -2));
}

#[test]
fn more_permits_are_set_while_some_are_out() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = take(&semaphores, 2);
    semaphores.set_permits("n", 10).unwrap();
    assert_eq!((left(&semaphores), semaphores.acquired_permits("n").unwrap()), (8, Some(2)));
    permits.release().unwrap();
    assert_eq!(left(&semaphores), 10);
}

/// Its holders keep them until they give them back.
#[test]
fn fewer_permits_are_set_than_are_out_and_the_first_that_come_back_stay_away() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(5);
    let (one, four) = (take(&semaphores, 1), take(&semaphores, 4));
    semaphores.set_permits("n", 2).unwrap();
    assert_eq!((left(&semaphores), semaphores.acquired_permits("n").unwrap()), (-3, Some(5)));
    assert!(one.hold().unwrap().is_valid() && semaphores.try_acquire("n", 1).unwrap().is_none());
    four.release().unwrap();
    assert!(left(&semaphores) == 1 && one.hold().unwrap().is_valid());
    one.release().unwrap();
    assert_eq!(left(&semaphores), 2);
}

#[test]
fn no_permits_are_set_and_all_come_back_in_vain() {
    let (_server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let permits = take(&semaphores, 3);
    semaphores.set_permits("n", 0).unwrap();
    permits.release().unwrap();
    assert!(left(&semaphores) == 0 && semaphores.try_acquire("n", 1).unwrap().is_none());
}

#[test]
fn setting_permits_anew_is_also_the_first_setting() {
    let server = Server::start();
    let semaphores: LeasedSemaphore = usual(&server);
    semaphores.set_permits("n", 2).unwrap();
    assert!(!semaphores.try_set_permits("n", 5).unwrap());
    assert_eq!(left(&semaphores), 2);
}

#[test]
fn how_many_are_out_and_when_the_next_comes_back_can_be_asked() {
    let (server, semaphores) = with_permits::<LeasedSemaphore>(3);
    let other: LeasedSemaphore = usual(&server);
    assert_eq!((other.acquired_permits("m").unwrap(), other.next_return("m").unwrap()), (None, None));
    assert_eq!((other.acquired_permits("n").unwrap(), other.next_return("n").unwrap()), (Some(0), None));
    let lease = crate::threads::LONG;
    let late = take(&semaphores, 1);
    let early = semaphores.acquire("n", 2, &bounded().lease(lease)).unwrap().expect("they are left");
    let next = other.next_return("n").unwrap().expect("some are out");
    assert!(next <= lease && next >= lease / 2, "{next:?}");
    assert_eq!(other.acquired_permits("n").unwrap(), Some(3));
    drop((late, early));
    assert_eq!((other.acquired_permits("n").unwrap(), other.next_return("n").unwrap()), (Some(0), None));
}
