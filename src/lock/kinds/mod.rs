//! The kinds of locks, a file each. They do not know each other.

pub(super) mod fenced;
pub(super) mod local;
pub(super) mod quorum;
pub(super) mod reentrant;
