//! What the two sides of a read-write lock have in common.

use crate::base::key::{Key, Side};
use crate::base::lives::Life;
use crate::base::script::Count::Exactly;
use crate::base::script::{Script, scripts};
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::Moment;
use crate::client::Space;
use crate::lease::tenure::Tenure;
use crate::lock::keys::Keys;
use crate::lock::primitive::Primitive;
use crate::lock::waiting::queue::Manner;
use crate::store::Store;
use crate::store::node::{Answer, Arg, Failure, Limits, Request, Verb};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

scripts! {
    /// Reply: that of [`Keys::freed`].
    FORCE_UNLOCK_SIDE = "sides/force_unlock.lua", Exactly(1), Exactly(4);
    /// Reply: ms, or -2.
    TIME_TO_LIVE_SIDE = "sides/time_to_live.lua", Exactly(1), Exactly(1);
}

/// The arguments of a script here, with room for the most.
pub(super) type Args<'a> = ArrayVec<Arg<'a>, 13>;

/// The store of both sides.
pub(super) struct Sides {
    pub(super) keys: Keys,
    /// The ids under which the map of threads keeps the holds of writers and of readers.
    pub(super) grounds: [Uuid; 2],
    /// How long the server keeps that a call waits, ms: twice the longest time between the call's looks.
    pub(super) waits: u64,
    /// The client that listens to its ear; `None` if it is to listen to nothing but the channels of locks.
    client: Option<Uuid>,
}

/// Lets a script take a time-out that it does not see for gone. Left out where that may be at another node.
pub(super) const TRUSTS: Arg<'static> = Arg::Beside(["1", "", ""]);

impl Sides {
    pub(super) fn new(store: Arc<dyn Store>, space: &Space) -> Self {
        let waits = u64::try_from(space.config.poll_cap.as_millis()).unwrap_or(u64::MAX).clamp(1, DAY);
        let grounds = [false, true].map(|shared| space.ground(shared));
        let client = space.config.hand_off.queues.then_some(space.id);
        Self { keys: Keys::new(store, &space.config), grounds, waits: 2 * waits, client }
    }

    /// Sends the acquire of a side, with the keys of advice beside the lock.
    pub(super) fn ask(
        &self,
        by: &'static Script,
        keys: &[&str],
        own: [Arg<'_>; 3],
        key: &Key,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let waits = Arg::Number(u64::from(!matches!(manner, Manner::Try)));
        let (marks, turn) = (Arg::Beside(key.writers_parts()), Arg::Beside(key.readers_parts()));
        let advice = [marks, turn, self.ears(key), self.longest(), waits];
        let args: Args<'_> = std::iter::once(Arg::Deadline).chain(own).chain(advice).collect();
        self.keys.acquire(by, keys, &args, key, manner, limits)
    }

    /// What the names of clients' ears begin with. While a writer waits, its ear tells that its process lives.
    pub(super) fn ears<'a>(&self, key: &'a Key) -> Arg<'a> {
        let ears = self.client.and_then(|_| self.keys.ears(key));
        ears.map_or(Arg::Text(""), Arg::Parts)
    }

    /// How long a waiting writer counts at most, ms.
    pub(super) fn longest(&self) -> Arg<'static> {
        Arg::Number(self.waits)
    }

    pub(super) fn listen_as_alive(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        let ear = self.client.and_then(|client| self.keys.listen_on_ear(key, client, semaphore));
        let all = self.keys.listen(key, semaphore)?;
        Some(Box::new(Alive { all, _ear: ear }))
    }

    /// Sends the release of one hold, whose lock is the first key.
    pub(super) fn release(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        answer_by: Moment,
    ) -> Result<Answer, Failure> {
        let answer = self.keys.attempt(Request::of(script, keys, args), Limits::any_time(answer_by))?;
        answer.one_each(keys.len())?.swap_remove(0)
    }

    /// Books the answers of one script for several tenures that are over. If no node has all keys of one, that is freed `alone`.
    pub(super) fn swept(
        &self,
        tenures: &[Arc<Tenure>],
        answers: impl IntoIterator<Item = Result<Answer, Failure>>,
        alone: impl Fn(&Arc<Tenure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let swept = tenures.iter().zip(answers).map(|(tenure, answer)| match answer {
            Err(failure) if failure.is_apart() => alone(tenure),
            answer => {
                let answer = self.keys.answered(tenure, answer)?;
                let freed = self.keys.freed(tenure.key(), &answer, answer.reply.number()?);
                self.keys.found(tenure, freed, &answer);
                Ok(())
            }
        });
        // To the end: those that a lock was freed for may have to be told by a command of its own.
        swept.fold(Ok(()), Result::and)
    }

    pub(super) fn force_unlock(&self, side: Side, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let (channel, prefix) = (Arg::Parts(key.channel_parts()), Arg::Parts(key.timeouts_parts()));
        let args = [Arg::Text(name_of(side)), channel, prefix, TRUSTS];
        let keys = [key.full()];
        let request = Request::of(&FORCE_UNLOCK_SIDE, &keys, &args);
        let answer = self.keys.attempt(request, Limits::any_time(answer_by))?;
        Ok((self.keys.freed(key, &answer, answer.reply.number()?).is_done(), answer.life))
    }

    pub(super) fn time_to_live(
        &self,
        side: Side,
        key: &Key,
        answer_by: Moment,
    ) -> Result<Option<Option<Duration>>, Failure> {
        let by = Verb::Script(&TIME_TO_LIVE_SIDE);
        match self.keys.look(by, key.full(), &[Arg::Text(name_of(side))], answer_by)?.number()? {
            -2 => Ok(None),
            left => Ok(Some(u64::try_from(left).ok().map(Duration::from_millis))),
        }
    }
}

/// All that a waiting writer listens to.
struct Alive {
    all: Box<dyn Listening>,
    _ear: Option<Box<dyn Listening>>,
}

impl Listening for Alive {
    fn is_confirmed(&self) -> bool {
        self.all.is_confirmed()
    }
}

/// How long a free lock is left to waiting calls before others may have it, ms.
pub(super) const TURN: u64 = 10;

const DAY: u64 = 86_400_000;

fn name_of(side: Side) -> &'static str {
    if side == Side::Write { "write" } else { "read" }
}
