//! The kinds of locks, a file each. They do not know each other.

pub(super) mod fair;
pub(super) mod fenced;
pub(super) mod latch;
pub(super) mod leased;
pub(super) mod local;
pub(super) mod quorum;
pub(super) mod read_write;
pub(super) mod reentrant;
pub(super) mod semaphore;
