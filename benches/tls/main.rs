//! What TLS costs: `cargo bench --bench tls`, a quarter of a minute.
//!
//! A pair of lock and unlock beside its two scripts by hand, and a new client up to its first lock beside a connection and one
//! command, each with TLS and without. By hand is rustls as its documentation shows it (`StreamOwned`), with the cryptography
//! that the library uses. All take turns in short rounds. How to read it is in docs/performance.md.
//!
//! It brings its own servers. Without `--bench` (as `cargo test --benches` does) or with `--test`, it only shows that it
//! works.

mod by_hand;
mod first;
mod pair;
#[allow(dead_code, reason = "each bench uses a part")]
#[path = "../support/mod.rs"]
mod support;
mod trips;

use harness::papers::{Flaw, papers, trusting};
use harness::server::Server as Sealed;
use redlatch::{Client, ReentrantLock};
use support::contest::{self, Scale};
use support::{Outcome, Samples, Server, on_one_core};

const FULL: Scale = Scale { rounds: 30, pairs: 300 };

pub(crate) const MICRO: f64 = 1_000.0;

/// A server without TLS, and one with it.
pub(crate) struct Servers {
    pub(crate) plain: Server,
    pub(crate) sealed: Sealed,
}

impl Servers {
    fn start() -> Outcome<Self> {
        Ok(Self { plain: Server::start()?, sealed: Sealed::start_with_tls(&papers(Flaw::None), false) })
    }
}

fn main() -> Outcome<()> {
    contest::main(FULL, Servers::start, |servers, scale| run(&servers, scale))
}

fn run(servers: &Servers, scale: Scale) -> Outcome<()> {
    let processes = [servers.plain.id(), servers.sealed.pid()];
    println!(
        "{} rounds of {} pairs each, in turns; medians, and the least and most of the rounds\n",
        scale.rounds, scale.pairs
    );
    pair::head();
    on_one_core(&processes, || pair::rows(servers, "one core", scale))?;
    pair::rows(servers, "any core", scale)?;
    println!();
    first::head();
    on_one_core(&processes, || first::rows(servers, "one core", scale))?;
    first::rows(servers, "any core", scale)?;
    println!();
    trips::rows(servers)
}

pub(crate) fn locks(url: &str) -> Outcome<ReentrantLock> {
    let builder = Client::builder(url);
    let builder = if url.starts_with("rediss") { builder.tls(trusting()) } else { builder };
    Ok(ReentrantLock::new(&builder.build()?))
}

/// Of two contenders, by rounds: their times, and how they compare.
pub(crate) fn beside(rounds: &[Vec<f64>], [ours, by_hand]: [usize; 2]) -> String {
    let median = |number: usize| rounds.iter().map(|round| round[number]).collect::<Samples>().p50() / MICRO;
    let ratios: Samples = rounds.iter().map(|round| round[ours] / round[by_hand]).collect();
    let (least, most) = (ratios.quantile(0.0), ratios.quantile(1.0));
    format!("{:.1} | {:.1} | {:.3} ({least:.3} to {most:.3})", median(ours), median(by_hand), ratios.p50())
}
