//! The cap on renewals: nothing is renewed for ever.

use crate::server::Server;
use crate::threads::{LATE, LONG, WATCHED, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// Three of the watchdog's leases.
const CAP: Duration = Duration::from_millis(2_700);

fn capped(server: &Server) -> ReentrantLock {
    ReentrantLock::new(&server.builder().watchdog_timeout(WATCHED).max_hold(CAP).build().unwrap())
}

#[test]
fn a_hold_that_reaches_the_cap_is_lost_and_the_next_gets_the_lock() {
    let server = Server::start();
    let (holder, other) = (capped(&server), server.locks());
    let guard = holder.guard("n").unwrap();
    let (lost, held) = timed(|| guard.lost().recv_timeout(LONG).unwrap());
    assert_eq!(lost.cause(), LossCause::Overheld);
    assert!(held >= CAP - WATCHED && held <= CAP + LATE, "{held:?}");
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok());
        assert!(finish(waiter).0);
    });
    assert_eq!(guard.state(), HoldState::Lost);
    assert_err!(guard.unlock(), Lost);
}

#[test]
fn an_explicit_lease_is_not_capped() {
    let server = Server::start();
    let locks = capped(&server);
    locks.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    assert!(locks.hold("n").unwrap().remaining() > CAP * 10);
    locks.unlock("n").unwrap();
}

#[test]
fn an_extension_beyond_the_cap_is_the_last() {
    let server = Server::start();
    let locks = capped(&server);
    let guard = locks.guard("n").unwrap();
    eventually(LONG, "it was renewed", || guard.acquired_at().elapsed() > WATCHED);
    guard.extend(CAP).unwrap();
    let lost = guard.lost().recv_timeout(LONG).unwrap();
    assert_eq!(lost.cause(), LossCause::Overheld);
    assert!(guard.acquired_at().elapsed() > CAP + ms(200));
    assert_err!(guard.unlock(), Lost);
}
