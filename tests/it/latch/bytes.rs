//! Calls of a latch whose request or reply fails at any byte: each counts once if it returns, and at most once if it fails.

use super::{at_once, long};
use crate::bytes::{Case, Fault, Finds, cases, client_with, fails, names};
use crate::proxy::{Flow, Proxy, runs};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish};
use redlatch::{CountDownLatch, Result};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::scope;

/// So many cases run at once: most of the time they wait.
const LANES: usize = 8;

/// Latches behind the proxy, and others that are not.
struct Scene<'a> {
    proxy: &'a Proxy,
    latches: &'a CountDownLatch,
    direct: &'a CountDownLatch,
    script: &'static str,
    name: String,
    case: Case,
    /// How long the message was in which it failed.
    length: Arc<OnceLock<usize>>,
}

impl Scene<'_> {
    /// Lets the next run of the script fail, or the reply to it.
    fn arm(&self) {
        let (runs, names) = (runs(self.script), names(&self.name));
        let find: Finds = Box::new(move |data| runs(Flow::Request, data) && names(data));
        self.proxy.set(fails(self.case, Arc::clone(&self.length), find));
    }

    fn set(&self, count: u32) {
        assert!(self.direct.try_set_count(&self.name, count, None).unwrap(), "{:?}", self.case);
    }

    #[track_caller]
    fn assert_count(&self, count: u64) {
        assert_eq!(self.direct.count(&self.name).unwrap(), count, "{:?}", self.case);
    }

    #[track_caller]
    fn expect<T: PartialEq + std::fmt::Debug>(&self, answer: Result<T>, expected: T) {
        assert_eq!(answer.expect("it has time for a second attempt"), expected, "{:?}", self.case);
    }
}

/// A proxy and its client for each fault.
type Lane = Vec<(Fault, Proxy, CountDownLatch)>;

fn lane(server: &Server) -> Lane {
    let seat = |fault| {
        let (proxy, client) = client_with(server, fault);
        let latches = CountDownLatch::new(&client);
        load_scripts(&latches);
        (fault, proxy, latches)
    };
    crate::bytes::FAULTS.map(seat).into()
}

/// The server knows every script afterwards, so that requests have their hashes.
fn load_scripts(latches: &CountDownLatch) {
    let name = format!("warm:{}", latches.client().id());
    latches.try_set_count(&name, 2, None).unwrap();
    latches.count_down(&name).unwrap();
    assert!(!latches.wait(&name, &at_once()).unwrap() && latches.open(&name).unwrap());
}

/// Lets `act` run once for each fault at each byte of the script's request and its reply.
fn at_each_byte(script: &'static str, act: impl Fn(&Scene<'_>) + Sync) {
    let server = Server::start();
    let direct = CountDownLatch::new(&server.builder().build().unwrap());
    load_scripts(&direct);
    let lanes: Vec<Lane> = (0..LANES).map(|_| lane(&server)).collect();
    let one = |lane: &Lane, case: Case| {
        let (_, proxy, latches) = lane.iter().find(|(fault, ..)| *fault == case.fault).unwrap();
        let name = format!("{:?}{:?}{:05}", case.fault, case.flow, case.at.min(99_999));
        let scene = Scene { proxy, latches, direct: &direct, script, name, case, length: Arc::default() };
        act(&scene);
        proxy.clear();
        assert_eq!(latches.count_down(&scene.name).unwrap(), 0, "the next call works: {case:?}");
        *scene.length.get().expect("it failed")
    };
    let cases = Mutex::new(cases(|flow| one(&lanes[0], Case { fault: Fault::Cut, flow, at: usize::MAX })));
    let next = || cases.lock().unwrap().pop_front();
    scope(|scope| {
        let work = |lane| std::iter::from_fn(next).for_each(|case| _ = one(lane, case));
        let working: Vec<_> = lanes.iter().map(|lane| scope.spawn(move || work(lane))).collect();
        working.into_iter().for_each(finish);
    });
}

#[test]
fn a_count_is_set_once() {
    at_each_byte("latch/set", |scene| {
        scene.arm();
        scene.expect(scene.latches.try_set_count(&scene.name, 3, None), true);
        scene.assert_count(3);
        scene.expect(scene.latches.try_set_count(&scene.name, 5, None), false);
        scene.expect(scene.direct.open(&scene.name), true);
    });
}

#[test]
fn a_set_of_a_latch_with_a_count_is_refused() {
    at_each_byte("latch/set", |scene| {
        scene.set(2);
        scene.arm();
        scene.expect(scene.latches.try_set_count(&scene.name, 3, Some(LONG)), false);
        scene.assert_count(2);
        scene.expect(scene.direct.open(&scene.name), true);
    });
}

#[test]
fn a_count_down_counts_once() {
    at_each_byte("latch/count_down", |scene| {
        scene.set(3);
        scene.arm();
        scene.expect(scene.latches.count_down(&scene.name), 2);
        scene.assert_count(2);
        scene.expect(scene.latches.count_down(&scene.name), 1);
        scene.expect(scene.direct.count_down(&scene.name), 0);
    });
}

#[test]
fn the_last_count_down_opens() {
    at_each_byte("latch/count_down", |scene| {
        scene.set(1);
        scene.arm();
        scene.expect(scene.latches.count_down(&scene.name), 0);
        scene.expect(scene.direct.wait(&scene.name, &at_once()), true);
        // A latch that was set anew since then is not counted down by a copy.
        scene.set(1);
        scene.assert_count(1);
        scene.expect(scene.direct.open(&scene.name), true);
    });
}

#[test]
fn a_wait_sees_the_end() {
    at_each_byte("latch/look", |scene| {
        scene.set(1);
        scene.arm();
        scope(|scope| {
            let waiter = scope.spawn(|| scene.latches.wait(&scene.name, &long()));
            eventually(LONG, "the look fails", || scene.length.get().is_some());
            scene.expect(scene.direct.count_down(&scene.name), 0);
            scene.expect(finish(waiter), true);
        });
    });
}

#[test]
fn an_open_says_that_it_opened() {
    at_each_byte("latch/open", |scene| {
        scene.set(5);
        scene.arm();
        scene.expect(scene.latches.open(&scene.name), true);
        scene.assert_count(0);
        scene.expect(scene.direct.open(&scene.name), false);
    });
}
