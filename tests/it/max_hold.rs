//! The cap on renewals at its edges; that it ends a hold is row 41 of the fault matrix.

use crate::server::Server;
use crate::threads::{LONG, WATCHED, eventually, ms};
use redlatch::{LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// Three of the watchdog's leases.
const CAP: Duration = Duration::from_millis(2_700);

fn capped(server: &Server) -> ReentrantLock {
    ReentrantLock::new(&server.builder().watchdog_timeout(WATCHED).max_hold(CAP).build().unwrap())
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
