//! The classes of a round: what its nemeses may do, and so what may be expected of the locks.

use crate::plan::Plan;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The server keeps its data, and nobody takes a lock away: no overlap, no lost update.
    Safe,
    /// The server loses its data now and then: overlaps are expected in plain mode, and counted.
    Lossy,
    /// The same with the library's loss quarantine: no overlap, no lost update.
    Strict,
    /// Workers force locks open that others hold: overlaps are expected, and counted.
    Forced,
}

/// The order of the rounds: most are of the class that promises most.
const ORDER: [Class; 6] = [Class::Safe, Class::Strict, Class::Safe, Class::Lossy, Class::Safe, Class::Forced];

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Safe, Self::Strict, Self::Lossy, Self::Forced];

    pub(crate) fn of_round(round: usize) -> Self {
        ORDER[round % ORDER.len()]
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Strict => "strict",
            Self::Lossy => "lossy",
            Self::Forced => "forced",
        }
    }

    /// Whether its server is written to disk at each change.
    pub(crate) fn keeps_data(self) -> bool {
        !self.loses_data()
    }

    pub(crate) fn loses_data(self) -> bool {
        matches!(self, Self::Lossy | Self::Strict)
    }

    /// Whether an overlap near a loss is no finding.
    pub(crate) fn expects_overlaps(self) -> bool {
        matches!(self, Self::Lossy | Self::Forced)
    }

    /// Few names, so that they are fought for, and leases which a stop of a second outlives.
    pub(crate) fn plan(self) -> Plan {
        Plan {
            threads: 3,
            names: 3,
            mixed: true,
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
