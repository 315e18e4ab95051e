//! Strict mode at its edges; what it does when the server loses its data is in tests/faults/quarantine.rs.

use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, ms, spawn_asleep, timed};
use redlatch::{Client, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(900);
const EPOCH: &str = "redlatch:epoch";

fn strict(server: &Server) -> ReentrantLock {
    strict_for(server, LEASE)
}

fn strict_for(server: &Server, lease: Duration) -> ReentrantLock {
    ReentrantLock::new(&server.builder().watchdog_timeout(lease).strict(true).build().unwrap())
}

/// A strict client of a server whose first quarantine is over.
fn settled(server: &Server) -> ReentrantLock {
    let locks = strict(server);
    assert!(locks.try_lock_for("first", LONG).unwrap());
    locks.unlock("first").unwrap();
    locks
}

/// The epoch has no TTL: it stays, and is all that stays.
fn clean(server: &Server) {
    assert_eq!(server.ask::<i64>(&["DEL", EPOCH]), 1);
}

#[test]
fn a_new_server_is_quarantined_and_then_is_not() {
    let server = Server::start();
    let locks = strict(&server);
    assert!(!locks.try_lock("n").unwrap());
    assert!(!locks.is_locked("n").unwrap());
    let (got, took) = timed(|| locks.try_lock_for("n", LONG).unwrap());
    assert!(got && took <= LEASE + LATE, "{took:?}");
    locks.unlock("n").unwrap();
    assert!(locks.try_lock("n").unwrap());
    locks.unlock("n").unwrap();
    clean(&server);
}

#[test]
fn waiters_are_served_when_the_quarantine_ends() {
    let server = Server::start();
    let locks = settled(&server);
    server.clear();
    std::thread::scope(|scope| {
        let start = Mark::now();
        let waiters: Vec<_> = ["a", "b", "c"]
            .map(|name| spawn_asleep(scope, || locks.try_lock_for(name, LONG).unwrap() && locks.unlock(name).is_ok()))
            .into_iter()
            .collect();
        for waiter in waiters {
            let (got, at) = waiter.join().unwrap();
            assert!(got && at - start >= LEASE - ms(50) && at - start <= LEASE + SOON, "{:?}", at - start);
        }
    });
    clean(&server);
}

#[test]
fn a_lease_is_at_most_the_quarantine() {
    let server = Server::start();
    let locks = settled(&server);
    let wrong = locks.lock_with_lease("n", LEASE + ms(1)).unwrap_err();
    assert!(wrong.to_string().contains("watchdog_timeout"), "{wrong}");
    locks.lock_with_lease("n", LEASE).unwrap();
    let hold = locks.hold("n").unwrap();
    assert_err!(hold.extend(LEASE + ms(1)), Config);
    hold.extend(LEASE).unwrap();
    locks.unlock("n").unwrap();
    clean(&server);
}

#[test]
fn clients_that_disagree_on_the_quarantine_are_refused() {
    let server = Server::start();
    let locks = settled(&server);
    let error = strict_for(&server, LEASE * 2).lock("n").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("MISMATCH") && text.contains("900 ms") && text.contains("1800 ms"), "{text}");
    assert!(text.contains("ClientBuilder::strict says how to change it"), "{text}");
    drop(locks.guard("n").unwrap());
    clean(&server);
}

#[test]
fn the_epoch_follows_the_prefix_and_costs_no_command() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(LEASE).strict(true).key_prefix("shop:").build().unwrap();
    let locks = ReentrantLock::new(&client);
    assert!(locks.try_lock_for("n", LONG).unwrap());
    locks.unlock("n").unwrap();
    // The server learns the script of a release that nobody waits for.
    drop(locks.guard("n").unwrap());
    let commands = server.commands_during(|| drop(locks.guard("n").unwrap()));
    assert_eq!(commands.len(), 2, "{commands:?}");
    let epoch: String = server.ask(&["GET", "shop:redlatch:epoch"]);
    assert!(server.ask::<String>(&["INFO", "server"]).contains(epoch.split(' ').next().unwrap()));
}

#[test]
fn a_garbled_epoch_is_a_quarantine() {
    let server = Server::start();
    let locks = settled(&server);
    for garbage in ["", "garbage", "a b c", "x 900"] {
        server.ask::<String>(&["SET", EPOCH, garbage]);
        assert!(!locks.try_lock("n").unwrap(), "{garbage:?}");
    }
    server.ask::<i64>(&["DEL", EPOCH]);
    server.ask::<i64>(&["HSET", EPOCH, "a", "b"]);
    let error = locks.try_lock("n").unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    clean(&server);
}

