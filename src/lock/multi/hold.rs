//! [`GroupHold`]: the holds of a group's members.

use crate::base::error::Result;
use crate::lease::hold::{Hold, HoldState, LostReceiver, listener};
use std::sync::Arc;
use std::time::Duration;

/// One thread's possession of all members of a [`MultiLock`](crate::MultiLock): live, cheap to clone, and safe to ask
/// from any thread. Every question is answered without a round trip; [`extend`](Self::extend) makes some.
#[derive(Debug, Clone)]
pub struct GroupHold {
    holds: Arc<[Hold]>,
    /// The places of the holds in `holds`, in the order in which groups are taken.
    taken: Arc<[usize]>,
}

impl GroupHold {
    /// `taken`, in the order of taking: each member's place among those that the caller gave, and its hold.
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

    /// How long all are still surely valid if nobody renews them; zero if one is not valid.
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

    /// Prolongs the hold of every member so that it lasts at least `lease` from now: one round trip each, in the order in
    /// which the group was taken. Never shortens one.
    ///
    /// If a member is lost or released already, nothing is prolonged. If one fails on the way, the call ends there: the
    /// members before it are prolonged, the others are as they were, and no hold is given up. So the call may be repeated.
    ///
    /// ```
    /// use redlatch::{LocalRedLock, MultiLock};
    /// use std::time::Duration;
    ///
    /// let locks = LocalRedLock::new();
    /// let both = MultiLock::of([(&locks, "order:42"), (&locks, "stock:7")]);
    /// let guard = both.request().lease(Duration::from_secs(5)).guard()?.expect("both are free");
    /// guard.extend(Duration::from_secs(60))?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Hold::extend`] of the member that failed, whose resource it names.
    pub fn extend(&self, lease: Duration) -> Result<()> {
        let is_over = |hold: &&Hold| matches!(hold.state(), HoldState::Lost | HoldState::Released);
        // A hold that is over is asked first, and fails: the others must not be prolonged for nothing.
        let over = self.in_taken_order().find(is_over);
        over.into_iter().chain(self.in_taken_order()).try_for_each(|hold| hold.extend(lease))
    }

    /// A channel that gets a message as soon as any member is lost, and is disconnected once all are released or lost.
    /// Other members that are lost before that message is taken are not reported.
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
}
