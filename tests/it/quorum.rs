//! `QuorumLock`: what only a lock on several masters has. What it shares with the other kinds is in `conformance`.

use crate::process::alone;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, elsewhere, eventually, finish, ms, of_redlatch, spawn_asleep, timed};
use redlatch::{ClientBuilder, Error, HoldState, LossCause, QuorumLock, RedLock, RedLockExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A node time-out that is never waited out by a test that passes: whatever is as fast as this did not wait for it.
const SLOW: Duration = Duration::from_secs(2);

/// A lease that is not renewed and does not end while a test runs.
const MINUTE: Duration = Duration::from_secs(60);

/// A watchdog's lease of which a busy machine misses no renewal.
const UNHURRIED: Duration = Duration::from_secs(3);

/// When a hold that was never renewed would be over for sure.
const OUTLIVED: Duration = Duration::from_millis(3_500);

fn start(nodes: usize) -> Vec<Server> {
    std::iter::repeat_with(Server::start).take(nodes).collect()
}

fn builder(servers: &[Server]) -> ClientBuilder<QuorumLock> {
    QuorumLock::builder(servers.iter().map(Server::url))
}

fn connect(servers: &[Server]) -> QuorumLock {
    builder(servers).build().unwrap()
}

/// Locks that wait for each node much longer than a test may take.
fn patient(servers: &[Server]) -> QuorumLock {
    builder(servers).node_timeout(SLOW).build().unwrap()
}

/// Someone else takes the lock on a node.
fn occupy(server: &Server, lease: Duration) {
    let _: i64 = server.ask(&["HSET", "n", "someone", "1"]);
    let _: i64 = server.ask(&["PEXPIRE", "n", &lease.as_millis().to_string()]);
}

fn vacate(server: &Server) {
    let _: i64 = server.ask(&["DEL", "n"]);
}

fn has_key(server: &Server) -> bool {
    server.ask::<i64>(&["EXISTS", "n"]) == 1
}

#[track_caller]
fn eventually_free(servers: &[Server]) {
    eventually(SOON, "no node has the key", || !servers.iter().any(has_key));
}

#[track_caller]
fn eventually_confirmed(locks: &QuorumLock, by: usize) {
    let confirmed = || locks.hold("n").unwrap().confirmed_by().unwrap().0;
    eventually(LONG, "so many nodes confirm the hold", || confirmed() == by);
}

#[test]
fn a_quorum_has_three_nodes_at_least_and_no_server_twice() {
    let urls = ["redis://a/", "redis://b/", "redis://c/", "redis://a:6379/1"];
    for few in 0..3 {
        let text = QuorumLock::connect(&urls[..few]).unwrap_err().to_string();
        assert!(text.contains("3 to 64"), "{text}");
    }
    assert!(QuorumLock::connect(&urls[..3]).is_ok());
    let text = QuorumLock::connect(urls).unwrap_err().to_string();
    assert!(text.contains("a:6379 is in the quorum twice"), "{text}");
    assert_err!(QuorumLock::connect((0..65).map(|host| format!("redis://h{host}/"))), Config);
    assert_err!(QuorumLock::connect(["redis://a/", "redis://b/", "http://c/"]), Config);
    for timeout in [Duration::ZERO, ms(2_001)] {
        let text = QuorumLock::builder(&urls[..3]).node_timeout(timeout).build().unwrap_err().to_string();
        assert!(text.contains("node_timeout"), "{text}");
    }
}

#[test]
fn every_node_has_the_key_of_a_hold_and_loses_it() {
    let servers = start(5);
    let locks = connect(&servers);
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 5);
    assert!(servers.iter().all(|server| server.owner("n") == (guard.owner().to_owned(), 1)));
    let again = locks.guard("n").unwrap();
    eventually(SOON, "each shows the depth", || servers.iter().all(|server| server.owner("n").1 == 2));
    again.unlock().unwrap();
    guard.unlock().unwrap();
    eventually_free(&servers);
}

