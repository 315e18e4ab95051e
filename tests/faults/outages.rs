//! The server goes away and comes back while holders hold and waiters wait.
//!
//! In each case nobody hangs, every call comes back within its own bound or the outage budget, the holder learns
//! how it stands, exactly once that it lost, and waiters are served within a second of the server's return.

use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, eventually, finish, ms, patiently, spawn_asleep, timed};
use crate::{MINUTE, assert_refused, assert_told};
use redlatch::{
    Applied, Client, ClientBuilder, Error, Hold, HoldState, LossCause, MultiLock, RedLock, ReentrantLock, Terms,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

/// The watchdog renews it every two seconds, so a server that starts slowly has most of it. A renewal fails after 300 ms without an
/// answer, and is repeated 300 ms later.
const LEASE: Duration = Duration::from_secs(6);

/// A holder, who counts what it is told, and somebody else who waits for the same lock.
struct Scene {
    holder: ReentrantLock,
    other: ReentrantLock,
    lost: Arc<AtomicUsize>,
}

fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).watchdog_timeout(LEASE).response_timeout(ms(300)).poll_cap(LONG)
}

impl Scene {
    fn new(server: &Server) -> Self {
        Self::at(&server.url())
    }

    fn at(url: &str) -> Self {
        Self::made_by(|| builder(url))
    }

    fn made_by(builder: impl Fn() -> ClientBuilder) -> Self {
        let lost = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lost);
        let on_lost = move |_| {
            count.fetch_add(1, SeqCst);
        };
        let holder = ReentrantLock::new(&builder().on_lost(on_lost).build().unwrap());
        let other = ReentrantLock::new(&builder().build().unwrap());
        Self { holder, other, lost }
    }

    fn hold(&self) -> Hold {
        self.holder.lock("n").unwrap();
        self.holder.hold("n").unwrap()
    }

    /// The other waits; gives when it got the lock, which it gave back at once.
    fn waiting<'s>(&'s self, scope: &'s std::thread::Scope<'s, '_>) -> ScopedJoinHandle<'s, (Mark, Mark)> {
        spawn_asleep(scope, || {
            assert!(self.other.try_lock_for("n", LONG).unwrap());
            let got = Mark::now();
            let _ = self.other.unlock("n");
            got
        })
    }

    /// The hold is lost, and everyone was told once.
    fn assert_lost(&self, hold: &Hold, cause: LossCause) {
        let told = hold.lost();
        assert_eq!(told.recv_timeout(LONG).unwrap().cause(), cause);
        assert!(told.recv_timeout(ms(50)).is_err(), "told twice");
        eventually(SOON, "the callback was called", || self.lost.load(SeqCst) > 0);
        assert_eq!(self.lost.load(SeqCst), 1);
        assert_eq!(hold.state(), HoldState::Lost);
        assert_err!(self.holder.lock("n"), Lost);
        assert_err!(self.holder.unlock("n"), Lost);
    }
}

fn becomes(hold: &Hold, state: HoldState) {
    eventually(LONG, &format!("{state:?}"), || hold.state() == state);
}

fn assert_served_soon(got: ScopedJoinHandle<'_, (Mark, Mark)>, since: Mark) {
    let took = finish(got).0 - since;
    println!("served {took:?} after it could be");
    assert!(took <= SOON, "{took:?}");
}

#[test]
fn fault_01_killed_and_restarted_empty() {
    let mut server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        server.kill();
        server.restart();
        assert_served_soon(waiting, Mark::now());
    });
    scene.assert_lost(&hold, LossCause::Removed);
}

#[test]
fn fault_02_killed_and_restarted_with_its_data() {
    let mut server = Server::start_with_data();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        server.kill();
        becomes(&hold, HoldState::Suspect);
        assert!(hold.is_valid());
        server.restart();
        becomes(&hold, HoldState::Held);
        assert!(!waiting.is_finished(), "the lock was held all the time");
        scene.holder.unlock("n").unwrap();
        assert_served_soon(waiting, Mark::now());
    });
    assert_eq!((scene.lost.load(SeqCst), hold.state()), (0, HoldState::Released));
}

