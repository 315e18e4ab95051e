//! The cluster of a thread, which serves one trial after the other.

use super::soon;
use crate::machine::Machine;
use crate::site::{Site, Wire};
use crate::truth::Record;
use harness::cluster::{Cluster, Shape, slot_of};
use harness::proxy::Proxy;
use harness::reaper;
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

/// How many masters there are. Each has one replica.
const SHARDS: usize = 2;

thread_local! {
    static LANE: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

pub(crate) struct Lane {
    pub(super) cluster: Arc<RwLock<Cluster>>,
    /// The holder's and the others' to each node.
    ways: Vec<[Arc<Proxy>; 2]>,
    records: Vec<Record>,
    trials: usize,
    /// Slots that have left the shard in which they were.
    pub(super) moved: HashSet<u16>,
}

/// Ends the cluster of the thread when it is dropped.
pub(crate) struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        let Some(lane) = LANE.take() else { return };
        let cluster = lane.cluster.read().unwrap();
        cluster.nodes.iter().filter(|node| node.is_running()).for_each(|node| reaper::forget(node.pid()));
    }
}

/// The number of the node at a place.
pub(super) fn node_of(place: usize) -> usize {
    place / 2 + place % 2 * SHARDS
}

impl Lane {
    /// The thread's cluster, if it is well, or a new one.
    pub(super) fn take() -> Self {
        let is_well = |lane: &Self| soon(10_000, || lane.cluster.read().unwrap().is_whole());
        let mut lane = LANE.take().filter(is_well).unwrap_or_else(Self::start);
        lane.trials += 1;
        lane.records.iter().for_each(Record::clear);
        for node in &lane.cluster.read().unwrap().nodes {
            let _ = node.try_ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
            let _ = node.try_ask::<String>(&["CLIENT", "UNPAUSE"]);
        }
        lane
    }

    fn start() -> Self {
        let cluster = Cluster::of(Shape::APART_SMALL);
        reaper::tidy(cluster.dir());
        cluster.nodes.iter().for_each(|node| reaper::watch(node.pid()));
        let record = |socket: &Path| {
            let record = Record::default();
            record.listen(socket, 0);
            record
        };
        Self {
            ways: cluster.nodes.iter().map(|node| [(); 2].map(|()| Arc::new(Proxy::on_tcp(node.socket())))).collect(),
            records: cluster.nodes.iter().map(|node| record(&node.socket())).collect(),
            cluster: Arc::new(RwLock::new(cluster)),
            trials: 0,
            moved: HashSet::new(),
        }
    }

    pub(super) fn give_back(self) {
        LANE.set(Some(self));
    }

    /// With it in front the names are new, and each is in another shard, in order.
    pub(super) fn prefix(&self, names: &[&str]) -> String {
        let shard_of = |key: &str| usize::from(slot_of(key)) * SHARDS / 16_384;
        let is_at = |shard, key: &str| shard_of(key) == shard && !self.moved.contains(&slot_of(key));
        let is_apart = |prefix: &String| (0..).zip(names).all(|(shard, name)| is_at(shard, &format!("{prefix}{name}")));
        (0..).map(|number| format!("t{}.{number}:", self.trials)).find(is_apart).expect("there is one")
    }

    /// Two for each shard.
    pub(super) fn sites(&self, prefix: &str, wires: &[Arc<Mutex<Wire>>; 2]) -> Vec<Arc<Site>> {
        let of_place = |place: usize| {
            let number = node_of(place);
            let machine = Machine::node(&self.cluster, number, prefix);
            Arc::new(Site::at(machine, self.ways[number].clone(), self.records[number].clone(), wires, place))
        };
        (0..2 * SHARDS).map(of_place).collect()
    }

    /// The place of the master of each shard.
    pub(super) fn masters(&self) -> Vec<usize> {
        let cluster = self.cluster.read().unwrap();
        (0..SHARDS).map(|shard| 2 * shard + usize::from(!cluster.says_master(shard))).collect()
    }
}
