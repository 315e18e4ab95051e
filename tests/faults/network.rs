//! Rows 22 to 30: the network between client and server.

use crate::hasty;
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms, timed};
use redlatch::{Error, RedLock, RedLockExt};
use std::time::Instant;

#[test]
fn fault_22_a_dead_server_is_ridden_out_until_the_budget_ends() {
    let mut server = Server::start();
    let locks = hasty(&server);
    drop(locks.guard("n").unwrap());
    server.kill();
    let (result, took) = timed(|| locks.lock("n"));
    assert!(matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })), "{result:?}");
    assert!(took >= ms(400) && took <= ms(500) + SOON, "took {took:?}");
    let start = Instant::now();
    assert!(locks.lock("n").is_err());
    assert!(start.elapsed() < SOON, "the outage is known, not every call waits again");
    server.restart();
    drop(locks.guard("n").unwrap());
}

#[test]
fn fault_25_an_unlock_without_an_answer_ends_the_hold_all_the_same() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold().clone();
    server.freeze();
    let (result, took) = timed(|| guard.unlock());
    assert!(result.is_err() && took <= ms(900) + SOON, "{result:?} took {took:?}");
    assert!(!hold.is_valid());
    assert_eq!((hold.count(), locks.hold_count("n")), (0, 0));
    server.thaw();
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}
