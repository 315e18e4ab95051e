//! What semaphores and latches do on each deployment: eight cases of each kind.

use crate::harness::deployment::{Clustered, Deployment, Replicas, Sealed, Sentinel, Single, Tcp};
use crate::threads::{LONG, elsewhere, eventually, finish, ms, spawn_asleep};
use redlatch::{CancelToken, Client, CountDownLatch, Error, LeasedSemaphore, Permits, Semaphore, Terms};
use std::thread::scope;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn long() -> Terms<'static> {
    Terms::new().wait(LONG)
}

/// A client whose calls look only when they are told to.
fn client<D: Deployment>(deployment: &D) -> Client {
    deployment.builder().poll_cap(MINUTE).build().unwrap()
}

/// A semaphore of either kind.
trait Counts: Sync {
    fn on(client: &Client) -> Self;
    fn set(&self, permits: u32) -> bool;
    fn acquire(&self, permits: u32, terms: &Terms<'_>) -> redlatch::Result<Option<Permits>>;
    fn left(&self) -> Option<i64>;
    /// Makes them so many more.
    fn grow(&self, total: u32, more: u32);
    /// All of so many are in; then the semaphore is deleted, for others use the deployment.
    fn end(&self, total: i64);
}

impl Counts for LeasedSemaphore {
    fn on(client: &Client) -> Self {
        Self::new(client)
    }

    fn set(&self, permits: u32) -> bool {
        self.try_set_permits("n", permits).unwrap()
    }

    fn acquire(&self, permits: u32, terms: &Terms<'_>) -> redlatch::Result<Option<Permits>> {
        self.acquire("n", permits, terms)
    }

    fn left(&self) -> Option<i64> {
        self.available_permits("n").unwrap()
    }

    fn grow(&self, total: u32, more: u32) {
        self.set_permits("n", total + more).unwrap();
    }

    fn end(&self, total: i64) {
        assert_eq!(self.left(), Some(total));
        assert!(self.delete("n").unwrap());
    }
}

impl Counts for Semaphore {
    fn on(client: &Client) -> Self {
        Self::new(client)
    }

    fn set(&self, permits: u32) -> bool {
        self.try_set_permits("n", permits).unwrap()
    }

    fn acquire(&self, permits: u32, terms: &Terms<'_>) -> redlatch::Result<Option<Permits>> {
        self.acquire("n", permits, terms)
    }

    fn left(&self) -> Option<i64> {
        self.available_permits("n").unwrap()
    }

    fn grow(&self, _: u32, more: u32) {
        self.add_permits("n", more).unwrap();
    }

    fn end(&self, total: i64) {
        assert_eq!(self.left(), Some(total));
        assert!(self.delete("n").unwrap());
    }
}

fn acquired<C: Counts>(semaphore: &C, permits: u32) -> Permits {
    semaphore.acquire(permits, &long()).unwrap().unwrap()
}

fn they_are_set_once_and_go_out_and_come_back<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let semaphore = C::on(&client(&deployment));
    assert_eq!(semaphore.left(), None);
    assert!(semaphore.set(3) && !semaphore.set(4));
    let permits = acquired(&semaphore, 2);
    assert_eq!((permits.count(), semaphore.left()), (2, Some(1)));
    permits.release().unwrap();
    semaphore.end(3);
}

fn all_are_given_or_none<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let semaphore = C::on(&client(&deployment));
    semaphore.set(3);
    let permits = acquired(&semaphore, 2);
    assert!(semaphore.acquire(2, &Terms::new().wait(Duration::ZERO)).unwrap().is_none());
    assert!(semaphore.acquire(2, &Terms::new().wait(ms(50))).unwrap().is_none());
    assert_eq!(semaphore.left(), Some(1));
    drop(permits);
    semaphore.end(3);
}

fn a_release_wakes_another_client<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let (one, other) = (C::on(&client(&deployment)), C::on(&client(&deployment)));
    one.set(1);
    scope(|scope| {
        let permits = acquired(&one, 1);
        let waits = spawn_asleep(scope, || acquired(&other, 1));
        permits.release().unwrap();
        finish(waits).0.release().unwrap();
    });
    one.end(1);
}

