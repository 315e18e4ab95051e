//! A command for keys of several slots: one for each slot.
//!
//! A node that does not answer is waited for once, not once a slot; and of the renewals, one at a time waits for it: else they
//! would keep all threads from renewing what other nodes have.

use super::Cluster;
use super::routes::Node;
use crate::base::error::Applied;
use crate::base::slot::slot_of;
use crate::store::node::{Arg, Broken, Failure, Lane, Limits, Request};
use crate::store::{Answers, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub(super) struct Whole<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) lane: Lane,
    pub(super) request: &'a Request<'a>,
    /// So many of its arguments are for all keys.
    pub(super) shared: usize,
    pub(super) limits: Limits,
}

/// The nodes that did not answer, and what is said of it.
type Silent = Vec<(Arc<Node>, Failure)>;

impl Whole<'_> {
    pub(super) fn attempt(&self) -> Answers {
        let (mut answers, mut silent): (Vec<_>, Silent) = (self.none(), Vec::new());
        for (slot, at) in self.slots() {
            let said = self.attempt_at_node(slot, &at, &mut silent);
            at.into_iter().zip(said).for_each(|(at, answer)| answers[at] = answer);
        }
        answers
    }

    fn none(&self) -> Answers {
        self.request.keys.iter().map(|_| Err(Failure::not_understood())).collect()
    }

    /// Which of the keys are in which slot; those first whose nodes answer.
    fn slots(&self) -> Vec<(u16, Vec<usize>)> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        self.request.keys.iter().enumerate().for_each(|(at, key)| slots.entry(slot_of(key)).or_default().push(at));
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_by_cached_key(|(slot, _)| self.cluster.routes.known(*slot).is_some_and(|node| node.is_out()));
        slots
    }

    fn attempt_at_node(&self, slot: u16, at: &[usize], silent: &mut Silent) -> Answers {
        let Some(node) = self.cluster.routes.known(slot) else { return self.attempt_slot(at) };
        let known = silent.iter().find(|(known, _)| Arc::ptr_eq(known, &node)).map(|(_, failure)| failure.clone());
        let turn = if self.lane == Lane::Renewals { node.turn() } else { Some(Turn(None)) };
        let failure = known.or_else(|| if turn.is_none() { Some(awaited(&node)) } else { None });
        if let Some(failure) = failure {
            return each(at, &failure);
        }
        let said = self.attempt_slot(at);
        if let Some(Err(failure)) = said.first().filter(|said| said.as_ref().is_err_and(Failure::is_timeout)) {
            silent.push((Arc::clone(&node), failure.clone().never_sent()));
        }
        said
    }

    /// Those of the keys that are in one slot, by one command; by one each where that is refused, as for a slot that is being
    /// moved and has some of its keys here and some there.
    fn attempt_slot(&self, at: &[usize]) -> Answers {
        let part = Part::of(self.request, self.shared, at);
        let answer = self.cluster.attempt(self.lane, &part.request(self.request), self.limits);
        match answer.and_then(|answer| answer.one_each(at.len())) {
            Ok(answers) => answers,
            Err(Failure::Refused { applied: Applied::No, .. }) if at.len() > 1 => {
                at.iter().flat_map(|one| self.attempt_slot(&[*one])).collect()
            }
            Err(failure) => each(at, &failure),
        }
    }
}

fn each(at: &[usize], failure: &Failure) -> Answers {
    at.iter().map(|_| Err(failure.clone())).collect()
}

/// What is said of a node that another renewal waits for.
fn awaited(node: &Node) -> Failure {
    let unknown = || Failure::Unreached(Broken::new("it does not answer"));
    node.backend.outage().last_failure().unwrap_or_else(unknown).never_sent()
}

/// Whoever waits for a node that does not answer, until this is dropped.
struct Turn<'a>(Option<&'a AtomicBool>);

impl Node {
    /// Whether it has not answered, as far as anyone tried.
    fn is_out(&self) -> bool {
        self.backend.outage().lasted().is_some()
    }

    /// One that answers may be waited for by all.
    fn turn(&self) -> Option<Turn<'_>> {
        match self.is_out() {
            true if self.is_awaited.swap(true, SeqCst) => None,
            true => Some(Turn(Some(&self.is_awaited))),
            false => Some(Turn(None)),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|is_awaited| is_awaited.store(false, SeqCst));
    }
}

/// What of a request for several keys is for some of them.
struct Part<'a> {
    keys: Vec<&'a str>,
    args: Vec<Arg<'a>>,
}

impl<'a> Part<'a> {
    fn of(request: &Request<'a>, shared: usize, at: &[usize]) -> Self {
        let (first, rest) = request.args.split_at(shared);
        let each = rest.len() / request.keys.len().max(1);
        let own = at.iter().flat_map(|at| &rest[at * each..(at + 1) * each]);
        Self { keys: at.iter().map(|at| request.keys[*at]).collect(), args: first.iter().chain(own).copied().collect() }
    }

    fn request(&'a self, of: &Request<'_>) -> Request<'a> {
        Request { grants: of.grants, may_ask: of.may_ask, ..Request::new(of.verb, &self.keys, &self.args) }
    }
}
