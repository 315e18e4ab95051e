//! What the tests rely on at each deployment, and what a client does when it goes and comes back.

use super::{Deployment, reentrant};
use crate::threads::{LONG, finish, spawn_asleep};
use redlatch::{Error, RedLock, RedLockExt};

pub(super) fn what_is_left_is_seen<D: Deployment>() {
    let deployment = D::start();
    let locks = reentrant(deployment.builder());
    assert_eq!(deployment.leftovers(), [""; 0]);
    locks.lock("n").unwrap();
    assert!(deployment.leftovers().iter().any(|left| left.ends_with('n')), "{:?}", deployment.leftovers());
    locks.unlock("n").unwrap();
}

pub(super) fn a_lock_waits_for_it_to_come_back<D: Deployment>() {
    let mut deployment = D::start_alone();
    let locks = reentrant(deployment.builder().outage_budget(LONG));
    drop(locks.guard("n").unwrap());
    deployment.kill();
    assert!(locks.try_lock("n").is_err_and(|error: Error| error.is_retryable()));
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("n").and_then(|()| locks.unlock("n")));
        deployment.restart();
        finish(waiter).0.unwrap();
    });
}
