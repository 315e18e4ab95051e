//! A lock whose slot is on its way to another node of a cluster (docs/protocol.md, 12).
//!
//! Where the slot was says so of each key that it does not have, or no more; the node it goes to takes a command for such a
//! key alone. A key beside the lock that was made there would be in the way of the one that has still to come, and the move
//! would end with an error: so only scripts are sent that touch no more than they name.

use super::{ACQUIRE, Freed, Keys, LEAVE, REENTER, RELEASE_IN_TURN, RENEW, prolongs, takes};
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::script::Script;
use crate::base::time::{Clock, Lease};
use crate::lease::tenure::Tenure;
use crate::store::node::{Answer, Arg, Failure, GRACE, Lane, Limits, Reply, Request, Verb};

/// Scripts that touch more keys than they name, besides those with a wrapper and those of read-write locks.
static BESIDE: [&Script; 2] = [&RELEASE_IN_TURN, &LEAVE];

/// Whether a script may be sent to where its slot is on its way. A wrapper touches keys that the call does not name.
pub(super) fn may_ask(script: &'static Script) -> bool {
    !script.is_wrapped() && !BESIDE.iter().any(|beside| std::ptr::eq(*beside, script))
}

impl Keys {
    /// The lock is not held where it was. A strict client
    /// grants nothing before the slot has arrived: what the other node grants now it could not say there, for a key beside the lock
    /// would keep the slot from moving on.
    pub(super) fn acquire_on_its_way(
        &self,
        tenure: &Tenure,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        if let Some(quiet) = self.quiet_on_its_way() {
            return Ok(quiet);
        }
        let args = [Arg::Deadline, Arg::Number(lease.millis()), Arg::Text(tenure.owner()), Arg::Number(1)];
        self.ask_for(&ACQUIRE.at_once.plain, &[tenure.key().full()], &args, limits, takes)
    }

    /// What a strict client takes for an answer there.
    pub(in crate::lock) fn quiet_on_its_way(&self) -> Option<Answer> {
        let (_, quarantine) = self.epoch.as_ref().filter(|_| !mutant::is(Mutant::GrantsOnItsWay))?;
        self.say_quiet("is moving a slot elsewhere", *quarantine);
        let reply = Reply::Number(i64::try_from(*quarantine).unwrap_or(i64::MAX));
        Some(Answer { reply, sent: Clock::Boot.now(), confirmed: None, on_its_way: true })
    }

    /// Strict mode, while the slot is on its way: nothing says which process serves until it has arrived, and until then
    /// nothing is granted there.
    pub(super) fn renew_on_its_way(
        &self,
        lane: Lane,
        tenure: &Tenure,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let (keys, args) =
            ([tenure.key().full()], [Arg::Deadline, Arg::Number(lease.millis()), Arg::Parts(tenure.field())]);
        let request = Request { grants: Some(prolongs), ..Request::new(Verb::Script(&RENEW.plain), &keys, &args) };
        let answer = self.store.attempt(lane, &request, limits)?;
        answer.one_each(1)?.pop().unwrap_or_else(|| Err(Failure::not_understood()))
    }

    /// The same with the depth.
    pub(super) fn reenter_on_its_way(
        &self,
        tenure: &Tenure,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let (owner, count) = (Arg::Parts(tenure.field()), Arg::Number(count as u64));
        let args = [Arg::Deadline, Arg::Number(lease.millis()), owner, count];
        self.ask_for(&REENTER.plain, &[tenure.key().full()], &args, limits, prolongs)
    }

    /// Whether a script told those who listen at one node, and they listen at another.
    pub(super) fn is_told_elsewhere(&self, key: &Key, answer: &Answer, freed: Freed) -> bool {
        let is_astray = || freed == Freed::Untold && self.in_cluster && !key.is_in_one_slot();
        let is_on_its_way = answer.on_its_way && !mutant::is(Mutant::UntoldOnItsWay);
        self.store.is_sharded() && (is_on_its_way || is_astray())
    }

    /// Who waits for a lock whose slot is on its way elsewhere listens where it was, as long as it is not gone from there; and who
    /// waits for one whose channel is in another slot, at that one's master. If this fails they find out by polling.
    pub(super) fn tell_where_they_listen(&self, key: &Key) {
        let (channel, answer_by) = (key.channel(), Clock::Boot.now().plus(GRACE));
        let (keys, args) = ([channel.as_str()], [Arg::Text("0")]);
        let _ = self.store.attempt(
            Lane::Releases,
            &Request::new(Verb::Command("SPUBLISH"), &keys, &args),
            Limits::any_time(answer_by),
        );
    }
}
