//! Waits that end without permits, and what a client counts.

use super::{Kind, bounded, eventually_nobody_waits, in_line, left, patient, placed, take, usual, with_permits};
use crate::harness::queue::assert_served;
use crate::proxy::{Flow, Proxy, pass};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, eventually, finish, ms, timed};
use redlatch::{CancelToken, Client, Error, LeasedSemaphore, Terms};
use std::thread::scope;
use std::time::Duration;

of_both_kinds! {
    a_wait_ends_in_time_without_permits
    a_wait_ends_in_time_behind_others_of_its_process
    a_wait_of_no_time_is_a_try
    a_cancel_ends_a_wait_at_once
    a_cancel_ends_a_wait_behind_others_of_its_process
    a_token_that_is_cancelled_ends_a_call_before_it_asks
    a_shutdown_ends_all_waits_at_once
    a_client_that_is_shut_down_gives_nothing
    waits_and_their_ends_are_counted
    an_outage_that_is_short_costs_a_wait_nothing
    an_outage_that_is_long_ends_a_wait_for_ever_with_an_error
    a_semaphore_that_is_deleted_serves_its_waiters_when_it_is_set_again
}

fn a_wait_ends_in_time_without_permits<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, wait): (S, _) = (patient(&server), ms(200));
    let _permits = take(&holder, 1);
    let (got, took) = answered(|| other.acquire("n", 1, &bounded().wait(wait)));
    assert!(got.is_none() && took >= wait && took <= wait + LATE, "{took:?}");
    eventually_nobody_waits(&server);
}

fn a_wait_ends_in_time_behind_others_of_its_process<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, wait): (S, _) = (patient(&server), ms(200));
    let permits = take(&holder, 1);
    scope(|scope| {
        let first = placed(scope, &server, || super::pass(&other, 1));
        let (got, took) = answered(|| other.acquire("n", 1, &bounded().wait(wait)));
        assert!(got.is_none() && took >= wait && took <= wait + LATE, "{took:?}");
        permits.release().unwrap();
        assert!(finish(first).0);
    });
}

fn a_wait_of_no_time_is_a_try<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let _permits = take(&holder, 1);
    assert!(other.acquire("n", 1, &bounded().wait(Duration::ZERO)).unwrap().is_none());
    assert!(answered(|| other.acquire("n", 1, &bounded().wait(ms(1)))).0.is_none());
    eventually_nobody_waits(&server);
    eventually(LONG, "it listens no more", || server.subscribers("redisson_sc:{n}") == 0);
}

fn a_cancel_ends_a_wait_at_once<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, token): (S, _) = (patient(&server), CancelToken::new());
    let permits = take(&holder, 1);
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let waiter = placed(scope, &server, || other.acquire("n", 1, &terms).map(drop));
        let cancelled = Mark::now();
        token.cancel();
        let (result, when) = finish(waiter);
        assert_err!(result, Cancelled);
        assert!(when - cancelled <= SOON, "{:?}", when - cancelled);
    });
    permits.release().unwrap();
    assert_eq!(left(&other), 1);
}

fn a_cancel_ends_a_wait_behind_others_of_its_process<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, token): (S, _) = (patient(&server), CancelToken::new());
    let permits = take(&holder, 1);
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let first = placed(scope, &server, || super::pass(&other, 1));
        let second = in_line(scope, other.client(), || other.acquire("n", 1, &terms).map(drop));
        let cancelled = Mark::now();
        token.cancel();
        let (result, when) = finish(second);
        assert_err!(result, Cancelled);
        assert!(when - cancelled <= SOON, "{:?}", when - cancelled);
        permits.release().unwrap();
        assert!(finish(first).0);
    });
}

fn a_token_that_is_cancelled_ends_a_call_before_it_asks<S: Kind>() {
    let (_server, semaphores) = with_permits::<S>(1);
    let token = CancelToken::new();
    token.cancel();
    let terms = bounded().cancelled_by(&token);
    assert_err!(semaphores.acquire("n", 1, &terms), Cancelled);
    assert_err!(semaphores.acquire("n", 1, &terms.wait(Duration::ZERO)), Cancelled);
    assert_eq!(left(&semaphores), 1);
}

fn a_shutdown_ends_all_waits_at_once<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let wait = || other.acquire("n", 1, &bounded()).map(drop);
        let waiters = [placed(scope, &server, wait), in_line(scope, other.client(), wait)];
        let ended = Mark::now();
        other.client().shutdown();
        for (result, when) in waiters.map(finish) {
            assert_err!(result, Closed);
            assert!(when - ended <= SOON, "{:?}", when - ended);
        }
    });
    eventually_nobody_waits(&server);
    permits.release().unwrap();
    assert_eq!(left(&holder), 1);
}

