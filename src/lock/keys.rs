//! Locks as keys of a store: what one script does for each step of the accounting.

mod strict;

use super::primitive::{GroupPrimitive, Primitive, Renewed, Take, TakeAll, heard};
use super::waiting::queue::{Manner, Queue};
use crate::base::config::Config;
use crate::base::error::Applied;
use crate::base::key::Key;
use crate::base::lives::Life;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::{Form, Script, Wrapper, scripts};
use crate::base::signal::{Deaf, Ear, Listening, Semaphore};
use crate::base::time::{Clock, Lease, Moment};
use crate::client::Space;
use crate::lease::tenure::{Audience, Tenure};
use crate::store::node::{Answer, Arg, Failure, GRACE, Lane, Limits, Reply, Request, Verb};
use crate::store::{Answers, Store};
use arrayvec::ArrayVec;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use strict::Strict;
use uuid::Uuid;

/// Strict mode, around an acquire. Reply: that of the inner script, or an array with the ms left of the quarantine.
pub(super) static QUARANTINE: Wrapper = Wrapper { file: include_str!("keys/quarantine.lua"), args: 3 };
/// Strict mode, around a script that prolongs: it writes which process serves.
pub(super) static SERVING: Wrapper = Wrapper { file: include_str!("keys/serving.lua"), args: 3 };
/// Around an acquire that waits among processes. Reply: the inner one if that grants, or an array of four, for [`Queue::not_won_in_turn`].
pub(super) static IN_TURN: Wrapper = Wrapper { file: include_str!("keys/in_turn.lua"), args: 5 };

scripts! {
    /// Reply: nil (acquired) or the holder's PTTL in ms.
    ACQUIRE = "keys/acquire.lua", Exactly(1), Exactly(4), queued: IN_TURN, strict: QUARANTINE;
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
    /// Reply: that of [`Freed::of`].
    FORCE_UNLOCK = "keys/force_unlock.lua", Exactly(1), Exactly(1);
    /// Reply: 0 (acquired) or the number of a key that is taken, from 1.
    ACQUIRE_GROUP = "keys/acquire_group.lua", AtLeast(1), AtLeast(3);
    /// Reply: that of [`Freed::of`] for each key.
    RELEASE_GROUP = "keys/release_group.lua", AtLeast(1), AtLeast(2);
}

/// The arguments of the wrappers around an acquire, with room for the most.
type Around<'a> = ArrayVec<Arg<'a>, 10>;

/// Tells those that wait for permits to look at how many are left: it is as many as there can be.
pub(super) const ENOUGH: &str = "2147483647";

/// Tells those that wait for a lock that it is free, and those that wait for a latch that it is open. A client of Redisson's that is told so of
/// a closed latch would ask again and again.
pub(super) const OPENED: &str = "0";

/// The commands of a lock's kind at a store, alone or as a node of a quorum.
pub(super) struct Keys {
    store: Arc<dyn Store>,
    strict: Option<Strict>,
    /// The server refused a publish, and the log says so.
    unheard: AtomicBool,
    queue: Option<Queue>,
    /// Of a quorum.
    node: Option<usize>,
}

/// How attempts are sent.
impl Keys {
    pub(super) fn new(store: Arc<dyn Store>, config: &Config) -> Self {
        let strict = config.strict.then(|| Strict::new(config));
        Self { store, strict, unheard: AtomicBool::new(false), queue: None, node: None }
    }

    /// The same for a node of a quorum.
    pub(super) fn of_node(self, node: usize) -> Self {
        Self { node: Some(node), ..self }
    }

    /// The same with a queue for the processes that wait, unless the client wants none.
    pub(super) fn in_turn(self, space: &Space) -> Self {
        let queue = || Queue::new(space.id, Arc::clone(&self.store), &space.config);
        Self { queue: space.config.hand_off.queues.then(queue), ..self }
    }

    /// The same with a queue of all threads that wait, in order of arrival.
    pub(super) fn in_order(self, space: &Space) -> Self {
        let queue = Queue::new(space.id, Arc::clone(&self.store), &space.config).of_threads();
        Self { queue: Some(queue), ..self }
    }

