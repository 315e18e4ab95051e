//! One thread, nobody else: what a lock costs beyond its two scripts.
//!
//! Where the scheduler puts client and server moves a pair by a third, so it is measured twice: with both on one
//! core, where the ratio repeats to a percent and is the hardest on us, for a round trip costs the least there; and
//! on any core.

use crate::Scale;
use crate::report::{Report, Target};
use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Server, take_turns};
use redlatch::{Client, FencedLock, RedLock, ReentrantLock};
use std::time::Duration;

/// Names of one length.
const OURS: &str = "bench:pair:o";
const FLOOR: &str = "bench:pair:f";

const MICRO: f64 = 1_000.0;

pub(crate) fn rows(server: &Server, scale: Scale, report: &mut Report) -> Outcome<()> {
    for (socket, url) in [("Unix socket", server.unix()), ("TCP", server.tcp())] {
        server.on_one_core(|| beside_floor(&format!("{socket}, one core"), &url, scale, report))?;
        beside_floor(&format!("{socket}, any core"), &url, scale, report)?;
    }
    server.on_one_core(|| fenced(&server.unix(), "one core", scale, report))?;
    fenced(&server.unix(), "any core", scale, report)?;
    server.on_one_core(|| strict(&server.unix(), scale, report))
}

fn beside_floor(place: &str, url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let (mut floor, name, locks) = (Floor::new(url)?, Name::new(FLOOR), ReentrantLock::connect(url)?);
    let (mut ratios, mut floors, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=scale.rounds {
        let (mut least, mut pair) = (|| floor.pair(&name), || Ok(locks.lock(OURS).and_then(|()| locks.unlock(OURS))?));
        let [one, other] = take_turns(round, scale.pairs, [&mut least, &mut pair])?;
        // The first round warms all up.
        if round > 0 {
            ratios.push(other.p50() / one.p50());
            floors.push(one.p50() / MICRO);
            ours.push(other.p50() / MICRO);
        }
    }
    report.row("pair", format!("pair, p50, {place}"), "x floor", ratios, Target::AtMost(1.05));
    report.row("pair", format!("  ours, {place}"), "µs", ours, Target::None);
    report.row("pair", format!("  floor, {place}"), "µs", floors, Target::None);
    Ok(())
}

/// What the quarantine of a strict client costs.
fn strict(url: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let plain = ReentrantLock::connect(url)?;
    // A server that is new to strict mode grants nothing for one lease.
    let (lease, patience) = (Duration::from_secs(1), Duration::from_millis(500));
    let builder = Client::builder(url).strict(true).watchdog_timeout(lease).response_timeout(patience);
    let strict = ReentrantLock::new(&builder.build()?);
    strict.lock(OURS).and_then(|()| strict.unlock(OURS))?;
    beside_plain("strict pair, one core", &plain, &strict, Target::None, scale, report)
}

/// What a token costs.
fn fenced(url: &str, place: &str, scale: Scale, report: &mut Report) -> Outcome<()> {
    let client = Client::connect(url)?;
    let (plain, fenced) = (ReentrantLock::new(&client), FencedLock::new(&client));
    beside_plain(&format!("fenced pair, p50, {place}"), &plain, &fenced, Target::AtMost(1.10), scale, report)
}

fn beside_plain(
    what: &str,
    plain: &dyn RedLock,
    other: &dyn RedLock,
    target: Target,
    scale: Scale,
    report: &mut Report,
) -> Outcome<()> {
    let mut ratios = Vec::new();
    for round in 0..=scale.rounds {
        let mut one = || Ok(plain.lock(OURS).and_then(|()| plain.unlock(OURS))?);
        let mut more = || Ok(other.lock(OURS).and_then(|()| other.unlock(OURS))?);
        let [one, more] = take_turns(round, scale.pairs, [&mut one, &mut more])?;
        if round > 0 {
            ratios.push(more.p50() / one.p50());
        }
    }
    report.row("pair", what.to_owned(), "x plain", ratios, target);
    Ok(())
}
