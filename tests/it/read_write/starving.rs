//! Who comes first: a writer among readers that never pause, and readers among writers.

use super::{ReadWriteLock, locks, two};
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms, spawn_asleep};
use redlatch::{RedLock, RedLockExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

#[test]
fn a_writer_is_in_among_readers_that_never_pause() {
    let server = Server::start();
    let clients = [(); 4].map(|()| locks(&server));
    let (stop, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let worst = std::thread::scope(|scope| {
        for locks in clients.iter().flat_map(|locks| [locks; 4]) {
            let reads = &reads;
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let guard = locks.read().guard("n").unwrap();
                    std::thread::sleep(ms(2));
                    guard.unlock().unwrap();
                    reads.fetch_add(1, SeqCst);
                }
            });
        }
        eventually(LONG, "they read", || reads.load(SeqCst) > 50);
        let writes = |_| {
            let start = Instant::now();
            let got = clients[0].write().try_lock_for("n", LONG).unwrap();
            let took = start.elapsed();
            assert!(got, "it starved");
            clients[0].write().unlock("n").unwrap();
            took
        };
        let worst = (0..10).map(writes).max();
        stop.store(true, SeqCst);
        worst
    });
    println!("{:?}, {} reads", worst.unwrap(), reads.into_inner());
}

#[test]
fn readers_that_waited_come_before_the_next_writer() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let (stop, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let work = || {
            while !stop.load(SeqCst) {
                let guard = other.write().guard("n").unwrap();
                std::thread::sleep(ms(2));
                guard.unlock().unwrap();
                writes.fetch_add(1, SeqCst);
            }
        };
        scope.spawn(work);
        scope.spawn(work);
        eventually(LONG, "they write", || writes.load(SeqCst) > 5);
        for _ in 0..10 {
            let before = writes.load(SeqCst);
            assert!(locks.read().try_lock_for("n", LONG).unwrap());
            locks.read().unlock("n").unwrap();
            println!("{} writes before it", writes.load(SeqCst) - before);
        }
        stop.store(true, SeqCst);
    });
}

fn marks(server: &Server) -> usize {
    server.ask::<Vec<String>>(&["ZRANGE", "redlatch_writer:{n}", "0", "-1"]).len()
}

/// It keeps new readers out while it waits, and no longer.
#[test]
fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let guard = locks.read().guard("n").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| assert!(!other.write().try_lock_for("n", ms(500)).unwrap()));
        eventually(LONG, "it waits", || marks(&server) == 1);
        assert!(!other.read().try_lock("n").unwrap(), "a new reader comes after it");
        locks.read().lock("n").unwrap();
        locks.read().unlock("n").unwrap();
        let reader = spawn_asleep(scope, || other.read().guard("n").unwrap().unlock().unwrap());
        finish(writer);
        finish(reader);
    });
    eventually(LONG, "it has left", || marks(&server) == 0);
    guard.unlock().unwrap();
}

/// A writer that died while it waited.
#[test]
fn a_mark_that_nobody_refreshes_ends() {
    let server = Server::start();
    let locks = ReadWriteLock::new(&server.builder().poll_cap(ms(100)).build().unwrap());
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    let end = (seconds * 1_000 + micros / 1_000 + 400).to_string();
    server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", &end, "gone:1:1:write"]);
    let start = Instant::now();
    assert!(!locks.read().try_lock("n").unwrap());
    locks.read().guard("n").unwrap().unlock().unwrap();
    assert!(start.elapsed() >= ms(350), "{:?}", start.elapsed());
    server.ask::<i64>(&["DEL", "redlatch_writer:{n}"]);
}

/// What cannot be read is not there.
#[test]
fn marks_of_another_type_are_in_nobodys_way() {
    let server = Server::start();
    let locks = locks(&server);
    for key in ["redlatch_writer:{n}", "redlatch_readers:{n}"] {
        server.ask::<i64>(&["HSET", key, "a", "b"]);
    }
    locks.write().guard("n").unwrap().unlock().unwrap();
    let guard = locks.read().guard("n").unwrap();
    std::thread::scope(|scope| finish(scope.spawn(|| assert!(!locks.write().try_lock_for("n", ms(50)).unwrap()))));
    guard.unlock().unwrap();
    server.ask::<i64>(&["DEL", "redlatch_writer:{n}", "redlatch_readers:{n}"]);
}
