//! Turns at a pool: none is lost, whoever goes without one.

use crate::base::signal::{CancelToken, Shutdown};
use crate::base::stop::Stop;
use crate::base::time::{Clock, Moment};
use crate::base::turns::{Rank, Turns};
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{advance, thread};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// One waits for a second, one until it is cancelled, one for ever; time passes and the token is cancelled whenever it comes.
pub(crate) fn no_turn_is_lost_whoever_goes_without_one() {
    let (turns, token) = (Arc::new(Turns::new(1, Clock::Boot)), CancelToken::new());
    let inside = Arc::new(AtomicUsize::new(0));
    let take = |limit: Option<Duration>, token: Option<CancelToken>| {
        let (turns, inside) = (Arc::clone(&turns), Arc::clone(&inside));
        thread::spawn(move || {
            let (shutdown, semaphore) = (Shutdown::default(), Arc::default());
            let stop = Stop::new(&Clock::Boot, &shutdown, "n").cancelled_by(token.as_ref()).woken_by(&semaphore);
            let until = limit.map_or(Moment::MAX, |limit| Clock::Boot.now().plus(limit));
            let turn = turns.take(Rank::Second, until, Some(&stop));
            let has_one = turn.is_some();
            if has_one {
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "there is one turn");
                inside.fetch_sub(1, SeqCst);
            }
            has_one
        })
    };
    let (timed, cancelled) = (take(Some(SECOND), None), take(None, Some(token.clone())));
    let patient = [take(None, None), take(None, None)];
    let passing = thread::spawn(|| advance(2 * SECOND));
    token.cancel();
    assert!(patient.into_iter().all(|thread| thread.join().unwrap()));
    [timed, cancelled].into_iter().for_each(|thread| _ = thread.join().unwrap());
    passing.join().unwrap();
    assert!(turns.take(Rank::Second, Clock::Boot.now(), None).is_some(), "it is free in the end");
}
