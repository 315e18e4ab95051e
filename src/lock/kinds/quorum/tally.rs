//! Counting the answers of nodes.

use crate::base::lives::Life;
use crate::base::time::Moment;
use crate::store::node::{Broken, Failure};
use std::time::Duration;

/// More than half.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers to one round of asking.
pub(super) struct Tally {
    nodes: usize,
    yes: usize,
    no: usize,
    failures: Vec<Failure>,
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, yes: 0, no: 0, failures: Vec::new() }
    }

    pub(super) fn count(&mut self, answer: Result<bool, Failure>) {
        match answer {
            Ok(true) => self.yes += 1,
            Ok(false) => self.no += 1,
            Err(failure) => self.failures.push(failure),
        }
    }

    /// How many said yes.
    pub(super) fn yes(&self) -> usize {
        self.yes
    }

    fn majority(&self) -> usize {
        majority(self.nodes)
    }

    /// A majority said yes.
    pub(super) fn is_won(&self) -> bool {
        self.yes >= self.majority()
    }

    /// So many said no that no majority can say yes.
    pub(super) fn is_lost(&self) -> bool {
        self.no > self.nodes - self.majority()
    }

    /// The other nodes' answers can change nothing.
    pub(super) fn is_decided(&self) -> bool {
        self.is_won() || self.is_lost()
    }

    /// A majority said yes or no.
    pub(super) fn is_answered(&self) -> bool {
        self.yes + self.no >= self.majority()
    }

    /// The lock is busy: so many said no that no majority can say yes, or a majority answered and did not win.
    ///
    /// Half of an even number of nodes is less than a majority, and can refuse one. Then a round ends before a majority
    /// has answered.
    pub(super) fn is_busy(&self) -> bool {
        self.is_lost() || (self.is_answered() && !self.is_won())
    }

    /// Fewer than a majority said no.
    pub(super) fn is_no_a_minority(&self) -> bool {
        self.no < self.majority()
    }

    /// Won or lost, or why neither is known.
    pub(super) fn result(self, open_until: Moment) -> Result<bool, Failure> {
        match (self.is_won(), self.is_lost()) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(self.failure(open_until)),
        }
    }

    /// Why there is no majority. Refused for good: none can ever say yes. Unknown: what was not answered may have made
    /// one. Stale: a majority answered, some that it was too late.
    pub(super) fn failure(&self, open_until: Moment) -> Failure {
        if let Some(refusal) = self.refusal() {
            return refusal.clone();
        }
        let silent = self.nodes - self.yes - self.no - self.failures.len();
        let unknown = self.failures.iter().filter(|failure| matches!(failure, Failure::Unknown { .. })).count();
        let broken = Broken::new(self.reason());
        if self.yes + unknown + silent >= self.majority() {
            // A quorum has no life: each of its nodes has.
            return Failure::Unknown { open_until, life: Life::ONLY, broken };
        }
        let stale = self.failures.iter().filter(|failure| matches!(failure, Failure::Stale)).count();
        if self.yes + self.no + stale >= self.majority() { Failure::Stale } else { Failure::Unreached(broken) }
    }

    /// The refusal that keeps a majority from saying yes. A final one comes first, else a refused login that may be let in later:
    /// then the caller asks on and hears in the end what is wrong.
    fn refusal(&self) -> Option<&Failure> {
        let is_enough = |refusals: &Vec<_>| refusals.len() > self.nodes - self.majority();
        let refusals = |counts: fn(&Failure) -> bool| {
            let refusals: Vec<_> = self.failures.iter().filter(|failure| counts(failure)).collect();
            Some(refusals).filter(is_enough)
        };
        let for_good = refusals(|failure| !failure.may_pass()).map(|refusals| refusals[0]);
        let with_logins = || refusals(|failure| !failure.may_pass() || failure.is_of_login());
        for_good.or_else(|| with_logins()?.into_iter().find(|failure| failure.may_pass()))
    }

    fn reason(&self) -> String {
        let answered = self.yes + self.no;
        let count = format!("{answered} of {} nodes answered, {} are needed", self.nodes, self.majority());
        let why = self.failures.last().map(|failure| failure.clone().into_error("").to_string());
        match self.failures.last() {
            Some(Failure::Unreached(broken) | Failure::Unknown { broken, .. }) => format!("{count}; {}", broken.cause),
            Some(Failure::Refused { cause, .. }) => format!("{count}; {cause}"),
            _ => why.map_or(count.clone(), |why| format!("{count}; {why}")),
        }
    }
}

