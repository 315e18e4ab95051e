//! Who comes first: a writer among readers that never pause, and readers among writers.

use super::{ReadWriteLock, locks, two};
use crate::proxy::{Proxy, Step, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, SOON, elsewhere, eventually, finish, ms, spawn_asleep};
use redlatch::{CancelToken, Client, HandOff, RedLock, RedLockExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Ends the work of other threads, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_writer_is_in_among_readers_that_never_pause() {
    let server = Server::start();
    let clients = [(); 4].map(|()| locks(&server));
    let (stop, reads) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let worst = std::thread::scope(|scope| {
        for locks in clients.iter().flat_map(|locks| [locks; 4]) {
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let guard = locks.read().guard("n").unwrap();
                    std::thread::sleep(ms(2));
                    guard.unlock().unwrap();
                    reads.fetch_add(1, SeqCst);
                }
            });
        }
        let _stop = Stop(stop);
        eventually(LONG, "they read", || reads.load(SeqCst) > 50);
        let writes = |_| {
            let start = Instant::now();
            assert!(clients[0].write().try_lock_for("n", LONG).unwrap(), "it starved");
            let took = start.elapsed();
            clients[0].write().unlock("n").unwrap();
            took
        };
        (0..10).map(writes).max()
    });
    println!("{:?}, {} reads", worst.unwrap(), reads.load(SeqCst));
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
        let _stop = Stop(&stop);
        eventually(LONG, "they write", || writes.load(SeqCst) > 5);
        for _ in 0..10 {
            let before = writes.load(SeqCst);
            assert!(locks.read().try_lock_for("n", LONG).unwrap());
            locks.read().unlock("n").unwrap();
            println!("{} writes before it", writes.load(SeqCst) - before);
        }
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
        let given_up = Instant::now();
        finish(reader);
        assert!(given_up.elapsed() <= SOON, "let in after {:?}", given_up.elapsed());
    });
    eventually(LONG, "it has left", || marks(&server) == 0);
    guard.unlock().unwrap();
}

/// What its threads share is of the server, too, where the writer waits.
#[test]
fn readers_share_what_their_process_has_until_one_of_it_wants_to_write() {
    let server = Server::start();
    let hand_off = HandOff::default().within(LONG);
    let locks = ReadWriteLock::new(&server.builder().hand_off(hand_off).build().unwrap());
    let guard = locks.read().guard("n").unwrap();
    let reads = || elsewhere(|| locks.read().try_lock("n").unwrap() && locks.read().unlock("n").is_ok());
    let commands = server.commands_during(|| assert!(reads()));
    assert_eq!(commands, [""; 0], "a share of it needs no word to the server");
    std::thread::scope(|scope| {
        let writer = spawn_asleep(scope, || locks.write().guard("n").unwrap().unlock().unwrap());
        eventually(LONG, "it waits", || marks(&server) == 1);
        assert!(!reads(), "past the one that wants to write");
        guard.unlock().unwrap();
        finish(writer);
    });
    assert!(reads());
}

/// Else readers stay out for two poll caps, and nobody waits to write.
#[test]
fn a_mark_is_taken_away_though_the_first_attempt_fails() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let client = Client::builder(&proxy.url()).poll_cap(3 * LONG).build().unwrap();
    let (locks, cut_off) = (locks(&server), ReadWriteLock::new(&client));
    let (reading, token) = (locks.read().guard("n").unwrap(), CancelToken::new());
    std::thread::scope(|scope| {
        let writer = spawn_asleep(scope, || cut_off.write().lock_cancellable("n", &token).is_err());
        eventually(LONG, "it waits", || marks(&server) == 1);
        let (is_release, mut cut) = (runs("writes/release"), false);
        proxy.set(move |_, flow, data| match is_release(flow, data) && !std::mem::replace(&mut cut, true) {
            true => vec![Step::Cut],
            false => pass(data),
        });
        token.cancel();
        assert!(finish(writer).0);
    });
    eventually(LONG, "the mark is gone", || marks(&server) == 0);
    reading.unlock().unwrap();
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
