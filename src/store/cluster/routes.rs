//! The way of a command to the master of its slot, and what follows when slots have other masters.

use super::RESTS_AFTER;
use super::map::{Changed, Map};
use super::redirect::Redirect;
use super::said::Said;
use super::url::Seeds;
use crate::base::config::ShardedPubsub;
use crate::base::key::FullKey;
use crate::base::lives::Life;
use crate::base::say::say;
use crate::base::slot::slot_of;
use crate::base::time::{Clock, Moment};
use crate::store::Common;
use crate::store::host_port::HostPort;
use crate::store::node::{Backend, Broken, Failure, LEAST_TO_CONNECT, Outage, Purpose, Target};
use crate::store::subscriber::PubSub;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A call follows at most so many redirections: nodes that disagree may send it in a circle.
const REDIRECTS: usize = 8;

/// Holds and pausing calls are told of redirections this often: nodes that disagree may name each other for as long as they are asked.
const TELLS_EVERY: Duration = Duration::from_millis(100);

/// A master with its pools and its subscriber. It has slots, or it is asked for keys of a slot that is on its way there.
pub(super) struct Master {
    pub(super) address: HostPort,
    pub(super) backend: Arc<Backend>,
    /// Of channels of its slots. Its thread starts with the first of them.
    pub(super) pubsub: PubSub,
    /// It is out of reach, and a renewal thread waits for it.
    pub(super) is_waited_for: AtomicBool,
}

pub(super) struct Routes {
    pub(super) seeds: Seeds,
    pub(super) common: Common,
    pub(super) clock: Clock,
    /// The outage of the whole cluster, while no node has said anything.
    outage: Outage,
    table: RwLock<Table>,
    /// What a node said last. The same once more changes nothing.
    said: Mutex<Said>,
    /// How often slots were asked for since the last call.
    unused: AtomicU32,
    /// When holds and pausing calls were last told of a redirection.
    told: Mutex<Moment>,
    /// Why nothing is known, and since when.
    unknown: Mutex<Option<(Moment, Failure)>>,
    known: Condvar,
    follower: Follower,
    on_loss: OnLoss,
}

/// Told of slots that have other masters, once those can be asked.
pub(super) type Follower = Box<dyn Fn(&Routes, &Changed) + Send + Sync>;

/// Called when a subscriber has lost its node.
pub(super) type OnLoss = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Table {
    map: Map,
    /// By their numbers in the map.
    masters: Vec<Arc<Master>>,
    /// Asked for single keys, and not masters of any slot yet.
    guests: HashMap<HostPort, Arc<Master>>,
    /// Of all nodes that were last named with slots, replicas too.
    addresses: Vec<HostPort>,
    is_sharded: bool,
    closed: bool,
}

impl Table {
    fn master_of(&self, slot: u16) -> Option<&Arc<Master>> {
        self.map.master_of(slot).map(|at| &self.masters[at])
    }

    /// Takes another map. A master that is known stays the same. Returns those that have no slot any more.
    fn change(&mut self, map: Map, make: impl Fn(&HostPort) -> Arc<Master>) -> Vec<Arc<Master>> {
        let mut old: HashMap<_, _> = self.masters.drain(..).map(|master| (master.address.clone(), master)).collect();
        let mut find = |address: &HostPort| {
            old.remove(address).or_else(|| self.guests.remove(address)).unwrap_or_else(|| make(address))
        };
        self.masters = map.masters().map(&mut find).collect();
        self.map = map;
        // A guest that is still needed is made again by the next redirection.
        self.guests.clear();
        if self.closed {
            self.masters.iter().for_each(|master| master.pubsub.close());
        }
        old.into_values().collect()
    }
}

impl Routes {
    pub(super) fn new(seeds: Seeds, common: &Common, follower: Follower, on_loss: OnLoss) -> Self {
        let (common, outage) = (common.clone(), Outage::new(&common.config, &common.counters));
        let (table, said, unused) = (RwLock::default(), Mutex::default(), AtomicU32::default());
        let (told, unknown, known) = (Mutex::new(Moment(0)), Mutex::new(None), Condvar::new());
        let clock = Clock::Boot;
        Self { seeds, common, clock, outage, table, said, unused, told, unknown, known, follower, on_loss }
    }