fn a_request_for_many_is_served_beside_a_stream_of_ones<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let (one, other) = (C::on(&client(&deployment)), C::on(&client(&deployment)));
    one.set(3);
    scope(|scope| {
        let held = acquired(&one, 1);
        let many = spawn_asleep(scope, || acquired(&other, 3));
        let stream = scope.spawn(|| (0..5).for_each(|_| drop(acquired(&one, 1))));
        held.release().unwrap();
        finish(many).0.release().unwrap();
        finish(stream);
    });
    one.end(3);
}

fn more_permits_wake_who_waits<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let (one, other) = (C::on(&client(&deployment)), C::on(&client(&deployment)));
    one.set(1);
    scope(|scope| {
        let held = acquired(&one, 1);
        let waits = spawn_asleep(scope, || acquired(&other, 2));
        one.grow(1, 2);
        drop((finish(waits).0, held));
    });
    one.end(3);
}

fn a_wait_can_be_cancelled<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let (semaphore, token) = (C::on(&client(&deployment)), CancelToken::new());
    semaphore.set(1);
    scope(|scope| {
        let held = acquired(&semaphore, 1);
        let waits = spawn_asleep(scope, || semaphore.acquire(1, &Terms::new().cancelled_by(&token)));
        token.cancel();
        assert!(matches!(finish(waits).0, Err(Error::Cancelled { .. })));
        drop(held);
    });
    semaphore.end(1);
}

fn a_shutdown_ends_a_wait<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let closing = client(&deployment);
    let (one, other) = (C::on(&client(&deployment)), C::on(&closing));
    one.set(1);
    scope(|scope| {
        let held = acquired(&one, 1);
        let waits = spawn_asleep(scope, || other.acquire(1, &Terms::new()));
        closing.shutdown();
        assert!(matches!(finish(waits).0, Err(Error::Closed { .. })));
        drop(held);
    });
    one.end(1);
}

fn another_thread_gives_them_back<D: Deployment, C: Counts>() {
    let deployment = D::start();
    let semaphore = C::on(&client(&deployment));
    semaphore.set(2);
    let permits = acquired(&semaphore, 2);
    elsewhere(move || permits.release().unwrap());
    semaphore.end(2);
}

fn a_count_is_set_once<D: Deployment>() {
    let deployment = D::start();
    let latches = CountDownLatch::new(&client(&deployment));
    assert!(latches.try_set_count("n", 2, None).unwrap() && !latches.try_set_count("n", 3, None).unwrap());
    assert_eq!((latches.count("n").unwrap(), latches.count_down("n").unwrap()), (2, 1));
    assert!(latches.open("n").unwrap() && !latches.open("n").unwrap());
}

fn the_last_count_wakes_another_client<D: Deployment>() {
    let deployment = D::start();
    let [one, other] = [(); 2].map(|()| CountDownLatch::new(&client(&deployment)));
    one.try_set_count("n", 2, None).unwrap();
    scope(|scope| {
        let waits = spawn_asleep(scope, || other.wait("n", &long()).unwrap());
        assert_eq!([one.count_down("n").unwrap(), one.count_down("n").unwrap()], [1, 0]);
        assert!(finish(waits).0);
    });
}

fn an_open_latch_keeps_nobody<D: Deployment>() {
    let deployment = D::start();
    let latches = CountDownLatch::new(&client(&deployment));
    assert!(latches.wait("n", &Terms::new()).unwrap());
    assert_eq!((latches.count("n").unwrap(), latches.count_down("n").unwrap()), (0, 0));
}

fn a_wait_for_a_latch_ends_with_its_time<D: Deployment>() {
    let deployment = D::start();
    let latches = CountDownLatch::new(&client(&deployment));
    latches.try_set_count("n", 1, None).unwrap();
    assert!(!latches.wait("n", &Terms::new().wait(Duration::ZERO)).unwrap());
    assert!(!latches.wait("n", &Terms::new().wait(ms(50))).unwrap());
    assert_eq!(latches.count_down("n").unwrap(), 0);
}

