//! Calls whose request or reply fails at any byte.

use super::{EveryByte, Fault, Finds, Scene, names};
use crate::proxy::{Flow, runs};
use crate::threads::{LONG, eventually};
use redlatch::{HoldState, RedLock, RedLockExt, ReentrantLock};
use std::time::Duration;

macro_rules! finds {
    ($script:literal) => {
        |name: &str| -> Finds {
            let (runs, names) = (runs($script), names(name));
            Box::new(move |data| runs(Flow::Request, data) && names(data))
        }
    };
}

/// Long enough for many that are renewed at once on a busy machine.
const WATCHED: Duration = Duration::from_secs(6);

fn acquires() -> EveryByte {
    EveryByte::of(finds!("acquire"))
}

fn reenters() -> EveryByte {
    EveryByte::of(finds!("reenter"))
}

fn renews() -> EveryByte {
    EveryByte::of(finds!("renew"))
}

fn releases() -> EveryByte {
    EveryByte::of(finds!("release"))
}

#[test]
fn a_lock_is_held_once() {
    acquires().run(|scene: &Scene<'_, ReentrantLock>| {
        scene.arm();
        scene.lock();
        scene.assert_held(1);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn a_try_is_held_once_or_not_at_all() {
    acquires().run(|scene: &Scene<'_, ReentrantLock>| {
        scene.arm();
        let tried = scene.locks.try_lock(&scene.name);
        scene.assert_answered(&tried);
        if tried.is_ok_and(|got| got || panic!("nobody else has it: {:?}", scene.case)) {
            scene.assert_held(1);
            scene.unlock();
        }
        scene.assert_free();
    });
}

#[test]
fn a_try_of_a_taken_lock_is_refused() {
    acquires().run(|scene: &Scene<'_, ReentrantLock>| {
        scene.direct.lock(&scene.name).unwrap();
        scene.arm();
        let tried = scene.locks.try_lock(&scene.name);
        scene.assert_answered(&tried);
        assert!(!tried.unwrap_or(false), "{:?}", scene.case);
        scene.direct.unlock(&scene.name).unwrap();
        scene.assert_free();
    });
}

#[test]
fn an_unlock_gives_the_lock_back() {
    releases().run(|scene: &Scene<'_, ReentrantLock>| {
        let hold = scene.lock();
        scene.arm();
        scene.unlock();
        assert_eq!((hold.state(), hold.count()), (HoldState::Released, 0));
        scene.assert_free();
    });
}

#[test]
fn a_dropped_guard_gives_the_lock_back() {
    releases().run(|scene: &Scene<'_, ReentrantLock>| {
        let guard = scene.locks.guard(&scene.name).unwrap();
        scene.arm();
        drop(guard);
        scene.assert_free();
    });
}

#[test]
fn a_reentry_counts_once() {
    reenters().run(|scene: &Scene<'_, ReentrantLock>| {
        scene.lock();
        scene.arm();
        scene.lock();
        scene.assert_held(2);
        scene.unlock();
        assert_eq!(scene.locks.hold_count(&scene.name), 1);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn an_inner_unlock_counts_once() {
    releases().run(|scene: &Scene<'_, ReentrantLock>| {
        scene.lock();
        scene.lock();
        scene.arm();
        scene.unlock();
        // Told within one answer's time or not at all: then the depth that is shown stays too high.
        if scene.case.fault == Fault::Held && scene.case.flow == Flow::Request && scene.is_whole() {
            // Nobody waits for the server any more, which has all of it.
            eventually(LONG, "it is executed", || scene.server.owner(&scene.name).1 == 1);
        }
        let shown: &[i64] = match (scene.case.fault, scene.case.flow) {
            (Fault::Held, Flow::Request) if !scene.is_whole() => &[2],
            // The server may execute it at this very moment.
            (_, Flow::Reply) if !scene.is_sent() => &[1, 2],
            _ => &[1],
        };
        scene.assert_held_as(1, shown);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn an_extension_keeps_the_hold() {
    renews().run(|scene: &Scene<'_, ReentrantLock>| {
        let hold = scene.lock();
        scene.arm();
        hold.extend(Duration::from_secs(60)).unwrap();
        scene.assert_held(1);
        assert!(scene.server.pttl(&scene.name) > 50_000);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn the_watchdog_keeps_the_hold() {
    let every = EveryByte { watched: Some(WATCHED), lanes: 60, ..renews() };
    every.run(|scene: &Scene<'_, ReentrantLock>| {
        let hold = scene.lock();
        scene.arm();
        eventually(LONG, "a renewal fails", || scene.length.get().is_some());
        let renewals = || scene.locks.client().stats().renewals;
        let before = renewals();
        eventually(LONG, "it is renewed", || {
            assert!(hold.is_valid(), "lost: {hold:?} {:?}", scene.case);
            renewals() > before && hold.state() == HoldState::Held
        });
        scene.assert_held(1);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn a_verification_keeps_the_hold() {
    renews().run(|scene: &Scene<'_, ReentrantLock>| {
        let hold = scene.lock();
        scene.arm();
        let verified = scene.locks.verify(&hold);
        scene.assert_answered(&verified);
        assert!(verified.unwrap_or(true));
        scene.assert_held(1);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn a_force_unlock_takes_the_hold_away() {
    EveryByte::of(finds!("force_unlock")).run(|scene: &Scene<'_, ReentrantLock>| {
        scene.lock();
        scene.arm();
        scene.locks.force_unlock(&scene.name).unwrap();
        scene.assert_free();
        assert_err!(scene.locks.unlock(&scene.name), Lost);
    });
}
