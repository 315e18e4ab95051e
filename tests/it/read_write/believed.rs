//! For how long what is said beside the lock is believed: of the dead not at all, and of nobody for longer than it may be true.

use super::starving::{left_to_first, marked};
use super::{ReadWriteLock, two};
use crate::server::Server;
use crate::threads::{LONG, elsewhere, eventually, finish, spawn_asleep};
use harness::cluster::Cluster;
use redlatch::{CancelToken, RedLock, RedLockExt};
use std::time::Duration;

const MARK: &str = "redlatch_writer:{n}";
const GONE: &str = "gone:1:1:write";
const HOUR: u64 = 3_600_000;
const POLL_CAP: Duration = Duration::from_millis(400);
const MINUTE: Duration = Duration::from_secs(60);

/// Ends the wait of another thread, also when a test fails.
struct Ends<'a>(&'a CancelToken);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// By the server's clock, ms.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1_000 + micros / 1_000
}

fn sides(server: &Server) -> ReadWriteLock {
    ReadWriteLock::new(&server.builder().poll_cap(POLL_CAP).build().unwrap())
}

/// The clock was put back by an hour since.
#[test]
fn what_came_in_the_future_and_whose_turn_is_then_keeps_nobody_out() {
    let server = Server::start();
    let [locks, _] = two(&server);
    let late = (now(&server) + HOUR).to_string();
    server.ask::<i64>(&["ZADD", MARK, &late, GONE, &late, "!"]);
    assert!(locks.read().try_lock("n").unwrap(), "neither says that a writer waits");
    locks.read().unlock("n").unwrap();
    assert!(locks.write().try_lock_for("n", LONG).unwrap());
    locks.write().unlock("n").unwrap();
    server.ask::<i64>(&["DEL", MARK]);
}

/// Else each release would leave the lock to it for 10 ms until then.
#[test]
fn a_release_leaves_the_lock_to_nobody_for_an_hour() {
    let server = Server::start();
    let locks = sides(&server);
    for side in [locks.write() as &dyn RedLock, locks.read()] {
        side.lock("n").unwrap();
        marked(&server, GONE, 1_000, HOUR);
        side.unlock("n").unwrap();
        let ends: f64 = server.ask(&["ZSCORE", MARK, &format!("+{GONE}")]);
        let latest = (now(&server) + 2 * POLL_CAP.as_millis() as u64 + 1) as f64;
        assert!(ends <= latest, "it counts for {} ms too long", ends - latest);
        server.ask::<i64>(&["DEL", MARK]);
    }
}

/// Whoever comes until then would pass it.
#[test]
fn a_writer_that_came_before_the_clock_was_put_back_comes_now() {
    let server = Server::start();
    let (locks, other) = (sides(&server), sides(&server));
    let (guard, token) = (locks.read().guard("n").unwrap(), CancelToken::new());
    std::thread::scope(|scope| {
        let _ends = Ends(&token);
        let writer = spawn_asleep(scope, || other.write().lock_cancellable("n", &token).is_err());
        let field = || server.ask::<Vec<String>>(&["ZRANGE", MARK, "0", "0"]).first().cloned();
        eventually(LONG, "it waits", || field().is_some_and(|field| field.ends_with(":write")));
        let (field, late) = (field().unwrap(), now(&server) + HOUR);
        server.ask::<i64>(&["ZADD", MARK, &late.to_string(), &field]);
        let arrival = || server.ask::<f64>(&["ZSCORE", MARK, &field]);
        eventually(LONG, "it comes anew", || arrival() <= now(&server) as f64);
        token.cancel();
        assert!(finish(writer).0);
    });
    guard.unlock().unwrap();
}