    fn open(&self, address: &HostPort, is_sharded: bool) -> Arc<Master> {
        let purpose = if is_sharded { Purpose::Shard } else { Purpose::Any };
        let target = Target { addr: address.addr(), login: self.seeds.login.clone(), purpose };
        let Common { config, counters, worker, .. } = &self.common;
        let (backend, on_loss) = (Arc::new(Backend::new(target, config, counters, worker)), Arc::clone(&self.on_loss));
        let pubsub = PubSub::sharded(move || on_loss());
        pubsub.lead_to(Arc::clone(&backend));
        Arc::new(Master { address: address.clone(), backend, pubsub, is_waited_for: AtomicBool::new(false) })
    }

    /// The master of a slot as far as it is known.
    pub(super) fn known(&self, slot: u16) -> Option<Arc<Master>> {
        self.table.read().master_of(slot).map(Arc::clone)
    }

    /// All slots that the master of one has.
    pub(super) fn slots_beside(&self, slot: u16) -> Vec<u16> {
        self.table.read().map.slots_beside(slot)
    }

    pub(super) fn masters(&self) -> Vec<Arc<Master>> {
        self.table.read().masters.clone()
    }

    /// Whether unlock messages are told to one shard alone.
    pub(super) fn is_sharded(&self) -> bool {
        self.table.read().is_sharded
    }

    /// The nodes to ask for slots: those that were named last, and then the seeds.
    pub(super) fn addresses(&self) -> Vec<HostPort> {
        let known = self.table.read().addresses.clone();
        let seeds: Vec<_> = self.seeds.addresses.iter().filter(|seed| !known.contains(seed)).cloned().collect();
        [known, seeds].concat()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.table.read().closed
    }

    pub(super) fn close(&self) {
        let mut table = self.table.write();
        table.closed = true;
        table.masters.iter().chain(table.guests.values()).for_each(|master| master.pubsub.close());
        drop(table);
        self.tell();
    }

    /// Wakes the threads that look for a master. A thread that has just seen none holds the lock until it sleeps.
    fn tell(&self) {
        drop(self.unknown.lock());
        self.known.notify_all();
    }
}

/// What is said.
impl Routes {
    /// Counts that slots were asked for. Whether they need not be asked for until the client is used again. Whether it holds or waits for
    /// anything is looked at only where the count says that it may rest.
    pub(super) fn rests(&self) -> bool {
        let rests = self.unused.fetch_add(1, Relaxed) >= RESTS_AFTER;
        if rests && (self.common.in_use)() {
            self.unused.store(0, Relaxed);
            return false;
        }
        rests
    }

    /// What a node said.
    pub(super) fn note(&self, said: Said) {
        *self.unknown.lock() = None;
        let mut last = self.said.lock();
        if *last != said || said.ranges.is_empty() {
            self.take(&said);
            *last = said;
        }
    }

    fn take(&self, said: &Said) {
        let mut table = self.table.write();
        let (map, changed) = table.map.told(said);
        let is_first = table.map.is_empty();
        if !said.ranges.is_empty() {
            table.addresses = addresses_in(said);
        }
        if is_first {
            // Before the first master is made: its pools are told.
            table.is_sharded = match self.common.config.sharded_pubsub {
                ShardedPubsub::Auto => said.sharded,
                asked => asked == ShardedPubsub::On,
            };
        }
        let is_sharded = table.is_sharded;
        let gone =
            if changed.is_empty() { Vec::new() } else { table.change(map, |address| self.open(address, is_sharded)) };
        drop(table);
        self.outage.end();
        self.tell();
        if !changed.is_empty() {
            self.follow(&changed, &gone);
        }
        if !changed.is_empty() && !is_first {
            self.tell_moved(&changed);
        }
    }

