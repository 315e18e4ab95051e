//! The classes of a round: what its nemeses may do, and so what may be expected of the locks.

use crate::plan::Plan;
use crate::stage::Servers;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// No nemesis, and fair locks alone: all of them go in order of arrival, and no queue is left.
    Calm,
    /// The server keeps its data, and nobody takes a lock away: no overlap, no lost update.
    Safe,
    /// The server loses its data now and then: overlaps are expected in plain mode, and counted.
    Lossy,
    /// The same with the library's loss quarantine: no overlap, no lost update.
    Strict,
    /// Workers force locks open that others hold: overlaps are expected, and counted.
    Forced,
    /// The master of a group is replaced, again and again: what it did not tell its replicas is lost, so overlaps are expected
    /// around each failover in plain mode, and counted.
    Sentinel,
    /// The same with strict clients whose grants all replicas confirm: no overlap, no lost update, no hold that a failover loses.
    Replicated,
    /// Masters of a cluster are replaced, and slots go from one to another: a failover is as in the class of sentinels, for the
    /// locks of that master alone, and a slot that moves takes no lock away.
    Cluster,
    /// The same with strict clients whose grants the replica confirms: no overlap, no lost update, no hold that a failover loses.
    ClusterReplicated,
}

/// The order of the rounds: most are of the class that promises most.
const ORDER: [Class; 11] = [
    Class::Safe,
    Class::Strict,
    Class::Safe,
    Class::Lossy,
    Class::Safe,
    Class::Forced,
    Class::Calm,
    Class::Sentinel,
    Class::Replicated,
    Class::Cluster,
    Class::ClusterReplicated,
];

/// What a run is about, if not about all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Servers,
    Groups,
    Clusters,
}

impl Only {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "servers" => Some(Self::Servers),
            "groups" => Some(Self::Groups),
            "clusters" => Some(Self::Clusters),
            _ => None,
        }
    }

    pub(crate) fn takes(self, servers: Servers) -> bool {
        self == servers.kind()
    }
}

impl Class {
    pub(crate) const ALL: [Self; 9] = [
        Self::Calm,
        Self::Safe,
        Self::Strict,
        Self::Lossy,
        Self::Forced,
        Self::Sentinel,
        Self::Replicated,
        Self::Cluster,
        Self::ClusterReplicated,
    ];

    /// Those of the rounds one after the other, and then again.
    pub(crate) fn order(only: Option<Only>) -> Vec<Self> {
        ORDER.into_iter().filter(|class| only.is_none_or(|only| only.takes(class.servers()))).collect()
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Safe => "safe",
            Self::Strict => "strict",
            Self::Lossy => "lossy",
            Self::Forced => "forced",
            Self::Sentinel => "sentinel",
            Self::Replicated => "replicated",
            Self::Cluster => "cluster",
            Self::ClusterReplicated => "cluster-replicated",
        }
    }

    pub(crate) fn servers(self) -> Servers {
        match self {
            Self::Calm | Self::Safe | Self::Forced => Servers::Lasting,
            Self::Lossy | Self::Strict => Servers::Forgetful,
            Self::Sentinel => Servers::Group,
            Self::Replicated => Servers::Askew,
            Self::Cluster | Self::ClusterReplicated => Servers::Cluster,
        }
    }

    /// Whether an overlap near a loss is no finding.
    pub(crate) fn expects_overlaps(self) -> bool {
        matches!(self, Self::Lossy | Self::Forced | Self::Sentinel | Self::Cluster)
    }

    /// How long a waiter may sleep beside a free lock when nemeses are at work, in ms: a lease that nobody knew of, a poll, an
    /// outage that is being ridden out; and a group that has it as a part, and waits for its others. For a failover it counts from when
    /// locks are granted again.
    pub(crate) fn free(self) -> u64 {
        let part_of_group = 1_000;
        part_of_group + if self.has_failovers() { 2_000 } else { 3_500 }
    }

    /// So many grants after each failover show that locks are granted again.
    pub(crate) fn enough(self) -> usize {
        if self.is_replicated() { 100 } else { 20 }
    }

    pub(crate) fn has_failovers(self) -> bool {
        self.servers().have_failovers()
    }

    /// Whether a failover excuses nothing.
    pub(crate) fn is_replicated(self) -> bool {
        matches!(self, Self::Replicated | Self::ClusterReplicated)
    }

    /// The shortest round that shows something. A group takes its time to start, and for each failover.
    pub(crate) fn least_round(self) -> Duration {
        Duration::from_secs(if self.has_failovers() { 20 } else { 4 })
    }

    /// Whether a JVM may wait among the workers: it knows of no quarantine, follows no master, and takes a fair lock before those that wait.
    pub(crate) fn has_foreigners(self) -> bool {
        !matches!(self, Self::Calm | Self::Strict) && !self.has_failovers()
    }

    /// Few names, so that they are fought for, and leases which a stop of a second outlives. Of each cluster class every second
    /// round has unlock messages told to all nodes: the two take turns. In every third round of any class all use fair locks.
    pub(crate) fn plan(self, seed: u64) -> Plan {
        let plan = Plan { fair: self == Self::Calm || seed.is_multiple_of(3), ..self.plan_of_one_server() };
        match self {
            // Leases outlive a failover, holders are in the middle of their work during one, and those who wait ride it out: only
            // news of the new master wakes them in time.
            Self::Sentinel => Plan { watchdog: 3_000, outage: 10_000, poll: 4_000, lingers: 1_500, ..plan },
            // What a failover costs is a lease; what has to be confirmed is given the time of a busy machine.
            Self::Replicated => Plan {
                watchdog: 2_000,
                response: 500,
                outage: 20_000,
                lingers: 1_500,
                replicas: 2,
                strict: true,
                ..plan
            },
            Self::Cluster => Plan { plain: seed & 2 == 2, ..Self::Sentinel.plan(seed) },
            Self::ClusterReplicated => Plan { plain: seed & 2 == 2, replicas: 1, ..Self::Replicated.plan(seed) },
            _ => plan,
        }
    }

    fn plan_of_one_server(self) -> Plan {
        Plan {
            threads: 3,
            names: 3,
            sides: 2,
            mixed: true,
            groups: 12,
            permits: 4,
            nests: true,
            forces: self == Self::Forced,
            pause: (0, 1),
            watchdog: 600,
            response: 250,
            outage: 1_500,
            poll: 1_000,
            strict: self == Self::Strict,
            ..Plan::default()
        }
    }
}