#[test]
fn fault_22_a_minority_that_was_killed_costs_no_time() {
    let mut servers = start(5);
    let locks = patient(&servers);
    drop(locks.guard("n").unwrap());
    servers[..2].iter_mut().for_each(Server::kill);
    let (_, took) = timed(|| (0..10).for_each(|_| locks.guard("n").unwrap().unlock().unwrap()));
    assert!(took < SLOW, "took {took:?}");
    assert_eq!(locks.stats().outage, None, "a majority answers");
}

#[test]
fn fault_04_a_minority_that_is_stopped_costs_no_time() {
    let servers = start(5);
    let locks = patient(&servers);
    drop(locks.guard("n").unwrap());
    servers[..2].iter().for_each(Server::freeze);
    let (_, took) = timed(|| {
        for _ in 0..10 {
            let guard = locks.guard("n").unwrap();
            let inner = locks.guard("n").unwrap();
            assert!(locks.verify(&guard).unwrap());
            inner.unlock().unwrap();
            guard.unlock().unwrap();
        }
    });
    servers[..2].iter().for_each(Server::thaw);
    assert!(took < SLOW, "took {took:?}");
    eventually_free(&servers);
}

#[test]
fn fault_28_a_slow_node_costs_no_time_and_keeps_no_key() {
    let servers = start(3);
    let slow = Proxy::new(servers[0].socket());
    let urls = [slow.url(), servers[1].url(), servers[2].url()];
    let locks = QuorumLock::builder(urls).node_timeout(SLOW).build().unwrap();
    drop(locks.guard("n").unwrap());
    eventually_free(&servers);
    slow.delay(ms(100));
    for _ in 0..5 {
        let (guard, took) = timed(|| locks.guard("n").unwrap());
        assert!(took < ms(100), "took {took:?}");
        guard.unlock().unwrap();
    }
    // Each acquire that was executed late is followed by its release.
    eventually(LONG, "no node has the key", || !servers.iter().any(has_key));
}

#[test]
fn a_hold_is_renewed_by_a_majority() {
    let mut servers = start(5);
    let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
    let guard = locks.guard("n").unwrap();
    servers[0].kill();
    servers[1].freeze();
    std::thread::sleep(OUTLIVED);
    assert!(guard.is_valid() && locks.verify(&guard).unwrap());
    assert_eq!((guard.state(), guard.confirmed_by()), (HoldState::Held, Some((3, 5))));
    servers[1].thaw();
    guard.unlock().unwrap();
    eventually_free(&servers[1..]);
}

#[test]
fn fault_01_a_node_that_comes_back_empty_is_noticed_and_gets_no_key_back() {
    let servers = start(5);
    let (tell, told) = crossbeam_channel::unbounded();
    let locks =
        builder(&servers).watchdog_timeout(UNHURRIED).on_lost(move |lost| tell.send(lost).unwrap()).build().unwrap();
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 5);
    for (node, left) in [(0, 4), (1, 3)] {
        servers[node].clear();
        eventually_confirmed(&locks, left);
        assert!(guard.state() == HoldState::Held && guard.is_valid());
    }
    // Renewed and re-entered, and the key does not come back.
    locks.guard("n").unwrap().unlock().unwrap();
    std::thread::sleep(OUTLIVED);
    assert!(guard.is_valid() && !has_key(&servers[0]) && !has_key(&servers[1]));
    servers[2].clear();
    let lost = told.recv_timeout(LONG).unwrap();
    assert_eq!((lost.resource(), lost.cause()), ("n", LossCause::Removed));
    assert_eq!((guard.state(), guard.confirmed_by().unwrap().0 < 3), (HoldState::Lost, true));
    assert_err!(guard.unlock(), Lost);
    eventually_free(&servers);
}

