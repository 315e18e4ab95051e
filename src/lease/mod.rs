//! The belief that a lock is held, and what keeps it true.

pub(crate) mod hold;
pub(crate) mod nodes;
pub(crate) mod recent_releases;
pub(crate) mod sweeper;
pub(crate) mod tenure;
mod timer;
pub(crate) mod watchdog;
