//! What the watchdog does for the tenures it is given, and how it ends.

use super::*;
use crate::base::error::Result;
use crate::base::key::{Key, Naming};
use crate::base::owner::OwnerId;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// Tells what it was asked for; panics or fails when it should.
struct Told {
    sender: Sender<(&'static str, u64)>,
    panics: bool,
    fails: bool,
}

impl Told {
    fn new(panics: bool, fails: bool) -> (Arc<Self>, Receiver<(&'static str, u64)>) {
        let (sender, told) = unbounded();
        (Arc::new(Self { sender, panics, fails }), told)
    }

    fn tell(&self, what: &'static str, tenure: &Tenure) {
        let _ = self.sender.send((what, tenure.serial()));
    }
}

impl Keeper for Told {
    fn renew(&self, batch: &[Arc<Tenure>]) {
        assert!(!self.panics, "a panic on the way to a renewal");
        for tenure in batch {
            self.tell("renew", tenure);
            if self.fails { tenure.suspect() } else { assert!(tenure.confirm(tenure.now(), lease())) }
        }
    }

    fn verify(&self, batch: &[Arc<Tenure>]) {
        for tenure in batch {
            if self.fails {
                tenure.suspect()
            }
            self.tell("verify", tenure);
        }
    }

    fn sweep(&self, _: &Arc<Tenure>) -> Result<()> {
        Ok(())
    }

    fn lost(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        self.tell(if cause == LossCause::Unwatched { "unwatched" } else { "lost" }, tenure);
    }

    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
        Ok(())
    }
}

/// Long enough for whatever must happen, however busy the machine is.
const LONG: Duration = Duration::from_secs(20);

fn lease() -> Lease {
    Lease::new(Duration::from_millis(900)).unwrap()
}

/// A watchdog whose time the test moves: no thread of it is ever too late, however busy the machine is.
struct Scene {
    watchdog: Watchdog,
    time: Arc<AtomicU64>,
    clock: Clock,
}

impl Scene {
    fn new() -> Self {
        Self::with_cap(Duration::MAX)
    }

    fn with_cap(max_hold: Duration) -> Self {
        let time = Arc::new(AtomicU64::new(1_000_000_000));
        let clock = Clock::Manual(Arc::clone(&time));
        Self { watchdog: Watchdog::new(lease(), max_hold, clock.clone()), time, clock }
    }

    /// A watched tenure that was just acquired.
    fn tenure(&self) -> Arc<Tenure> {
        tenure(self.clock.clone(), true)
    }

    /// Lets time pass, under the lock under which the timer thread looks at it: it does not sleep over it.
    fn go(&self, millis: u64) {
        let _unlooked = self.watchdog.shared.timer.schedule.lock();
        self.time.fetch_add(millis * 1_000_000, SeqCst);
        self.watchdog.shared.timer.changed.notify_one();
    }

    /// Lets a third of the lease pass, once the next renewal is planned: that comes after the last was told of.
    fn go_to_renewal(&self, tenure: &Tenure) {
        let renews = |job: &Job| job.tenure.serial() == tenure.serial() && job.task == Task::Renew;
        eventually("a renewal is planned", || self.watchdog.shared.timer.schedule.lock().jobs.values().any(renews));
        self.go(lease().millis() / 3);
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn tenure(clock: Clock, watched: bool) -> Arc<Tenure> {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), clock);
    assert!(tenure.confirm(tenure.now(), lease()));
    if watched {
        tenure.watch(true);
    }
    Arc::new(tenure)
}

#[test]
fn a_watched_tenure_is_renewed_until_it_is_released() {
    let (scene, (keeper, told)) = (Scene::new(), Told::new(false, false));
    let tenure = scene.tenure();
    scene.watchdog.keep(&tenure, keeper).unwrap();
    for _ in 0..5 {
        scene.go_to_renewal(&tenure);
        assert_eq!(told.recv_timeout(LONG), Ok(("renew", tenure.serial())));
    }
    assert!(tenure.is_valid());
    tenure.end();
    scene.watchdog.forget(&tenure);
    let schedule = scene.watchdog.shared.timer.schedule.lock();
    assert!(schedule.jobs.is_empty(), "an ended tenure leaves nothing in the schedule");
}

#[test]
fn an_unwatched_tenure_is_lost_at_its_deadline() {
    let watchdog = Watchdog::new(lease(), Duration::MAX, Clock::Boot);
    let (tenure, (keeper, told)) = (tenure(Clock::Boot, false), Told::new(false, false));
    watchdog.keep(&tenure, keeper).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(("lost", tenure.serial())));
    assert!(!tenure.is_valid());
}

