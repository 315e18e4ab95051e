//! Scenes whose locks are on a group of servers: what is wrong shows when its master is replaced.

use super::{Scene, plan};
use crate::nemesis::{Act, Step};
use crate::plan::Plan;
use crate::stage::{Servers, Stage};
use std::time::Duration;

/// Calls ride failovers out, also if all replicas have to be there again.
fn patient() -> Plan {
    Plan { watchdog: 3_000, response: 500, outage: 30_000, ..plan() }
}

pub(super) fn scenes() -> Vec<Scene> {
    vec![
        // Who has the lock is stopped, and the new master does not know of it.
        Scene {
            mutant: "no_quarantine_after_failover",
            plan: Plan { strict: true, ..patient() },
            workers: 3,
            servers: Servers::Group,
            set_up: |_| (),
            act: |stage| stage.while_holder_is_stopped(Duration::from_millis(3_500), lose_the_lock),
        },
        // It works on, and learns of its loss when its lease would be renewed.
        Scene {
            mutant: "stays_with_old_master",
            plan: Plan { hold: (4_000, 4_500), watchdog: 9_000, ..patient() },
            workers: 2,
            servers: Servers::Group,
            set_up: |_| (),
            act: lose_the_lock,
        },
        // The group was monitored anew, and nobody gets a lock any more.
        Scene {
            mutant: "keeps_the_highest_epoch",
            plan: patient(),
            workers: 2,
            servers: Servers::Group,
            set_up: |_| (),
            act: |stage| {
                replace_by(stage, Act::FailOver, 0);
                replace_by(stage, Act::MonitorAnew, 6_500);
            },
        },
        // The old master is cut off from its group and not from clients, and a sentinel that was away names it.
        Scene {
            mutant: "believes_one_sentinel",
            plan: patient(),
            workers: 2,
            servers: Servers::Group,
            set_up: |_| (),
            act: |stage| replace_by(stage, Act::LateSentinel, 3_000),
        },
        // It hears the old master alone, which has no replicas any more.
        Scene {
            mutant: "believes_without_replicas",
            plan: Plan { strict: true, replicas: 2, hold: (10_000, 10_000), watchdog: 2_000, ..patient() },
            workers: 2,
            servers: Servers::Askew,
            set_up: |_| (),
            act: |stage| {
                if !stage.gets_the_lock(0, Duration::from_secs(1)) {
                    stage.freeze_client(1, Duration::from_millis(2_200));
                }
                if stage.gets_the_lock(0, Duration::from_secs(1)) {
                    replace_by(stage, Act::CutOffWorkers, 2_500);
                }
            },
        },
        // Its lease ends at the server, and all replicas confirm what was not written.
        Scene {
            mutant: "renewal_writes_nothing",
            plan: Plan { replicas: 2, hold: (2_000, 3_000), watchdog: 1_200, ..patient() },
            workers: 2,
            servers: Servers::Group,
            set_up: |_| (),
            act: |_| (),
        },
    ]
}

fn lose_the_lock(stage: &mut Stage) {
    stage.have_replicas_lose_the_lock();
    replace_by(stage, Act::FailOver, 0);
}

fn replace_by(stage: &mut Stage, act: Act, lasts: u64) {
    stage.perform(Step { act, whom: 0, lasts, pause: 0, seed: 0 });
}
