//! A cluster: its masters are replaced for one reason or another, its slots go to other masters, and it is made whole again.

use super::failovers::Happened;
use super::patience::Broken;
use crate::history::failovers::{ASKS, Failover};
use crate::history::moves::Move;
use crate::history::names::{During, Names};
use crate::history::record::now;
use crate::nemesis::{Act, Step};
use crate::plan::Plan;
use crate::reaper;
use crate::work::resource;
use harness::cluster::{Cluster, FAILOVER, How, Keys, Known, Shape, slot_of};
use harness::proxy::Gate;
use harness::sentinel::{Cut, Member};
use redis::Value;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many masters there are. Each has one replica, and the two take each other's place.
const SHARDS: usize = 3;

/// So long a master of a slot on its way there may take until it has granted a lock.
const GRANT: Duration = Duration::from_secs(4);

pub(super) struct Shards {
    cluster: Cluster,
    /// Slots are not served while others have no master.
    full_coverage: bool,
    /// As all knew them when the cluster was whole.
    masters: [usize; SHARDS],
    /// Which of them has the slot of each name.
    homes: Vec<usize>,
    /// Opened when a node is no longer cut off.
    gate: Gate,
    broken: Broken,
}

/// The other node of its shard.
fn twin(node: usize) -> usize {
    (node + SHARDS) % (2 * SHARDS)
}

impl Shards {
    pub(super) fn open(plan: &Plan, seed: u64) -> Self {
        let full_coverage = seed & 4 == 0;
        let cluster = Cluster::of(if full_coverage { Shape::APART } else { Shape::APART.partial() });
        reaper::tidy(cluster.dir());
        cluster.nodes.iter().for_each(|node| reaper::watch(node.pid()));
        let homes = (0..plan.names).map(|name| cluster.master_of(&resource(name as u8))).collect();
        let (masters, gate, broken) = ([0, 1, 2], Gate::default(), Broken::default());
        Self { cluster, full_coverage, masters, homes, gate, broken }
    }

    /// How a worker finds the masters.
    pub(super) fn way(&self) -> (String, Vec<(u16, u16)>) {
        (self.cluster.url(), self.cluster.ways())
    }

    pub(super) fn broken(&mut self) -> Option<String> {
        self.find_undisturbed();
        self.broken.0.clone()
    }

    /// Has every node do something.
    pub(super) fn tell(&self, words: &[&str]) {
        self.cluster.nodes.iter().for_each(|node| drop(node.try_ask::<Value>(words)));
    }

