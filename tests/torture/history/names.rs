//! Which of the locks something is about: those of one master, or all.

use super::sides::{LOCKS, lock_of};
use super::waits::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names(u128);

impl Names {
    pub(crate) const ALL: Self = Self(u128::MAX);

    pub(crate) fn of(names: impl IntoIterator<Item = u8>) -> Self {
        Self(names.into_iter().fold(0, |all, name| all | 1 << lock_of(name)))
    }

    /// Locks of every kind that have these numbers, and so are in the same slots.
    pub(crate) fn in_slots(numbers: impl IntoIterator<Item = u8>) -> Self {
        let Self(some) = Self::of(numbers);
        Self(some | some << LOCKS)
    }

    pub(crate) fn has(self, name: u8) -> bool {
        self.0 >> lock_of(name) & 1 == 1
    }
}

/// When something held for some of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct During {
    pub(crate) names: Names,
    pub(crate) span: Span,
}

impl During {
    pub(crate) fn of_all(span: Span) -> Self {
        Self { names: Names::ALL, span }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sides::{read, write};
    use super::*;

    #[test]
    fn names_are_those_that_were_given() {
        let some = Names::of([0, 5]);
        assert!(some.has(0) && some.has(5) && !some.has(1) && Names::ALL.has(63) && !Names::of([]).has(0));
    }

    #[test]
    fn what_is_about_one_side_is_about_both_and_a_slot_has_locks_of_every_kind() {
        let some = Names::of([read(5)]);
        assert!(some.has(read(5)) && some.has(write(5)) && !some.has(5));
        let slot = Names::in_slots([5]);
        assert!(slot.has(5) && slot.has(read(5)) && slot.has(write(5)) && !slot.has(6) && !slot.has(read(6)));
    }
}
