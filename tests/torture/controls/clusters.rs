//! Scenes whose locks are on a cluster: what is wrong shows while a slot is halfway from one master to another, or when a
//! master is replaced.

use super::{Scene, plan};
use crate::nemesis::{Act, Step};
use crate::plan::Plan;
use crate::stage::Servers;
use std::thread::sleep;
use std::time::Duration;

/// All keys of the first lock's slot go first.
const WITH_ALL_KEYS: Step = Step { act: Act::HalfMove, whom: 0, lasts: 0, pause: 0, seed: 0 };

/// They go last.
const WITHOUT_KEYS: Step = Step { seed: 1, ..WITH_ALL_KEYS };

/// The replica takes over without asking anybody.
const TAKEOVER: Step = Step { act: Act::FailOver, seed: 2, ..WITH_ALL_KEYS };

/// Calls ride out that a master is away.
fn patient() -> Plan {
    Plan { response: 500, outage: 30_000, ..plan() }
}

pub(super) fn scenes() -> Vec<Scene> {
    vec![
        // Two wait for each other, where the slot was, and give the lock up where it goes.
        Scene {
            mutant: "untold_on_its_way",
            plan: Plan { hold: (300, 400), pause: (3_000, 3_500), watchdog: 3_000, ..patient() },
            workers: 3,
            servers: Servers::Cluster,
            set_up: |_| (),
            act: |stage| stage.perform(Step { act: Act::HalfMove, lasts: 4_500, ..WITH_ALL_KEYS }),
        },
        // What the master has granted to which the slot goes is forgotten, and granted again.
        Scene {
            mutant: "grants_on_its_way",
            plan: Plan { strict: true, hold: (3_000, 4_000), watchdog: 4_000, ..patient() },
            workers: 2,
            servers: Servers::Cluster,
            set_up: |_| (),
            act: |stage| stage.perform(Step { act: Act::LoseHalfway, lasts: 1_000, pause: 6_000, ..WITHOUT_KEYS }),
        },
        // A stopped master was sent asks before it was replaced, and grants one of them when it goes on. Who paused meanwhile asks the new
        // one.
        Scene {
            mutant: "believes_retired",
            plan: Plan { hold: (200, 400), pause: (0, 3_000), watchdog: 16_000, response: 8_000, ..patient() },
            workers: 6,
            servers: Servers::Cluster,
            set_up: |_| (),
            act: |stage| {
                sleep(Duration::from_millis(500));
                stage.perform(Step { act: Act::FreezeMaster, lasts: 1_700, pause: 3_500, ..WITH_ALL_KEYS });
            },
        },
        // One has the lock, and the new master does not know of it; the other waits, and listens at a node that stays as it is.
        Scene {
            mutant: "untold_of_new_master",
            plan: Plan {
                plain: true,
                hold: (7_000, 7_000),
                pause: (3_000, 3_000),
                watchdog: 30_000,
                poll: 20_000,
                ..patient()
            },
            workers: 2,
            servers: Servers::Cluster,
            set_up: |_| (),
            act: |stage| {
                sleep(Duration::from_secs(1));
                stage.have_replicas_lose_the_lock();
                stage.perform(Step { pause: 3_500, ..TAKEOVER });
            },
        },
    ]
}
