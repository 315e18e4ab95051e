//! The groups that the other tests rely on.

use crate::harness::sentinel::{Cut, Group, Shape};
use crate::proxy::Gate;
use crate::threads::{LONG, eventually};

#[test]
fn a_group_starts_and_its_sentinels_replace_a_master_that_is_well_and_one_that_dies() {
    let mut group = Group::of(Shape::CALM);
    assert_eq!((group.master(), group.settled()), (0, 0));
    group.fail_over(1);
    let second = group.replaced(0);
    assert_eq!(group.settled(), second, "the old one follows");
    group.nodes[second].kill();
    group.replaced(second);
    group.nodes[second].restart();
    assert_ne!(group.settled(), second);
}

/// What it had been told while it was stopped is lost, and it takes what it is told until a sentinel demotes it.
#[test]
fn a_master_that_comes_back_takes_writes_until_it_is_demoted() {
    let group = Group::start();
    group.nodes[0].freeze();
    let other = group.replaced(0);
    group.nodes[0].thaw();
    assert_eq!(group.nodes[0].ask::<String>(&["SET", "n", "1"]), "OK");
    eventually(LONG, "it is demoted", || group.nodes[0].role() == "slave");
    assert_eq!(group.settled(), other);
    assert_eq!(group.nodes[0].ask::<Option<String>>(&["GET", "n"]), None);
}

/// Its clients reach it all the time. What it took then is lost, whether what was sent to it meanwhile arrives or not.
#[test]
fn a_master_that_is_cut_off_is_replaced_and_gives_way_when_it_is_over() {
    for cut in [Cut::Silent, Cut::Hard] {
        let (group, gate) = (Group::of(Shape::APART), Gate::default());
        group.hurry(true);
        group.nodes[0].cut_off(cut, &gate);
        group.replaced(0);
        assert_eq!(group.nodes[0].ask::<String>(&["SET", "n", "1"]), "OK");
        assert!(group.nodes[0].says_master(), "nobody could tell it to give way");
        gate.open();
        group.nodes[0].join();
        eventually(LONG, "the group is whole", || group.whole().is_some());
        assert_eq!(group.nodes[0].ask::<Option<String>>(&["GET", "n"]), None, "{cut:?}");
    }
}
