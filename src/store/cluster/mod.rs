//! A cluster: each lock is at the master of its slot (docs/protocol.md, 12).
//!
//! | file | has |
//! | --- | --- |
//! | `url` | which nodes to ask first, and how to log in |
//! | `said` | what a node says of who has which slots |
//! | `map` | what all of them said so far |
//! | `redirect` | where a node sends a command for a slot of another |
//! | `routes` | the masters, and a command's way to the right one |
//! | `fan_out` | what is asked of many slots at once |
//! | `scouts` | the threads that ask for slots |
//! | `subscribers` | where unlock messages are listened to |

mod fan_out;
mod map;
mod redirect;
mod routes;
mod said;
mod scouts;
mod subscribers;
mod url;

use super::{Answers, Common, Health, Store};
use crate::base::error::{self, Applied, Cause};
use crate::base::key::is_in_one_slot;
use crate::base::lives::Life;
use crate::base::signal::{Ear, Listening};
use crate::base::slot::slot_of;
use crate::base::time::Moment;
use crate::store::node::{Answer, Broken, Failure, Lane, Limits, Request};
use fan_out::FanOut;
use map::Changed;
use routes::{Master, OnLoss, Routes};
use scouts::{Alarm, Scouts};
use std::sync::Arc;
use std::time::Duration;
use subscribers::Subscribers;

/// A client rests if it made no call while slots were asked for so often, and neither holds nor waits for anything. Slots are not asked
/// for then until it is used again.
const RESTS_AFTER: u32 = 60;

pub(super) fn open(url: &str, common: &Common) -> error::Result<Arc<dyn Store>> {
    let alarm = Arc::<Alarm>::default();
    let rung = Arc::clone(&alarm);
    let on_loss: OnLoss = Arc::new(move || rung.node_lost());
    let subscribers = Arc::new(Subscribers::new(Arc::clone(&on_loss)));
    let follower = Arc::clone(&subscribers);
    let follower = Box::new(move |routes: &Routes, changed: &Changed| follower.follow(routes, changed));
    let routes = Arc::new(Routes::new(url::parse(url)?, common, follower, on_loss));
    let scouts = Scouts::new(Arc::clone(&routes), Arc::clone(&subscribers), alarm);
    Ok(Arc::new(Cluster { routes, scouts, subscribers }))
}

/// All nodes that have slots, and the subscribers at them.
struct Cluster {
    routes: Arc<Routes>,
    scouts: Arc<Scouts>,
    subscribers: Arc<Subscribers>,
}

impl Cluster {
    /// Does what concerns no key at the first master that does it. Each master has its share of the time, and those that are out of reach
    /// come last.
    fn anywhere<T>(&self, until: Moment, act: impl Fn(&Master, Moment) -> Result<T, Failure>) -> Result<T, Failure> {
        let (mut masters, mut failed) = (self.routes.masters(), None);
        masters.sort_by_key(|master| master.backend.outage().lasted().is_some());
        for (left, master) in (1..=masters.len()).rev().zip(&masters) {
            let now = self.routes.clock.now();
            if failed.is_some() && now >= until {
                break;
            }
            match act(master, now.plus(until.since(now) / left as u32)) {
                Err(failure) => failed = Some(failure),
                done => return done,
            }
        }
        let urge = || self.scouts.urge();
        let first = || self.routes.at_master(0, false, until, &urge, |master, _| act(master, until));
        failed.map_or_else(first, |failure| {
            urge();
            Err(failure)
        })
    }
}

impl Health for Cluster {
    fn address(&self) -> String {
        self.identity().join(",")
    }

    fn address_of(&self, resource: &str) -> String {
        self.routes.address_of(resource).map_or_else(|| self.address(), |address| address.to_string())
    }

    fn outage(&self) -> Option<Duration> {
        self.routes.outage()
    }

    fn outage_ends(&self, resource: &str, now: Moment) -> Moment {
        self.routes.outage_of(resource, |outage| outage.ends(now))
    }

    fn last_failure(&self, resource: &str) -> Option<Failure> {
        self.routes.outage_of(resource, |outage| outage.last_failure())
    }

    fn moves(&self) -> bool {
        true
    }

    fn apart(&self, keys: &[&str]) -> Vec<Vec<usize>> {
        self.keys_by_master(keys)
    }

    fn server_of(&self, resource: &str) -> usize {
        self.routes.number_of(resource)
    }
}

