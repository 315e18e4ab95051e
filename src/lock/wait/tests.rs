//! A lock that is passed on while its taker goes, or while it is taken away.

use super::super::local::engine_in_memory;
use super::*;
use crate::config::HandOff;
use crate::hold::HoldState;
use std::thread::ScopedJoinHandle;

const NAME: &str = "n";

/// What `act` of another thread gives.
fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn lock(engine: &Engine) -> Hold {
    acquire(engine, NAME, &Terms::new()).unwrap().unwrap()
}

/// The first thread locks, this one parks, the first unlocks: it was granted and has not looked yet.
fn granted<'a>(engine: &'a Engine, key: &'a Key) -> (Place<'a>, Hold) {
    let waiter = Arc::new(Waiter::new(true));
    let place = Place::new(engine, key, Arc::clone(&waiter));
    let first = elsewhere(|| {
        let hold = lock(engine);
        assert!(matches!(registry().enter(engine.space.id, key.full(), &waiter), Entered::Parked));
        engine.release(&hold).unwrap();
        hold
    });
    assert_eq!(first.state(), HoldState::Released);
    (place, first)
}

fn passing() -> Arc<Engine> {
    engine_in_memory(HandOff::default().within(Duration::from_secs(60)).in_order())
}

fn assert_free(engine: &Engine) {
    assert!(!engine.is_locked(NAME).unwrap());
    assert!(registry().current(engine.space.id, NAME).is_none());
    let hold = elsewhere(|| {
        let hold = lock(engine);
        engine.release(&hold).unwrap();
        hold
    });
    assert_eq!(hold.state(), HoldState::Released);
}

#[test]
fn a_waiter_that_goes_though_it_was_granted_releases_the_lock() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let (place, _) = granted(&engine, &key);
    assert!(engine.is_locked(NAME).unwrap());
    drop(place);
    assert_free(&engine);
}

#[test]
fn a_waiter_that_goes_though_it_was_granted_passes_it_to_the_next() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let (place, first) = granted(&engine, &key);
    std::thread::scope(|scope| {
        let next: ScopedJoinHandle<'_, _> = scope.spawn(|| {
            let hold = lock(&engine);
            engine.release(&hold).unwrap();
            hold.owner().to_owned()
        });
        while registry().census(engine.space.id).1 < 1 {
            std::thread::yield_now();
        }
        drop(place);
        assert_eq!(next.join().unwrap(), first.owner(), "by a pass");
    });
    assert_free(&engine);
}

#[test]
fn a_grant_that_was_forced_open_on_the_way_is_not_accepted() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let (place, _) = granted(&engine, &key);
    assert!(engine.force_unlock(NAME).unwrap());
    let Entered::Granted(hold) = registry().turn(engine.space.id, key.full(), &place.waiter) else {
        panic!("the grant was made")
    };
    assert!(!hold.is_valid() && !engine.accept(&hold).unwrap());
    drop(place);
    assert_free(&engine);
}

#[test]
fn a_grant_whose_deadline_passed_on_the_way_leads_to_a_new_tenure() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let (place, first) = granted(&engine, &key);
    first.tenure().lose();
    let place_waiter = Arc::clone(&place.waiter);
    let Entered::Granted(hold) = registry().turn(engine.space.id, key.full(), &place_waiter) else {
        panic!("the grant was made")
    };
    assert!(!engine.accept(&hold).unwrap());
    drop(place);
    let next = elsewhere(|| {
        let hold = lock(&engine);
        engine.release(&hold).unwrap();
        hold
    });
    assert_ne!(next.owner(), first.owner());
}

#[test]
fn a_kept_lock_that_nobody_can_take_any_more_is_released() {
    let engine = engine_in_memory(HandOff::default().within(Duration::from_secs(60)).turn(Duration::from_secs(60)));
    let key = engine.space.key(NAME).unwrap();
    let (place, first) = granted(&engine, &key);
    assert!(first.tenure().is_valid(), "it is kept");
    drop(place);
    while engine.is_locked(NAME).unwrap() {
        std::thread::yield_now();
    }
    assert!(!first.tenure().is_valid());
    assert_free(&engine);
}

#[test]
fn a_shutdown_releases_what_is_kept_and_what_is_granted() {
    for turn in [Duration::ZERO, Duration::from_secs(60)] {
        let engine = engine_in_memory(HandOff::default().within(Duration::from_secs(60)).turn(turn));
        let key = engine.space.key(NAME).unwrap();
        let (place, first) = granted(&engine, &key);
        engine.space.close();
        assert!(!first.tenure().is_valid());
        match registry().turn(engine.space.id, key.full(), &place.waiter) {
            Entered::Granted(hold) => assert!(!engine.accept(&hold).unwrap()),
            _ => assert_eq!(turn, Duration::from_secs(60)),
        }
        drop(place);
        assert_eq!(registry().census(engine.space.id), (0, 0));
    }
}
