//! [`GroupHold`]: the holds of a group's members.

use crate::lease::hold::{Hold, HoldState, LostReceiver, listener};
use std::sync::Arc;
use std::time::Duration;

/// One thread's possession of all members of a [`MultiLock`](crate::MultiLock): live, cheap to clone, and safe to ask
/// from any thread. Every question is answered without a round trip.
#[derive(Debug, Clone)]
pub struct GroupHold {
    holds: Arc<[Hold]>,
    /// Where the hold of each member is, in the order in which groups are taken.
    taken: Arc<[usize]>,
}

impl GroupHold {
    /// Of each member that was taken, in that order, its place among those that the caller gave, and its hold.
    pub(super) fn new(mut taken: Vec<(usize, Hold)>) -> Self {
        let places = taken.iter().map(|(given, _)| *given).collect();
        taken.sort_by_key(|(given, _)| *given);
        Self { holds: taken.into_iter().map(|(_, hold)| hold).collect(), taken: places }
    }

    /// The members' holds in the order in which groups are taken, which is the same however the caller orders the members.
    pub(super) fn in_taken_order(&self) -> impl Iterator<Item = &Hold> {
        self.taken.iter().map(|place| &self.holds[*place])
    }

    /// The members' holds, in the order in which the group was [given](crate::MultiLock::of) its members: the first hold is that
    /// of the first member. Groups take their members in another order.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, MultiLock};
    ///
    /// let locks = LocalRedLock::new();
    /// let both = MultiLock::of([(&locks, "stock:7"), (&locks, "order:42")]);
    /// let guard = both.guard()?;
    /// let [stock, order] = guard.holds() else { unreachable!("two members have two holds") };
    /// assert_eq!((stock.resource(), order.resource()), ("stock:7", "order:42"));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Whether every member is still surely held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.holds.iter().all(Hold::is_valid)
    }

    /// How long all are still surely valid if they are not renewed; zero when one is not valid.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.iter().map(Hold::remaining).min().unwrap_or(Duration::ZERO)
    }

    /// The worst state of a member: `Lost`, then `Released`, then `Suspect`, then `Held`.
    #[must_use]
    pub fn state(&self) -> HoldState {
        let badness = |state: &HoldState| match state {
            HoldState::Held => 0,
            HoldState::Suspect => 1,
            HoldState::Released => 2,
            HoldState::Lost => 3,
        };
        self.holds.iter().map(Hold::state).max_by_key(badness).unwrap_or(HoldState::Released)
    }

    /// A channel that gets a message as soon as any member is lost, and is disconnected once all are released or lost.
    /// Of others that are lost before that message was taken it says nothing.
    ///
    /// Each call makes a channel of its own. After a loss the message is already there.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, MultiLock, RedLock};
    ///
    /// let locks = LocalRedLock::new();
    /// let both = MultiLock::of([(&locks, "a"), (&locks, "b")]);
    /// let guard = both.guard()?;
    /// let lost = guard.lost();
    /// locks.force_unlock("b")?;
    /// assert_eq!(lost.recv().unwrap().resource(), "b");
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lost(&self) -> LostReceiver {
        let (listener, receiver) = listener();
        self.holds.iter().for_each(|hold| hold.tell(listener.clone()));
        receiver
    }

    /// Its locks as the log names them.
    pub(super) fn whereabouts(&self) -> String {
        let locks: Vec<_> = self.holds.iter().map(Hold::whereabouts).collect();
        locks.join(", ")
    }

    /// The next release makes one attempt only, because a `Drop` waits for it.
    pub(super) fn hurry(&self, hasty: bool) {
        self.holds.iter().for_each(|hold| hold.hurry(hasty));
    }
}
