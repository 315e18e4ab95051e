//! A lock that is passed on while its taker goes, or while it is taken away.

use super::super::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::line::Place;
use crate::lock::waiting::queue::Queue;

use super::*;
use crate::base::config::HandOff;
use crate::base::lives::Life;
use crate::base::time::{Lease, Moment};
use crate::lease::hold::HoldState;
use crate::lock::kinds::local::engine_in_memory;
use crate::registry::Waiter;
use crate::store::node::{Failure, Lane, Limits};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

const NAME: &str = "n";

/// What `act` of another thread gives.
fn elsewhere<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn lock(engine: &Engine) -> Hold {
    acquire(engine, NAME, &Terms::new()).unwrap().unwrap()
}

/// It lives as long as the engine.
fn kept<'a, T>(value: T) -> &'a T {
    Box::leak(Box::new(value))
}

/// The line of this lock, as the current thread sees it.
fn line<'a>(engine: &'a Engine, key: &'a Key) -> &'a Line<'a> {
    let waiter = kept(Arc::new(Waiter::new(engine.takes(Asked::Usual))));
    let patience = kept(engine.patience(NAME));
    let (config, stop, contention) =
        (&engine.space.config, &patience.stop, kept(Contention::new(&engine.space.counters)));
    let call = kept(Call { config, stop, contention, semaphore: &waiter.semaphore });
    let backing = kept(Siblings { engine, patience });
    let (registry, space, name) = (registry(), engine.space.id, key.shared());
    kept(Line { registry, space, name, waiter, call, backing })
}

/// The first thread locks, this one parks, the first unlocks: it was granted and has not looked yet.
fn granted<'a>(engine: &'a Engine, key: &'a Key) -> (Place<'a>, Hold) {
    let place = Place(line(engine, key));
    let waiter = place.0.waiter;
    let first = elsewhere(|| {
        let hold = lock(engine);
        assert!(matches!(registry().enter(engine.space.id, key.full(), waiter), Entered::Parked));
        engine.release(&hold).unwrap();
        hold
    });
    assert_eq!(first.state(), HoldState::Released);
    (place, first)
}

fn passing() -> Arc<Engine> {
    engine_in_memory(HandOff::default().within(Duration::from_secs(60)).in_order())
}

/// The running thread may take the lock again for so long.
fn keeping(turn: Duration) -> Arc<Engine> {
    engine_in_memory(HandOff { turn, ..HandOff::default().within(Duration::from_secs(60)) })
}

fn assert_free(engine: &Engine) {
    assert!(!engine.is_locked(NAME).unwrap());
    assert!(registry().believed(engine.space.id, NAME).is_empty());
    let hold = elsewhere(|| {
        let hold = lock(engine);
        engine.release(&hold).unwrap();
        hold
    });
    assert_eq!(hold.state(), HoldState::Released);
}

/// The same once the sweeper was there.
fn assert_freed(engine: &Engine) {
    while engine.is_locked(NAME).unwrap() {
        std::thread::yield_now();
    }
    assert_free(engine);
}

