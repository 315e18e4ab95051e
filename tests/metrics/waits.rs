//! Calls that acquire: how they end, how long they take, who waits, and how fast a lock is handed on.

use crate::process::alone;
use crate::recorded::install;
use crate::server::Server;
use crate::threads::{LONG, answered, elsewhere, eventually, finish, ms, spawn_asleep};
use redlatch::{
    CancelToken, CountDownLatch, FairLock, HandOff, LeasedSemaphore, MultiLock, RedLock, ReentrantLock, Semaphore,
    Terms,
};
use std::thread::scope;

#[test]
fn each_end_of_a_call_is_recorded_once() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (holder, locks, token) = (server.locks(), server.locks(), CancelToken::new());
        holder.lock("n").unwrap();
        assert_eq!(recorded.ends(&["kind=\"reentrant_lock\""]), [1, 0, 0, 0, 0]);
        assert!(!locks.try_lock("n").unwrap());
        assert_eq!(recorded.ends(&[]), [1, 1, 0, 0, 0]);
        let mut tried = 0;
        answered(|| {
            tried += 1;
            locks.try_lock_for("n", ms(200))
        });
        let [_, _, late, _, errors] = recorded.ends(&[]);
        assert!(late >= 1 && late + errors == tried);
        token.cancel();
        assert_err!(locks.lock_cancellable("n", &token), Cancelled);
        assert_eq!(recorded.ends(&[]), [1, 1, late, 1, errors]);
        assert_err!(locks.lock(""), Config);
        assert_eq!(recorded.ends(&[]), [1, 1, late, 1, errors + 1]);
        let waits = recorded.times(&["redlatch_acquire_wait_seconds", "timed_out"]);
        assert!(waits.iter().all(|wait| *wait >= 0.2), "{waits:?}");
        holder.unlock("n").unwrap();
    });
}

#[test]
fn a_call_that_enters_its_own_hold_is_no_acquire() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let locks = server.locks();
        (0..3).for_each(|_| locks.lock("n").unwrap());
        (0..3).for_each(|_| locks.unlock("n").unwrap());
        assert_eq!(recorded.ends(&[]), [1, 0, 0, 0, 0]);
    });
}

#[test]
fn a_group_is_one_call() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (holder, locks) = (server.locks(), server.locks());
        let fair = FairLock::new(locks.client());
        let group = MultiLock::of([(&locks as &dyn RedLock, "a"), (&fair, "b"), (&locks, "c")]);
        group.lock().unwrap();
        group.lock().unwrap();
        group.unlock().unwrap();
        group.unlock().unwrap();
        assert_eq!(recorded.ends(&[]), [1, 0, 0, 0, 0]);
        holder.lock("c").unwrap();
        assert!(!group.try_lock().unwrap());
        let ends = recorded.ends(&["kind=\"multi_lock\""]);
        assert_eq!((ends, recorded.ends(&["kind=\"fair_lock\""])), ([1, 1, 0, 0, 0], [0; 5]));
        assert!(!answered(|| group.try_lock_for(ms(100))).0);
        let [acquired, busy, late, cancelled, _] = recorded.ends(&["kind=\"multi_lock\""]);
        assert_eq!((acquired, busy, late, cancelled), (1, 1, 1, 0));
        assert_eq!(recorded.ends(&["kind=\"reentrant_lock\""]), [1, 0, 0, 0, 0], "the holder's");
        holder.unlock("c").unwrap();
    });
}

#[test]
fn permits_and_latches_are_kinds_too() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let client = server.builder().build().unwrap();
        let (leased, counted) = (LeasedSemaphore::new(&client), Semaphore::new(&client));
        let latches = CountDownLatch::new(&client);
        leased.try_set_permits("leased", 1).unwrap();
        counted.try_set_permits("counted", 1).unwrap();
        let permits = (leased.try_acquire("leased", 1).unwrap(), counted.try_acquire("counted", 1).unwrap());
        assert!(permits.0.is_some() && permits.1.is_some());
        assert!(leased.try_acquire("leased", 1).unwrap().is_none());
        assert!(counted.try_acquire("counted", 1).unwrap().is_none());
        latches.try_set_count("latch", 1, None).unwrap();
        assert!(!latches.wait("latch", &Terms::new().wait(ms(0))).unwrap());
        latches.open("latch").unwrap();
        assert!(latches.wait("latch", &Terms::new()).unwrap());
        for kind in ["leased_semaphore", "semaphore", "latch"] {
            assert_eq!(recorded.ends(&[&format!("kind=\"{kind}\"")]), [1, 1, 0, 0, 0], "{kind}");
        }
        assert_eq!(recorded.sum(&["redlatch_held"]), 1.0, "permits without a lease are no hold");
        drop(permits);
        assert_eq!(recorded.times(&["redlatch_hold_seconds", "leased_semaphore"]).len(), 1);
    });
}

#[test]
fn waiters_are_counted_while_they_wait() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (holder, locks) = (server.locks(), server.locks());
        holder.lock("n").unwrap();
        scope(|scope| {
            let pass = || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok();
            let waiting = [spawn_asleep(scope, pass), spawn_asleep(scope, pass)];
            eventually(LONG, "both wait", || recorded.sum(&["redlatch_waiters"]) == 2.0);
            holder.unlock("n").unwrap();
            assert!(waiting.into_iter().all(|waiting| finish(waiting).0));
        });
        assert_eq!(recorded.sum(&["redlatch_waiters"]), 0.0);
    });
}

#[test]
fn a_hand_off_counts_from_the_wake() {
    alone(|| {
        let recorded = install();
        let hand_offs = || recorded.times(&["redlatch_handoff_seconds"]);
        let server = Server::start();
        let (one, other) = (server.locks(), server.locks());
        one.lock("n").unwrap();
        one.unlock("n").unwrap();
        assert_eq!(hand_offs().len(), 0, "nobody waited");
        // From process to process, by a message.
        one.lock("n").unwrap();
        scope(|scope| {
            let waiting = spawn_asleep(scope, || other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok());
            std::thread::sleep(ms(300));
            one.unlock("n").unwrap();
            assert!(finish(waiting).0);
        });
        let (seen, waits) = (hand_offs(), recorded.times(&["redlatch_acquire_wait_seconds", "acquired"]));
        let longest = waits.into_iter().fold(0.0, f64::max);
        assert!(seen.len() == 1 && seen[0] > 0.0 && seen[0] + 0.3 <= longest, "{seen:?} of {longest}");
        // From thread to thread, in memory.
        let locks = ReentrantLock::new(&server.builder().hand_off(HandOff::default().within(LONG)).build().unwrap());
        locks.lock("m").unwrap();
        scope(|scope| {
            let waiting = spawn_asleep(scope, || locks.lock("m").is_ok() && locks.unlock("m").is_ok());
            locks.unlock("m").unwrap();
            assert!(finish(waiting).0);
        });
        assert_eq!((hand_offs().len(), locks.client().stats().passes), (2, 1));
    });
}

/// The key is gone without a message: the waiter finds that by itself.
#[test]
fn a_call_that_nobody_woke_has_no_hand_off() {
    alone(|| {
        let recorded = install();
        let server = Server::start();
        let (holder, locks) = (server.locks(), server.locks());
        holder.lock_with_lease("n", ms(500)).unwrap();
        let waited = elsewhere(|| locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
        assert!(waited);
        assert_eq!(recorded.times(&["redlatch_handoff_seconds"]), [0.0; 0]);
    });
}
