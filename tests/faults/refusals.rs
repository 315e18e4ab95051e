//! Rows 8 to 11, 13, 18, 20 and 21: servers that answer, but do not do what they are asked.

use crate::hasty;
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms, timed};
use redlatch::{Applied, Error, RedLock, RedLockExt};

#[test]
fn fault_08_without_memory_a_lock_is_refused_and_a_hold_can_be_released() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = locks.guard("n").unwrap();
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let (result, took) = timed(|| locks.lock("m"));
    assert!(matches!(&result, Err(Error::Refused { code, applied: Applied::No, .. }) if code == "OOM"), "{result:?}");
    assert!(took <= ms(500) + SOON, "took {took:?}");
    guard.unlock().unwrap();
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
}

#[test]
fn fault_09_a_release_that_is_refused_ends_the_hold_all_the_same() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold().clone();
    server.ask::<String>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let result = guard.unlock();
    assert!(matches!(&result, Err(Error::Refused { code, .. }) if code == "NOREPLICAS"), "{result:?}");
    assert!(!hold.is_valid());
    assert_eq!((hold.count(), locks.hold_count("n")), (0, 0));
    server.ask::<String>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually(LONG, "it is released in the background", || !locks.is_locked("n").unwrap());
}

#[test]
fn fault_09_work_is_done_though_its_release_is_refused() {
    let server = Server::start();
    let locks = server.locks();
    let value = locks.execute_in_lock("n", || {
        server.ask::<String>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        42
    });
    assert_eq!(value.unwrap(), 42);
    server.ask::<String>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually(LONG, "it is released in the background", || !locks.is_locked("n").unwrap());
}
