//! What the workers of a way said, and what was done to them.

use crate::checker::{Add, Element, Outcome};
use crate::nemesis::Act;
use crate::worker::{Says, worker_of};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(crate) struct History {
    start: Instant,
    adds: BTreeMap<Element, Add>,
    /// The adds that have their lock and have not written yet.
    holding: BTreeSet<Element>,
    acts: BTreeMap<Act, usize>,
    /// All of that with its times, for the reader of a finding.
    log: String,
}

impl History {
    pub(crate) fn new() -> Self {
        let (adds, holding, acts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { start: Instant::now(), adds, holding, acts, log: String::new() }
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.log.push_str(&format!("{:.3} s: {what}\n", self.start.elapsed().as_secs_f64()));
    }

    pub(crate) fn hear(&mut self, line: &str) {
        self.note(line);
        match Says::of(line) {
            Says::Begins(set, element) => {
                self.adds.insert(element, Add { set, element, outcome: Outcome::Unknown });
            }
            Says::Holds(element) => drop(self.holding.insert(element)),
            Says::Ends(element, outcome) => {
                self.holding.remove(&element);
                self.adds.get_mut(&element).expect("it began").outcome = outcome;
            }
        }
    }

    pub(crate) fn count(&mut self, act: Act, what: &str) {
        *self.acts.entry(act).or_default() += 1;
        self.note(&format!("{act:?} {what}"));
    }

    /// A worker is dead, and holds nothing that it could still write.
    pub(crate) fn bury(&mut self, worker: u64) {
        self.holding.retain(|element| worker_of(*element) != worker);
    }

    pub(crate) fn holders(&self) -> Vec<u64> {
        self.holding.iter().map(|element| worker_of(*element)).collect()
    }

    pub(crate) fn adds(&self) -> Vec<Add> {
        self.adds.values().copied().collect()
    }

    pub(crate) fn acts(&self) -> &BTreeMap<Act, usize> {
        &self.acts
    }

    pub(crate) fn log(&self) -> &str {
        &self.log
    }
}
