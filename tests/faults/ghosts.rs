//! Row 29: copies of a request that arrive over another connection, late or out of order.
//!
//! The request is cut from its connection before it arrives, the client repeats it on a new one, and the copy is
//! executed whenever the test says.

use crate::locks_of;
use crate::proxy::{Proxy, Step, deliver, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, eventually};
use redlatch::{Client, Hold, RedLock, ReentrantLock};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

struct Scene {
    locks: ReentrantLock,
    other: ReentrantLock,
    proxy: Proxy,
    server: Server,
}

/// A request that has not arrived yet.
struct Ghost<'a> {
    scene: &'a Scene,
    request: Arc<OnceLock<Vec<u8>>>,
}

impl Ghost<'_> {
    /// Has it executed now, and gives the answer that nobody waits for. In that its deadline is `own`: it names the attempt.
    fn arrives(&self) -> String {
        let request = self.request.get().expect("it was waylaid");
        let said = deliver(&self.scene.server.socket(), request).unwrap();
        let is_own = |line: &str| line.len() > 12 && String::from_utf8_lossy(request).contains(&line[1..]);
        said.split_inclusive('\n').map(|line| if is_own(line) { ":own\r\n" } else { line }).collect()
    }
}

impl Scene {
    fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::new(server.socket());
        let (locks, other) = (locks_of(Client::builder(&proxy.url())), server.locks());
        for _ in 0..2 {
            locks.lock("warm").unwrap();
        }
        locks.hold("warm").unwrap().extend(MINUTE).unwrap();
        for _ in 0..2 {
            locks.unlock("warm").unwrap();
        }
        Self { locks, other, proxy, server }
    }

    /// Cuts the next request that runs a script before any of it arrives, and keeps it.
    fn waylay(&self, script: &str) -> Ghost<'_> {
        let (request, runs) = (Arc::new(OnceLock::new()), runs(script));
        let kept = Arc::clone(&request);
        self.proxy.set(move |_, flow, data| {
            let take = runs(flow, data) && kept.set(data.to_vec()).is_ok();
            if take { vec![Step::Cut] } else { pass(data) }
        });
        Ghost { scene: self, request }
    }

    fn lock(&self) -> Hold {
        self.locks.lock("n").unwrap();
        self.locks.hold("n").unwrap()
    }

    /// The hold is in force, and the server says the same.
    fn assert_held(&self, hold: &Hold, count: i64) {
        assert!(hold.is_valid());
        assert_eq!(self.server.owner("n"), (hold.owner().to_owned(), count));
    }

    /// Somebody else's hold is left alone by what arrives.
    fn assert_harmless_to_another(&self, ghost: &Ghost<'_>, answer: &str) {
        self.other.lock_with_lease("n", Duration::from_secs(10)).unwrap();
        let hold = self.other.hold("n").unwrap();
        let said = ghost.arrives();
        assert!(said.starts_with(answer), "{said}");
        self.assert_held(&hold, 1);
        assert!((1..=10_000).contains(&self.server.pttl("n")), "its lease was changed");
        assert!(self.other.verify(&hold).unwrap());
        self.other.unlock("n").unwrap();
    }

    fn assert_nothing_left(&self) {
        eventually(LONG, "no key is left", || self.server.pttl("n") == -2);
    }
}

#[test]
fn fault_29_a_late_copy_of_an_acquire_changes_nothing_of_the_hold() {
    let scene = Scene::new();
    let ghost = scene.waylay("acquire");
    let hold = scene.lock();
    assert_eq!(ghost.arrives(), ":own\r\n");
    scene.assert_held(&hold, 1);
    scene.locks.unlock("n").unwrap();
    scene.assert_nothing_left();
}

