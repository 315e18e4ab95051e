//! The clusters that the other tests rely on.

use crate::harness::cluster::{Cluster, How, Keys, Shape, names_in_slot, shared, slot_of};
use crate::harness::sentinel::Cut;
use crate::proxy::Gate;
use crate::threads::{LONG, eventually, ms, timed};

/// The first word of an error that a node answers with.
fn refused(cluster: &Cluster, node: usize, words: &[&str]) -> String {
    let error = cluster.nodes[node].try_ask::<redis::Value>(words).expect_err("it refuses");
    error.code().expect("the node answers").to_owned()
}

fn get(cluster: &Cluster, node: usize, key: &str) -> Option<String> {
    cluster.nodes[node].ask(&["GET", key])
}

fn set(cluster: &Cluster, node: usize, key: &str) {
    cluster.nodes[node].ask::<String>(&["SET", key, "1"]);
}

#[test]
fn a_cluster_starts_and_each_master_has_a_third_of_the_slots_and_a_replica() {
    let (cluster, took) = timed(Cluster::start);
    assert!(took <= ms(3_000), "it took {took:?}");
    assert_eq!(cluster.masters(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|master| cluster.replicas_of(master)), [[3], [4], [5]]);
    assert_eq!([0, 5_460, 5_461, 10_921, 10_922, 16_383].map(|slot| cluster.owner(slot)), [0, 0, 1, 1, 2, 2]);
    for master in 0..3 {
        let name = cluster.name_at(master, 1);
        assert_eq!(cluster.nodes[0].ask::<u16>(&["CLUSTER", "KEYSLOT", &name]), slot_of(&name));
        assert_eq!(cluster.master_of(&name), master);
        set(&cluster, master, &name);
        assert_eq!(refused(&cluster, (master + 1) % 3, &["GET", &name]), "MOVED");
    }
    let tagged = "a{}{tag}b";
    assert_eq!(cluster.nodes[0].ask::<u16>(&["CLUSTER", "KEYSLOT", tagged]), slot_of(tagged));
}

#[test]
fn a_slot_moves_with_its_keys_to_a_node_that_has_joined() {
    let mut cluster = Cluster::start();
    let node = cluster.add_node();
    let tag = names_in_slot(100).next().unwrap();
    let names: Vec<_> = (0..120).map(|number| format!("{{{tag}}}{number}")).collect();
    names.iter().for_each(|name| set(&cluster, 0, name));
    cluster.move_slot(100, node);
    assert_eq!((cluster.owner(100), cluster.masters()), (node, vec![0, 1, 2, node]));
    assert!(names.iter().all(|name| get(&cluster, node, name).is_some()));
    assert_eq!(refused(&cluster, 0, &["GET", &names[0]]), "MOVED");
    cluster.settled();
}

/// Of a slot that is moved halfway each key is at one place, and one that is at none at the new one.
#[test]
fn a_half_moved_slot_asks_for_what_it_does_not_have_and_can_go_both_ways() {
    let cluster = Cluster::start();
    let names: Vec<_> = names_in_slot(100).take(3).collect();
    let [gone, stays, absent] = [0, 1, 2].map(|at| names[at].as_str());
    [gone, stays].iter().for_each(|name| set(&cluster, 0, name));
    let moved = cluster.half_move(100, 1, Keys::Named(&[gone]));
    assert!(get(&cluster, 0, stays).is_some());
    assert_eq!([gone, absent].map(|name| refused(&cluster, 0, &["GET", name])), ["ASK", "ASK"]);
    cluster.cancel_move(moved);
    assert_eq!(cluster.owner(100), 0);
    assert_eq!([gone, stays, absent].map(|name| get(&cluster, 0, name).is_some()), [true, true, false]);
    let moved = cluster.half_move(100, 1, Keys::None);
    assert!(get(&cluster, 0, gone).is_some());
    cluster.finish_move(moved);
    assert!([gone, stays].iter().all(|name| get(&cluster, 1, name).is_some()));
}

#[test]
fn a_master_that_dies_is_replaced_and_comes_back_as_a_replica() {
    let mut cluster = Cluster::of(Shape::PARTIAL);
    let name = cluster.name_at(1, 0);
    cluster.nodes[0].kill();
    set(&cluster, 1, &name);
    assert_eq!(cluster.replaced(0), 3);
    cluster.nodes[0].restart();
    cluster.settled();
    assert_eq!(cluster.replicas_of(3), [0]);
}

#[test]
fn a_replica_takes_over_when_it_is_told_to() {
    let cluster = Cluster::start();
    for (how, replica) in [(How::Orderly, 3), (How::Force, 4), (How::Takeover, 5)] {
        cluster.fail_over(replica, how);
        assert!(cluster.says_master(replica), "{how:?}");
    }
    cluster.settled();
    assert_eq!(cluster.masters(), [3, 4, 5]);
}

/// Its clients reach it, but it serves nothing once it has noticed that it is alone.
#[test]
fn a_master_that_is_cut_off_is_replaced_and_gives_way_when_it_is_over() {
    for cut in [Cut::Silent, Cut::Hard] {
        let (cluster, gate) = (Cluster::of(Shape::APART), Gate::default());
        let name = cluster.name_at(0, 0);
        cluster.cut_off(0, cut, &gate);
        set(&cluster, 0, &name);
        assert_eq!(cluster.replaced(0), 3);
        assert!(cluster.says_master(0), "nobody could tell it to give way");
        eventually(LONG, "it has noticed", || !cluster.nodes[0].serves());
        gate.open();
        cluster.join(0);
        // For a moment it is a master that has no slots.
        eventually(LONG, "it follows", || cluster.replicas_of(3) == [0]);
        cluster.settled();
        assert_eq!(get(&cluster, 3, &name), None, "{cut:?}");
    }
}

#[test]
fn a_message_is_counted_on_its_way_to_the_other_nodes() {
    let cluster = shared();
    let sent = || cluster.nodes[1].bus_messages("publish");
    let (before, calls) = (sent(), cluster.nodes[1].calls(&["publish"]));
    cluster.nodes[1].ask::<i64>(&["PUBLISH", "channel", "message"]);
    assert_eq!(sent() - before, 5);
    assert_eq!(cluster.nodes[1].calls(&["publish"]) - calls, 1);
}
