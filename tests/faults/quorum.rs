//! Nodes of a quorum that die, stop, dawdle, forget or are out of reach.

use crate::harness::quorum::{
    MINUTE, OUTLIVED, SLOW, UNHURRIED, builder, connect, eventually_confirmed, eventually_free,
};
use crate::harness::quorum::{has_key, occupy, patient, start, vacate};
use crate::proxy::{Proxy, pass, pass_after, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, elsewhere, eventually, ms, patiently, timed};
use redlatch::{Error, HoldState, LossCause, QuorumLock, RedLock, RedLockExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

#[test]
fn fault_22_a_minority_that_was_killed_costs_no_time() {
    let mut servers = start(5);
    let locks = patient(&servers);
    drop(locks.guard("n").unwrap());
    servers[..2].iter_mut().for_each(Server::kill);
    let (_, took) = timed(|| (0..10).for_each(|_| locks.guard("n").unwrap().unlock().unwrap()));
    assert!(took <= SLOW, "took {took:?}");
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
    assert!(took <= SLOW, "took {took:?}");
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
    // On another connection the release would overtake it.
    let acquires = runs("acquire");
    slow.set(move |_, flow, data| if acquires(flow, data) { pass_after(ms(100), data) } else { pass(data) });
    for _ in 0..10 {
        let (guard, took) = timed(|| locks.guard("n").unwrap());
        assert!(took <= SLOW, "took {took:?}");
        guard.unlock().unwrap();
    }
    // By now each acquire that was sent has been executed, or is too old for it.
    std::thread::sleep(ms(500));
    // Each acquire that was executed late is followed by its release.
    eventually(LONG, "no node has the key", || !servers.iter().any(has_key));
}

#[test]
fn a_hold_is_renewed_by_a_majority() {
    let mut servers = start(5);
    let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 5);
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
    assert!(took >= ms(400) && took <= ms(500) + LATE, "took {took:?}");
    let (result, took) = timed(|| locks.try_lock_for("n", ms(300)));
    assert!(result.is_err() && took <= ms(300) + LATE, "{result:?} after {took:?}");
    assert!(locks.is_locked("n").is_err() && locks.force_unlock("n").is_err());
    assert!(locks.stats().outage.is_some());
    eventually_free(&servers[2..]);
    servers[..2].iter_mut().for_each(Server::restart);
    drop(patiently(|| locks.guard("n")));
    eventually_free(&servers);
}

