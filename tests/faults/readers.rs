//! Rows 117 to 119, 126 and 127: time-outs of readers that vanish, readers and waiting writers that die, names that differ in
//! braces, and marks that say what cannot be true.

use crate::process::{hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, WATCHED, elsewhere, eventually, finish, spawn_asleep, timed};
use redlatch::{Client, LossCause, ReadWriteLock, RedLock, RedLockExt};
use std::time::Duration;

const LEASE: Duration = WATCHED;

fn sides_at(url: &str) -> ReadWriteLock {
    ReadWriteLock::new(&Client::builder(url).watchdog_timeout(LEASE).poll_cap(LEASE / 2).build().unwrap())
}

/// PEXPIRE of what was evicted does nothing, and says so to nobody.
#[test]
fn fault_117_a_reader_whose_time_out_is_evicted_is_lost_at_the_next_renewal() {
    let server = Server::start();
    let locks = sides_at(&server.url());
    let guard = locks.read().guard("n").unwrap();
    let lost = guard.lost();
    let timeout = format!("{{n}}:{}:rwlock_timeout:1", guard.owner());
    assert_eq!(server.ask::<i64>(&["DEL", &timeout]), 1);
    let (told, took) = timed(|| lost.recv_timeout(LONG).unwrap());
    assert_eq!(told.cause(), LossCause::Removed);
    assert!(took <= LEASE / 3 + SOON && !guard.is_valid(), "noticed after {took:?}");
    assert_err!(guard.unlock(), Lost);
    locks.write().guard("n").unwrap().unlock().unwrap();
}

/// What the server has of it is not enough to keep a writer out.
#[test]
fn fault_117_who_leaves_then_frees_the_lock_and_the_others_are_told() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| sides_at(&server.url()));
    let (guard, beside) = (locks.read().guard("n").unwrap(), other.read().guard("n").unwrap());
    assert_eq!(server.ask::<i64>(&["DEL", &format!("{{n}}:{}:rwlock_timeout:1", guard.owner())]), 1);
    beside.unlock().unwrap();
    assert!(other.write().try_lock("n").unwrap());
    eventually(LONG, "the reader is told", || !guard.is_valid());
    assert_err!(guard.unlock(), Lost);
    other.write().unlock("n").unwrap();
}

/// Until it is killed.
fn reads(url: &str) -> ! {
    let locks = sides_at(url);
    locks.read().lock("n").unwrap();
    tell(url, "held");
    loop {
        std::thread::park();
    }
}

#[test]
fn fault_118_a_reader_that_is_killed_keeps_a_writer_out_no_longer_than_its_lease() {
    with_peer(
        |url| reads(url),
        |start| {
            let server = Server::start();
            let locks = sides_at(&server.url());
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            assert!(!locks.write().try_lock("n").unwrap());
            drop(peer);
            let killed = Mark::now();
            assert!(locks.write().try_lock_for("n", LONG).unwrap());
            assert!(killed.elapsed() <= LEASE + LATE, "free after {:?}", killed.elapsed());
            locks.write().unlock("n").unwrap();
        },
    );
}

/// Others keep the lock, and with it what is left of the dead one, but not for longer than they read.
#[test]
fn fault_118_readers_that_outlive_a_dead_one_take_it_along() {
    with_peer(
        |url| reads(url),
        |start| {
            let server = Server::start();
            let locks = sides_at(&server.url());
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            let guard = locks.read().guard("n").unwrap();
            drop(peer);
            eventually(LONG, "its lease is over", || server.ask::<Vec<String>>(&["KEYS", "*rwlock*"]).len() == 1);
            assert!(guard.is_valid() && !elsewhere(|| locks.write().try_lock("n").unwrap()));
            guard.unlock().unwrap();
            assert!(locks.write().try_lock("n").unwrap());
            locks.write().unlock("n").unwrap();
        },
    );
}

