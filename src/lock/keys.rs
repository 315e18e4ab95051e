//! Locks as keys of one Redis server: what one script does for each step of the accounting.

use super::primitive::{GroupPrimitive, Listening, Primitive, Renewed, Take, TakeAll};
use crate::backend::{Answer, Arg, Backend, Failure, Lane, Limits, Reply, Request, Verb};
use crate::config::Config;
use crate::error::{Applied, Cause};
use crate::key::Key;
use crate::pubsub::PubSub;
use crate::script::{self, Script};
use crate::signal::Semaphore;
use crate::tenure::Tenure;
use crate::time::{Lease, Moment};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The commands of a lock's kind at a server, alone or as a node of a quorum.
pub(super) struct Keys {
    backend: Arc<Backend>,
    pubsub: Arc<PubSub>,
    /// Of a strict client: the key that tells whether the server lost its data, and the quarantine in ms.
    epoch: Option<(String, u64)>,
    /// A publish was refused, and that was said.
    unheard: AtomicBool,
    /// A quarantine is going on, and that was said.
    quiet: AtomicBool,
}

impl Keys {
    pub(super) fn new(backend: Arc<Backend>, pubsub: Arc<PubSub>, config: &Config) -> Self {
        let epoch = || (format!("{}redlatch:epoch", config.key_prefix), config.watchdog_lease.millis());
        let (unheard, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { backend, pubsub, epoch: config.strict.then(epoch), unheard, quiet }
    }

    fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[Arg<'_>],
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let request = Request { verb: Verb::Script(script), keys, args };
        self.backend.attempt(Lane::Calls, &request, limits)
    }

    /// What a script that frees says. That waiters were not told is logged once: they find out by polling.
    fn freed(&self, key: &Key, number: i64) -> Freed {
        let freed = Freed::of(number);
        if freed == Freed::Untold && !self.unheard.swap(true, Relaxed) {
            log::warn!(
                "the server refuses to publish on {:?}, so waiters poll: grant this user the channel",
                key.channel()
            );
        }
        freed
    }

    /// One of those who were told may be this client itself.
    fn were_others_told(&self, key: &Key, told: i64) -> bool {
        told > 1 || (told == 1 && !self.pubsub.hears(&key.channel()))
    }

    fn ask_for(&self, tenure: &Tenure, lease: Lease, until: Moment) -> Result<Answer, Failure> {
        let key = tenure.key().full();
        let limits = Limits { until, window: lease.validity() };
        let [owner, count, lease] = [Arg::Text(tenure.owner()), Arg::Number(1), Arg::Number(lease.millis())];
        let Some((epoch, quarantine)) = &self.epoch else {
            return self.call(&script::ACQUIRE, &[key], &[owner, count, lease, Arg::Deadline], limits);
        };
        let args = [owner, count, lease, Arg::Deadline, Arg::RunId, Arg::Number(*quarantine)];
        let answer = self.call(&script::ACQUIRE_STRICT, &[key, epoch], &args, limits)?;
        if !matches!(answer.reply, Reply::Numbers(_)) {
            self.quiet.store(false, Relaxed);
        }
        Ok(answer)
    }

    /// Strict mode: the server may have forgotten who holds what, so it grants nothing for a while.
    fn quarantined(&self, left: &[i64]) -> Result<Take, Failure> {
        let &[left] = left else { return Err(not_understood()) };
        if !self.quiet.swap(true, Relaxed) {
            let server = self.backend.server().address();
            log::warn!("{server} lost its data or is new to strict mode: it grants no lock for {left} ms");
        }
        Ok(busy(left))
    }

    fn ask(&self, command: &'static str, key: &Key, until: Moment) -> Result<i64, Failure> {
        let request = Request { verb: Verb::Command(command), keys: &[key.full()], args: &[] };
        number(&self.backend.attempt(Lane::Calls, &request, any_time(until))?)
    }
}

/// What a script that frees a lock says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    NotHeld,
    /// Done, but the server refuses to publish.
    Untold,
    /// Done, and so many connections were told.
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

    fn is_done(self) -> bool {
        self != Self::NotHeld
    }
}

/// Limits of a command that does no harm however late it is executed.
fn any_time(until: Moment) -> Limits {
    Limits { until, window: Duration::MAX }
}

/// Taken for so many ms; negative: without an end.
fn busy(left: i64) -> Take {
    Take::Busy(u64::try_from(left).ok().map(Duration::from_millis))
}

fn number(answer: &Answer) -> Result<i64, Failure> {
    match answer.reply {
        Reply::Number(number) => Ok(number),
        _ => Err(not_understood()),
    }
}

fn not_understood() -> Failure {
    let cause = Cause::new("the reply is not one of the lock's scripts: is this a Redis server?");
    Failure::Refused { code: "ERR".to_owned(), applied: Applied::Unknown, cause }
}

impl Primitive for Keys {
    fn take(&self, tenure: &Arc<Tenure>, lease: Lease, until: Moment) -> Result<Take, Failure> {
        let answer = self.ask_for(tenure, lease, until)?;
        match answer.reply {
            Reply::Nil => Ok(Take::Acquired(answer.sent)),
            Reply::Number(left) => Ok(busy(left)),
            Reply::Numbers(left) => self.quarantined(&left),
            Reply::Other => Err(not_understood()),
        }
    }