#[test]
fn fault_02_a_node_that_comes_back_with_its_data_confirms_again() {
    let mut servers: Vec<_> = std::iter::repeat_with(Server::start_with_data).take(3).collect();
    let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 3);
    servers[0].kill();
    eventually_confirmed(&locks, 2);
    servers[0].restart();
    eventually_confirmed(&locks, 3);
    guard.unlock().unwrap();
    eventually_free(&servers);
}

#[test]
fn a_hold_is_suspect_while_its_majority_does_not_answer() {
    let servers = start(3);
    let locks = builder(&servers).watchdog_timeout(UNHURRIED * 2).build().unwrap();
    let guard = locks.guard("n").unwrap();
    servers[..2].iter().for_each(Server::freeze);
    eventually(LONG, "a renewal failed", || guard.state() == HoldState::Suspect);
    assert!(guard.is_valid());
    servers[..2].iter().for_each(Server::thaw);
    eventually(LONG, "a renewal was confirmed", || guard.state() == HoldState::Held);
    servers[..2].iter().for_each(Server::freeze);
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    servers[..2].iter().for_each(Server::thaw);
    assert_err!(guard.unlock(), Lost);
    eventually(LONG, "no node has the key", || !servers.iter().any(has_key));
}

#[test]
fn without_a_majority_there_is_no_lock_and_nothing_is_left() {
    let mut servers = start(3);
    // It never had a connection to those two: nothing can have been sent.
    servers[..2].iter_mut().for_each(Server::kill);
    let locks = builder(&servers).outage_budget(ms(500)).build().unwrap();
    let (result, took) = timed(|| locks.lock("n"));
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
    let text = result.unwrap_err().to_string();
    assert!(text.contains("1 of 3 nodes answered, 2 are needed"), "{text}");
    assert!(took >= ms(400) && took < ms(500) + LATE, "took {took:?}");
    let (result, took) = timed(|| locks.try_lock_for("n", ms(300)));
    assert!(result.is_err() && took <= ms(300) + LATE, "{result:?} after {took:?}");
    assert!(locks.is_locked("n").is_err() && locks.force_unlock("n").is_err());
    assert!(locks.stats().outage.is_some());
    eventually_free(&servers[2..]);
    servers[..2].iter_mut().for_each(Server::restart);
    drop(locks.guard("n").unwrap());
}

#[test]
fn fault_04_a_majority_that_is_stopped_leaves_the_outcome_unknown() {
    let servers = start(3);
    let locks = builder(&servers).outage_budget(ms(500)).build().unwrap();
    drop(locks.guard("n").unwrap());
    servers[..2].iter().for_each(Server::freeze);
    let (result, took) = timed(|| locks.lock("n"));
    servers[..2].iter().for_each(Server::thaw);
    assert!(matches!(result, Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })), "{result:?}");
    assert!(took <= ms(500) + LATE, "took {took:?}");
    eventually(LONG, "what may have been applied is swept", || !servers.iter().any(has_key));
}

#[test]
fn a_refusal_of_a_majority_is_said_at_once() {
    let servers = start(3);
    let urls = servers.iter().map(|server| server.url_as("nobody", "wrong"));
    let (result, took) = timed(|| QuorumLock::connect(urls).unwrap().lock("n"));
    assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    assert!(took < SOON, "took {took:?}");
}

#[test]
fn a_part_of_the_lock_is_given_back_at_once() {
    let servers = start(5);
    let locks = patient(&servers);
    servers[..3].iter().for_each(|server| occupy(server, MINUTE));
    assert!(!locks.try_lock("n").unwrap());
    eventually_free(&servers[3..]);
    servers[..3].iter().for_each(vacate);
    drop(locks.guard("n").unwrap());
}

