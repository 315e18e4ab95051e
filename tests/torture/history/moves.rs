//! Slots that went to another master. They take no lock away, and excuse nothing.

use super::belief::Belief;
use super::names::Names;

/// One slot and its locks, by the clock of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) names: Names,
    pub(crate) began: u64,
    /// From when to when it was left halfway.
    pub(crate) halfway: (u64, u64),
    pub(crate) ended: u64,
}

impl Move {
    /// Whether somebody was granted a lock of the slot while that was halfway.
    fn has_granted(&self, belief: &Belief) -> bool {
        self.names.has(belief.name) && (self.halfway.0..self.halfway.1).contains(&belief.from)
    }
}

/// How many locks were granted in slots that were left halfway.
pub(crate) fn granted_halfway(beliefs: &[Belief], moves: &[Move]) -> usize {
    beliefs.iter().filter(|belief| moves.iter().any(|moved| moved.has_granted(belief))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_count_for_their_slot_while_it_is_halfway() {
        let granted = |name, from| Belief { name, from, to: from, holder: 0, ended: from, ..Belief::default() };
        let moved = Move { names: Names::of([1]), began: 10, halfway: (20, 30), ended: 40 };
        let beliefs = [granted(1, 15), granted(1, 20), granted(0, 25), granted(1, 29), granted(1, 30)];
        assert_eq!(granted_halfway(&beliefs, &[moved]), 2);
    }
}
