//! What a checker from outside is given of the controls: histories with the mutant, of which its model must refuse one, and without.

use super::Take;
use crate::history::OVERLAP;
use crate::history::operations::Histories;

/// A mutant whose histories are judged.
struct Judged {
    mutant: &'static str,
    /// By the model of this name.
    model: &'static str,
    /// What the model refuses is there when this checker has found something.
    checker: &'static str,
}

const JUDGED: [Judged; 6] = [
    Judged { mutant: "del_without_owner_check", model: "mutex", checker: OVERLAP },
    Judged { mutant: "inner_release_frees", model: "reentrant", checker: OVERLAP },
    Judged { mutant: "tokens_forget_the_clock", model: "fenced", checker: "C2 tokens" },
    Judged { mutant: "writer_beside_readers", model: "read-write", checker: OVERLAP },
    Judged { mutant: "deadline_from_reply", model: "counter", checker: "C4 lost update" },
    Judged { mutant: "while_held_repeats", model: "commands", checker: "C8 commands" },
];

fn of(mutant: &str) -> Option<&'static Judged> {
    JUDGED.iter().find(|judged| judged.mutant == mutant)
}

/// Whether histories of a mutant are judged.
pub(crate) fn is_judged(mutant: &str) -> bool {
    of(mutant).is_some()
}

pub(super) fn mutants() -> impl Iterator<Item = &'static str> {
    JUDGED.iter().map(|judged| judged.mutant)
}

impl Take {
    /// The checker that has to find a mutant before its history is saved.
    pub(super) fn waits_for(&self, mutant: &str) -> Option<&'static str> {
        self.histories.as_ref().and(of(mutant)).map(|judged| judged.checker)
    }

    /// `verdict`: what the checker from outside must say, a folder of its own. A control without a history leaves it empty, and fails.
    pub(super) fn save(&self, mutant: &str, verdict: &str, histories: &Histories) {
        let Some((dir, Judged { model, .. })) = self.histories.as_ref().zip(of(mutant)) else { return };
        let dir = dir.join(verdict).join(format!("{model}-{mutant}"));
        histories.save(&dir, |of| of == *model).expect("room for the histories");
    }
}
