//! Connections that fail in the middle of a request or a reply, at each of its bytes: no permit is lost or doubled.
//!
//! A run takes each eighth of the bytes; with `REDLATCH_SWEEP=all` it takes all of them, as `scripts/test --night` does.
//!
//! When all clients are gone, and so their work in the background, each semaphore has the permits that it must have.

use super::{Kind, bounded};
use crate::bytes::{Case, FAULTS, Fault, Finds, cases, client_with, fails, names};
use crate::proxy::{Flow, Proxy, runs};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish};
use redlatch::{LeasedSemaphore, Permits, Semaphore};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::scope;

/// The permits of each semaphore at first.
const TOTAL: u32 = 5;

/// So many cases run at once: most of the time they wait.
const LANES: usize = 6;

/// A semaphore whose client is behind the proxy, and somebody else who is not.
struct Scene<'a, S> {
    server: &'a Server,
    proxy: &'a Proxy,
    semaphores: &'a S,
    direct: &'a S,
    name: String,
    case: Case,
    script: &'static str,
    /// How long the message was in which it failed.
    length: Arc<OnceLock<usize>>,
}

impl<S: Kind> Scene<'_, S> {
    /// Lets the next request of the script for this name fail, or the reply to it.
    fn arm(&self) {
        let (runs, names) = (runs(self.script), names(&self.name));
        let find: Finds = Box::new(move |data| runs(Flow::Request, data) && names(data));
        self.proxy.set(fails(self.case, Arc::clone(&self.length), find));
    }

    fn take(&self, permits: u32) -> Permits {
        self.semaphores.acquire(&self.name, permits, &bounded()).unwrap().expect("they are left")
    }

    fn left(&self) -> Option<i64> {
        self.server.ask(&["GET", &self.name])
    }

    /// So many are left at last.
    #[track_caller]
    fn assert_left(&self, left: i64) {
        eventually(LONG, &format!("{left} are left: {:?} {:?}", self.case, self.left()), || self.left() == Some(left));
    }
}

/// A proxy and its client for each fault.
type Lane<S> = Vec<(Fault, Proxy, S)>;

fn lane<S: Kind>(server: &Server) -> Lane<S> {
    let seat = |fault| {
        let (proxy, client) = client_with(server, fault);
        (fault, proxy, S::new(&client))
    };
    FAULTS.map(seat).into()
}

/// What a case does; how many permits must be left in the end.
trait Act<S>: Fn(&Scene<'_, S>) -> i64 + Sync {}

impl<S, A: Fn(&Scene<'_, S>) -> i64 + Sync> Act<S> for A {}

/// A script on a server, and how many permits each semaphore must have left in the end.
struct Sweep<S> {
    script: &'static str,
    server: Server,
    direct: S,
    ends: Mutex<Vec<(String, i64)>>,
}

/// Lets `act` run once for each fault at each byte of the requests of this script, and of the replies.
fn at_every_byte<S: Kind>(script: &'static str, warm_up: impl Fn(&S), act: impl Act<S>) {
    let server = Server::start();
    let direct: S = super::usual(&server);
    let sweep = Sweep { script, server, direct, ends: Mutex::default() };
    let lanes: Vec<_> = (0..LANES).map(|_| lane::<S>(&sweep.server)).collect();
    lanes.iter().flatten().for_each(|(.., semaphores)| warm_up(semaphores));
    let measure = |flow| sweep.run(&lanes[0], Case { fault: Fault::Cut, flow, at: usize::MAX }, &act);
    let cases = Mutex::new(cases(measure));
    let next = || cases.lock().unwrap().pop_front();
    scope(|scope| {
        let work = |lane| std::iter::from_fn(next).for_each(|case| _ = sweep.run(lane, case, &act));
        let working: Vec<_> = lanes.iter().map(|lane| scope.spawn(move || work(lane))).collect();
        working.into_iter().for_each(finish);
    });
    drop(lanes);
    let Sweep { server, direct, ends, .. } = sweep;
    drop(direct);
    assert_ends(&server, &ends.into_inner().unwrap());
}

impl<S: Kind> Sweep<S> {
    /// Runs one case; gives the length of the message that failed.
    fn run(&self, lane: &Lane<S>, case: Case, act: &impl Act<S>) -> usize {
        let (_, proxy, semaphores) = lane.iter().find(|(fault, ..)| *fault == case.fault).unwrap();
        let (server, direct, script) = (&self.server, &self.direct, self.script);
        let scene = |round: usize| {
            let name = format!("{:?}{:?}{:05}{round:02}", case.fault, case.flow, case.at.min(99_999));
            Scene { server, proxy, semaphores, direct, name, case, script, length: Arc::default() }
        };
        // One that is held may have had no time to connect.
        for scene in (0..100).map(scene) {
            let left = act(&scene);
            proxy.clear();
            self.ends.lock().unwrap().push((scene.name.clone(), left));
            if let Some(length) = scene.length.get() {
                return *length;
            }
        }
        panic!("it was not sent: {case:?}");
    }
}

/// The permits that each semaphore must have are there, nothing else is, and each result has an end.
fn assert_ends(server: &Server, ends: &[(String, i64)]) {
    println!("{} cases", ends.len());
    let keys = || server.ask::<Vec<String>>(&["KEYS", "*"]);
    eventually(LONG, "no lease and no place is left", || {
        !keys().iter().any(|key| key.ends_with(":timeout") || key.starts_with("redlatch_places:"))
    });
    for (name, left) in ends {
        assert_eq!(server.ask::<Option<i64>>(&["GET", name]), Some(*left), "{name}");
    }
    let results: Vec<_> = keys().into_iter().filter(|key| key.starts_with("redlatch_op:")).collect();
    assert!(results.iter().all(|key| server.pttl(key) != -1), "{results:?}");
}

/// The server knows the scripts afterwards, so that requests have their hashes.
fn warm_up<S: Kind>(semaphores: &S) {
    let _ = semaphores.try_set_permits("warm", 3).unwrap();
    drop(semaphores.acquire("warm", 1, &bounded()).unwrap());
}

fn acquires<S: Kind>(script: &'static str) {
    at_every_byte(script, warm_up::<S>, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        scene.arm();
        let permits = scene.take(2);
        scene.assert_left(3);
        permits.release().unwrap();
        scene.assert_left(5);
        5
    });
}

#[test]
fn an_acquire_takes_its_permits_once() {
    acquires::<Semaphore>("semaphore/acquire");
}

#[test]
fn an_acquire_of_leased_permits_takes_them_once() {
    acquires::<LeasedSemaphore>("leased/acquire");
}

/// A try makes one attempt or few. If it fails, the background gives back what it took.
fn tries<S: Kind>(script: &'static str) {
    at_every_byte(script, warm_up::<S>, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        scene.arm();
        let tried = scene.semaphores.try_acquire(&scene.name, 2);
        scene.assert_left(if matches!(tried, Ok(Some(_))) { 3 } else { 5 });
        scene.proxy.clear();
        drop(tried);
        scene.assert_left(5);
        5
    });
}

