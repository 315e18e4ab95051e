//! How the master is found, and what is said when it is not.

use super::{locks_of, patient};
use crate::harness::oracle::Oracle;
use crate::harness::permissions;
use crate::harness::sentinel::{Group, NAME};
use crate::server::Server;
use crate::threads::{LONG, SOON, elsewhere, eventually, ms, of_redlatch, timed};
use redlatch::{Client, Error, RedLock, RedLockExt};

#[test]
fn a_lock_is_taken_at_the_master_and_released_there() {
    let group = Group::start();
    let (locks, other) = (patient(&group), patient(&group));
    let guard = locks.guard("n").unwrap();
    assert!(group.nodes[0].pttl("n") > 0);
    assert!(!other.try_lock("n").unwrap() && !elsewhere(|| locks.try_lock("n")).unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| timed(|| other.lock("n").and_then(|()| other.unlock("n"))));
        eventually(LONG, "it listens", || group.nodes[0].subscribers("redisson_lock__channel:{n}") == 1);
        guard.unlock().unwrap();
        let (served, took) = waiter.join().unwrap();
        assert!(served.is_ok() && took <= SOON, "{served:?} after {took:?}");
    });
    assert_eq!(group.nodes[0].pttl("n"), -2);
    assert!(locks.client().ping(LONG).is_ok() && locks.client().stats().outage.is_none());
}

#[test]
fn a_url_names_a_database_and_one_sentinel_is_enough() {
    let group = Group::start();
    let url = format!("redis-sentinel://{}/{NAME}/3", group.sentinels[2].address());
    let locks = locks_of(Client::builder(&url));
    let _guard = locks.guard("n").unwrap();
    let in_database: String = group.nodes[0].ask(&["INFO", "keyspace"]);
    assert!(in_database.contains("db3:keys=1") && !in_database.contains("db0"), "{in_database}");
}

/// Two are enough for the client, whichever they are, and for a failover.
#[test]
fn a_frozen_sentinel_costs_nobody_time() {
    let group = Group::start();
    for frozen in 0..group.sentinels.len() {
        group.sentinels[frozen].freeze();
        let (locks, took) = timed(|| {
            let locks = patient(&group);
            drop(locks.guard("n").unwrap());
            locks
        });
        assert!(took <= SOON, "with sentinel {frozen} frozen it took {took:?}");
        drop(locks);
        group.sentinels[frozen].thaw();
    }
}

#[test]
fn one_sentinel_that_answers_is_enough() {
    let mut group = Group::start();
    group.sentinels[0].kill();
    group.sentinels[1].freeze();
    let (taken, took) = timed(|| drop(patient(&group).guard("n").unwrap()));
    assert!(took <= SOON, "{taken:?} after {took:?}");
}

/// What a try says, at once.
fn refusal(url: &str) -> Error {
    let (error, took) = timed(|| locks_of(Client::builder(url)).try_lock("n").unwrap_err());
    assert!(took <= SOON, "{error} after {took:?}");
    error
}

#[test]
fn a_name_that_no_sentinel_knows_is_said_to_be_unknown() {
    let group = Group::start();
    let error = refusal(&group.url().replace(NAME, "nobody"));
    assert!(!error.is_retryable() && error.to_string().contains("No such master"), "{error}");
    assert!(error.to_string().contains("NOMASTER"), "{error}");
}

#[test]
fn what_is_not_a_sentinel_is_said_to_be_none() {
    let group = Group::start();
    let error = refusal(&format!("redis+sentinel://{}/{NAME}", group.nodes[0].address()));
    assert!(!error.is_retryable() && error.to_string().contains("it is not a sentinel"), "{error}");
}

#[test]
fn nobody_who_answers_is_said_with_the_number_of_those_who_were_asked() {
    let mut group = Group::start();
    group.sentinels.iter_mut().for_each(|sentinel| sentinel.kill());
    let locks = locks_of(group.builder().response_timeout(ms(200)));
    let (error, took) = timed(|| locks.try_lock("n").unwrap_err());
    assert!(took <= SOON, "{error} after {took:?}");
    assert!(error.is_retryable() && error.to_string().contains("none of 3 sentinels names the master"), "{error}");
}

