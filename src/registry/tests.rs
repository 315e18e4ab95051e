//! What the map says to threads that come, wait, hold, lose and leave.

use super::*;
use crate::base::key::{Key, Naming};
use crate::base::meters::Meters;
use crate::base::owner::OwnerId;
use crate::base::time::{Clock, Lease};
use crate::lease::hold::HoldState;
use crate::lease::tenure::Nobody;
use crate::registry::holders::Holders;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

mod counts;
mod others;
mod shares;

static KIND: Kind = Kind::new("lock");

/// A hold of the current thread, valid for a minute.
fn hold(key: &str) -> Hold {
    held(key, false)
}

fn held(key: &str, watched: bool) -> Hold {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", key), OwnerId::default(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), Lease::new(MINUTE).unwrap()));
    let renewed = watched.then(|| Lease::clamped(MINUTE));
    Hold::new(Uuid::nil(), &KIND, Arc::new(tenure), Weak::<Nobody>::new(), renewed, &Meters::default().of_kind("lock"))
}

const MINUTE: Duration = Duration::from_secs(60);

/// A call of some other thread.
fn waiter() -> Arc<Waiter> {
    waiter_for(true)
}

fn waiter_for(watched: bool) -> Arc<Waiter> {
    std::thread::spawn(move || Arc::new(Waiter::new(watched.then_some(&KIND)))).join().unwrap()
}

impl Registry {
    fn is_head(&self, space: Uuid, key: &str, waiter: &Arc<Waiter>) -> bool {
        matches!(self.turn(space, key, waiter), Entered::Head)
    }
}

fn is_woken(waiter: &Waiter) -> bool {
    waiter.semaphore.acquire(Duration::ZERO)
}

#[test]
fn one_contends_and_the_others_follow_in_order() {
    let (space, map) = (Uuid::new_v4(), registry());
    let [first, second, third] = [waiter(), waiter(), waiter()];
    assert!(matches!(map.enter(space, "n", &first), Entered::Head));
    assert!(matches!(map.enter(space, "n", &second), Entered::Parked));
    assert!(matches!(map.enter(space, "n", &third), Entered::Parked));
    assert!(!map.is_head(space, "n", &second));
    map.leave(space, "n", &first);
    assert!(is_woken(&second) && map.is_head(space, "n", &second));
    assert!(!is_woken(&third) && !map.is_head(space, "n", &third));
    map.leave(space, "n", &third);
    map.leave(space, "n", &second);
    assert!(map.look(space, "n", |_| Some(())).is_none(), "an entry that nobody needs is gone");
}

#[test]
fn nobody_contends_while_the_lock_is_held_or_being_released() {
    let (space, map, hold) = (Uuid::new_v4(), registry(), hold("n"));
    map.settle(space, "n", &hold);
    let waiting = waiter();
    let entered = map.enter(space, "n", &waiting);
    assert!(matches!(entered, Entered::Parked));
    hold.tenure().end();
    assert!(!map.is_head(space, "n", &waiting), "the release is still under way");
    map.clear(space, &hold);
    assert!(is_woken(&waiting) && map.is_head(space, "n", &waiting));
    map.leave(space, "n", &waiting);
}

#[test]
fn a_lost_hold_stays_beside_the_next_one_until_it_is_unlocked() {
    let (space, map, lost, next) = (Uuid::new_v4(), registry(), hold("n"), hold("n"));
    map.settle(space, "n", &lost);
    lost.tenure().lose();
    assert!(map.lose(space, lost.tenure()).iter().all(|found| found.is(&lost)));
    std::thread::scope(|scope| scope.spawn(|| map.settle(space, "n", &next)).join().unwrap());
    assert!(map.find(space, "n", lost.thread()).is_some_and(|found| found.is(&lost)));
    assert!(map.believed(space, "n").pop().is_some_and(|found| found.is(&next)));
    map.clear(space, &lost);
    map.clear(space, &next);
    assert!(map.look(space, "n", |_| Some(())).is_none());
}

#[test]
fn an_expired_hold_that_nobody_reported_lets_the_next_one_through() {
    let (space, map, hold) = (Uuid::new_v4(), registry(), hold("n"));
    map.settle(space, "n", &hold);
    let waiting = waiter();
    map.enter(space, "n", &waiting);
    hold.tenure().lose();
    assert!(map.is_head(space, "n", &waiting));
    map.clear(space, &hold);
    map.leave(space, "n", &waiting);
}

