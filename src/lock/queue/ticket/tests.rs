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

const GIVEN: Given = Given { token: Some(7) };

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// It waits, and nothing has happened yet. The number says which share it has of the time in which those look who are told like everybody.
fn numbered(number: u64) -> Scene {
    let (time, semaphore) = (Arc::new(AtomicU64::new(1_000_000_000)), Arc::<Semaphore>::default());
    let clock = Clock::Manual(Arc::clone(&time));
    let ticket = Ticket::new(Key::new(Naming::Redisson, "", "n"), number, Arc::clone(&semaphore), clock);
    Scene { ticket, time, semaphore }
}

/// It looked, saw its rank, and sleeps.
fn asleep(rank: Option<u32>) -> Scene {
    let scene = numbered(1);
    scene.looks_and_sees(rank);
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

    fn looks_and_sees(&self, rank: Option<u32>) {
        self.ticket.looks();
        self.ticket.saw(rank);
    }

    /// For how long it sleeps from now; zero: it looks.
    fn sleeps_until(&self, woken: bool) -> Duration {
        self.ticket.sleeps_until(woken).since(self.now())
    }

    /// Whether its call was woken.
    fn is_woken(&self) -> bool {
        self.semaphore.acquire(Duration::ZERO)
    }

    /// When it looks, if it is woken by nobody else.
    fn looks_in(&self) -> Duration {
        self.sleeps_until(false)
    }

    /// The name of its last ask.
    fn name(&self) -> String {
        let [name, _] = self.ticket.names();
        name
    }
}

#[test]
fn who_is_told_that_the_lock_is_free_looks_at_once() {
    for rank in [None, Some(0), Some(5)] {
        let scene = asleep(rank);
        assert!(!scene.is_woken() && !scene.sleeps_until(false).is_zero());
        scene.ticket.hear_free();
        assert!(scene.is_woken() && scene.sleeps_until(true).is_zero(), "{rank:?}");
    }
}

/// It may have the lock, or is no longer where it was in the queue.
#[test]
fn who_is_told_that_it_was_given_the_lock_looks_at_once() {
    for name in ["1", "1.2.3.4.5"] {
        let scene = asleep(Some(1));
        scene.ticket.hear_given(name, GIVEN);
        assert!(scene.is_woken() && scene.sleeps_until(true).is_zero(), "{name}");
    }
}

#[test]
fn only_what_was_given_to_the_last_ask_is_taken_and_once() {
    let (scene, offer) = (numbered(1), Lease::of_millis(1_500));
    scene.ticket.offers("client:7:8", offer);
    let first = scene.name();
    assert!(first.starts_with("1.") && first.ends_with(".7.8.1500"), "{first}");
    scene.ticket.asks(true);
    scene.ticket.offers("client:7:8", offer);
    scene.ticket.hear_given(&first, GIVEN);
    assert_eq!(scene.ticket.takes_what_was_given(), None, "that of an earlier ask");
    scene.ticket.hear_given(&scene.name(), GIVEN);
    assert_eq!([scene.ticket.takes_what_was_given(), scene.ticket.takes_what_was_given()], [Some(GIVEN), None]);
    scene.ticket.hear_given(&scene.name(), GIVEN);
    scene.ticket.offers("client:7:8", offer);
    assert_eq!(scene.ticket.takes_what_was_given(), None, "it asks again");
}

#[test]
fn the_names_of_eight_earlier_asks_are_known_if_they_were_sent() {
    let scene = numbered(1);
    let mut names = Vec::new();
    for _ in 0..10 {
        scene.ticket.offers("client:7:8", Lease::of_millis(10));
        scene.ticket.offers("client:7:8", Lease::of_millis(10));
        names.insert(0, scene.name());
        scene.ticket.asks(true);
    }
    scene.ticket.offers("client:7:8", Lease::of_millis(10));
    let [_, before] = scene.ticket.names();
    assert_eq!(before.split(' ').collect::<Vec<_>>(), names[..8]);
}

/// One of rank 3 is one of four, with 8 ms for all of them; of many it is more for each, so that few look before the first has the lock.
#[test]
fn told_like_everybody_each_has_its_share_of_the_time() {
    for (rank, span) in [(1, 4), (3, 8), (7, 32), (31, 512)] {
        for (number, after) in [(0, 0), (512, span / 2), (1_023, span)] {
            let scene = numbered(number);
            scene.looks_and_sees(Some(rank));
            scene.ticket.hear(b"0");
            let late = ms(after).checked_sub(scene.looks_in()).expect("not later");
            assert!(late <= ms(span) / 500, "{number} of rank {rank}: {late:?} before {after} ms");
        }
    }
    for rank in [None, Some(0)] {
        let scene = asleep(rank);
        scene.ticket.hear(b"0");
        assert!(scene.looks_in().is_zero(), "{rank:?}");
    }
}