    fn reenter(
        &self,
        tenure: &Arc<Tenure>,
        count: usize,
        lease: Lease,
        until: Moment,
    ) -> Result<Option<Moment>, Failure> {
        let count = Arg::Number(count as u64);
        let args = [Arg::Text(tenure.owner()), count, Arg::Number(lease.millis()), Arg::Deadline];
        let limits = Limits { until, window: lease.validity() };
        let answer = self.call(&script::REENTER, &[tenure.key().full()], &args, limits)?;
        Ok((number(&answer)? == 1).then_some(answer.sent))
    }

    fn renew(&self, lane: Lane, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<Renewed, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let owners = tenures.iter().map(|tenure| Arg::Text(tenure.owner()));
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(owners).collect();
        let request = Request { verb: Verb::Script(&script::RENEW), keys: &keys, args: &args };
        let answer = self.backend.attempt(lane, &request, Limits { until, window: lease.validity() })?;
        match answer.reply {
            Reply::Numbers(held) if held.len() == tenures.len() => {
                Ok((answer.sent, held.into_iter().map(|held| Ok(held == 1)).collect()))
            }
            _ => Err(not_understood()),
        }
    }

    fn release(&self, tenure: &Arc<Tenure>, left: usize, until: Moment) -> Result<bool, Failure> {
        let key = tenure.key();
        let args = [Arg::Text(tenure.owner()), Arg::Number(left as u64), Arg::Parts(key.channel_parts())];
        let number = number(&self.call(&script::RELEASE, &[key.full()], &args, any_time(until))?)?;
        let freed = self.freed(key, number);
        if let (0, Freed::Told(told)) = (left, freed) {
            tenure.note_told(self.were_others_told(key, told));
        }
        Ok(freed.is_done())
    }

    fn force_unlock(&self, key: &Key, until: Moment) -> Result<bool, Failure> {
        let args = [Arg::Parts(key.channel_parts())];
        let answer = self.call(&script::FORCE_UNLOCK, &[key.full()], &args, any_time(until))?;
        Ok(self.freed(key, number(&answer)?).is_done())
    }

    /// In strict mode each acquire looks at the epoch too, one lock at a time.
    fn group(&self) -> Option<&dyn GroupPrimitive> {
        if self.epoch.is_none() { Some(self) } else { None }
    }

    fn place(&self) -> String {
        self.backend.server().address()
    }

    /// HLEN comes first because it refuses a key of another type, which PTTL would call a lock.
    fn time_to_live(&self, key: &Key, until: Moment) -> Result<Option<Option<Duration>>, Failure> {
        if self.ask("HLEN", key, until)? == 0 {
            return Ok(None);
        }
        match self.ask("PTTL", key, until)? {
            -2 => Ok(None),
            left => Ok(Some(u64::try_from(left).ok().map(Duration::from_millis))),
        }
    }

    fn listen(&self, key: &Key, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        let listening = self.pubsub.listen(&key.channel(), semaphore);
        let listening =
            listening.inspect_err(|error| log::warn!("no thread for the subscriber, waiters poll: {error}"));
        listening.ok().map(|subscription| Box::new(subscription) as _)
    }

    fn last_failure(&self) -> Option<Failure> {
        self.backend.last_failure()
    }

    fn outage_ends(&self, now: Moment) -> Moment {
        self.backend.outage_ends(now)
    }
}

impl GroupPrimitive for Keys {
    fn take_all(&self, tenures: &[Arc<Tenure>], lease: Lease, until: Moment) -> Result<TakeAll, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let owners = tenures.iter().map(|tenure| Arg::Text(tenure.owner()));
        let args: Vec<_> = [Arg::Deadline, Arg::Number(lease.millis())].into_iter().chain(owners).collect();
        let limits = Limits { until, window: lease.validity() };
        let answer = self.call(&script::ACQUIRE_GROUP, &keys, &args, limits)?;
        match usize::try_from(number(&answer)?) {
            Ok(0) => Ok(TakeAll::Acquired(answer.sent)),
            Ok(taken) if taken <= tenures.len() => Ok(TakeAll::Busy(taken - 1)),
            _ => Err(not_understood()),
        }
    }

    fn release_all(&self, tenures: &[Arc<Tenure>], until: Moment) -> Result<Vec<bool>, Failure> {
        let keys: Vec<_> = tenures.iter().map(|tenure| tenure.key().full()).collect();
        let args =
            tenures.iter().flat_map(|tenure| [Arg::Text(tenure.owner()), Arg::Parts(tenure.key().channel_parts())]);
        let args: Vec<_> = args.collect();
        let answer = self.call(&script::RELEASE_GROUP, &keys, &args, any_time(until))?;
        match answer.reply {
            Reply::Numbers(released) if released.len() == tenures.len() => {
                let released = tenures.iter().zip(released);
                Ok(released.map(|(tenure, number)| self.freed(tenure.key(), number).is_done()).collect())
            }
            _ => Err(not_understood()),
        }
    }
}
