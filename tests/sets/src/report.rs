//! The table of a run, and its verdict.

use crate::stage::End;
use crate::way::Losses;
use std::fmt::Write;

/// A way with fewer acknowledged adds shows nothing.
const ENOUGH: usize = 20;

const HEAD: [&str; 12] = [
    "way",
    "attempts",
    "acknowledged",
    "**lost**",
    "failed",
    "stale writes stopped",
    "failed or stopped, but present",
    "unknown",
    "unknown, present",
    "duplicates",
    "losses expected",
    "nemeses",
];

pub(crate) fn table(ends: &[End]) -> String {
    let rule = HEAD.map(|_| "---");
    let rows = ends.iter().map(row);
    [HEAD.map(str::to_owned), rule.map(str::to_owned)].into_iter().chain(rows).fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        text
    })
}

fn row(end: &End) -> [String; 12] {
    let counts = &end.counts;
    let share = 100.0 * counts.lost.len() as f64 / counts.acknowledged.max(1) as f64;
    let lost = if counts.lost.is_empty() { "0".to_owned() } else { format!("{} ({share:.1} %)", counts.lost.len()) };
    let acts = end.acts.iter().map(|(act, count)| format!("{} {count}", act.name()));
    let expected = match end.way.losses {
        Losses::Published => "yes",
        Losses::None => "none",
        Losses::Control => "yes: control",
    };
    [
        format!("`{}`", end.way.name),
        counts.attempts.to_string(),
        counts.acknowledged.to_string(),
        lost,
        counts.failed.to_string(),
        counts.refused.to_string(),
        counts.unexpected.len().to_string(),
        counts.unknown.to_string(),
        counts.recovered.to_string(),
        counts.duplicates.to_string(),
        expected.to_owned(),
        acts.collect::<Vec<_>>().join(", "),
    ]
}

/// What is wrong with the locks.
pub(crate) fn finding(end: &End) -> Option<String> {
    let counts = &end.counts;
    let is_wrong = end.way.losses == Losses::None && !(counts.lost.is_empty() && counts.unexpected.is_empty());
    is_wrong.then(|| format!("{}: lost {:?}, unexpected {:?}", end.way.name, counts.lost, counts.unexpected))
}

/// Why the run shows nothing.
pub(crate) fn void(end: &End) -> Option<String> {
    let counts = &end.counts;
    if counts.acknowledged < ENOUGH {
        return Some(format!("{}: {} adds were acknowledged, of {ENOUGH} at least", end.way.name, counts.acknowledged));
    }
    let is_blind = end.way.is_control() && counts.lost.is_empty();
    is_blind.then(|| format!("{}: the checker found no loss in a control", end.way.name))
}

#[cfg(test)]
mod tests {
    use super::{ENOUGH, End, finding, void};
    use crate::checker::Counts;
    use crate::way::Way;
    use std::collections::BTreeMap;

    fn end(way: &str, acknowledged: usize, lost: &[u64], unexpected: &[u64]) -> End {
        let (lost, unexpected) = (lost.to_vec(), unexpected.to_vec());
        let counts = Counts { acknowledged, lost, unexpected, ..Counts::default() };
        End { way: Way::named(way).unwrap(), counts, acts: BTreeMap::new(), log: String::new() }
    }

    #[test]
    fn a_loss_is_a_finding_where_none_may_be() {
        for way in ["while-held", "token"] {
            assert!(finding(&end(way, ENOUGH, &[], &[])).is_none());
            assert!(finding(&end(way, ENOUGH, &[1], &[])).is_some());
            assert!(finding(&end(way, ENOUGH, &[], &[1])).is_some());
        }
        assert!(finding(&end("memory", ENOUGH, &[1], &[])).is_none());
    }

    #[test]
    fn a_run_is_void_without_adds_or_without_a_loss_in_a_control() {
        assert!(void(&end("token", ENOUGH - 1, &[], &[])).is_some());
        assert!(void(&end("token", ENOUGH, &[], &[])).is_none());
        assert!(void(&end("token-unchecked", ENOUGH, &[], &[])).is_some());
        assert!(void(&end("token-unchecked", ENOUGH, &[1], &[])).is_none());
    }
}
