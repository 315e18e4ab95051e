//! Several locks taken or released by one command.

use super::{ACQUIRE_GROUP, Keys, RELEASE_GROUP};
use crate::base::time::{Lease, Moment};
use crate::lease::tenure::Tenure;
use crate::lock::primitive::{GroupPrimitive, TakeAll};
use crate::store::node::{Answer, Arg, Failure, Limits, Reply};
use std::sync::Arc;

impl GroupPrimitive for Keys {
    fn take_all(&self, tenures: &[Arc<Tenure>], lease: Lease, limits: Limits<'_>) -> Result<TakeAll, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let owners = tenures.iter().map(|tenure| Arg::Text(tenure.owner()));
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(owners).collect();
        let takes = |reply: &Reply| *reply == Reply::Number(0);
        let answer = match self.ask_for(&ACQUIRE_GROUP, &keys, &args, limits, takes) {
            // Their slot is on its way, which may last: each is found alone.
            Err(failure) if failure.is_half_here() => return Ok(TakeAll::Apart),
            answer => answer?,
        };
        match usize::try_from(answer.reply.number()?) {
            Ok(0) => {
                tenures.iter().for_each(|tenure| tenure.note_replicas(answer.confirmed));
                Ok(TakeAll::Acquired(answer.sent))
            }
            Ok(taken) if taken <= tenures.len() => Ok(TakeAll::Busy(taken - 1)),
            _ => Err(Failure::not_understood()),
        }
    }

    fn release_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<Vec<bool>, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let args =
            tenures.iter().flat_map(|tenure| [Arg::Text(tenure.owner()), Arg::Parts(tenure.key().channel_parts())]);
        let args: Vec<_> = args.collect();
        let answers = self.free_each(&RELEASE_GROUP, &keys, (0, &args), true, answer_by)?;
        let released = tenures.iter().zip(answers);
        let freed = |(tenure, answer): (&Arc<Tenure>, Result<Answer, Failure>)| {
            let answer = answer?;
            let freed = self.freed(tenure.key(), &answer, answer.reply.number()?);
            self.note_audience(tenure, freed);
            Ok(freed.is_done())
        };
        released.map(freed).collect()
    }
}