/// A process whose ear has had a listener, and has none, is gone.
#[test]
fn a_writer_counts_no_longer_than_its_ear_has_a_listener() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let mut connection = server.connection();
    let mut ear = connection.as_pubsub();
    ear.subscribe("redlatch_ear:gone").unwrap();
    let wait = || {
        marked(&server, GONE, 1_000, 5_000);
        let end = (now(&server) + 5_000).to_string();
        server.ask::<i64>(&["ZADD", MARK, &end, &format!("@{GONE}")]);
    };
    wait();
    assert!(!locks.read().try_lock("n").unwrap(), "it lives");
    ear.unsubscribe("redlatch_ear:gone").unwrap();
    assert!(locks.read().try_lock("n").unwrap(), "it is gone");
    assert!(elsewhere(|| other.read().try_lock("n").unwrap() && other.read().unlock("n").is_ok()));
    locks.read().unlock("n").unwrap();
    assert_eq!(left_to_first(&server), None, "the lock is left to the dead");
    let fields: Vec<String> = server.ask(&["ZRANGE", MARK, "0", "-1"]);
    assert!(!fields.iter().any(|field| field == GONE), "{fields:?}");
    // Of one whose ear was never heard that is not known.
    marked(&server, GONE, 1_000, 5_000);
    server.ask::<i64>(&["ZREM", MARK, &format!("@{GONE}")]);
    assert!(!locks.read().try_lock("n").unwrap());
    server.ask::<i64>(&["DEL", MARK]);
}

/// That who waits to write says that it can be heard, and is, with its first looks; where there is its mark, its ear and who listens.
fn assert_is_heard(
    waits: &ReadWriteLock,
    name: &str,
    ear: &str,
    fields: &(dyn Fn() -> Vec<String> + Sync),
    subscribers: &(dyn Fn(&str) -> i64 + Sync),
) {
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let _ends = Ends(&token);
        let writer = spawn_asleep(scope, || waits.write().lock_cancellable(name, &token).is_err());
        let heard = || fields().iter().find_map(|field| Some(field.strip_prefix('@')?.split(':').next()?.to_owned()));
        eventually(LONG, "it is heard", || heard().is_some());
        assert_eq!(subscribers(&format!("{ear}:{}", heard().unwrap())), 1);
        token.cancel();
        assert!(finish(writer).0);
    });
    eventually(LONG, "nothing is left", || fields().is_empty());
}

/// Also where the lock's channel is heard already, and so confirms nothing any more.
#[test]
fn who_waits_to_write_listens_to_its_ear() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| ReadWriteLock::new(&server.builder().poll_cap(MINUTE).build().unwrap()));
    let fields = || server.ask::<Vec<String>>(&["ZRANGE", MARK, "0", "-1"]);
    let is_heard = || assert_is_heard(&other, "n", "redlatch_ear", &fields, &|ear| server.subscribers(ear));
    let guard = locks.write().guard("n").unwrap();
    std::thread::scope(|scope| {
        let reader = spawn_asleep(scope, || other.read().try_lock_for("n", LONG).unwrap());
        eventually(LONG, "it hears of the lock", || server.subscribers("redisson_rwlock:{n}") == 1);
        guard.unlock().unwrap();
        assert!(finish(reader).0);
    });
    let guard = locks.read().guard("n").unwrap();
    is_heard();
    is_heard();
    guard.unlock().unwrap();
}

/// The ear is in the lock's slot there.
#[test]
fn who_waits_to_write_in_a_cluster_listens_to_its_ear_there() {
    let cluster = Cluster::start();
    let [locks, other] = [(); 2].map(|()| ReadWriteLock::new(&cluster.builder().build().unwrap()));
    let (name, node) = (cluster.name_at(0, 0), &cluster.nodes[0]);
    let guard = locks.read().guard(&name).unwrap();
    let fields = || node.ask::<Vec<String>>(&["ZRANGE", &format!("redlatch_writer:{{{name}}}"), "0", "-1"]);
    let subscribers = |ear: &str| node.ask::<(String, i64)>(&["PUBSUB", "SHARDNUMSUB", ear]).1;
    assert_is_heard(&other, &name, &format!("redlatch_ear:{{{name}}}"), &fields, &subscribers);
    guard.unlock().unwrap();
}
