//! Rows 1 to 4, 12 and 19: servers that die, stop, load or are replaced.

use crate::hasty;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, Result};
use std::time::Duration;

#[test]
fn fault_01_a_server_that_restarts_empty_loses_the_holds() {
    let mut server = Server::start();
    let locks = hasty(&server);
    let guard = locks.guard("n").unwrap();
    let lost = guard.lost();
    server.kill();
    server.restart();
    let cause = lost.recv_timeout(LONG).unwrap().cause();
    assert!(matches!(cause, LossCause::Removed | LossCause::Expired), "{cause:?}");
    assert_err!(guard.unlock(), Lost);
    drop(locks.guard("n").unwrap());
}

#[test]
fn fault_01_waiters_ride_out_a_restart() {
    let mut server = Server::start();
    let (holder, waiting) = (server.locks(), server.locks());
    let guard = holder.request("n").lease(Duration::from_secs(60)).guard().unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.try_lock_for("n", LONG).unwrap() && waiting.unlock("n").is_ok());
        server.kill();
        server.restart();
        assert!(finish(waiter).0);
    });
    assert!(!holder.verify(&guard).unwrap());
    assert_err!(guard.unlock(), Lost);
}

/// That a call to a stopped server fails in time, and leaves no lock behind once the server goes on.
fn assert_bounded(call: impl FnOnce(&ReentrantLock) -> Result<()>, bound: Duration) {
    let server = Server::start();
    let locks = hasty(&server);
    drop(locks.guard("n").unwrap());
    server.freeze();
    let (result, took) = timed(|| call(&locks));
    server.thaw();
    assert!(matches!(result, Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })), "{result:?}");
    assert!(took <= bound, "took {took:?}");
    eventually(LONG, "what may have been applied is swept", || !locks.is_locked("n").unwrap());
}

#[test]
fn fault_04_a_timed_wait_for_a_stopped_server_is_bounded() {
    assert_bounded(|locks| locks.try_lock_for("n", ms(400)).map(drop), ms(400) + LATE);
}

#[test]
fn fault_04_a_try_at_a_stopped_server_is_bounded_by_one_answer() {
    assert_bounded(|locks| locks.try_lock("n").map(drop), ms(300) + LATE);
}

#[test]
fn fault_04_a_wait_for_a_stopped_server_is_bounded_by_the_outage_budget() {
    assert_bounded(|locks| locks.lock("n"), ms(500) + SOON);
}

#[test]
fn fault_04_a_hold_of_a_stopped_server_turns_suspect_and_lost() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = locks.guard("n").unwrap();
    server.freeze();
    let mut suspect = false;
    eventually(LONG, "it is lost", || {
        suspect |= guard.state() == HoldState::Suspect;
        guard.state() == HoldState::Lost
    });
    assert!(suspect, "it was never suspect");
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert!(!guard.is_valid());
    server.thaw();
    assert_err!(guard.unlock(), Lost);
}

#[test]
fn fault_04_a_short_stop_is_ridden_out() {
    let server = Server::start();
    let locks = server.locks_watched(Duration::from_secs(6));
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        server.freeze();
        let inner = spawn_asleep(scope, || locks.try_lock_for("m", LONG).unwrap() && locks.unlock("m").is_ok());
        server.thaw();
        assert!(finish(inner).0);
    });
    assert!(guard.is_valid() && locks.verify(&guard).unwrap());
}
