//! Rows 1, 3, 4 and 12: servers that die, stop or load.

use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, OUTLIVED, SOON, eventually, finish, ms, patiently, spawn_asleep, timed};
use crate::{LEASE, hasty};
use redlatch::{Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, Result};
use std::time::Duration;

#[test]
fn fault_01_a_server_that_restarts_empty_loses_the_holds() {
    let mut server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    let lost = guard.lost();
    server.kill();
    server.restart();
    let cause = lost.recv_timeout(LONG).unwrap().cause();
    assert!(matches!(cause, LossCause::Removed | LossCause::Expired), "{cause:?}");
    assert_err!(guard.unlock(), Lost);
    drop(patiently(|| locks.guard("n")));
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

/// Without strict mode nobody waits for a lost hold to end: for a while two believe to hold the lock. The first is
/// told within a third of the lease.
#[test]
fn fault_01_what_an_emptied_server_grants_is_reported_to_the_former_holder() {
    let mut server = Server::start();
    let (first, second) = (server.locks_watched(LEASE), server.locks_watched(LEASE));
    let guard = first.guard("n").unwrap();
    let lost = guard.lost();
    server.kill();
    server.restart();
    let restarted = Mark::now();
    let successor = second.guard("n").unwrap();
    assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    let took = restarted.elapsed();
    assert!(took <= LEASE / 3 + LATE, "told after {took:?}");
    assert!(first.is_locked("n").unwrap());
    assert_err!(guard.unlock(), Lost);
    assert!(second.verify(&successor).unwrap(), "the late release of the first does not free the second's");
}

/// Makes a server forget what it was told during `act`.
fn forgetting<T>(server: &mut Server, act: impl FnOnce(&Server) -> T) -> T {
    let kept = server.written();
    let value = act(server);
    server.lose_power(kept);
    server.restart();
    value
}

#[test]
fn fault_03_an_acquisition_that_never_reached_the_disk_is_lost() {
    let mut server = Server::start_with_data();
    let locks = server.locks_watched(LEASE);
    let kept = locks.guard("kept").unwrap();
    let guard = forgetting(&mut server, |_| locks.guard("n").unwrap());
    assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    assert_err!(guard.unlock(), Lost);
    eventually(LONG, "the older hold goes on", || kept.state() == HoldState::Held);
    assert!(locks.verify(&kept).unwrap());
}

#[test]
fn fault_03_a_release_that_never_reached_the_disk_blocks_until_the_lease_ends() {
    let mut server = Server::start_with_data();
    let locks = server.locks();
    let guard = locks.request("n").lease(OUTLIVED).guard().unwrap().unwrap();
    let taken = Mark::now();
    forgetting(&mut server, |_| guard.unlock().unwrap());
    assert!(!locks.try_lock("n").unwrap() || taken.elapsed() >= OUTLIVED, "its key came back");
    assert!(locks.try_lock_for("n", LONG).unwrap());
    let took = taken.elapsed();
    assert!(took <= OUTLIVED + SOON, "free after {took:?}");
    locks.unlock("n").unwrap();
}

#[test]
fn fault_03_an_extension_that_never_reached_the_disk_is_found_out_by_asking() {
    let mut server = Server::start_with_data();
    let locks = server.locks();
    let guard = locks.request("n").lease(OUTLIVED).guard().unwrap().unwrap();
    forgetting(&mut server, |_| guard.extend(Duration::from_secs(60)).unwrap());
    eventually(LONG, "the key ends with its first lease", || server.pttl("n") == -2);
    assert!(guard.is_valid(), "nobody told the holder");
    assert!(!locks.verify(&guard).unwrap());
    assert_err!(guard.unlock(), Lost);
}

/// That a call to a stopped server fails in time, and leaves no lock behind once the server goes on.
fn assert_bounded(call: impl FnOnce(&ReentrantLock) -> Result<()>, bound: Duration) {
    let server = Server::start();
    let locks = hasty(&server);
    drop(patiently(|| locks.guard("n")));
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

/// How often the server ran a command, from a script or not.
fn runs_of(server: &Server, command: &str) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next());
    line.map_or(0, |calls| calls.parse().unwrap())
}

/// A stopped server that goes on finds the requests of callers who gave up long ago.
#[test]
fn fault_04_what_waited_at_a_stopped_server_takes_no_lock() {
    let server = Server::start();
    let locks = hasty(&server);
    drop(patiently(|| locks.guard("n")));
    let (scripts, taken) = (runs_of(&server, "evalsha"), runs_of(&server, "hset"));
    server.freeze();
    assert!(locks.try_lock("n").is_err());
    server.thaw();
    eventually(LONG, "the request and its sweep were run", || runs_of(&server, "evalsha") >= scripts + 2);
    assert_eq!((runs_of(&server, "hset"), server.pttl("n")), (taken, -2));
}

#[test]
fn fault_04_a_hold_of_a_stopped_server_turns_suspect_and_lost() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
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