/// A node that could not be followed in an earlier part of the outage is not what keeps callers from the master now.
#[test]
fn an_error_names_who_is_out_of_reach_now() {
    let mut group = Group::start();
    let locks = locks_of(group.builder().response_timeout(ms(200)));
    let fails = |part: &str| locks.try_lock("n").is_err_and(|error| error.to_string().contains(part));
    group.nodes.iter_mut().for_each(|node| node.kill());
    let master = group.nodes[0].address();
    eventually(LONG, "the node is named", || fails(&master));
    group.sentinels.iter_mut().for_each(|sentinel| sentinel.kill());
    eventually(LONG, "the sentinels are named", || fails("none of 3 sentinels names the master"));
}

#[test]
fn sentinels_have_users_and_passwords_of_their_own() {
    let group = Group::start();
    for sentinel in &group.sentinels {
        let user = ["ACL", "SETUSER", "watcher", "reset", "on", ">pa?ss", "resetchannels"];
        let _: String = sentinel.ask(&user.into_iter().chain(permissions::of_sentinels()).collect::<Vec<_>>());
        let _: String = sentinel.ask(&["ACL", "SETUSER", "default", "resetpass", ">other"]);
    }
    let error = refusal(&group.url());
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOAUTH"), "{error}");
    assert!(error.to_string().contains("sentinel_password"), "{error}");
    let error = refusal(&format!("{}?sentinel_password=Sesame-0815", group.url()));
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"), "{error}");
    assert!(!error.to_string().contains("Sesame"), "{error}");
    for login in ["sentinel_username=watcher&sentinel_password=pa%3Fss", "sentinel_password=other"] {
        let locks = locks_of(Client::builder(&format!("{}?{login}", group.url())));
        drop(locks.guard("n").unwrap());
        let listened = || group.sentinels.iter().all(|sentinel| sentinel.listeners() == 1);
        eventually(LONG, "all let it listen", listened);
        drop(locks);
        eventually(LONG, "it is gone", || group.sentinels.iter().all(|sentinel| sentinel.listeners() == 0));
    }
}

#[test]
fn nodes_have_users_and_passwords_of_their_own() {
    let group = Group::start();
    for sentinel in &group.sentinels {
        let _: String = sentinel.ask(&["SENTINEL", "SET", NAME, "auth-pass", "other"]);
    }
    let rules = ["ACL", "SETUSER", "app", "reset", "on", ">pass", "allchannels", "~*", "+@all", "-role"];
    let _: String = group.nodes[0].ask(&rules);
    let _: String = group.nodes[0].ask(&["ACL", "SETUSER", "default", "resetpass", ">other"]);
    let error = refusal(&group.url());
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOAUTH"), "{error}");
    let url = group.url().replace("://", "://app:pass@");
    let error = refusal(&url);
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error}");
    let _: String = group.nodes[0].ask(&["ACL", "SETUSER", "app", "+role"]);
    drop(locks_of(Client::builder(&url)).guard("n").unwrap());
}

#[test]
fn connections_to_sentinels_have_the_name_of_their_program_too() {
    let group = Group::start();
    let locks = locks_of(group.builder().app_name("shop"));
    let _guard = locks.guard("n").unwrap();
    eventually(LONG, "all are asked", || group.sentinels.iter().all(|sentinel| sentinel.clients_named("shop") == 1));
    assert_eq!(group.nodes[0].clients_named("shop"), group.nodes[0].clients());
}

/// They name what only they can reach.
#[test]
fn an_address_that_sentinels_name_is_mapped() {
    let (server, oracle) = (Server::start_on_tcp(), Oracle::naming(1, 0));
    let real = server.port();
    let url = format!("redis+sentinel://{}/{NAME}", oracle.address());
    let error = locks_of(Client::builder(&url)).try_lock("n").unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1:1"), "{error}");
    let map = move |host: &str, port| {
        if (host, port) == ("127.0.0.1", 1) { ("localhost".to_owned(), real) } else { panic!("{host}:{port}") }
    };
    let locks = locks_of(Client::builder(&url).map_address(map));
    let _guard = locks.guard("n").unwrap();
    assert!(server.pttl("n") > 0);
}

#[test]
fn the_threads_that_ask_end_with_the_client() {
    crate::process::alone(|| {
        let group = Group::start();
        let locks = patient(&group);
        assert_eq!(of_redlatch().iter().filter(|name| name.starts_with("redlatch-sentin")).count(), 0);
        drop(locks.guard("n").unwrap());
        let watching = || of_redlatch().iter().filter(|name| name.starts_with("redlatch-sentin")).count();
        eventually(LONG, "each sentinel has a thread", || watching() == 3);
        std::thread::sleep(ms(50));
        drop(locks);
    });
}