#[test]
fn a_waiter_is_not_woken_by_its_own_releases() {
    let servers = start(5);
    let (locks, others) = (patient(&servers), patient(&servers));
    servers[..3].iter().for_each(|server| occupy(server, MINUTE));
    std::thread::scope(|scope| {
        let waiters =
            [&locks, &others].map(|locks| spawn_asleep(scope, || locks.lock("n").and_then(|()| locks.unlock("n"))));
        // Until both have found the free nodes free, they wake each other.
        std::thread::sleep(SOON);
        let commands = servers[4].commands_during(|| std::thread::sleep(SOON));
        let rounds = commands.iter().filter(|command| command.contains("evalsha")).count();
        assert!(rounds <= 8, "{commands:#?}");
        // The news of the busy nodes wakes them.
        let vacated = Instant::now();
        for server in &servers[..3] {
            vacate(server);
            let _: i64 = server.ask(&["PUBLISH", "redisson_lock__channel:{n}", "0"]);
        }
        for waiter in waiters {
            let (result, when) = finish(waiter);
            result.unwrap();
            assert!(when - vacated < SOON, "woken after {:?}", when - vacated);
        }
    });
}

#[test]
fn a_waiter_hears_of_an_unlock_while_a_minority_is_down() {
    let mut servers = start(5);
    servers[0].kill();
    servers[1].freeze();
    let patient = || builder(&servers).poll_cap(MINUTE).build().unwrap();
    let (holder, waiting) = (patient(), patient());
    let guard = holder.request("n").lease(MINUTE).guard().unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.lock("n").and_then(|()| waiting.unlock("n")));
        // Its subscribers at the living nodes are confirmed, and it looked once more.
        let channel = "redisson_lock__channel:{n}";
        eventually(LONG, "it is subscribed", || servers[2..].iter().all(|server| server.subscribers(channel) == 1));
        std::thread::sleep(ms(100));
        assert!(!waiter.is_finished());
        let unlocked = Instant::now();
        guard.unlock().unwrap();
        let (result, when) = finish(waiter);
        result.unwrap();
        assert!(when - unlocked < SOON, "woken after {:?}", when - unlocked);
    });
    servers[1].thaw();
}

#[test]
fn fault_30_clients_that_see_different_nodes_exclude_each_other() {
    let servers = start(5);
    let nowhere = |number: usize| format!("unix:///nowhere/{number}");
    let all: Vec<_> = servers.iter().map(Server::url).collect();
    let left = [&all[..3], &[nowhere(3), nowhere(4)]].concat();
    let right = [&[nowhere(0), nowhere(1)], &all[2..]].concat();
    let (inside, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for urls in [left, right] {
            scope.spawn(|| {
                let locks = QuorumLock::connect(urls).unwrap();
                for _ in 0..20 {
                    let guard = locks.guard("n").unwrap();
                    assert!(!inside.swap(true, SeqCst), "both hold the lock");
                    std::thread::sleep(ms(1));
                    assert!(guard.is_valid());
                    inside.store(false, SeqCst);
                    guard.unlock().unwrap();
                    turns.fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 40);
    eventually_free(&servers);
}

#[test]
fn contenders_who_got_a_part_each_come_to_a_majority() {
    let servers = start(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let locks = connect(&servers);
                (0..10).for_each(|_| locks.guard("n").unwrap().unlock().unwrap());
            });
        }
    });
    eventually_free(&servers);
}

#[test]
fn a_release_that_a_node_did_not_answer_is_repeated() {
    let servers = start(3);
    let locks = patient(&servers);
    let guard = locks.request("n").lease(MINUTE).guard().unwrap().unwrap();
    eventually_confirmed(&locks, 3);
    servers[0].freeze();
    let (result, took) = timed(|| guard.unlock());
    result.unwrap();
    assert!(took < SOON, "took {took:?}");
    let other = connect(&servers);
    elsewhere(|| other.guard("n").unwrap().unlock().unwrap());
    servers[0].thaw();
    eventually(LONG, "it is freed long before its lease ends", || !has_key(&servers[0]));
}

#[test]
fn a_node_that_remembers_what_was_released_meanwhile_is_swept() {
    let mut servers = start(2);
    servers.push(Server::start_with_data());
    let locks = patient(&servers);
    let guard = locks.request("n").lease(MINUTE).guard().unwrap().unwrap();
    eventually_confirmed(&locks, 3);
    servers[2].kill();
    guard.unlock().unwrap();
    servers[2].restart();
    eventually(LONG, "it is freed long before its lease ends", || !has_key(&servers[2]));
}

