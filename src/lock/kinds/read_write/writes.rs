//! The side of the writer.

use super::sides::{Args, Sides, TRUSTS, TURN};
use crate::base::key::{Key, Side};
use crate::base::lives::Life;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::scripts;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment};
use crate::lease::tenure::Tenure;
use crate::lock::keys::QUARANTINE;
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::registry::registry;
use crate::store::node::{Arg, Failure, Lane, Limits, Request};
use std::sync::Arc;
use std::time::Duration;

scripts! {
    /// Reply: nil (acquired) or for how many ms the lock is not to be had.
    ACQUIRE_WRITE = "writes/acquire.lua", Exactly(1), Exactly(9), strict: QUARANTINE;
    /// Reply: that of [`Keys::freed`](crate::lock::keys::Keys::freed) for each lock.
    RELEASE_WRITE = "writes/release.lua", AtLeast(1), AtLeast(10);
}

pub(super) struct Writes {
    sides: Sides,
}

impl Writes {
    pub(super) fn new(sides: Sides) -> Self {
        Self { sides }
    }

    /// The arguments of a release of these holds.
    fn releasing<'a>(&'a self, tenures: &'a [Arc<Tenure>], left: usize) -> impl Iterator<Item = Arg<'a>> {
        let own = move |tenure: &'a Arc<Tenure>| {
            let key = tenure.key();
            let (marks, turn) = (Arg::Beside(key.writers_parts()), Arg::Beside(key.readers_parts()));
            let (field, channel) = (Arg::Parts(tenure.field()), Arg::Parts(key.channel_parts()));
            [field, channel, Arg::Parts(key.timeouts_parts()), marks, turn, self.sides.ears(key)]
        };
        let of_all = [TRUSTS, Arg::Number(TURN), Arg::Number(left as u64), self.sides.longest()];
        of_all.into_iter().chain(tenures.iter().flat_map(own))
    }
}

impl Primitive for Writes {
    /// While a thread of this process wants to write, no reader of the process joins a tenure that is shared.
    ///
    /// The mark of a call that waits lasts longer than a short lease, and keeps readers out as long. So a release has to take it
    /// away: it is sent again until it is answered, and once more if a master that did not hear of it takes the place of the one
    /// that did.
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        let (key, [_, readers]) = (tenure.key(), self.sides.grounds);
        if !matches!(manner, Manner::Try) {
            tenure.may_last(limits.answer_by.plus(Duration::from_millis(self.sides.waits)));
        }
        registry().shut(readers, key.full());
        let own = [Arg::Number(lease.millis()), Arg::Parts(tenure.field()), Arg::Number(1)];
        let answer = self.sides.ask(&ACQUIRE_WRITE, &[key.full()], own, key, manner, limits)?;
        registry().shut(readers, key.full());
        self.sides.keys.took(tenure, manner, &answer)
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        self.sides.keys.reenter(tenure, count, lease, limits)
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        self.sides.keys.renew(lane, tenures, lease, answer_by)
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        let args = Args::from_iter(self.releasing(std::slice::from_ref(tenure), left));
        let answer = self.sides.release(&RELEASE_WRITE, &[tenure.key().full()], &args, answer_by);
        self.sides.keys.released(tenure, left, answer)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let args: Vec<_> = self.releasing(tenures, 0).collect();
        let (request, limits) = (Request::of(&RELEASE_WRITE, &keys, &args), Limits::any_time(answer_by));
        let answers = self.sides.keys.attempt_all(Lane::Releases, request, 4, limits);
        let answers = answers.unwrap_or_else(|failure| keys.iter().map(|_| Err(failure.clone())).collect());
        self.sides.swept(tenures, answers, |tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        self.sides.force_unlock(Side::Write, key, answer_by)
    }

    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.sides.time_to_live(Side::Write, key, answer_by)
    }

    /// The script of groups knows no sides.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    /// Listens also on the ear of its client, which tells that its process lives.
    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.sides.listen_as_alive(key, semaphore)
    }
}
