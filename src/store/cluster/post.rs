//! Where unlock messages are listened to.
//!
//! PUBLISH reaches the subscribers of every node, so one connection to any of them is enough; it goes on to the next node when
//! it breaks. SPUBLISH reaches those at the master of the channel's slot alone: whoever listens goes where that slot goes.

use super::map::Changed;
use super::routes::{Node, OnLoss, Routes};
use crate::base::mutant::{self, Mutant};
use crate::base::signal::{Ear, Listening};
use crate::base::slot::slot_of;
use crate::store::subscriber::{PubSub, Subscription};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) struct Post {
    /// Of channels of all nodes.
    common: PubSub,
    at: Mutex<At>,
    /// Those who listen to a channel of one shard.
    places: Mutex<HashMap<u64, Arc<Place>>>,
    numbers: AtomicU64,
}

/// Where the common channels are listened to.
struct At {
    node: Option<Arc<Node>>,
    /// Which of the nodes, so that not every client listens to the first.
    turn: usize,
}

/// An ear on a channel of one shard.
struct Place {
    slot: u16,
    channel: String,
    ear: Arc<dyn Ear>,
    at: Mutex<Option<(Arc<Node>, Subscription)>>,
}

impl Post {
    pub(super) fn new(on_loss: OnLoss) -> Self {
        let turn = RandomState::new().build_hasher().finish() as usize;
        Self {
            common: PubSub::watched(move || on_loss()),
            at: Mutex::new(At { node: None, turn }),
            places: Mutex::default(),
            numbers: AtomicU64::default(),
        }
    }

    /// Listens to common channels at a node that has slots, and at the next one if the last was lost.
    pub(super) fn settle(&self, routes: &Routes, is_lost: bool) {
        let (mut at, masters) = (self.at.lock(), routes.masters());
        let stays = |known: &Arc<Node>| !is_lost && masters.iter().any(|node| Arc::ptr_eq(node, known));
        if masters.is_empty() || routes.is_sharded() || at.node.as_ref().is_some_and(stays) {
            return;
        }
        at.turn = at.turn.wrapping_add(1);
        let next = &masters[at.turn % masters.len()];
        self.common.lead_to(Arc::clone(&next.backend));
        at.node = Some(Arc::clone(next));
    }

    /// Slots have other masters: whoever listens to a channel of theirs listens there. What the new one never heard of is free,
    /// and nobody says so: whoever waits looks at its lock.
    pub(super) fn follow(&self, routes: &Routes, changed: &Changed) {
        self.settle(routes, false);
        if !mutant::is(Mutant::UntoldOfNewMaster) {
            self.common.tell_missed(|channel| concern(changed, channel));
        }
        let are_there = |place: &&Arc<Place>| concern(changed, &place.channel);
        let places: Vec<_> = self.places.lock().values().filter(are_there).cloned().collect();
        // Who gets no thread there looks at the lock now and then.
        places.iter().for_each(|place| drop(place.follow(routes)));
    }

    pub(super) fn listen(
        self: &Arc<Self>,
        routes: &Routes,
        channel: &str,
        ear: Arc<dyn Ear>,
    ) -> io::Result<Box<dyn Listening>> {
        if !routes.is_sharded() {
            return self.common.listen(channel, ear).map(|subscription| Box::new(subscription) as _);
        }
        let place = Arc::new(Place { slot: slot_of(channel), channel: channel.to_owned(), ear, at: Mutex::default() });
        let number = self.numbers.fetch_add(1, Relaxed);
        let listening = Box::new(Roaming { post: Arc::clone(self), number, place: Arc::clone(&place) });
        // Known before it listens: of a slot that moves between the two, one sees the other.
        self.places.lock().insert(number, Arc::clone(&place));
        place.follow(routes)?;
        Ok(listening)
    }

    pub(super) fn hears(&self, routes: &Routes, channel: &str) -> bool {
        match routes.is_sharded() {
            true => routes.known(slot_of(channel)).is_some_and(|node| node.pubsub.hears(channel)),
            false => self.common.hears(channel),
        }
    }

    pub(super) fn close(&self) {
        self.common.close();
    }
}

impl Place {
    /// Listens at the master of its slot. Of two at once the later one has looked at the routes later.
    fn follow(&self, routes: &Routes) -> io::Result<()> {
        let mut at = self.at.lock();
        let Some(node) = routes.known(self.slot) else { return Ok(()) };
        if at.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &node)) {
            self.ear.missed();
            return Ok(());
        }
        let subscription = node.pubsub.listen(&self.channel, Arc::clone(&self.ear))?;
        *at = Some((node, subscription));
        Ok(())
    }
}

/// Whether locks that are told of on a channel may be in one of these slots. Those whose names have braces that are no tag are
/// in another slot than their channel, which nobody can tell from the channel.
fn concern(changed: &Changed, channel: &str) -> bool {
    let has_odd_braces = ['{', '}'].into_iter().any(|brace| channel.matches(brace).count() > 1);
    has_odd_braces || changed.has(slot_of(channel))
}

/// The place of an ear, wherever its slot is; given back when dropped.
struct Roaming {
    post: Arc<Post>,
    number: u64,
    place: Arc<Place>,
}

impl Listening for Roaming {
    fn is_confirmed(&self) -> bool {
        self.place.at.lock().as_ref().is_some_and(|(_, subscription)| subscription.is_confirmed())
    }
}

impl Drop for Roaming {
    fn drop(&mut self) {
        self.post.places.lock().remove(&self.number);
        *self.place.at.lock() = None;
    }
}
