//! Where unlock messages are listened to.
//!
//! PUBLISH reaches the subscribers of every node, so one connection to any of them is enough. It goes on to the next node
//! when it breaks.

use super::routes::{Node, Routes};
use super::scouts::Scouts;
use crate::base::signal::Ear;
use crate::store::subscriber::{PubSub, Subscription};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};

pub(super) struct Post {
    pubsub: PubSub,
    astray: Arc<Astray>,
    at: Mutex<At>,
}

/// What is known when a subscriber has lost its node: it may be none any more.
#[derive(Default)]
struct Astray {
    is_so: AtomicBool,
    scouts: OnceCell<Weak<Scouts>>,
}

struct At {
    node: Option<Arc<Node>>,
    /// Which of the nodes, so that not every client listens to the first.
    turn: usize,
}

impl Post {
    pub(super) fn new() -> Self {
        let astray = Arc::<Astray>::default();
        let told = Arc::clone(&astray);
        let turn = RandomState::new().build_hasher().finish() as usize;
        Self { pubsub: PubSub::watched(move || told.tell()), astray, at: Mutex::new(At { node: None, turn }) }
    }

    /// Who is told of nodes that are lost.
    pub(super) fn watched_by(&self, scouts: &Arc<Scouts>) {
        let _ = self.astray.scouts.set(Arc::downgrade(scouts));
    }

    /// Listens at a node that has slots, and at another one than before if that was lost.
    pub(super) fn settle(&self, routes: &Routes) {
        let (mut at, masters) = (self.at.lock(), routes.masters());
        let is_lost = self.astray.is_so.swap(false, SeqCst);
        let stays = |known: &Arc<Node>| !is_lost && masters.iter().any(|node| Arc::ptr_eq(node, known));
        if masters.is_empty() || at.node.as_ref().is_some_and(stays) {
            return;
        }
        at.turn = at.turn.wrapping_add(1);
        let next = &masters[at.turn % masters.len()];
        self.pubsub.lead_to(Arc::clone(&next.backend));
        at.node = Some(Arc::clone(next));
    }

    pub(super) fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> io::Result<Subscription> {
        self.pubsub.listen(channel, ear)
    }

    pub(super) fn hears(&self, channel: &str) -> bool {
        self.pubsub.hears(channel)
    }

    pub(super) fn close(&self) {
        self.pubsub.close();
    }
}

impl Astray {
    fn tell(&self) {
        self.is_so.store(true, SeqCst);
        self.scouts.get().and_then(Weak::upgrade).into_iter().for_each(|scouts| scouts.urge());
    }
}
