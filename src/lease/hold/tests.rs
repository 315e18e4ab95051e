//! How a hold's levels, its watch and its end go together.

use super::*;
use crate::base::key::{Key, Naming};
use crate::base::meters::Meters;
use crate::base::owner::OwnerId;
use crate::base::time::Clock;
use crate::lease::tenure::Nobody;

static KIND: Kind = Kind::new("lock");

/// A hold on a tenure that is held, whose client is gone.
fn hold() -> Hold {
    let tenure = Tenure::new(Key::new(Naming::Redisson, "", "n"), OwnerId::default(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), Lease::new(Duration::from_secs(60)).unwrap()));
    Hold::new(Uuid::nil(), &KIND, Arc::new(tenure), Weak::<Nobody>::new(), None, &Meters::default().of_kind("lock"))
}

#[test]
fn how_a_hold_ended_does_not_depend_on_its_tenure() {
    let (released, lost) = (hold(), hold());
    released.close(true);
    lost.close(false);
    assert_eq!((released.state(), lost.state()), (HoldState::Released, HoldState::Lost));
    for hold in [released, lost] {
        assert_eq!(hold.tenure().state(), TenureState::Held);
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

fn seconds(count: u64) -> Option<Lease> {
    Some(Lease::clamped(Duration::from_secs(count)))
}

/// What the tenure is renewed for, once it follows what the open levels ask for.
fn followed(hold: &Hold) -> Option<Lease> {
    hold.follow();
    let tenure = hold.tenure();
    tenure.renewed_lease().filter(|_| tenure.is_watched())
}

/// The levels that are opened inside a first one that is not renewed.
fn opened<const N: usize>(hold: &Hold, levels: [Option<Lease>; N]) -> [Hold; N] {
    levels.map(|renewed| hold.deepen(hold.count() + 1, renewed))
}

#[test]
fn the_innermost_level_closes_first_when_the_hold_was_found_by_its_name() {
    let hold = hold();
    let asked = [None, seconds(3), seconds(3), None, seconds(30), seconds(3)];
    let renewed = [None, seconds(3), seconds(3), seconds(3), seconds(30), seconds(30)];
    for (at, (asks, renewed)) in asked.into_iter().zip(renewed).enumerate() {
        hold.deepen(at + 2, asks);
        assert_eq!((hold.count(), followed(&hold)), (at + 2, renewed));
    }
    let found = hold.found();
    for (at, renewed) in renewed.into_iter().enumerate().rev() {
        assert_eq!((followed(&hold), found.ascend()), (renewed, at + 1));
    }
    assert_eq!((followed(&hold), hold.count()), (None, 1));
    hold.deepen(2, seconds(3));
    assert_eq!(followed(&hold), seconds(3), "once more");
}

#[test]
fn each_level_takes_its_own_terms_with_it_in_whatever_order_they_close() {
    let hold = hold();
    let [short, long, leased, again] = opened(&hold, [seconds(3), seconds(30), None, seconds(3)]);
    assert_eq!(followed(&hold), seconds(30));
    assert_eq!((long.ascend(), followed(&hold)), (4, seconds(3)), "the longest that is left");
    assert_eq!((short.ascend(), followed(&hold)), (3, seconds(3)), "another one asks for it");
    assert_eq!((again.ascend(), followed(&hold)), (2, None));
    assert_eq!((leased.ascend(), followed(&hold)), (1, None));
}

#[test]
fn a_level_that_is_closed_already_closes_the_innermost() {
    let hold = hold();
    let [long, short] = opened(&hold, [seconds(30), seconds(3)]);
    long.ascend();
    assert_eq!((long.ascend(), followed(&hold)), (1, None));
    assert_eq!((short.ascend(), followed(&hold)), (0, None));
}

/// Its thread ended: nobody closes what it opens.
#[test]
fn an_orphan_is_not_renewed_whatever_its_levels_ask_for() {
    let hold = hold();
    opened(&hold, [seconds(3)]);
    assert_eq!(followed(&hold), seconds(3));
    hold.orphan();
    assert!(!hold.tenure().is_watched() && hold.tenure().is_found_abandoned());
    opened(&hold, [seconds(30)]);
    assert_eq!(followed(&hold), None);
}

#[test]
fn of_those_that_share_a_tenure_the_longest_lease_counts() {
    let first = hold();
    let [long] = opened(&first, [seconds(30)]);
    first.follow();
    let other = first.share_with(thread::current().id(), seconds(3));
    long.ascend();
    assert_eq!(followed(&first), seconds(30), "renewed for the other, who is not asked");
    assert_eq!(followed(&other), seconds(3));
    let [longer] = opened(&first, [seconds(60)]);
    assert_eq!((followed(&first), followed(&other)), (seconds(60), seconds(60)));
    other.part();
    assert_eq!((longer.ascend(), followed(&first)), (1, None));
}
