//! A script for many locks. Each slot gets a command of its own, for a script may touch one slot alone; each master gets one write.

use super::routes::Master;
use super::{Cluster, to_one_slot};
use crate::base::error::Applied;
use crate::base::slot::slot_of;
use crate::store::node::{Answer, Arg, Failure, Lane, Limits, Request};
use crate::store::{Answers, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// One request whose keys are in several slots.
pub(super) struct FanOut<'b> {
    cluster: &'b Cluster,
    lane: Lane,
    request: &'b Request<'b>,
    shared: usize,
    limits: Limits<'b>,
    answers: Vec<Option<Result<Answer, Failure>>>,
}

/// What of it goes to one slot.
struct SlotRequest<'a> {
    slot: u16,
    /// The numbers of the keys in the whole request.
    at: Vec<usize>,
    keys: Vec<&'a str>,
    args: Vec<Arg<'a>>,
}

/// For each slot the numbers of its keys.
type KeysBySlot = Vec<(u16, Vec<usize>)>;

impl Cluster {
    /// Masters that are out of reach come last: the keys of the others do not wait for them.
    fn by_master(&self, keys: &[&str]) -> Vec<(Option<Arc<Master>>, KeysBySlot)> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        keys.iter().enumerate().for_each(|(at, key)| slots.entry(slot_of(key)).or_default().push(at));
        let mut masters: Vec<(Option<Arc<Master>>, KeysBySlot)> = Vec::new();
        for slot in slots {
            let master = self.routes.known(slot.0);
            let at = master.as_ref().map(Arc::as_ptr);
            match masters.iter_mut().find(|(known, _)| known.as_ref().map(Arc::as_ptr) == at) {
                Some((_, slots)) => slots.push(slot),
                None => masters.push((master, vec![slot])),
            }
        }
        masters.sort_by_key(|(master, _)| master.as_ref().is_none_or(|master| master.is_out_of_reach()));
        masters
    }

    /// The numbers of the keys that each master has.
    pub(super) fn keys_by_master(&self, keys: &[&str]) -> Vec<Vec<usize>> {
        let all = |(_, slots): (_, KeysBySlot)| slots.into_iter().flat_map(|(_, at)| at).collect();
        self.by_master(keys).into_iter().map(all).collect()
    }
}

impl<'b> FanOut<'b> {
    pub(super) fn new(
        cluster: &'b Cluster,
        lane: Lane,
        request: &'b Request<'b>,
        shared: usize,
        limits: Limits<'b>,
    ) -> Self {
        let answers = request.keys.iter().map(|_| None).collect();
        Self { cluster, lane, request, shared, limits, answers }
    }

    pub(super) fn run(mut self) -> Answers {
        let mut astray = Vec::new();
        for (master, parts) in self.by_master() {
            match master {
                Some(master) => astray.extend(self.send(&master, parts)),
                None => astray.extend(parts),
            }
        }
        astray.into_iter().for_each(|part| self.send_alone(&part));
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(Failure::not_understood()))).collect()
    }

    fn by_master(&self) -> Vec<(Option<Arc<Master>>, Vec<SlotRequest<'b>>)> {
        let parts = |slots: KeysBySlot| slots.into_iter().map(|(slot, at)| self.part(slot, at)).collect();
        self.cluster.by_master(self.request.keys).into_iter().map(|(master, slots)| (master, parts(slots))).collect()
    }

    fn part(&self, slot: u16, at: Vec<usize>) -> SlotRequest<'b> {
        let request = self.request;
        let (first, rest) = request.args.split_at(self.shared);
        let each = rest.len() / request.keys.len().max(1);
        let own = at.iter().flat_map(|at| &rest[at * each..(at + 1) * each]);
        let args = first.iter().chain(own).copied().collect();
        SlotRequest { slot, keys: at.iter().map(|at| request.keys[*at]).collect(), args, at }
    }

    /// Sends each slot its part. Returns the parts that a command of their own may still serve.
    fn send(&mut self, node: &Master, parts: Vec<SlotRequest<'b>>) -> Vec<SlotRequest<'b>> {
        let each = {
            let requests: Vec<_> = parts.iter().map(|part| part.request(self.request)).collect();
            match node.take_part(self.lane, || node.backend.attempt_each(self.lane, &requests, self.limits)) {
                Ok(each) => each,
                Err(failure) => parts.iter().map(|_| Err(failure.clone())).collect(),
            }
        };
        let mut astray = Vec::new();
        for (part, answer) in parts.into_iter().zip(each) {
            match answer {
                Err(failure) if failure.is_on_its_way() || is_astray(&failure, node) => astray.push(part),
                answer => self.note(&part, answer),
            }
        }
        astray
    }

    fn note(&mut self, part: &SlotRequest<'_>, answer: Result<Answer, Failure>) {
        if answer.as_ref().is_err_and(Failure::may_pass) {
            self.cluster.scouts.urge();
        }
        match answer.and_then(|answer| answer.one_each(part.at.len())) {
            Ok(answers) => part.at.iter().zip(answers).for_each(|(at, answer)| self.answers[*at] = Some(answer)),
            Err(failure) => part.at.iter().for_each(|at| self.answers[*at] = Some(Err(failure.clone()))),
        }
    }

    /// Sends a part as a command of its own, which follows redirections. If that is refused, each key gets a command: a slot on its way
    /// may have some of its keys here and some there.
    fn send_alone(&mut self, part: &SlotRequest<'b>) {
        match self.cluster.attempt(self.lane, &part.request(self.request), self.limits) {
            Err(Failure::Refused { applied: Applied::No, .. }) if part.at.len() > 1 => {
                for at in &part.at {
                    self.send_alone(&self.part(part.slot, vec![*at]));
                }
            }
            answer => self.note(part, answer),
        }
    }
}

/// Whether a command of its own may still be served: nothing was done, and the master is not out of reach.
fn is_astray(failure: &Failure, master: &Master) -> bool {
    match failure {
        Failure::Unreached(_) => master.backend.server().is_retired(),
        failure => failure.applied() == Applied::No,
    }
}

impl SlotRequest<'_> {
    fn request<'a>(&'a self, of: &Request<'a>) -> Request<'a> {
        to_one_slot(Request { keys: &self.keys, args: &self.args, ..*of })
    }
}

impl Master {
    fn is_out_of_reach(&self) -> bool {
        self.backend.outage().lasted().is_some()
    }

    /// One renewal thread at a time waits for a master that is out of reach: the others have renewals at other masters.
    fn take_part<T>(&self, lane: Lane, act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        if lane != Lane::Renewals || !self.is_out_of_reach() {
            return act();
        }
        match (self.is_waited_for.swap(true, SeqCst), self.backend.outage().last_failure()) {
            (true, Some(failure)) => Err(failure.never_sent()),
            _ => {
                let done = act();
                self.is_waited_for.store(false, SeqCst);
                done
            }
        }
    }
}
