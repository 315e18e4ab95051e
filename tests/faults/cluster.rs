//! Rows 89 to 92: a master of a cluster that is replaced, in each way in which that happens.

use crate::proxy::Gate;
use crate::threads::{LONG, Mark, SOON, eventually, finish, lost_within, ms, spawn_asleep};
use crate::{patient, seen_through};
use harness::cluster::{Cluster, How, Shape};
use harness::sentinel::Cut;
use redlatch::{HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, ShardedPubsub};

/// In both ways of telling who waits.
const BOTH: [ShardedPubsub; 2] = [ShardedPubsub::Auto, ShardedPubsub::Off];

/// So many clients that of plain messages one at least is told by a node that stays as it is.
const WAITERS: usize = 4;

/// How many connections listen for the lock, at nodes that answer.
fn listeners(cluster: &Cluster, nodes: impl IntoIterator<Item = usize>, name: &str) -> i64 {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let nodes = nodes.into_iter().map(|node| &cluster.nodes[node]);
    nodes.map(|node| node.subscribers(&channel) + node.sharded_subscribers(&channel)).sum()
}

#[track_caller]
fn replicated(cluster: &Cluster, replica: usize, name: &str) {
    eventually(LONG, "it is replicated", || cluster.nodes[replica].keys().iter().any(|key| key == name));
}

/// What was replicated is held on. What was not is lost at once, and who waits for it is served, though nobody released it
/// and its lease had most of a minute left.
#[test]
fn fault_89_holds_go_over_and_those_who_wait_for_what_is_lost_are_served() {
    for told in BOTH {
        let (mut cluster, gate) = (Cluster::of(Shape::APART), Gate::default());
        let holder = patient(seen_through(&cluster).sharded_pubsub(told));
        // Some of them listen at nodes that stay as they are, and nobody tells them of a lock that was lost.
        let waiters = [(); WAITERS].map(|()| patient(seen_through(&cluster).sharded_pubsub(told)));
        let [kept, gone @ ..]: [_; WAITERS + 1] = std::array::from_fn(|number| cluster.name_at(0, number));
        let elsewhere = holder.guard(&cluster.name_at(1, 0)).unwrap();
        std::thread::scope(|scope| {
            let guard = holder.guard(&kept).unwrap();
            replicated(&cluster, 3, &kept);
            cluster.cut_off(3, Cut::Hard, &gate);
            let lost = gone.each_ref().map(|name| holder.guard(name).unwrap());
            let waiting = waiters.iter().zip(&gone);
            let waiting = waiting.map(|(waiter, name)| spawn_asleep(scope, move || waiter.guard(name).map(drop)));
            let waiting: Vec<_> = waiting.collect();
            let listening = || gone.iter().filter(|name| listeners(&cluster, 0..6, name) == 1).count();
            eventually(LONG, "all listen", || listening() == WAITERS);
            let before = holder.client().stats().renewals;
            cluster.nodes[0].kill();
            cluster.join(3);
            cluster.fail_over(3, How::Takeover);
            let named = Mark::now();
            for lost in &lost {
                assert_eq!(lost_within(2 * SOON, lost), LossCause::Removed);
            }
            for (served, when) in waiting.into_iter().map(finish) {
                assert!(served.is_ok() && when - named <= 3 * SOON, "{told:?}: {served:?} after {:?}", when - named);
            }
            eventually(SOON, "the other is renewed", || holder.client().stats().renewals > before);
            assert!(guard.state() == HoldState::Held && holder.verify(&guard).unwrap());
            assert_eq!(elsewhere.state(), HoldState::Held, "its master is well");
            lost.into_iter().for_each(|lost| assert_err!(lost.unlock(), Lost));
            guard.unlock().unwrap();
        });
    }
}

/// It has the lock in its memory and takes writes for a moment. What it was asked before it stood still it answers then,
/// and nobody listens.
#[test]
fn fault_90_an_old_master_that_goes_on_is_neither_written_to_nor_believed() {
    let cluster = Cluster::start();
    let [holder, other] = [(); 2].map(|()| patient(cluster.builder()));
    let asking = patient(cluster.builder().response_timeout(LONG));
    let [name, later, asked] = [0, 1, 2].map(|number| cluster.name_at(0, number));
    [&other, &asking].iter().for_each(|locks| drop(locks.guard(&later).unwrap()));
    let guard = holder.guard(&name).unwrap();
    replicated(&cluster, 3, &name);
    cluster.nodes[0].freeze();
    let hold = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| asking.lock(&asked).map(|()| asking.hold(&asked).unwrap()));
        assert_eq!(cluster.replaced(0), 3);
        let hold = finish(waiting).unwrap();
        eventually(2 * SOON, "the other has moved, too", || other.is_locked(&name).unwrap_or(false));
        cluster.nodes[0].thaw();
        hold
    });
    assert!(cluster.nodes[3].pttl(&asked) > 0, "the old master was believed");
    other.lock(&later).unwrap();
    assert!(cluster.nodes[3].pttl(&later) > 0 && !other.try_lock(&name).unwrap());
    assert!(asking.verify(&hold).unwrap() && holder.verify(&guard).unwrap());
    eventually(LONG, "no connection is left", || cluster.nodes[0].clients_but_scouts() == 0);
    other.unlock(&later).unwrap();
}