#[test]
fn the_holds_of_an_ended_thread_are_not_renewed() {
    let (space, map) = (Uuid::new_v4(), registry());
    let hold = std::thread::spawn(move || {
        let hold = held("n", true);
        registry().settle(space, "n", &hold);
        hold
    });
    let hold = hold.join().unwrap();
    assert!(!hold.tenure().is_watched() && hold.is_orphan());
    hold.tenure().lose();
    assert!(!map.lose(space, hold.tenure()).is_empty());
    assert!(map.look(space, "n", |_| Some(())).is_none(), "nobody will unlock it, so it is not kept");
}

#[test]
fn namespaces_do_not_meet() {
    let (here, there, map, hold) = (Uuid::new_v4(), Uuid::new_v4(), registry(), hold("n"));
    map.settle(here, "n", &hold);
    assert!(map.find(there, "n", hold.thread()).is_none());
    assert_eq!((map.holds(here).len(), map.holds(there).len()), (1, 0));
    map.clear(here, &hold);
}

/// Passes on for as long as it likes.
const FREELY: HandOff =
    HandOff { passes: usize::MAX, within: MINUTE, turn: Duration::ZERO, give_way: Duration::ZERO, queues: true };

/// The same with a turn that does not end.
const KEEPING: HandOff = HandOff { turn: MINUTE, ..FREELY };

/// A lock that the current thread holds, and calls that are parked behind it.
fn scene<const N: usize>(wanting: [bool; N]) -> (Uuid, &'static Registry, Hold, [Arc<Waiter>; N]) {
    let (space, map, hold) = (Uuid::new_v4(), registry(), held("n", true));
    map.settle(space, "n", &hold);
    let waiters = wanting.map(waiter_for);
    for waiter in &waiters {
        assert!(matches!(map.enter(space, "n", waiter), Entered::Parked));
    }
    (space, map, hold, waiters)
}

/// The hold that a parked call was given.
fn given(map: &Registry, space: Uuid, waiter: &Arc<Waiter>) -> Hold {
    match map.turn(space, "n", waiter) {
        Entered::Granted(hold) => hold,
        _ => panic!("it was given nothing"),
    }
}

#[test]
fn a_tenure_passes_to_the_parked_in_order_of_arrival() {
    let (space, map, first, [second, third]) = scene([true, true]);
    assert!(map.pass_on(space, &first, &FREELY, MINUTE));
    assert_eq!((first.state(), first.count()), (HoldState::Released, 0));
    assert!(is_woken(&second) && !is_woken(&third));
    assert!(matches!(map.turn(space, "n", &third), Entered::Parked));
    let next = given(map, space, &second);
    assert!(Arc::ptr_eq(next.tenure(), first.tenure()) && next.is_valid() && !next.is(&first));
    assert!(map.pass_on(space, &next, &FREELY, MINUTE));
    let last = given(map, space, &third);
    assert!(!map.pass_on(space, &last, &FREELY, MINUTE), "nobody is left");
    assert!(last.is_valid());
    map.clear(space, &last);
    assert!(map.look(space, "n", |_| Some(())).is_none());
}

#[test]
fn within_a_turn_the_running_thread_may_come_again_and_a_parked_one_is_roused() {
    let (space, map, first, [second]) = scene([true]);
    let bounds = KEEPING;
    assert!(map.pass_on(space, &first, &bounds, MINUTE));
    assert!(is_woken(&second));
    let Some(Entered::Granted(again)) = map.glance(space, "n", Some(&KIND)) else { panic!("it is kept") };
    assert!(matches!(map.turn(space, "n", &second), Entered::Parked), "the other was faster");
    assert!(map.pass_on(space, &again, &bounds, MINUTE));
    let next = given(map, space, &second);
    map.clear(space, &next);
}

#[test]
fn only_a_watched_tenure_passes_and_only_to_who_asks_for_no_lease() {
    for (watched, wanting) in [(true, false), (false, true)] {
        let (space, map, hold, [waiter]) = scene([wanting]);
        hold.tenure().watch(watched);
        assert!(!map.pass_on(space, &hold, &FREELY, MINUTE));
        assert!(hold.is_valid(), "it still has to be released");
        map.clear(space, &hold);
        assert!(map.is_head(space, "n", &waiter));
        map.leave(space, "n", &waiter);
    }
}

#[test]
fn nothing_passes_beyond_the_bounds() {
    let (space, map, hold, [waiter]) = scene([true]);
    for (bounds, lease) in [
        (HandOff { passes: 0, ..FREELY }, MINUTE),
        (FREELY.within(Duration::ZERO), MINUTE),
        (FREELY, 3 * MINUTE),
        (FREELY, MINUTE / 2),
    ] {
        assert!(!map.pass_on(space, &hold, &bounds, lease), "{bounds:?}, {lease:?}");
    }
    hold.tenure().suspect();
    assert!(!map.pass_on(space, &hold, &FREELY, MINUTE), "a tenure in doubt");
    hold.tenure().lose();
    assert!(!map.pass_on(space, &hold, &FREELY, MINUTE), "a lost tenure");
    map.clear(space, &hold);
    map.leave(space, "n", &waiter);
}

