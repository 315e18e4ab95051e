//! Two kinds on one client and one name; and a kind whose tenures threads share.

use super::super::acquire::acquire;
use super::super::patience::Terms;
use super::*;
use crate::base::config::HandOff;
use crate::lock::kinds::local::engine_in_memory;
use crate::registry::current_thread;

const NAME: &str = "n";

static OTHER: Kind = Kind::new("other lock");
static SHARED: Kind = Kind { passed_on: false, shared: true, ..Kind::new("shared lock") };
static MINTED: Kind = Kind { passed_on: false, ..Kind::new("lock with a token") };

fn engine() -> Arc<Engine> {
    engine_in_memory(HandOff::default().within(Duration::from_secs(60)))
}

/// Locks of another kind on the same client, in the same store.
fn beside(engine: &Engine, kind: &'static Kind) -> Arc<Engine> {
    Engine::new(Arc::clone(&engine.space), kind, Arc::clone(&engine.primitive), Arc::clone(&engine.health))
}

fn lock(engine: &Engine) -> Hold {
    acquire(engine, NAME, &Terms::new()).unwrap().unwrap()
}

fn try_lock(engine: &Engine) -> Option<Hold> {
    acquire(engine, NAME, &Terms::new().wait(Duration::ZERO)).unwrap()
}

fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
fn a_hold_of_another_kind_is_refused_and_named() {
    let engine = engine();
    let (other, hold) = (beside(&engine, &OTHER), lock(&engine));
    let refusals = [
        acquire(&other, NAME, &Terms::new()).map(drop),
        other.unlock(NAME),
        other.release(&hold),
        other.verify(&hold).map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        assert!(error.to_string().contains("as a local lock: use that, or another name for the other lock"), "{error}");
    }
    assert!(other.hold_of(NAME, current_thread()).is_none());
    assert_eq!((hold.count(), hold.is_valid()), (1, true));
    engine.release(&hold).unwrap();
    let hold = lock(&other);
    other.release(&hold).unwrap();
}

/// Who waits for a lock of another kind cannot go on with the tenure, and so comes when it has ended.
#[test]
fn a_tenure_is_passed_on_within_its_kind() {
    for (kind, passed) in [(None, true), (Some(&OTHER), false), (Some(&MINTED), false)] {
        let engine = engine();
        let kind = kind.unwrap_or(engine.kind);
        let (other, hold) = (beside(&engine, kind), lock(&engine));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let hold = lock(&other);
                other.release(&hold).unwrap();
                hold
            });
            while engine.space.stats(None).waiters == 0 {
                std::thread::yield_now();
            }
            engine.release(&hold).unwrap();
            let next = waiting.join().unwrap();
            assert_eq!(Arc::ptr_eq(next.tenure(), hold.tenure()), passed, "{}", kind.name);
        });
    }
}

#[test]
fn what_is_minted_for_a_hold_is_not_passed_on() {
    let engine = engine();
    let minted = beside(&engine, &MINTED);
    assert!(minted.takes(Asked::Usual).is_none() && engine.takes(Asked::Usual).is_some());
}

#[test]
fn threads_share_a_tenure_and_the_last_one_ends_it() {
    let engine = engine();
    let shared = beside(&engine, &SHARED);
    let first = lock(&shared);
    let second = elsewhere(|| {
        let second = try_lock(&shared).expect("it is open");
        assert!(Arc::ptr_eq(first.tenure(), second.tenure()) && second.is_valid());
        shared.release(&second).unwrap();
        second
    });
    assert_eq!((second.state(), first.state()), (HoldState::Released, HoldState::Held));
    assert!(first.tenure().is_watched());
    elsewhere(|| assert!(try_lock(&engine).is_none(), "a lock that does not share"));
    shared.release(&first).unwrap();
    assert!(!engine.is_locked(NAME).unwrap());
}

/// A loss that nobody was told of yet: who shares the tenure hears of it from the own release, not that all was well.
#[test]
fn a_share_of_what_was_lost_is_not_just_left() {
    let engine = engine();
    let shared = beside(&engine, &SHARED);
    let first = lock(&shared);
    elsewhere(|| {
        let second = try_lock(&shared).expect("it is open");
        let lost = second.lost();
        second.tenure().lose();
        assert!(matches!(shared.release(&second), Err(Error::Lost { .. })));
        assert!(lost.try_recv().is_ok());
    });
    assert!(matches!(shared.release(&first), Err(Error::Lost { .. })));
}

/// The one that acquired it goes first: the other is renewed and told of a loss as before.
#[test]
fn who_stays_is_watched_and_told() {
    let engine = engine();
    let shared = beside(&engine, &SHARED);
    std::thread::scope(|scope| {
        let (go, gone) = crossbeam_channel::bounded::<()>(0);
        let first = lock(&shared);
        let staying = scope.spawn({
            let shared = &shared;
            move || {
                let hold = try_lock(shared).expect("it is open");
                let lost = hold.lost();
                gone.recv().unwrap();
                gone.recv().unwrap();
                assert_eq!(lost.try_recv().unwrap().cause(), LossCause::Removed);
                assert!(matches!(shared.release(&hold), Err(Error::Lost { .. })));
            }
        });
        go.send(()).unwrap();
        shared.release(&first).unwrap();
        assert!(first.tenure().is_watched() && first.tenure().is_valid());
        assert!(shared.force_unlock(NAME).unwrap());
        go.send(()).unwrap();
        staying.join().unwrap();
    });
}
