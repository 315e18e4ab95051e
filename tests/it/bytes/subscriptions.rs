//! Subscriptions whose request or confirmation fails at any byte: the waiter gets its lock all the same.

use super::{EveryByte, Fault, Finds, Scene, builder, names};
use crate::proxy::Flow;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{RedLock, ReentrantLock};
use std::time::Duration;

/// When a subscriber that hears nothing finds out by asking: its next ping is not answered.
const PINGED: Duration = Duration::from_secs(4);

/// The subscription to the channel of a lock.
fn subscribes(name: &str) -> Finds {
    let (subscribes, names) = (names("\r\nSUBSCRIBE\r\n"), names(&format!("{{{name}}}")));
    Box::new(move |data| subscribes(data) && names(data))
}

impl Scene<'_, ReentrantLock> {
    /// A waiter of these locks whose subscription fails is served soon after the holder went.
    fn assert_served(&self, locks: &ReentrantLock) {
        self.direct.lock(&self.name).unwrap();
        self.arm();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                assert!(locks.try_lock_for(&self.name, LONG).unwrap());
                let got = Mark::now();
                assert_eq!(self.server.owner(&self.name).0, locks.hold(&self.name).unwrap().owner());
                locks.unlock(&self.name).unwrap();
                got
            });
            eventually(LONG, &format!("the subscription fails: {:?}", self.case), || self.length.get().is_some());
            let free = Mark::now();
            self.direct.unlock(&self.name).unwrap();
            let took = finish(waiter) - free;
            let bound = if self.is_deaf() { PINGED } else { SOON } + LATE;
            assert!(took <= bound, "{took:?} {:?}", self.case);
        });
        self.assert_free();
    }

    /// It was confirmed, and then no message comes.
    fn is_deaf(&self) -> bool {
        self.case.fault == Fault::Held && self.case.flow == Flow::Reply && self.is_whole()
    }
}

#[test]
fn a_waiter_is_served_whatever_becomes_of_its_subscription() {
    EveryByte::of(subscribes).run(|scene: &Scene<'_, ReentrantLock>| scene.assert_served(scene.locks));
}

#[test]
fn a_waiter_is_served_whatever_becomes_of_the_first_subscription_of_its_client() {
    EveryByte::of(subscribes).run(|scene: &Scene<'_, ReentrantLock>| {
        let client = builder(scene.proxy, scene.case.fault).connect_timeout(ms(200)).build().unwrap();
        scene.assert_served(&ReentrantLock::new(&client));
    });
}
