//! The side of readers. A read hold is two keys, the field in the lock and its time-out, which may be at two nodes.

use super::WRITE;
use super::sides::{Args, Sides, TRUSTS, TURN};
use crate::base::key::{Key, Side};
use crate::base::lives::Life;
use crate::base::script::Count::{AtLeast, Exactly};
use crate::base::script::scripts;
use crate::base::signal::{Listening, Semaphore};
use crate::base::time::{Lease, Moment};
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::lock::keys::{QUARANTINE, SERVING, prolongs, takes};
use crate::lock::primitive::{GroupPrimitive, Primitive, Renewed, Take};
use crate::lock::waiting::queue::{Manner, Queue};
use crate::registry::{current_thread, registry};
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Reply, Request};
use std::sync::Arc;
use std::time::Duration;

scripts! {
    /// Reply: nil (acquired) or for how many ms the lock is not to be had.
    ACQUIRE_READ = "reads/acquire.lua", AtLeast(1), Exactly(9), strict: QUARANTINE;
    /// Reply: 1 or 0 (lost) for each key.
    RENEW_READ = "reads/renew.lua", AtLeast(1), AtLeast(3), strict: SERVING;
    /// Reply: 1.
    TIMEOUT = "reads/timeout.lua", Exactly(1), Exactly(2);
    /// Reply: that of [`Keys::freed`](crate::lock::keys::Keys::freed) for each lock, 1 for each time-out.
    RELEASE_READ = "reads/release.lua", AtLeast(1), AtLeast(8);
}

pub(super) struct Reads {
    sides: Sides,
}

/// The parts of one attempt to read.
struct Asked<'a> {
    tenure: &'a Arc<Tenure>,
    timeout: String,
    own: [Arg<'a>; 3],
    lease: Lease,
    manner: Manner<'a>,
    limits: Limits<'a>,
}

impl Reads {
    pub(super) fn new(sides: Sides) -> Self {
        Self { sides }
    }

    /// The current thread's write hold, which lets it read. From here on the hold's field may outlast its lease, as long as somebody
    /// reads under it. So a release is sent even if the hold is lost, until the server answers one.
    fn proof(&self, key: &Key) -> Option<Hold> {
        let [alone, _] = self.sides.grounds;
        let write = registry().find(alone, key.full(), current_thread()).filter(|hold| hold.is_of_kind(&WRITE))?;
        write.tenure().may_last(Moment::MAX);
        // Asked after that: if the hold is lost later, the thread that finds this out sees the mark.
        Some(write).filter(Hold::is_valid)
    }

    fn ask(&self, asked: &Asked<'_>, keys: &[&str]) -> Result<Answer, Failure> {
        self.sides.ask(&ACQUIRE_READ, keys, asked.own, asked.tenure.key(), asked.manner, asked.limits)
    }

    /// First makes the time-out, which is nothing by itself, then takes the lock.
    fn ask_in_parts(&self, asked: &Asked<'_>) -> Result<Answer, Failure> {
        let (keys, timeout) = (&self.sides.keys, [asked.timeout.as_str()]);
        let args = [Arg::Deadline, Arg::Number(asked.lease.millis())];
        let request = Request::of(&TIMEOUT, &timeout, &args).granting(takes);
        let first = keys.attempt(request, asked.limits)?;
        let answer = self.ask(asked, &[asked.tenure.key().full()]);
        let gone = match &answer {
            Ok(Answer { reply, .. }) if takes(reply) => true,
            Ok(_) => keys.ask("DEL", timeout[0], asked.limits.answer_by).is_ok(),
            Err(_) => false,
        };
        if !gone {
            // The sweeper frees it, with whatever became of the lock.
            asked.tenure.leave_open(first.sent, asked.lease);
        }
        answer.map(|answer| Answer { sent: first.sent, ..answer })
    }

    /// Whether a hold was prolonged, by the answers for its two keys.
    fn both(&self, tenure: &Tenure, lock: Result<Answer, Failure>, timeout: Result<Answer, Failure>) -> RenewedOne {
        let no = |answer: &Result<Answer, Failure>| matches!(answer, Ok(Answer { reply: Reply::Number(0), .. }));
        if no(&lock) || no(&timeout) {
            return Ok(None);
        }
        let (lock, timeout) = (lock?, timeout?);
        tenure.note_replicas(lock.confirmed.min(timeout.confirmed));
        let is_done = lock.reply.number()? == 1 && timeout.reply.number()? == 1;
        if is_done {
            self.sides.keys.note_life(tenure, lock.life);
        }
        Ok(is_done.then_some(lock.sent.min(timeout.sent)))
    }

