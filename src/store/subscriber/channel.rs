//! A channel, and the ears on it.

use super::ASK_AGAIN;
use crate::base::signal::Ear;
use crate::base::time::Moment;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is known of a channel that has ears, or had some until lately.
pub(super) struct ChannelState {
    pub(super) ears: Vec<Arc<dyn Ear>>,
    pub(super) confirmed: Arc<AtomicBool>,
    /// Whether this connection has asked for the channel, whatever the answer was.
    pub(super) asked: bool,
    /// When the server last refused it, if that was its answer.
    pub(super) refused_at: Option<Moment>,
    /// The last answer said that the slot is elsewhere. A later waiter has read newer slots, so the channel is asked for at once.
    pub(super) elsewhere: bool,
    pub(super) idle_since: Option<Moment>,
    /// Channels are subscribed in the order in which they were first wanted, and unsubscribed the other way round. So a listener that
    /// is counted on one of two channels can rely on the other.
    pub(super) number: u64,
}

impl ChannelState {
    pub(super) fn new(number: u64) -> Self {
        Self {
            ears: Vec::new(),
            confirmed: Arc::default(),
            asked: false,
            refused_at: None,
            elsewhere: false,
            idle_since: None,
            number,
        }
    }

    /// Whether it is time to ask for the channel, or to ask again after a refusal.
    pub(super) fn is_wanted(&self, now: Moment) -> bool {
        !self.asked || self.asks_again_at().is_some_and(|again| again <= now)
    }

    /// When to ask again for a refused channel. Nobody asks again for those who stand by.
    pub(super) fn asks_again_at(&self) -> Option<Moment> {
        self.refused_at.filter(|_| self.is_needed()).map(|refused| refused.plus(ASK_AGAIN))
    }

    /// Whether somebody waits for messages.
    pub(super) fn is_needed(&self) -> bool {
        self.ears.iter().any(|ear| !ear.is_standing())
    }

    pub(super) fn missed(&self) {
        self.ears.iter().for_each(|ear| ear.missed());
    }
}
