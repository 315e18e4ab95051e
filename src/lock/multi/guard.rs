//! Guards and requests of groups.

use super::{GroupHold, MultiLock};
use crate::base::error::Result;
use crate::base::signal::CancelToken;
use crate::base::time::Clock;
use crate::lock::Terms;
use crate::lock::guard::{OfThisThread, after_work, release_in_drop};
use crate::lock::patience::setters_of_terms;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

/// Holds one level of every member of a [`MultiLock`], and releases them when dropped, also in a panic. It derefs to
/// its [`GroupHold`].
///
/// As with a [`LockGuard`](crate::LockGuard), a drop makes one attempt for each member, all of them within one response
/// time-out, and logs failures. The guard stays on its thread.
#[must_use = "a guard that is not kept releases its locks at once: write `let _guard = ..`, not `let _ = ..`"]
pub struct GroupGuard<'g> {
    group: &'g MultiLock<'g>,
    hold: GroupHold,
    armed: bool,
    thread: OfThisThread,
}

impl GroupGuard<'_> {
    /// Releases the level of every member now.
    ///
    /// # Errors
    /// As [`MultiLock::release`]. The guard is gone in any case.
    pub fn unlock(mut self) -> Result<()> {
        self.armed = false;
        self.group.release(&self.hold)
    }

    /// The hold that the deref gives; a clone of it outlives the guard.
    #[must_use]
    pub fn hold(&self) -> &GroupHold {
        &self.hold
    }
}

impl Deref for GroupGuard<'_> {
    type Target = GroupHold;

    fn deref(&self) -> &GroupHold {
        &self.hold
    }
}

impl fmt::Debug for GroupGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupGuard").field(&self.hold).finish()
    }
}

impl Drop for GroupGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            let limit = Clock::Boot.now().plus(self.group.one_answer());
            release_in_drop(self.hold.holds(), || self.group.release_by(&self.hold, limit));
        }
    }
}

/// A group to be acquired on terms that are spelled out; see [`MultiLock::request`].
#[derive(Debug)]
#[must_use = "a request does nothing until `.guard()?` or `.execute(work)?`"]
pub struct GroupRequest<'g, 'r> {
    group: &'g MultiLock<'g>,
    terms: Terms<'r>,
}

impl<'g, 'r> GroupRequest<'g, 'r> {
    pub(super) fn new(group: &'g MultiLock<'g>) -> Self {
        Self { group, terms: Terms::new() }
    }

    setters_of_terms!('r, self.terms);

    /// Acquires and gives a guard; `None` when the wait ended without the locks.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    #[must_use = "`None` means that the locks are not held: write `let Some(guard) = .. else {`"]
    pub fn guard(self) -> Result<Option<GroupGuard<'g>>> {
        let hold = self.group.acquire(&self.terms)?;
        Ok(hold.map(|hold| GroupGuard { group: self.group, hold, armed: true, thread: PhantomData }))
    }

    /// Acquires, runs the work, releases, also when the work panics; `None` when the wait ended without the locks.
    ///
    /// # Errors
    /// As [`MultiLock::execute_in_lock`].
    #[must_use = "`None` means that the work did not run: write `if let Some(value) = ..`"]
    pub fn execute<T>(self, work: impl FnOnce(&GroupGuard<'g>) -> T) -> Result<Option<T>> {
        let Some(guard) = self.guard()? else { return Ok(None) };
        let value = work(&guard);
        after_work(guard.unlock())?;
        Ok(Some(value))
    }
}
