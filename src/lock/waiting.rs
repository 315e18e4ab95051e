//! How calls wait for a lock that is taken, one behind the other. This module knows no kind of lock and no engine: `acquire.rs` uses it.
//!
//! | file | what it has |
//! | --- | --- |
//! | `wait.rs` | one wait as a machine: what happened goes in, what to do next comes out |
//! | `bid.rs` | the loop that does what the machine says |
//! | `line.rs` | the threads of this process, one behind the other: the first of them contends for all |
//! | `queue.rs` and `queue/` | the processes, one behind the other, at the server; how a client is told of its turn |
//! | `company.rs` | which locks others want, as far as this client has seen |
//! | `policy.rs` | how often, how long, how many |

pub(crate) mod bid;
mod company;
pub(crate) mod line;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod wait;

use crate::base::time::Moment;
use std::time::Duration;

/// What an attempt to take the lock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The tenure has the lock. The command that took it was sent at this moment.
    Acquired(Moment),
    /// Someone else has the lock, for this long at most by the server's TTL. `None`: the lock has no TTL.
    Busy(Option<Duration>),
    /// The lock is free, but reserved for others for this long.
    Reserved(Duration),
}

impl Take {
    /// Taken for `left` ms; negative: without a TTL.
    pub(super) fn busy(left: i64) -> Self {
        Self::Busy(u64::try_from(left).ok().map(Duration::from_millis))
    }
}
