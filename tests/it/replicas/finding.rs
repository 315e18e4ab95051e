//! How the master is found, and what is said when it is not.

use super::{MINUTE, group, is_followed, locks_of, patient};
use crate::process::alone;
use crate::threads::{LONG, SOON, elsewhere, eventually, finish, ms, of_redlatch, patiently, spawn_asleep, timed};
use redlatch::{Client, Error, RedLock, RedLockExt};

#[test]
fn it_is_found_whichever_is_listed_first() {
    let group = group();
    for first in 0..group.nodes.len() {
        let map = |host: &str, port: u16| panic!("{host}:{port} was given by the user");
        let locks = locks_of(group.by_address(first).map_address(map).app_name("shop"));
        let (guard, took) = timed(|| locks.guard("n").unwrap());
        assert!(took <= SOON && group.nodes[0].pttl("n") > 0, "{took:?}");
        assert!(!patient(&group).try_lock("n").unwrap() && !elsewhere(|| locks.try_lock("n")).unwrap());
        eventually(LONG, "the master alone is used", || is_followed(&group, 0));
        assert!(group.nodes.iter().all(|node| node.clients_named("shop") > 0));
        guard.unlock().unwrap();
        assert!(locks.client().ping(LONG).is_ok() && locks.client().stats().outage.is_none());
    }
}

#[test]
fn a_frozen_replica_costs_nobody_time() {
    let mut group = group();
    group.nodes[2].freeze();
    let (locks, took) = timed(|| {
        let locks = patient(&group);
        drop(locks.guard("n").unwrap());
        locks
    });
    assert!(took <= SOON, "{took:?}");
    group.nodes[0].kill();
    group.nodes[1].promote();
    let (taken, took) = timed(|| locks.lock("n"));
    assert!(taken.is_ok() && took <= SOON && group.nodes[1].pttl("n") > 0, "{taken:?} after {took:?}");
    group.nodes[2].thaw();
}

#[test]
fn each_url_has_a_login_of_its_own() {
    let mut group = group();
    let passwords = ["one", "two", "three"];
    for (node, password) in group.nodes.iter().zip(passwords) {
        let user = format!("app-{password}");
        let _: String =
            node.ask(&["ACL", "SETUSER", &user, "on", &format!(">{password}"), "allchannels", "~*", "+@all"]);
    }
    let urls = |passwords: [&str; 3]| {
        let url = |(number, password): (usize, &str)| {
            format!("redis://app-{password}:{password}@{}", group.nodes[number].address())
        };
        passwords.into_iter().enumerate().map(url).collect::<Vec<_>>()
    };
    let locks_by = |urls: Vec<String>| locks_of(Client::builder(&urls[0]).replicas(&urls[1..]).outage_budget(LONG));
    let error = locks_by(urls(["three", "two", "three"])).try_lock("n").unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error}");
    let locks = locks_by(urls(passwords));
    drop(locks.guard("n").unwrap());
    group.nodes[0].kill();
    group.nodes[1].promote();
    locks.lock("n").unwrap();
    assert!(group.nodes[1].pttl("n") > 0);
}

#[test]
fn that_none_is_the_master_is_said_with_what_each_of_them_says() {
    let mut group = group();
    group.sever(1);
    group.nodes[0].demote(&group.nodes[1]);
    group.nodes[1].kill();
    let locks = locks_of(group.by_address(0).response_timeout(SOON));
    let text = locks.try_lock("n").unwrap_err().to_string();
    assert!(text.contains("none of 3 nodes says that it is the master"), "{text}");
    let [first, second, third] = [0, 1, 2].map(|number| group.nodes[number].address());
    let said =
        [format!("{first} is a replica"), format!("{second}: Connection refused"), format!("{third} is a replica")];
    assert!(said.iter().all(|said| text.contains(said)), "{text}");
    group.nodes[2].promote();
    locks.lock("n").unwrap();
    assert!(group.nodes[2].pttl("n") > 0);
}

#[test]
fn all_may_go_and_come_back() {
    let mut group = group();
    let locks = patient(&group);
    drop(locks.guard("n").unwrap());
    group.nodes.iter_mut().for_each(|node| node.kill());
    let impatient = locks_of(group.by_address(0).response_timeout(ms(300)));
    let error = impatient.try_lock("n").unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("none of 3 nodes"), "{error}");
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("n").and_then(|()| locks.unlock("n")));
        group.nodes.iter_mut().rev().for_each(|node| node.restart());
        let back = crate::threads::Mark::now();
        let (served, when) = finish(waiter);
        served.unwrap();
        let took = when - back;
        assert!(took <= 2 * SOON, "served {took:?} after they came back");
    });
    assert!(patiently(|| impatient.try_lock("n")));
}

#[test]
fn the_threads_that_ask_end_with_the_client() {
    alone(|| {
        let group = group();
        let locks = patient(&group);
        let asking = || of_redlatch().iter().filter(|name| name.starts_with("redlatch-replic")).count();
        assert_eq!(asking(), 0);
        drop(locks.guard("n").unwrap());
        // A thread has its name when it has run.
        eventually(LONG, "all are asked", || asking() == 3);
        locks.client().shutdown();
        eventually(LONG, "they end", || asking() == 0);
        let quiet = || group.nodes.iter().all(|node| node.clients() == 0);
        drop(locks);
        eventually(LONG, "no connection is left", quiet);
        let frozen = patient(&group);
        drop(frozen.guard("n").unwrap());
        group.nodes[1].freeze();
        let ((), took) = timed(|| drop(frozen));
        assert!(took <= SOON, "{took:?}");
        group.nodes[1].thaw();
    });
}

/// Those that may be asked to confirm are no masters, and are not asked to wait.
#[test]
fn replicas_confirm_what_the_master_grants() {
    let group = group();
    for first in 0..group.nodes.len() {
        let builder = group.by_address(first).watchdog_timeout(MINUTE).sync_replicas(2, SOON);
        let locks = locks_of(builder.response_timeout(2 * SOON));
        locks.lock("n").unwrap();
        assert_eq!(locks.hold("n").unwrap().confirmed_by(), Some((2, 2)));
        locks.unlock("n").unwrap();
    }
}
