//! The news of a loss, on its way to those that listen.

use crate::lease::tenure::LossCause;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// The news that a hold was lost. Its `Display` says it in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostHold {
    resource: String,
    owner: String,
    cause: LossCause,
}

impl LostHold {
    pub(crate) fn new(resource: &str, owner: &str, cause: LossCause) -> Self {
        Self { resource: resource.to_owned(), owner: owner.to_owned(), cause }
    }

    /// The resource, as the caller named it.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The owner field that the hold had on the wire.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Why it was lost.
    #[must_use]
    pub fn cause(&self) -> LossCause {
        self.cause
    }
}

impl fmt::Display for LostHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} was lost while held by {}: {}", self.resource, self.owner, self.cause)
    }
}

/// Hears of a loss: a [`crossbeam_channel::Receiver`], to which it derefs, so it can be used in `select!`. Keep it for as
/// long as you listen; dropped, it costs nothing any more, so it may also be made anew for each look.
///
/// A clone is of the same channel: only one of them gets the message. For a channel of its own ask the hold again.
#[derive(Debug, Clone)]
#[must_use = "it hears nothing once it is dropped: keep it, and ask it"]
pub struct LostReceiver {
    receiver: Receiver<LostHold>,
    /// The hold has a weak reference to this, and so knows whether anybody listens. A sender cannot be asked for that.
    _alive: Arc<()>,
}

impl Deref for LostReceiver {
    type Target = Receiver<LostHold>;

    fn deref(&self) -> &Receiver<LostHold> {
        &self.receiver
    }
}

/// The other end of a [`LostReceiver`]. If it listens to several holds, it hears of the first that is lost.
#[derive(Clone)]
pub(crate) struct Listener {
    sender: Sender<LostHold>,
    alive: Weak<()>,
}

impl Listener {
    pub(super) fn is_there(&self) -> bool {
        self.alive.strong_count() > 0
    }

    pub(super) fn hear(&self, lost: &LostHold) {
        let _ = self.sender.try_send(lost.clone());
    }
}

/// A listener, and the receiver of what it hears.
pub(crate) fn listener() -> (Listener, LostReceiver) {
    let (sender, receiver) = bounded(1);
    let alive = Arc::new(());
    (Listener { sender, alive: Arc::downgrade(&alive) }, LostReceiver { receiver, _alive: alive })
}
