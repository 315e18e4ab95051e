//! One server that stays where it is.

use super::{Answers, Common, Health, Store};
use crate::base::error;
use crate::base::signal::{Ear, Listening};
use crate::base::time::Moment;
use crate::store::node::{Answer, Backend, Failure, Lane, Limits, Request, Target};
use crate::store::subscriber::{PubSub, Subscription};
use std::sync::Arc;
use std::time::Duration;

/// A node and its subscriber.
pub(super) struct Fixed {
    node: Arc<Backend>,
    pubsub: PubSub,
}

pub(super) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let node = Arc::new(Backend::new(Target::of(url)?, &common.config, &common.counters, &common.worker));
    let pubsub = PubSub::new();
    pubsub.lead_to(Arc::clone(&node));
    Ok(Arc::new(Fixed { node, pubsub }))
}

impl Health for Fixed {
    fn address(&self) -> String {
        self.node.server().address()
    }

    fn outage(&self) -> Option<Duration> {
        self.node.outage().lasted()
    }

    fn outage_ends(&self, _: &str, now: Moment) -> Moment {
        self.node.outage().ends(now)
    }

    fn last_failure(&self, _: &str) -> Option<Failure> {
        self.node.outage().last_failure()
    }
}

impl Store for Fixed {
    fn identity(&self) -> Vec<String> {
        vec![self.address()]
    }

    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure> {
        self.node.attempt(lane, request, limits)
    }

    /// All keys are here, so one command is enough.
    fn attempt_all(&self, lane: Lane, request: &Request<'_>, _: usize, limits: Limits<'_>) -> Result<Answers, Failure> {
        self.node.attempt(lane, request, limits)?.one_each(request.keys.len())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> std::io::Result<Box<dyn Listening>> {
        self.pubsub.listen(channel, ear).map(|subscription| Box::new(subscription) as _)
    }

    fn database(&self) -> i64 {
        self.node.server().database()
    }

    fn hears(&self, channel: &str) -> bool {
        self.pubsub.hears(channel)
    }

    fn counts_listeners(&self, _: &str) -> bool {
        true
    }

    fn ping(&self, until: Moment) -> Result<Duration, Failure> {
        self.node.ping(until)
    }

    fn servers(&self, _: Moment) -> Result<Vec<String>, Failure> {
        Ok(vec![self.address()])
    }

    fn attempt_at(&self, _: &str, requests: &[Request<'_>], limits: Limits<'_>) -> Result<Answers, Failure> {
        self.node.attempt_each(Lane::Calls, requests, limits)
    }

    fn warm(&self, lane: Lane) -> Result<(), Failure> {
        self.node.warm(lane)
    }

    fn close(&self) {
        self.pubsub.close();
    }
}

impl Listening for Subscription {
    fn is_confirmed(&self) -> bool {
        self.is_confirmed()
    }
}
