//! Operations on a counter: what is not idempotent by itself is done once, however often its command is executed (docs/protocol.md, 19).
//!
//! An operation has a lane and a number. The server keeps the last number of each lane beside its result. A copy of a command finds the result
//! of its own number, or a later number: then its call is over, and the copy does nothing.

use super::keys::Keys;
use super::patience::Patience;
use crate::base::error::{Applied, Result};
use crate::base::key::Key;
use crate::base::script::Script;
use crate::base::time::{Clock, Lease, Moment, whole_millis};
use crate::client::Space;
use crate::lease::sweeper::Sweeper;
use crate::store::node::{Answer, Arg, Failure, Limits, Reply, Request};
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The operations of a client on the counters of a kind.
pub(super) struct Operations {
    client: String,
    /// Kinds do not share their lanes: each counts by itself.
    kind: char,
    lanes: AtomicU64,
    /// The lanes that no operation uses now. There are as many as threads that had operations at once, so as many results stay for a name.
    free: Mutex<Vec<Lane>>,
    /// For how long attempts of a call may begin.
    within: Duration,
    sweeper: Sweeper,
}

/// A lane, and the number of its last operation.
#[derive(Clone, Copy)]
struct Lane {
    id: u64,
    number: u64,
}

/// The background goes on with an operation for so many times the time of its call.
const LATER: u32 = 10;

/// The result of an operation lives so much longer than an attempt of it may be executed: clocks drift.
const LONGER: Duration = Duration::from_secs(1);

/// An operation whose call is over, and which the background undoes or finishes.
pub(super) struct Left {
    /// The key of its lane.
    pub(super) lane: String,
    pub(super) number: u64,
    /// Until when attempts of the background may begin.
    pub(super) until: Moment,
    pub(super) latest: Moment,
    /// A shutdown waits for what no lease ends.
    _needed: Option<Sender<()>>,
}

impl Operations {
    pub(super) fn new(space: &Space, kind: char) -> Self {
        let within = space.config.outage_budget.max(space.config.response_timeout);
        let (client, sweeper) = (space.id.to_string(), space.sweeper.clone());
        Self { client, kind, lanes: AtomicU64::new(1), free: Mutex::default(), within, sweeper }
    }

    /// A new operation on a counter. Attempts of its call begin within the outage budget from now, and a shutdown waits for it.
    pub(super) fn begin(&self, key: &Key) -> Operation<'_> {
        let free = self.free.lock().pop();
        let Lane { id, number } = free.unwrap_or_else(|| Lane { id: self.lanes.fetch_add(1, SeqCst), number: 0 });
        let lane = Lane { id, number: number + 1 };
        let place = self.place(key, id);
        let now = Clock::Boot.now();
        let (ends, latest) = (now.plus(self.within), now.plus(self.longest()));
        Operation {
            all: self,
            lane,
            is_left: false,
            place,
            ends,
            latest,
            open_until: None,
            needed: self.sweeper.need(),
        }
    }

    /// The key of a lane. Each call makes one, so nothing is formatted here.
    fn place(&self, key: &Key, lane: u64) -> String {
        let [before, name, after] = key.operations_parts();
        let (mut kind, mut number) = ([0; 4], itoa::Buffer::new());
        [before, name, after, &self.client, ":", self.kind.encode_utf8(&mut kind), number.format(lane)].concat()
    }

    /// For how long after its beginning an attempt of an operation may be executed: those of its call and of the background, and one response
    /// time-out for the last.
    fn longest(&self) -> Duration {
        self.within.saturating_mul(LATER + 2).min(Lease::MAX)
    }

    /// For how long a result is kept after it was written, ms.
    pub(super) fn kept(&self) -> u64 {
        whole_millis(self.longest() + LONGER)
    }
}

/// One operation: all of its attempts have the same number.
pub(super) struct Operation<'a> {
    all: &'a Operations,
    lane: Lane,
    /// Nobody may use the lane again.
    is_left: bool,
    place: String,
    ends: Moment,
    /// No attempt may be executed after that, however late it is sent: its result is forgotten some time later.
    latest: Moment,
    open_until: Option<Moment>,
    needed: Option<Sender<()>>,
}

