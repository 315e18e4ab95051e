//! What the next calls of a [`LocalRedLock`](super::LocalRedLock) meet: users plan this to test their error paths.

use crate::base::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// What one call is to meet.
#[derive(Debug)]
pub(super) enum Step {
    Pass,
    Fail(Error),
    Busy,
    Lose,
}

/// The steps of each resource in order; those without a resource, under no name, are for any.
#[derive(Default)]
pub(super) struct Plan {
    steps: Mutex<HashMap<String, VecDeque<Step>>>,
    /// How many there are: a program that plans nothing pays one look for it.
    count: AtomicUsize,
}

impl Plan {
    pub(super) fn add(&self, resource: &str, step: Step) {
        let mut steps = self.steps.lock();
        steps.entry(resource.to_owned()).or_default().push_back(step);
        self.count.fetch_add(1, SeqCst);
    }

    /// How many were not met yet.
    pub(super) fn len(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// The next step, if it is for such a call; one that is not stays first in its line.
    pub(super) fn next(&self, resource: &str, is_for_it: impl Fn(&Step) -> bool) -> Option<Step> {
        if self.len() == 0 {
            return None;
        }
        let mut steps = self.steps.lock();
        let mut next = |name| {
            let line = steps.get_mut(name)?;
            line.front().is_some_and(&is_for_it).then(|| line.pop_front())?
        };
        let step = next(resource).or_else(|| next(""))?;
        self.count.fetch_sub(1, SeqCst);
        Some(step)
    }

    /// Fails a call that does not acquire, if that is its next step.
    pub(super) fn check(&self, resource: &str) -> Result<()> {
        match self.next(resource, |step| matches!(step, Step::Pass | Step::Fail(_))) {
            Some(Step::Fail(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