    /// Renews the lock and the time-out of each tenure, by one script where both are at one node.
    fn renew_all(
        &self,
        lane: Lane,
        tenures: &[Arc<Tenure>],
        lease: Lease,
        limits: Limits<'_>,
    ) -> Result<Renewed, Failure> {
        let timeouts = timeouts_of(tenures);
        let keys = keys_of(tenures, &timeouts);
        let owners = tenures.iter().flat_map(|tenure| [Arg::Text(tenure.owner()), Arg::Text("")]);
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(owners).collect();
        let request = Request::of(&RENEW_READ, &keys, &args).granting(prolongs);
        let mut answers = self.sides.keys.attempt_all(lane, request, 2, limits)?.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Err(Failure::not_understood()));
        Ok(tenures.iter().map(|tenure| self.both(tenure, next(), next())).collect())
    }

    /// The arguments of a release of these holds; with `timeouts` it releases their time-outs, too.
    fn releasing<'a>(&'a self, tenures: &'a [Arc<Tenure>], timeouts: bool) -> impl Iterator<Item = Arg<'a>> {
        let own = move |tenure: &'a Arc<Tenure>| {
            let key = tenure.key();
            let (channel, prefix) = (Arg::Parts(key.channel_parts()), Arg::Parts(key.timeouts_parts()));
            let marks = Arg::Beside(key.writers_parts());
            let of_lock = [Arg::Text(tenure.owner()), channel, prefix, marks, self.sides.ears(key)];
            let of_timeout = timeouts.then_some([Arg::Text(""); 5]);
            of_lock.into_iter().chain(of_timeout.into_iter().flatten())
        };
        let of_all = [TRUSTS, Arg::Number(TURN), self.sides.longest()];
        of_all.into_iter().chain(tenures.iter().flat_map(own))
    }

    fn release_by(&self, keys: &[&str], tenure: &Arc<Tenure>, answer_by: Moment) -> Result<Answer, Failure> {
        let args = Args::from_iter(self.releasing(std::slice::from_ref(tenure), keys.len() > 1));
        self.sides.release(&RELEASE_READ, keys, &args, answer_by)
    }

    /// Frees the lock first: the time-out ends by itself.
    fn release_in_parts(&self, tenure: &Arc<Tenure>, timeout: &str, answer_by: Moment) -> Result<Answer, Failure> {
        let answer = self.release_by(&[tenure.key().full()], tenure, answer_by)?;
        let _ = self.sides.keys.ask("DEL", timeout, answer_by);
        Ok(answer)
    }
}

fn timeouts_of(tenures: &[Arc<Tenure>]) -> Vec<String> {
    tenures.iter().map(|tenure| tenure.key().timeout(tenure.owner())).collect()
}

/// The keys of each tenure: the lock and its time-out.
fn keys_of<'a>(tenures: &'a [Arc<Tenure>], timeouts: &'a [String]) -> Vec<&'a str> {
    tenures.iter().zip(timeouts).flat_map(|(tenure, timeout)| [tenure.key().full(), timeout.as_str()]).collect()
}

type RenewedOne = Result<Option<Moment>, Failure>;

fn only(renewed: Renewed) -> RenewedOne {
    renewed.into_iter().next().unwrap_or(Ok(None))
}

impl Primitive for Reads {
    fn take(
        &self,
        tenure: &Arc<Tenure>,
        lease: Lease,
        manner: Manner<'_>,
        limits: Limits<'_>,
    ) -> Result<Take, Failure> {
        let proof = self.proof(tenure.key());
        let shown = proof.as_ref().map_or(Arg::Text(""), |write| Arg::Parts(write.tenure().field()));
        let own = [Arg::Number(lease.millis()), Arg::Text(tenure.owner()), shown];
        let timeout = tenure.key().timeout(tenure.owner());
        let asked = Asked { tenure, timeout, own, lease, manner, limits };
        let answer = match self.ask(&asked, &[tenure.key().full(), &asked.timeout]) {
            Err(failure) if failure.is_apart() => self.ask_in_parts(&asked),
            answer => answer,
        }?;
        self.sides.keys.took(tenure, manner, &answer)
    }

    /// The count stays 1: Java adds the counts up and looks for as many time-outs.
    fn reenter(&self, tenure: &Arc<Tenure>, _: usize, lease: Lease, limits: Limits<'_>) -> RenewedOne {
        self.renew_all(Lane::Calls, std::slice::from_ref(tenure), lease, limits).and_then(only)
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, answer_by: Moment) -> Result<Renewed, Failure> {
        self.renew_all(lane, tenures, lease, Limits::of_lease(lease, answer_by))
    }

    /// The store does not know inner levels.
    fn release(&self, tenure: &Arc<Tenure>, left: usize, answer_by: Moment) -> Result<bool, Failure> {
        if left > 0 {
            return Ok(true);
        }
        let (key, timeout) = (tenure.key(), tenure.key().timeout(tenure.owner()));
        let answer = match self.release_by(&[key.full(), &timeout], tenure, answer_by) {
            Err(failure) if failure.is_apart() => self.release_in_parts(tenure, &timeout, answer_by),
            answer => answer,
        };
        let answer = self.sides.keys.answered(tenure, answer)?;
        let freed = self.sides.keys.freed(key, &answer, answer.reply.number()?);
        Ok(self.sides.keys.found(tenure, freed, &answer))
    }

    fn sweep_all(&self, tenures: &[Arc<Tenure>], answer_by: Moment) -> Result<(), Failure> {
        let timeouts = timeouts_of(tenures);
        let keys = keys_of(tenures, &timeouts);
        let args: Vec<_> = self.releasing(tenures, true).collect();
        let (request, limits) = (Request::of(&RELEASE_READ, &keys, &args), Limits::any_time(answer_by));
        let answers = self.sides.keys.attempt_all(Lane::Releases, request, 3, limits);
        let answers = answers.unwrap_or_else(|failure| keys.iter().map(|_| Err(failure.clone())).collect());
        self.sides.swept(tenures, answers.into_iter().step_by(2), |tenure| self.sweep(tenure, answer_by))
    }

    fn force_unlock(&self, key: &Key, answer_by: Moment) -> Result<(bool, Life), Failure> {
        self.sides.force_unlock(Side::Read, key, answer_by)
    }

    fn time_to_live(&self, key: &Key, answer_by: Moment) -> Result<Option<Option<Duration>>, Failure> {
        self.sides.time_to_live(Side::Read, key, answer_by)
    }

    /// The script of groups knows no sides.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        None
    }

    fn queue(&self, _: &Key) -> Option<&Queue> {
        None
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        self.sides.keys.listen(key, semaphore)
    }
}
