//! Locks as keys of a store: what one script does for each step of the accounting.

mod answers;
pub(super) mod asks;
mod group;
mod on_its_way;
mod spread;
mod telling;

use super::primitive::{GroupPrimitive, Primitive, Renewed, Take, heard};
use super::waiting::queue::{Manner, Queue};
use crate::base::config::Config;
use crate::base::key::{EPOCH, Key};
use crate::base::say::say;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::{Modes, Script, Wrapper, scripts};
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment};
use crate::client::Space;
use crate::lease::tenure::Tenure;
use crate::store::node::{Answer, Arg, Failure, Grants, Lane, Limits, Reply, Request, Verb};
use crate::store::{Answers, Store};
use answers::Freed;
pub(super) use answers::{prolongs, takes};
use arrayvec::ArrayVec;
pub(super) use asks::{Acquire, asks};
use on_its_way::may_ask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Strict mode, around an acquire. Reply: that of what is inside, or an array with the ms left.
pub(super) static QUARANTINE: Wrapper = Wrapper { file: include_str!("keys/quarantine.lua"), args: 3 };
/// Strict mode, around what prolongs: it writes which process serves.
pub(super) static SERVING: Wrapper = Wrapper { file: include_str!("keys/serving.lua"), args: 3 };
/// Around an acquire that waits among processes. Reply: what is inside grants, or an array of four, for [`Queue::not_won_in_turn`].
pub(super) static IN_TURN: Wrapper = Wrapper { file: include_str!("keys/in_turn.lua"), args: 5 };

asks! {
    /// Reply: nil (acquired) or the holder's PTTL in ms.
    ACQUIRE = "keys/acquire.lua", Exactly(1), Exactly(4);
}

scripts! {
    /// Reply: 1 for each key.
    BEGIN_QUARANTINE = "keys/begin_quarantine.lua", AtLeast(1), Exactly(3);
    /// Reply: 1 or 0 (lost).
    REENTER = "keys/reenter.lua", Exactly(1), Exactly(4), strict: SERVING;
    /// Reply: 1 or 0 (lost) for each key.
    RENEW = "keys/renew.lua", AtLeast(1), AtLeast(3), strict: SERVING;
    /// Reply: that of [`Freed::of`].
    RELEASE = "keys/release.lua", Exactly(1), Exactly(3);
    /// Reply: that of [`Freed::of`], or an array of three, for [`Queue::told`].
    RELEASE_IN_TURN = "keys/release_in_turn.lua", Exactly(1), Exactly(10);
    /// Reply: how many places were left.
    LEAVE = "keys/leave.lua", Exactly(1), Exactly(3);
    /// Reply: that of [`Freed::of`].
    FORCE_UNLOCK = "keys/force_unlock.lua", Exactly(1), Exactly(1);
    /// Reply: 0 (acquired) or the number of a key that is taken, from 1.
    ACQUIRE_GROUP = "keys/acquire_group.lua", AtLeast(1), AtLeast(3);
    /// Reply: that of [`Freed::of`] for each key.
    RELEASE_GROUP = "keys/release_group.lua", AtLeast(1), AtLeast(2);
}

static REENTRANTLY: Acquire = Acquire { forms: &ACQUIRE, last: 1, beside: None };

/// As many arguments as a re-entry has at most.
pub(super) type ProlongArgs<'a> = ArrayVec<Arg<'a>, 7>;

/// As many arguments as an acquire has at most.
type AcquireArgs<'a> = ArrayVec<Arg<'a>, 12>;

/// The commands of a lock's kind at a store, alone or as a node of a quorum.
pub(super) struct Keys {
    store: Arc<dyn Store>,
    /// Of a strict client: the key that tells whether the server lost its data, or its beginning where each slot has one, and
    /// the quarantine in ms.
    epoch: Option<(String, u64)>,
    in_cluster: bool,
    /// Replicas have to confirm what is granted.
    is_confirmed: bool,
    /// A publish was refused, and that was said.
    unheard: AtomicBool,
    /// A quarantine is going on, and that was said.
    quiet: AtomicBool,
    queue: Option<Queue>,
}