    /// What all masters have. One that does not know a name, or of sharded channels, has nothing.
    pub(super) fn list(&self, words: &[&str]) -> Vec<String> {
        let of_one = |master: &usize| self.cluster.nodes[*master].try_ask::<Vec<String>>(words).unwrap_or_default();
        self.masters.iter().flat_map(of_one).collect()
    }

    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        self.cluster.nodes.iter().map(Member::socket).collect()
    }

    /// Connections of workers to any node.
    pub(super) fn clients(&self) -> usize {
        self.cluster.nodes.iter().map(Member::clients).sum()
    }

    /// What every node said goes beside the logs of the workers.
    pub(super) fn keep_logs(&self, dir: &Path) {
        for (number, node) in self.cluster.nodes.iter().enumerate() {
            std::fs::write(dir.join(format!("node-{number}.txt")), node.log()).expect("room for the log");
        }
    }

    pub(super) fn close(self) {
        let running = self.cluster.nodes.iter().filter(|node| node.is_running());
        running.for_each(|node| reaper::forget(node.pid()));
    }

    /// What a nemesis does to the cluster, which is whole before and after.
    pub(super) fn act(&mut self, step: Step) -> Happened {
        self.find_undisturbed();
        if self.broken.is_so() {
            return Happened::default();
        }
        let name = (step.seed >> 8) as usize % self.homes.len();
        if step.act.moves() {
            let moved = self.move_slot(name, step);
            self.settle();
            return Happened { moves: vec![moved], ..Happened::default() };
        }
        let mut found = self.replace(self.homes[name], step);
        sleep(Duration::from_millis(step.lasts));
        self.mend();
        self.settle();
        if let Some(Some(last)) = found.last_mut() {
            last.whole = Some(now());
        }
        let failovers: Vec<_> = found.into_iter().flatten().collect();
        Happened { rough: self.uncovered(&failovers), failovers, ..Happened::default() }
    }

    fn replace(&mut self, shard: usize, step: Step) -> Vec<Option<Failover>> {
        let how = How::ALL[step.seed as usize % How::ALL.len()];
        match step.act {
            Act::FailOver => vec![self.fail_over(shard, how)],
            Act::ThereAndBack => self.there_and_back(shard, how),
            _ => vec![self.strike(shard, step)],
        }
    }

    /// When no slot was served, because some had no master.
    fn uncovered(&self, failovers: &[Failover]) -> Vec<During> {
        let of = failovers.iter().filter(|_| self.full_coverage);
        of.map(|failover| During::of_all((failover.began, failover.named))).collect()
    }

    /// A machine that stood still has a master replaced that is well: nothing is known of when.
    fn find_undisturbed(&mut self) {
        if self.masters.iter().any(|master| self.cluster.says_master(twin(*master))) {
            self.broken.note("a master was replaced that was well");
        }
    }

    /// Something happens to a master that the other nodes have to find out.
    fn strike(&mut self, shard: usize, step: Step) -> Option<Failover> {
        let (old, began) = (self.masters[shard], now());
        match step.act {
            Act::FreezeMaster => self.cluster.nodes[old].freeze(),
            Act::CutOffMaster => {
                let cut = if step.seed & 1 == 0 { Cut::Silent } else { Cut::Hard };
                self.cluster.cut_off(old, cut, &self.gate);
            }
            _ => {
                reaper::forget(self.cluster.nodes[old].pid());
                self.cluster.nodes[old].kill();
            }
        }
        self.replaced(shard, began, None)
    }

    /// A replica is told to take the place of a master that is well.
    fn fail_over(&mut self, shard: usize, how: How) -> Option<Failover> {
        self.replaced(shard, now(), Some(how))
    }

    fn there_and_back(&mut self, shard: usize, how: How) -> Vec<Option<Failover>> {
        let there = self.fail_over(shard, how);
        self.settle();
        let back = there.and_then(|_| self.fail_over(shard, how));
        vec![there, back]
    }

    /// Waits until the replica is the master, and a node of another one says so. One that was told to take over is told again if it
    /// does not get there: Redis 7.0 counts the votes of an election once more that is not 2 s old, and such a master has to give way.
    fn replaced(&mut self, shard: usize, began: u64, how: Option<How>) -> Option<Failover> {
        let (new, mut told, mut promoted) = (twin(self.masters[shard]), Vec::<Instant>::new(), None);
        self.wait("the replica is the master, and named", |shards| {
            if let Some(how) = how.filter(|_| told.last().is_none_or(|last| last.elapsed() > FAILOVER))
                && shards.cluster.nodes[new].try_ask::<String>(how.words()).is_ok()
            {
                told.push(Instant::now());
            }
            let is_master = shards.cluster.says_master(new);
            promoted = promoted.filter(|_| is_master).or_else(|| is_master.then(now));
            promoted.and_then(|_| shards.is_named(new).then_some(()))
        })?;
        let (promoted, named, names) = (promoted?, now(), self.names_of(shard));
        self.masters[shard] = new;
        // An orderly one has all.
        let moved = (how != Some(How::Orderly) || told.len() > 1).then_some(ASKS);
        Some(Failover { began, promoted, named, whole: None, names, moved })
    }

    fn names_of(&self, shard: usize) -> Names {
        let homes = (0..).zip(&self.homes);
        Names::in_slots(homes.filter(|(_, home)| **home == shard).map(|(name, _)| name))
    }

    /// Whether a node of another shard takes it for a master with slots.
    fn is_named(&self, new: usize) -> bool {
        let others = self.masters.iter().filter(|other| **other != new && **other != twin(new));
        let names = |known: &Known| known.node == new && known.is_master() && known.has_slots();
        others.map(|other| &self.cluster.nodes[*other]).any(|other| other.knows().iter().any(names))
    }

    /// The slot of a name goes to the next master, or the one after it, with all its keys; some of them later.
    fn move_slot(&mut self, name: usize, step: Step) -> Move {
        let (home, resource) = ((self.homes[name] + 1 + (step.seed & 1) as usize) % SHARDS, resource(name as u8));
        let (slot, to) = (slot_of(&resource), self.masters[home]);
        let first = match (step.act, step.seed % 3) {
            (Act::MoveSlot, _) | (_, 0) => Keys::All,
            (_, 1) => Keys::None,
            _ => Keys::Named(&[&resource]),
        };
        let began = now();
        let moved = self.cluster.half_move(slot, to, first);
        let from = now();
        if step.act == Act::LoseHalfway {
            self.forget(to, &resource);
        }
        if step.act != Act::MoveSlot {
            sleep(Duration::from_millis(step.lasts));
        }
        let halfway = (from, now());
        self.cluster.finish_move(moved);
        self.homes[name] = home;
        Move { names: Names::in_slots([name as u8]), began, halfway, ended: now() }
    }

    /// Once a master has granted a lock, or not soon, it comes back without it, so early that its replica stays one.
    fn forget(&mut self, master: usize, resource: &str) {
        let end = Instant::now() + GRANT;
        while !self.cluster.nodes[master].keys().iter().any(|key| key == resource) && Instant::now() < end {
            sleep(Duration::from_millis(5));
        }
        let node = &mut self.cluster.nodes[master];
        reaper::forget(node.pid());
        node.kill();
        node.restart();
        reaper::watch(node.pid());
        self.wait("it serves again", |shards| shards.cluster.nodes[master].serves().then_some(()));
    }

    /// The replica that has a name has no keys any more: it sends a client that wants to take one away to its master.
    pub(super) fn have_replica_lose_all(&self, name: usize) {
        let replica = &self.cluster.nodes[twin(self.masters[self.homes[name]])];
        let read_only = |so: &str| drop(replica.ask::<String>(&["CONFIG", "SET", "replica-read-only", so]));
        read_only("no");
        let _: String = replica.ask(&["FLUSHALL"]);
        read_only("yes");
    }

    /// Brings back what was killed, stopped or cut off.
    fn mend(&mut self) {
        std::mem::take(&mut self.gate).open();
        (0..self.cluster.nodes.len()).for_each(|node| self.cluster.join(node));
        for node in &mut self.cluster.nodes {
            if node.is_running() {
                node.thaw();
            } else {
                node.restart();
                reaper::watch(node.pid());
            }
        }
    }

    /// Waits until all are well and agree.
    fn settle(&mut self) {
        self.wait("the cluster is whole", |shards| shards.cluster.is_whole().then_some(()));
        self.find_undisturbed();
    }

    fn wait<T>(&mut self, what: &str, mut find: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        let mut broken = self.broken.clone();
        let found = broken.wait(what, || find(self));
        self.broken = broken;
        found
    }
}
