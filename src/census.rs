//! The census: each client can be asked which of its threads hold locks, and which wait. While nobody asks, it costs each client
//! that has waited one subscription.
//!
//! docs/protocol.md, 21, has the channels and the form of a message. This module has what is told and what follows from it; a client asks
//! and answers in `client::census`.

mod account;
mod circle;

use crate::base::process::Process;
use std::fmt;
use std::time::SystemTime;

pub(crate) use account::LONGEST;
pub use account::{Access, Account, Claim};
pub(crate) use circle::circles;

/// Threads that wait for each other in a circle: none of them goes on before the wait of one of them ends in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// Two or more. Each waits for the lock that the next one holds, and the last for that of the first. The first began to wait last.
    pub members: Vec<Member>,
}

/// A thread in a circle of waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its process, with the client by which it waits.
    pub process: Process,
    /// Its number, as its process counts those that use locks.
    pub thread: u64,
    /// Its name, if it has one.
    pub thread_name: Option<String>,
    /// The lock that it holds and the member before it waits for, without the key prefix.
    pub holds: String,
    /// The lock that it waits for, without the key prefix.
    pub waits_for: String,
    /// Since when it waits, by the clock of its machine.
    pub since: SystemTime,
}

impl Deadlock {
    /// The member that began to wait last. With [`ClientBuilder::fail_deadlocks`](crate::ClientBuilder::fail_deadlocks) its call ends.
    #[must_use]
    pub fn last(&self) -> &Member {
        &self.members[0]
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, member) in self.members.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(f, "{between}{member}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, thread, thread_name, holds, waits_for, since } = self;
        write!(f, "{process}, thread {thread}")?;
        // A name with line breaks could forge lines of a log.
        thread_name.iter().try_for_each(|name| write!(f, " ({})", name.escape_debug()))?;
        let span = SystemTime::now().duration_since(*since).unwrap_or_default();
        write!(f, ", holds {holds:?} and waits for {waits_for:?} since {} s", span.as_secs())
    }
}
