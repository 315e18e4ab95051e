//! What became of each add, beside what its set has in the end.

use std::collections::HashMap;

/// Each add of a run has an element of its own.
pub(crate) type Element = u64;

/// What a worker says of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acknowledged,
    /// Not applied, for the hold was over: a stale write was stopped.
    Refused,
    /// Not applied, for another reason.
    Failed,
    /// Applied or not. A worker that was killed says no more than that.
    Unknown,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Acknowledged, Self::Refused, Self::Failed, Self::Unknown];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word).expect("an outcome")
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Add {
    pub(crate) set: usize,
    pub(crate) element: Element,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) attempts: usize,
    pub(crate) acknowledged: usize,
    pub(crate) refused: usize,
    pub(crate) failed: usize,
    pub(crate) unknown: usize,
    /// Acknowledged and absent.
    pub(crate) lost: Vec<Element>,
    /// Failed or refused and present, or present and of no add.
    pub(crate) unexpected: Vec<Element>,
    /// Unknown and present.
    pub(crate) recovered: usize,
    /// Copies of an element beside the first.
    pub(crate) duplicates: usize,
}

pub(crate) fn judge(adds: &[Add], sets: &[Vec<Element>]) -> Counts {
    let mut present: HashMap<(usize, Element), usize> = HashMap::new();
    for (set, elements) in sets.iter().enumerate() {
        elements.iter().for_each(|element| *present.entry((set, *element)).or_default() += 1);
    }
    let mut counts = Counts { attempts: adds.len(), ..Counts::default() };
    for add in adds {
        let copies = present.remove(&(add.set, add.element)).unwrap_or(0);
        counts.duplicates += copies.saturating_sub(1);
        counts.count(add, copies > 0);
    }
    counts.unexpected.extend(present.into_keys().map(|(_, element)| element));
    counts
}

impl Counts {
    fn count(&mut self, add: &Add, is_present: bool) {
        match add.outcome {
            Outcome::Acknowledged => self.acknowledged += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Unknown => self.unknown += 1,
        }
        match (add.outcome, is_present) {
            (Outcome::Acknowledged, false) => self.lost.push(add.element),
            (Outcome::Refused | Outcome::Failed, true) => self.unexpected.push(add.element),
            (Outcome::Unknown, true) => self.recovered += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Add, Counts, Element, Outcome, judge};

    fn judged(adds: &[(usize, Element, Outcome)], sets: &[&[Element]]) -> Counts {
        let adds: Vec<_> = adds.iter().map(|&(set, element, outcome)| Add { set, element, outcome }).collect();
        judge(&adds, &sets.iter().map(|set| set.to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn an_acknowledged_element_that_is_absent_is_lost() {
        let counts = judged(&[(0, 1, Outcome::Acknowledged), (0, 2, Outcome::Acknowledged)], &[&[2]]);
        assert_eq!((counts.attempts, counts.acknowledged, counts.lost), (2, 2, vec![1]));
        assert!(counts.unexpected.is_empty());
    }

    #[test]
    fn a_failed_or_refused_element_that_is_present_is_unexpected() {
        let adds = [(0, 1, Outcome::Failed), (0, 2, Outcome::Refused), (0, 3, Outcome::Failed)];
        let counts = judged(&adds, &[&[1, 2]]);
        assert_eq!((counts.failed, counts.refused, counts.unexpected), (2, 1, vec![1, 2]));
        assert!(counts.lost.is_empty());
    }

    #[test]
    fn an_unknown_element_may_be_present_or_absent() {
        let counts = judged(&[(0, 1, Outcome::Unknown), (0, 2, Outcome::Unknown)], &[&[2]]);
        assert_eq!((counts.unknown, counts.recovered), (2, 1));
        assert_eq!((counts.lost, counts.unexpected), (vec![], vec![]));
    }

    #[test]
    fn an_element_in_a_set_of_another_add_is_lost_and_unexpected() {
        let counts = judged(&[(0, 1, Outcome::Acknowledged)], &[&[], &[1]]);
        assert_eq!((counts.lost, counts.unexpected), (vec![1], vec![1]));
    }

    #[test]
    fn each_further_copy_is_a_duplicate() {
        let counts = judged(&[(0, 1, Outcome::Acknowledged)], &[&[1, 1, 1]]);
        assert_eq!((counts.duplicates, counts.lost), (2, vec![]));
    }

    #[test]
    fn each_outcome_has_a_word_of_its_own() {
        Outcome::ALL.iter().for_each(|outcome| assert_eq!(Outcome::of(outcome.word()), *outcome));
    }
}
