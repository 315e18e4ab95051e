//! How a hold's levels, its watch and its end go together.

use super::*;
use crate::base::key::{Key, Naming};
use crate::base::owner::OwnerId;
use crate::base::time::Clock;
use crate::lease::tenure::Nobody;

static KIND: Kind = Kind { name: "lock", passed_on: true, shared: false };

/// A hold on a tenure that is held, whose client is gone.
fn hold() -> Hold {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), Lease::new(Duration::from_secs(60)).unwrap()));
    Hold::new(Uuid::nil(), &KIND, Arc::new(tenure), Weak::<Nobody>::new(), false)
}

#[test]
fn how_a_hold_ended_does_not_depend_on_its_tenure() {
    let (released, lost) = (hold(), hold());
    released.close(true);
    lost.close(false);
    assert_eq!((released.state(), lost.state()), (HoldState::Released, HoldState::Lost));
    for hold in [released, lost] {
        assert_eq!(hold.tenure().standing(), Standing::Held);
        assert!(!hold.is_valid() && hold.remaining().is_zero() && hold.count() == 0);
    }
}

#[test]
fn a_loss_is_told_in_a_sentence() {
    let told = |cause| hold().loss(cause).to_string();
    assert_eq!(told(LossCause::Expired), "lock \"n\" was lost while held by : its lease ended");
    assert!(told(LossCause::Overheld).ends_with("it was held for as long as max_hold allows"));
    assert!(told(LossCause::Removed).ends_with("the server no longer has it"));
    assert!(told(LossCause::Unwatched).ends_with("the thread that renews it failed"));
}

/// Each level: whether it asks for the watchdog, and whether the tenure is watched once it is open.
#[test]
fn the_watch_lasts_while_a_level_that_asked_for_it_is_open() {
    let hold = hold();
    let is_watched = || hold.tenure().is_watched();
    let levels = [(false, false), (true, true), (false, true), (true, true)];
    for (count, (asks, watched)) in (2..).zip(levels) {
        hold.deepen(count, asks);
        assert_eq!((hold.count(), is_watched()), (count, watched));
    }
    let closed: Vec<_> = std::iter::repeat_with(|| (hold.ascend(), is_watched())).take(4).collect();
    assert_eq!(closed, [(4, true), (3, true), (2, false), (1, false)]);
    hold.deepen(2, true);
    assert!(is_watched(), "once more");
}
