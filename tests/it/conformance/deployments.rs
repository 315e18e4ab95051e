//! What the tests rely on at each deployment, and what a client does when it goes and comes back.

use super::{Deployment, reentrant};
use crate::threads::{LONG, finish, spawn_asleep};
use redlatch::{Command, Error, RedLock, RedLockExt};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub(super) fn what_is_left_is_seen<D: Deployment>() {
    let deployment = D::start();
    let locks = reentrant(deployment.builder());
    assert_eq!(deployment.leftovers(), [""; 0]);
    locks.lock("n").unwrap();
    assert!(deployment.leftovers().iter().any(|left| left.ends_with('n')), "{:?}", deployment.leftovers());
    locks.unlock("n").unwrap();
}

/// Their keys have no prefix, so that the name is one that no other test has there.
pub(super) fn commands_run_while_it_is_held<D: Deployment>() {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{{commands-{}}}", NUMBER.fetch_add(1, SeqCst));
    let deployment = D::start();
    let [first, second] = [(); 2].map(|()| reentrant(deployment.builder()));
    let key = format!("{name}:count");
    let count = || Command::new("INCR").key(&key);
    let guard = first.guard(&name).unwrap();
    for number in 1..=3 {
        assert_eq!(first.while_held(guard.hold(), &[count()]).unwrap()[0].integer(), Some(number));
    }
    assert!(second.force_unlock(&name).unwrap());
    let next = second.guard(&name).unwrap();
    assert_err!(first.while_held(guard.hold(), &[count()]), Lost);
    let answers = second.while_held(next.hold(), &[count(), Command::new("DEL").key(&key)]).unwrap();
    assert_eq!(answers[0].integer(), Some(4), "the one that lost it counted nothing");
    next.unlock().unwrap();
    assert_err!(guard.unlock(), Lost);
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
