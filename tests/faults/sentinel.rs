//! Rows 65 to 69: a master that sentinels replace, in each way in which that happens.

use crate::proxy::Gate;
use crate::threads::{LONG, Mark, SOON, WATCHED, eventually, finish, lost_within, ms, spawn_asleep, timed};
use crate::{MINUTE, locks_of, patient};
use harness::sentinel::{Cut, Group, Shape};
use redlatch::{HoldState, LossCause, RedLock, RedLockExt};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// What was replicated is held on. What was not is lost at once, and who waits for it is served, though nobody released it
/// and its lease had most of a minute left.
#[test]
fn fault_65_holds_go_over_and_those_who_wait_for_what_is_lost_are_served() {
    let mut group = Group::of(Shape::SMALL);
    let [holder, waiter] = [(); 2].map(|()| patient(group.builder()));
    std::thread::scope(|scope| {
        let kept = holder.guard("kept").unwrap();
        group.replicated(0);
        group.sever(0);
        let gone = holder.guard("gone").unwrap();
        let waiting = spawn_asleep(scope, || waiter.guard("gone").map(drop));
        eventually(LONG, "it listens", || group.nodes[0].subscribers("redisson_lock__channel:{gone}") == 1);
        let before = holder.client().stats().renewals;
        group.nodes[0].kill();
        group.replaced(0);
        let named = Mark::now();
        assert_eq!(lost_within(SOON, &gone), LossCause::Removed);
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - named <= 2 * SOON, "{served:?} after {:?}", when - named);
        eventually(SOON, "the other is renewed", || holder.client().stats().renewals > before);
        assert!(kept.state() == HoldState::Held && holder.verify(&kept).unwrap());
        assert_err!(gone.unlock(), Lost);
        kept.unlock().unwrap();
    });
}

/// It has the lock in its memory, takes writes and says that it is the master. What it was asked before it stood still it
/// answers now, and however long that may take, nobody listens.
#[test]
fn fault_66_an_old_master_that_goes_on_is_neither_written_to_nor_believed() {
    let group = Group::of(Shape::SMALL);
    let [holder, other] = [(); 2].map(|()| patient(group.builder()));
    let asking = patient(group.builder().response_timeout(LONG));
    [&other, &asking].iter().for_each(|locks| drop(locks.guard("a").unwrap()));
    group.sever(0);
    let guard = holder.guard("n").unwrap();
    group.nodes[0].freeze();
    let (new, asked) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| asking.lock("asked").map(|()| asking.hold("asked").unwrap()));
        let new = group.replaced(0);
        let (lost, took) = timed(|| guard.lost().recv_timeout(LONG));
        // Each client is told by itself: nobody but the new master can serve this one now.
        asking.guard("told").unwrap().unlock().unwrap();
        eventually(LONG, "the other has moved, too", || other.is_locked("told").is_ok());
        group.nodes[0].thaw();
        assert_eq!(lost.expect("the new master does not know it").cause(), LossCause::Removed);
        assert!(took <= SOON, "{took:?}");
        (&group.nodes[new], finish(asked).unwrap())
    });
    eventually(LONG, "it answers", || group.nodes[0].try_ask::<String>(&["PING"]).is_ok());
    assert!(group.nodes[0].takes_writes() && group.nodes[0].pttl("n") > 0, "nobody has told it yet");
    assert!(new.pttl("asked") > 0, "the old master was believed");
    for name in ["n", "m"] {
        other.lock(name).unwrap();
        assert!(new.pttl(name) > 0);
    }
    assert_eq!(group.nodes[0].pttl("m"), -2);
    assert_err!(guard.unlock(), Lost);
    assert!(other.verify(&other.hold("n").unwrap()).unwrap() && asking.verify(&asked).unwrap());
    eventually(SOON, "no connection is left", || group.nodes[0].clients() == 0);
    ["n", "m"].iter().for_each(|name| other.unlock(name).unwrap());
}

