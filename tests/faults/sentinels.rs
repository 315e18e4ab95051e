//! Rows 70 to 77: sentinels that are away, that know less than others, that come later, and that refuse.

use crate::names::{self, move_name};
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, finish, ms, spawn_asleep, timed};
use crate::{LEASE, assert_refused, locks_of, patient};
use harness::oracle::Oracle;
use harness::sentinel::{Group, NAME, PATIENCE, Shape, shared};
use redlatch::{Client, HoldState, RedLock, RedLockExt, ReentrantLock};

/// A client that is new has a lock without waiting for a time-out.
#[track_caller]
fn assert_found_at_once(group: &Group) {
    let (taken, took) = timed(|| patient(group.builder()).guard("new").map(drop));
    assert!(taken.is_ok() && took <= SOON, "{taken:?} after {took:?}");
}

/// One is frozen while the others replace the master; in the end one is left that answers.
#[test]
fn fault_70_sentinels_that_are_frozen_or_dead_cost_nobody_time() {
    let mut group = Group::start();
    let locks = patient(group.builder());
    drop(locks.guard("n").unwrap());
    group.sentinels[2].freeze();
    assert_found_at_once(&group);
    group.replicated(0);
    group.nodes[0].kill();
    let new = group.replaced(0);
    // The one that leads the failover names the new master before the other has heard of it, which may be the one that is left.
    eventually(PATIENCE, "the one that stays knows", || group.named_by(0) == Some(new));
    let (taken, took) = timed(|| locks.lock("n"));
    assert!(taken.is_ok() && took <= SOON && group.nodes[new].pttl("n") > 0, "{taken:?} after {took:?}");
    group.sentinels[1].kill();
    assert_found_at_once(&group);
    locks.unlock("n").unwrap();
    group.sentinels[2].thaw();
}

/// They name the old master by its old epoch, and it still says that it is the master.
#[test]
fn fault_71_stale_sentinels_lead_nobody_to_the_old_master() {
    let group = Group::of(Shape::SMALL);
    let stale = [(); 2].map(|()| Oracle::naming(group.nodes[0].port(), 0));
    let [one, two] = [&stale[0], &stale[1]].map(Oracle::address);
    let url = group.url().replace("://", &format!("://{one},{two},"));
    let early = patient(Client::builder(&url));
    let guard = early.guard("kept").unwrap();
    group.replicated(0);
    group.fail_over(0);
    let new = &group.nodes[group.replaced(0)];
    eventually(SOON, "the new master is followed", || group.nodes[0].clients() == 0);
    let late = patient(Client::builder(&url));
    for locks in [&early, &late] {
        let _guard = locks.guard("n").unwrap();
        assert!(new.pttl("n") > 0 && group.nodes[0].pttl("n") == -2);
    }
    assert!(group.nodes[0].says_master() && group.nodes[0].takes_writes(), "it was not told yet");
    // Both are asked at the same times.
    stale[0].heard();
    assert!(early.verify(&guard).unwrap() && group.nodes[0].clients() == 0);
}

/// Sentinels name ports that are closed to this client, as behind NAT; the map says where they lead from here.
#[test]
fn fault_72_addresses_of_another_network_are_mapped_also_after_a_failover() {
    let (first, second) = (Server::start_on_tcp(), Server::start_on_tcp());
    let oracle = Oracle::naming(1, 0);
    let builder = || Client::builder(&format!("redis+sentinel://{}/{NAME}", oracle.address()));
    let inside = locks_of(builder().response_timeout(SOON));
    let (error, took) = timed(|| inside.try_lock("n").unwrap_err());
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(took <= 2 * SOON, "{took:?}");
    let outside = [first.port(), second.port()];
    let map = move |host: &str, port: u16| (host.to_owned(), outside[usize::from(port) - 1]);
    let locks = locks_of(builder().map_address(map));
    drop(locks.guard("n").unwrap());
    oracle.name(2, 1);
    eventually(LONG, "the new master is followed", || {
        let _guard = locks.guard("n").unwrap();
        second.pttl("n") > 0
    });
    // What was taken here just before the move was released there.
    first.clear();
}

