//! What wakes those that wait. Nothing but a message can: their poll cap is a minute.

use super::{Kind, bounded, in_line, pass, patient, placed, take, usual, with_permits};
use crate::harness::queue::assert_served;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{CancelToken, LeasedSemaphore, Semaphore};
use std::thread::scope;

of_both_kinds! {
    a_release_wakes_a_waiter
    the_drop_of_permits_wakes_a_waiter
    one_release_wakes_as_many_as_it_serves
    a_release_that_is_too_small_wakes_nobody_and_the_next_one_does
    setting_the_permits_wakes_who_came_before
    who_leaves_wakes_the_one_behind
    who_leaves_wakes_the_one_behind_in_its_process
    a_message_that_was_missed_in_an_outage_is_made_up_for
    a_message_that_is_no_number_makes_a_waiter_look
}

fn a_release_wakes_a_waiter<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        let released = Mark::now();
        permits.release().unwrap();
        assert_served(waiter, released);
    });
}

fn the_drop_of_permits_wakes_a_waiter<S: Kind>() {
    let (server, holder) = with_permits::<S>(5);
    let other: S = patient(&server);
    let permits = take(&holder, 3);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 5));
        let dropped = Mark::now();
        drop(permits);
        assert_served(waiter, dropped);
    });
}

/// Each keeps what it gets until all are served, so none of them wakes another.
fn one_release_wakes_as_many_as_it_serves<S: Kind>() {
    let (server, holder) = with_permits::<S>(4);
    let others: [S; 4] = [(); 4].map(|()| patient(&server));
    let permits = take(&holder, 4);
    scope(|scope| {
        let waiters: Vec<_> = others.iter().map(|other| placed(scope, &server, || take(other, 1))).collect();
        let released = Mark::now();
        permits.release().unwrap();
        let taken: Vec<_> = waiters.into_iter().map(finish).collect();
        assert!(taken.iter().all(|(_, when)| *when - released <= SOON));
    });
}

fn a_release_that_is_too_small_wakes_nobody_and_the_next_one_does<S: Kind>() {
    let (server, holder) = with_permits::<S>(3);
    let other: S = patient(&server);
    let permits = [(); 3].map(|()| take(&holder, 1));
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 3));
        let [first, second, third] = permits;
        first.release().unwrap();
        second.release().unwrap();
        assert!(!waiter.is_finished() && server.ask::<i64>(&["GET", "n"]) == 2);
        let released = Mark::now();
        third.release().unwrap();
        assert_served(waiter, released);
    });
}

fn setting_the_permits_wakes_who_came_before<S: Kind>() {
    let server = Server::start();
    let [one, other]: [S; 2] = [(); 2].map(|()| patient(&server));
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 2));
        let set = Mark::now();
        assert!(one.try_set_permits("n", 2).unwrap());
        assert_served(waiter, set);
    });
}

/// The first wants more than there will be. The one behind it wants what is left.
fn who_leaves_wakes_the_one_behind<S: Kind>() {
    let (server, holder) = with_permits::<S>(3);
    let [first, second]: [S; 2] = [(); 2].map(|()| patient(&server));
    let (_permits, token) = (take(&holder, 1), CancelToken::new());
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let leaves = placed(scope, &server, || first.acquire("n", 3, &terms).map(drop));
        let waiter = placed(scope, &server, || pass(&second, 2));
        // An ask of one that is not the first comes each 1.5 s.
        assert!(!waiter.is_finished());
        let cancelled = Mark::now();
        token.cancel();
        assert_err!(finish(leaves).0, Cancelled);
        assert_served(waiter, cancelled);
    });
}

fn who_leaves_wakes_the_one_behind_in_its_process<S: Kind>() {
    let (server, holder) = with_permits::<S>(3);
    let other: S = patient(&server);
    let (_permits, token) = (take(&holder, 1), CancelToken::new());
    let terms = bounded().cancelled_by(&token);
    scope(|scope| {
        let leaves = placed(scope, &server, || other.acquire("n", 3, &terms).map(drop));
        let waiter = in_line(scope, other.client(), || pass(&other, 2));
        let cancelled = Mark::now();
        token.cancel();
        assert_err!(finish(leaves).0, Cancelled);
        assert_served(waiter, cancelled);
    });
}