#[test]
fn a_waiter_that_goes_though_it_was_granted_releases_the_lock() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let (place, _) = granted(&engine, &key);
    assert!(engine.is_locked(NAME).unwrap());
    drop(place);
    assert_freed(&engine);
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
    let Entered::Granted(hold) = registry().turn(engine.space.id, key.full(), place.0.waiter) else {
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
    let Entered::Granted(hold) = registry().turn(engine.space.id, key.full(), place.0.waiter) else {
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
    let engine = keeping(Duration::from_secs(60));
    let key = engine.space.key(NAME).unwrap();
    let (place, first) = granted(&engine, &key);
    assert!(first.tenure().is_valid(), "it is kept");
    drop(place);
    assert_freed(&engine);
    assert!(!first.tenure().is_valid());
}

#[test]
fn a_kept_lock_that_ends_is_free_at_once_for_who_asks_for_a_lease() {
    for _ in 0..20 {
        let engine = keeping(Duration::from_secs(60));
        let key = engine.space.key(NAME).unwrap();
        let (place, _) = granted(&engine, &key);
        std::thread::scope(|scope| {
            let leased = scope.spawn(|| {
                let hold = acquire(&engine, NAME, &Terms::new().lease(Duration::from_secs(60))).unwrap().unwrap();
                engine.release(&hold).unwrap();
                std::time::Instant::now()
            });
            while registry().census(engine.space.id).1 < 2 {
                std::thread::yield_now();
            }
            let gone = std::time::Instant::now();
            drop(place);
            let waited = leased.join().unwrap() - gone;
            assert!(waited < engine.space.config.poll_cap / 2, "nobody told it: {waited:?}");
        });
    }
}

/// Another process freed the lock, a waiter of this one took it, and the first holder was not told yet.
#[test]
fn a_force_unlock_ends_also_what_another_hold_came_after() {
    let engine = passing();
    let key = engine.space.key(NAME).unwrap();
    let first = lock(&engine);
    assert!(engine.primitive.force_unlock(&key, engine.space.one_answer()).unwrap().0);
    let second = elsewhere(|| {
        let taken =
            engine.try_take(&mut engine.space.tenure(&key), Asked::Usual, Manner::Try, &engine.patience(NAME)).unwrap();
        let Outcome::Won(hold) = taken else { panic!("it was free") };
        hold
    });
    assert!(first.is_valid() && second.is_valid());
    assert!(engine.force_unlock(NAME).unwrap());
    assert!(!second.is_valid() && !first.is_valid(), "it ends at once whatever this process holds");
    assert!(matches!(engine.release(&first), Err(Error::Lost { .. })));
    assert_free(&engine);
}

#[test]
fn a_shutdown_releases_what_is_kept_and_what_is_granted() {
    for turn in [Duration::ZERO, Duration::from_secs(60)] {
        let engine = keeping(turn);
        let key = engine.space.key(NAME).unwrap();
        let (place, first) = granted(&engine, &key);
        engine.space.close();
        assert!(!first.tenure().is_valid());
        match registry().turn(engine.space.id, key.full(), place.0.waiter) {
            Entered::Granted(hold) => assert!(!engine.accept(&hold).unwrap()),
            _ => assert_eq!(turn, Duration::from_secs(60)),
        }
        drop(place);
        assert_eq!(registry().census(engine.space.id), (0, 0));
    }
}

/// A store whose releases wait for a gate.
struct Gated {
    store: Arc<dyn Primitive>,
    gate: parking_lot::Mutex<()>,
}

impl Primitive for Gated {
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        self.store.take(tenure, lease, manner, limits)
    }

    fn reenter(&self, t: &Arc<Tenure>, n: usize, lease: Lease, limits: Limits<'_>) -> Result<Option<Moment>, Failure> {
        self.store.reenter(t, n, lease, limits)
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<Renewed, Failure> {
        self.store.renew(lane, tenures, lease, until)
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, until: Moment) -> Result<bool, Failure> {
        let _open = self.gate.lock();
        self.store.release(tenure, left, until)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        tenures.iter().try_for_each(|tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, until: Moment) -> Result<(bool, Life), Failure> {
        self.store.force_unlock(key, until)
    }

    fn time_to_live(&self, key: &Key, until: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.store.time_to_live(key, until)
    }

    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.store.listen(key, semaphore)
    }
}

/// Its time is up: it must not wait for a server that does not answer.
#[test]
fn a_waiter_that_goes_though_it_was_granted_does_not_wait_for_the_release() {
    let memory = passing();
    let gated = Arc::new(Gated { store: Arc::clone(&memory.primitive), gate: parking_lot::Mutex::new(()) });
    let engine = Engine::new(
        Arc::clone(&memory.space),
        memory.kind,
        Arc::clone(&gated) as Arc<dyn Primitive>,
        Arc::clone(&memory.health),
    );
    let key = engine.space.key(NAME).unwrap();
    let (place, _) = granted(&engine, &key);
    let shut = gated.gate.lock();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            drop(place);
            tell.send(()).unwrap();
        });
        let came_back = told.recv_timeout(Duration::from_secs(5)).is_ok();
        drop(shut);
        assert!(came_back, "it waited");
    });
    assert_freed(&engine);
}
