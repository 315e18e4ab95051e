//! Many holds over a failover.

use super::locks_of;
use crate::harness::sentinel::Group;
use crate::process::alone;
use crate::threads::{LONG, Mark, SOON, eventually, ms};
use redlatch::{Hold, HoldState, MultiLock, RedLock, ReentrantLock, Terms};
use std::time::Duration;

const HOLDS: usize = 10_000;

/// Some of them are due while there is no master, and none of them ends by that.
const LEASE: Duration = Duration::from_secs(15);

/// A command asks for so many at most.
const BATCH: usize = 100;

fn take(locks: &ReentrantLock) -> Vec<Hold> {
    let names: Vec<_> = (0..HOLDS).map(|number| format!("n{number}")).collect();
    for names in names.chunks(BATCH) {
        let group = MultiLock::of(names.iter().map(|name| (locks, name.as_str())));
        assert!(group.acquire(&Terms::new()).unwrap().is_some());
    }
    names.iter().map(|name| locks.hold(name).unwrap()).collect()
}

/// The scripts that a node was sent since it started; a replica is sent none.
fn scripts(group: &Group, node: usize) -> usize {
    let stats: String = group.nodes[node].ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<usize>().ok();
    stats.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(calls).sum()
}

#[test]
fn ten_thousand_holds_go_over_by_some_hundred_commands() {
    alone(|| {
        let mut group = Group::start();
        let locks = locks_of(group.builder().watchdog_timeout(LEASE));
        let began = Mark::now();
        let holds = take(&locks);
        // So that the first are due in the outage.
        std::thread::sleep((LEASE / 3 - ms(1_000)).saturating_sub(began.elapsed().real()));
        group.replicated(0);
        // What is renewed from here on is renewed at the new master, and some of it before this test knows of that one.
        let (killed, before) = (Mark::now(), locks.client().stats());
        group.nodes[0].kill();
        let new = group.replaced(0);
        let named = Mark::now();
        let in_doubt = || holds.iter().filter(|hold| hold.state() == HoldState::Suspect).count();
        let doubted = in_doubt();
        // The first may be due again before the last was asked for.
        eventually(LONG, "all are renewed", || {
            locks.client().stats().renewals >= before.renewals + HOLDS as u64 && in_doubt() == 0
        });
        let (took, commands) = (named.elapsed(), scripts(&group, new));
        assert!(holds.iter().all(Hold::is_valid));
        println!(
            "{HOLDS} holds: named {:?} after the kill, {doubted} in doubt then, all renewed {took:?} later by {commands} commands",
            named - killed
        );
        assert!(took <= 2 * SOON, "{took:?}");
        assert!(commands <= 4 * HOLDS / BATCH, "{commands} commands");
        assert_eq!(locks.client().stats().lost, 0);
    });
}
