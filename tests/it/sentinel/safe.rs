//! Strict clients whose grants all replicas confirm: nobody else has a lock while one believes in it, whatever the failover lost.

use super::locks_of;
use crate::harness::sentinel::Group;
use crate::threads::{LONG, eventually, lost_within, ms};
use redlatch::{Error, HoldState, RedLock, RedLockExt, ReentrantLock};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(2);

/// A failover, the return of the old master as a replica, and the quarantine.
const WHOLE_AGAIN: Duration = Duration::from_secs(40);

fn safe(group: &Group) -> ReentrantLock {
    locks_of(group.builder().watchdog_timeout(LEASE).strict(true).sync_replicas(2, ms(300)))
}

/// Tries until it has the lock, whatever refuses it meanwhile.
fn eventually_locks(locks: &ReentrantLock, name: &str) {
    let got = || match locks.try_lock(name) {
        Ok(got) => got,
        Err(Error::Refused { .. } | Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => false,
        Err(error) => panic!("{error:?}"),
    };
    eventually(WHOLE_AGAIN, "it has the lock", got);
}

/// `replace` has another node become the master, and sees to it that the old one comes back.
fn nobody_has_what_another_believes_in(replace: impl FnOnce(&mut Group)) {
    let mut group = Group::start();
    let (locks, other) = (safe(&group), safe(&group));
    eventually_locks(&locks, "n");
    let hold = locks.hold("n").unwrap();
    assert_eq!(hold.confirmed_by(), Some((2, 2)));
    replace(&mut group);
    let replaced = Instant::now();
    eventually_locks(&other, "m");
    assert!(replaced.elapsed() >= LEASE - ms(50), "a new master grants nothing for one lease");
    if hold.state() == HoldState::Lost {
        eventually_locks(&other, "n");
        assert!(!hold.is_valid());
        assert!(matches!(locks.unlock("n"), Err(Error::Lost { .. })));
        other.unlock("n").unwrap();
    } else {
        assert!(!other.try_lock("n").unwrap(), "it is held");
        locks.unlock("n").unwrap();
    }
    other.unlock("m").unwrap();
}

#[test]
fn nobody_has_what_another_believes_in_when_the_master_dies() {
    nobody_has_what_another_believes_in(|group| {
        group.nodes[0].kill();
        group.replaced(0);
        group.nodes[0].restart();
    });
}

#[test]
fn nobody_has_what_another_believes_in_when_the_master_gives_way() {
    nobody_has_what_another_believes_in(|group| group.fail_over(0));
}

/// It goes on as a master when it wakes, until it is told that it is none.
#[test]
fn nobody_has_what_another_believes_in_when_the_master_stands_still() {
    nobody_has_what_another_believes_in(|group| {
        group.nodes[0].freeze();
        group.replaced(0);
        group.nodes[0].thaw();
    });
}

/// The master that is cut off answers its clients all the same, and can prolong nothing.
#[test]
fn a_master_without_its_replicas_prolongs_nothing() {
    let group = Group::start();
    let locks = safe(&group);
    eventually_locks(&locks, "n");
    let guard = locks.guard("n").unwrap();
    group.sever(0);
    lost_within(LEASE + ms(500), &guard);
    // A server that gets no core in time leaves it unknown, and grants nothing all the same.
    eventually(LONG, "it says why", || {
        let refused = locks.try_lock("m").unwrap_err();
        assert!(matches!(refused, Error::Refused { .. } | Error::OutcomeUnknown { .. }), "{refused:?}");
        matches!(&refused, Error::Refused { code, .. } if code == "NOREPLICAS")
    });
    assert_eq!(group.nodes[0].role(), "master");
}
