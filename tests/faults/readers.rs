//! Rows 117 to 119 and 130: time-outs of readers that vanish, readers and waiting writers that die, and names that differ in braces.

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

/// New readers wait for it until its mark ends.
#[test]
fn fault_119_a_writer_that_is_killed_while_it_waits_keeps_readers_out_for_two_poll_caps() {
    with_peer(
        |url| {
            let locks = sides_at(url);
            tell(url, "waits");
            locks.write().lock("n").unwrap();
        },
        |start| {
            let server = Server::start();
            let locks = sides_at(&server.url());
            let guard = locks.read().request("n").lease(LONG).guard().unwrap().unwrap();
            let peer = start(&server);
            assert_eq!(hear(&server), "waits");
            let is_marked = || server.ask::<i64>(&["ZCARD", "redlatch_writer:{n}"]) > 0;
            eventually(LONG, "it keeps readers out", is_marked);
            drop(peer);
            let killed = Mark::now();
            let beside = || elsewhere(|| locks.read().guard("n").unwrap().unlock().unwrap());
            beside();
            assert!(killed.elapsed() <= LEASE + LATE, "let in after {:?}", killed.elapsed());
            guard.unlock().unwrap();
            eventually(LONG, "nothing is left", || server.leftovers().is_empty());
        },
    );
}

/// Else the writer waits for a reader that waits for the writer.
#[test]
fn fault_130_a_writer_keeps_out_no_readers_of_a_lock_whose_name_differs_in_braces() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| sides_at(&server.url()));
    for (name, twin) in [("x", "{x}"), ("{x}", "x")] {
        let reading = locks.read().guard(name).unwrap();
        std::thread::scope(|scope| {
            let writer = spawn_asleep(scope, || other.write().try_lock_for(name, LONG).unwrap());
            eventually(LONG, "it keeps readers out", || !elsewhere(|| other.read().try_lock(name).unwrap()));
            assert!(locks.read().try_lock(twin).unwrap(), "{name:?} and {twin:?} are one lock");
            locks.read().unlock(twin).unwrap();
            reading.unlock().unwrap();
            assert!(finish(writer).0, "nobody reads {name:?} any more");
        });
    }
}
