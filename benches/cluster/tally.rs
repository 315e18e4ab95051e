//! Calls of several kinds: how many were made, what came of them, and how long they took.

use crate::support::Samples;
use crate::support::turns::MILLI;
use std::time::{Duration, Instant};

/// Those of one kind.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) times: Samples,
    /// Those that gave what was asked for.
    pub(crate) granted: usize,
    pub(crate) failed: usize,
    /// What the first failure says.
    why: Option<String>,
}

impl Calls {
    /// Whether the call succeeded and gave what was asked for.
    pub(crate) fn make(&mut self, act: impl FnOnce() -> redlatch::Result<bool>) -> bool {
        let start = Instant::now();
        let said = act();
        self.note(start.elapsed(), said)
    }

    /// A call of another thread.
    pub(crate) fn note(&mut self, took: Duration, said: redlatch::Result<bool>) -> bool {
        self.times.push(took.as_nanos() as f64);
        match said {
            Ok(granted) => {
                self.granted += usize::from(granted);
                granted
            }
            Err(error) => {
                self.failed += 1;
                self.why.get_or_insert_with(|| error.to_string());
                false
            }
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.granted += other.granted;
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
    }

    pub(crate) fn made(&self) -> usize {
        self.times.all().len()
    }

    /// In ms, a share of the calls took no longer.
    pub(crate) fn took(&self, share: f64) -> f64 {
        self.times.quantile(share) / MILLI
    }

    /// Says why a call failed, if one did.
    pub(crate) fn explain(&self, what: &str) {
        self.why.iter().for_each(|why| println!("{what}: {why}"));
    }
}

/// By their kinds, in the order in which these came first.
#[derive(Default)]
pub(crate) struct Tally(Vec<(&'static str, Calls)>);

impl Tally {
    /// Whether the call succeeded and gave what was asked for.
    pub(crate) fn make(&mut self, kind: &'static str, act: impl FnOnce() -> redlatch::Result<bool>) -> bool {
        self.of(kind).make(act)
    }

    /// The same for a call that gives nothing but success.
    pub(crate) fn done(&mut self, kind: &'static str, act: impl FnOnce() -> redlatch::Result<()>) -> bool {
        self.make(kind, || act().map(|()| true))
    }

    pub(crate) fn of(&mut self, kind: &'static str) -> &mut Calls {
        let at = self.0.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            self.0.push((kind, Calls::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    pub(crate) fn show(&self, who: &str) {
        for (kind, calls) in &self.0 {
            println!(
                "| {who} | {kind} | {} | {} | {} | {:.2} | {:.1} |",
                calls.made(),
                calls.failed,
                calls.granted,
                calls.took(0.5),
                calls.took(1.0),
            );
        }
        self.0.iter().for_each(|(kind, calls)| calls.explain(kind));
    }
}
