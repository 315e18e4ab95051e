//! Rows 1, 3 and 5 in strict mode: after the server lost its data no lock is granted until every hold that it forgot is
//! over.

use crate::locks_of;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, ms, timed};
use redlatch::{LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// A server is started anew in less, also on a machine that has other work.
const LEASE: Duration = Duration::from_secs(3);

fn strict(server: &Server) -> ReentrantLock {
    locks_of(server.builder().watchdog_timeout(LEASE).strict(true))
}

/// A strict client of a server whose first quarantine is over.
fn settled(server: &Server) -> ReentrantLock {
    let locks = strict(server);
    assert!(locks.try_lock_for("first", LONG).unwrap());
    locks.unlock("first").unwrap();
    locks
}

/// Nobody gets the lock while its forgotten holder believes in it, and then somebody does.
fn assert_never_two(locks: &ReentrantLock, other: &ReentrantLock, lose: impl FnOnce()) {
    let guard = locks.guard("n").unwrap();
    let (lost, before) = (guard.lost(), Mark::now());
    lose();
    assert!(other.try_lock_for("n", LONG).unwrap());
    assert!(!guard.is_valid(), "two hold it");
    assert!(before.elapsed() >= LEASE, "granted after {:?}", before.elapsed());
    assert!(matches!(lost.recv_timeout(SOON).unwrap().cause(), LossCause::Removed | LossCause::Expired));
    assert_err!(guard.unlock(), Lost);
    other.unlock("n").unwrap();
}

/// The epoch has no TTL: it stays, and is all that stays. A renewal that is still under way when the lock is given up writes it anew, so
/// the clients go first.
fn clean(server: &Server, clients: [ReentrantLock; 2]) {
    drop(clients);
    let others = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
    eventually(LONG, "the clients are gone", || others() == 0);
    assert_eq!(server.ask::<i64>(&["DEL", "redlatch:epoch"]), 1);
}

#[test]
fn fault_01_strict_a_server_that_restarts_empty_grants_nothing_for_one_lease() {
    let mut server = Server::start();
    let (locks, other) = (settled(&server), strict(&server));
    assert_never_two(&locks, &other, || {
        server.kill();
        server.restart();
    });
    clean(&server, [locks, other]);
}

/// Its process is another one: what it wrote last may be missing.
#[test]
fn fault_03_strict_a_server_that_restarts_with_its_data_grants_nothing_new_for_one_lease() {
    let mut server = Server::start_with_data();
    let (locks, other) = (settled(&server), strict(&server));
    let guard = locks.guard("n").unwrap();
    server.kill();
    server.restart();
    let (got, took) = timed(|| other.try_lock_for("m", LONG).unwrap());
    assert!(got && took >= LEASE - ms(50), "{took:?}");
    assert!(guard.is_valid() && locks.verify(&guard).unwrap(), "it goes on being renewed");
    guard.unlock().unwrap();
    other.unlock("m").unwrap();
    clean(&server, [locks, other]);
}

#[test]
fn fault_05_strict_a_flushed_server_grants_nothing_for_one_lease() {
    let server = Server::start();
    let (locks, other) = (settled(&server), strict(&server));
    assert_never_two(&locks, &other, || server.clear());
    clean(&server, [locks, other]);
}