impl Keys {
    pub(super) fn new(store: Arc<dyn Store>, config: &Config) -> Self {
        let epoch = || ([&config.key_prefix, EPOCH].concat(), config.watchdog_lease.millis());
        let (unheard, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
        let (epoch, in_cluster) = (config.strict.then(epoch), config.in_cluster);
        Self { store, epoch, in_cluster, is_confirmed: config.replicas.is_some(), unheard, quiet, queue: None }
    }

    /// The same with a queue for the processes that wait, unless the client wants none.
    pub(super) fn in_turn(self, space: &Space) -> Self {
        let queue = || Queue::new(space.id, Arc::clone(&self.store), &space.config);
        Self { queue: space.config.hand_off.queues.then(queue), ..self }
    }

    /// One that does no harm however late it is executed.
    fn call(&self, script: &'static Script, key: &Key, args: &[Arg<'_>], by: Moment) -> Result<Answer, Failure> {
        self.attempt(script, &[key.full()], args, Limits::any_time(by), None, may_ask(script))
    }

    /// The same of one that grants or prolongs, which replicas may have to confirm.
    pub(super) fn ask_for(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        limits: Limits<'_>,
        grants: Grants,
    ) -> Result<Answer, Failure> {
        self.attempt(script, keys, args, limits, Some(grants), may_ask(script))
    }

    /// What grants nothing gives something back: so it goes before the calls that wait for a connection.
    pub(super) fn attempt(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        limits: Limits<'_>,
        grants: Option<Grants>,
        may_ask: bool,
    ) -> Result<Answer, Failure> {
        let request = Request { grants, may_ask, ..Request::new(Verb::Script(script), keys, args) };
        let lane = if grants.is_some() { Lane::Calls } else { Lane::Releases };
        self.store.attempt(lane, &request, limits)
    }

    /// Sends the acquire of a kind: its own script, in strict mode inside the quarantine.
    pub(super) fn acquire(
        &self,
        by: &Acquire,
        tenure: &Tenure,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let ask = |by| match self.acquire_here(by, tenure, lease, manner, limits) {
            Err(failure) if failure.is_on_its_way() => self.acquire_on_its_way(tenure, lease, limits),
            here => here,
        };
        let is_apart = by.beside.is_some() && self.in_cluster && !tenure.key().is_in_one_slot();
        match if is_apart { ask(&REENTRANTLY) } else { ask(by) } {
            Err(failure) if by.beside.is_some() && failure.is_half_here() => ask(&REENTRANTLY),
            here => here,
        }
    }

    fn acquire_here(
        &self,
        by: &Acquire,
        tenure: &Tenure,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let key = tenure.key();
        let queue = self.queue(key).filter(|queue| queue.matters(key, manner));
        let members = queue.map_or_else(Default::default, |queue| queue.members(manner));
        let own = [Arg::Number(lease.millis()), Arg::Text(tenure.owner()), Arg::Number(by.last)];
        let beside = by.beside.map(|name| name(key));
        let keys: ArrayVec<&str, 2> = std::iter::once(key.full()).chain(beside.as_deref()).collect();
        let asking = queue.map(|queue| queue.asking(key, manner, &members));
        let script = by.forms.of(queue.is_some(), self.is_strict());
        let args: AcquireArgs<'_> = self.opening().chain(asking.into_iter().flatten()).chain(own).collect();
        let answer = self.ask_for(script, &keys, &args, limits, takes)?;
        queue.into_iter().for_each(|queue| queue.note_trip(&answer));
        Ok(answer)
    }

    /// What a reply means that grants nothing: the holder's PTTL, or that the lock is left to foreigners, or in strict mode what is left
    /// of the quarantine.
    pub(super) fn not_granted(&self, tenure: &Tenure, manner: Manner<'_>, reply: &Reply) -> Result<Take, Failure> {
        if let Reply::Array(left) = reply
            && left.len() == 1
        {
            return self.quarantined(tenure.key(), left);
        }
        self.quiet.store(false, Relaxed);
        match (reply, &self.queue) {
            (Reply::Array(said), Some(queue)) => queue.not_won_in_turn(tenure.key(), manner, said),
            (left, queue) => {
                queue.iter().for_each(|queue| queue.not_won(tenure.key(), manner));
                Ok(Take::busy(left.number()?))
            }
        }
    }

