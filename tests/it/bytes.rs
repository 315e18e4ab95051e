//! Connections that break in the middle of a request or a reply, at each of its bytes.
//!
//! Whatever was cut, the call has its effect once, nobody believes in a lock that is not theirs, the next call
//! works, and no key is left.

use crate::proxy::{Flow, Proxy, cut_after, pass, pass_after, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, ms, timed};
use redlatch::{Client, Hold, HoldState, RedLock, RedLockExt, ReentrantLock};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A request is cut at every so many bytes.
const REQUEST_STEP: usize = 7;

/// A lock whose holder is behind the proxy, and somebody else who is not.
struct Scene<'a> {
    server: &'a Server,
    proxy: &'a Proxy,
    locks: &'a ReentrantLock,
    direct: &'a ReentrantLock,
    script: &'static str,
    flow: Flow,
    name: String,
    cut_at: usize,
    /// How long what was cut is.
    length: Arc<OnceLock<usize>>,
}

impl Scene<'_> {
    /// Cuts the next request that runs the script, or the reply to it.
    fn arm(&self) {
        let (flow, cut_at, length, runs) = (self.flow, self.cut_at, Arc::clone(&self.length), runs(self.script));
        let mut asked = None;
        self.proxy.set(move |connection, at, data| {
            if length.get().is_some() {
                return pass(data);
            }
            if asked.is_none() && runs(at, data) {
                asked = Some(connection);
            }
            if asked != Some(connection) || at != flow {
                return pass(data);
            }
            length.set(data.len()).unwrap();
            cut_after(cut_at, data)
        });
    }

    fn lock(&self) -> Hold {
        self.locks.lock(&self.name).unwrap();
        self.locks.hold(&self.name).unwrap()
    }

    fn unlock(&self) {
        self.locks.unlock(&self.name).unwrap();
    }

    /// The holder believes in its lock, and the server knows of it.
    fn assert_held(&self, count: i64) {
        let hold = self.locks.hold(&self.name).unwrap();
        assert!(hold.is_valid(), "{hold:?}");
        assert_eq!(self.server.owner(&self.name), (hold.owner().to_string(), count));
        assert_eq!(self.locks.hold_count(&self.name), count as usize);
        assert!(!self.direct.try_lock(&self.name).unwrap());
    }

    fn assert_free(&self) {
        assert!(self.locks.hold(&self.name).is_none_or(|hold| !hold.is_valid()));
        assert!(self.direct.try_lock_for(&self.name, LONG).unwrap());
        self.direct.unlock(&self.name).unwrap();
    }
}

/// Lets `act` run for each cut of the replies to a script and of the requests that run it.
fn at_any_byte(script: &'static str, act: impl Fn(&Scene)) {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let direct = server.locks();
    let locks = ReentrantLock::connect(&proxy.url()).unwrap();
    load_scripts(&locks);
    for (flow, step) in [(Flow::Reply, 1), (Flow::Request, REQUEST_STEP)] {
        let mut cut_at = 0;
        loop {
            let (name, length) = (format!("{flow:?}{cut_at}"), Arc::default());
            let scene = Scene {
                server: &server,
                proxy: &proxy,
                locks: &locks,
                direct: &direct,
                script,
                flow,
                name,
                cut_at,
                length,
            };
            act(&scene);
            proxy.clear();
            let end = *scene.length.get().expect("it was cut");
            locks.lock("next").unwrap();
            locks.unlock("next").unwrap();
            if cut_at >= end {
                break;
            }
            cut_at = (cut_at + step).min(end);
        }
    }
    assert_nothing_left(&server, &locks);
}

/// The server knows every script afterwards, so that requests have their hashes.
fn load_scripts(locks: &ReentrantLock) {
    locks.lock("warm").unwrap();
    locks.lock("warm").unwrap();
    locks.hold("warm").unwrap().extend(Duration::from_secs(60)).unwrap();
    locks.unlock("warm").unwrap();
    locks.unlock("warm").unwrap();
    locks.force_unlock("warm").unwrap();
}