#[test]
fn fault_73_calls_go_on_at_the_known_master_when_all_sentinels_are_gone() {
    let mut group = Group::of(Shape::STEADY);
    let [locks, waiter] = [(); 2].map(|()| locks_of(group.builder().watchdog_timeout(LEASE)));
    [&locks, &waiter].iter().for_each(|locks| drop(locks.guard("n").unwrap()));
    group.sentinels.iter_mut().for_each(|sentinel| sentinel.kill());
    let late = locks_of(group.builder().response_timeout(ms(300)));
    std::thread::scope(|scope| {
        let guard = locks.guard("n").unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard("n").map(drop));
        let (error, took) = timed(|| late.try_lock("n").unwrap_err());
        assert!(error.is_retryable() && error.to_string().contains("none of 3 sentinels names the master"), "{error}");
        assert!(took <= ms(300) + SOON, "{took:?}");
        eventually(LONG, "it is renewed", || locks.client().stats().renewals >= 2);
        assert!(guard.state() == HoldState::Held && locks.client().stats().failed_renewals == 0);
        guard.unlock().unwrap();
        finish(waiting).0.unwrap();
    });
    group.sentinels.iter_mut().for_each(|sentinel| sentinel.restart());
    eventually(LONG, "they are asked again", || late.guard("n").is_ok());
}

/// What a new client is told, which tries no longer than it takes to ask.
fn refused_at_once(url: &str, code: &str) -> String {
    let (result, took) = timed(|| ReentrantLock::connect(url).unwrap().lock("n"));
    assert!(took <= SOON, "{took:?}");
    assert_refused(result, code).to_string()
}

#[test]
fn fault_74_a_master_of_no_such_name_and_what_is_no_sentinel_are_told_at_once() {
    let group = shared();
    let text = refused_at_once(&group.url().replace(NAME, "nobody"), "NOMASTER");
    assert!(text.contains("No such master"), "{text}");
    let text = refused_at_once(&format!("redis+sentinel://{}/{NAME}", group.nodes[0].address()), "ERR");
    assert!(text.contains("it is not a sentinel"), "{text}");
}

/// The node that is promoted and the sentinel that says so are none of those that were there when the client came.
#[test]
fn fault_75_sentinels_and_nodes_that_are_added_later_are_learned() {
    let mut group = Group::of(Shape::SMALL);
    let locks = patient(group.builder());
    let guard = locks.guard("n").unwrap();
    let node = group.add_replica(0);
    let sentinel = group.add_sentinel();
    eventually(PATIENCE, "it is listened to", || group.sentinels[sentinel].listeners() == 1);
    group.nodes[1].kill();
    group.sentinels[0].kill();
    group.replicated(0);
    group.fail_over(sentinel);
    assert_eq!(group.replaced(0), node);
    eventually(SOON, "it is followed", || group.nodes[0].clients() == 0 && group.nodes[node].clients() > 0);
    assert!(locks.verify(&guard).unwrap());
    guard.unlock().unwrap();
    assert_eq!(group.nodes[node].pttl("n"), -2);
}

/// By the name that its user gave, and not by the address that it had.
#[test]
fn fault_76_a_sentinel_whose_name_gets_another_address_is_found_there() {
    let mut group = Group::of(Shape::SMALL);
    let builder = || Client::builder(&group.url().replace("127.0.0.1", names::NAME));
    let locks = patient(builder());
    let guard = locks.guard("n").unwrap();
    eventually(LONG, "it listens", || group.sentinels[0].listeners() == 1);
    move_name(c"127.0.0.2");
    group.sentinels[0].move_to("127.0.0.2");
    eventually(PATIENCE, "it listens there", || group.sentinels[0].listeners() == 1);
    group.replicated(0);
    group.fail_over(0);
    let new = group.replaced(0);
    eventually(SOON, "the new master is followed", || group.nodes[0].clients() == 0);
    assert!(locks.verify(&guard).unwrap() && group.nodes[new].pttl("n") > 0);
    guard.unlock().unwrap();
}

/// Its clients go on, and new ones are told which setting to look at.
#[test]
fn fault_77_sentinels_that_want_a_password_say_so_and_trouble_nobody_who_is_in() {
    let group = Group::of(Shape::SMALL);
    let locks = patient(group.builder());
    drop(locks.guard("n").unwrap());
    let words = ["ACL", "SETUSER", "default", "resetpass", ">secret"];
    if group.sentinels[0].try_ask::<String>(&words).is_err() {
        println!("not shown: sentinels have no users");
        return;
    }
    let text = refused_at_once(&group.url(), "NOAUTH");
    assert!(text.contains("sentinel_password"), "{text}");
    refused_at_once(&format!("{}?sentinel_password=other", group.url()), "WRONGPASS");
    drop(patient(Client::builder(&format!("{}?sentinel_password=secret", group.url()))).guard("n").unwrap());
    drop(locks.guard("n").unwrap());
}