    /// Strict mode: the server may have forgotten who holds what, so it grants nothing for a while.
    fn quarantined(&self, key: &Key, left: &[Reply]) -> Result<Take, Failure> {
        let [left] = left else { return Err(Failure::not_understood()) };
        let left = left.number()?;
        if self.epoch.as_ref().is_some_and(|(_, length)| left.unsigned_abs() == *length) {
            self.spread_quarantine(key);
        }
        self.say_quiet("lost its data or is new to strict mode", left.unsigned_abs());
        Ok(Take::busy(left))
    }

    fn say_quiet(&self, why: &str, left: u64) {
        if !self.quiet.swap(true, Relaxed) {
            let server = self.store.address();
            say!(warn, "{server} {why}: it grants no lock for {left} ms");
        }
    }

    /// A quarantine, if there was one, is over.
    pub(super) fn granted(&self, tenure: &Tenure, manner: Manner<'_>, Answer { sent, confirmed, .. }: &Answer) -> Take {
        tenure.note_replicas(*confirmed);
        self.quiet.store(false, Relaxed);
        self.queue.iter().for_each(|queue| queue.won(tenure.key(), manner));
        Take::Acquired(*sent)
    }

    /// Of scripts that prolong, the one for this client, and its first arguments, which are for all of its keys.
    pub(super) fn prolonging(&self, by: &'static Modes, lease: Lease) -> (&'static Script, ProlongArgs<'_>) {
        (by.of(self.is_strict()), self.opening().chain([Arg::Number(lease.millis())]).collect())
    }

