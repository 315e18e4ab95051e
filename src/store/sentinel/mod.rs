//! The master of a group, wherever it is: found and followed by what sentinels say (docs/protocol.md, 9).
//!
//! | file | has |
//! | --- | --- |
//! | `url` | which sentinels to ask, for whom, and how to log in |
//! | `link` | one connection to a sentinel: what it is asked, and what it says |
//! | `council` | what all of them said, and who is to be followed by it |
//! | `watch` | the threads that ask, and the move from one node to the next |

mod council;
mod link;
mod place;
mod url;
mod watch;

use super::{Answers, Common, Health, Store};
use crate::base::error;
use crate::base::signal::{Ear, Listening};
use crate::base::time::{Clock, Moment};
use crate::store::node::{Answer, Backend, Failure, LEAST_TO_CONNECT, Lane, Limits, Request};
use std::sync::Arc;
use std::time::Duration;
use url::Group;
use watch::Watch;

pub(super) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let (group, connect_timeout) = (url::parse(url)?, common.config.connect_timeout);
    Ok(Arc::new(Sentinel { watch: Arc::new(Watch::new(group, common)), clock: Clock::Boot, connect_timeout }))
}

struct Sentinel {
    watch: Arc<Watch>,
    clock: Clock,
    connect_timeout: Duration,
}

impl Sentinel {
    /// Does something at the master. If that is another one before anything was sent, it is done there.
    fn at_master<T>(&self, until: Moment, act: impl Fn(&Backend) -> Result<T, Failure>) -> Result<T, Failure> {
        loop {
            let now = self.clock.now();
            let until = until.max(now.plus(LEAST_TO_CONNECT)).min(now.plus(self.connect_timeout));
            let master = self.watch.master(until)?;
            match act(&master) {
                Err(Failure::Unreached(_)) if master.server().is_retired() => {}
                Err(failure) => {
                    if failure.may_pass() {
                        self.watch.urge();
                    }
                    return Err(failure);
                }
                done => return done,
            }
        }
    }
}

impl Health for Sentinel {
    fn address(&self) -> String {
        let sentinels: Vec<_> = self.watch.group.sentinels.iter().map(ToString::to_string).collect();
        format!("{} of {}", self.watch.group.name, sentinels.join(","))
    }

    fn outage(&self) -> Option<Duration> {
        self.watch.outage(|outage| outage.lasted())
    }

    fn outage_ends(&self, now: Moment) -> Moment {
        self.watch.outage(|outage| outage.ends(now))
    }

    fn last_failure(&self) -> Option<Failure> {
        self.watch.outage(|outage| outage.last_failure())
    }
}

impl Store for Sentinel {
    /// A sentinel keeps one group of a name: whoever asks it for that name means the same, whichever others the URL lists.
    fn identity(&self) -> Vec<String> {
        let Group { name, sentinels, .. } = &self.watch.group;
        sentinels.iter().map(|sentinel| format!("{name} of {sentinel}")).collect()
    }

    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits) -> Result<Answer, Failure> {
        self.at_master(limits.answer_by, |master| master.attempt(lane, request, limits))
    }

    /// All keys are at the master, so one command is enough.
    fn attempt_all(&self, lane: Lane, request: &Request<'_>, _: usize, limits: Limits) -> Result<Answers, Failure> {
        self.attempt(lane, request, limits)?.one_each(request.keys.len())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> std::io::Result<Box<dyn Listening>> {
        self.watch.run()?;
        self.watch.pubsub.listen(channel, ear).map(|subscription| Box::new(subscription) as _)
    }

    fn hears(&self, channel: &str) -> bool {
        self.watch.pubsub.hears(channel)
    }

    fn counts_listeners(&self) -> bool {
        true
    }

    fn ping(&self, until: Moment) -> Result<Duration, Failure> {
        self.at_master(until, |master| master.ping(until))
    }

    fn warm(&self, lane: Lane) -> Result<(), Failure> {
        self.at_master(self.clock.now().plus(self.connect_timeout), |master| master.warm(lane))
    }

    fn close(&self) {
        self.watch.close();
        self.watch.pubsub.close();
    }
}