/// Nobody can tell it to give way, and its clients reach it all the time.
#[test]
fn fault_91_a_master_that_is_cut_off_is_left_as_soon_as_another_is_named() {
    for cut in [Cut::Hard, Cut::Silent] {
        let (cluster, gate) = (Cluster::of(Shape::APART), Gate::default());
        let [holder, other] = [(); 2].map(|()| patient(seen_through(&cluster)));
        let [name, first, here] = [0, 1, 2].map(|number| cluster.name_at(0, number));
        drop(other.guard(&first).unwrap());
        cluster.cut_off(0, cut, &gate);
        let guard = holder.guard(&name).unwrap();
        assert_eq!(cluster.replaced(0), 3);
        assert_eq!(lost_within(2 * SOON, &guard), LossCause::Removed, "{cut:?}");
        cluster.nodes[3].ask::<i64>(&["HSET", &here, "x", "1"]);
        eventually(LONG, "the other has moved, too", || other.is_locked(&here).unwrap_or(false));
        other.lock(&name).unwrap();
        assert!(cluster.nodes[3].pttl(&name) > 0 && cluster.says_master(0), "it would go on with both");
        eventually(SOON, "nobody asks it", || cluster.nodes[0].clients() == 0);
        assert_err!(guard.unlock(), Lost);
        assert!(other.verify(&other.hold(&name).unwrap()).unwrap());
        other.unlock(&name).unwrap();
        gate.open();
    }
}

/// No connection is closed: who is told of a shard is sent away, and who listens to all nodes stays on what is a replica now.
fn nothing_is_noticed_by(told: ShardedPubsub) {
    let cluster = Cluster::start();
    let locks: [ReentrantLock; 3] = [(); 3].map(|()| patient(cluster.builder().sharded_pubsub(told)));
    let [holder, waiter, busy] = &locks;
    let [name, other] = [0, 1].map(|number| cluster.name_at(0, number));
    std::thread::scope(|scope| {
        let guard = holder.guard(&name).unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard(&name).map(drop));
        eventually(LONG, "it listens", || listeners(&cluster, 0..6, &name) == 1);
        let (stop, is_over) = std::sync::mpsc::channel::<()>();
        let working = scope.spawn(move || {
            while is_over.recv_timeout(ms(1)).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
                busy.guard(&other).map(drop)?;
            }
            busy.guard(&other).map(drop)
        });
        for (old, new) in [(0, 3), (3, 0)] {
            cluster.fail_over(new, How::Orderly);
            cluster.settled();
            eventually(2 * SOON, "it is not listened to", || {
                told == ShardedPubsub::Off || listeners(&cluster, [old], &name) == 0
            });
            eventually(2 * SOON, "it listens again", || listeners(&cluster, 0..6, &name) == 1);
            assert!(holder.verify(&guard).unwrap());
        }
        let released = Mark::now();
        guard.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
        drop(stop);
        finish(working).expect("no call fails");
    });
}

#[test]
fn fault_92_a_failover_by_hand_and_back_fails_no_call() {
    nothing_is_noticed_by(ShardedPubsub::Auto);
}

#[test]
fn fault_92_those_who_listen_to_all_nodes_are_told_behind_a_replica_too() {
    nothing_is_noticed_by(ShardedPubsub::Off);
}

/// Row 91 again, of one that nobody notices: the client asks others than the master that it uses.
#[test]
fn fault_91_a_node_that_is_cut_off_is_not_the_only_one_that_is_asked() {
    let (cluster, gate) = (Cluster::of(Shape::APART), Gate::default());
    let locks = patient(seen_through(&cluster));
    let [name, other] = [0, 1].map(|master| cluster.name_at(master, 0));
    drop(locks.guard(&name).unwrap());
    cluster.cut_off(0, Cut::Hard, &gate);
    let guard = locks.guard(&other).unwrap();
    replicated(&cluster, 4, &other);
    cluster.replaced(0);
    cluster.fail_over(4, How::Orderly);
    eventually(LONG, "it is verified at the new master", || locks.verify(&guard).unwrap_or(false));
    guard.unlock().unwrap();
    assert!(!cluster.nodes[4].keys().contains(&other));
}