#[test]
fn fault_29_a_late_copy_of_an_acquire_that_takes_the_lock_again_is_swept() {
    let scene = Scene::new();
    let ghost = scene.waylay("acquire");
    let hold = scene.lock();
    scene.locks.unlock("n").unwrap();
    assert_eq!(ghost.arrives(), ":own\r\n");
    assert!(scene.server.pttl("n") > 0 && !hold.is_valid());
    assert!(scene.other.try_lock_for("n", LONG).unwrap(), "it blocks others until its lease ends");
    scene.other.unlock("n").unwrap();
    assert!(scene.locks.hold("n").is_none());
}

#[test]
fn fault_29_a_late_copy_of_an_acquire_finds_the_lock_busy() {
    let scene = Scene::new();
    let ghost = scene.waylay("acquire");
    scene.lock();
    scene.locks.unlock("n").unwrap();
    scene.assert_harmless_to_another(&ghost, ":");
    scene.assert_nothing_left();
}

/// After the end of its attempt nothing of a request is executed any more.
#[test]
fn fault_29_a_copy_of_an_acquire_that_is_too_late_is_stale() {
    let scene = Scene::new();
    let locks = locks_of(Client::builder(&scene.proxy.url()).response_timeout(Duration::from_millis(500)));
    let ghost = scene.waylay("acquire");
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
    std::thread::sleep(Duration::from_millis(550));
    let said = ghost.arrives();
    assert!(said.starts_with("-STALE"), "{said}");
    assert_eq!(scene.server.pttl("n"), -2);
}

/// With one identity a thread, as Redisson has it, the copy would free the thread's next hold.
#[test]
fn fault_29_a_late_copy_of_a_release_does_not_free_the_threads_next_hold() {
    let scene = Scene::new();
    scene.lock();
    let ghost = scene.waylay("release");
    scene.locks.unlock("n").unwrap();
    let next = scene.lock();
    assert_eq!(ghost.arrives(), ":0\r\n");
    scene.assert_held(&next, 1);
    scene.locks.unlock("n").unwrap();
    scene.assert_harmless_to_another(&ghost, ":0");
    scene.assert_nothing_left();
}

#[test]
fn fault_29_a_late_copy_of_a_re_entry_counts_nothing_twice() {
    let scene = Scene::new();
    let hold = scene.lock();
    let ghost = scene.waylay("reenter");
    scene.lock();
    assert_eq!(ghost.arrives(), ":own\r\n");
    scene.assert_held(&hold, 2);
    scene.locks.unlock("n").unwrap();
    assert_eq!((hold.count(), scene.server.owner("n").1), (1, 1));
    scene.locks.unlock("n").unwrap();
    scene.assert_harmless_to_another(&ghost, ":0");
    assert_eq!(ghost.arrives(), ":0\r\n");
    scene.assert_nothing_left();
}

/// The count on the server is only a mirror: the last unlock frees the lock, whatever a late copy wrote there.
#[test]
fn fault_29_a_late_copy_of_an_inner_release_or_re_entry_keeps_no_lock() {
    for script in ["release", "reenter"] {
        let scene = Scene::new();
        let hold = scene.lock();
        let ghost = scene.waylay(script);
        scene.lock();
        scene.locks.unlock("n").unwrap();
        scene.lock();
        scene.locks.unlock("n").unwrap();
        assert_eq!(ghost.arrives(), if script == "release" { ":1\r\n" } else { ":own\r\n" });
        assert!(hold.is_valid() && hold.count() == 1);
        scene.locks.unlock("n").unwrap();
        scene.assert_nothing_left();
    }
}

#[test]
fn fault_29_a_late_copy_of_a_renewal_revives_nothing() {
    let scene = Scene::new();
    let hold = scene.lock();
    let ghost = scene.waylay("renew");
    hold.extend(MINUTE).unwrap();
    scene.locks.unlock("n").unwrap();
    assert_eq!(ghost.arrives(), "*2\r\n:0\r\n:own\r\n");
    assert!(!hold.is_valid());
    assert_eq!(scene.server.pttl("n"), -2);
    scene.assert_harmless_to_another(&ghost, "*2\r\n:0");
    scene.assert_nothing_left();
}
