//! Groups whose nodes can be cut off from each other and from the sentinels, and that are made whole again.

use super::{Fields, Group, Member, NAME};
use crate::proxy::{Gate, Proxy, Step, pass};
use redis::FromRedisValue;
use std::time::Duration;

/// How a node is cut off from its group.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// What is sent arrives when the cut is over, as on a network that was down for a while.
    Silent,
    /// Connections break.
    Hard,
}

/// How often sentinels look at each node and tell each other what they know, as they do it by themselves.
const USUAL: [&str; 4] = ["INFO-PERIOD", "10000", "PUBLISH-PERIOD", "2000"];

/// A node that was replaced is told to give way after four times the latter, a second instead of 8.
const HURRIED: [&str; 4] = ["INFO-PERIOD", "500", "PUBLISH-PERIOD", "250"];

/// Sentinels that stood still for 2 s act again after 3 s, and not after 30. And they connect again to a node that closed their
/// connection, as one does that was promoted, four times in the time after which they call it down, and not once: else it may be
/// replaced in its turn.
const PATIENT: [&str; 4] = ["TILT-PERIOD", "3000", "PING-PERIOD", "250"];

impl Member {
    /// Nobody of its group reaches it until the gate is opened and [`join`](Self::join) is called; clients do.
    pub fn cut_off(&self, cut: Cut, gate: &Gate) {
        let gate = gate.clone();
        self.proxy().set(move |_, _, data| match cut {
            Cut::Silent => [vec![Step::Hold(gate.clone())], pass(data)].into_iter().flatten().collect(),
            Cut::Hard => vec![Step::Cut],
        });
    }

    /// Whoever connects from now on reaches it.
    pub fn join(&self) {
        self.proxy().clear();
    }

    fn proxy(&self) -> &Proxy {
        self.between.as_ref().expect("a node of a group of the shape APART")
    }

    /// Whether a node says now that it is the master; one that does not answer says nothing.
    pub fn says_master(&self) -> bool {
        let said = self.try_ask::<Vec<redis::Value>>(&["ROLE"]);
        let role = said.ok().and_then(|said| said.into_iter().next());
        role.is_some_and(|role| String::from_redis_value(role).is_ok_and(|role| role == "master"))
    }

    /// Whether a replica has, as far as it knows, what its master has.
    pub fn follows(&self) -> bool {
        let said = self.try_ask::<String>(&["INFO", "replication"]);
        said.is_ok_and(|said| said.contains("role:slave") && said.contains("master_link_status:up"))
    }

    /// Whether so many are its own replicas, and not those of a replica.
    fn has_replicas(&self, count: usize) -> bool {
        let said = self.try_ask::<String>(&["INFO", "replication"]);
        said.is_ok_and(|said| said.matches("state=online").count() == count)
    }

    /// Whether a sentinel thinks well of the master, with no failover under way.
    fn is_calm(&self) -> bool {
        let said = self.try_ask::<Fields>(&["SENTINEL", "MASTER", NAME]);
        said.is_ok_and(|said| said["flags"] == "master" && said["num-slaves"] != "0")
    }

    /// Whether it believes that a node is never to be promoted.
    pub fn passes_over(&self, node: &Member) -> bool {
        let is_so = |known: &Fields| known["port"] == node.known_as().to_string() && known["slave-priority"] == "0";
        self.replicas().iter().any(is_so)
    }
}

impl Group {
    /// How clients reach each node: the port that sentinels name, and its own.
    pub fn ways(&self) -> Vec<(u16, u16)> {
        self.nodes.iter().map(|node| (node.known_as(), node.port())).collect()
    }

    /// Whether sentinels do soon what they do at last: see that nodes changed, and tell an old master to give way. Those of
    /// servers that know no such setting take their time.
    pub fn hurry(&self, is_urgent: bool) {
        let periods = if is_urgent { HURRIED } else { USUAL };
        let words = [&["SENTINEL", "DEBUG"], &periods[..], &PATIENT].concat();
        self.sentinels.iter().for_each(|sentinel| drop(sentinel.try_ask::<String>(&words)));
    }

    /// The node that all sentinels name, if all processes are well and agree on what each of them is.
    pub fn whole(&self) -> Option<usize> {
        let master = self.named_by(0)?;
        let others = || self.nodes.iter().enumerate().filter(|(number, _)| *number != master).map(|(_, node)| node);
        let agrees = |(number, sentinel): (usize, &Member)| {
            self.named_by(number) == Some(master)
                && sentinel.is_calm()
                && sentinel.is_ready(self.shape)
                && others().all(|node| sentinel.has_seen_replica(node))
        };
        let is_so = self.nodes[master].says_master()
            && others().all(Member::follows)
            && self.nodes[master].has_replicas(self.nodes.len() - 1)
            && self.sentinels.iter().enumerate().all(agrees);
        is_so.then_some(master)
    }

    /// How long a process may be silent before a sentinel calls it down.
    pub fn down_after(&self) -> Duration {
        self.shape.down_after
    }

    /// Where it keeps its files.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }
}