impl Operation<'_> {
    /// The arguments of its script: the deadline of the attempt, its number, and how long its result is kept.
    pub(super) fn args<'b>(&self) -> [Arg<'b>; 3] {
        [Arg::Deadline, Arg::Number(self.lane.number), Arg::Number(self.all.kept())]
    }

    /// Makes attempts until one is answered; the number that it says. `others`: the keys of the script behind the counter and the lane. `tells`:
    /// what the waiters are told if they listen at another node than the script told.
    pub(super) fn run(
        &mut self,
        keys: &Keys,
        patience: &Patience<'_>,
        by: &'static Script,
        (key, others): (&Key, &[&str]),
        rest: &[Arg<'_>],
        tells: fn(i64) -> Option<&'static str>,
    ) -> Result<i64> {
        let args: Vec<_> = self.args().into_iter().chain(rest.iter().copied()).collect();
        let attempt = |answer_by| {
            let answer = self.attempt(keys, by, (key, others), &args, None, Limits::any_time(answer_by))?;
            let number = answer.reply.number()?;
            tells(number).into_iter().for_each(|payload| keys.tell_elsewhere(key, &answer, payload));
            Ok(number)
        };
        patience.persist(attempt)
    }

    /// Makes one attempt.
    pub(super) fn attempt(
        &mut self,
        keys: &Keys,
        by: &'static Script,
        (key, others): (&Key, &[&str]),
        args: &[Arg<'_>],
        grants: Option<fn(&Reply) -> bool>,
        limits: Limits<'_>,
    ) -> Result<Answer, Failure> {
        let names: Vec<_> = [key.full(), self.place.as_str()].into_iter().chain(others.iter().copied()).collect();
        let request = Request { grants, ..Request::of(by, &names, args) };
        let answered = keys.attempt(request, Limits { latest: self.latest, ..limits });
        if let Err(failure) = &answered {
            self.note(failure);
        }
        answered
    }

    /// Remembers until when an attempt without an answer may be executed.
    fn note(&mut self, failure: &Failure) {
        let open = match failure {
            Failure::Unknown { open_until, .. } => *open_until,
            failure if failure.applied() == Applied::Unknown => Clock::Boot.now(),
            _ => return,
        };
        self.open_until = self.open_until.max(Some(open));
    }

    /// Until when an attempt without an answer may be executed; `None` if each was answered.
    pub(super) fn open_until(&self) -> Option<Moment> {
        self.open_until
    }

    /// When its last attempt is over.
    pub(super) fn ends(&self) -> Moment {
        self.ends
    }

    /// A patience that ends with the operation.
    pub(super) fn within<'p>(&self, patience: Patience<'p>) -> Patience<'p> {
        patience.until(self.ends)
    }

    /// Leaves the operation to the background. From now on no other uses the lane.
    pub(super) fn leave(&mut self) -> Left {
        self.is_left = true;
        let until = self.ends.plus(self.all.within.saturating_mul(LATER));
        let (lane, number) = (self.place.clone(), self.lane.number);
        Left { lane, number, until, latest: self.latest, _needed: self.needed.take() }
    }
}

/// A copy of it that comes after a later operation of the lane finds a greater number there.
impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.all.free.lock().extend(Some(self.lane).filter(|_| !self.is_left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Settings;
    use crate::base::key::Naming;
    use crate::client::Listeners;
    use std::collections::HashSet;

    #[test]
    fn a_lane_has_one_operation_at_a_time_and_its_numbers_grow() {
        let operations = Operations::new(&Space::new(Settings::default().derive().unwrap(), Listeners::default()), 's');
        let key = Key::new(Naming::default(), "", "n");
        let seen = |operation: &Operation<'_>| (operation.lane.id, operation.lane.number);
        let (one, other) = (operations.begin(&key), operations.begin(&key));
        assert_eq!([seen(&one), seen(&other)], [(1, 1), (2, 1)]);
        drop(other);
        assert_eq!(seen(&operations.begin(&key)), (2, 2));
        let mut left = operations.begin(&key);
        left.leave();
        drop((left, one));
        let later: HashSet<_> = [operations.begin(&key), operations.begin(&key)].iter().map(seen).collect();
        assert_eq!(later, HashSet::from([(1, 2), (3, 1)]));
    }
}
