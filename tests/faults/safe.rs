//! Rows 81 to 83: what a failover takes away that was not replicated, for clients that want nobody to hold it twice.

use crate::proxy::Gate;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, lost_within};
use crate::{MINUTE, locks_of};
use harness::sentinel::{Cut, Group, PATIENCE, Shape};
use redlatch::{ClientBuilder, Error, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(2);

/// How long replicas are waited for.
const WAIT: Duration = Duration::from_millis(300);

fn strict(builder: ClientBuilder) -> ReentrantLock {
    locks_of(builder.watchdog_timeout(LEASE).strict(true))
}

/// Tries until it has the lock, whatever refuses it meanwhile; whether it was told to wait.
#[track_caller]
fn eventually_locks(locks: &ReentrantLock, name: &str) -> bool {
    let mut was_busy = false;
    eventually(PATIENCE, "it has the lock", || match locks.try_lock(name) {
        Ok(got) => {
            was_busy |= !got;
            got
        }
        Err(error) => {
            assert!(error.is_retryable() || matches!(error, Error::Refused { .. }), "{error:?}");
            false
        }
    });
    was_busy
}

/// A new process may have forgotten holds, so it grants nothing until each of them is over.
#[test]
fn fault_81_strict_a_new_master_grants_nothing_for_one_lease() {
    let mut group = Group::of(Shape::SMALL);
    let [locks, other] = [(); 2].map(|()| strict(group.builder()));
    eventually_locks(&locks, "first");
    locks.unlock("first").unwrap();
    group.replicated(0);
    group.sever(0);
    let guard = locks.guard("n").unwrap();
    group.nodes[0].kill();
    let killed = Mark::now();
    group.replaced(0);
    assert!(eventually_locks(&other, "n"), "it was not busy");
    assert!(!guard.is_valid(), "two hold it");
    assert!(killed.elapsed() >= LEASE, "granted after {:?}", killed.elapsed());
    assert!(matches!(lost_within(SOON, &guard), LossCause::Removed | LossCause::Expired));
    assert_err!(guard.unlock(), Lost);
    other.unlock("n").unwrap();
}

/// Its clients reach it, and it answers; but without its replicas it can grant and prolong nothing, and by the time that
/// another master grants the lock nobody believes in what this one granted.
#[test]
fn fault_82_strict_and_confirmed_a_master_that_is_cut_off_makes_no_second_holder() {
    let (group, gate) = (Group::of(Shape::APART), Gate::default());
    group.hurry(true);
    let safe = || strict(group.builder_past_proxies().sync_replicas(2, WAIT).outage_budget(WAIT));
    let [locks, other] = [(); 2].map(|()| safe());
    eventually_locks(&locks, "n");
    let hold = locks.hold("n").unwrap();
    assert_eq!(hold.confirmed_by(), Some((2, 2)));
    group.nodes[0].cut_off(Cut::Hard, &gate);
    let new = group.replaced(0);
    assert!(group.nodes[0].says_master() && group.nodes[0].takes_writes(), "nobody can tell it to give way");
    let since = Mark::now();
    gate.open();
    group.nodes[0].join();
    lost_within(LEASE + LATE, &hold);
    eventually_locks(&other, "n");
    assert!(!hold.is_valid(), "two hold it");
    assert!(group.nodes[new].pttl("n") > 0 && other.hold("n").unwrap().confirmed_by() == Some((2, 2)));
    println!("granted {:?} after the new master was named", since.elapsed());
    assert_err!(locks.unlock("n"), Lost);
    other.unlock("n").unwrap();
}

/// A master, a replica that is never to be promoted, which confirms everything, and one that learns nothing from now on.
fn with_one_that_is_passed_over() -> Group {
    let group = Group::start();
    group.hurry(true);
    let _: String = group.nodes[2].ask(&["CONFIG", "SET", "replica-priority", "0"]);
    let known = || group.sentinels.iter().all(|sentinel| sentinel.passes_over(&group.nodes[2]));
    eventually(PATIENCE, "all sentinels know it", known);
    group.hurry(false);
    let _: String = group.nodes[1].ask(&["REPLICAOF", "127.0.0.1", "1"]);
    group
}

/// One confirmation may be that of a replica which never becomes the master: so all have to confirm.
#[test]
fn fault_83_a_confirmation_by_a_replica_of_priority_0_is_worth_nothing_and_all_are_enough() {
    let mut group = with_one_that_is_passed_over();
    let of = |replicas: usize, budget| {
        locks_of(group.builder().watchdog_timeout(MINUTE).sync_replicas(replicas, WAIT).outage_budget(budget))
    };
    // A replica that has just been linked may not hear of more for a second.
    let (one, all) = (of(1, LONG), of(2, WAIT));
    let guard = one.guard("n").unwrap();
    assert_eq!(guard.confirmed_by(), Some((1, 1)));
    // On a busy machine the other one may be late, too.
    eventually(LONG, "one of two confirms it", || {
        let refused = all.try_lock("m").unwrap_err();
        let is_refusal = matches!(&refused, Error::Refused { code, .. } if code == "NOREPLICAS");
        assert!(is_refusal || refused.is_retryable(), "{refused:?}");
        is_refusal && refused.to_string().contains("1 of 2")
    });
    group.nodes[0].kill();
    assert_eq!(group.replaced(0), 1);
    assert_eq!(lost_within(SOON, &guard), LossCause::Removed);
    assert_err!(guard.unlock(), Lost);
}
