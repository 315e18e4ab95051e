//! Verbs of a [`RedLock`] that are answered by asking another: a pointer asks its lock, and a kind asks its engine.

use super::engine::Engine;
use super::{RedLock, Terms, acquire};
use crate::base::error::Result;
use crate::lease::hold::Hold;
use std::sync::Arc;

/// The body of an `impl RedLock` whose verbs are all answered by `$lock`: `answered_by!(self => self.engine);`. A kind
/// that adds to an answer writes its verbs out, as [`LocalRedLock`](super::LocalRedLock) does.
macro_rules! answered_by {
    ($self:ident => $lock:expr) => {
        fn acquire(
            &$self,
            resource: &str,
            terms: &$crate::lock::Terms<'_>,
        ) -> $crate::base::error::Result<Option<$crate::lease::hold::Hold>> {
            $lock.acquire(resource, terms)
        }

        fn release(&$self, hold: &$crate::lease::hold::Hold) -> $crate::base::error::Result<()> {
            $lock.release(hold)
        }

        fn verify(&$self, hold: &$crate::lease::hold::Hold) -> $crate::base::error::Result<bool> {
            $lock.verify(hold)
        }

        fn hold_of(&$self, resource: &str, thread: std::thread::ThreadId) -> Option<$crate::lease::hold::Hold> {
            $lock.hold_of(resource, thread)
        }

        fn force_unlock(&$self, resource: &str) -> $crate::base::error::Result<bool> {
            $lock.force_unlock(resource)
        }

        fn is_locked(&$self, resource: &str) -> $crate::base::error::Result<bool> {
            $lock.is_locked(resource)
        }

        fn remaining_time_to_live(&$self, resource: &str) -> $crate::base::error::Result<Option<std::time::Duration>> {
            $lock.remaining_time_to_live(resource)
        }

        fn unlock(&$self, resource: &str) -> $crate::base::error::Result<()> {
            $lock.unlock(resource)
        }

        #[allow(private_interfaces)]
        fn engine(&$self) -> Option<&$crate::lock::engine::Engine> {
            $lock.engine()
        }
    };
}

pub(super) use answered_by;

/// Two verbs that [`answered_by`] asks for and the engine's own files do not have.
impl Engine {
    pub(super) fn acquire(&self, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
        acquire::acquire(self, resource, terms)
    }

    pub(super) fn engine(&self) -> Option<&Self> {
        Some(self)
    }
}

impl<L: RedLock + ?Sized> RedLock for &L {
    answered_by!(self => **self);
}

impl<L: RedLock + ?Sized> RedLock for Box<L> {
    answered_by!(self => **self);
}

impl<L: RedLock + ?Sized> RedLock for Arc<L> {
    answered_by!(self => **self);
}
