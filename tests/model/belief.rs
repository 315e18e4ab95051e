//! What a client believes of one owner id, kept as plain values and changed by the crate's own [`Tenure`].

use crate::base::key::{Key, Naming};
use crate::base::owner::OwnerId;
use crate::base::time::{Clock, Lease, Moment};
use crate::lease::tenure::{Tenure, TenureState};
use crate::state::Tick;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A tenure's word (src/lease/tenure.rs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Pending,
    Until(u64),
    Lost,
    Ended,
}

/// A tick is a second: any lease of whole ticks is far above the margins that validity leaves.
const TICK: Duration = Duration::from_secs(1);

/// Ticks start at one, so that no moment is one of the values that the word uses for itself.
pub(crate) fn moment(tick: Tick) -> Moment {
    Moment(0).plus(TICK * (u32::from(tick) + 1))
}

pub(crate) fn lease(ticks: Tick) -> Lease {
    Lease::clamped(TICK * u32::from(ticks))
}

thread_local! {
    static KEY: Key = Key::new(Naming::Redisson, "", "n");
    static TIME: Arc<AtomicU64> = Arc::default();
}

/// Runs the crate's code on a word at a time; the word after it.
pub(crate) fn step<T>(word: Word, now: Tick, act: impl FnOnce(&Tenure) -> T) -> (Word, T) {
    let time = TIME.with(Arc::clone);
    let tenure = Tenure::new(KEY.with(Key::clone), OwnerId::default(), Clock::Manual(Arc::clone(&time)));
    time.store(0, Relaxed);
    revive(&tenure, word);
    time.store(moment(now).0, Relaxed);
    let result = act(&tenure);
    (word_of(&tenure), result)
}

/// Brings a new tenure to a word by what a client does to get there.
fn revive(tenure: &Tenure, word: Word) {
    match word {
        Word::Pending => {}
        Word::Until(deadline) => {
            let lease = lease(1);
            let sent = Moment(deadline - u64::try_from(lease.validity().as_nanos()).unwrap());
            assert!(tenure.confirm(sent, lease));
        }
        Word::Lost => tenure.lose(),
        Word::Ended => drop(tenure.end()),
    }
    debug_assert_eq!(word_of(tenure), word);
}

fn word_of(tenure: &Tenure) -> Word {
    match (tenure.deadline(), tenure.state()) {
        (Some(deadline), _) => Word::Until(deadline.0),
        (None, TenureState::Lost) => Word::Lost,
        (None, TenureState::Ended) => Word::Ended,
        (None, _) => Word::Pending,
    }
}

pub(crate) fn is_valid(word: Word, now: Tick) -> bool {
    matches!(word, Word::Until(_)) && step(word, now, Tenure::is_valid).1
}

#[test]
fn a_word_comes_back_as_it_was() {
    let held = step(Word::Pending, 3, |tenure| tenure.confirm(moment(3), lease(2))).0;
    for word in [Word::Pending, held, Word::Lost, Word::Ended] {
        assert_eq!(step(word, 3, |_| ()).0, word);
    }
    assert!(is_valid(held, 4) && !is_valid(held, 5));
}
