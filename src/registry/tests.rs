//! What the map says to threads that come, wait, hold, lose and leave.

use super::*;
use crate::error::Result;
use crate::key::{Key, Naming};
use crate::tenure::{Keeper, LossCause};
use crate::time::{Clock, Lease};
use std::sync::Weak;
use std::time::Duration;

struct Nobody;

impl Keeper for Nobody {
    fn renew(&self, _: &[Arc<Tenure>]) {}
    fn sweep(&self, _: &Tenure) -> Result<()> {
        Ok(())
    }
    fn lost(&self, _: &Arc<Tenure>, _: LossCause) {}
    fn extend(&self, _: &Arc<Tenure>, _: Lease) -> Result<()> {
        Ok(())
    }
}

/// A hold of the current thread, valid for a minute.
fn hold(key: &str) -> Hold {
    let tenure = Tenure::new(Arc::new(Key::new(Naming::Redisson, "", key)), "owner".into(), Clock::Boot);
    assert!(tenure.confirm(tenure.now(), Lease::new(Duration::from_secs(60)).unwrap()));
    Hold::new(Uuid::nil(), Arc::new(tenure), Weak::<Nobody>::new(), false)
}

fn waiter() -> Arc<Waiter> {
    Arc::default()
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
    let entered = std::thread::scope(|scope| scope.spawn(|| map.enter(space, "n", &waiting)).join().unwrap());
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
    assert!(map.lose(space, lost.tenure()).is_some_and(|found| found.is(&lost)));
    std::thread::scope(|scope| scope.spawn(|| map.settle(space, "n", &next)).join().unwrap());
    assert!(map.find(space, "n", lost.thread()).is_some_and(|found| found.is(&lost)));
    assert!(map.current(space, "n").is_some_and(|found| found.is(&next)));
    map.clear(space, &lost);
    map.clear(space, &next);
    assert!(map.look(space, "n", |_| Some(())).is_none());
}

#[test]
fn an_expired_hold_that_nobody_reported_lets_the_next_one_through() {
    let (space, map, hold) = (Uuid::new_v4(), registry(), hold("n"));
    map.settle(space, "n", &hold);
    let waiting = waiter();
    std::thread::scope(|scope| scope.spawn(|| drop(map.enter(space, "n", &waiting))).join().unwrap());
    hold.tenure().lose();
    assert!(map.is_head(space, "n", &waiting));
    map.clear(space, &hold);
    map.leave(space, "n", &waiting);
}

#[test]
fn the_holds_of_an_ended_thread_are_not_renewed() {
    let (space, map) = (Uuid::new_v4(), registry());
    let hold = std::thread::spawn(move || {
        let hold = hold("n");
        hold.tenure().watch(true);
        registry().settle(space, "n", &hold);
        hold
    });
    let hold = hold.join().unwrap();
    assert!(!hold.tenure().is_watched() && hold.is_orphan());
    hold.tenure().lose();
    assert!(map.lose(space, hold.tenure()).is_some());
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