fn assert_nothing_left(server: &Server, locks: &ReentrantLock) {
    eventually(LONG, "no key is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
    let stats = locks.client().stats();
    assert_eq!((stats.holds, stats.waiters), (0, 0));
}

#[test]
fn a_lock_cut_at_any_byte_is_held_once() {
    at_any_byte("acquire", |scene| {
        scene.arm();
        scene.lock();
        scene.assert_held(1);
        scene.unlock();
    });
}

#[test]
fn a_try_cut_at_any_byte_is_held_once() {
    at_any_byte("acquire", |scene| {
        scene.arm();
        assert!(scene.locks.try_lock(&scene.name).unwrap());
        scene.assert_held(1);
        scene.unlock();
    });
}

#[test]
fn a_try_of_a_taken_lock_cut_at_any_byte_is_refused() {
    at_any_byte("acquire", |scene| {
        scene.direct.lock(&scene.name).unwrap();
        scene.arm();
        assert!(!scene.locks.try_lock(&scene.name).unwrap());
        scene.direct.unlock(&scene.name).unwrap();
    });
}

#[test]
fn an_unlock_cut_at_any_byte_gives_the_lock_back() {
    at_any_byte("release", |scene| {
        let hold = scene.lock();
        scene.arm();
        scene.unlock();
        assert_eq!((hold.state(), hold.count()), (HoldState::Released, 0));
        scene.assert_free();
    });
}

#[test]
fn a_guard_whose_drop_is_cut_at_any_byte_gives_the_lock_back() {
    at_any_byte("release", |scene| {
        let guard = scene.locks.guard(&scene.name).unwrap();
        scene.arm();
        drop(guard);
        scene.assert_free();
    });
}

#[test]
fn a_reentry_cut_at_any_byte_counts_once() {
    at_any_byte("reenter", |scene| {
        scene.lock();
        scene.arm();
        scene.lock();
        scene.assert_held(2);
        scene.unlock();
        scene.unlock();
    });
}

#[test]
fn an_inner_unlock_cut_at_any_byte_counts_once() {
    at_any_byte("release", |scene| {
        scene.lock();
        scene.lock();
        scene.arm();
        scene.unlock();
        scene.assert_held(1);
        scene.unlock();
        scene.assert_free();
    });
}

#[test]
fn an_extension_cut_at_any_byte_keeps_the_hold() {
    at_any_byte("renew", |scene| {
        let hold = scene.lock();
        scene.arm();
        hold.extend(Duration::from_secs(60)).unwrap();
        scene.assert_held(1);
        scene.unlock();
    });
}

#[test]
fn a_verification_cut_at_any_byte_keeps_the_hold() {
    at_any_byte("reenter", |scene| {
        let hold = scene.lock();
        scene.arm();
        assert!(scene.locks.verify(&hold).unwrap());
        scene.assert_held(1);
        scene.unlock();
    });
}

#[test]
fn a_force_unlock_cut_at_any_byte_takes_the_hold_away() {
    at_any_byte("force_unlock", |scene| {
        scene.lock();
        scene.arm();
        scene.locks.force_unlock(&scene.name).unwrap();
        scene.assert_free();
        assert_err!(scene.locks.unlock(&scene.name), Lost);
    });
}

/// Numbers that look random and are the same in each run.
fn numbers() -> impl FnMut(u64) -> u64 + Send {
    let mut seed: u64 = 88_172_645_463_325_252;
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

#[test]
fn connections_cut_at_random_bytes_never_let_two_in() {
    const WAIT: Duration = Duration::from_millis(300);
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let builder = Client::builder(&proxy.url()).watchdog_timeout(Duration::from_secs(3)).response_timeout(ms(200));
    let locks = ReentrantLock::new(&builder.build().unwrap());
    let mut random = numbers();
    proxy.set(move |_, _, data| match random(12) {
        0 => cut_after(random(data.len() as u64 + 1) as usize, data),
        1 => pass_after(ms(random(260)), data),
        _ => pass(data),
    });
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let enter = |waits_for_ever: bool| {
        let (got, took) = timed(|| match waits_for_ever {
            true => locks.lock("n").map(|()| true),
            false => locks.try_lock_for("n", WAIT),
        });
        assert!(waits_for_ever || took < WAIT + LATE, "{took:?} for {got:?}");
        if !matches!(got, Ok(true)) {
            return;
        }
        if locks.hold("n").unwrap().remaining() > SOON {
            assert_eq!(inside.fetch_add(1, SeqCst), 0);
            std::thread::sleep(ms(1));
            inside.fetch_sub(1, SeqCst);
            entered.fetch_add(1, SeqCst);
        }
        let (result, took) = timed(|| locks.unlock("n"));
        assert!(took < Duration::from_secs(4), "{took:?} for {result:?}");
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let enter = &enter;
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(5);
                (thread..).take_while(|_| Instant::now() < end).for_each(|turn| enter(turn % 3 == 0));
            });
        }
    });
    proxy.clear();
    assert!(entered.load(SeqCst) > 0);
    assert_nothing_left(&server, &locks);
}