fn a_latch_whose_time_is_over_is_no_open_latch<D: Deployment>() {
    let deployment = D::start();
    let latches = CountDownLatch::new(&client(&deployment));
    latches.try_set_count("n", 1, Some(ms(500))).unwrap();
    let waited = latches.wait("n", &long());
    assert!(matches!(waited, Err(Error::Expired { .. })), "{waited:?}");
    assert!(latches.try_set_count("n", 1, None).unwrap());
    assert!(!latches.wait("n", &Terms::new().wait(Duration::ZERO)).unwrap());
    latches.count_down("n").unwrap();
    eventually(LONG, "it is open", || latches.wait("n", &Terms::new().wait(Duration::ZERO)).unwrap());
}

fn a_wait_for_a_latch_can_be_cancelled<D: Deployment>() {
    let deployment = D::start();
    let (latches, token) = (CountDownLatch::new(&client(&deployment)), CancelToken::new());
    latches.try_set_count("n", 1, None).unwrap();
    scope(|scope| {
        let waits = spawn_asleep(scope, || latches.wait("n", &Terms::new().cancelled_by(&token)));
        token.cancel();
        assert!(matches!(finish(waits).0, Err(Error::Cancelled { .. })));
    });
    latches.open("n").unwrap();
}

fn a_shutdown_ends_a_wait_for_a_latch<D: Deployment>() {
    let deployment = D::start();
    let closing = client(&deployment);
    let (latches, other) = (CountDownLatch::new(&client(&deployment)), CountDownLatch::new(&closing));
    latches.try_set_count("n", 1, None).unwrap();
    scope(|scope| {
        let waits = spawn_asleep(scope, || other.wait("n", &Terms::new()));
        closing.shutdown();
        assert!(matches!(finish(waits).0, Err(Error::Closed { .. })));
    });
    latches.open("n").unwrap();
}

fn many_that_wait_are_told_at_once<D: Deployment>() {
    let deployment = D::start();
    let latches = CountDownLatch::new(&client(&deployment));
    latches.try_set_count("n", 1, None).unwrap();
    scope(|scope| {
        let waits = [(); 20].map(|()| spawn_asleep(scope, || latches.wait("n", &long()).unwrap()));
        latches.count_down("n").unwrap();
        assert!(waits.into_iter().all(|waits| finish(waits).0));
    });
}

macro_rules! everywhere {
    ($($at:ident: $At:ty;)*) => {
        $(mod $at {
            use super::*;
            everywhere! { @semaphore $At, leased LeasedSemaphore }
            everywhere! { @semaphore $At, counted Semaphore }
            everywhere! { @tests latch, <$At>,
                a_count_is_set_once
                the_last_count_wakes_another_client
                an_open_latch_keeps_nobody
                a_wait_for_a_latch_ends_with_its_time
                a_latch_whose_time_is_over_is_no_open_latch
                a_wait_for_a_latch_can_be_cancelled
                a_shutdown_ends_a_wait_for_a_latch
                many_that_wait_are_told_at_once
            }
        })*
    };
    (@semaphore $At:ty, $kind:ident $Kind:ty) => {
        everywhere! { @tests $kind, <$At, $Kind>,
            they_are_set_once_and_go_out_and_come_back
            all_are_given_or_none
            a_release_wakes_another_client
            a_request_for_many_is_served_beside_a_stream_of_ones
            more_permits_wake_who_waits
            a_wait_can_be_cancelled
            a_shutdown_ends_a_wait
            another_thread_gives_them_back
        }
    };
    (@tests $kind:ident, <$($of:ty),*>, $($case:ident)*) => { everywhere! { @each $kind, [$($of),*], $($case)* } };
    (@each $kind:ident, $of:tt, $($case:ident)*) => {
        mod $kind {
            use super::*;
            $(everywhere! { @test $of, $case })*
        }
    };
    (@test [$($of:ty),*], $case:ident) => {
        #[test]
        fn $case() {
            super::super::$case::<$($of),*>();
        }
    };
}

everywhere! {
    single: Single;
    tcp: Tcp;
    tls: Sealed;
    sentinel: Sentinel;
    replicas: Replicas;
    cluster: Clustered;
}