/// Whoever may write the queue can make it long.
#[test]
fn no_rank_is_too_great() {
    for rank in [1_000_000, u32::MAX - 1, u32::MAX] {
        let scene = asleep(Some(rank));
        scene.ticket.hear(b"0");
        scene.ticket.hear_free();
        assert!(scene.sleeps_until(true).is_zero());
    }
}

/// Whoever was given the lock and is stopped keeps it for an offer: somebody has to look when that ends.
#[test]
fn one_with_others_before_it_looks_after_an_offer() {
    for rank in [1, 7] {
        let scene = asleep(Some(rank));
        assert_eq!(scene.looks_in(), ms(1_500));
        scene.passes(ms(1_000));
        assert_eq!(scene.looks_in(), ms(500));
        scene.looks_and_sees(Some(rank));
        assert_eq!(scene.looks_in(), ms(1_500));
    }
    for rank in [None, Some(0)] {
        assert!(asleep(rank).looks_in() > Duration::from_secs(3_600));
    }
}

#[test]
fn a_look_is_for_all_that_was_told_before() {
    let scene = asleep(Some(1));
    scene.ticket.hear_free();
    scene.looks_and_sees(Some(1));
    assert!(!scene.sleeps_until(false).is_zero());
}

/// Told between its look and the answer: the answer may be older.
#[test]
fn what_is_told_while_it_looks_is_not_forgotten() {
    let scene = asleep(Some(1));
    scene.ticket.looks();
    scene.ticket.hear_free();
    scene.ticket.saw(Some(0));
    assert!(scene.sleeps_until(false).is_zero());
}

/// It looks once both subscriptions are there, in whatever order they come, and each time one was cut after that.
#[test]
fn it_looks_when_it_may_have_missed_something_on_both_channels() {
    for (first, second) in [(Channel::All, Channel::Own), (Channel::Own, Channel::All)] {
        let scene = asleep(None);
        scene.ticket.missed_on(first);
        scene.ticket.missed_on(first);
        assert!(!scene.is_woken());
        scene.ticket.missed_on(second);
        assert!(scene.is_woken() && scene.sleeps_until(true).is_zero());
        scene.looks_and_sees(Some(5));
        scene.sleeps_until(false);
        scene.ticket.missed_on(first);
        assert!(scene.sleeps_until(false).is_zero());
    }
    let scene = asleep(None);
    scene.ticket.is_heard_on(Channel::Own);
    scene.ticket.missed();
    assert!(scene.is_woken());
}

#[test]
fn it_may_be_queued_once_it_asked() {
    let scene = numbered(1);
    assert!(!scene.ticket.may_be_queued());
    scene.ticket.asks(false);
    assert!(!scene.ticket.may_be_queued());
    scene.ticket.asks(true);
    assert!(scene.ticket.may_be_queued());
}

/// If the ask was for one: without its subscriptions it asks for none.
#[test]
fn who_asked_for_a_place_and_has_none_waits_outside() {
    let scene = numbered(1);
    scene.ticket.asks(true);
    scene.looks_and_sees(Some(1));
    scene.ticket.asks(false);
    scene.ticket.has_no_place();
    assert!(!scene.ticket.is_outside() && !scene.ticket.leaves_a_place());
    scene.ticket.asks(true);
    scene.ticket.has_no_place();
    assert!(scene.ticket.is_outside() && scene.ticket.leaves_a_place());
}

/// What all were told while it asked was judged by a rank that was not its own any more.
#[test]
fn who_learns_that_it_is_the_first_looks_again_if_all_were_told_meanwhile() {
    for (rank, at_once) in [(None, true), (Some(0), true), (Some(1), false)] {
        let scene = numbered(1_023);
        scene.looks_and_sees(Some(3));
        scene.ticket.looks();
        scene.ticket.hear(b"0");
        scene.ticket.saw(rank);
        assert_eq!(scene.looks_in().is_zero(), at_once, "{rank:?}");
    }
}

/// Whoever wakes it otherwise has a reason of his own: a cancel, a shutdown, a semaphore of a group.
#[test]
fn woken_without_news_it_looks() {
    let scene = numbered(1_023);
    scene.looks_and_sees(Some(5));
    assert!(!scene.sleeps_until(false).is_zero());
    assert!(scene.sleeps_until(true).is_zero());
    scene.ticket.hear(b"0");
    assert!(!scene.sleeps_until(true).is_zero(), "there are news");
}

/// Not woken to hear that it sleeps on.
#[test]
fn it_is_woken_only_to_look_earlier() {
    let scene = numbered(1_023);
    scene.looks_and_sees(Some(31));
    scene.sleeps_until(false);
    scene.ticket.place.lock().asleep_until = Some(scene.now().plus(ms(10)));
    scene.ticket.hear(b"0");
    assert!(!scene.is_woken());
    scene.ticket.hear_free();
    assert!(scene.is_woken());
}
