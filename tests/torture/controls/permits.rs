//! Scenes with permits of semaphores.

use super::{Scene, plan};
use crate::plan::Plan;
use crate::rules::{cut_answers, is_of_semaphore};
use crate::stage::{Servers, Stage};

pub(super) fn scenes() -> Vec<Scene> {
    let rest: fn(&mut Stage) = |_| ();
    let all = Plan { permits: 1, threads: 3, ..plan() };
    let scene =
        |mutant| Scene { mutant, plan: all.clone(), workers: 3, servers: Servers::Lasting, set_up: rest, act: rest };
    vec![
        // Each release gives back more than it had.
        scene("gives_permits_twice"),
        // Answers to releases are lost, and each attempt counts.
        Scene { set_up: |stage| cut_answers(&stage.proxies[0], 3, is_of_semaphore), ..scene("forgets_operations") },
        // Permits are given out again before their leases are over.
        scene("returns_permits_early"),
    ]
}
