//! When a wait asks, by made-up moments: nothing sleeps here, and no server is asked.

use super::*;

const CAP: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(30);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment(1_000_000_000).plus(ms(millis))
}

fn new() -> Wait {
    Wait::new(CAP, None, false)
}

fn busy() -> Outcome<()> {
    Outcome::Busy(Some(LEASE))
}

impl Wait {
    /// An ask with an answer in the same moment.
    fn asks(&mut self, now: Moment, outcome: Outcome<()>, rank: Option<u32>) {
        self.is_answered(now, outcome, rank, Hearing::Open);
    }

    fn is_answered(&mut self, now: Moment, outcome: Outcome<()>, rank: Option<u32>, hearing: Hearing) {
        assert_eq!(self.next(now), Step::Ask);
        self.answered([now, now], &outcome, rank, hearing);
    }

    /// For how long the wait sleeps from now; zero: it asks.
    fn sleeps(&mut self, now: Moment) -> Duration {
        match self.clone().next(now) {
            Step::Sleep(until) => until.since(now),
            Step::Ask => Duration::ZERO,
            step => panic!("{step:?}"),
        }
    }
}

/// A wait that has asked, got this rank, and sleeps.
fn asleep(rank: Option<u32>) -> Wait {
    let mut wait = new();
    wait.asks(at(0), busy(), rank);
    assert!(!wait.sleeps(at(0)).is_zero());
    wait
}

#[test]
fn it_asks_then_listens_then_asks_again() {
    let mut wait = new();
    wait.is_answered(at(0), busy(), None, Hearing::NotYet);
    assert_eq!(wait.next(at(0)), Step::Listen);
    wait.listens(at(1), Hearing::Open);
    wait.asks(at(1), busy(), None);
    assert_eq!(wait.sleeps(at(1)), CAP);
}

/// Another wait of its process is subscribed, so messages come from the beginning.
#[test]
fn one_that_expects_to_wait_listens_first() {
    let mut wait = Wait::new(CAP, None, true);
    assert_eq!(wait.next(at(0)), Step::Listen);
    wait.listens(at(0), Hearing::Deaf);
    assert_eq!(wait.next(at(0)), Step::Ask);
}

/// No second ask is needed before the sleep.
#[test]
fn one_that_is_told_by_its_own_process_misses_nothing() {
    let mut wait = new();
    wait.is_answered(at(0), busy(), None, Hearing::NotYet);
    wait.listens(at(0), Hearing::Within);
    assert_eq!(wait.sleeps(at(0)), CAP);
}

#[test]
fn one_that_is_told_nothing_looks_each_second() {
    let mut wait = new();
    wait.is_answered(at(0), busy(), None, Hearing::NotYet);
    wait.listens(at(0), Hearing::Deaf);
    assert_eq!(wait.sleeps(at(0)), UNTOLD);
    wait.is_answered(at(1_000), busy(), None, Hearing::Deaf);
    assert_eq!(wait.sleeps(at(1_000)), UNTOLD);
}

/// A script gives it the lock when it is first, and the others wait until it asks.
#[test]
fn one_that_is_told_nothing_and_has_a_place_looks_often() {
    for rank in [0, 5] {
        let mut wait = new();
        wait.is_answered(at(0), busy(), Some(rank), Hearing::Deaf);
        assert_eq!(wait.sleeps(at(0)), ms(50));
    }
}

#[test]
fn it_looks_when_the_lease_ends_that_it_was_told() {
    let mut wait = new();
    wait.asks(at(0), Outcome::Busy(Some(ms(100))), None);
    let sleeps = wait.sleeps(at(0));
    assert!(ms(101) <= sleeps && sleeps < ms(105), "{sleeps:?}");
    wait.asks(at(200), Outcome::Busy(None), None);
    assert_eq!(wait.sleeps(at(200)), CAP, "without an end");
}

/// The others may never come: then no subscription is needed.
#[test]
fn what_is_left_to_others_is_waited_out_once_before_it_listens() {
    let mut wait = new();
    wait.is_answered(at(0), Outcome::Reserved(ms(8)), None, Hearing::NotYet);
    assert_eq!(wait.sleeps(at(0)), ms(8));
    wait.is_answered(at(8), Outcome::Reserved(ms(8)), None, Hearing::NotYet);
    assert_eq!(wait.next(at(8)), Step::Listen);
    wait.listens(at(8), Hearing::Deaf);
    assert_eq!(wait.sleeps(at(8)), ms(8));
}

#[test]
fn whose_time_ended_while_it_slept_asks_one_more_time() {
    let mut wait = Wait::new(CAP, Some(at(50)), false);
    wait.asks(at(0), busy(), None);
    assert_eq!(wait.sleeps(at(0)), ms(50));
    wait.asks(at(50), busy(), None);
    assert_eq!(wait.next(at(50)), Step::Leave);
}

#[test]
fn an_answer_that_took_longer_than_it_waits_is_the_last() {
    for outcome in [busy(), Outcome::Again, Outcome::Reserved(ms(1))] {
        let mut wait = Wait::new(CAP, Some(at(50)), false);
        wait.answered([at(49), at(50)], &outcome, None, Hearing::NotYet);
        assert_eq!(wait.next(at(50)), Step::Leave);
    }
}

#[test]
fn it_goes_with_the_answer_that_ends_it() {
    for outcome in [Outcome::Won(()), Outcome::Late] {
        let mut wait = new();
        wait.asks(at(0), outcome, None);
        assert_eq!(wait.next(at(0)), Step::Leave);
    }
    let mut wait = new();
    wait.asks(at(0), Outcome::Again, None);
    assert_eq!(wait.next(at(0)), Step::Ask);
}