/// The connection of its messages ends before the release, and comes back after it.
fn a_message_that_was_missed_in_an_outage_is_made_up_for<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let proxy = Proxy::new(server.socket());
    let other: S = super::patient_at(&proxy.url());
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        proxy.set(|_, _, _| vec![crate::proxy::Step::Cut]);
        let cut: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert!(cut >= 1);
        permits.release().unwrap();
        proxy.clear();
        assert_served(waiter, Mark::now());
    });
}

/// Nobody told of this release: whoever may publish can wake a waiter.
fn a_message_that_is_no_number_makes_a_waiter_look<S: Kind>() {
    let (server, holder) = with_permits::<S>(1);
    let other: S = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        server.ask::<i64>(&["INCR", "n"]);
        let told = Mark::now();
        server.ask::<i64>(&["PUBLISH", "redisson_sc:{n}", "x"]);
        assert_served(waiter, told);
        server.ask::<i64>(&["DECR", "n"]);
    });
    permits.release().unwrap();
}

#[test]
fn added_permits_wake_a_waiter() {
    let (server, adder) = with_permits::<Semaphore>(1);
    let other: Semaphore = patient(&server);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 3));
        let added = Mark::now();
        adder.add_permits("n", 2).unwrap();
        assert_served(waiter, added);
    });
}

#[test]
fn added_permits_wake_who_waits_for_a_semaphore_that_nobody_set() {
    let server = Server::start();
    let [adder, other]: [Semaphore; 2] = [(); 2].map(|()| patient(&server));
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        let added = Mark::now();
        adder.add_permits("n", 1).unwrap();
        assert_served(waiter, added);
    });
}

#[test]
fn permits_that_are_set_anew_wake_a_waiter() {
    let (server, setter) = with_permits::<LeasedSemaphore>(1);
    let other: LeasedSemaphore = patient(&server);
    let permits = take(&setter, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 2));
        let set = Mark::now();
        setter.set_permits("n", 3).unwrap();
        assert_served(waiter, set);
    });
    permits.release().unwrap();
}

#[test]
fn a_force_release_wakes_a_waiter() {
    let (server, holder) = with_permits::<LeasedSemaphore>(2);
    let [forces, other]: [LeasedSemaphore; 2] = [(); 2].map(|()| patient(&server));
    let permits = take(&holder, 2);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 2));
        let forced = Mark::now();
        assert!(forces.force_release("n").unwrap());
        assert_served(waiter, forced);
    });
    assert_err!(permits.release(), Lost);
}

/// Any call that finds a lease over returns its permits, and tells.
#[test]
fn a_look_that_finds_a_lease_over_wakes_a_waiter() {
    let (server, holder) = with_permits::<LeasedSemaphore>(1);
    let other: LeasedSemaphore = patient(&server);
    let permits = take(&holder, 1);
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 1));
        let ids: Vec<String> = server.ask(&["ZRANGE", super::LEASES, "0", "-1"]);
        server.ask::<i64>(&["ZADD", super::LEASES, "1", &ids[0]]);
        let looked = Mark::now();
        usual::<LeasedSemaphore>(&server).available_permits("n").unwrap();
        assert_served(waiter, looked);
    });
    assert_err!(permits.release(), Lost);
}

/// Redisson does not always say how many are left, so a waiter that needs more looks, too: for many messages now and then. Until its
/// subscription is confirmed it looks by itself, so one of some rounds must be so.
#[test]
fn a_waiter_that_needs_more_looks_seldom() {
    let (server, holder) = with_permits::<Semaphore>(2);
    let other: Semaphore = patient(&server);
    let permits = take(&holder, 2);
    let tell = || assert!(server.ask::<i64>(&["PUBLISH", "redisson_sc:{n}", "2"]) <= 1);
    let looks = || {
        let commands = server.commands_during(|| {
            (0..20).for_each(|_| tell());
            std::thread::sleep(ms(60));
        });
        commands.iter().filter(|command| command.contains("evalsha")).count()
    };
    scope(|scope| {
        let waiter = placed(scope, &server, || pass(&other, 3));
        let seldom = (0..10).any(|_| looks() <= 5);
        drop(permits);
        holder.add_permits("n", 1).unwrap();
        assert!(finish(waiter).0 && seldom);
    });
    eventually(LONG, "it left", || super::places(&server).is_empty());
}
