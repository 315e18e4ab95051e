//! Rows 84 to 87: replicas that are to confirm what is granted, and do not; and what a lock asks of a server.

use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, WATCHED, eventually, lost_within, ms, patiently, refusal, timed};
use crate::{LEASE, MINUTE, assert_refused, locks_of};
use harness::sentinel::{Group, shared};
use redlatch::{Client, Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// How long replicas are waited for.
const WAIT: Duration = Duration::from_millis(300);

/// A master and two replicas, which confirm what it has.
fn start() -> Group {
    let group = Group::without_sentinels();
    group.confirmed(0);
    group
}

/// A client of a master that wants both replicas to confirm, and gives up soon.
fn locks_of_both(group: &Group, lease: Duration) -> ReentrantLock {
    let builder = group.by_address(0).watchdog_timeout(lease).outage_budget(ms(50));
    locks_of(builder.sync_replicas(2, WAIT))
}

/// That nothing is granted because replicas do not confirm it.
#[track_caller]
fn assert_not_confirmed<T>(call: impl FnMut() -> redlatch::Result<T>) -> Error {
    let refused = refusal(call);
    assert!(matches!(&refused, Error::Refused { code, .. } if code == "NOREPLICAS"), "{refused:?}");
    refused
}

#[test]
fn fault_84_without_one_of_its_replicas_nothing_is_granted_and_nothing_renewed() {
    let mut group = start();
    let locks = locks_of_both(&group, LEASE);
    let guard = patiently(|| locks.guard("n"));
    assert_eq!(guard.confirmed_by(), Some((2, 2)));
    group.nodes[2].kill();
    // On a busy machine the other one may be late, too.
    eventually(LEASE, "one of two confirms it", || {
        let refused = assert_not_confirmed(|| {
            eventually(LONG, "what the attempt before took is given back", || group.nodes[0].pttl("m") == -2);
            locks.try_lock("m")
        });
        refused.to_string().contains("1 of 2 replicas confirmed it in time")
    });
    eventually(SOON, "it is given back", || group.nodes[0].pttl("m") == -2);
    eventually(LEASE, "the hold is in doubt", || guard.state() == HoldState::Suspect);
    assert_eq!((lost_within(LEASE + LATE, &guard), guard.state()), (LossCause::Expired, HoldState::Lost));
    group.nodes[2].restart();
    assert!(locks.try_lock_for("m", LONG).unwrap());
    assert_eq!(locks.hold("m").unwrap().confirmed_by(), Some((2, 2)));
    locks.unlock("m").unwrap();
    assert_err!(guard.unlock(), Lost);
}

/// The level that was refused is not counted here, and at the server once at most, however often it is asked for: one unlock
/// frees the lock.
#[test]
fn fault_84_repeats_that_are_not_confirmed_grow_no_count() {
    let mut group = start();
    let locks = locks_of(group.by_address(0).watchdog_timeout(MINUTE).outage_budget(ms(50)).sync_replicas(2, ms(50)));
    assert!(locks.try_lock_for("n", LONG).unwrap());
    group.nodes[2].kill();
    for _ in 0..40 {
        // In so short a time the other replica of a busy machine does not always confirm it either.
        assert_not_confirmed(|| locks.lock("n"));
    }
    assert_eq!((locks.hold("n").unwrap().count(), group.nodes[0].counts("n")), (1, vec![2]));
    locks.unlock("n").unwrap();
    assert_eq!(group.nodes[0].pttl("n"), -2);
}

/// Whoever has to wait for a lock anyway does not wait for replicas too.
#[test]
fn fault_84_a_busy_lock_is_answered_at_once() {
    let mut group = start();
    let holder = locks_of(group.by_address(0));
    let locks = locks_of(group.by_address(0).response_timeout(2 * SOON).sync_replicas(2, SOON));
    let guard = holder.guard("n").unwrap();
    assert!(!locks.try_lock("n").unwrap());
    // Behind the reply to its WAIT, which is still to come: without the replica it would come late.
    locks.client().ping(LONG).unwrap();
    group.nodes[2].kill();
    let (got, took) = timed(|| locks.try_lock("n").unwrap());
    assert!(!got && took <= SOON, "{took:?}");
    guard.unlock().unwrap();
}

/// As behind some proxies: it is found when a connection is made, not with the first lock that nobody confirms.
#[test]
fn fault_85_a_server_without_wait_is_told_when_connecting() {
    let server = Server::start_without(&["WAIT"]);
    let locks = locks_of(server.builder().sync_replicas(1, WAIT));
    let error = locks.client().ping(SOON).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("wait"), "{error}");
    for _ in 0..3 {
        let (result, took) = timed(|| locks.lock("n"));
        assert_refused(result, "ERR");
        assert!(took <= SOON, "{took:?}");
    }
    assert_eq!(server.pttl("n"), -2);
    drop(server.locks().guard("n").unwrap());
}

