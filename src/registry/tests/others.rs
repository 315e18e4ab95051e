//! What it changes that other clients were told of a release, or that none was.

use super::*;
use crate::lease::tenure::Audience;

fn audience(others: bool) -> Audience {
    if others { Audience::Others } else { Audience::Nobody }
}

#[test]
fn the_next_to_contend_gives_way_when_others_were_told_of_the_release() {
    for told in [Some(true), Some(false), None] {
        let (space, map, hold, [second]) = scene([true]);
        assert!(hold.tenure().end());
        if let Some(others) = told {
            hold.tenure().note_audience(audience(others));
        }
        map.clear(space, &hold);
        assert!(matches!(map.turn(space, "n", &second), Entered::Head));
        assert_eq!(second.gives_way(), told == Some(true));
        assert!(!second.gives_way(), "once");
        assert!(matches!(map.leave(space, "n", &second), LeftBehind::Nothing));
    }
}

/// How often a tenure is passed on within a bound of one pass, after one that others were told of or not; or that ended
/// so, and one after it was lost.
fn passes_after(told: Option<bool>, lost: bool) -> usize {
    let (space, map, last, waiters) = scene([true; 7]);
    assert!(last.tenure().end());
    if let Some(others) = told {
        last.tenure().note_audience(audience(others));
    }
    map.clear(space, &last);
    if lost {
        let hold = held("n", true);
        map.settle(space, "n", &hold);
        hold.tenure().lose();
        assert!(!map.lose(space, hold.tenure()).is_empty());
        map.clear(space, &hold);
    }
    let mut hold = held("n", true);
    map.settle(space, "n", &hold);
    map.leave(space, "n", &waiters[0]);
    let mut passes = 0;
    while map.pass_on(space, &hold, &HandOff { passes: 1, ..FREELY }, MINUTE) {
        passes += 1;
        hold = given(map, space, &waiters[passes]);
    }
    waiters.iter().for_each(|waiter| drop(map.leave(space, "n", waiter)));
    map.clear(space, &hold);
    passes
}

#[test]
fn the_bounds_are_wider_while_nobody_else_listens() {
    assert_eq!([Some(true), Some(false), None].map(|told| passes_after(told, false)), [1, 4, 1]);
    assert_eq!(passes_after(Some(false), true), 1);
}

/// From when the thread has it, not from when its group has it in hand: a process may be stopped in between.
#[test]
fn what_a_thread_acquires_while_it_takes_a_group_has_no_caller_yet() {
    let parts = |holds: [&Hold; 2]| holds.map(is_part_of_group);
    let before = hold("before");
    let taking = TakesGroup::begin();
    let part = hold("part");
    assert_eq!(parts([&before, &part]), [false, true]);
    // One group within another ends with that.
    drop(TakesGroup::begin());
    assert_eq!(parts([&before, &part]), [false, true]);
    let others = std::thread::spawn(|| is_part_of_group(&hold("of another thread"))).join().unwrap();
    assert!(!others);
    taking.goes_on(false);
    assert_eq!(parts([&before, &part]), [false, false]);
    taking.goes_on(true);
    assert_eq!(parts([&before, &part]), [false, true]);
    let given_back = hold("given back");
    given_back.disown();
    drop(taking);
    assert_eq!(parts([&before, &part]), [false, false]);
    assert!(is_part_of_group(&given_back), "its loss may be found when the call is over");
}