/// The server counts who listens to its ear.
#[test]
fn fault_119_a_writer_that_is_killed_while_it_waits_keeps_no_reader_out() {
    fn sides(url: &str) -> ReadWriteLock {
        ReadWriteLock::new(&Client::builder(url).poll_cap(MINUTE).build().unwrap())
    }
    with_peer(
        |url| {
            let locks = sides(url);
            tell(url, "waits");
            locks.write().lock("n").unwrap();
        },
        |start| {
            let server = Server::start();
            let locks = sides(&server.url());
            let guard = locks.read().request("n").lease(MINUTE).guard().unwrap().unwrap();
            let peer = start(&server);
            assert_eq!(hear(&server), "waits");
            let fields = || server.ask::<Vec<String>>(&["ZRANGE", MARK, "0", "-1"]);
            eventually(LONG, "it is heard", || fields().iter().any(|field| field.starts_with('@')));
            let reads = || elsewhere(|| locks.read().try_lock("n").unwrap() && locks.read().unlock("n").is_ok());
            assert!(!reads(), "it keeps readers out");
            drop(peer);
            let killed = Mark::now();
            eventually(LONG, "readers come in", reads);
            assert!(killed.elapsed() <= SOON, "let in after {:?}", killed.elapsed());
            guard.unlock().unwrap();
            eventually(LONG, "nothing is left", || server.leftovers().is_empty());
        },
    );
}

/// Where the ear of a writer was never heard, nobody can tell that it is gone.
#[test]
fn fault_119_a_writer_that_cannot_be_heard_keeps_readers_out_for_two_poll_caps_at_most() {
    let server = Server::start();
    let locks = sides_at(&server.url());
    let end = now(&server) + LEASE.as_millis() as u64;
    server.ask::<i64>(&["ZADD", MARK, &end.to_string(), "+gone:1:1:write"]);
    assert!(!locks.read().try_lock("n").unwrap());
    let (got, took) = timed(|| locks.read().try_lock_for("n", LONG).unwrap());
    assert!(got && took <= LEASE + SOON, "let in after {took:?}");
    locks.read().unlock("n").unwrap();
    server.ask::<i64>(&["DEL", MARK]);
}

const MARK: &str = "redlatch_writer:{n}";
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: u64 = 3_600_000;

/// By the server's clock, ms.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1_000 + micros / 1_000
}

/// As a clock does that is put back while a writer waits: what it left ends an hour later than it said.
#[test]
fn fault_127_a_mark_that_ends_in_an_hour_keeps_readers_out_for_two_poll_caps() {
    let server = Server::start();
    let locks = sides_at(&server.url());
    let late = (now(&server) + HOUR).to_string();
    server.ask::<i64>(&["ZADD", MARK, &late, "gone:1:1:write", &late, "+gone:1:1:write", &late, "!"]);
    assert!(!locks.read().try_lock("n").unwrap(), "it may be waiting");
    let (got, took) = timed(|| locks.read().try_lock_for("n", LONG).unwrap());
    assert!(got && took <= LEASE + SOON, "let in after {took:?}");
    locks.read().unlock("n").unwrap();
    server.ask::<i64>(&["DEL", MARK]);
}

/// It lasts for 10 ms, and for a second at most to whoever is told of it.
#[test]
fn fault_127_a_turn_of_readers_without_an_end_is_none() {
    let server = Server::start();
    let locks = sides_at(&server.url());
    let end = (now(&server) + 2 * LEASE.as_millis() as u64).to_string();
    server.ask::<i64>(&["ZADD", MARK, &end, "+gone:1:1:write"]);
    for span in [&[][..], &["PX", "3600000"]] {
        server.ask::<String>(&[&["SET", "redlatch_readers:{n}", "turn"], span].concat());
        assert!(!locks.read().try_lock("n").unwrap(), "readers pass a writer that waits: {span:?}");
    }
    server.ask::<i64>(&["DEL", MARK, "redlatch_readers:{n}"]);
}

/// Else the writer waits for a reader that waits for the writer.
#[test]
fn fault_126_a_writer_keeps_out_no_readers_of_a_lock_whose_name_differs_in_braces() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| sides_at(&server.url()));
    for (name, twin) in [("x", "{x}"), ("{x}", "x")] {
        let reading = locks.read().guard(name).unwrap();
        std::thread::scope(|scope| {
            let write = || other.write().try_lock_for(name, LONG).unwrap() && other.write().unlock(name).is_ok();
            let writer = spawn_asleep(scope, write);
            let is_marked = || !server.ask::<Vec<String>>(&["KEYS", "redlatch_writer:*"]).is_empty();
            eventually(LONG, "it keeps readers out", is_marked);
            assert!(locks.read().try_lock(twin).unwrap(), "{name:?} and {twin:?} are one lock");
            locks.read().unlock(twin).unwrap();
            reading.unlock().unwrap();
            assert!(finish(writer).0, "nobody reads {name:?} any more");
        });
    }
}
