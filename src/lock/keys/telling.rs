//! Who is told of a release, and what is concluded from who was.

use super::answers::Freed;
use super::{Keys, RELEASE_IN_TURN};
use crate::base::key::Key;
use crate::base::say::say;
use crate::base::signal::{Deaf, Listening, Semaphore};
use crate::base::time::Moment;
use crate::lease::tenure::{Audience, Tenure};
use crate::lock::primitive::heard;
use crate::lock::waiting::queue::Queue;
use crate::store::node::{Answer, Arg, Failure, Reply};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use uuid::Uuid;

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

    /// Whether a script of a lock can tell the dead from those who listen.
    pub(super) fn counts_listeners(&self, key: &Key) -> bool {
        self.store.counts_listeners() && (!self.in_cluster || key.is_in_one_slot())
    }

    /// What the ears of clients begin with, where a script of this lock can count who listens to them.
    pub(in crate::lock) fn ears<'a>(&self, key: &'a Key) -> Option<[&'a str; 3]> {
        let of_all = ["redlatch_ear", "", ""];
        self.counts_listeners(key).then(|| if self.store.is_sharded() { key.ears_parts() } else { of_all })
    }

    /// Listens to the ear of this client, so that others see that its process lives. It hears nothing there.
    ///
    /// To be called before it listens to the lock's channel, which is confirmed after the ear then. Where it is confirmed already, the
    /// ear's own confirmation wakes the caller: its next look leaves word that there is an ear.
    pub(in crate::lock) fn listen_on_ear(
        &self,
        key: &Key,
        client: Uuid,
        semaphore: &Arc<Semaphore>,
    ) -> Option<Box<dyn Listening>> {
        let ear = format!("{}:{}", self.ears(key)?.concat(), client.hyphenated());
        let wakes = self.store.hears(&key.channel()).then(|| Arc::clone(semaphore));
        heard(self.store.listen(&ear, Arc::new(Deaf(wakes))))
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
        tokens: Option<(&str, u64)>,
        answer_by: Moment,
    ) -> Result<bool, Failure> {
        let (key, (counter, ttl)) = (tenure.key(), tokens.unwrap_or(("", 0)));
        let tokens = [Arg::Text(counter), Arg::Number(ttl)];
        let args = ArrayVec::<_, 10>::from_iter(args.into_iter().chain(queue.releasing(key)).chain(tokens));
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