#[test]
fn a_call_that_goes_though_it_was_granted_leaves_the_hold_to_be_released() {
    let (space, map, first, [second]) = scene([true]);
    assert!(map.pass_on(space, &first, &FREELY, MINUTE));
    let LeftBehind::Granted(hold) = map.leave(space, "n", &second) else { panic!("a grant beats a time-out") };
    assert!(hold.thread() != first.thread() && hold.is_valid());
    map.clear(space, &hold);
}

#[test]
fn a_kept_tenure_that_nobody_can_take_any_more_ends() {
    let (space, map, first, [second, third]) = scene([true, false]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE));
    let LeftBehind::Unclaimed(hold) = map.leave(space, "n", &second) else { panic!("the last who could take it went") };
    assert!(hold.is(&first) && !hold.tenure().is_valid());
    assert!(map.glance(space, "n", Some(&KIND)).is_none(), "nobody gets it any more");
    assert!(matches!(map.turn(space, "n", &third), Entered::Parked), "until its release is done");
    map.clear(space, &hold);
    assert!(map.is_head(space, "n", &third));
    map.leave(space, "n", &third);
}

#[test]
fn a_kept_tenure_finds_another_taker() {
    let (space, map, first, [second, third]) = scene([true, true]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE));
    assert!(is_woken(&second) && !is_woken(&third));
    assert!(matches!(map.leave(space, "n", &second), LeftBehind::Nothing));
    assert!(is_woken(&third));
    let next = given(map, space, &third);
    map.clear(space, &next);
}

#[test]
fn a_kept_tenure_is_nobodys_hold() {
    let (space, map, first, [second]) = scene([true]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE));
    assert!(map.find(space, "n", first.thread()).is_none());
    assert_eq!(map.census(space), (0, 1));
    first.tenure().lose();
    assert!(map.lose(space, first.tenure()).is_empty(), "nobody lost it");
    assert!(map.is_head(space, "n", &second));
    map.leave(space, "n", &second);
    assert!(map.look(space, "n", |_| Some(())).is_none());
}

#[test]
fn a_hold_that_was_passed_on_does_not_count_for_its_thread_any_more() {
    let (space, map) = (Uuid::new_v4(), registry());
    let hold = std::thread::spawn(move || {
        let hold = held("n", true);
        map.settle(space, "n", &hold);
        map.enter(space, "n", &waiter());
        assert!(map.pass_on(space, &hold, &FREELY, MINUTE));
        hold
    });
    let hold = hold.join().unwrap();
    assert!(hold.tenure().is_watched() && !hold.is_orphan(), "the thread that ended had passed it on");
    map.clear(space, &map.believed(space, "n").pop().unwrap());
}

/// A call may be roused and, before it looks, contend on the wire: that must not count for those behind it.
#[test]
fn who_was_roused_is_forgotten_with_the_tenure() {
    let (space, map, first, [second, third]) = scene([true, true]);
    let bounds = KEEPING;
    assert!(map.pass_on(space, &first, &bounds, MINUTE));
    assert!(is_woken(&second));
    first.tenure().lose();
    map.lose(space, first.tenure());
    assert!(map.is_head(space, "n", &second));
    let next = held("n", true);
    map.settle(space, "n", &next);
    map.leave(space, "n", &second);
    assert!(map.pass_on(space, &next, &bounds, MINUTE));
    assert!(is_woken(&third), "else the tenure is kept and nobody comes");
    let last = given(map, space, &third);
    map.clear(space, &last);
}

/// A call that was roused and then granted a tenure in vain comes again as the same waiter.
#[test]
fn who_was_granted_in_vain_can_be_roused_again() {
    let (space, map, first, [second]) = scene([true]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE));
    let Some(Entered::Granted(again)) = map.glance(space, "n", Some(&KIND)) else { panic!("it is kept") };
    assert!(map.pass_on(space, &again, &FREELY, MINUTE), "the turn is over");
    again.tenure().lose();
    let lost = given(map, space, &second);
    lost.close(false);
    map.clear(space, &lost);
    map.leave(space, "n", &second);
    let next = held("n", true);
    map.settle(space, "n", &next);
    assert!(is_woken(&second) && matches!(map.enter(space, "n", &second), Entered::Parked));
    assert!(map.pass_on(space, &next, &KEEPING, MINUTE));
    assert!(is_woken(&second), "else the tenure is kept and nobody comes");
    map.clear(space, &given(map, space, &second));
}

