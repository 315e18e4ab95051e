//! What holds for every duration, name, password and sequence of calls: random ones, shrunk to the shortest that fails.
//!
//! `PROPTEST_CASES=2560` runs each property ten times as often as usual. What fails is printed as the calls and values
//! to repeat it with; the test to keep it goes where its subject is. So no seeds are kept.

mod durations;
mod given_secrets;
mod model;
mod names;
mod secrets;
mod sequences;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};

/// As often as proptest's own default, which the environment may raise.
const USUAL: u32 = 256;

/// Checks a property for so many random values, times what `PROPTEST_CASES` asks for.
fn check<S: Strategy>(cases: u32, values: S, holds: impl Fn(S::Value)) {
    let factor = |config: &Config| config.cases as f64 / f64::from(USUAL);
    let config = Config { failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let cases = (f64::from(cases) * factor(&config)).ceil() as u32;
    let run = TestRunner::new(Config { cases, ..config }).run(&values, |value| {
        holds(value);
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}