/// The renewal that was due meanwhile is not sent: it could only revive what another may hold.
#[test]
fn fault_39_a_watched_tenure_is_lost_and_not_renewed_after_a_suspend() {
    let (scene, (keeper, told)) = (Scene::new(), Told::new(false, false));
    let tenure = scene.tenure();
    scene.watchdog.keep(&tenure, keeper).unwrap();
    scene.go(3_600_000);
    assert_eq!(told.recv_timeout(LONG), Ok(("lost", tenure.serial())));
}

#[test]
fn a_failed_renewal_is_tried_again_until_the_deadline() {
    let (scene, (keeper, told)) = (Scene::new(), Told::new(false, true));
    let tenure = scene.tenure();
    scene.watchdog.keep(&tenure, keeper).unwrap();
    scene.go_to_renewal(&tenure);
    let next = || told.recv_timeout(LONG).map(|(what, _)| what);
    assert_eq!([next(), next()], [Ok("renew"); 2], "the first that fails is repeated at once");
    scene.go_to_renewal(&tenure);
    assert_eq!(next(), Ok("renew"), "a tenth of the lease later");
    scene.go(lease().millis());
    assert_eq!(std::iter::from_fn(|| next().ok()).find(|what| *what != "renew"), Some("lost"));
}

#[test]
fn a_panic_in_a_renewal_fails_closed_and_the_thread_goes_on() {
    let (scene, (panicking, heard)) = (Scene::new(), Told::new(true, false));
    let doomed = scene.tenure();
    scene.watchdog.keep(&doomed, panicking).unwrap();
    scene.go_to_renewal(&doomed);
    assert_eq!(heard.recv_timeout(LONG), Ok(("unwatched", doomed.serial())));
    assert!(!doomed.is_valid());
    for _ in 0..WORKERS[USUAL] {
        let (next, (keeper, told)) = (scene.tenure(), Told::new(false, false));
        scene.watchdog.keep(&next, keeper).unwrap();
        scene.go_to_renewal(&next);
        assert_eq!(told.recv_timeout(LONG), Ok(("renew", next.serial())));
        scene.watchdog.forget(&next);
    }
}

#[test]
fn closing_ends_the_threads() {
    let (scene, (keeper, _)) = (Scene::new(), Told::new(false, false));
    scene.watchdog.keep(&scene.tenure(), keeper).unwrap();
    scene.watchdog.close();
    let shared = Arc::downgrade(&scene.watchdog.shared);
    drop(scene);
    eventually("the timer thread has ended", || shared.upgrade().is_none());
}

#[test]
fn nothing_is_renewed_beyond_the_cap() {
    let scene = Scene::with_cap(Duration::from_millis(2_100));
    let ((keeper, told), tenure) = (Told::new(false, false), scene.tenure());
    scene.watchdog.keep(&tenure, keeper).unwrap();
    for _ in 0..4 {
        scene.go_to_renewal(&tenure);
        assert_eq!(told.recv_timeout(LONG), Ok(("renew", tenure.serial())));
    }
    scene.go_to_renewal(&tenure);
    eventually("the next would last beyond the cap", || tenure.expiry() == LossCause::Overheld);
    scene.go(588);
    assert!(tenure.is_valid(), "what the last renewal gave is believed in for 889 ms");
    scene.go(1);
    assert_eq!(told.recv_timeout(LONG), Ok(("lost", tenure.serial())));
    assert_eq!(tenure.state(), TenureState::Lost);
}

