//! The semaphore and the cancel token: nobody sleeps through what it waits for.

use crate::signal::{CancelToken, Semaphore};
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

/// As src/lock/wait.rs uses it: emptied before each look, slept on after it.
pub(crate) fn whoever_empties_before_it_looks_is_woken() {
    let (semaphore, turns) = (Arc::new(Semaphore::default()), Arc::new(AtomicUsize::new(0)));
    let (waker, turned) = (Arc::clone(&semaphore), Arc::clone(&turns));
    let waking = thread::spawn(move || {
        for turn in 1..=3 {
            turned.store(turn, SeqCst);
            waker.release();
        }
    });
    loop {
        semaphore.acquire(Duration::ZERO);
        if turns.load(SeqCst) == 3 {
            break;
        }
        semaphore.acquire(Duration::MAX);
    }
    waking.join().unwrap();
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

/// As src/lock/wait.rs does: asked after the waiter can be woken, and before it sleeps.
pub(crate) fn a_cancelled_waiter_wakes() {
    let token = CancelToken::new();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let token = token.clone();
            thread::spawn(move || {
                let semaphore = Arc::new(Semaphore::default());
                token.wake(&semaphore);
                while !token.is_cancelled() {
                    semaphore.acquire(Duration::MAX);
                }
            })
        })
        .collect();
    token.cancel();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}
