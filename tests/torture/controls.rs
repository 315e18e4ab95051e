//! Positive controls: each mutant of the library gets a short scene in which it must be caught, and the same scene
//! without it must pass. Else a run that finds nothing would mean nothing.

use crate::history::record::{MS, now};
use crate::nemesis::{Act, Step};
use crate::plan::Plan;
use crate::rules::{cut_answers, hold_up, is_release, is_renewal, is_subscribe, is_while_held, keep_back};
use crate::stage::{Servers, Setting, Stage};
use crate::work::STAY;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

mod circles;
mod clusters;
mod fair;
mod groups;
pub(crate) mod judged;
mod permits;
mod sides;

/// A mutant that lives longer was not caught.
const LONGEST: u64 = 60_000 * MS;

/// How long the scene is played without the mutant, at least; otherwise twice as long as it took to catch it.
const CLEAN: u64 = 2_000 * MS;

/// How often a call may be passed over by others that came later, and for how long, in ms.
const PASSES: (usize, u64) = (16, 500);

/// How long a waiter may sleep beside a free lock, in ms; and that of a group whose master is replaced.
const FREE: u64 = 500;
const FREE_IN_GROUP: u64 = 2_000;

/// So often a scene is begun anew in which a master was replaced that was well.
const TRIES: usize = 3;

/// So many scenes at a time.
const LANES: usize = 3;

/// Those whose scene picks requests by what is in them, which nobody can do whose connections are sealed.
const READ_THE_WIRE: [&str; 8] = [
    "owner_per_thread",
    "renewal_recreates",
    "no_try_after_confirm",
    "while_held_repeats",
    "forgets_open_commands",
    "renamed_at_the_end",
    "forgets_operations",
    "believes_young_claims",
];

struct Scene {
    mutant: &'static str,
    plan: Plan,
    workers: usize,
    servers: Servers,
    set_up: fn(&mut Stage),
    /// Again and again.
    act: fn(&mut Stage),
}

/// Where and how all scenes are played.
pub(crate) struct Take {
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    /// By TLS.
    pub(crate) sealed: bool,
    /// Where histories go, if they are kept.
    pub(crate) histories: Option<PathBuf>,
}

/// What became of a mutant.
pub(crate) struct Caught {
    pub(crate) mutant: &'static str,
    /// By which checker, and how long after the beginning, in ms.
    pub(crate) by: Option<(String, u64)>,
    /// What was found without the mutant: nothing, or the scene proves nothing.
    pub(crate) without: Vec<String>,
    pub(crate) pairs_without: usize,
}

impl Caught {
    pub(crate) fn proves(&self) -> bool {
        self.by.is_some() && self.without.is_empty() && self.pairs_without > 0
    }
}

/// A few locks with short leases and patient connections.
fn plan() -> Plan {
    Plan {
        threads: 1,
        names: 1,
        hold: (5, 20),
        pause: (0, 2),
        watchdog: 600,
        response: 300,
        outage: 1_500,
        poll: 5_000,
        ..Plan::default()
    }
}

