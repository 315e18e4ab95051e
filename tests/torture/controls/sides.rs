//! Scenes with read-write locks.

use super::{Scene, alone, plan};
use crate::nemesis::Act;
use crate::plan::Plan;
use crate::stage::{Servers, Stage};
use std::time::Duration;

/// One read-write lock.
fn shared() -> Plan {
    Plan { sides: 1, ..plan() }
}

pub(super) fn scenes() -> Vec<Scene> {
    let scene = |mutant, plan, act| {
        let (workers, servers, set_up): (_, _, fn(&mut Stage)) = (3, Servers::Lasting, |_| ());
        Scene { mutant, plan, workers, servers, set_up, act }
    };
    vec![
        // Readers never pause, and one comes to write.
        scene(
            "readers_ignore_the_mark",
            Plan { writers: 1, threads: 2, hold: (20, 40), pause: (0, 0), ..shared() },
            |_| (),
        ),
        // Writers never pause, and one that is told later than they ask comes to read.
        Scene {
            set_up: |stage| stage.proxies[2].delay(Duration::from_millis(5)),
            ..scene(
                "readers_have_no_turn",
                Plan { writers: 2, threads: 2, hold: (5, 10), pause: (0, 0), ..shared() },
                |_| (),
            )
        },
        // Writers never pause, and one is told later than the others ask again.
        Scene {
            set_up: |stage| stage.proxies[2].delay(Duration::from_millis(5)),
            ..scene(
                "writers_have_no_turn",
                Plan { writers: 3, threads: 1, hold: (5, 10), pause: (0, 0), ..shared() },
                |_| (),
            )
        },
        // Some read, some write.
        scene("writer_beside_readers", shared(), |_| ()),
        // All write, and read on.
        scene("downgrade_frees", Plan { writers: 3, downgrades: true, ..shared() }, |_| ()),
        // Two read, one writes.
        scene("reader_frees_for_all", Plan { writers: 1, ..shared() }, |_| ()),
        // A thread ends with a share; another of its process, which came in beside it, gives its own up; the others write.
        Scene {
            workers: 2,
            ..scene(
                "ended_threads_believe",
                Plan { groups: 1, writers: 1, threads: 6, watchdog: 400, response: 150, ..shared() },
                |_| (),
            )
        },
        // A reader has lost its time-out, and works on.
        scene("renews_without_timeout", Plan { hold: (900, 1_500), watchdog: 600, ..shared() }, |stage| {
            stage.perform(alone(Act::Evict, 0, 200))
        }),
    ]
}