    /// The master of a slot said that another one has it.
    fn moved(&self, slot: u16, to: HostPort) {
        // So the next answer is taken though the last one was the same.
        *self.said.lock() = Said::default();
        let mut table = self.table.write();
        if table.master_of(slot).is_some_and(|master| master.address == to) {
            return;
        }
        let map = table.map.moved(slot, to);
        let is_sharded = table.is_sharded;
        let gone = table.change(map, |address| self.open(address, is_sharded));
        drop(table);
        let changed = Changed::of(slot);
        self.follow(&changed, &gone);
        if self.is_news() {
            self.tell_moved(&changed);
        }
    }

    /// Nodes that disagree may each name the other for as long as they are asked, and a pausing call would go on at once each time. What
    /// is left out here is found when slots are asked for, which follows.
    fn is_news(&self) -> bool {
        let (mut told, now) = (self.told.lock(), self.clock.now());
        let is_news = now.since(*told) >= TELLS_EVERY;
        if is_news {
            *told = now;
        }
        is_news
    }

    /// Holds in these slots are verified, and calls that pause go on.
    fn tell_moved(&self, changed: &Changed) {
        (self.common.moved)(&|key| changed.has(slot_of(key)));
    }

    /// A master that has no slot any more is neither written to nor believed: it may be the old one of a failover, and not know that.
    fn follow(&self, changed: &Changed, gone: &[Arc<Master>]) {
        for master in gone {
            master.backend.server().retire();
            let address = &master.address;
            say!(warn, "{address} has no slot of the cluster any more: locks are asked for at their new masters");
        }
        (self.follower)(self, changed);
        gone.iter().for_each(|master| master.pubsub.close());
    }

    /// No node says anything.
    pub(super) fn note_unknown(&self, failure: Failure) {
        *self.unknown.lock() = Some((self.clock.now(), failure));
        self.known.notify_all();
    }
}

fn addresses_in(said: &Said) -> Vec<HostPort> {
    let masters = said.ranges.iter().map(|range| &range.master.address);
    let mut addresses: Vec<_> = masters.chain(said.ranges.iter().flat_map(|range| &range.replicas)).cloned().collect();
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(address.clone()));
    addresses
}

/// The way there.
impl Routes {
    /// The master of a slot. While nothing is known a call waits until it is.
    fn master(&self, slot: u16, until: Moment, urge: &dyn Fn()) -> Result<Arc<Master>, Failure> {
        let began = self.clock.now();
        let until = until.max(began.plus(LEAST_TO_CONNECT)).min(began.plus(self.common.config.connect_timeout));
        loop {
            if let Some(master) = self.known(slot) {
                return Ok(master);
            }
            urge();
            self.wait(slot, began, until).inspect_err(|failure| self.outage.note(began, failure))?;
        }
    }

    fn wait(&self, slot: u16, began: Moment, until: Moment) -> Result<(), Failure> {
        let mut unknown = self.unknown.lock();
        while self.known(slot).is_none() {
            let failure = || unknown_slot(slot);
            if self.is_closed() {
                return Err(Failure::Unreached(Broken::new("the client is closed")));
            }
            if let Some((_, failure)) = unknown.as_ref().filter(|(when, _)| *when >= began) {
                return Err(failure.clone());
            }
            let left = until.since(self.clock.now());
            if self.known.wait_for(&mut unknown, left).timed_out() {
                return Err(unknown.as_ref().map_or_else(failure, |(_, failure)| failure.clone()));
            }
        }
        Ok(())
    }

    /// The node at an address, to be asked for a key of a slot that is on its way there.
    fn guest(&self, address: HostPort) -> Arc<Master> {
        let mut table = self.table.write();
        let known = table.masters.iter().find(|master| master.address == address).map(Arc::clone);
        let is_sharded = table.is_sharded;
        let make = |address: &HostPort| self.open(address, is_sharded);
        known.unwrap_or_else(|| Arc::clone(table.guests.entry(address).or_insert_with_key(make)))
    }

