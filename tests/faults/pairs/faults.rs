//! What happens in a trial, and when.

use crate::apart::{HOLDER, WAITER};
use fastrand::Rng;

macro_rules! one_of {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $name { $($(#[$item_doc])* $item,)* }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$item,)*];

            pub(crate) fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| format!("{one:?}") == name)
            }

            pub(crate) fn any(rng: &mut Rng) -> Self {
                Self::ALL[rng.usize(..Self::ALL.len())]
            }
        }
    };
}
pub(crate) use one_of;

one_of! {
    /// When a fault happens, seen from the holder.
    Phase {
        BeforeAsk,
        /// Another client holds the lock, and the holder waits for it.
        Waiting,
        Granted,
        Work,
        BeforeRelease,
        /// Its release is on its way: the proxy has it.
        AtRelease,
        AfterRelease,
    }
}

one_of! {
    /// The first happen to the next script of the holder on the wire, the others at once and at the server.
    Fault {
        /// The connection ends, and the request reaches nobody.
        CutRequest,
        /// The same after half of the request.
        CutWithinRequest,
        CutAnswer,
        CutWithinAnswer,
        SwallowRequest,
        SwallowAnswer,
        DoubleAnswer,
        DelayRequest,
        DelayAnswer,
        /// The request reaches nobody, and the answer is that the server loads its data.
        SaysLoading,
        /// Its connection ends, and it reaches the server 300 ms later.
        LateCopy,
        /// The holder's proxy passes nothing on for 300 ms, and then all of it.
        Silence,
        SilenceLong,
        /// All connections for commands end, idle ones too.
        KillNormal,
        /// All connections for messages.
        KillPubsub,
        Pause,
        Freeze,
        FreezeLong,
        RestartEmpty,
        RestartWithData,
        FlushAll,
        Del,
        /// Another client has the lock in the same transaction, for 3 s.
        Take,
        ForceUnlock,
        /// The lock's lease ends.
        EndLease,
        ScriptFlush,
        /// The server has no memory for 300 ms.
        NoMemory,
        /// The holder's user may not run scripts for 300 ms.
        NoRight,
        /// A replica that has all takes the master's place. These are of deployments with replicas.
        FailOver,
        /// The master dies, and comes back as a replica 300 ms later.
        FailOverKilled,
        /// The new one has nothing. The old master is told 100 ms later.
        FailOverLosing,
        /// The new one has nothing, and the old one dies.
        FailOverKilledLosing,
        /// The old master goes on as one for 700 ms. Clients can know of the new one after 150 ms.
        FailOverStale,
        /// The slot of a key goes to another master of a cluster, and is on its way for 100 ms.
        MoveSlot,
        /// The holder's process is stopped for 1.2 s. These four are of clients, each in a process of its own.
        StopHolder,
        KillHolder,
        /// Another client that waits, behind the holder and before the rival.
        StopWaiter,
        KillWaiter,
    }
}

impl Fault {
    /// After these a release may not be answered, or what comes is not its answer.
    pub(crate) const DOUBTS: [Self; 14] = [
        Self::CutRequest,
        Self::CutWithinRequest,
        Self::CutAnswer,
        Self::CutWithinAnswer,
        Self::SwallowRequest,
        Self::SwallowAnswer,
        Self::LateCopy,
        Self::DelayRequest,
        Self::KillNormal,
        Self::Freeze,
        Self::FreezeLong,
        Self::Silence,
        Self::NoRight,
        Self::StopHolder,
    ];
    /// They take a lock from its holder.
    pub(crate) const LOSSES: [Self; 6] =
        [Self::Del, Self::Take, Self::RestartEmpty, Self::FlushAll, Self::EndLease, Self::ForceUnlock];
    /// Something that was sent is executed, and nobody learns of it.
    pub(crate) const LOST_ANSWERS: [Self; 4] =
        [Self::CutAnswer, Self::CutWithinAnswer, Self::SwallowAnswer, Self::LateCopy];
    /// A replica takes the master's place. After the last three a hold may be gone.
    pub(crate) const FAILOVERS: [Self; 5] =
        [Self::FailOver, Self::FailOverKilled, Self::FailOverLosing, Self::FailOverKilledLosing, Self::FailOverStale];
    /// For a while nobody is answered.
    pub(crate) const OUTAGES: [Self; 8] = [
        Self::Freeze,
        Self::FreezeLong,
        Self::Pause,
        Self::Silence,
        Self::SilenceLong,
        Self::RestartWithData,
        Self::NoRight,
        Self::StopHolder,
    ];

    pub(crate) fn is_of_wire(self) -> bool {
        self <= Self::LateCopy
    }

    /// Whom it stops or kills.
    pub(crate) fn party(self) -> Option<&'static str> {
        match self {
            Self::StopHolder | Self::KillHolder => Some(HOLDER),
            Self::StopWaiter | Self::KillWaiter => Some(WAITER),
            _ => None,
        }
    }

    pub(crate) fn fails_over(self) -> bool {
        Self::FAILOVERS.contains(&self)
    }

    /// For how long others may wait because of it, in microseconds.
    pub(crate) fn lasts(self) -> u64 {
        match self {
            Self::Take => 3_050_000,
            Self::FreezeLong | Self::SilenceLong => 1_250_000,
            Self::StopHolder | Self::StopWaiter => 1_200_000,
            _ if self.fails_over() => 1_500_000,
            _ => 400_000,
        }
    }
}