#[test]
fn fault_04_frozen_for_less_than_the_lease() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        server.freeze();
        becomes(&hold, HoldState::Suspect);
        server.thaw();
        becomes(&hold, HoldState::Held);
        assert!(!waiting.is_finished());
        scene.holder.unlock("n").unwrap();
        assert_served_soon(waiting, Mark::now());
    });
    assert_eq!(scene.lost.load(SeqCst), 0);
}

#[test]
fn fault_04_frozen_for_longer_than_the_lease() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        server.freeze();
        becomes(&hold, HoldState::Lost);
        let (result, took) = timed(|| scene.other.try_lock_for("m", ms(300)));
        assert!(result.unwrap_err().is_retryable());
        assert!(took <= ms(300) + LATE, "{took:?}");
        server.thaw();
        assert_served_soon(waiting, Mark::now());
    });
    scene.assert_lost(&hold, LossCause::Expired);
}

#[test]
fn fault_22_away_for_longer_than_the_outage_budget() {
    const BUDGET: Duration = Duration::from_secs(1);
    let mut server = Server::start();
    let client = builder(&server.url()).outage_budget(BUDGET).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting: Vec<_> = (0..8).map(|_| spawn_asleep(scope, || locks.lock("n"))).collect();
        let away = Mark::now();
        server.kill();
        for waiting in waiting {
            let (result, end) = finish(waiting);
            assert!(matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })), "{result:?}");
            assert!(end - away <= BUDGET + SOON, "{:?}", end - away);
        }
    });
    let (result, took) = timed(|| locks.lock("m"));
    assert_eq!(result.unwrap_err().applied(), Applied::No);
    assert!(took <= BUDGET + LATE, "{took:?}");
    scene.assert_lost(&hold, LossCause::Expired);
}

#[test]
fn fault_31_its_connections_are_killed_again_and_again() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        for _ in 0..50 {
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            scene.holder.lock("m").unwrap();
            scene.holder.unlock("m").unwrap();
        }
        assert!(hold.is_valid() && !waiting.is_finished());
        scene.holder.unlock("n").unwrap();
        assert_served_soon(waiting, Mark::now());
    });
    assert_eq!(scene.lost.load(SeqCst), 0);
    assert!(scene.holder.client().stats().reconnects >= 50);
}

#[test]
fn fault_06_its_scripts_are_flushed_between_every_pair_of_calls() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let flush = || drop(server.ask::<String>(&["SCRIPT", "FLUSH"]));
    for _ in 0..20 {
        flush();
        let hold = scene.hold();
        flush();
        scene.holder.lock("n").unwrap();
        flush();
        scene.holder.unlock("n").unwrap();
        flush();
        assert!(scene.holder.verify(&hold).unwrap());
        scene.holder.unlock("n").unwrap();
    }
}

/// It answers between a thousand keys and the next, which on a busy machine is too seldom for some calls.
#[test]
fn fault_12_loading_its_data() {
    let mut server = Server::start_with_data();
    let url = server.url();
    let scene =
        Scene::made_by(|| builder(&url).response_timeout(ms(600)).watchdog_timeout(10 * LEASE).outage_budget(LONG));
    let hold = scene.hold();
    server.fill(30_000);
    scope(|scope| {
        let waiting = scene.waiting(scope);
        server.kill();
        server.restart_slowly(Duration::from_micros(1));
        let is_told = || match scene.other.try_lock("m").unwrap_err() {
            Error::Refused { code, .. } => code == "LOADING",
            Error::OutcomeUnknown { .. } | Error::Unavailable { .. } => false,
            error => panic!("{error:?}"),
        };
        eventually(LONG, "a call is told", is_told);
        scene.other.lock("m").unwrap();
        scene.other.unlock("m").unwrap();
        assert!(matches!(hold.state(), HoldState::Held | HoldState::Suspect), "{:?}", hold.state());
        becomes(&hold, HoldState::Held);
        scene.holder.unlock("n").unwrap();
        assert_served_soon(waiting, Mark::now());
    });
    server.clear();
}

#[test]
fn fault_08_out_of_memory() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_told("OOM", || scene.holder.try_lock("m"));
        let before = scene.holder.client().stats().renewals;
        eventually(LONG, "renewals go on", || scene.holder.client().stats().renewals > before);
        scene.holder.unlock("n").unwrap();
        let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_served_soon(waiting, Mark::now());
    });
    assert_eq!((hold.state(), scene.lost.load(SeqCst)), (HoldState::Released, 0));
}

