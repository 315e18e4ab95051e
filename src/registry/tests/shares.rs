//! Threads that share tenures, and have some of their own.

use super::*;

static READ: Kind = Kind { passed_on: false, shared: true, ..Kind::new("read lock") };

fn reading(space: Uuid, opened: bool) -> Hold {
    let tenure = hold("n").tenure().clone();
    let hold = Hold::new(
        space,
        &READ,
        tenure,
        Weak::<Nobody>::new(),
        Some(Lease::clamped(MINUTE)),
        &Meters::default().of_kind("lock"),
    );
    registry().settle(space, "n", &hold);
    if opened {
        registry().open(space, &hold, Moment::MAX);
    }
    hold
}

/// What another thread gets that comes now.
fn comes(space: Uuid) -> Option<Hold> {
    let come = move || match registry().glance(space, "n", Some(&READ)) {
        Some(Entered::Granted(hold)) => {
            // Its end is not to be noticed.
            count_holds(-1);
            Some(hold)
        }
        None => None,
        _ => panic!("it is no sibling's"),
    };
    std::thread::spawn(come).join().unwrap()
}

fn gives_up(space: Uuid, hold: &Hold) -> bool {
    registry().pass_on(space, hold, &FREELY, MINUTE)
}

/// Its first level is closed, and the one that is left asks for less than a thread that comes.
#[test]
fn a_tenure_that_is_renewed_for_less_is_not_shared() {
    let space = Uuid::new_v4();
    let first = reading(space, true);
    let shorter = first.deepen(2, Some(Lease::clamped(MINUTE / 2)));
    first.ascend();
    registry().follow(space, &first);
    assert!(comes(space).is_none());
    registry().clear(space, &shorter);
}

#[test]
fn the_newest_tenure_is_open_and_none_once_it_is_shut() {
    let space = Uuid::new_v4();
    let (first, second) = (reading(space, true), reading(space, true));
    let third = comes(space).unwrap();
    assert!(Arc::ptr_eq(third.tenure(), second.tenure()));
    registry().shut(space, "n");
    assert!(comes(space).is_none());
    assert_eq!(registry().census(space).0, 3);
    assert!(!gives_up(space, &first), "alone with its tenure");
    registry().clear(space, &first);
    assert!(gives_up(space, &second) && third.is_valid());
    assert!(!gives_up(space, &third));
    registry().clear(space, &third);
    assert!(registry().is_idle(space, "n"));
}

/// Nobody comes to what is being released.
#[test]
fn the_last_of_a_tenure_shuts_it_though_others_have_theirs() {
    let space = Uuid::new_v4();
    let (staying, open) = (reading(space, false), reading(space, true));
    assert!(!gives_up(space, &open));
    assert!(comes(space).is_none());
    registry().clear(space, &open);
    assert!(staying.is_valid() && !gives_up(space, &staying));
    registry().clear(space, &staying);
    assert!(registry().is_idle(space, "n"));
}

#[test]
fn a_loss_is_of_one_tenure() {
    let space = Uuid::new_v4();
    let (first, second) = (reading(space, false), reading(space, true));
    first.tenure().lose();
    assert_eq!(registry().lose(space, first.tenure()).len(), 1);
    let third = comes(space).expect("the other one is open still");
    assert!(second.is_valid() && Arc::ptr_eq(third.tenure(), second.tenure()));
    second.tenure().lose();
    assert_eq!(registry().lose(space, second.tenure()).len(), 2);
    for hold in [first, second, third] {
        hold.close(false);
        registry().clear(space, &hold);
    }
    assert!(registry().is_idle(space, "n"));
}

/// Others read: that is no reason to wait, but a lease of one's own to ask for.
#[test]
fn who_cannot_share_contends_at_once() {
    let space = Uuid::new_v4();
    let first = reading(space, true);
    let waiter = waiter_for(false);
    assert!(matches!(registry().enter(space, "n", &waiter), Entered::Head));
    let parked = std::thread::spawn(|| Arc::new(Waiter::new(Some(&READ)))).join().unwrap();
    assert!(matches!(registry().enter(space, "n", &parked), Entered::Parked), "not past the one that waits");
    let second = reading(space, true);
    assert!(
        matches!(registry().turn(space, "n", &parked), Entered::Granted(hold) if Arc::ptr_eq(hold.tenure(), second.tenure()))
    );
    registry().leave(space, "n", &waiter);
    let holds = registry().holds(space);
    holds.iter().for_each(|hold| registry().clear(space, hold));
    assert_eq!((holds.len(), first.is_valid()), (3, true));
}

fn is_in(space: Uuid, hold: &Hold) -> bool {
    registry().believed(space, "n").iter().any(|found| found.is(hold))
}

/// Of a thread that ended: out of the way where its tenure goes on with another thread, else there until it is lost.
#[test]
fn what_a_thread_left_is_found_for_as_long_as_it_may_be_believed() {
    let space = Uuid::new_v4();
    let staying = reading(space, true);
    let left = move || match registry().glance(space, "n", Some(&READ)) {
        Some(Entered::Granted(first)) => (first, reading(space, false)),
        _ => panic!("it is open"),
    };
    let (first, second) = std::thread::spawn(left).join().unwrap();
    assert!(first.is_orphan() && second.is_orphan() && staying.is_valid());
    assert_eq!([&staying, &first, &second].map(|hold| is_in(space, hold)), [true, false, true]);
    second.tenure().lose();
    assert!(registry().lose(space, second.tenure()).iter().any(|hold| hold.is(&second)));
    assert!(!gives_up(space, &staying) && !is_in(space, &second));
    registry().clear(space, &staying);
    assert!(registry().is_idle(space, "n"));
}