impl Store for Cluster {
    fn identity(&self) -> Vec<String> {
        self.routes.seeds.addresses.iter().map(ToString::to_string).collect()
    }

    /// The node that a slot is on its way to is asked without what lies beside the named keys. So is the old node, if it has sent on
    /// something beside them that the script wanted to see.
    fn attempt(&self, lane: Lane, request: &Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure> {
        let slot = slot_of_all(request.keys)?;
        let whole = to_one_slot(*request);
        let send = |request: Request<'_>| {
            // What is on its way has no other life: the keys that were sent on are those that the sender had.
            let act = |node: &Master, sender: Option<Life>| {
                let Some(life) = sender else { return node.backend.attempt(lane, &request, limits) };
                let said =
                    node.backend.attempt(lane, &Request { asking: true, ..request.without_what_is_beside() }, limits);
                said.map(|answer| Answer { life, ..answer }).map_err(|failure| failure.of(life))
            };
            self.routes.at_master(slot, request.may_ask, limits.answer_by, &|| self.scouts.urge(), act)
        };
        match send(whole) {
            Err(failure) if failure.is_on_its_way() && whole.may_ask && whole.sees_beside() => {
                send(whole.without_what_is_beside())
            }
            done => done,
        }
    }

    /// One command for each slot, and one write for each node.
    fn attempt_all(
        &self,
        lane: Lane,
        request: &Request<'_>,
        shared: usize,
        limits: Limits<'_>,
    ) -> Result<Answers, Failure> {
        Ok(FanOut::new(self, lane, request, shared, limits).run())
    }

    fn listen(&self, channel: &str, ear: Arc<dyn Ear>) -> std::io::Result<Box<dyn Listening>> {
        self.subscribers.listen(&self.routes, channel, ear)
    }

    fn hears(&self, channel: &str) -> bool {
        self.subscribers.hears(&self.routes, channel)
    }

    /// PUBLISH returns the number of listeners at the node that has the lock, and waiters listen at any node. SPUBLISH counts them all,
    /// if the channel is in the lock's slot.
    fn counts_listeners(&self, key: &str) -> bool {
        self.routes.is_sharded() && is_in_one_slot(key)
    }

    fn is_sharded(&self) -> bool {
        self.routes.is_sharded()
    }

    fn slots_beside(&self, key: &str) -> Vec<u16> {
        self.routes.slots_beside(slot_of(key))
    }

    fn ping(&self, until: Moment) -> Result<Duration, Failure> {
        let most = self.routes.clock.now().plus(self.routes.common.config.response_timeout);
        self.anywhere(until.min(most), |master, until| master.backend.ping(until))
    }

    /// The first call of a client learns of them by a ping.
    fn servers(&self, until: Moment) -> Result<Vec<String>, Failure> {
        if self.routes.masters().is_empty() {
            self.ping(until)?;
        }
        Ok(self.routes.masters().iter().map(|master| master.address.to_string()).collect())
    }

    fn attempt_at(&self, server: &str, requests: &[Request<'_>], limits: Limits<'_>) -> Result<Answers, Failure> {
        let masters = self.routes.masters();
        let master = masters.iter().find(|master| master.address.to_string() == server);
        let gone = || Failure::Unreached(Broken::new(format!("{server} is no master of the cluster any more")));
        master.ok_or_else(gone)?.backend.attempt_each(Lane::Calls, requests, limits)
    }

    fn warm(&self, lane: Lane) -> Result<(), Failure> {
        let until = self.routes.clock.now().plus(self.routes.common.config.connect_timeout);
        self.anywhere(until, |master, _| master.backend.warm(lane))
    }

    fn close(&self) {
        self.routes.close();
        self.scouts.ring();
        self.subscribers.close();
    }
}

/// A request whose keys are in one slot. What lies beside a name with odd braces is in another slot.
fn to_one_slot(request: Request<'_>) -> Request<'_> {
    Request { alone: !request.keys.iter().all(|key| is_in_one_slot(key)), ..request }
}

/// # Errors
/// That of a server, for keys of several slots.
fn slot_of_all(keys: &[&str]) -> Result<u16, Failure> {
    let slot = keys.first().map_or(0, slot_of);
    if keys.iter().all(|key| slot_of(key) == slot) {
        return Ok(slot);
    }
    let cause = Cause::new("these locks are in several slots of the cluster");
    Err(Failure::Refused { code: "CROSSSLOT".to_owned(), applied: Applied::No, cause })
}