#[test]
fn fault_11_read_only_and_writable_again() {
    let server = Server::start();
    let scene = Scene::new(&server);
    let hold = scene.hold();
    scope(|scope| {
        let waiting = scene.waiting(scope);
        let _: String = server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
        let _: String = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        assert_told("READONLY", || scene.other.try_lock("m"));
        assert_told("READONLY", || scene.holder.verify(&hold));
        becomes(&hold, HoldState::Suspect);
        let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]);
        becomes(&hold, HoldState::Held);
        assert!(!waiting.is_finished());
        scene.holder.unlock("n").unwrap();
        assert_served_soon(waiting, Mark::now());
    });
    assert_eq!(scene.lost.load(SeqCst), 0);
}

#[test]
fn fault_56_its_password_is_changed() {
    let server = Server::start();
    let scene = Scene::at(&server.let_in("app", "old", "allcommands allkeys allchannels"));
    let hold = scene.hold();
    let _: String = server.ask(&["ACL", "SETUSER", "app", "resetpass", ">new"]);
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "app"]);
    let (result, took) = timed(|| scene.other.lock("m"));
    assert_refused(result, "WRONGPASS");
    assert!(took <= SOON, "a wrong password does not pass: {took:?}");
    becomes(&hold, HoldState::Suspect);
    scene.assert_lost(&hold, LossCause::Expired);
    let late = scene.other.client().stats().reconnects;
    assert!(late <= 10, "no storm of connections: {late}");
    eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
}

#[test]
fn fault_26_a_peer_that_accepts_and_says_nothing() {
    const BUDGET: Duration = Duration::from_secs(1);
    let socket = std::env::temp_dir().join(format!("redlatch-it-silent-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let client = builder(&format!("unix://{}", socket.display())).outage_budget(BUDGET).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let bounds: [(&dyn Fn() -> redlatch::Result<bool>, Duration); 3] = [
        (&|| locks.lock("n").map(|()| true), BUDGET),
        (&|| locks.try_lock("n"), ms(300)),
        (&|| locks.try_lock_for("n", ms(500)), ms(500)),
    ];
    for (call, bound) in bounds {
        let (result, took) = timed(call);
        assert_err!(result, Unavailable);
        assert!(took <= bound + LATE, "{took:?}");
    }
    drop(listener);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn fault_01_eight_clients_wait_out_a_restart_and_are_all_served() {
    let mut server = Server::start();
    let clients: Vec<_> = (0..8).map(|_| Scene::new(&server)).collect();
    let first = Scene::new(&server);
    let hold = first.hold();
    scope(|scope| {
        let waiting: Vec<_> = clients.iter().map(|scene| scene.waiting(scope)).collect();
        server.kill();
        server.restart();
        let back = Mark::now();
        waiting.into_iter().for_each(|waiting| assert_served_soon(waiting, back));
    });
    let gone = Mark::now();
    first.assert_lost(&hold, LossCause::Removed);
    println!("told of the loss {:?} after the others were served", gone.elapsed());
}

#[test]
fn fault_134_an_extend_of_a_group_ends_at_the_member_whose_server_is_away_and_may_be_repeated() {
    let mut servers = [Server::start(), Server::start_with_data()];
    let locks = |server: &Server| ReentrantLock::new(&builder(&server.url()).outage_budget(ms(600)).build().unwrap());
    let [one, away] = servers.each_ref().map(locks);
    let group = MultiLock::of([(&one, "a"), (&away, "b"), (&one, "c")]);
    let hold = patiently(|| group.acquire(&Terms::new().lease(MINUTE))).unwrap();
    let prolonged = || [0, 1, 2].map(|at| hold.holds()[at].remaining() > MINUTE);
    servers[1].kill();
    let error = hold.extend(10 * MINUTE).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. } | Error::OutcomeUnknown { .. }), "{error}");
    assert_eq!((error.resource(), prolonged(), hold.is_valid()), (Some("b"), [true, false, false], true));
    servers[1].restart();
    patiently(|| hold.extend(10 * MINUTE));
    assert_eq!(prolonged(), [true; 3]);
    patiently(|| group.release(&hold));
}
