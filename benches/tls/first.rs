//! From nothing to the first lock held, beside a connection and one command by hand.

use crate::by_hand::{Sealed, config};
use crate::support::contest::Scale;
use crate::support::{Outcome, Samples};
use crate::{Servers, beside, locks};
use redlatch::{Client, RedLock};
use std::time::Instant;

/// So many clients a round.
const CLIENTS: usize = 10;

const NAME: &str = "bench:tls:first";

pub(crate) fn head() {
    println!("| new client to first lock, p50 | ours, µs | connection and PING by hand, µs | x by hand |");
    println!("| --- |{}", " ---: |".repeat(3));
}

/// What one is made for, and how long that took.
type Timed<'a> = Box<dyn Fn() -> Outcome<f64> + 'a>;

pub(crate) fn rows(servers: &Servers, place: &str, scale: Scale) -> Outcome<()> {
    let (plain, sealed, known) = (servers.plain.tcp(), servers.sealed.tls_url(), config()?);
    let contenders: [Timed<'_>; 5] = [
        Box::new(|| first_lock(&sealed)),
        Box::new(|| first_ping(|| Sealed::connect(servers.sealed.port(), &config()?))),
        Box::new(|| first_ping(|| Sealed::connect(servers.sealed.port(), &known))),
        Box::new(|| first_lock(&plain)),
        Box::new(|| first_ping(|| crate::support::connect(&plain))),
    ];
    let round = |round: usize| -> Outcome<Vec<f64>> {
        let mut medians = vec![0.0; contenders.len()];
        for turn in 0..contenders.len() {
            let number = (turn + round) % contenders.len();
            medians[number] = (0..CLIENTS).map(|_| contenders[number]()).collect::<Outcome<Samples>>()?.p50();
        }
        Ok(medians)
    };
    let rounds: Vec<_> = (0..scale.rounds).map(round).collect::<Outcome<_>>()?;
    println!("| TLS, {place} | {} |", beside(&rounds, [0, 1]));
    println!("| TLS, {place}, by hand with a session resumed | {} |", beside(&rounds, [0, 2]));
    println!("| without, {place} | {} |", beside(&rounds, [3, 4]));
    Ok(())
}

fn first_lock(url: &str) -> Outcome<f64> {
    let start = Instant::now();
    let locks = locks(url)?;
    locks.lock(NAME)?;
    let took = start.elapsed().as_nanos() as f64;
    locks.unlock(NAME)?;
    Ok(took)
}

fn first_ping<C: redis::ConnectionLike>(connect: impl Fn() -> Outcome<C>) -> Outcome<f64> {
    let start = Instant::now();
    redis::cmd("PING").exec(&mut connect()?)?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// How long it takes to read the authorities of the system, where it has any.
pub(crate) fn authorities_of_the_system(servers: &Servers) -> Option<f64> {
    let read = || -> Option<f64> {
        let start = Instant::now();
        Client::connect(&servers.sealed.tls_url()).ok()?;
        Some(start.elapsed().as_nanos() as f64)
    };
    Some((0..CLIENTS).map(|_| read()).collect::<Option<Samples>>()?.p50())
}