/// Whoever comes first after a restart may have shorter leases than the holds that were forgotten.
#[test]
fn a_loss_does_not_change_what_was_agreed() {
    let server = Server::start();
    server.ask::<String>(&["SET", EPOCH, "another 1800 0"]);
    let error = strict(&server).try_lock("n").unwrap_err();
    assert!(error.to_string().contains("MISMATCH"), "{error}");
    let locks = strict_for(&server, LEASE * 2);
    let (got, took) = timed(|| locks.try_lock_for("n", LONG).unwrap());
    assert!(got && took >= LEASE && took <= LEASE * 2 + LATE, "{took:?}");
    locks.unlock("n").unwrap();
    clean(&server);
}

/// The end of a quarantine that was over is in the future again.
#[test]
fn a_server_whose_clock_went_back_is_quarantined_for_one_lease() {
    let server = Server::start();
    let locks = settled(&server);
    let epoch: String = server.ask(&["GET", EPOCH]);
    let (process, until) = epoch.rsplit_once(' ').unwrap();
    let ahead = until.parse::<u64>().unwrap() + 3_600_000_000;
    server.ask::<String>(&["SET", EPOCH, &format!("{process} {ahead}")]);
    let (got, took) = timed(|| locks.try_lock_for("n", LONG).unwrap());
    assert!(got && took >= LEASE - ms(50) && took <= LEASE + LATE, "{took:?}");
    locks.unlock("n").unwrap();
    clean(&server);
}

#[test]
fn a_user_without_info_is_told_so() {
    let server = Server::start();
    let client = Client::builder(&server.let_in("u", "p", "~* &* +@all -info")).strict(true).build().unwrap();
    let error = ReentrantLock::new(&client).try_lock("n").unwrap_err();
    assert!(error.to_string().to_lowercase().contains("info"), "{error}");
}

#[test]
fn a_plain_client_pays_nothing() {
    let server = Server::start();
    let locks = server.locks();
    drop(locks.guard("n").unwrap());
    assert_eq!(server.ask::<i64>(&["EXISTS", EPOCH]), 0);
}

/// Whoever took a lock there, with or without strict mode, would keep every strict client from locking.
#[test]
fn no_lock_can_be_where_the_epoch_is() {
    let server = Server::start();
    let (plain, strict) = (server.locks(), settled(&server));
    for locks in [&plain, &strict] {
        assert_err!(locks.try_lock(EPOCH), Config);
        assert_err!(locks.try_lock("shop:redlatch:epoch"), Config);
        assert_err!(locks.force_unlock(EPOCH), Config);
    }
    let prefixed = ReentrantLock::new(&server.builder().key_prefix("redlatch:").build().unwrap());
    assert_err!(prefixed.try_lock("epoch"), Config);
    assert!(strict.try_lock("redlatch:epochs").unwrap());
    strict.unlock("redlatch:epochs").unwrap();
    clean(&server);
}

/// A master that is replaced and becomes the master again must know that another one served meanwhile.
#[test]
fn who_prolongs_says_which_process_serves() {
    let server = Server::start();
    let lease = ms(2_500);
    let (locks, other) = (strict_for(&server, lease), strict_for(&server, lease));
    assert!(locks.try_lock_for("first", LONG).unwrap() && locks.unlock("first").is_ok());
    let foreign = format!("{} {} 0", "f".repeat(40), lease.as_millis());
    let own = || server.ask::<String>(&["GET", EPOCH]) != foreign;
    let guard = locks.guard("n").unwrap();
    server.ask::<String>(&["SET", EPOCH, &foreign]);
    eventually(lease, "a renewal has written it", own);
    assert!(guard.is_valid() && !other.try_lock("m").unwrap(), "what is granted anew waits for one lease");
    server.ask::<String>(&["SET", EPOCH, &foreign]);
    locks.lock("n").unwrap();
    assert!(own(), "a re-entry has written it");
    locks.unlock("n").unwrap();
    assert!(other.try_lock_for("m", LONG).unwrap());
    other.unlock("m").unwrap();
    guard.unlock().unwrap();
    drop((locks, other));
    // A renewal that is under way would write the epoch anew.
    eventually(LONG, "the clients are gone", || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() == 1);
    clean(&server);
}
