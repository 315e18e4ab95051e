//! Contenders that take turns: how much of it, and how it is shown.

use super::{Outcome, Samples, repeat};

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

/// Has all take turns after one round to warm up: the medians of each round, in the order of the contenders. Who goes
/// first changes, because what is measured later finds a warmer server.
pub(crate) fn take_turns(scale: Scale, contenders: &mut [Contender<'_>]) -> Outcome<Vec<Vec<f64>>> {
    for (_, pair, _) in contenders.iter_mut() {
        repeat(scale.pairs, pair)?;
    }
    let mut round = |round: usize| -> Outcome<Vec<f64>> {
        let mut medians = vec![0.0; contenders.len()];
        for turn in 0..contenders.len() {
            let number = (turn + round) % contenders.len();
            let (_, pair, samples) = &mut contenders[number];
            let one = repeat(scale.pairs, pair)?;
            medians[number] = one.p50();
            samples.extend(one);
        }
        Ok(medians)
    };
    (0..scale.rounds).map(&mut round).collect()
}

/// The first line of the table.
pub(crate) fn show_head(scale: Scale) {
    let title = format!("{} rounds of {} pairs each", scale.rounds, scale.pairs);
    println!("{title:42}{:>12}{:>12}{:>12}", "p50", "p90", "p99");
}

fn show(name: &str, samples: &Samples) {
    let at = |share| format!("{:.1} µs", samples.quantile(share) / 1_000.0);
    println!("  {name:40}{:>12}{:>12}{:>12}", at(0.5), at(0.9), at(0.99));
}

/// Has the contenders take turns, and shows them all and the first beside each other one, round by round.
pub(crate) fn compare(scale: Scale, mut contenders: Vec<Contender<'_>>) -> Outcome<()> {
    let rounds = take_turns(scale, &mut contenders)?;
    contenders.iter().for_each(|(name, _, samples)| show(name, samples));
    for (other, (name, ..)) in contenders.iter().enumerate().skip(1) {
        let ratios: Samples = rounds.iter().map(|medians| medians[0] / medians[other]).collect();
        let (least, middle, most) = (ratios.quantile(0.0), ratios.p50(), ratios.quantile(1.0));
        println!("  {} / {name}: by rounds {least:.3} to {most:.3}, median {middle:.3}", contenders[0].0);
    }
    Ok(())
}