/// Renewed every 3 s, and after a failure again within a second.
const LONG_LEASE: Duration = Duration::from_secs(9);

/// A renewal fails, its first repetition, which is made at once, and the next, long before another round is due.
#[track_caller]
fn assert_fails_soon_again(locks: &ReentrantLock) {
    let failed = || locks.client().stats().failed_renewals;
    eventually(LONG_LEASE, "a renewal fails", || failed() >= 1);
    let ((), took) = timed(|| eventually(LONG, "it is repeated", || failed() >= 3));
    assert!(took <= 2 * SOON, "{took:?}");
}

#[test]
fn fault_86_renewals_that_fail_are_repeated_soon() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(LONG_LEASE));
    let guard = locks.guard("n").unwrap();
    proxy.set(|_, _, _| vec![crate::proxy::Step::Cut]);
    assert_fails_soon_again(&locks);
    proxy.clear();
    let ((), took) = timed(|| eventually(LONG, "it is renewed", || locks.client().stats().renewals > 0));
    assert!(took <= 2 * SOON && guard.state() == HoldState::Held, "{took:?}");
    guard.unlock().unwrap();
}

#[test]
fn fault_86_renewals_that_are_not_confirmed_are_repeated_soon() {
    let group = start();
    let locks = locks_of_both(&group, LONG_LEASE);
    let guard = patiently(|| locks.guard("n"));
    group.nodes[2].freeze();
    assert_fails_soon_again(&locks);
    group.nodes[2].thaw();
    let ((), took) = timed(|| eventually(LONG, "it is confirmed", || guard.state() == HoldState::Held));
    assert!(took <= 2 * SOON, "{took:?}");
    guard.unlock().unwrap();
}

/// What a master was told meanwhile, by all who talk to it.
fn calls_during<const N: usize>(group: &Group, commands: [&str; N], act: impl FnOnce()) -> [u64; N] {
    let before = commands.map(|command| group.nodes[0].calls(&[command]));
    act();
    let mut calls = commands.map(|command| group.nodes[0].calls(&[command]));
    calls.iter_mut().zip(before).for_each(|(calls, before)| *calls -= before);
    calls
}

/// Who is the master, how many replicas it has and which process it is are asked for each connection, not for each lock.
#[test]
fn fault_87_a_lock_asks_its_server_for_nothing_but_itself() {
    const PAIRS: u64 = 100;
    let group = shared();
    let locks =
        locks_of(group.builder().key_prefix("counted:").strict(true).sync_replicas(2, WAIT).watchdog_timeout(WATCHED));
    assert!(locks.try_lock_for("n", LONG).unwrap());
    locks.unlock("n").unwrap();
    let commands = ["evalsha", "wait", "info", "role", "config|get", "ping"];
    let calls = calls_during(group, commands, || {
        for _ in 0..PAIRS {
            locks.lock("n").unwrap();
            locks.unlock("n").unwrap();
        }
    });
    let _: i64 = group.nodes[0].ask(&["DEL", "counted:redlatch:epoch"]);
    let [scripts, waits, others @ ..] = calls;
    // And a renewal now and then, of a pair that a busy machine holds up.
    let few = PAIRS / 10;
    assert!(scripts <= 2 * PAIRS + few && waits <= PAIRS + few, "{scripts} scripts, {waits} waits");
    assert!(others.iter().all(|calls| *calls < PAIRS / 2), "{others:?}");
}
