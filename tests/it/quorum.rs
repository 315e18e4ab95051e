//! `QuorumLock`: what only a lock on several masters has. What it shares with the other kinds is in `conformance`.

mod chaos;
mod even;
mod voters;

use crate::harness::quorum::{
    MINUTE, UNHURRIED, builder, connect, eventually_confirmed, eventually_free, occupy, patient, start, vacate,
};
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, answered, elsewhere, eventually, finish, ms, of_redlatch, spawn_asleep};
use redlatch::{QuorumLock, RedLock, RedLockExt};
use std::sync::Mutex;
use std::time::Duration;

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
    let groups = ["redis+sentinel://s1,s2/m", "redis+sentinel://s3,s2:26379/m/1", "redis://c/"];
    let text = QuorumLock::connect(groups).unwrap_err().to_string();
    assert!(text.contains("m of s2:26379 is in the quorum twice"), "{text}");
    assert!(QuorumLock::connect(["redis+sentinel://s1,s2/m", "redis+sentinel://s1,s2/o", "redis://c/"]).is_ok());
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
        let vacated = Mark::now();
        for server in &servers[..3] {
            vacate(server);
            let _: i64 = server.ask(&["PUBLISH", "redisson_lock__channel:{n}", "0"]);
        }
        for waiter in waiters {
            let (result, when) = finish(waiter);
            result.unwrap();
            assert!(when - vacated <= SOON, "woken after {:?}", when - vacated);
        }
    });
}

#[test]
fn a_waiter_hears_of_an_unlock_while_a_minority_is_down() {
    let mut servers = start(5);
    servers[0].kill();
    servers[1].freeze();
    // A round that meets the key half released waits for the node that is stopped.
    let patient = || builder(&servers).node_timeout(ms(50)).poll_cap(MINUTE).build().unwrap();
    let (holder, waiting) = (patient(), patient());
    let guard = holder.request("n").lease(MINUTE).guard().unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.lock("n").and_then(|()| waiting.unlock("n")));
        // Its subscribers at the living nodes are confirmed, and it looked once more.
        let channel = "redisson_lock__channel:{n}";
        eventually(LONG, "it is subscribed", || servers[2..].iter().all(|server| server.subscribers(channel) == 1));
        std::thread::sleep(ms(100));
        assert!(!waiter.is_finished());
        let unlocked = Mark::now();
        guard.unlock().unwrap();
        let (result, when) = finish(waiter);
        result.unwrap();
        assert!(when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
    servers[1].thaw();
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
        let locks = builder(&servers).watchdog_timeout(2 * UNHURRIED).build().unwrap();
        let guard = locks.guard("n").unwrap();
        eventually(LONG, "it was renewed", || locks.stats().renewals > 1);
        assert!(!elsewhere(|| answered(|| locks.try_lock_for("n", ms(50))).0));
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

/// What was logged of a node's connections.
static OF_NODES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct OfNodes;

impl log::Log for OfNodes {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.target().ends_with("quorum::node") {
            OF_NODES.lock().unwrap().push(format!("{}: {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_node_that_is_away_is_told_of_once_though_no_call_fails() {
    alone(|| {
        log::set_logger(&OfNodes).unwrap();
        log::set_max_level(log::LevelFilter::Info);
        let mut servers = start(3);
        let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
        let socket = servers[1].url().trim_start_matches("unix://").to_owned();
        let told = |number: usize, start: &str| {
            drop(locks.guard("n").unwrap());
            let told = OF_NODES.lock().unwrap();
            assert!(told.len() <= number, "{told:?}");
            told.get(number - 1).is_some_and(|line| line.starts_with(start) && line.contains(&socket))
        };
        drop(locks.guard("n").unwrap());
        servers[1].kill();
        eventually(LONG, "it is told of", || told(1, "WARN: node"));
        for _ in 0..10 {
            assert!(told(1, "WARN: node"));
            std::thread::sleep(ms(50));
        }
        servers[1].restart();
        eventually(LONG, "its return is told of", || told(2, "INFO: node"));
        assert!(locks.stats().outage.is_none());
    });
}
