//! What the two sides of a read-write lock have in common.

use crate::base::key::{Key, Side};
use crate::base::script::Count::Exactly;
use crate::base::script::{Modes, Script, scripts};
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::Moment;
use crate::client::Space;
use crate::lease::tenure::Tenure;
use crate::lock::keys::{Keys, takes};
use crate::lock::primitive::Primitive;
use crate::lock::waiting::queue::Manner;
use crate::store::node::{Answer, Arg, Failure, Limits, Verb};
use crate::store::{Answers, Store};
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

/// As many arguments as a script here has at most.
pub(super) type Args<'a> = ArrayVec<Arg<'a>, 13>;

/// The store of both sides.
pub(super) struct Sides {
    pub(super) keys: Keys,
    /// Where the map of threads has the holds of writers and of readers.
    pub(super) grounds: [Uuid; 2],
    /// For how long it is kept that a call waits, ms: two of the longest times between its looks.
    pub(super) waits: u64,
    in_cluster: bool,
    /// Who listens to its ear, unless it is to listen to nothing but the channels of locks.
    client: Option<Uuid>,
}

impl Sides {
    pub(super) fn new(store: Arc<dyn Store>, space: &Space) -> Self {
        let waits = u64::try_from(space.config.poll_cap.as_millis()).unwrap_or(u64::MAX).clamp(1, DAY);
        let grounds = [false, true].map(|shared| space.ground(shared));
        let in_cluster = space.config.in_cluster;
        let client = space.config.hand_off.queues.then_some(space.id);
        Self { keys: Keys::new(store, &space.config), grounds, waits: 2 * waits, in_cluster, client }
    }

    /// Whether what belongs to a lock is in other slots.
    pub(super) fn is_apart(&self, key: &Key) -> bool {
        self.in_cluster && !key.is_in_one_slot()
    }

    /// Sends the acquire of a side. The advice beside the lock is left out where it could be in the way of a slot that moves.
    pub(super) fn ask(
        &self,
        by: &'static Modes,
        keys: &[&str],
        own: [Arg<'_>; 3],
        tenure: &Tenure,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let key = tenure.key();
        let advice = if self.is_apart(key) { NO_ADVICE } else { self.advice(key, manner) };
        let args: Args<'_> = self.keys.opening().chain(own).chain(advice).collect();
        match self.keys.attempt(by.of(self.keys.is_strict()), keys, &args, limits, Some(takes), false) {
            Err(failure) if failure.is_on_its_way() => match self.keys.quiet_on_its_way() {
                Some(quiet) => Ok(quiet),
                None => {
                    let args: Args<'_> = std::iter::once(Arg::Deadline).chain(own).chain(NO_ADVICE).collect();
                    self.keys.attempt(&by.plain, keys, &args, limits, Some(takes), true)
                }
            },
            answer => answer,
        }
    }

    fn advice<'a>(&self, key: &'a Key, manner: Manner<'_>) -> [Arg<'a>; 5] {
        let waits = Arg::Number(u64::from(!matches!(manner, Manner::Try)));
        let (marks, turn) = (Arg::Parts(key.writers_parts()), Arg::Parts(key.readers_parts()));
        [marks, turn, self.ears(key), self.longest(), waits]
    }

    /// What the ears of clients begin with. A writer that waits has one as long as its process lives, and counts no longer.
    pub(super) fn ears<'a>(&self, key: &'a Key) -> Arg<'a> {
        let ears = self.client.and_then(|_| self.keys.ears(key));
        ears.map_or(Arg::Text(""), Arg::Parts)
    }

    /// For how long a writer that waits counts at most, ms.
    pub(super) fn longest(&self) -> Arg<'static> {
        Arg::Number(self.waits)
    }

    pub(super) fn listen_as_alive(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        let ear = self.client.and_then(|client| self.keys.listen_on_ear(key, client, semaphore));
        let all = self.keys.listen(key, semaphore)?;
        Some(Box::new(Alive { all, _ear: ear }))
    }

    /// Sends what frees a lock and looks at the time-outs of others: where they may be at another node, none that is not seen is
    /// taken for gone.
    pub(super) fn free(
        &self,
        key: &Key,
        answer_by: Moment,
        send: &dyn Fn(bool, Limits<'_>) -> Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        let limits = Limits::any_time(answer_by);
        if self.is_apart(key) {
            return send(false, limits);
        }
        match send(true, limits) {
            Err(failure) if failure.is_on_its_way() => send(false, limits),
            answer => answer,
        }
    }

    /// Sends the release of one hold, whose lock is the first key.
    pub(super) fn release(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        trusts: bool,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let answer = self.keys.attempt(script, keys, args, limits, None, !trusts)?;
        answer.one_each(keys.len())?.swap_remove(0)
    }

    /// Frees what tenures that are over have, `each` by one script, and what is not all at one node `alone`.
    pub(super) fn sweep_all(
        &self,
        tenures: &[Arc<Tenure>],
        each: impl Fn(&[Arc<Tenure>]) -> Result<Answers, Failure>,
        alone: impl Fn(&Arc<Tenure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let is_apart = |tenure: &Arc<Tenure>| self.is_apart(tenure.key());
        let (apart, whole): (Vec<_>, Vec<_>) = tenures.iter().cloned().partition(is_apart);
        let answers = if whole.is_empty() { Vec::new() } else { each(&whole)? };
        for (tenure, answer) in whole.iter().zip(answers) {
            match answer {
                Err(failure) if failure.is_on_its_way() || failure.is_half_here() => alone(tenure)?,
                answer => {
                    let answer = answer?;
                    self.keys.freed(tenure.key(), &answer, answer.reply.number()?);
                }
            }
        }
        apart.iter().try_for_each(alone)
    }

    pub(super) fn force_unlock(&self, side: Side, key: &Key, answer_by: Moment) -> Result<bool, Failure> {
        let answer = self.free(key, answer_by, &|trusts, limits| {
            let (channel, prefix) = (Arg::Parts(key.channel_parts()), Arg::Parts(key.timeouts_parts()));
            let args = [Arg::Text(name_of(side)), channel, prefix, Arg::Number(trusts.into())];
            self.keys.attempt(&FORCE_UNLOCK_SIDE, &[key.full()], &args, limits, None, !trusts)
        })?;
        Ok(self.keys.freed(key, &answer, answer.reply.number()?).is_done())
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

/// All that a writer listens to while it waits.
struct Alive {
    all: Box<dyn Listening>,
    _ear: Option<Box<dyn Listening>>,
}

impl Listening for Alive {
    fn is_confirmed(&self) -> bool {
        self.all.is_confirmed()
    }
}

/// For how long a lock that is free is left to those who wait, before others may have it, ms.
pub(super) const TURN: u64 = 10;

const DAY: u64 = 86_400_000;

/// Nothing is read or written beside the lock.
const NO_ADVICE: [Arg<'static>; 5] = [Arg::Text(""), Arg::Text(""), Arg::Text(""), Arg::Number(0), Arg::Number(0)];

fn name_of(side: Side) -> &'static str {
    if side == Side::Write { "write" } else { "read" }
}