#[test]
fn a_hold_of_the_least_majority_is_released_though_one_of_its_nodes_stops() {
    let servers = start(5);
    let locks = builder(&servers).node_timeout(ms(100)).build().unwrap();
    servers[3..].iter().for_each(|server| occupy(server, MINUTE));
    let guard = locks.request("n").lease(MINUTE).guard().unwrap().unwrap();
    servers[3..].iter().for_each(vacate);
    servers[0].freeze();
    let (result, took) = timed(|| guard.unlock());
    servers[0].thaw();
    result.unwrap();
    assert!(took < SOON, "took {took:?}");
    eventually(LONG, "it is freed long before its lease ends", || !has_key(&servers[0]));
}

#[test]
fn a_release_that_most_nodes_know_nothing_of_says_lost() {
    let servers = start(5);
    let locks = patient(&servers);
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 5);
    servers[..2].iter().for_each(Server::clear);
    guard.unlock().unwrap();
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 5);
    servers[..3].iter().for_each(Server::clear);
    assert_err!(guard.unlock(), Lost);
    eventually_free(&servers);
}

#[test]
fn a_hold_without_a_majority_cannot_be_re_entered() {
    let servers = start(3);
    let locks = patient(&servers);
    locks.lock("n").unwrap();
    eventually_confirmed(&locks, 3);
    servers[0].clear();
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    servers[1].clear();
    assert_err!(locks.lock("n"), Lost);
    assert_err!(locks.unlock("n"), Lost);
    eventually_free(&servers);
}

#[test]
fn locked_is_what_no_majority_can_be_had_of() {
    let servers = start(5);
    let locks = patient(&servers);
    for (occupied, lease) in [(0, 10), (1, 20)] {
        occupy(&servers[occupied], Duration::from_secs(lease));
        assert!(!locks.is_locked("n").unwrap());
        assert_eq!(locks.remaining_time_to_live("n").unwrap(), None);
    }
    occupy(&servers[2], Duration::from_secs(30));
    assert!(locks.is_locked("n").unwrap());
    let left = locks.remaining_time_to_live("n").unwrap().unwrap();
    assert!(
        left <= Duration::from_secs(10) && left > Duration::from_secs(5),
        "free when the first lease ends: {left:?}"
    );
    servers[4].freeze();
    assert!(locks.is_locked("n").unwrap());
    assert!(locks.force_unlock("n").unwrap());
    assert!(!locks.is_locked("n").unwrap());
    servers[4].thaw();
    eventually_free(&servers);
    occupy(&servers[0], MINUTE);
    assert!(!locks.force_unlock("n").unwrap(), "one node of five is no lock");
    eventually_free(&servers);
}

#[test]
fn the_last_clone_ends_the_threads_also_while_a_node_is_stopped() {
    alone(|| {
        let servers = start(3);
        servers[0].freeze();
        let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
        let guard = locks.guard("n").unwrap();
        eventually(LONG, "it was renewed", || locks.stats().renewals > 1);
        assert!(!elsewhere(|| locks.try_lock_for("n", ms(50)).unwrap()));
        for name in ["redlatch-node-0", "redlatch-node-1", "redlatch-node-2"] {
            assert!(of_redlatch().iter().filter(|thread| *thread == name).count() <= 3, "{:?}", of_redlatch());
        }
        drop(guard);
        drop(locks);
        eventually(LONG, "every thread has ended", || of_redlatch().is_empty());
        servers[0].thaw();
    });
}

#[test]
fn a_shutdown_releases_what_is_held_everywhere() {
    let servers = start(3);
    let locks = connect(&servers);
    locks.lock("n").unwrap();
    locks.shutdown();
    eventually_free(&servers);
    assert_err!(locks.try_lock("n"), Closed);
}
