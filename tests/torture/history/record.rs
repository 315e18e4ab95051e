//! The event log: fixed-size records, one file for each thread, written at once, so that a killed process leaves
//! all that it did.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

/// Nanoseconds on the clock that the library goes by, the same for every process of a machine.
pub(crate) fn now() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) const MS: u64 = 1_000_000;

/// How an owner field is named in a record.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// An enum that is one byte in a file.
macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub(crate) enum $name { #[default] $($(#[$item_doc])* $item,)* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$item),*];

            fn of(byte: u8) -> Self {
                Self::ALL[usize::from(byte)]
            }
        }
    };
}

bytes! {
    /// What a record tells of.
    Kind {
        /// A call begins. `value`: what it may take, in ms; 0: as long as the lock is not free. `owner`: what its commands write.
        Call,
        /// It returned. `depth`: the levels after it; `value`: the token of the hold, zero if it has none.
        Done,
        /// `is_valid` was asked. When it said yes, `at` was read before; when it said no, after.
        Check,
        /// `is_valid` after the outermost release.
        Over,
        /// The counter is read; `value` is what it held.
        Read,
        /// The counter is about to be written, after a check that said yes. `value`: what it will hold.
        Write,
        /// It was written.
        Wrote,
        /// The whole process stood still for `value` ns until now.
        Stall,
        /// A reader looked at the counter from `at` until `deadline`; its hold was valid before and after. `value`: what it saw
        /// first; `valid`: and in the end. `owner`: of the hold.
        Look,
        /// The thread that had the lock ended without an unlock: nobody renews it, and its levels are gone.
        Ended,
        /// The thread asks for `value` permits of semaphore `name`.
        AsksForPermits,
        /// It has them, until `deadline` if they have a lease.
        HasPermits,
        /// It looked at them: whether they are `valid`, and until when.
        SeesPermits,
        /// It is about to give them back.
        GivesBack,
        /// It has none: they were not acquired, or are given back.
        HasNoPermits,
    }
}

bytes! {
    /// Which call it is.
    Op { Lock, Try, TryFor, Leased, Cancellable, Zero, Unlock, Drop, Leave, Again, Extend, Verify, Force, Commands,
        /// Who reads asks to write.
        Upgrade,
        /// One member of a group that is taken as one.
        Group,
        /// The same for a lease that nobody renews.
        GroupLeased,
    }
}

bytes! {
    /// What a call gave.
    Outcome {
        None,
        Yes,
        No,
        Config,
        NotHeld,
        Lost,
        Unavailable,
        Unknown,
        Refused,
        RefusedOom,
        Cancelled,
        Closed,
    }
}

impl Op {
    pub(crate) fn acquires(self) -> bool {
        let asked_for = matches!(self, Self::Try | Self::Zero | Self::Upgrade);
        asked_for || self.waits() || self.is_of_group()
    }

    /// A group waits for one member after the other, and is beside the others while they are free.
    pub(crate) fn is_of_group(self) -> bool {
        matches!(self, Self::Group | Self::GroupLeased)
    }

    /// An acquire of a lease that nobody renews.
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::GroupLeased)
    }

    /// It waits for a lock that is not free.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Lock | Self::TryFor | Self::Leased | Self::Cancellable)
    }

    /// `Again` is an unlock of what is not held.
    pub(crate) fn releases(self) -> bool {
        matches!(self, Self::Unlock | Self::Drop | Self::Leave)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) at: u64,
    /// Until when the hold is surely valid, as far as was known then.
    pub(crate) deadline: u64,
    pub(crate) value: u64,
    pub(crate) owner: u64,
    pub(crate) kind: Kind,
    pub(crate) op: Op,
    pub(crate) outcome: Outcome,
    pub(crate) name: u8,
    /// How many levels of the name the thread has.
    pub(crate) depth: u8,
    pub(crate) valid: bool,
}

const LENGTH: usize = 40;

impl Record {
    fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        for (at, word) in [self.at, self.deadline, self.value, self.owner].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let tail =
            [self.kind as u8, self.op as u8, self.outcome as u8, self.name, self.depth, u8::from(self.valid), 0, 0];
        bytes[32..].copy_from_slice(&tail);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        Self {
            at: word(0),
            deadline: word(1),
            value: word(2),
            owner: word(3),
            kind: Kind::of(bytes[32]),
            op: Op::of(bytes[33]),
            outcome: Outcome::of(bytes[34]),
            name: bytes[35],
            depth: bytes[36],
            valid: bytes[37] != 0,
        }
    }
}

const SLOW: u64 = 5 * MS;

/// The log of one thread.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn new(path: &Path) -> Self {
        Self(File::create(path).expect("a log file"))
    }

    /// A disk that takes its time is a stall too: it is not the library's.
    pub(crate) fn write(&mut self, record: Record) {
        let before = now();
        self.0.write_all(&record.to_bytes()).expect("room for the log");
        let at = now();
        let value = at - before;
        if value > SLOW {
            let stall = Record { at, kind: Kind::Stall, value, ..Record::default() };
            self.0.write_all(&stall.to_bytes()).expect("room for the log");
        }
    }
}

/// The process number of the orchestrator: when it stands still, so does everything.
pub(crate) const MACHINE: usize = usize::MAX;

/// That of the thread which waits as a JVM does.
pub(crate) const FOREIGNER: usize = usize::MAX - 1;

/// All that a thread did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    /// Threads of one process have the same number.
    pub(crate) process: usize,
    /// Which thread of the process it is.
    pub(crate) hand: usize,
    /// It was ended by force, perhaps in the middle of something.
    pub(crate) killed: bool,
    /// Nothing was granted to it then that its records do not tell of.
    pub(crate) empty_handed: bool,
    /// Until when it can have done anything: a call that has not returned was under way until then.
    pub(crate) until: u64,
    /// Its process has a place in the queue of each lock that it waits for.
    pub(crate) queues: bool,
    /// Its process uses fair locks.
    pub(crate) fair: bool,
    pub(crate) records: Vec<Record>,
}

/// A process that is killed may leave half a record at the end.
pub(crate) fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).expect("a log file");
    bytes.chunks_exact(LENGTH).map(Record::from_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        for (kind, op, outcome) in [(Kind::Call, Op::Lock, Outcome::None), (Kind::Stall, Op::Force, Outcome::Closed)] {
            let record = Record {
                at: u64::MAX - 1,
                deadline: 2,
                value: 3,
                owner: 1 << 60,
                kind,
                op,
                outcome,
                name: 9,
                depth: 3,
                valid: true,
            };
            assert_eq!(Record::from_bytes(&record.to_bytes()), record);
        }
    }
}
