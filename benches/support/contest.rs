//! Contenders that take turns: how much of it, and how it is shown.

use super::{Outcome, Samples};

/// How many rounds of how many pairs.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
}

const TINY: Scale = Scale { rounds: 2, pairs: 3 };

/// One contender: its name, a pair, and the samples so far.
pub(crate) type Contender<'a> = (&'a str, Box<dyn FnMut() -> Outcome<()> + 'a>, Samples);

/// A bench's `main`: starts its servers and runs it, in full with `--bench`. Otherwise it only shows that it works, and
/// not even that where there is no server program.
pub(crate) fn main<S>(
    full: Scale,
    start: impl FnOnce() -> Outcome<S>,
    run: impl FnOnce(S, Scale) -> Outcome<()>,
) -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    if has("--list") {
        return Ok(());
    }
    let tiny = has("--test") || !has("--bench");
    match start() {
        Ok(servers) => run(servers, if tiny { TINY } else { full }),
        Err(error) if tiny => {
            println!("not run: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The first line of the table.
pub(crate) fn show_head(scale: Scale) {
    let title = format!("{} rounds of {} pairs each", scale.rounds, scale.pairs);
    println!("{title:42}{:>12}{:>12}{:>12}", "p50", "p90", "p99");
}

pub(crate) fn show(name: &str, samples: &Samples) {
    let at = |share| format!("{:.1} µs", samples.quantile(share) / 1_000.0);
    println!("  {name:40}{:>12}{:>12}{:>12}", at(0.5), at(0.9), at(0.99));
}