/// When a majority of nodes will be free if nobody renews: `free` are free now, and the others are locked for these
/// times. `None`: never.
pub(super) fn left(nodes: usize, free: usize, mut locked: Vec<Option<Duration>>) -> Option<Duration> {
    locked.sort_by_key(|left| left.unwrap_or(Duration::MAX));
    let more = majority(nodes).saturating_sub(free).max(1);
    locked.get(more - 1).or(locked.last()).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Applied, BY_CALLBACK, Cause};

    fn refused(code: &str) -> Failure {
        Failure::Refused { code: code.to_owned(), applied: Applied::No, cause: Cause::new("no") }
    }

    /// A login that may be let in later.
    fn kept_out() -> Failure {
        Failure::Refused { code: "WRONGPASS".to_owned(), applied: Applied::No, cause: Cause::new(BY_CALLBACK) }
    }

    fn unreached() -> Failure {
        Failure::Unreached(Broken::new("refused"))
    }

    fn unknown() -> Failure {
        Failure::Unknown { open_until: Moment(7), life: Life::ONLY, broken: Broken::new("silence") }
    }

    /// A tally of five.
    fn tally(yes: usize, no: usize, failures: Vec<Failure>) -> Tally {
        Tally { nodes: 5, yes, no, failures }
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([3, 4, 5, 6, 7].map(majority), [2, 3, 3, 4, 4]);
    }

    #[test]
    fn three_of_five_decide() {
        assert!(tally(3, 0, vec![]).is_won());
        assert!(tally(2, 3, vec![]).is_lost());
        assert!(!tally(2, 2, vec![unreached()]).is_decided());
        let of_four = |no| Tally { nodes: 4, yes: 0, no, failures: vec![] };
        assert!(of_four(2).is_lost() && !of_four(1).is_lost());
    }

    #[test]
    fn half_of_an_even_number_keep_a_lock_busy() {
        for (nodes, half) in [(4, 2), (6, 3)] {
            let tally = |yes, no| Tally { nodes, yes, no, failures: vec![] };
            assert!(tally(0, half).is_busy() && !tally(0, half).is_answered());
            assert!(!tally(0, half - 1).is_busy(), "the others may say yes");
            assert!(tally(half, 1).is_busy() && !tally(half + 1, 0).is_busy());
        }
    }

    #[test]
    fn what_may_have_reached_a_majority_is_unknown() {
        assert!(matches!(
            tally(2, 0, vec![unreached(), unreached(), unreached()]).failure(Moment(1)),
            Failure::Unreached(_)
        ));
        assert!(matches!(
            tally(2, 0, vec![unknown(), unreached(), unreached()]).failure(Moment(1)),
            Failure::Unknown { .. }
        ));
        assert!(matches!(tally(2, 1, vec![unreached()]).failure(Moment(1)), Failure::Unknown { .. }), "one is silent");
    }

    #[test]
    fn a_majority_of_refusals_is_a_refusal() {
        let failures = vec![unreached(), refused("NOAUTH"), refused("NOAUTH"), refused("NOAUTH")];
        assert!(matches!(tally(0, 1, failures).failure(Moment(1)), Failure::Refused { .. }));
        let failures = vec![refused("LOADING"), refused("LOADING"), refused("LOADING")];
        assert!(matches!(tally(1, 1, failures).failure(Moment(1)), Failure::Unreached(_)), "it can pass");
    }

    #[test]
    fn a_majority_of_refused_logins_is_told_and_decides_nothing_for_good() {
        let told = |failures| tally(0, 0, failures).failure(Moment(1));
        let failure = told(vec![kept_out(), refused("NOPERM"), kept_out(), unreached(), unreached()]);
        assert!(matches!(&failure, Failure::Refused { code, .. } if code == "WRONGPASS") && failure.may_pass());
        let failure = told(vec![kept_out(), refused("NOPERM"), refused("NOPERM"), refused("NOPERM"), kept_out()]);
        assert!(matches!(&failure, Failure::Refused { code, .. } if code == "NOPERM") && !failure.may_pass());
        let few = vec![kept_out(), kept_out(), unreached(), unreached(), unreached()];
        assert!(matches!(told(few), Failure::Unreached(_)));
    }

    #[test]
    fn a_majority_is_free_when_enough_leases_have_ended() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(left(5, 0, vec![ms(5), ms(1), ms(3), ms(2), ms(4)]), ms(3));
        assert_eq!(left(5, 2, vec![ms(5), ms(1), None]), ms(1));
        assert_eq!(left(5, 0, vec![ms(5), None, None]), None);
        assert_eq!(left(5, 2, vec![ms(5)]), ms(5));
        assert_eq!(left(4, 0, vec![ms(5), ms(1)]), ms(5), "half of an even number answered");
    }
}