    /// Follows a redirection. Returns the node that ASK names, for this one command. A MOVED in answer to ASKING is no news: the slot is
    /// still at the node that sent the command there.
    fn redirected(&self, slot: u16, redirect: Redirect, is_guest: bool) -> Option<Arc<Master>> {
        let map = &self.common.config.address_map;
        match redirect {
            Redirect::Ask(to) => return Some(self.guest(to.mapped(map))),
            Redirect::Moved(to) if !is_guest => self.moved(slot, to.mapped(map)),
            Redirect::Moved(_) | Redirect::Nowhere => {}
        }
        None
    }

    /// Does something at the master of a slot, or where that sends it, if it may: the slot is on its way there. The node that it is sent to is
    /// given the life of the one that sends it.
    pub(super) fn at_master<T>(
        &self,
        slot: u16,
        may_ask: bool,
        until: Moment,
        urge: &dyn Fn(),
        act: impl Fn(&Master, Option<Life>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.unused.swap(0, Relaxed) > RESTS_AFTER {
            urge();
        }
        let ends = until.max(self.clock.now().plus(LEAST_TO_CONNECT));
        let mut guest: Option<(Arc<Master>, Life)> = None;
        for _ in 0..REDIRECTS {
            let (node, sender) = match guest.take() {
                Some((node, sender)) => (node, Some(sender)),
                None => (self.master(slot, until, urge)?, None),
            };
            let failure = match act(&node, sender) {
                Err(failure) => failure,
                done => return done,
            };
            let has_time = self.clock.now().plus(LEAST_TO_CONNECT) <= ends;
            match Redirect::of(&failure, &node.address) {
                Some(Redirect::Ask(_)) if !may_ask => return Err(failure),
                Some(Redirect::Nowhere) => {
                    urge();
                    return Err(Failure::Unreached(Broken::new(format!("slot {slot} is at a node that has no name"))));
                }
                Some(redirect) => {
                    let life = sender.unwrap_or_else(|| node.backend.server().life());
                    guest = self.redirected(slot, redirect, sender.is_some()).map(|node| (node, life));
                    urge();
                    if !has_time {
                        return Err(Failure::Unreached(Broken::new(format!("slot {slot} has just moved"))));
                    }
                }
                None if has_time && was_retired(&node, &failure) => {}
                None => {
                    if failure.may_pass() {
                        urge();
                    }
                    return Err(failure);
                }
            }
        }
        Err(Failure::Unreached(Broken::new(format!("the nodes do not agree on who has slot {slot}"))))
    }
}

/// Whether a master was retired before anything was sent to it.
fn was_retired(master: &Master, failure: &Failure) -> bool {
    master.backend.server().is_retired() && matches!(failure, Failure::Unreached(_))
}

fn unknown_slot(slot: u16) -> Failure {
    Failure::Unreached(Broken::new(format!("no node of the cluster says who has slot {slot}")))
}

/// How well it is.
impl Routes {
    /// How long the node has been out of reach that has been so for longest.
    pub(super) fn outage(&self) -> Option<Duration> {
        let masters = self.masters();
        let outages = masters.iter().map(|master| master.backend.outage()).chain([&self.outage]);
        outages.filter_map(Outage::lasted).max()
    }

    /// Of what has a lock: that others are out of reach is nothing to it.
    pub(super) fn outage_of<T>(&self, resource: &str, see: impl Fn(&Outage) -> T) -> T {
        self.known(self.slot_of(resource)).map_or_else(|| see(&self.outage), |master| see(master.backend.outage()))
    }

    /// The master that has a lock, if one is known to.
    pub(super) fn address_of(&self, resource: &str) -> Option<HostPort> {
        self.known(self.slot_of(resource)).map(|master| master.address.clone())
    }

    /// The number of the master that has a lock; those that have none are together.
    pub(super) fn number_of(&self, resource: &str) -> usize {
        self.table.read().map.master_of(self.slot_of(resource)).unwrap_or(usize::MAX)
    }

    fn slot_of(&self, resource: &str) -> u16 {
        slot_of(&*FullKey::new(&self.common.config.key_prefix, resource))
    }
}
