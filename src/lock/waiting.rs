//! How calls wait for what is taken, one behind the other. It knows no kind of lock and no engine: `acquire.rs` has a lock waited for.
//!
//! | file | what it has |
//! | --- | --- |
//! | `wait.rs` | one wait as a machine: what happened goes in, what to do next comes out |
//! | `bid.rs` | the loop that does what the machine says |
//! | `line.rs` | the threads of this process, one behind the other: the first of them contends for all |
//! | `queue.rs` | the processes, one behind the other, at the server |
//! | `company.rs` | which locks others want, as far as this client has seen |
//! | `policy.rs` | how often, how long, how many |

pub(crate) mod bid;
mod company;
pub(crate) mod line;
mod policy;
pub(crate) mod queue;
pub(crate) mod wait;

use crate::base::time::Moment;
use std::time::Duration;

/// What an attempt to take the lock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The lock is the tenure's, by the command that was sent then.
    Acquired(Moment),
    /// Someone else's, for so long by what the store knows; `None`: without an end.
    Busy(Option<Duration>),
    /// Free, but reserved for others for so long; said to a call that has no place in the queue.
    Reserved(Duration),
}

impl Take {
    /// Taken for so many ms; negative: without an end.
    pub(super) fn busy(left: i64) -> Self {
        Self::Busy(u64::try_from(left).ok().map(Duration::from_millis))
    }
}
