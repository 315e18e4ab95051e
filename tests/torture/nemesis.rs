//! What goes wrong, when and for how long: drawn from a seed, so that a seed repeats it.

use crate::classes::Class;
use crate::history::record::MS;
use fastrand::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Act {
    /// Nothing happens.
    Rest,
    /// The server is killed and started again; whether it knows its data then is the class's.
    KillServer,
    FreezeServer,
    /// SIGSTOP of a worker, for less than a lease or for more.
    FreezeClient,
    /// SIGKILL of a worker; another one takes its place.
    KillClient,
    FlushAll,
    /// The server's wall clock is put back.
    ClockBack,
    /// The time-out of a reader is evicted.
    Evict,
    ForgetScripts,
    KillNormal,
    KillPubsub,
    /// The server answers nobody.
    Pause,
    /// It answers no writes: those that came wait, and are all executed when it is over.
    PauseWrites,
    /// It takes no new connections.
    MaxClients,
    OutOfMemory,
    ReadOnly,
    RevokeScripts,
    RevokePublish,
    RevokeChannels,
    RevokeAll,
    /// Replies of one worker's connections come later.
    Delay,
    /// Its connections break, before or after the server got the request.
    Cut,
    /// Its replies get lost on the way.
    Swallow,
    /// Its requests arrive late, when the caller has long given up.
    Linger,
    /// The master is killed, and started again without its data after another one took its place.
    KillMaster,
    /// It is stopped for longer than it takes to replace it, and goes on.
    FreezeMaster,
    /// Replicas and sentinels do not reach it, its clients do.
    CutOffMaster,
    /// The same with a replica on its side that is never to be promoted.
    CutOffSide,
    /// A sentinel is told to replace a master that is well.
    FailOver,
    /// Twice, and the first master is the third.
    ThereAndBack,
    /// The master is killed when a sentinel is gone.
    KillSentinel,
    /// The same when one is stopped, which names the old master when it goes on.
    FreezeSentinel,
    /// A sentinel is killed and the master cut off. Before the cut is over the sentinel is back and names the old master, while the
    /// other sentinels are stopped.
    LateSentinel,
    /// The master is moved by hand, with all its data, and all sentinels are told to monitor the group anew.
    MonitorAnew,
    /// The master is cut off with one sentinel and those workers who know no other.
    CutOffWorkers,
    /// A slot with locks goes to another master of the cluster.
    MoveSlot,
    /// It is left halfway for a while.
    HalfMove,
    /// The same, and the master it goes to is killed, and comes back without what it was given.
    LoseHalfway,
}

impl Act {
    /// Whether it is about the master of a group, or one of a cluster.
    pub(crate) fn replaces(self) -> bool {
        WHERE_MASTERS_ARE_REPLACED.contains(&self) || matches!(self, Self::CutOffWorkers | Self::MonitorAnew)
    }

    /// Whom a nemesis leaves deaf, and for how long after it. A subscriber that lost its connection has one again after half
    /// a second; it finds out about one that swallows what it is told within 4 s, and so long a channel stays refused.
    pub(crate) fn deafens(self) -> (bool, u64) {
        match self {
            Self::Delay | Self::Cut | Self::Swallow | Self::Linger => (true, 4_000 * MS),
            Self::RevokeChannels | Self::RevokeAll => (false, 4_000 * MS),
            Self::KillServer
            | Self::KillPubsub
            | Self::FreezeServer
            | Self::Pause
            | Self::MaxClients
            | Self::MoveSlot
            | Self::HalfMove => (false, 600 * MS),
            _ => (false, 0),
        }
    }

    /// Whether it gives a slot to another master of a cluster.
    pub(crate) fn moves(self) -> bool {
        matches!(self, Self::MoveSlot | Self::HalfMove | Self::LoseHalfway)
    }
}

const EVERYWHERE: &[Act] = &[
    Act::KillServer,
    Act::FreezeServer,
    Act::FreezeClient,
    Act::FreezeClient,
    Act::FreezeClient,
    Act::KillClient,
    Act::KillClient,
    Act::ForgetScripts,
    Act::KillNormal,
    Act::KillPubsub,
    Act::Pause,
    Act::PauseWrites,
    Act::PauseWrites,
    Act::MaxClients,
    Act::OutOfMemory,
    Act::ReadOnly,
    Act::RevokeScripts,
    Act::RevokePublish,
    Act::RevokeChannels,
    Act::RevokeAll,
    Act::Delay,
    Act::Cut,
    Act::Swallow,
    Act::Linger,
    Act::Linger,
];

const WHERE_DATA_IS_LOST: &[Act] = &[Act::FlushAll, Act::FlushAll, Act::FlushAll, Act::KillServer, Act::KillServer];

/// A server that loses its data, too, begins its tokens anew at what its clock says: there it is not put back.
const WHERE_DATA_IS_KEPT: &[Act] = &[Act::ClockBack, Act::ClockBack];

