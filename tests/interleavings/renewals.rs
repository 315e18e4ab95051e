//! The watchdog: what is due is done, whoever comes, ends and closes meanwhile.

use crate::base::signal::Semaphore;
use crate::base::time::{Clock, Lease};
use crate::beliefs::{held, lease};
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use crate::lease::watchdog::Watchdog;
use crate::sync::{advance, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Renews what it is asked to, and counts what it tells.
#[derive(Default)]
struct Told {
    renewals: Semaphore,
    losses: Semaphore,
    tellings: AtomicUsize,
}

impl Keeper for Told {
    fn renew(&self, batch: &[Arc<Tenure>]) {
        for tenure in batch {
            if !tenure.confirm(tenure.now(), lease()) && tenure.state() == TenureState::Lost {
                self.lost(tenure, LossCause::Expired);
            }
        }
        self.renewals.release();
    }

    fn verify(&self, batch: &[Arc<Tenure>]) {
        self.renew(batch);
    }

    fn sweep(&self, _: &Arc<Tenure>) -> crate::base::error::Result<()> {
        Ok(())
    }

    fn lost(&self, tenure: &Arc<Tenure>, _: LossCause) {
        assert_eq!(tenure.state(), TenureState::Lost);
        if tenure.announce_once() {
            self.tellings.fetch_add(1, SeqCst);
            self.losses.release();
        }
    }

    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> crate::base::error::Result<()> {
        Ok(())
    }
}

fn watchdog() -> (Arc<Watchdog>, Arc<Told>) {
    (Arc::new(Watchdog::new(lease(), Duration::MAX, Clock::Boot)), Arc::default())
}

/// Nothing in the schedule or in the hands of a thread keeps it. If something does, the order has no end and fails.
fn await_forgotten(tenure: &Arc<Tenure>) {
    while Arc::strong_count(tenure) > 1 {
        thread::yield_now();
    }
}

/// A third of the lease, when a renewal is due.
const DUE: Duration = Duration::from_secs(1);

pub(crate) fn what_is_watched_is_renewed_until_it_is_released() {
    let ((watchdog, told), tenure) = (watchdog(), held());
    tenure.watch(true);
    watchdog.keep(&tenure, Arc::<Told>::clone(&told) as _).unwrap();
    advance(DUE);
    assert!(told.renewals.acquire(Duration::MAX));
    let passing = thread::spawn(|| advance(DUE));
    assert!(tenure.end());
    watchdog.forget(&tenure);
    passing.join().unwrap();
    assert_eq!(tenure.state(), TenureState::Ended, "no renewal brings it back");
    await_forgotten(&tenure);
    watchdog.close();
}

pub(crate) fn a_deadline_that_comes_before_all_others_is_not_slept_through() {
    let ((watchdog, told), far, near) = (watchdog(), held(), held());
    assert!(far.confirm(far.now(), Lease::clamped(DUE * 100)));
    watchdog.keep(&far, Arc::<Told>::clone(&told) as _).unwrap();
    watchdog.keep(&near, Arc::<Told>::clone(&told) as _).unwrap();
    advance(DUE * 4);
    assert!(told.losses.acquire(Duration::MAX));
    assert_eq!((near.state(), far.state()), (TenureState::Lost, TenureState::Held));
    watchdog.close();
}

pub(crate) fn a_loss_is_told_once_whoever_notices_it() {
    let ((watchdog, told), tenure) = (watchdog(), held());
    tenure.watch(true);
    watchdog.keep(&tenure, Arc::<Told>::clone(&told) as _).unwrap();
    let (removed, keeper) = (Arc::clone(&tenure), Arc::clone(&told));
    let removing = thread::spawn(move || {
        removed.lose();
        keeper.lost(&removed, LossCause::Removed);
    });
    advance(DUE * 4);
    assert!(told.losses.acquire(Duration::MAX));
    removing.join().unwrap();
    watchdog.close();
    assert_eq!(told.tellings.load(SeqCst), 1);
    assert_eq!(tenure.state(), TenureState::Lost);
}

pub(crate) fn closing_ends_the_threads_whatever_is_due() {
    let ((watchdog, told), tenure) = (watchdog(), held());
    tenure.watch(true);
    let (kept, keeper, keeping) = (Arc::clone(&tenure), Arc::clone(&told), Arc::clone(&watchdog));
    let keeping = thread::spawn(move || keeping.keep(&kept, keeper).unwrap());
    let passing = thread::spawn(|| advance(DUE));
    watchdog.close();
    keeping.join().unwrap();
    passing.join().unwrap();
    await_forgotten(&tenure);
}

/// The watchdog finds the first hold at its cap, and another thread takes the tenure over, in whatever order.
pub(crate) fn a_tenure_that_is_passed_on_at_its_cap_is_renewed() {
    let (told, tenure) = (Arc::<Told>::default(), held());
    let watchdog = Watchdog::new(lease(), DUE * 9 / 2, Clock::Boot);
    let keep = || watchdog.keep(&tenure, Arc::<Told>::clone(&told) as _).unwrap();
    advance(DUE);
    assert!(tenure.confirm(tenure.now(), lease()));
    tenure.watch(true);
    keep();
    // The next renewal of the first hold would end beyond its cap.
    advance(DUE);
    tenure.begin_hold();
    if tenure.was_overheld() {
        keep();
    }
    advance(DUE);
    assert!(told.renewals.acquire(Duration::MAX));
    assert!(tenure.end());
    watchdog.close();
}