    /// Makes one attempt. A request that grants nothing gives something back, so it goes before calls that wait.
    pub(super) fn attempt(&self, request: Request<'_>, limits: Limits<'_>) -> Result<Answer, Failure> {
        let lane = if request.grants.is_some() { Lane::Calls } else { Lane::Releases };
        self.in_mode(request, |request| self.store.attempt(lane, request, limits))
    }

    /// The same for several keys; the first `shared` arguments are for all of them.
    pub(super) fn attempt_all(
        &self,
        lane: Lane,
        request: Request<'_>,
        shared: usize,
        limits: Limits<'_>,
    ) -> Result<Answers, Failure> {
        self.in_mode(request, |request| self.store.attempt_all(lane, request, shared, limits))
    }

    /// Sends a script in the wrapper that it has for strict mode, if it has one.
    fn in_mode<T>(&self, request: Request<'_>, send: impl FnOnce(&Request<'_>) -> T) -> T {
        let Verb::Script(script) = request.verb else { return send(&request) };
        let Some(strict) = self.strict.as_ref().filter(|_| script.has_strict_form()) else { return send(&request) };
        let around: Around<'_> = strict.args().into_iter().chain(request.around.iter().copied()).collect();
        send(&Request { form: Form { strict: true, ..request.form }, around: &around, ..request })
    }

    /// Makes an attempt that does no harm however late it is executed.
    pub(super) fn call(
        &self,
        script: &'static Script,
        key: &Key,
        args: &[Arg<'_>],
        by: Moment,
    ) -> Result<Answer, Failure> {
        self.attempt(Request::of(script, &[key.full()], args), Limits::any_time(by))
    }

    pub(super) fn ask(&self, command: &'static str, key: &str, answer_by: Moment) -> Result<Reply, Failure> {
        self.look(Verb::Command(command), key, &[], answer_by)
    }

    /// Sends what grants nothing and gives nothing back.
    pub(super) fn look(&self, by: Verb, key: &str, args: &[Arg<'_>], answer_by: Moment) -> Result<Reply, Failure> {
        let keys = [key];
        let answer = self.store.attempt(Lane::Calls, &Request::new(by, &keys, args), Limits::any_time(answer_by))?;
        Ok(answer.reply)
    }
}

/// How a lock is acquired.
impl Keys {
    /// Sends the acquire of a kind. Its arguments begin with deadline, lease and owner.
    ///
    /// A strict client takes no grant from a node that a slot is moving to. It cannot write the epoch there: a key beside the lock would
    /// keep the slot from moving on.
    pub(super) fn acquire(
        &self,
        by: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        key: &Key,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let queue = self.queue(key).filter(|queue| queue.matters(key, manner));
        let members = queue.map_or_else(Default::default, |queue| queue.members(manner));
        let around: Around<'_> = queue.map(|queue| queue.asking(key, manner, &members)).into_iter().flatten().collect();
        let (form, may_ask) = (Form { queued: queue.is_some(), strict: false }, !self.is_quiet_on_its_way());
        let request = Request { form, around: &around, may_ask, ..Request::of(by, keys, args).granting(takes) };
        match self.attempt(request, limits) {
            Err(failure) if failure.is_on_its_way() && !may_ask => Ok(self.quiet_on_its_way()),
            answer => answer.inspect(|answer| queue.into_iter().for_each(|queue| queue.note_trip(answer))),
        }
    }

    /// Takes the key of the lock and no other.
    pub(super) fn acquire_key(
        &self,
        tenure: &Tenure,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let args = [Arg::Deadline, Arg::Number(lease.millis()), Arg::Text(tenure.owner()), Arg::Number(1)];
        self.acquire(&ACQUIRE, &[tenure.key().full()], &args, tenure.key(), manner, limits)
    }

    fn is_quiet_on_its_way(&self) -> bool {
        self.is_strict() && !mutant::is(Mutant::GrantsOnItsWay)
    }

    /// The answer that a strict client assumes of the node that a slot is moving to.
    fn quiet_on_its_way(&self) -> Answer {
        let quarantine = self.strict.as_ref().map_or(0, |strict| strict.quarantine);
        self.say_quiet("is moving a slot elsewhere", quarantine);
        let reply = Reply::Number(i64::try_from(quarantine).unwrap_or(i64::MAX));
        Answer { reply, sent: Clock::Boot.now(), confirmed: None, on_its_way: true, life: Life::ONLY }
    }

    /// What an acquire found, by its reply: the tenure has the lock, or for how long it does not get it.
    pub(super) fn took(&self, tenure: &Tenure, manner: Manner<'_>, answer: &Answer) -> Result<Take, Failure> {
        if let Reply::Array(left) = &answer.reply
            && left.len() == 1
        {
            return self.quarantined(tenure.key(), left[0].number()?);
        }
        // What a strict client assumes of a slot that is moving says nothing of a quarantine.
        self.strict.iter().filter(|_| !answer.on_its_way).for_each(|strict| strict.is_said.store(false, Relaxed));
        manner.ticket().into_iter().filter(|_| answer.on_its_way).for_each(|ticket| ticket.asked_elsewhere());
        // Also of an ask in vain: what another client's release gives, it gives at the server that was asked.
        self.note_life(tenure, answer.life);
        match &answer.reply {
            reply if takes(reply) => Ok(self.granted(tenure, manner, answer)),
            reply => self.not_granted(tenure, manner, reply),
        }
    }

    fn granted(&self, tenure: &Tenure, manner: Manner<'_>, answer: &Answer) -> Take {
        tenure.note_replicas(answer.confirmed);
        self.queue.iter().for_each(|queue| queue.won(tenure.key(), manner));
        Take::Acquired(answer.sent)
    }

    /// The lock was not granted: returns the holder's PTTL, or for how long the lock is left to foreigners.
    fn not_granted(&self, tenure: &Tenure, manner: Manner<'_>, reply: &Reply) -> Result<Take, Failure> {
        match (reply, &self.queue) {
            (Reply::Array(said), Some(queue)) => queue.not_won_in_turn(tenure.key(), manner, said),
            (left, queue) => {
                queue.iter().for_each(|queue| queue.not_won(tenure.key(), manner));
                Ok(Take::busy(left.number()?))
            }
        }
    }

    /// Strict mode: the server may have forgotten who holds what, so it grants nothing for a while.
    fn quarantined(&self, key: &Key, left: i64) -> Result<Take, Failure> {
        let begun = self.strict.as_ref().filter(|strict| left.unsigned_abs() == strict.quarantine);
        begun.into_iter().for_each(|strict| strict.spread(&self.store, key));
        self.say_quiet("lost its data or is new to strict mode", left.unsigned_abs());
        Ok(Take::busy(left))
    }

    fn say_quiet(&self, why: &str, left: u64) {
        if self.strict.as_ref().is_some_and(|strict| !strict.is_said.swap(true, Relaxed)) {
            let server = self.store.address();
            say!(warn, "{server} {why}: it grants no lock for {left} ms");
        }
    }

    fn is_strict(&self) -> bool {
        self.strict.is_some()
    }
}

/// How holds are prolonged.
impl Keys {
    /// Sends the renewal of a kind, with a key for each tenure, and arguments for each behind the deadline and the lease.
    pub(super) fn renew_by<'a>(
        &self,
        by: &'static Script,
        lane: Lane,
        tenures: &'a [Arc<Tenure>],
        (keys, args): (&[&str], impl Iterator<Item = Arg<'a>>),
        lease: Lease,
        answer_by: Moment,
    ) -> Result<Renewed, Failure> {
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(args).collect();
        let request = Request::of(by, keys, &args).granting(prolongs);
        let answers = self.attempt_all(lane, request, 2, Limits::of_lease(lease, answer_by))?;
        let held = tenures.iter().zip(answers).map(|(tenure, answer)| {
            let Answer { reply, sent, confirmed, life, .. } = answer?;
            tenure.note_replicas(confirmed);
            let is_held = reply.number()? == 1;
            if is_held {
                self.note_life(tenure, life);
            }
            Ok(is_held.then_some(sent))
        });
        Ok(held.collect())
    }

    /// The server of this life has the tenure, as far as it says.
    pub(super) fn note_life(&self, tenure: &Tenure, life: Life) {
        tenure.lives(self.node).confirm(life);
    }
}

/// How a lock is freed, who hears of that, and what this process concludes from it.
impl Keys {
    /// Gives up a level. With the last level the server may give the lock to another process. `tokens`: the counter of a kind that
    /// has one, from which that process gets a token, and its TTL in ms.
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
            return self.release_in_turn(queue, tenure, args, tokens, answer_by);
        }
        self.released(tenure, left, self.call(&RELEASE, key, &args, answer_by))
    }

    /// Releases the last level of a lock that other processes may wait for.
    fn release_in_turn(
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
        self.released_in_turn(queue, tenure, self.call(&RELEASE_IN_TURN, key, &args, answer_by))
    }

    /// Books the answer to a release that may give the lock to the next in a queue.
    pub(super) fn released_in_turn(
        &self,
        queue: &Queue,
        tenure: &Tenure,
        answer: Result<Answer, Failure>,
    ) -> Result<bool, Failure> {
        answer.iter().for_each(|answer| queue.note_trip(answer));
        let key = tenure.key();
        let Ok(Answer { reply: Reply::Array(said), .. }) = &answer else { return self.released(tenure, 0, answer) };
        let told = queue.told(key, said)?;
        let answer = answer?;
        let freed = self.freed(key, &answer, told.all);
        match told.in_order {
            true => tenure.note_audience(Audience::Queue),
            false => self.note_audience(tenure, freed),
        }
        if let (false, Freed::Told(all), Some(Audience::Others)) = (told.in_order, freed, tenure.audience()) {
            queue.note_bystanders(key, all);
        }
        Ok(self.found(tenure, freed, &answer))
    }

    /// Books the answer to a release that left `left` levels; returns whether the tenure was in the store, or was until an earlier attempt. No
    /// attempt explains that an inner level is gone: it leaves the tenure where it is.
    pub(super) fn released(
        &self,
        tenure: &Tenure,
        left: usize,
        answer: Result<Answer, Failure>,
    ) -> Result<bool, Failure> {
        if left > 0 {
            let answer = answer?;
            return Ok(self.freed(tenure.key(), &answer, answer.reply.number()?).is_done());
        }
        let answer = self.answered(tenure, answer)?;
        let freed = self.freed(tenure.key(), &answer, answer.reply.number()?);
        self.note_audience(tenure, freed);
        Ok(self.found(tenure, freed, &answer))
    }

    /// Notes where a release went that was not answered. What no release says is no answer.
    pub(super) fn answered(&self, tenure: &Tenure, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let lives = tenure.lives(self.node);
        let answer = answer.and_then(|answer| answer.reply.number().map(|_| answer));
        match &answer {
            Err(Failure::Unknown { life, .. }) => lives.leave(*life),
            Err(failure) if failure.applied() == Applied::Unknown => lives.leave_where_it_was(),
            _ => {}
        }
        answer.map_err(|failure| if failure.is_not_understood() { failure.unanswered() } else { failure })
    }

    /// Whether a final release found its tenure, or an attempt before it or the end of the lease explains that it did not.
    pub(super) fn found(&self, tenure: &Tenure, freed: Freed, answer: &Answer) -> bool {
        let lives = tenure.lives(self.node);
        let is_found = freed.is_done() || lives.explain(answer.life, tenure.is_over());
        if is_found {
            lives.free();
        }
        is_found
    }

    /// What a script that frees says. If the waiters were not told, the log says so once: they poll.
    pub(super) fn freed(&self, key: &Key, answer: &Answer, number: i64) -> Freed {
        let freed = Freed::of(number);
        if freed.is_done() && self.is_told_elsewhere(key, answer, freed) {
            self.tell_where_they_listen(key, if key.permits() > 0 { ENOUGH } else { OPENED });
            return Freed::Untold;
        }
        if freed == Freed::Untold && !self.unheard.swap(true, Relaxed) {
            let channel = key.channel();
            say!(warn, "the server refuses to publish on {channel:?}, so waiters poll: grant this user the channel");
        }
        freed
    }

    /// Whether a script told the listeners of one node while the waiters listen at another.
    fn is_told_elsewhere(&self, key: &Key, answer: &Answer, freed: Freed) -> bool {
        let is_astray = freed == Freed::Untold && !key.is_in_one_slot();
        let is_on_its_way = answer.on_its_way && !mutant::is(Mutant::UntoldOnItsWay);
        self.store.is_sharded() && (is_on_its_way || is_astray)
    }

    /// Tells waiters by a command of its own if a script could not, as after each operation on a counter.
    pub(super) fn tell_elsewhere(&self, key: &Key, answer: &Answer, payload: &str) {
        if self.is_told_elsewhere(key, answer, Freed::Untold) {
            self.tell_where_they_listen(key, payload);
        }
    }

    /// Tells waiters by a command of its own. While a slot moves, they listen at the node that it leaves. If the channel is in another
    /// slot than the lock, they listen at that slot's master. If this fails, they poll.
    fn tell_where_they_listen(&self, key: &Key, payload: &str) {
        let (channel, answer_by) = (key.channel(), Clock::Boot.now().plus(GRACE));
        let (keys, args) = ([channel.as_str()], [Arg::Text(payload)]);
        let tell = Request::new(Verb::Command("SPUBLISH"), &keys, &args);
        let _ = self.store.attempt(Lane::Releases, &tell, Limits::any_time(answer_by));
    }

    /// Notes whether a final release was heard by another client, which may wait.
    fn note_audience(&self, tenure: &Tenure, freed: Freed) {
        if let Freed::Told(told) = freed {
            let others = self.were_others_told(tenure.key(), told);
            tenure.note_audience(if others { Audience::Others } else { Audience::Nobody });
            self.queue.iter().for_each(|queue| match others {
                true => queue.note_told(tenure.key(), told),
                false => queue.note_alone(tenure.key()),
            });
        }
    }

    /// One listener may be this client itself. If the store does not count listeners, there may be any number.
    fn were_others_told(&self, key: &Key, told: i64) -> bool {
        told > 1 || !self.store.counts_listeners(key.full()) || (told == 1 && !self.store.hears(&key.channel()))
    }

    /// What the names of clients' ears begin with, if a script of this lock can count their listeners.
    pub(super) fn ears<'a>(&self, key: &'a Key) -> Option<[&'a str; 3]> {
        let of_all = ["redlatch_ear", "", ""];
        let counts = self.store.counts_listeners(key.full());
        counts.then(|| if self.store.is_sharded() { key.ears_parts() } else { of_all })
    }

    /// Whether this client listens to a channel, and all messages arrive.
    pub(super) fn hears(&self, channel: &str) -> bool {
        self.store.hears(channel)
    }

    /// Puts an ear on a channel.
    pub(super) fn listen_to(&self, channel: &str, ear: Arc<dyn Ear>) -> io::Result<Box<dyn Listening>> {
        self.store.listen(channel, ear)
    }

    /// Listens to the ear of this client, so that others see that its process lives. It hears nothing there.
    ///
    /// To be called before this client listens to the lock's channel, so that the channel is confirmed after the ear. If the channel
    /// is confirmed already, the ear's confirmation wakes the caller, whose next look leaves word that there is an ear.
    pub(super) fn listen_on_ear(
        &self,
        key: &Key,
        client: Uuid,
        semaphore: &Arc<Semaphore>,
    ) -> Option<Box<dyn Listening>> {
        let ear = format!("{}:{}", self.ears(key)?.concat(), client.hyphenated());
        let wakes = self.store.hears(&key.channel()).then(|| Arc::clone(semaphore));
        heard(self.listen_to(&ear, Arc::new(Deaf(wakes))))
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
        let answer = self.acquire_key(tenure, lease, manner, limits)?;
        self.took(tenure, manner, &answer)
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Option<Moment>, Failure> {
        let (field, count) = (Arg::Parts(tenure.field()), Arg::Number(count as u64));
        let args = [Arg::Deadline, Arg::Number(lease.millis()), field, count];
        let answer = self.attempt(Request::of(&REENTER, &[tenure.key().full()], &args).granting(takes), limits)?;
        let is_held = takes(&answer.reply);
        if !is_held && answer.reply.number()? != 0 {
            return Err(Failure::not_understood());
        }
        if is_held {
            self.note_life(tenure, answer.life);
        }
        Ok(is_held.then_some(answer.sent))
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let fields = tenures.iter().map(|tenure| Arg::Parts(tenure.field()));
        self.renew_by(&RENEW, lane, tenures, (&keys, fields), lease, answer_by)
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        self.release_with(None, tenure, left, answer_by)
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        self.release_all(tenures, answer_by).into_iter().try_for_each(|freed| freed.map(drop))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        let args = [Arg::Parts(key.channel_parts())];
        let answer = self.call(&FORCE_UNLOCK, key, &args, answer_by)?;
        Ok((self.freed(key, &answer, answer.reply.number()?).is_done(), answer.life))
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

    /// None if the store does not count listeners, for then a script cannot tell the dead from waiters. In a cluster a script
    /// reaches its own slot alone. A queue of threads needs no count: it takes each of ours for alive until it counts no more.
    fn queue(&self, key: &Key) -> Option<&Queue> {
        self.queue.as_ref().filter(|queue| queue.is_of_threads() || self.store.counts_listeners(key.full()))
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        heard(self.listen_to(&key.channel(), Arc::<Semaphore>::clone(semaphore)))
    }
}

impl GroupPrimitive for Keys {
    fn take_all(&self, tenures: &[Arc<Tenure>], lease: Lease, limits: Limits<'_>) -> Result<TakeAll, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let owners = tenures.iter().map(|tenure| Arg::Text(tenure.owner()));
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(owners).collect();
        let answer = match self.attempt(Request::of(&ACQUIRE_GROUP, &keys, &args).granting(takes), limits) {
            // Their slot may be moving for long: each member finds its node alone.
            Err(failure) if failure.is_apart() => return Ok(TakeAll::Apart),
            answer => answer?,
        };
        if takes(&answer.reply) {
            for tenure in tenures {
                tenure.note_replicas(answer.confirmed);
                self.note_life(tenure, answer.life);
            }
            return Ok(TakeAll::Acquired(answer.sent));
        }
        match usize::try_from(answer.reply.number()?) {
            Ok(taken) if (1..=tenures.len()).contains(&taken) => Ok(TakeAll::Busy(taken - 1)),
            _ => Err(Failure::not_understood()),
        }
    }

    fn release_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Vec<Result<bool, Failure>> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let args =
            tenures.iter().flat_map(|tenure| [Arg::Text(tenure.owner()), Arg::Parts(tenure.key().channel_parts())]);
        let args: Vec<_> = args.collect();
        let request = Request::of(&RELEASE_GROUP, &keys, &args);
        let answers = self.attempt_all(Lane::Releases, request, 0, Limits::any_time(answer_by));
        let answers = answers.unwrap_or_else(|failure| tenures.iter().map(|_| Err(failure.clone())).collect());
        tenures.iter().zip(answers).map(|(tenure, answer)| self.released(tenure, 0, answer)).collect()
    }
}

/// What a script that frees a lock says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    NotHeld,
    /// Done, but the server refuses to publish.
    Untold,
    /// Done, and this many connections were told.
    Told(i64),
}

impl Freed {
    fn of(number: i64) -> Self {
        match number {
            0 => Self::NotHeld,
            1 => Self::Told(0),
            2 => Self::Untold,
            more => Self::Told(more - 2),
        }
    }

    pub(super) fn is_done(self) -> bool {
        self != Self::NotHeld
    }
}

/// Whether an acquire got the lock, with or without a token.
pub(super) fn takes(reply: &Reply) -> bool {
    matches!(reply, Reply::Nil | Reply::Text(_))
}

/// Whether one lock, or any of several, was found.
pub(super) fn prolongs(reply: &Reply) -> bool {
    match reply {
        Reply::Array(each) => each.iter().any(prolongs),
        one => *one == Reply::Number(1),
    }
}