/// A server of locks is to evict nothing. Where it does, the reader is told late.
const WHERE_READERS_ARE_EVICTED: &[Act] = &[Act::Evict, Act::Evict, Act::Evict, Act::Evict];

const WHERE_MASTERS_ARE_REPLACED: &[Act] = &[
    Act::KillMaster,
    Act::FreezeMaster,
    Act::CutOffMaster,
    Act::CutOffSide,
    Act::FailOver,
    Act::ThereAndBack,
    Act::KillSentinel,
    Act::FreezeSentinel,
    Act::LateSentinel,
];

/// A client that hears one sentinel alone does not follow that: there is no majority for it.
const WHERE_ALL_SENTINELS_ARE_HEARD: &[Act] = &[Act::MonitorAnew, Act::MonitorAnew];

const WHERE_SLOTS_MOVE: &[Act] = &[
    Act::KillMaster,
    Act::FreezeMaster,
    Act::CutOffMaster,
    Act::FailOver,
    Act::FailOver,
    Act::ThereAndBack,
    Act::MoveSlot,
    Act::MoveSlot,
    Act::MoveSlot,
    Act::HalfMove,
    Act::HalfMove,
];

/// What plain clients are not saved from: those beside the old master believe in what it grants for as long as they hear it alone.
const WHERE_REPLICAS_CONFIRM: &[Act] = &[Act::CutOffWorkers, Act::CutOffWorkers];

/// Besides, in a group: what leaves its servers alone, or is nothing to those that replace masters.
const BESIDE_FAILOVERS: &[Act] =
    &[Act::FreezeClient, Act::FreezeClient, Act::KillClient, Act::ForgetScripts, Act::KillPubsub];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// Which worker, if it is about one.
    pub(crate) whom: usize,
    /// In ms, as the pause after it.
    pub(crate) lasts: u64,
    pub(crate) pause: u64,
    pub(crate) seed: u64,
}

/// The steps of a round, without an end.
pub(crate) fn schedule(seed: u64, class: Class, workers: usize) -> impl Iterator<Item = Step> {
    let acts = match class {
        Class::Replicated => {
            [WHERE_MASTERS_ARE_REPLACED, WHERE_MASTERS_ARE_REPLACED, WHERE_REPLICAS_CONFIRM, BESIDE_FAILOVERS].concat()
        }
        Class::Cluster | Class::ClusterReplicated => [WHERE_SLOTS_MOVE, WHERE_SLOTS_MOVE, BESIDE_FAILOVERS].concat(),
        Class::Sentinel => {
            let replaced = [WHERE_MASTERS_ARE_REPLACED, WHERE_MASTERS_ARE_REPLACED, WHERE_ALL_SENTINELS_ARE_HEARD];
            [&replaced.concat()[..], BESIDE_FAILOVERS].concat()
        }
        Class::Lossy => [EVERYWHERE, WHERE_DATA_IS_LOST, WHERE_READERS_ARE_EVICTED].concat(),
        Class::Strict => [EVERYWHERE, WHERE_DATA_IS_LOST].concat(),
        Class::Forced => [EVERYWHERE, WHERE_READERS_ARE_EVICTED].concat(),
        Class::Calm => vec![Act::Rest],
        Class::Safe => [EVERYWHERE, WHERE_DATA_IS_KEPT].concat(),
    };
    let mut rng = Rng::with_seed(seed);
    std::iter::from_fn(move || {
        let act = acts[rng.usize(..acts.len())];
        let lasts = match act {
            Act::FlushAll | Act::Evict | Act::ForgetScripts | Act::KillNormal | Act::KillPubsub | Act::KillClient => 0,
            Act::FreezeClient | Act::FreezeServer if rng.bool() => rng.u64(700..1_300),
            Act::KillServer | Act::FreezeClient | Act::FreezeServer | Act::Pause | Act::PauseWrites => rng.u64(10..300),
            // Until the others would be granted locks, were all replicas there.
            Act::CutOffWorkers => rng.u64(1_500..3_500),
            Act::HalfMove => rng.u64(200..2_500),
            _ if act.replaces() => rng.u64(..1_500),
            _ => rng.u64(50..700),
        };
        let pause = if act.replaces() || act.moves() { 300..900 } else { 20..400 };
        Some(Step { act, whom: rng.usize(..workers), lasts, pause: rng.u64(pause), seed: rng.u64(..) })
    })
}

/// That a seed repeats its schedule.
pub(crate) fn assert_repeats(seed: u64) {
    let steps = |seed| schedule(seed, Class::Lossy, 3).take(100).collect::<Vec<_>>();
    assert_eq!(steps(seed), steps(seed), "a seed repeats its schedule");
    assert_ne!(steps(seed), steps(seed ^ 1), "another seed has another schedule");
}
