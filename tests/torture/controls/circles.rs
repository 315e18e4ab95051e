//! Scenes in which threads wait for each other.

use super::{Scene, plan};
use crate::plan::Plan;
use crate::rules::{hold_up_replies, is_question};
use crate::stage::Servers;
use std::time::Duration;

pub(super) fn scenes() -> Vec<Scene> {
    vec![
        // One worker hears each question late, so its account is of another moment than those of the others. Threads wait for each other
        // here, each for a while: what is told without the mutant is true.
        Scene {
            mutant: "believes_young_claims",
            plan: Plan {
                crosses: true,
                threads: 3,
                names: 4,
                pause: (0, 1),
                watchdog: 3_000,
                response: 1_000,
                ..plan()
            },
            workers: 3,
            servers: Servers::Lasting,
            set_up: |stage| hold_up_replies(&stage.proxies[0], Duration::from_millis(300), is_question),
            act: |_| (),
        },
    ]
}