/// Nobody can tell it to give way, and its clients reach it all the time.
#[test]
fn fault_67_a_master_that_is_cut_off_is_left_as_soon_as_another_is_named() {
    let (group, gate) = (Group::of(Shape::APART), Gate::default());
    let [holder, other] = [(); 2].map(|()| patient(group.builder_past_proxies()));
    drop(other.guard("a").unwrap());
    group.nodes[0].cut_off(Cut::Hard, &gate);
    let guard = holder.guard("n").unwrap();
    let new = group.replaced(0);
    assert_eq!(lost_within(SOON, &guard), LossCause::Removed);
    group.nodes[new].ask::<i64>(&["HSET", "here", "x", "1"]);
    eventually(LONG, "the other has moved, too", || other.is_locked("here").unwrap_or(false));
    other.lock("n").unwrap();
    let [old, new] = [0, new].map(|number| &group.nodes[number]);
    assert!(new.pttl("n") > 0);
    assert!(old.pttl("n") > 0 && old.says_master() && old.takes_writes(), "it would go on with both");
    eventually(SOON, "nobody asks it", || old.clients() == 0);
    assert_err!(guard.unlock(), Lost);
    assert!(other.verify(&other.hold("n").unwrap()).unwrap());
    other.unlock("n").unwrap();
}

/// Every connection lives on, and the old master is told seconds later.
#[test]
fn fault_68_a_master_that_gives_way_is_left_though_no_connection_breaks() {
    let group = Group::of(Shape::SMALL);
    let [holder, waiter] = [(); 2].map(|()| patient(group.builder()));
    // A release that is not replicated costs it a lease.
    let busy = locks_of(group.builder().watchdog_timeout(WATCHED).outage_budget(LONG));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let kept = holder.guard("kept").unwrap();
        group.replicated(0);
        let waiting = spawn_asleep(scope, || waiter.guard("kept").map(drop));
        let at_work = scope.spawn(|| {
            std::iter::repeat_with(|| busy.guard("m").map(drop))
                .take_while(|done| done.is_ok() && !is_over.load(SeqCst))
                .count();
            busy.guard("m").map(drop)
        });
        eventually(LONG, "it listens", || group.nodes[0].subscribers("redisson_lock__channel:{kept}") == 1);
        group.fail_over(0);
        let new = group.replaced(0);
        eventually(SOON, "all have left", || group.nodes[0].clients() == 0);
        assert_eq!(group.nodes[0].role(), "master", "nobody has told it yet");
        let listening = || group.nodes[new].subscribers("redisson_lock__channel:{kept}") == 1;
        eventually(SOON, "it listens there", listening);
        assert!(holder.verify(&kept).unwrap());
        let released = Mark::now();
        kept.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
        std::thread::sleep(ms(100));
        is_over.store(true, SeqCst);
        finish(at_work).expect("no call fails");
    });
}

/// The first master comes to be one again: it knows what the second had granted, but for what was not replicated.
#[test]
fn fault_69_a_master_that_becomes_one_again_is_followed_both_times() {
    let group = Group::of(Shape::SMALL);
    group.hurry(true);
    let locks = patient(group.builder().response_timeout(SOON));
    let first = locks.guard("first").unwrap();
    group.replicated(0);
    group.fail_over(0);
    assert_eq!((group.replaced(0), group.settled()), (1, 1));
    group.seen_as_replica(0);
    let second = locks.guard("second").unwrap();
    assert!(group.nodes[1].pttl("second") > 0);
    group.replicated(1);
    group.hurry(false);
    group.sever(1);
    let gone = locks.request("gone").lease(MINUTE).guard().unwrap().unwrap();
    group.fail_over(0);
    assert_eq!(group.replaced(1), 0);
    assert_eq!(lost_within(SOON, &gone), LossCause::Removed);
    for guard in [&first, &second] {
        assert!(guard.is_valid() && locks.verify(guard).unwrap());
    }
    assert!(["first", "second"].iter().all(|name| group.nodes[0].pttl(name) > 0));
}
