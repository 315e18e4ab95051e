//! Who comes first: a writer among readers that never pause, and readers among writers.

use super::{ReadWriteLock, locks, two};
use crate::proxy::{Proxy, Step, pass, runs};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, answered, elsewhere, eventually, finish, ms, spawn_asleep, timed};
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

/// Makes a field wait as a writer, since so many ms, and for as many more.
pub(super) fn marked(server: &Server, field: &str, since: u64, until: u64) {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    let at = |ms: u64| ms.to_string();
    let now = seconds * 1_000 + micros / 1_000;
    let (arrival, end, twin) = (at(now - since), at(now + until), format!("+{field}"));
    server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", &arrival, field, &end, &twin]);
}

/// Until when a free lock is left to the writer that has waited longest, if it is.
pub(super) fn left_to_first(server: &Server) -> Option<f64> {
    server.ask(&["ZSCORE", "redlatch_writer:{n}", "!"])
}

/// As a release does, but for so long that a test can see it.
fn leave_to_first(server: &Server) {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    let soon = (seconds * 1_000 + micros / 1_000 + 900).to_string();
    server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", &soon, "!"]);
}

/// In the order in which they came, also behind a writer: else whoever leaves would be back before the others are told.
#[test]
fn a_free_lock_is_left_to_the_writer_that_has_waited_longest() {
    let server = Server::start();
    let [locks, other] = two(&server);
    marked(&server, "gone:1:1:write", 5_000, 60_000);
    leave_to_first(&server);
    assert!(!answered(|| locks.write().try_lock_for("n", ms(50))).0, "another waits for longer");
    assert!(locks.write().try_lock("n").unwrap(), "a try minds none");
    server.ask::<i64>(&["DEL", "redlatch_writer:{n}"]);
    std::thread::scope(|scope| {
        let writer = spawn_asleep(scope, || other.write().lock("n").unwrap());
        eventually(LONG, "it waits", || marks(&server) == 1);
        marked(&server, "later:1:1:write", 0, 60_000);
        locks.write().unlock("n").unwrap();
        finish(writer);
        assert_eq!(left_to_first(&server), None, "it has come");
    });
    server.ask::<i64>(&["DEL", "n", "redlatch_writer:{n}"]);
    let (got, took) = timed(|| locks.write().try_lock_for("n", LONG).unwrap());
    assert!(got && took <= LATE, "nobody waits: {took:?}");
    locks.write().unlock("n").unwrap();
}

/// To readers that waited, or else to writers that do, by the last of either side that leaves.
#[test]
fn a_release_leaves_the_lock_to_who_waits() {
    let server = Server::start();
    let locks = locks(&server);
    let sides: [&dyn RedLock; 2] = [locks.write(), locks.read()];
    for side in sides {
        let leaves = |until| {
            side.lock("n").unwrap();
            marked(&server, "another:1:1:write", 1_000, until);
            side.unlock("n").unwrap();
            let left = left_to_first(&server);
            server.ask::<i64>(&["DEL", "redlatch_writer:{n}"]);
            left
        };
        assert!(leaves(60_000).is_some());
        assert_eq!(leaves(0), None, "it waits no more");
        // Of one who went without it.
        server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", "1", "!"]);
        assert!(leaves(60_000).is_some_and(|until| until > 1.0));
        side.lock("n").unwrap();
        side.unlock("n").unwrap();
        assert_eq!(left_to_first(&server), None);
    }
    locks.write().lock("n").unwrap();
    marked(&server, "another:1:1:write", 1_000, 60_000);
    server.ask::<String>(&["SET", "redlatch_readers:{n}", "waiting"]);
    locks.write().unlock("n").unwrap();
    assert_eq!(left_to_first(&server), None, "readers come first");
    server.ask::<i64>(&["DEL", "redlatch_writer:{n}", "redlatch_readers:{n}"]);
}

/// How many wait to write.
fn marks(server: &Server) -> usize {
    let fields: Vec<String> = server.ask(&["ZRANGE", "redlatch_writer:{n}", "0", "-1"]);
    fields.iter().filter(|field| field.starts_with('+')).count()
}

/// It keeps new readers out while it waits, and no longer.
#[test]
fn a_writer_that_gives_up_lets_readers_in_at_once() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let guard = locks.read().guard("n").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| assert!(!other.write().try_lock_for("n", ms(1_500)).unwrap()));
        eventually(LONG, "it waits", || marks(&server) == 1);
        assert!(!other.read().try_lock("n").unwrap(), "a new reader comes after it");
        locks.read().lock("n").unwrap();
        locks.read().unlock("n").unwrap();
        let reader = spawn_asleep(scope, || other.read().guard("n").unwrap().unlock().unwrap());
        finish(writer);
        let given_up = Mark::now();
        let ((), when) = finish(reader);
        assert!(when - given_up <= SOON, "let in after {:?}", when - given_up);
    });
    eventually(LONG, "it has left", || marks(&server) == 0);
    guard.unlock().unwrap();
}

/// Also where it gives up while a free lock is left to it.
#[test]
fn a_writer_that_gives_up_leaves_nothing() {
    let server = Server::start();
    let client = server.builder().poll_cap(3 * LONG).build().unwrap();
    let (locks, other) = (locks(&server), ReadWriteLock::new(&client));
    let guard = locks.write().guard("n").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| assert!(!other.write().try_lock_for("n", ms(1_500)).unwrap()));
        eventually(LONG, "it waits", || marks(&server) == 1);
        leave_to_first(&server);
        finish(writer);
    });
    eventually(LONG, "nothing is left", || server.ask::<i64>(&["EXISTS", "redlatch_writer:{n}"]) == 0);
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
    let alone = ReadWriteLock::new(&server.builder().hand_off(HandOff::off()).build().unwrap());
    let held = alone.read().guard("n").unwrap();
    let commands = server.commands_during(|| elsewhere(|| alone.read().guard("n").unwrap().unlock().unwrap()));
    assert!(!commands.is_empty(), "nothing is shared");
    held.unlock().unwrap();
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
    let locks = ReadWriteLock::new(&server.builder().poll_cap(ms(1_000)).build().unwrap());
    let start = Instant::now();
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    let end = (seconds * 1_000 + micros / 1_000 + 1_500).to_string();
    server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", &end, "+gone:1:1:write"]);
    assert!(!locks.read().try_lock("n").unwrap());
    locks.read().guard("n").unwrap().unlock().unwrap();
    assert!(start.elapsed() >= ms(1_450), "{:?}", start.elapsed());
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
    std::thread::scope(|scope| {
        finish(scope.spawn(|| assert!(!answered(|| locks.write().try_lock_for("n", ms(50))).0)))
    });
    guard.unlock().unwrap();
    server.ask::<i64>(&["DEL", "redlatch_writer:{n}", "redlatch_readers:{n}"]);
}
