//! The semaphore: nobody sleeps through what it waits for. `waits.rs` has the cancel token.

use crate::base::signal::Semaphore;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{advance, thread};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn a_permit_is_never_lost() {
    let (semaphore, events) = (Arc::new(Semaphore::default()), Arc::new(AtomicUsize::new(0)));
    for _ in 0..3 {
        let (semaphore, events) = (Arc::clone(&semaphore), Arc::clone(&events));
        thread::spawn(move || {
            events.fetch_add(1, SeqCst);
            semaphore.release();
        });
    }
    while events.load(SeqCst) < 3 {
        assert!(semaphore.acquire(Duration::MAX));
    }
}

pub(crate) fn a_permit_that_comes_with_the_time_out_is_taken_or_kept() {
    let semaphore = Arc::new(Semaphore::default());
    let waker = Arc::clone(&semaphore);
    let waking = thread::spawn(move || waker.release());
    let passing = thread::spawn(|| advance(SECOND));
    let taken = semaphore.acquire(SECOND / 2);
    waking.join().unwrap();
    passing.join().unwrap();
    assert_ne!(taken, semaphore.acquire(Duration::ZERO), "one permit was released");
}
