//! The cap on renewals at its edges; that it ends a hold is row 41 of the fault matrix.

use crate::server::Server;
use crate::threads::{LONG, WATCHED, eventually, finish, ms, spawn_asleep};
use redlatch::{HandOff, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

/// Two of the watchdog's leases.
const CAP: Duration = Duration::from_secs(4);

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

/// The cap is of a hold: who takes a lock over in memory has all of it, also when the first hold had come so near to its
/// cap that it was not renewed any more.
#[test]
fn a_hold_that_was_passed_on_has_its_own_cap() {
    let second = Duration::from_secs(1);
    let server = Server::start();
    let builder = server.builder().watchdog_timeout(3 * second).max_hold(second * 9 / 2);
    let client = builder.hand_off(HandOff::default().within(LONG).in_order()).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let work = || {
        let guard = locks.guard("n").unwrap();
        std::thread::sleep(second * 12 / 5);
        guard.unlock()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(work);
        eventually(LONG, "the first holds it", || client.stats().holds == 1);
        let others = [(); 2].map(|()| spawn_asleep(scope, work));
        finish(first).expect("the first hold");
        others.into_iter().for_each(|other| finish(other).0.expect("a later hold"));
    });
    assert!(client.stats().passes >= 1, "it was passed on");
}