    /// Sends one to several keys, with so many arguments for all of them.
    pub(super) fn prolong_each(
        &self,
        lane: Lane,
        script: &'static Script,
        keys: &[&str],
        (shared, args): (usize, &[Arg<'_>]),
        limits: Limits<'_>,
    ) -> Result<Answers, Failure> {
        let (grants, may_ask) = (Some(prolongs as Grants), may_ask(script));
        let request = Request { grants, may_ask, ..Request::new(Verb::Script(script), keys, args) };
        self.store.attempt_all(lane, &request, shared, limits)
    }

    /// Sends one that frees to several keys, with so many arguments for all of them.
    pub(super) fn free_each(
        &self,
        script: &'static Script,
        keys: &[&str],
        (shared, args): (usize, &[Arg<'_>]),
        may_ask: bool,
        answer_by: Moment,
    ) -> Result<Answers, Failure> {
        let request = Request { may_ask, ..Request::new(Verb::Script(script), keys, args) };
        self.store.attempt_all(Lane::Releases, &request, shared, Limits::any_time(answer_by))
    }

    /// Gives up a level. With the last one the lock may be given to another process, with a token if the kind has a counter of them,
    /// which lives for so long.
    pub(super) fn release_with(
        &self,
        tokens: Option<(&str, u64)>,
        tenure: &Tenure,
        left: usize,
        answer_by: Moment,
    ) -> Result<bool, Failure> {
        let key = tenure.key();
        let args = [Arg::Text(tenure.owner()), Arg::Number(left as u64), Arg::Parts(key.channel_parts())];
        if let Some(queue) = self.queue(key).filter(|queue| left == 0 && queue.has_company(key)) {
            match self.release_in_turn(queue, tenure, args, tokens, answer_by) {
                Err(failure) if failure.is_on_its_way() => {}
                released => return released,
            }
        }
        let answer = self.call(&RELEASE, key, &args, answer_by)?;
        let freed = self.freed(key, &answer, answer.reply.number()?);
        if left == 0 {
            self.note_audience(tenure, freed);
        }
        Ok(freed.is_done())
    }

    pub(super) fn is_strict(&self) -> bool {
        self.epoch.is_some()
    }

    /// The deadline, and in strict mode what a wrapper needs to know of the epoch.
    pub(super) fn opening(&self) -> impl Iterator<Item = Arg<'_>> {
        let quiet = self.epoch.as_ref().map(|(epoch, quarantine)| {
            let key = if self.in_cluster { Arg::InSlot(epoch) } else { Arg::Text(epoch) };
            [key, Arg::RunId, Arg::Number(*quarantine)]
        });
        std::iter::once(Arg::Deadline).chain(quiet.into_iter().flatten())
    }

    pub(super) fn ask(&self, command: &'static str, key: &str, answer_by: Moment) -> Result<Reply, Failure> {
        self.look(Verb::Command(command), key, &[], answer_by)
    }

    /// By what grants nothing and gives nothing back.
    pub(super) fn look(&self, by: Verb, key: &str, args: &[Arg<'_>], answer_by: Moment) -> Result<Reply, Failure> {
        let keys = [key];
        let answer = self.store.attempt(Lane::Calls, &Request::new(by, &keys, args), Limits::any_time(answer_by))?;
        Ok(answer.reply)
    }

    /// What is in a string beside a lock.
    pub(super) fn read(&self, key: &str, answer_by: Moment) -> Result<Reply, Failure> {
        self.ask("GET", key, answer_by)
    }
}

impl Primitive for Keys {
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        let answer = self.acquire(&REENTRANTLY, tenure, lease, manner, limits)?;
        match &answer.reply {
            Reply::Nil => Ok(self.granted(tenure, manner, &answer)),
            reply => self.not_granted(tenure, manner, reply),
        }
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        let (script, mut args) = self.prolonging(&REENTER, lease);
        args.extend([Arg::Parts(tenure.field()), Arg::Number(count as u64)]);
        let answer = match self.ask_for(script, &[tenure.key().full()], &args, limits, prolongs) {
            Err(failure) if failure.is_on_its_way() => self.reenter_on_its_way(tenure, count, lease, limits),
            answer => answer,
        }?;
        Ok((answer.reply.number()? == 1).then_some(answer.sent))
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let (script, first) = self.prolonging(&RENEW, lease);
        let shared = first.len();
        let owners = tenures.iter().map(|tenure| Arg::Parts(tenure.field()));
        let args: Vec<_> = first.into_iter().chain(owners).collect();
        let limits = Limits::of_lease(lease, answer_by);
        let answers = self.prolong_each(lane, script, &keys, (shared, &args), limits)?;
        let held = tenures.iter().zip(answers).map(|(tenure, answer)| {
            let answer = match answer {
                Err(failure) if failure.is_on_its_way() => self.renew_on_its_way(lane, tenure, lease, limits),
                answer => answer,
            };
            let Answer { reply, sent, confirmed, .. } = answer?;
            tenure.note_replicas(confirmed);
            Ok((reply.number()? == 1).then_some(sent))
        });
        Ok(held.collect())
    }

    fn each_apart(&self, tenures: &[Arc<Tenure>], ask: &mut dyn FnMut(&[Arc<Tenure>])) {
        if !self.in_cluster {
            return ask(tenures);
        }
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        for part in self.store.apart(&keys) {
            ask(&part.into_iter().map(|at| Arc::clone(&tenures[at])).collect::<Vec<_>>());
        }
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        self.release_with(None, tenure, left, answer_by)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        self.release_all(tenures, answer_by).map(drop)
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<bool, Failure> {
        let args = [Arg::Parts(key.channel_parts())];
        let answer = self.call(&FORCE_UNLOCK, key, &args, answer_by)?;
        Ok(self.freed(key, &answer, answer.reply.number()?).is_done())
    }

    /// In strict mode each acquire looks at the epoch too, one lock at a time.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        if self.is_strict() { None } else { Some(self) }
    }

    /// HLEN comes first because it refuses a key of another type, which PTTL would call a lock.
    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        if self.ask("HLEN", key.full(), answer_by)?.number()? == 0 {
            return Ok(None);
        }
        match self.ask("PTTL", key.full(), answer_by)?.number()? {
            -2 => Ok(None),
            left => Ok(Some(u64::try_from(left).ok().map(Duration::from_millis))),
        }
    }

    /// Where a store does not say how many listen, the dead cannot be told from those who wait; and in a cluster a script reaches
    /// its own slot alone.
    fn queue(&self, key: &Key) -> Option<&Queue> {
        self.queue.as_ref().filter(|_| self.counts_listeners(key))
    }

    fn leave(&self, key: &Key, names: &[String; 2], answer_by: Moment) -> Result<(), Failure> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let members = queue.members_of(key, names);
        self.call(&LEAVE, key, &queue.leaving(key, &members), answer_by).map(drop)
    }

    /// What is given is not confirmed by replicas, and says nothing of the epoch of a strict client.
    fn believes_given(&self, _: &Tenure, _: Option<u64>) -> bool {
        !self.is_strict() && !self.is_confirmed
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        heard(self.store.listen(&key.channel(), Arc::<Semaphore>::clone(semaphore)))
    }
}
