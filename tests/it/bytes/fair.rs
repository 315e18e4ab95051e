//! Fair locks whose requests or replies fail at any byte: each thread has one place in the queue, and keeps it.

use super::{EveryByte, Finds, Scene, names};
use crate::proxy::{Flow, runs};
use crate::threads::{LONG, eventually, finish};
use redlatch::{CancelToken, FairLock, RedLock, RedLockExt};
use std::sync::Mutex;
use std::thread::scope;

macro_rules! finds {
    ($script:literal) => {
        |name: &str| -> Finds {
            let (runs, names) = (runs($script), names(name));
            Box::new(move |data| runs(Flow::Request, data) && names(data))
        }
    };
}

type Fair<'a> = Scene<'a, FairLock>;

impl Fair<'_> {
    /// The owner fields in the queue.
    fn queue(&self) -> Vec<String> {
        self.server.ask(&["LRANGE", &format!("redisson_lock_queue:{{{}}}", self.name), "0", "-1"])
    }

    /// The queue has so many threads, each of them once, in all its keys.
    fn assert_queue(&self, count: usize) {
        let size =
            |command: &str, key: &str| -> usize { self.server.ask(&[command, &format!("{key}:{{{}}}", self.name)]) };
        let sizes = || {
            [
                size("LLEN", "redisson_lock_queue"),
                size("ZCARD", "redisson_lock_timeout"),
                size("HLEN", "redlatch_tickets"),
            ]
        };
        eventually(LONG, &format!("{count} are queued: {:?}", self.case), || sizes() == [count; 3]);
    }

    fn is_behind(&self, owners: &[String]) -> bool {
        let client = self.locks.client().id().to_string();
        owners.iter().any(|owner| owner.starts_with(&client))
    }
}

/// The ask of a thread that waits fails. It has one place all the same, before that of one who came later.
#[test]
fn a_waiter_has_one_place_and_keeps_it() {
    EveryByte::of(finds!("fair/in_order+acquire")).run(|scene: &Fair<'_>| {
        let served = Mutex::new(Vec::new());
        let pass = |locks: &FairLock, number: usize| {
            let guard = locks.request(&scene.name).wait(LONG).guard().unwrap().expect("its turn");
            served.lock().unwrap().push(number);
            guard.unlock().unwrap();
        };
        scene.direct.lock(&scene.name).unwrap();
        scene.arm();
        scope(|scope| {
            let first = scope.spawn(|| pass(scene.locks, 0));
            eventually(LONG, &format!("the ask fails: {:?}", scene.case), || scene.is_sent());
            scene.assert_queue(1);
            assert!(scene.is_behind(&scene.queue()), "{:?}", scene.case);
            let second = scope.spawn(|| pass(scene.direct, 1));
            scene.assert_queue(2);
            scene.direct.unlock(&scene.name).unwrap();
            [first, second].into_iter().for_each(finish);
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1], "{:?}", scene.case);
        scene.assert_queue(0);
        scene.assert_free();
    });
}

#[test]
fn an_unlock_serves_the_next() {
    EveryByte::of(finds!("fair/release")).run(|scene: &Fair<'_>| {
        scene.locks.lock(&scene.name).unwrap();
        scope(|scope| {
            let next = scope.spawn(|| scene.direct.try_lock_for(&scene.name, LONG).unwrap());
            scene.assert_queue(1);
            scene.arm();
            scene.locks.unlock(&scene.name).unwrap();
            assert!(finish(next), "{:?}", scene.case);
        });
        let owner = scene.server.owner(&scene.name).0;
        assert!(!scene.is_behind(&[owner]), "{:?}", scene.case);
        scene.server.ask::<i64>(&["DEL", &scene.name]);
        scene.assert_queue(0);
    });
}

#[test]
fn a_force_unlock_serves_the_next() {
    EveryByte::of(finds!("fair/force_unlock")).run(|scene: &Fair<'_>| {
        scene.direct.lock(&scene.name).unwrap();
        scene.arm();
        scene.locks.force_unlock(&scene.name).unwrap();
        assert_err!(scene.direct.unlock(&scene.name), Lost);
        scene.assert_free();
    });
}

/// The sweeper takes the place of a cancelled call out, however often its command fails.
#[test]
fn a_cancelled_wait_leaves_no_place() {
    EveryByte::of(finds!("queue/leave_order")).run(|scene: &Fair<'_>| {
        scene.direct.lock(&scene.name).unwrap();
        let token = CancelToken::new();
        scope(|scope| {
            let waits =
                scope.spawn(|| scene.locks.request(&scene.name).wait(LONG).cancelled_by(&token).guard().map(drop));
            scene.assert_queue(1);
            scene.arm();
            token.cancel();
            assert!(finish(waits).is_err());
        });
        eventually(LONG, &format!("it leaves: {:?}", scene.case), || scene.is_sent());
        scene.assert_queue(0);
        scene.direct.unlock(&scene.name).unwrap();
        scene.assert_free();
    });
}