#[test]
fn fault_04_a_majority_that_is_stopped_leaves_the_outcome_unknown() {
    let servers = start(3);
    let locks = builder(&servers).node_timeout(ms(50)).outage_budget(ms(500)).build().unwrap();
    drop(patiently(|| locks.guard("n")));
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
    assert!(took <= SOON, "took {took:?}");
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
fn a_release_that_a_node_did_not_answer_is_repeated() {
    let servers = start(3);
    let locks = patient(&servers);
    let guard = locks.request("n").lease(MINUTE).guard().unwrap().unwrap();
    eventually_confirmed(&locks, 3);
    servers[0].freeze();
    let (result, took) = timed(|| guard.unlock());
    result.unwrap();
    assert!(took <= SOON, "took {took:?}");
    let other = connect(&servers);
    elsewhere(|| other.guard("n").unwrap().unlock().unwrap());
    servers[0].thaw();
    eventually(LONG, "it is freed long before its lease ends", || !has_key(&servers[0]));
}

#[test]
fn a_shutdown_frees_every_lock_though_a_node_is_stopped() {
    let servers = start(3);
    let locks = patient(&servers);
    (0..20).for_each(|number| locks.lock(&format!("n{number}")).unwrap());
    servers[0].freeze();
    locks.shutdown();
    let is_empty = |server: &Server| server.ask::<i64>(&["DBSIZE"]) == 0;
    eventually(SOON, "the others have no key", || servers[1..].iter().all(is_empty));
    servers[0].thaw();
    servers[0].clear();
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
    assert!(took <= SOON, "took {took:?}");
    eventually(LONG, "it is freed long before its lease ends", || !has_key(&servers[0]));
}

/// Of an even number of nodes half can keep a majority from everybody, and are no majority that could answer.
#[test]
fn fault_128_half_of_an_even_number_of_nodes_keep_a_lock_busy() {
    for nodes in [4, 6] {
        let mut servers = start(nodes);
        let locks = builder(&servers).outage_budget(ms(300)).build().unwrap();
        servers[..nodes / 2].iter().for_each(|server| occupy(server, MINUTE));
        // With no other node to answer: it is busy all the same, and not an outage.
        servers[nodes / 2..].iter_mut().for_each(Server::kill);
        let (locked, took) = timed(|| locks.try_lock("n"));
        assert!(!locked.unwrap() && took <= SOON, "took {took:?}");
        assert!(!locks.try_lock_for("n", ms(600)).unwrap() && locks.is_locked("n").unwrap());
        // What is free there is not to be had either, for want of a majority.
        servers[..nodes / 2].iter().for_each(vacate);
        let error = locks.lock("n").unwrap_err();
        assert!(error.to_string().contains(&format!("{} of {nodes} nodes answered", nodes / 2)), "{error}");
        servers[nodes / 2..].iter_mut().for_each(Server::restart);
        drop(patiently(|| locks.guard("n")));
        eventually_free(&servers);
    }
}

/// A server that votes twice makes a majority of less than a majority of servers.
#[test]
fn fault_130_two_addresses_of_one_server_are_one_vote() {
    let servers = [Server::start_on_tcp(), Server::start()];
    let [by_number, by_name] = ["127.0.0.1", "localhost"].map(|host| format!("redis://{host}:{}/", servers[0].port()));
    let locks = QuorumLock::connect([&by_number, &by_name, &servers[1].url()]).unwrap();
    assert_eq!(patiently(|| locks.ping(LONG)), (2, 3));
    let guard = locks.guard("n").unwrap();
    eventually_confirmed(&locks, 2);
    guard.unlock().unwrap();
    servers[1].freeze();
    let locked = locks.try_lock_for("n", ms(300));
    servers[1].thaw();
    assert!(!matches!(locked, Ok(true)), "granted by one server of two");
    eventually(LONG, "no server has the key", || !servers.iter().any(has_key));
}

#[test]
fn fault_130_a_quorum_of_one_server_is_refused_and_says_so() {
    let server = Server::start_on_tcp();
    let hosts = ["127.0.0.1", "localhost"].map(|host| format!("redis://{host}:{}/", server.port()));
    let locks = QuorumLock::connect([&hosts[0], &hosts[1], &server.url()]).unwrap();
    let error = patiently(|| match locks.try_lock("n") {
        Err(error @ Error::Refused { .. }) => Ok(error),
        Err(error) => Err(error),
        Ok(locked) => panic!("one server is no quorum: {locked}"),
    });
    let text = error.to_string();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "TWICE"), "{error:?}");
    assert!(text.contains("is the same server as") && text.contains("give each node of the quorum a server"), "{text}");
    let places = ["127.0.0.1:", "localhost:", "/socket"];
    assert_eq!(places.iter().filter(|place| text.contains(**place)).count(), 2, "both are named: {text}");
}

/// The hole of the algorithm, a node that restarts without its data, closed by what its authors call a delayed restart:
/// a majority of the nodes forgets the holder, and grants nobody the lock before that one's lease is over.
#[test]
fn fault_01_strict_clients_are_safe_from_nodes_that_restart_empty() {
    let lease = UNHURRIED;
    let mut servers = start(3);
    let strict = |servers: &[Server]| builder(servers).watchdog_timeout(lease).strict(true).build().unwrap();
    let (holder, other) = (strict(&servers), strict(&servers));
    assert!(holder.try_lock_for("n", LONG).unwrap(), "after the first quarantine");
    let hold = holder.hold("n").unwrap();
    for server in &mut servers[..2] {
        server.kill();
        server.restart();
    }
    let restarted = Mark::now();
    assert!(other.try_lock_for("n", LONG).unwrap());
    assert!(!hold.is_valid(), "two hold it");
    assert!(restarted.elapsed() >= lease - SOON, "granted after {:?}", restarted.elapsed());
    other.unlock("n").unwrap();
    assert_err!(holder.unlock("n"), Lost);
    for server in &servers {
        let _: i64 = server.ask(&["DEL", "redlatch:epoch"]);
    }
}