#[test]
fn a_try_that_fails_takes_nothing_in_the_end() {
    tries::<Semaphore>("semaphore/acquire");
}

#[test]
fn a_try_of_leased_permits_that_fails_takes_nothing_in_the_end() {
    tries::<LeasedSemaphore>("leased/acquire");
}

/// A caller goes without permits, and the next call has others out of those that were given back.
fn releases<S: Kind>(script: &'static str, release: fn(Permits)) {
    at_every_byte(script, warm_up::<S>, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        let (others, permits) = (scene.take(2), scene.take(3));
        scene.arm();
        release(permits);
        scene.assert_left(3);
        scene.proxy.clear();
        others.release().unwrap();
        scene.assert_left(5);
        5
    });
}

#[test]
fn a_release_gives_its_permits_back_once() {
    releases::<Semaphore>("semaphore/add", |permits| permits.release().unwrap());
}

#[test]
fn a_release_of_leased_permits_gives_them_back_once() {
    releases::<LeasedSemaphore>("leased/release", |permits| permits.release().unwrap());
}

#[test]
fn a_drop_gives_its_permits_back_once() {
    releases::<Semaphore>("semaphore/add", drop);
}

#[test]
fn a_drop_of_leased_permits_gives_them_back_once() {
    releases::<LeasedSemaphore>("leased/release", drop);
}

#[test]
fn an_add_adds_once() {
    let warm = |semaphores: &Semaphore| _ = semaphores.add_permits("warm", 1).unwrap();
    at_every_byte("semaphore/add", warm, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        scene.arm();
        assert_eq!(scene.semaphores.add_permits(&scene.name, 3).unwrap(), 8, "{:?}", scene.case);
        scene.proxy.clear();
        assert_eq!(scene.semaphores.remove_permits(&scene.name, 1).unwrap(), 7, "{:?}", scene.case);
        7
    });
}

#[test]
fn a_drain_takes_and_tells_once() {
    let warm = |semaphores: &Semaphore| _ = semaphores.drain_permits("warm").unwrap();
    at_every_byte("semaphore/drain", warm, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        scene.arm();
        assert_eq!(scene.semaphores.drain_permits(&scene.name).unwrap(), 5, "{:?}", scene.case);
        scene.proxy.clear();
        assert_eq!(scene.semaphores.add_permits(&scene.name, 1).unwrap(), 1, "{:?}", scene.case);
        1
    });
}

fn sets<S: Kind>(script: &'static str) {
    at_every_byte(script, warm_up::<S>, |scene| {
        scene.arm();
        assert!(scene.semaphores.try_set_permits(&scene.name, 4).unwrap(), "{:?}", scene.case);
        assert!(!scene.direct.try_set_permits(&scene.name, 7).unwrap(), "{:?}", scene.case);
        assert_eq!(scene.left(), Some(4), "{:?}", scene.case);
        4
    });
}

#[test]
fn a_set_that_was_done_says_so() {
    sets::<Semaphore>("semaphore/set");
}

#[test]
fn a_set_of_leased_permits_that_was_done_says_so() {
    sets::<LeasedSemaphore>("leased/set");
}

/// A copy of the set that comes later does not set what was changed meanwhile.
#[test]
fn permits_are_set_anew_once() {
    at_every_byte("leased/set", warm_up::<LeasedSemaphore>, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        let permits = scene.direct.acquire(&scene.name, 2, &bounded()).unwrap().expect("they are left");
        scene.arm();
        scene.semaphores.set_permits(&scene.name, 9).unwrap();
        assert_eq!(scene.left(), Some(7), "{:?}", scene.case);
        permits.release().unwrap();
        9
    });
}

#[test]
fn a_force_release_gives_all_permits_back_once() {
    let warm = |semaphores: &LeasedSemaphore| _ = semaphores.force_release("warm").unwrap();
    at_every_byte("leased/force", warm, |scene| {
        scene.direct.try_set_permits(&scene.name, TOTAL).unwrap();
        let permits = scene.direct.acquire(&scene.name, 2, &bounded()).unwrap().expect("they are left");
        scene.arm();
        scene.semaphores.force_release(&scene.name).unwrap();
        assert_eq!(scene.left(), Some(5), "{:?}", scene.case);
        assert_err!(permits.release(), Lost);
        5
    });
}
