//! The ways to add to a set under a lock, and what each of them is expected to lose.

use crate::nemesis::Act;

/// Where the sets are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file in the folder of temporary files. It stands for Jepsen's variable, which its threads share.
    Memory,
    /// A key of the lock's own server, in the lock's slot.
    Redis,
    Sqlite,
}

/// What is asked between the wait and the write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Nothing,
    /// The guard, which answers without a round trip.
    IsValid,
    /// The place itself: it refuses a write whose hold is over.
    Place,
}

/// How many acknowledged adds a way may lose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Losses {
    /// Any number: a lease cannot prevent them. The run publishes them.
    Published,
    None,
    /// At least one: the way shows that the checker sees losses.
    Control,
}

pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) check: Check,
    pub(crate) acts: &'static [Act],
    pub(crate) losses: Losses,
}

/// No way renews its lease of 2 s, unless the run was started with `--renewed`. Jepsen's client keeps its lease alive.
pub(crate) const WAYS: [Way; 7] = [
    Way { name: "memory", place: Place::Memory, check: Check::Nothing, acts: Act::ALL, losses: Losses::Published },
    Way {
        name: "memory-is-valid",
        place: Place::Memory,
        check: Check::IsValid,
        acts: Act::ALL,
        losses: Losses::Published,
    },
    Way { name: "while-held", place: Place::Redis, check: Check::Place, acts: Act::ALL, losses: Losses::None },
    Way { name: "token", place: Place::Sqlite, check: Check::Place, acts: Act::ALL, losses: Losses::None },
    Way {
        name: "memory-paused",
        place: Place::Memory,
        check: Check::Nothing,
        acts: Act::PAUSES,
        losses: Losses::Control,
    },
    Way {
        name: "while-held-unchecked",
        place: Place::Redis,
        check: Check::Nothing,
        acts: Act::PAUSES,
        losses: Losses::Control,
    },
    Way {
        name: "token-unchecked",
        place: Place::Sqlite,
        check: Check::Nothing,
        acts: Act::PAUSES,
        losses: Losses::Control,
    },
];

impl Way {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        WAYS.iter().find(|way| way.name == name)
    }

    pub(crate) fn is_control(&self) -> bool {
        self.losses == Losses::Control
    }
}
