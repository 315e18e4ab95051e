//! What the watchdog does for the tenures it is given, and how it ends.

use super::*;
use crate::error::Result;
use crate::key::{Key, Naming};
use crate::owner::OwnerId;
use crossbeam_channel::{Receiver, Sender, unbounded};

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

fn lease() -> Lease {
    Lease::new(Duration::from_millis(900)).unwrap()
}

fn tenure(watched: bool) -> Arc<Tenure> {
    tenure_for(lease(), watched)
}

fn tenure_for(lease: Lease, watched: bool) -> Arc<Tenure> {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), lease));
    tenure.watch(watched);
    Arc::new(tenure)
}

fn watchdog() -> Watchdog {
    Watchdog::new(lease(), Duration::MAX, Clock::Boot)
}

#[test]
fn a_watched_tenure_is_renewed_until_it_is_released() {
    let (watchdog, tenure, (keeper, told)) = (watchdog(), tenure(true), Told::new(false, false));
    watchdog.keep(&tenure, keeper).unwrap();
    for _ in 0..5 {
        assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(("renew", tenure.serial())));
    }
    assert!(tenure.is_valid());
    tenure.end();
    watchdog.release(&tenure);
    assert!(watchdog.shared.schedule.lock().due.is_empty(), "an ended tenure leaves nothing in the schedule");
}

#[test]
fn an_unwatched_tenure_is_lost_at_its_deadline() {
    let (watchdog, tenure, (keeper, told)) = (watchdog(), tenure(false), Told::new(false, false));
    watchdog.keep(&tenure, keeper).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(("lost", tenure.serial())));
    assert!(!tenure.is_valid());
}

/// The renewal that was due meanwhile is not sent: it could only revive what another may hold.
#[test]
fn fault_39_a_watched_tenure_is_lost_and_not_renewed_after_a_suspend() {
    let time = Arc::new(std::sync::atomic::AtomicU64::new(1_000_000_000));
    let clock = Clock::Manual(Arc::clone(&time));
    let tenure = Arc::new(Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), clock.clone()));
    assert!(tenure.confirm(tenure.now(), lease()));
    tenure.watch(true);
    let (watchdog, (keeper, told)) = (Watchdog::new(lease(), Duration::MAX, clock), Told::new(false, false));
    watchdog.keep(&tenure, keeper).unwrap();
    time.fetch_add(3_600_000_000_000, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(("lost", tenure.serial())));
}

#[test]
fn a_failed_renewal_is_tried_again_until_the_deadline() {
    let (watchdog, tenure, (keeper, told)) = (watchdog(), tenure(true), Told::new(false, true));
    watchdog.keep(&tenure, keeper).unwrap();
    let first: Vec<_> = (0..2).map(|_| told.recv_timeout(Duration::from_secs(5)).unwrap().0).collect();
    assert_eq!(first, ["renew", "renew"]);
    let last = std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(5)).ok()).find(|(what, _)| *what == "lost");
    assert_eq!(last, Some(("lost", tenure.serial())));
}

#[test]
fn a_panic_in_a_renewal_fails_closed_and_the_thread_goes_on() {
    // Its lease does not end while a busy machine takes its time to print the panic.
    let doomed = tenure_for(Lease::new(Duration::from_secs(60)).unwrap(), true);
    let (watchdog, (panicking, heard)) = (watchdog(), Told::new(true, false));
    watchdog.keep(&doomed, panicking).unwrap();
    assert_eq!(heard.recv_timeout(Duration::from_secs(5)), Ok(("unwatched", doomed.serial())));
    assert!(!doomed.is_valid());
    for _ in 0..WORKERS {
        let (next, (keeper, told)) = (tenure(true), Told::new(false, false));
        watchdog.keep(&next, keeper).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(("renew", next.serial())));
        watchdog.release(&next);
    }
}

#[test]
fn closing_ends_the_threads() {
    let (watchdog, tenure, (keeper, _)) = (watchdog(), tenure(false), Told::new(false, false));
    watchdog.keep(&tenure, keeper).unwrap();
    watchdog.close();
    let shared = Arc::downgrade(&watchdog.shared);
    drop(watchdog);
    let gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        shared.upgrade().is_none()
    });
    assert!(gone, "the timer thread still runs");
}

#[test]
fn nothing_is_renewed_beyond_the_cap() {
    let watchdog = Watchdog::new(lease(), Duration::from_millis(2_100), Clock::Boot);
    let (keeper, told) = Told::new(false, false);
    let tenure = tenure(true);
    watchdog.keep(&tenure, keeper).unwrap();
    let renewals = told.iter().take_while(|(what, _)| *what == "renew").count();
    assert!((1..=4).contains(&renewals), "{renewals}");
    assert_eq!((tenure.standing(), tenure.expiry()), (Standing::Lost, LossCause::Overheld));
    let held = tenure.now().since(tenure.held_since());
    assert!(held >= Duration::from_millis(1_500), "{held:?}: at most a third of the lease before the cap");
}
