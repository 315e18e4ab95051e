//! Servers that die, stop or refuse: rows of the fault matrix that need no proxy.

use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, WATCHED, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Applied, Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, Result};
use std::time::{Duration, Instant};

/// The locks of a client that gives up soon.
fn hasty(server: &Server) -> ReentrantLock {
    let builder = server.builder().watchdog_timeout(WATCHED).outage_budget(ms(500));
    ReentrantLock::new(&builder.build().unwrap())
}

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

#[test]
fn fault_05_a_flush_loses_every_hold() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guards = ["a", "b", "c"].map(|name| locks.guard(name).unwrap());
    server.ask::<String>(&["FLUSHALL"]);
    for guard in guards {
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
        assert_err!(guard.unlock(), Lost);
    }
}

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

#[test]
fn fault_44_a_guards_drop_is_bounded_by_one_answer() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().response_timeout(ms(300)).build().unwrap());
    let guard = locks.guard("n").unwrap();
    server.freeze();
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(300) + LATE, "took {took:?}");
    server.thaw();
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}