/// A loss is written without the lock of the map, so also between the look at a tenure and its grant.
#[test]
fn who_is_granted_a_tenure_that_is_lost_stays_in_the_queue() {
    let (space, map, first, [second]) = scene([true]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE), "it is kept");
    first.tenure().lose();
    map.with(space, "n", ThreadEntry::grant_kept);
    assert!(is_woken(&second) && second.take_granted().is_none());
    assert!(map.lose(space, first.tenure()).is_empty(), "nobody lost it");
    assert!(map.is_head(space, "n", &second), "else it waits and nobody knows");
    map.leave(space, "n", &second);
}

/// The same by chance, in all of its steps.
#[test]
fn a_tenure_that_is_lost_while_it_is_granted_leaves_nobody_outside_of_the_queue() {
    // A race of two threads, of which each has to be on a core: a busy machine gets through fewer.
    let began = Instant::now();
    for spins in (0..6_000).take_while(|_| began.elapsed() < Duration::from_secs(2)) {
        let (space, map, first, [second]) = scene([true]);
        let ready = AtomicBool::new(false);
        let passed = std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.store(true, SeqCst);
                (0..spins % 300).for_each(|_| std::hint::spin_loop());
                first.tenure().lose();
            });
            while !ready.load(SeqCst) {
                std::hint::spin_loop();
            }
            map.pass_on(space, &first, &FREELY, MINUTE)
        });
        map.lose(space, first.tenure());
        if !passed {
            map.clear(space, &first);
        }
        match map.turn(space, "n", &second) {
            Entered::Granted(hold) => map.clear(space, &hold),
            entered => assert!(matches!(entered, Entered::Head), "it waits and nobody knows"),
        }
        map.leave(space, "n", &second);
    }
}

#[test]
fn keys_that_share_a_shard_do_not_meet() {
    let (space, map) = (Uuid::new_v4(), registry());
    let holds: Vec<_> = (0..1_000).map(|number| (format!("n{number}"), hold("n"))).collect();
    holds.iter().for_each(|(key, hold)| map.settle(space, key, hold));
    for (key, hold) in &holds {
        assert!(map.believed(space, key).pop().is_some_and(|found| found.is(hold)), "{key} is another");
        assert!(map.believed(space, &format!("no {key}")).is_empty(), "{key} is found by another name");
    }
    for (key, _) in &holds {
        map.with(space, key, |entry| entry.holders = Holders::default());
        count_holds(-1);
    }
}

#[test]
fn a_hold_without_levels_is_not_kept_once_it_is_lost() {
    let (space, map, hold) = (Uuid::new_v4(), registry(), hold("n"));
    map.settle(space, "n", &hold);
    hold.close(false);
    hold.tenure().lose();
    map.lose(space, hold.tenure());
    assert!(map.look(space, "n", |_| Some(())).is_none());
    count_holds(-1);
}

#[test]
fn waiters_are_counted_and_woken_by_their_namespace() {
    let (here, there, map, held) = (Uuid::new_v4(), Uuid::new_v4(), registry(), hold("held"));
    map.settle(here, "held", &held);
    let waiters = [(here, "a"), (here, "a"), (here, "a"), (there, "a"), (here, "b")].map(|(space, key)| {
        let waiter = waiter();
        drop(map.enter(space, key, &waiter));
        (space, key, waiter)
    });
    assert_eq!((map.census(here), map.census(there)), ((1, 4), (0, 1)));
    let woken = || waiters.each_ref().map(|(.., waiter)| is_woken(waiter));
    map.wake(here, "a");
    assert_eq!(woken(), [true, false, false, false, false], "the one that contends");
    map.wake_all(here);
    assert_eq!(woken(), [true, true, true, false, true]);
    waiters.iter().for_each(|(space, key, waiter)| drop(map.leave(*space, key, waiter)));
    map.clear(here, &held);
    assert_eq!((map.census(here), map.census(there)), ((0, 0), (0, 0)));
}

#[test]
fn a_hold_that_another_thread_cleared_is_not_counted_as_given_back_by_that_one() {
    let (space, theirs) = (Uuid::new_v4(), hold("theirs"));
    registry().settle(space, "theirs", &theirs);
    let ended = std::thread::spawn(move || {
        registry().clear(space, &theirs);
        let hold = hold("n");
        registry().settle(space, "n", &hold);
        hold
    });
    let ended = ended.join().unwrap();
    assert!(ended.is_orphan(), "its thread's end was not noticed");
    registry().clear(space, &ended);
}

#[test]
fn a_thread_has_a_number_of_its_own() {
    let number = thread_number();
    assert_eq!(thread_number(), number);
    assert_ne!(std::thread::spawn(thread_number).join().unwrap(), number);
}
