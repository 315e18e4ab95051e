//! Which of the locks something is about: those of one master, or all.

use super::waits::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names(u64);

impl Names {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn of(names: impl IntoIterator<Item = u8>) -> Self {
        Self(names.into_iter().fold(0, |all, name| all | 1 << name))
    }

    pub(crate) fn has(self, name: u8) -> bool {
        self.0 >> name & 1 == 1
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
    use super::*;

    #[test]
    fn names_are_those_that_were_given() {
        let some = Names::of([0, 5]);
        assert!(some.has(0) && some.has(5) && !some.has(1) && Names::ALL.has(63) && !Names::of([]).has(0));
    }
}
