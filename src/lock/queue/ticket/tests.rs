//! When a ticket looks at the lock, by a clock that is set by hand.

use super::*;
use crate::base::key::Naming;
use std::sync::atomic::AtomicU64;

/// A ticket, its clock and what its call sleeps on.
struct Scene {
    ticket: Ticket,
    time: Arc<AtomicU64>,
    semaphore: Arc<Semaphore>,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn standing(rank: Option<u32>) -> Standing {
    Standing { rank, promised: Duration::ZERO, arrival: 7 }
}

/// It waits, turns take so long, and nothing has happened yet.
fn scene(turn: Duration) -> Scene {
    let (time, semaphore) = (Arc::new(AtomicU64::new(1_000_000_000)), Arc::<Semaphore>::default());
    let clock = Clock::Manual(Arc::clone(&time));
    let ticket = Ticket::new(Key::new(Naming::Redisson, "", "n"), 1, Arc::clone(&semaphore), clock, turn);
    Scene { ticket, time, semaphore }
}

/// It looked, saw that, and sleeps.
fn asleep(turn: Duration, rank: Option<u32>) -> Scene {
    let scene = scene(turn);
    scene.looks_and_sees(standing(rank));
    scene.sleeps_until(false);
    scene
}

impl Scene {
    fn now(&self) -> Moment {
        self.ticket.clock.now()
    }

    fn passes(&self, span: Duration) {
        self.time.fetch_add(u64::try_from(span.as_nanos()).unwrap(), SeqCst);
    }

    fn looks_and_sees(&self, standing: Standing) {
        self.ticket.looks();
        self.ticket.saw(standing);
    }

    /// For how long it sleeps from now; zero: it looks.
    fn sleeps_until(&self, woken: bool) -> Duration {
        self.ticket.sleeps_until(woken).since(self.now())
    }

    /// Whether its call was woken.
    fn is_woken(&self) -> bool {
        self.semaphore.acquire(Duration::ZERO)
    }

    fn told(&self, rank: u32) {
        self.ticket.hear_rank(Some(rank));
    }