/// Tells that it was asked to renew, and comes back when it is let go.
struct Stuck {
    asked: Sender<()>,
    gate: Mutex<()>,
}

impl Keeper for Stuck {
    fn renew(&self, _: &[Arc<Tenure>]) {
        let _ = self.asked.send(());
        drop(self.gate.lock());
    }

    fn verify(&self, _: &[Arc<Tenure>]) {}

    fn sweep(&self, _: &Arc<Tenure>) -> Result<()> {
        Ok(())
    }

    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}

    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
        Ok(())
    }
}

/// A server that is slow, or connections that are dead, keep every usual worker for as long as an answer may take.
#[test]
fn a_short_lease_is_renewed_while_all_usual_workers_are_busy() {
    let (scene, (asked, told_of)) = (Scene::new(), unbounded());
    let stuck: [_; WORKERS[USUAL]] =
        std::array::from_fn(|_| Arc::new(Stuck { asked: asked.clone(), gate: Mutex::new(()) }));
    let holding: Vec<_> = stuck.iter().map(|keeper| keeper.gate.lock()).collect();
    // One after the other: a worker that finds both would take both.
    for keeper in &stuck {
        let tenure = scene.tenure();
        scene.watchdog.keep(&tenure, Arc::<Stuck>::clone(keeper)).unwrap();
        scene.go_to_renewal(&tenure);
        told_of.recv_timeout(LONG).unwrap();
    }
    let ((keeper, told), short) = (Told::new(false, false), scene.tenure());
    short.renew_for(Lease::new(Duration::from_millis(300)).unwrap());
    scene.watchdog.keep(&short, keeper).unwrap();
    scene.go_to_renewal(&short);
    assert_eq!(told.recv_timeout(LONG).map(|(what, _)| what), Ok("renew"));
    drop(holding);
    scene.watchdog.close();
}

/// What was asked for before an alarm may have been said by who is not to be believed.
#[test]
fn an_alarm_has_every_tenure_asked_for_at_once() {
    let (scene, (keeper, told)) = (Scene::new(), Told::new(false, false));
    let (watched, fixed) = (scene.tenure(), tenure(scene.clock.clone(), false));
    for tenure in [&watched, &fixed] {
        scene.watchdog.keep(tenure, Arc::<Told>::clone(&keeper) as _).unwrap();
    }
    scene.go(10);
    scene.watchdog.alarm()(&|_| true);
    let mut asked = [(); 2].map(|()| told.recv_timeout(LONG).unwrap());
    asked.sort_unstable();
    assert_eq!(asked, [("renew", watched.serial()), ("verify", fixed.serial())]);
    let late = tenure(scene.clock.clone(), false);
    scene.go(10);
    scene.watchdog.alarm()(&|_| true);
    scene.watchdog.keep(&late, keeper).unwrap();
    let verified = |(what, serial): &(_, u64)| (*what, *serial) == ("verify", late.serial());
    assert!(told.iter().any(|said| verified(&said)), "it was acquired before");
}

#[test]
fn what_cannot_be_verified_is_asked_for_again_and_lost_at_its_deadline() {
    let (scene, (keeper, told)) = (Scene::new(), Told::new(false, true));
    let tenure = tenure(scene.clock.clone(), false);
    scene.watchdog.keep(&tenure, keeper).unwrap();
    scene.go(10);
    scene.watchdog.alarm()(&|_| true);
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(LONG), Ok(("verify", tenure.serial())), "the second time at once");
    }
    scene.go(lease().millis());
    assert_eq!(told.iter().find(|(what, _)| *what != "verify"), Some(("lost", tenure.serial())));
}
