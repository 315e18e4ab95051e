//! Scenes whose locks are on a cluster: what is wrong shows while a slot is halfway from one master to another.

use super::{Scene, plan};
use crate::nemesis::{Act, Step};
use crate::plan::Plan;
use crate::stage::Servers;

/// All keys of the first lock's slot go first.
const WITH_ALL_KEYS: Step = Step { act: Act::HalfMove, whom: 0, lasts: 0, pause: 0, seed: 0 };

/// They go last.
const WITHOUT_KEYS: Step = Step { seed: 1, ..WITH_ALL_KEYS };

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
            plan: Plan { strict: true, hold: (2_000, 3_000), watchdog: 3_000, ..patient() },
            workers: 2,
            servers: Servers::Cluster,
            set_up: |_| (),
            act: |stage| stage.perform(Step { act: Act::LoseHalfway, lasts: 1_000, pause: 5_000, ..WITHOUT_KEYS }),
        },
    ]
}
