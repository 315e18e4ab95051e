//! A slot that moves between two masters under load, and the same load while nothing moves.

use crate::support::Outcome;
use crate::tally::Calls;
use crate::{Scale, TOLD, built, names_at};
use harness::cluster::{Cluster, Shape, slot_of};
use harness::threads::finish;
use redlatch::{RedLock, ReentrantLock, ShardedPubsub};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Each with a client of its own.
const THREADS: usize = 8;

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    println!("{THREADS} threads that take and release locks of a slot, and of others; ms\n");
    println!(
        "| pub/sub | the slot | calls | failed | MOVED | ASK | TRYAGAIN | p50 | p99.9 | longest in the slot | \
         longest elsewhere |"
    );
    println!("| --- | --- |{}", " ---: |".repeat(9));
    TOLD.iter().try_for_each(|(told, title)| both(scale, *told, title))
}

fn both(scale: &Scale, told: ShardedPubsub, title: &str) -> Outcome<()> {
    let cluster = Cluster::of(Shape::STEADY);
    let clients: Vec<_> =
        (0..THREADS).map(|_| built(cluster.builder().sharded_pubsub(told))).collect::<Outcome<_>>()?;
    let slot = slot_of(&cluster.name_at(0, 0));
    let pauses = scale.pause * u32::try_from(scale.moves)?;
    row(&cluster, slot, &clients, [title, "stays"], || sleep(pauses));
    let moved = format!("moves {} times", scale.moves);
    row(&cluster, slot, &clients, [title, &moved], || {
        for round in 1..=scale.moves {
            cluster.move_slot(slot, round % 2);
            sleep(scale.pause);
        }
    });
    Ok(())
}

fn row(cluster: &Cluster, slot: u16, clients: &[ReentrantLock], [title, what]: [&str; 2], act: impl FnOnce()) {
    let names = [inside(slot), elsewhere(cluster, slot)];
    let (over, before) = (AtomicBool::new(false), refusals(cluster));
    let calls = scope(|scope| {
        let work = |(at, locks)| {
            let (names, over) = (&names, &over);
            scope.spawn(move || works(locks, at, names, over))
        };
        let threads: Vec<_> = clients.iter().enumerate().map(work).collect();
        act();
        over.store(true, Relaxed);
        threads.into_iter().map(finish).fold([(); 2].map(|()| Calls::default()), |mut sum, one| {
            sum.iter_mut().zip(one).for_each(|(sum, one)| sum.add(one));
            sum
        })
    });
    let after = refusals(cluster);
    let refused = [0, 1, 2].map(|kind| (after[kind] - before[kind]).to_string());
    let [inside, elsewhere] = &calls;
    println!(
        "| {title} | {what} | {} | {} | {} | {:.2} | {:.0} | {:.0} | {:.0} |",
        inside.made() + elsewhere.made(),
        inside.failed + elsewhere.failed,
        refused.join(" | "),
        inside.took(0.5),
        inside.took(0.999),
        inside.took(1.0),
        elsewhere.took(1.0),
    );
    calls.iter().for_each(|calls| calls.explain("a call failed"));
}

/// So many that some threads wait, and most do not.
fn inside(slot: u16) -> Vec<String> {
    harness::cluster::names_in_slot(slot).take(4).collect()
}

fn elsewhere(cluster: &Cluster, slot: u16) -> Vec<String> {
    let names = [0, 1, 2].map(|node| names_at::<2>(cluster, node)).concat();
    names.into_iter().filter(|name| slot_of(name) != slot).collect()
}

/// Takes a lock of the slot and one of another in turn.
fn works(locks: &ReentrantLock, at: usize, names: &[Vec<String>; 2], over: &AtomicBool) -> [Calls; 2] {
    let mut calls = [(); 2].map(|()| Calls::default());
    for number in (at..).take_while(|_| !over.load(Relaxed)) {
        let names = &names[number % 2];
        let (name, calls) = (&names[number / 2 % names.len()], &mut calls[number % 2]);
        if calls.make(|| locks.lock(name).map(|()| true)) {
            calls.make(|| locks.unlock(name).map(|()| true));
        }
        sleep(Duration::from_micros(500));
    }
    calls
}

/// How often the masters answered MOVED, ASK and TRYAGAIN so far.
fn refusals(cluster: &Cluster) -> [u64; 3] {
    let said: Vec<String> = cluster.nodes.iter().map(|node| node.ask(&["INFO", "errorstats"])).collect();
    ["MOVED", "ASK", "TRYAGAIN"].map(|kind| {
        let front = format!("errorstat_{kind}:count=");
        let counts = said.iter().flat_map(|said| said.lines()).filter_map(|line| line.strip_prefix(&front));
        counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
    })
}
