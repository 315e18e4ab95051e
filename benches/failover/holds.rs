//! Very many holds over a failover: how long they are in doubt, and what it takes to renew them.

use crate::support::doubts::Doubts;
use crate::support::turns::MILLI;
use crate::support::{Outcome, connect, monotonic, sent_scripts};
use crate::watch::watch;
use crate::{Scale, builder};
use harness::sentinel::Group;
use redlatch::{Hold, MultiLock, RedLock, ReentrantLock, Terms};
use std::thread::sleep;
use std::time::Duration;

/// A command asks for so many at most.
const BATCH: usize = 100;

/// So often all are looked at.
const EVERY: Duration = Duration::from_millis(10);

/// How long a failover and all renewals may take.
const PATIENCE: i64 = 60_000_000_000;

pub(crate) fn rows(scale: &Scale) -> Outcome<()> {
    println!("{} holds of a lease of {:?}, the master is killed; ms\n", scale.holds, scale.lease);
    println!(
        "| named after | Suspect then | Suspect at most | the longest | all renewed, from the naming | \
         none Suspect, from the naming | scripts | Lost |"
    );
    println!("|{}", " ---: |".repeat(8));
    (0..scale.many).try_for_each(|_| one(scale))
}

fn take(locks: &ReentrantLock, number: usize) -> Outcome<Vec<Hold>> {
    let names: Vec<_> = (0..number).map(|number| format!("bench:failover:{number}")).collect();
    for names in names.chunks(BATCH) {
        let group = MultiLock::of(names.iter().map(|name| (locks, name.as_str())));
        group.acquire(&Terms::new())?.ok_or("not all were free")?;
    }
    Ok(names.iter().filter_map(|name| locks.hold(name)).collect())
}

fn one(scale: &Scale) -> Outcome<()> {
    let mut group = Group::start();
    let locks = ReentrantLock::new(&builder(&group.url(), false).watchdog_timeout(scale.lease).build()?);
    let holds = take(&locks, scale.holds)?;
    // So that the first are due while there is no master.
    sleep(scale.lease / 3 - Duration::from_secs(1));
    group.replicated(0);
    let (mut watch, killed) = (watch(&group), monotonic());
    group.nodes[0].kill();
    let before = locks.client().stats().renewals;
    let mut doubts = Doubts::of(holds.len(), killed);
    let (replaced, in_doubt) = loop {
        doubts.look(&holds);
        if let Some(replaced) = watch.look(EVERY) {
            break (replaced, doubts.now);
        }
        within_patience(killed)?;
    };
    let mut probe = connect(&group.nodes[replaced.node].url())?;
    let renewed = loop {
        doubts.look(&holds);
        if locks.client().stats().renewals >= before + holds.len() as u64 {
            break monotonic();
        }
        within_patience(killed)?;
        sleep(EVERY / 5);
    };
    let scripts = sent_scripts(&mut probe)?;
    doubts.look(&holds);
    let (lost, left) = (locks.client().stats().lost, doubts.now);
    if left > 0 {
        println!("{left} are Suspect after all were renewed");
    }
    let from_naming = |when: i64| (when - replaced.named) as f64 / MILLI;
    println!(
        "| {:.0} | {in_doubt} | {} | {:.0} | {:.0} | {:.0} | {scripts} | {lost} |",
        (replaced.named - killed) as f64 / MILLI,
        doubts.most,
        doubts.longest as f64 / MILLI,
        from_naming(renewed),
        from_naming(doubts.last),
    );
    Ok(())
}

fn within_patience(killed: i64) -> Outcome<()> {
    if monotonic() - killed < PATIENCE { Ok(()) } else { Err("not all are renewed".into()) }
}
