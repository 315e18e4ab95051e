//! Who is counted, parked and kept while tenures pass, and after losses.

use super::*;

#[test]
fn passes_are_counted_from_the_acquire_on_the_wire() {
    let (space, map, first, [second, third]) = scene([true, true]);
    let once = HandOff { passes: 1, ..FREELY };
    assert!(map.pass_on(space, &first, &once, MINUTE));
    let next = given(map, space, &second);
    assert!(!map.pass_on(space, &next, &once, MINUTE), "other processes come first");
    map.clear(space, &next);
    assert!(map.is_head(space, "n", &third));
    let again = held("n", true);
    map.settle(space, "n", &again);
    map.leave(space, "n", &third);
    map.enter(space, "n", &waiter());
    assert!(map.pass_on(space, &again, &once, MINUTE), "a new acquire, a new count");
    map.clear(space, &map.believed(space, "n").pop().unwrap());
}

#[test]
fn who_takes_what_was_kept_leaves_the_others_parked() {
    let (space, map, first, [second, third]) = scene([true, true]);
    assert!(map.pass_on(space, &first, &KEEPING, MINUTE));
    let next = given(map, space, &second);
    assert_eq!(map.census(space), (1, 1));
    assert!(map.pass_on(space, &next, &FREELY, MINUTE));
    map.clear(space, &given(map, space, &third));
}

/// Another thread may release them.
#[test]
fn permits_are_no_holds_of_a_thread() {
    static PERMITS: Kind = Kind { of_thread: false, ..Kind::new("permits") };
    std::thread::spawn(|| {
        let (space, map) = (Uuid::new_v4(), registry());
        let tenure = hold("n").tenure().clone();
        let permit =
            Hold::new(Uuid::nil(), &PERMITS, tenure, Weak::<Nobody>::new(), None, &Meters::default().of_kind("lock"));
        map.settle(space, "n", &permit);
        assert!(!holds_any());
        map.clear(space, &permit);
        let held = hold("n");
        map.settle(space, "n", &held);
        assert!(holds_any());
        map.clear(space, &held);
        assert!(!holds_any());
    })
    .join()
    .unwrap();
}

#[test]
fn one_lost_hold_is_unlocked_and_the_other_stays() {
    let (space, map) = (Uuid::new_v4(), registry());
    let [first, second] = [0; 2].map(|_| {
        let hold = std::thread::spawn(|| hold("n")).join().unwrap();
        map.settle(space, "n", &hold);
        hold.tenure().lose();
        map.lose(space, hold.tenure());
        hold
    });
    map.clear(space, &first);
    assert!(map.find(space, "n", first.thread()).is_none());
    assert!(map.find(space, "n", second.thread()).is_some_and(|found| found.is(&second)));
    map.clear(space, &second);
    count_holds(-2);
}