    /// When it looks, if it is woken by nobody else.
    fn looks_in(&self) -> Duration {
        self.sleeps_until(false)
    }
}

#[test]
fn a_head_that_is_told_looks_at_once() {
    for rank in [None, Some(0), Some(5)] {
        let scene = asleep(ms(0), rank);
        assert!(!scene.is_woken() && !scene.sleeps_until(false).is_zero());
        scene.told(0);
        assert!(scene.is_woken() && scene.sleeps_until(true).is_zero(), "{rank:?}");
    }
}

#[test]
fn one_that_was_passed_over_looks_at_once() {
    let scene = asleep(ms(50), Some(2));
    scene.ticket.hear_rank(None);
    assert!(scene.is_woken() && scene.sleeps_until(true).is_zero());
}

#[test]
fn told_like_everybody_each_rank_leaves_time_to_those_before_it() {
    for (rank, after) in [(None, 0), (Some(0), 0), (Some(1), 8), (Some(2), 32), (Some(3), 128), (Some(4), 512)] {
        let scene = asleep(ms(0), rank);
        // Else it looks for itself before that.
        scene.ticket.place.lock().next = None;
        scene.ticket.hear(b"0");
        assert_eq!(scene.looks_in(), ms(after), "{rank:?}");
    }
    for rank in [5, 1_000, u32::MAX] {
        let scene = asleep(ms(0), Some(rank));
        scene.ticket.place.lock().next = None;
        scene.ticket.hear(b"anything");
        assert_eq!(scene.looks_in(), ms(512), "rank {rank}");
    }
}

#[test]
fn a_look_is_for_all_that_was_told_before() {
    let scene = asleep(ms(0), Some(1));
    scene.told(0);
    scene.looks_and_sees(standing(Some(1)));
    assert!(!scene.sleeps_until(false).is_zero());
}

/// Told between its look and the answer: the answer may be older.
#[test]
fn what_is_told_while_it_looks_is_not_forgotten() {
    let scene = asleep(ms(0), Some(1));
    scene.ticket.looks();
    scene.told(0);
    scene.ticket.saw(standing(Some(0)));
    assert!(scene.sleeps_until(false).is_zero());
}

#[test]
fn its_arrival_is_the_one_it_was_last_told() {
    let scene = scene(ms(0));
    assert_eq!(scene.ticket.arrival(), 0);
    scene.looks_and_sees(standing(Some(1)));
    assert_eq!(scene.ticket.arrival(), 7);
    scene.looks_and_sees(Standing { arrival: 0, ..standing(None) });
    assert_eq!(scene.ticket.arrival(), 7, "who could not queue keeps what it had");
}

/// It looks once both subscriptions are there, in whatever order they come, and each time one was cut after that.
#[test]
fn it_looks_when_it_may_have_missed_something_on_both_channels() {
    for (first, second) in [(Channel::All, Channel::Own), (Channel::Own, Channel::All)] {
        let scene = asleep(ms(0), None);
        scene.ticket.missed_on(first);
        scene.ticket.missed_on(first);
        assert!(!scene.is_woken());
        scene.ticket.missed_on(second);
        assert!(scene.is_woken() && scene.sleeps_until(true).is_zero());
        scene.looks_and_sees(standing(Some(5)));
        scene.sleeps_until(false);
        scene.ticket.missed_on(first);
        assert!(scene.sleeps_until(false).is_zero());
    }
    let scene = asleep(ms(0), None);
    scene.ticket.is_heard_on(Channel::Own);
    scene.ticket.missed();
    assert!(scene.is_woken());
}

/// Whoever may publish can say any rank.
#[test]
fn no_rank_is_too_great() {
    for turn in [ms(0), ms(10), Duration::from_secs(3_600)] {
        let scene = asleep(turn, Some(0));
        for rank in [3, 1_000_000, u32::MAX - 1, u32::MAX] {
            scene.told(rank);
            scene.sleeps_until(true);
        }
        scene.told(0);
        assert!(scene.sleeps_until(true).is_zero());
    }
}

#[test]
fn it_may_be_queued_once_it_asked() {
    let scene = scene(ms(0));
    assert!(!scene.ticket.may_be_queued());
    scene.ticket.asks(false);
    assert!(!scene.ticket.may_be_queued());
    scene.ticket.asks(true);
    assert!(scene.ticket.may_be_queued());
}

/// If the ask was for one: without its subscriptions it asks for none.
#[test]
fn who_asked_for_a_place_and_has_none_waits_outside() {
    let scene = scene(ms(0));
    scene.ticket.asks(true);
    scene.looks_and_sees(standing(Some(1)));
    scene.ticket.asks(false);
    scene.ticket.has_no_place();
    assert!(!scene.ticket.is_outside() && !scene.ticket.leaves_a_place());
    scene.ticket.asks(true);
    scene.ticket.has_no_place();
    assert!(scene.ticket.is_outside() && scene.ticket.leaves_a_place());
}

const LONG: Duration = Duration::from_secs(3_600);

/// Of those that are not the head, each after the turns that are before its own, its own, and some more.
#[test]
fn one_that_is_behind_comes_when_its_turn_should_be_over() {
    for (turn, rank, after) in [(0, 1, 8), (0, 9, 8), (1, 1, 10), (1, 7, 16), (1, 31, 43), (10, 2, 38)] {
        assert_eq!(asleep(ms(turn), Some(rank)).looks_in(), ms(after), "turns of {turn} ms, rank {rank}");
    }
    assert!(asleep(ms(10), Some(0)).looks_in() > LONG);
    assert!(asleep(ms(10), None).looks_in() > LONG);
}

/// In vain: later each time. Being told, or having come nearer, makes it soon again.
#[test]
fn one_that_comes_in_vain_comes_ever_more_seldom() {
    let scene = asleep(ms(0), Some(2));
    for after in [16, 32, 64] {
        scene.looks_and_sees(standing(Some(2)));
        assert_eq!(scene.looks_in(), ms(after));
    }
    scene.told(2);
    assert_eq!(scene.looks_in(), ms(8), "told");
    scene.looks_and_sees(standing(Some(2)));
    assert_eq!(scene.looks_in(), ms(8), "it looked because it was told");
    scene.looks_and_sees(standing(Some(2)));
    scene.looks_and_sees(standing(Some(1)));
    assert_eq!(scene.looks_in(), ms(8), "it came nearer");
    for _ in 0..40 {
        scene.looks_and_sees(standing(Some(1)));
    }
    assert!(scene.looks_in() > ms(60_000));
}

#[test]
fn being_told_puts_no_look_off() {
    let scene = asleep(ms(5), Some(1));
    scene.told(1);
    assert_eq!(scene.looks_in(), ms(18));
    scene.passes(ms(10));
    scene.told(1);
    assert_eq!(scene.looks_in(), ms(8));
    scene.ticket.hear(b"0");
    assert_eq!(scene.looks_in(), ms(8), "as all are told, it would come as late");
    scene.told(0);
    assert_eq!(scene.looks_in(), ms(0));
}

#[test]
fn a_turn_that_is_left_to_others_is_waited_out() {
    let left = |rank| Standing { promised: ms(5), ..standing(rank) };
    for (rank, after) in [(None, 6), (Some(0), 6), (Some(1), 8), (Some(3), 8)] {
        let scene = scene(ms(0));
        scene.looks_and_sees(left(rank));
        assert_eq!(scene.looks_in(), ms(after), "{rank:?}");
    }
}

/// Else a head that is stopped would cost two turns more, with nobody inside of the lock.
#[test]
fn who_knows_that_the_lock_is_free_comes_soon_however_long_turns_are() {
    for (rank, after) in [(1, 25), (2, 50), (3, 75)] {
        let told = asleep(ms(500), Some(rank));
        told.told(rank);
        assert_eq!(told.looks_in(), ms(after), "rank {rank}");
        let saw = scene(ms(500));
        saw.looks_and_sees(Standing { promised: ms(3), ..standing(Some(rank)) });
        assert_eq!(saw.looks_in(), ms(3 + after), "rank {rank}");
    }
}

/// What all were told while it asked was judged by a rank that was not its own any more.
#[test]
fn who_learns_that_it_is_the_head_looks_again_if_all_were_told_meanwhile() {
    for (rank, at_once) in [(None, true), (Some(0), true), (Some(1), false)] {
        let scene = asleep(ms(0), Some(3));
        scene.ticket.looks();
        scene.ticket.hear(b"0");
        scene.ticket.saw(standing(rank));
        assert_eq!(scene.looks_in().is_zero(), at_once, "{rank:?}");
    }
}

/// Whoever wakes it otherwise has a reason of his own: a cancel, a shutdown, a semaphore of a group.
#[test]
fn woken_without_news_it_looks() {
    let scene = asleep(ms(0), Some(5));
    assert!(!scene.sleeps_until(false).is_zero());
    assert!(scene.sleeps_until(true).is_zero());
    scene.told(2);
    assert!(!scene.sleeps_until(true).is_zero(), "there are news");
}

/// Not woken to hear that it sleeps on.
#[test]
fn it_is_woken_only_to_look_earlier() {
    let scene = asleep(ms(0), Some(5));
    scene.told(3);
    scene.ticket.hear(b"0");
    assert!(!scene.is_woken());
    scene.told(0);
    assert!(scene.is_woken());
}

#[test]
fn turns_are_measured_by_how_far_it_came() {
    let scene = scene(ms(0));
    let turn = |scene: &Scene| scene.ticket.waited().turn;
    assert_eq!(turn(&scene), None);
    scene.looks_and_sees(standing(None));
    assert_eq!(turn(&scene), None);
    scene.looks_and_sees(standing(Some(3)));
    scene.passes(ms(20));
    scene.looks_and_sees(standing(Some(1)));
    assert_eq!(scene.looks_in(), ms(28), "two turns took 20 ms");
    scene.passes(ms(20));
    assert_eq!(turn(&scene), Some(ms(10)));
}

/// Its look came before it was told: turns took longer than it expected, and may for those behind it.
#[test]
fn a_wait_with_a_look_in_vain_was_slow() {
    let scene = asleep(ms(0), Some(2));
    scene.told(0);
    scene.ticket.looks();
    assert!(!scene.ticket.waited().slow);
    scene.ticket.saw(standing(Some(1)));
    scene.ticket.looks();
    assert!(scene.ticket.waited().slow);
}