/// Permits without a lease go back also then: nothing else would give them back.
fn a_client_that_is_shut_down_gives_nothing<S: Kind>() {
    let (server, semaphores) = with_permits::<S>(3);
    let (other, permits): (S, _) = (usual(&server), take(&semaphores, 2));
    semaphores.client().shutdown();
    assert_err!(semaphores.try_acquire("n", 1), Closed);
    assert_err!(semaphores.acquire("n", 1, &bounded()), Closed);
    assert_err!(semaphores.try_set_permits("m", 1), Closed);
    assert_err!(semaphores.available_permits("n"), Closed);
    drop(permits);
    assert_eq!(left(&other), 3);
}

fn waits_and_their_ends_are_counted<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let (other, token): (S, _) = (super::of(server.builder().poll_cap(ms(500))), CancelToken::new());
    let permits = take(&holder, 1);
    let counts = |client: &Client| {
        let stats = client.stats();
        [stats.acquires, stats.contended, stats.timed_out, stats.cancelled, stats.waiters as u64]
    };
    assert_eq!((counts(holder.client()), counts(other.client())), ([1, 0, 0, 0, 0], [0; 5]));
    assert!(other.try_acquire("n", 1).unwrap().is_none());
    assert_eq!(counts(other.client()), [0, 1, 0, 0, 0]);
    let mut before = [0; 5];
    let in_vain = || {
        before = counts(other.client());
        other.acquire("n", 1, &bounded().wait(ms(100)))
    };
    assert!(answered(in_vain).0.is_none());
    assert_eq!(counts(other.client()), [0, before[1] + 1, before[2] + 1, 0, 0]);
    let before = counts(other.client());
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let cancelled = in_line(scope, other.client(), || other.acquire("n", 1, &terms).map(drop));
        assert_eq!(counts(other.client())[4], 1);
        token.cancel();
        assert_err!(finish(cancelled).0, Cancelled);
        let waiter = in_line(scope, other.client(), || super::pass(&other, 1));
        permits.release().unwrap();
        assert!(finish(waiter).0);
    });
    assert_eq!(counts(other.client()), [1, before[1] + 2, before[2], 1, 0]);
}

fn an_outage_that_is_short_costs_a_wait_nothing<S: Kind>() {
    let mut server = Server::start_with_data();
    let [holder, other]: [S; 2] = [(); 2].map(|()| patient(&server));
    holder.try_set_permits("n", 1).unwrap();
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || super::pass(&other, 1));
        server.kill();
        server.restart();
        permits.release().unwrap();
        assert_served(waiter, Mark::now());
    });
    eventually_nobody_waits(&server);
    assert_eq!(left(&other), 1);
}

/// Cancels when it is dropped, also by a panic. So a thread that waits for ever ends.
struct Ends<'a>(&'a CancelToken);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A wait with a time of its own would bear it until then.
fn an_outage_that_is_long_ends_a_wait_for_ever_with_an_error<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).response_timeout(ms(100)).outage_budget(ms(400)).poll_cap(ms(50));
    let other: S = super::of(builder);
    let (permits, token) = (take(&holder, 1), CancelToken::new());
    let terms = Terms::new().cancelled_by(&token);
    scope(|scope| {
        let _ends = Ends(&token);
        let waiter = placed(scope, &server, || other.acquire("n", 1, &terms).map(drop));
        proxy.set(|_, flow, data| if flow == Flow::Reply { Vec::new() } else { pass(data) });
        let (_, took) = timed(|| eventually(LONG, "it ends", || waiter.is_finished()));
        let result = finish(waiter).0;
        let is_outage = matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }));
        assert!(is_outage && took <= ms(400) + 2 * SOON, "{result:?} {took:?}");
    });
    proxy.clear();
    permits.release().unwrap();
    eventually(LONG, "nothing is lost", || left(&holder) == 1);
    drop(other);
    assert_eq!(left(&holder), 1);
}

fn a_semaphore_that_is_deleted_serves_its_waiters_when_it_is_set_again<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || super::pass(&other, 1));
        server.ask::<i64>(&["DEL", "n", super::LEASES]);
        assert_eq!(other.available_permits("n").unwrap(), None);
        let set = Mark::now();
        assert!(holder.try_set_permits("n", 1).unwrap());
        assert_served(waiter, set);
    });
    permits.forget();
    holder.client().shutdown();
}

/// The client forgets a hold that timed out with its call.
#[test]
fn a_wait_in_vain_leaves_no_hold() {
    let (server, holder) = with_permits::<LeasedSemaphore>(1);
    let other: LeasedSemaphore = patient(&server);
    let permits = take(&holder, 1);
    assert!(answered(|| other.acquire("n", 1, &bounded().wait(ms(50)))).0.is_none());
    assert_eq!((other.client().stats().holds, holder.client().stats().holds), (0, 1));
    permits.release().unwrap();
    assert_eq!(holder.client().stats().holds, 0);
}
