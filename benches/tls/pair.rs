//! A pair of lock and unlock beside its scripts by hand, sealed and not, all of them in turns.

use crate::by_hand::{Sealed, config};
use crate::support::contest::{Contender, Scale, take_turns};
use crate::support::floor::{Floor, Name};
use crate::support::{Outcome, Samples};
use crate::{Servers, beside, locks};
use redlatch::RedLock;

/// Names of one length.
const OURS: &str = "bench:tls:o";
const FLOOR: &str = "bench:tls:f";

pub(crate) fn head() {
    println!("| pair, p50 | ours, µs | by hand, µs | x by hand | target |");
    println!("| --- |{}", " ---: |".repeat(4));
}

pub(crate) fn rows(servers: &Servers, place: &str, scale: Scale) -> Outcome<()> {
    let (plain, sealed) = (locks(&servers.plain.tcp())?, locks(&servers.sealed.tls_url())?);
    let mut plain_floor = Floor::new(&servers.plain.tcp())?;
    let mut sealed_floor = Floor::on(Sealed::connect(servers.sealed.port(), &config()?)?)?;
    let name = Name::new(FLOOR);
    let mut contenders: Vec<Contender<'_>> = vec![
        ("sealed", Box::new(|| Ok(sealed.lock(OURS).and_then(|()| sealed.unlock(OURS))?)), Samples::default()),
        ("sealed, by hand", Box::new(|| sealed_floor.pair(&name)), Samples::default()),
        ("plain", Box::new(|| Ok(plain.lock(OURS).and_then(|()| plain.unlock(OURS))?)), Samples::default()),
        ("plain, by hand", Box::new(|| plain_floor.pair(&name)), Samples::default()),
    ];
    let rounds = take_turns(scale, &mut contenders)?;
    println!("| TLS, {place} | {} | <= 1.10 |", beside(&rounds, [0, 1]));
    println!("| without, {place} | {} | |", beside(&rounds, [2, 3]));
    Ok(())
}
