//! Scenes with fair locks.

use super::{Scene, plan};
use crate::plan::Plan;
use crate::rules::{cut_answers, is_of_fair_lock};
use crate::stage::{Servers, Stage};
use std::time::Duration;

/// One fair lock that is never left alone.
fn fair() -> Plan {
    Plan { fair: true, hold: (15, 20), pause: (0, 1), ..plan() }
}

pub(super) fn scenes() -> Vec<Scene> {
    let scene = |mutant, plan| {
        let (workers, servers, rest): (_, _, fn(&mut Stage)) = (4, Servers::Lasting, |_| ());
        Scene { mutant, plan, workers, servers, set_up: rest, act: rest }
    };
    vec![
        // Two wait at least.
        scene("serves_the_second", fair()),
        // A lease runs out, and all who wait ask later than one that comes then. If that one waits itself, it serves the others at once.
        Scene {
            set_up: |stage| stage.proxies[1..].iter().for_each(|proxy| proxy.delay(Duration::from_millis(50))),
            ..scene("comes_before_the_queue", Plan { lease: 100, overstays: true, pause: (0, 100), ..fair() })
        },
        // Answers to one that waits are lost, and it asks by another owner id. Two in a row would cost it its place.
        Scene {
            set_up: |stage| cut_answers(&stage.proxies[0], 3, is_of_fair_lock),
            ..scene("renamed_at_the_end", Plan { hold: (150, 170), poll: 150, ..fair() })
        },
        // Somebody asks while another has the lock.
        scene("gives_what_is_held", fair()),
        // Who had its turn is still the first.
        scene("keeps_served_places", fair()),
        // All who wait are taken for dead.
        scene("takes_all_for_dead", fair()),
    ]
}