fn scenes() -> Vec<Scene> {
    let rest: fn(&mut Stage) = |_| ();
    vec![
        // Its replies come late, and it believes longer than the server.
        Scene {
            mutant: "deadline_from_reply",
            plan: Plan { lease: 300, overstays: true, pause: (20, 250), ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: |stage| stage.proxies[0].delay(Duration::from_millis(100)),
            act: rest,
        },
        // It is stopped for longer than its lease, goes on, and asks whether it still holds.
        Scene {
            mutant: "no_deadline_check",
            plan: Plan { lease: 200, hold: (100, 180), ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stage.freeze_client(0, Duration::from_millis(400)),
        },
        // It is stopped for longer than its own lease, which was booked as if it were the watchdog's.
        Scene {
            mutant: "books_usual_lease",
            plan: Plan { lease: 300, renewed: true, hold: (400, 900), watchdog: 5_000, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| {
                std::thread::sleep(Duration::from_millis(300));
                stage.freeze_client(0, Duration::from_millis(600));
            },
        },
        // A release that was given up and repeated arrives during the next hold.
        Scene {
            mutant: "owner_per_thread",
            plan: Plan { hold: (50, 150), response: 100, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: |stage| hold_up(&stage.proxies[0], Duration::from_millis(250), 2, is_release),
            act: rest,
        },
        // It unlocks when its lease is over, and the lock another's.
        Scene {
            mutant: "del_without_owner_check",
            plan: Plan { lease: 150, overstays: true, pause: (0, 40), ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: rest,
            act: rest,
        },
        // An inner level is released, and the lock is another's while the outer one goes on.
        Scene {
            mutant: "inner_release_frees",
            plan: Plan { mixed: true, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: rest,
        },
        // A renewal arrives after the release, and the key it makes is nobody's.
        Scene {
            mutant: "renewal_recreates",
            plan: Plan { hold: (505, 580), pause: (300, 900), threads: 2, names: 3, watchdog: 1_500, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: |stage| hold_up_all(stage, 100, is_renewal),
            act: rest,
        },
        // It is unlocked between a waiter's try and its subscription, for the last time: the subscription is confirmed
        // when everybody has gone on to the next name. Else the unlock of whoever stayed would wake the waiter.
        Scene {
            mutant: "no_try_after_confirm",
            plan: Plan { hold: (10, 30), threads: 2, names: 64, wanders: true, watchdog: 5_000, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: |stage| hold_up_all(stage, STAY / MS + 50, is_subscribe),
            act: rest,
        },
        // Threads of one process pass it on; the next two both have it.
        Scene {
            mutant: "gives_twice",
            plan: Plan { threads: 4, hold: (0, 1), pause: (0, 1), ..plan() },
            workers: 1,
            servers: Servers::Lasting,
            set_up: rest,
            act: rest,
        },
        // Who unlocks it goes away for long, and those who are parked sleep on. Those who come while it is stopped come
        // together when it goes on: else they meet by chance only.
        Scene {
            mutant: "never_rouses",
            plan: Plan { threads: 3, hold: (0, 0), pause: (0, 1_500), ..plan() },
            workers: 1,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| {
                stage.freeze_client(0, Duration::from_millis(500));
                std::thread::sleep(Duration::from_millis(1_200));
            },
        },
        // A lease of nothing excludes nobody.
        Scene {
            mutant: "lease_zero",
            plan: Plan { asks_zero: true, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: rest,
        },
        // Memory is short when it unlocks.
        Scene {
            mutant: "release_needs_memory",
            plan: plan(),
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stage.perform(alone(Act::OutOfMemory, 100, 100)),
        },
        // The server loses its data, and tokens begin anew.
        Scene {
            mutant: "tokens_forget_the_clock",
            plan: Plan { fenced: true, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stage.perform(alone(Act::FlushAll, 0, 100)),
        },
        // The server loses its data, and who had the lock writes on beside the next one.
        Scene {
            mutant: "while_held_does_not_look",
            plan: Plan { guarded: true, lease: 2_000, hold: (400, 600), response: 100, poll: 100, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stage.perform(alone(Act::FlushAll, 0, 700)),
        },
        // It is written, and not answered.
        Scene {
            mutant: "while_held_repeats",
            plan: Plan { guarded: true, ..plan() },
            workers: 2,
            servers: Servers::Lasting,
            set_up: |stage| cut_answers(&stage.proxies[0], 2, is_while_held),
            act: rest,
        },
        // A write arrives when its thread has gone on to the next.
        Scene {
            mutant: "forgets_open_commands",
            plan: Plan { guarded: true, threads: 2, hold: (300, 400), response: 1_000, watchdog: 4_000, ..plan() },
            workers: 1,
            servers: Servers::Lasting,
            set_up: rest,
            act: deliver_late,
        },
        // The lock is left to a JVM that has had it, and goes for a while.
        Scene {
            mutant: "mark_never_ends",
            plan: Plan { hold: (15, 20), pause: (0, 1), watchdog: 5_000, ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: |stage| stage.invite_foreigner(20, 900),
            act: rest,
        },
        // Fenced locks are given with the token that the holder before had.
        Scene {
            mutant: "gives_an_old_token",
            plan: Plan { fenced: true, hold: (15, 20), pause: (0, 1), ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: rest,
            act: rest,
        },
        // Who is next is stopped for longer than its offer, is given the lock meanwhile, and hears of it when it goes on.
        Scene {
            mutant: "believes_when_told",
            plan: Plan { hold: (30, 50), pause: (0, 1), watchdog: 400, response: 200, ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stop_the_next(stage, Duration::from_millis(900)),
        },
        // The same, but it asks again before it hears of it.
        Scene {
            mutant: "believes_any_name",
            plan: Plan { hold: (30, 50), pause: (0, 1), watchdog: 400, response: 200, ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stop_the_next(stage, Duration::from_millis(900)),
        },
        // Those who are gone stand before those who wait, and the lock is given to them.
        Scene {
            mutant: "gives_to_the_dead",
            plan: Plan { hold: (15, 20), pause: (0, 1), watchdog: 5_000, ..plan() },
            workers: 3,
            servers: Servers::Lasting,
            set_up: rest,
            act: |stage| stage.leave_dead(3),
        },
        // Two who waited were killed, and their tickets stand for listeners that nobody tells: a JVM. The lock is given up
        // for a while.
        Scene {
            mutant: "counts_by_subscribers",
            plan: Plan { hold: (600, 650), pause: (900, 900), watchdog: 3_000, poll: 1_000, ..plan() },
            workers: 1,
            servers: Servers::Lasting,
            set_up: |stage| stage.invite_foreigner(150, 5),
            act: |stage| {
                stage.lose_two_beside_a_foreigner(Duration::from_millis(500));
                std::thread::sleep(Duration::from_millis(1_300));
            },
        },
    ]
}

/// One step of a nemesis, in ms.
fn alone(act: Act, lasts: u64, pause: u64) -> Step {
    Step { act, whom: 0, lasts, pause, seed: 0 }
}

fn hold_up_all(stage: &mut Stage, millis: u64, fits: fn(&[u8]) -> bool) {
    for proxy in &stage.proxies {
        hold_up(proxy, Duration::from_millis(millis), 1, fits);
    }
}

/// What the first worker has run next while it holds a lock is run a while after its connection ended.
fn deliver_late(stage: &mut Stage) {
    let kept = keep_back(&stage.proxies[0], is_while_held);
    std::thread::sleep(Duration::from_millis(50));
    let late = std::mem::take(&mut *kept.lock().unwrap());
    stage.proxies[0].clear();
    if !late.is_empty() {
        let _ = crate::proxy::deliver(&stage.server().socket(), &late);
    }
}

/// Stops the worker that is next to get the first lock for a while, as soon as one is. First all have to have met, for
/// nobody queues who knows of no other.
fn stop_the_next(stage: &mut Stage, span: Duration) {
    std::thread::sleep(Duration::from_millis(100));
    let end = now() + 1_000 * MS;
    while now() < end {
        if let Some(next) = stage.stop_next() {
            return stage.thaw_client(next, span);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn all_scenes() -> Vec<Scene> {
    let rest =
        [fair::scenes(), sides::scenes(), permits::scenes(), circles::scenes(), groups::scenes(), clusters::scenes()];
    scenes().into_iter().chain(rest.into_iter().flatten()).collect()
}

/// The mutants that have a scene.
pub(crate) fn mutants() -> Vec<&'static str> {
    all_scenes().iter().map(|scene| scene.mutant).collect()
}

/// Plays the scenes that are chosen by their mutants and servers.
pub(crate) fn run(take: &Take, chosen: impl Fn(&str, Servers) -> bool) -> Vec<Caught> {
    let all = all_scenes();
    judged::mutants().for_each(|mutant| assert!(all.iter().any(|scene| scene.mutant == mutant), "{mutant}"));
    let all = all.into_iter().filter(|scene| !(take.sealed && READ_THE_WIRE.contains(&scene.mutant)));
    let scenes = Mutex::new(all.filter(|scene| chosen(scene.mutant, scene.servers)).rev().collect::<Vec<_>>());
    let caught = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let Some(scene) = scenes.lock().unwrap().pop() else { return };
                    let result = scene.play(take);
                    caught.lock().unwrap().push(result);
                }
            });
        }
    });
    caught.into_inner().unwrap()
}

impl Scene {
    fn play(&self, take: &Take) -> Caught {
        let by = self.hunt(take);
        let span = by.as_ref().map_or(CLEAN, |(_, took)| (2 * took * MS).max(CLEAN));
        let (without, pairs_without) = self.play_without(take, span);
        Caught { mutant: self.mutant, by, without, pairs_without }
    }

    fn open(&self, take: &Take, mutant: Option<&'static str>) -> Stage {
        let dir = take.dir.join(mutant.map_or_else(|| format!("without-{}", self.mutant), str::to_owned));
        let (plan, workers) = (self.plan.clone(), self.workers);
        let mut stage = Stage::open(Setting {
            plan,
            workers,
            servers: self.servers,
            sealed: take.sealed,
            mutant,
            seed: take.seed,
            dir,
            free: if self.servers.have_failovers() { FREE_IN_GROUP } else { FREE },
            passes: PASSES,
            enough: 0,
        });
        (self.set_up)(&mut stage);
        stage.start();
        stage
    }

    /// One act, and the time in which it shows.
    fn step(&self, stage: &mut Stage) {
        (self.act)(stage);
        std::thread::sleep(Duration::from_millis(100));
    }

    fn hunt(&self, take: &Take) -> Option<(String, u64)> {
        (0..TRIES).find_map(|_| self.hunt_once(take)).flatten()
    }

    /// `None`: something came about that is not the scene's. Else whether the mutant was caught.
    fn hunt_once(&self, take: &Take) -> Option<Option<(String, u64)>> {
        let mut stage = self.open(take, Some(self.mutant));
        let (mut caught, mut waits) = (None, take.waits_for(self.mutant));
        while (caught.is_none() || waits.is_some()) && now() - stage.started < LONGEST {
            self.step(&mut stage);
            if stage.broken().is_some() {
                stage.abort();
                return None;
            }
            if stage.has_lost_a_worker() {
                return Some(None);
            }
            // One that the servers do not explain is none: in a run nobody could tell how it came about.
            let found = stage.judge_so_far().findings();
            waits = waits.filter(|checker| found.iter().all(|finding| finding.checker != *checker));
            let found = found.into_iter().find(|finding| stage.explains(finding));
            let took = (now() - stage.started) / MS;
            let found = found.map(|finding| (format!("{}: {}", finding.checker, finding.what), took));
            caught = caught.or(found);
        }
        take.save(self.mutant, "refuse", &stage.histories_so_far());
        stage.abort();
        Some(caught)
    }

    fn play_without(&self, take: &Take, span: u64) -> (Vec<String>, usize) {
        let played = (0..TRIES).find_map(|_| self.play_without_once(take, span));
        played.unwrap_or_else(|| (vec!["masters were replaced that were well".to_owned()], 0))
    }

    fn play_without_once(&self, take: &Take, span: u64) -> Option<(Vec<String>, usize)> {
        let mut stage = self.open(take, None);
        while now() - stage.started < span && stage.broken().is_none() {
            self.step(&mut stage);
        }
        let started = stage.started;
        let end = stage.finish();
        let found = crate::findings(&end, started);
        if end.broken.is_some() && found.is_empty() {
            return None;
        }
        take.save(self.mutant, "accept", &end.histories);
        if !found.is_empty() {
            let name = format!("without-{}", self.mutant);
            crate::keep_logs(&take.dir.join(&name), &name, &found, &end.events, started);
        }
        Some((found, end.verdict.pairs + end.verdict.permits as usize))
    }
}
