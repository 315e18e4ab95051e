//! What is done to a way while it runs: one act every 5 s, each healed before the next.

use fastrand::Rng;
use std::ops::Range;
use std::time::Duration;

/// As often as Jepsen paused processes.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// A worker that holds a lock is stopped for longer than its lease.
    PauseHolder,
    FreezeServer,
    /// The server is killed and started again: its file has each change that it confirmed.
    KillServer,
    /// A worker that holds a lock is killed, and another one takes its place.
    KillWorker,
    /// Each connection of a worker is cut as soon as something comes by.
    CutWorker,
}

impl Act {
    pub(crate) const ALL: &[Self] =
        &[Self::PauseHolder, Self::FreezeServer, Self::KillServer, Self::KillWorker, Self::CutWorker];

    pub(crate) const PAUSES: &[Self] = &[Self::PauseHolder];

    /// As the table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PauseHolder => "pauses",
            Self::FreezeServer => "freezes",
            Self::KillServer => "server kills",
            Self::KillWorker => "worker kills",
            Self::CutWorker => "cuts",
        }
    }

    /// How long it lasts, in ms: below [`EVERY`], and a pause is longer than the lease.
    fn span(self) -> Range<u64> {
        match self {
            Self::PauseHolder => 2_500..4_500,
            Self::FreezeServer => 500..4_000,
            Self::KillServer => 100..2_500,
            Self::KillWorker => 0..1,
            Self::CutWorker => 100..3_000,
        }
    }

    pub(crate) fn random_span(self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(self.span()))
    }
}
