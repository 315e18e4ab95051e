//! Who is told of a release, and what is concluded from who was.

use super::answers::Freed;
use super::{Keys, RELEASE_IN_TURN};
use crate::base::key::Key;
use crate::base::say::say;
use crate::base::time::Moment;
use crate::lease::tenure::{Audience, Tenure};
use crate::lock::queue::Queue;
use crate::store::node::{Answer, Arg, Failure, Reply};
use arrayvec::ArrayVec;
use std::sync::atomic::Ordering::Relaxed;

impl Keys {
    /// What a script that frees says. That waiters were not told is logged once: they find out by polling.
    pub(in crate::lock) fn freed(&self, key: &Key, answer: &Answer, number: i64) -> Freed {
        let freed = Freed::of(number);
        if freed.is_done() && self.is_told_elsewhere(key, answer, freed) {
            self.tell_where_they_listen(key);
            return Freed::Untold;
        }
        if freed == Freed::Untold && !self.unheard.swap(true, Relaxed) {
            let channel = key.channel();
            say!(warn, "the server refuses to publish on {channel:?}, so waiters poll: grant this user the channel");
        }
        freed
    }

    /// One of those who were told may be this client itself. Of whom a store does not count there may be any number.
    fn were_others_told(&self, key: &Key, told: i64) -> bool {
        told > 1 || !self.store.counts_listeners() || (told == 1 && !self.store.hears(&key.channel()))
    }

    /// The last level of a lock that others may wait for.
    pub(super) fn release_in_turn(
        &self,
        queue: &Queue,
        tenure: &Tenure,
        args: [Arg<'_>; 3],
        answer_by: Moment,
    ) -> Result<bool, Failure> {
        let key = tenure.key();
        let args = ArrayVec::<_, 10>::from_iter(args.into_iter().chain(queue.releasing(tenure)));
        let answer = self.call(&RELEASE_IN_TURN, key, &args, answer_by)?;
        queue.note_trip(&answer);
        let Reply::Array(said) = &answer.reply else {
            return Ok(self.freed(key, &answer, answer.reply.number()?).is_done());
        };
        let told = queue.told(key, said)?;
        let freed = self.freed(key, &answer, told.all);
        match told.in_order {
            true => tenure.note_audience(Audience::Queue),
            false => self.note_audience(tenure, freed),
        }
        if let (false, Freed::Told(all), Some(Audience::Others)) = (told.in_order, freed, tenure.audience()) {
            queue.note_bystanders(key, all);
        }
        Ok(freed.is_done())
    }

    /// Who was told of a final release: it may be somebody who waits.
    pub(in crate::lock) fn note_audience(&self, tenure: &Tenure, freed: Freed) {
        if let Freed::Told(told) = freed {
            let others = self.were_others_told(tenure.key(), told);
            tenure.note_audience(if others { Audience::Others } else { Audience::Nobody });
            self.queue.iter().for_each(|queue| match others {
                true => queue.note_told(tenure.key(), told),
                false => queue.note_alone(tenure.key()),
            });
        }
    }
}
