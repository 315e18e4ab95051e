//! Hearing of unlocks at every node.

use crate::base::key::Key;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::Moment;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The ears of the waiters, by key. Only one thread of a client contends for a key.
#[derive(Default)]
pub(super) struct AllEars {
    by_key: Mutex<HashMap<String, Weak<Ears>>>,
}

impl AllEars {
    pub(super) fn of(&self, key: &Key) -> Option<Arc<Ears>> {
        self.by_key.lock().get(key.full()).and_then(Weak::upgrade)
    }

    /// The ears of a waiter at `nodes` nodes.
    pub(super) fn open(self: &Arc<Self>, key: &Key, waiter: &Arc<Semaphore>, nodes: usize) -> Arc<Ears> {
        let ears = Arc::new(Ears {
            key: key.full().to_owned(),
            all: Arc::clone(self),
            relays: std::iter::repeat_with(|| Arc::new(Semaphore::relay(waiter))).take(nodes).collect(),
            waiter: Arc::clone(waiter),
            places: Mutex::default(),
            rests_until: AtomicU64::new(0),
        });
        self.by_key.lock().insert(ears.key.clone(), Arc::downgrade(&ears));
        ears
    }
}

/// The places of one waiter at the subscribers of all nodes.
///
/// The waiter ignores the nodes that granted its last round: their next message is of its own release, and would wake
/// it to take and release them again, without end. It misses nothing: they did not keep it from the lock, and the owner
/// of a majority has at least one of the others.
pub(super) struct Ears {
    key: String,
    all: Arc<AllEars>,
    relays: Vec<Arc<Semaphore>>,
    waiter: Arc<Semaphore>,
    places: Mutex<Vec<Box<dyn Listening>>>,
    rests_until: AtomicU64,
}

impl Ears {
    /// What the subscriber of a node releases.
    pub(super) fn relay(&self, node: usize) -> &Arc<Semaphore> {
        &self.relays[node]
    }

    /// A node's subscriber has the waiter on its list. Once the waiter hears of every unlock it looks again: a message
    /// may have come before.
    pub(super) fn add(&self, place: Box<dyn Listening>) {
        let mut places = self.places.lock();
        let confirms = place.is_confirmed();
        places.push(place);
        if confirms && self.confirmed(&places) == self.needed() {
            self.waiter.release();
        }
    }

    fn confirmed(&self, places: &[Box<dyn Listening>]) -> usize {
        places.iter().filter(|place| place.is_confirmed()).count()
    }

    /// How many nodes have to be heard: any so many have one of every majority among them.
    fn needed(&self) -> usize {
        self.relays.len() - super::tally::majority(self.relays.len()) + 1
    }

    /// A round begins: the waiter hears all nodes.
    pub(super) fn hear_all(&self) {
        self.relays.iter().for_each(|relay| relay.set_deaf(false));
    }

    /// A round failed: the waiter ignores the nodes that granted it.
    pub(super) fn ignore(&self, granted: impl Fn(usize) -> bool) {
        self.relays.iter().enumerate().for_each(|(node, relay)| relay.set_deaf(granted(node)));
    }

    /// Makes the next round wait until then.
    pub(super) fn rest_until(&self, until: Moment) {
        self.rests_until.store(until.0, SeqCst);
    }

    /// How long the next round has to wait: never beyond the deadline of its caller.
    pub(super) fn rest(&self, now: Moment, until: Moment) -> Duration {
        Moment(self.rests_until.load(SeqCst)).min(until).since(now)
    }
}

impl Listening for Arc<Ears> {
    fn is_confirmed(&self) -> bool {
        self.confirmed(&self.places.lock()) >= self.needed()
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        let mut by_key = self.all.by_key.lock();
        if by_key.get(&self.key).is_some_and(|ears| ears.strong_count() == 0) {
            by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::Naming;

    #[test]
    fn a_rest_ends_with_the_time_of_its_caller() {
        let (key, all, at) = (Key::new(Naming::Redisson, "", "n"), Arc::new(AllEars::default()), Moment);
        let ears = all.open(&key, &Arc::default(), 3);
        ears.rest_until(at(100));
        assert_eq!(ears.rest(at(40), Moment::MAX), Duration::from_nanos(60));
        assert_eq!(ears.rest(at(40), at(50)), Duration::from_nanos(10));
        assert_eq!(ears.rest(at(40), at(30)), Duration::ZERO);
        assert_eq!(ears.rest(at(200), Moment::MAX), Duration::ZERO);
    }
}