#[test]
fn who_is_told_of_a_reason_of_its_own_looks_at_once() {
    for rank in [None, Some(0), Some(5)] {
        let mut wait = asleep(rank);
        wait.told(News::ForIt);
        assert_eq!(wait.next(at(1)), Step::Ask, "{rank:?}");
    }
}

/// Rank 3 is one of four, which share 8 ms. Many waits share more than 2 ms each, so that few ask before the first has the lock.
#[test]
fn told_like_everybody_each_has_its_share_of_the_time() {
    for (rank, span) in [(1, 4), (3, 8), (7, 32), (31, 512)] {
        for (share, after) in [(0, 0), (512, span / 2), (1_023, span)] {
            let mut wait = asleep(Some(rank));
            wait.told(News::ForAll { at: at(10), share });
            let late = ms(after).checked_sub(wait.sleeps(at(10))).expect("not later");
            assert!(late <= ms(span) / 500, "{share} of rank {rank}: {late:?} before {after} ms");
        }
    }
    for rank in [None, Some(0)] {
        let mut wait = asleep(rank);
        wait.told(News::ForAll { at: at(10), share: 1_023 });
        assert_eq!(wait.next(at(10)), Step::Ask, "{rank:?}");
    }
}

/// Any user who may write the queue can make it long.
#[test]
fn no_rank_is_too_great() {
    for rank in [1_000_000, u32::MAX - 1, u32::MAX] {
        let mut wait = asleep(Some(rank));
        wait.told(News::ForAll { at: at(1), share: 1_023 });
        assert!(!wait.sleeps(at(1)).is_zero());
        wait.told(News::ForIt);
        assert_eq!(wait.next(at(1)), Step::Ask);
    }
}

/// If the process that was given the lock is stopped, it keeps the lock for an offer: the others have to ask when that ends.
#[test]
fn one_with_others_before_it_looks_after_an_offer() {
    for rank in [1, 7] {
        let mut wait = asleep(Some(rank));
        assert_eq!(wait.sleeps(at(0)), ms(1_500));
        assert_eq!(wait.sleeps(at(1_000)), ms(500));
        wait.asks(at(1_500), busy(), Some(rank));
        assert_eq!(wait.sleeps(at(1_500)), ms(1_500));
    }
    for rank in [None, Some(0)] {
        assert_eq!(asleep(rank).sleeps(at(0)), CAP);
    }
}

#[test]
fn an_ask_is_for_all_that_was_told_before() {
    let mut wait = asleep(Some(0));
    wait.told(News::ForIt);
    wait.asks(at(1), busy(), Some(0));
    assert!(!wait.sleeps(at(1)).is_zero());
}

/// A cancel, a shutdown, or the unlock of a lock without a queue.
#[test]
fn woken_without_news_it_looks() {
    let mut wait = asleep(Some(5));
    wait.woken();
    assert_eq!(wait.next(at(1)), Step::Ask);
    let mut wait = asleep(Some(5));
    wait.told(News::ForAll { at: at(1), share: 1_023 });
    wait.woken();
    assert!(!wait.sleeps(at(1)).is_zero(), "there are news");
}

/// A later due time does not replace an earlier one.
#[test]
fn the_first_of_several_news_counts() {
    let mut wait = asleep(Some(3));
    wait.told(News::ForAll { at: at(0), share: 512 });
    let first = wait.sleeps(at(0));
    wait.told(News::ForAll { at: at(3), share: 512 });
    assert_eq!(wait.sleeps(at(0)), first);
}

/// A call that waits long for a lock in demand looks at as many of its unlocks as a newcomer. An answer about an unchanged lock, however
/// late it comes, is no reason to follow more hints.
#[test]
fn only_hints_without_a_change_of_the_lock_are_put_off() {
    let (began, minute) = (Moment(1), Duration::from_secs(60));
    let mut hints = Hints::default();
    let mut is_forgiven = |asked: Moment, answered: Moment, left: Option<Duration>| {
        hints.paid = Moment::MAX;
        hints.note_end(asked, answered, left);
        hints.paid == Moment(0)
    };
    let late = began.plus(ms(50));
    assert!(!is_forgiven(began, began, Some(minute)));
    assert!(!is_forgiven(began, began, Some(minute)));
    assert!(!is_forgiven(began, late, Some(minute)), "the answer took 50 ms");
    assert!(!is_forgiven(began.plus(ms(40)), late, Some(minute - ms(40))));
    assert!(is_forgiven(began, late, Some(2 * minute)), "taken anew, or prolonged");
    assert!(is_forgiven(began, late, Some(minute)), "taken anew, for less");
    assert!(is_forgiven(began, late, None), "without an end");
    assert!(!is_forgiven(began, late, None));
}

/// The lock does not change, whatever the hints say.
#[test]
fn a_row_of_hints_is_followed_at_once_and_more_in_their_time() {
    let mut wait = new();
    let mut rests = |now: Moment| {
        wait.asks(now, Outcome::Busy(None), None);
        wait.told(News::ForIt);
        let step = wait.next(now);
        assert_eq!(wait.next(now), Step::Ask);
        match step {
            Step::Ask => Duration::ZERO,
            Step::Rest(until) => until.since(now).saturating_sub(spread(now) / 4),
            step => panic!("{step:?}"),
        }
    };
    assert!((0..HINTS_AT_ONCE).all(|_| rests(at(0)).is_zero()));
    assert_eq!([rests(at(0)), rests(at(0))], [HINT_EVERY, 2 * HINT_EVERY]);
    assert!(rests(at(0).plus(3 * HINT_EVERY)).is_zero());
}
