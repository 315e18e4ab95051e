//! The subscribers of a cluster: where they hear the messages of unlocks.
//!
//! PUBLISH reaches the subscribers of every node, so one connection to any of them is enough; it goes on to the next node when
//! it breaks. SPUBLISH reaches those at the master of the channel's slot alone, so a listener follows that slot.

use super::map::Changed;
use super::routes::{Master, OnLoss, Routes};
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

pub(super) struct Subscribers {
    /// Of channels of all nodes.
    common: PubSub,
    at: Mutex<At>,
    /// Of channels of one shard each.
    listeners: Mutex<HashMap<u64, Arc<ShardListener>>>,
    numbers: AtomicU64,
}

/// The node at which the common channels are listened to.
struct At {
    master: Option<Arc<Master>>,
    /// Its number, which begins with any: not every client listens to the first node.
    turn: usize,
}

/// An ear on a channel of one shard. It listens at the master of the channel's slot, and follows the slot to the next one.
struct ShardListener {
    slot: u16,
    channel: String,
    ear: Arc<dyn Ear>,
    at: Mutex<Option<(Arc<Master>, Subscription)>>,
}

impl Subscribers {
    pub(super) fn new(on_loss: OnLoss) -> Self {
        let turn = RandomState::new().build_hasher().finish() as usize;
        Self {
            common: PubSub::watched(move || on_loss()),
            at: Mutex::new(At { master: None, turn }),
            listeners: Mutex::default(),
            numbers: AtomicU64::default(),
        }
    }

    /// Listens to common channels at a node that has slots, and at the next one if the last was lost.
    pub(super) fn settle(&self, routes: &Routes, is_lost: bool) {
        let (mut at, masters) = (self.at.lock(), routes.masters());
        let stays = |known: &Arc<Master>| !is_lost && masters.iter().any(|master| Arc::ptr_eq(master, known));
        if masters.is_empty() || routes.is_sharded() || at.master.as_ref().is_some_and(stays) {
            return;
        }
        at.turn = at.turn.wrapping_add(1);
        let next = &masters[at.turn % masters.len()];
        self.common.lead_to(Arc::clone(&next.backend));
        at.master = Some(Arc::clone(next));
    }

    /// Slots have other masters. Each ear on a channel of theirs listens there from now on, and its waiter looks at the lock: a lock
    /// that the new master has never heard of is free, and no message says so.
    pub(super) fn follow(&self, routes: &Routes, changed: &Changed) {
        self.settle(routes, false);
        if !mutant::is(Mutant::UntoldOfNewMaster) {
            self.common.tell_missed(|channel| concern(changed, channel));
        }
        let are_concerned = |listener: &&Arc<ShardListener>| concern(changed, &listener.channel);
        let listeners: Vec<_> = self.listeners.lock().values().filter(are_concerned).cloned().collect();
        // If the system gives no thread to listen with, the waiter polls.
        listeners.iter().for_each(|listener| drop(listener.follow(routes)));
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
        let (slot, channel) = (slot_of(channel), channel.to_owned());
        let listener = Arc::new(ShardListener { slot, channel, ear, at: Mutex::default() });
        let (subscribers, number) = (Arc::clone(self), self.numbers.fetch_add(1, Relaxed));
        let subscription = Box::new(ShardSubscription { subscribers, number, listener });
        // Before it reads who has the slot: if the slot moves after that, the thread that notes the move finds the listener here.
        self.listeners.lock().insert(number, Arc::clone(&subscription.listener));
        subscription.listener.follow(routes)?;
        Ok(subscription)
    }

    pub(super) fn hears(&self, routes: &Routes, channel: &str) -> bool {
        match routes.is_sharded() {
            true => routes.known(slot_of(channel)).is_some_and(|master| master.pubsub.hears(channel)),
            false => self.common.hears(channel),
        }
    }

    pub(super) fn close(&self) {
        self.common.close();
    }
}

impl ShardListener {
    /// Listens at the master of its slot. If two threads run this at once, the one that takes the lock last has read the newer table.
    fn follow(&self, routes: &Routes) -> io::Result<()> {
        let mut at = self.at.lock();
        let Some(master) = routes.known(self.slot) else { return Ok(()) };
        if at.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &master)) {
            self.ear.missed();
            return Ok(());
        }
        let subscription = master.pubsub.listen(&self.channel, Arc::clone(&self.ear))?;
        *at = Some((master, subscription));
        Ok(())
    }
}

/// Whether a lock whose unlocks are told on a channel may be in one of these slots. If its name has braces that are no hash tag, it is
/// in another slot than the channel, and the channel does not show in which.
fn concern(changed: &Changed, channel: &str) -> bool {
    let has_odd_braces = ['{', '}'].into_iter().any(|brace| channel.matches(brace).count() > 1);
    has_odd_braces || changed.has(slot_of(channel))
}

/// Ends what its listener hears when it is dropped, wherever the slot is by then.
struct ShardSubscription {
    subscribers: Arc<Subscribers>,
    number: u64,
    listener: Arc<ShardListener>,
}

impl Listening for ShardSubscription {
    fn is_confirmed(&self) -> bool {
        self.listener.at.lock().as_ref().is_some_and(|(_, subscription)| subscription.is_confirmed())
    }
}

impl Drop for ShardSubscription {
    fn drop(&mut self) {
        self.subscribers.listeners.lock().remove(&self.number);
        *self.listener.at.lock() = None;
    }
}
