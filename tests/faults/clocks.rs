//! Rows 36 to 39: clocks that jump, and machines that sleep.
//!
//! A server whose clock jumps forward drops what expires, one whose clock jumps back keeps it longer: an
//! administrator's PEXPIRE and PERSIST do the same to one key.

use crate::locks_of;
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, WATCHED, eventually, finish, ms, run_out, spawn_asleep};
use redlatch::{FencedLock, HoldState, LossCause, RedLock, RedLockExt};
use std::path::Path;
use std::time::Duration;

const POLL_CAP: Duration = Duration::from_millis(300);

#[test]
fn fault_36_a_forward_jump_of_the_server_is_noticed_by_the_next_renewal() {
    let server = Server::start();
    let (locks, other) = (server.locks_watched(WATCHED), server.locks());
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    server.ask::<i64>(&["PEXPIRE", "n", "1"]);
    let jumped = Mark::now();
    assert!(other.try_lock_for("n", LONG).unwrap());
    assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    assert!(jumped.elapsed() <= WATCHED / 3 + LATE, "lost after {:?}", jumped.elapsed());
    assert!(!hold.is_valid());
    assert_err!(locks.lock("n"), Lost);
    assert_err!(locks.unlock("n"), Lost);
    let next = other.hold("n").unwrap();
    assert!(other.verify(&next).unwrap(), "the one who lost it freed the next one's lock");
    other.unlock("n").unwrap();
}

/// Takes and gives back the lock: its token.
fn token(locks: &FencedLock) -> u64 {
    locks.guard("n").unwrap().token().unwrap()
}

/// To the counter of tokens the clock of the server has jumped by as many us, forward if there are more.
fn fenced_after_a_jump(server: &Server, by: i64) -> (FencedLock, u64) {
    let locks = FencedLock::connect(&server.url()).unwrap();
    let counter = token(&locks).checked_add_signed(-by).unwrap();
    server.ask::<String>(&["SET", "redisson_lock_token:{n}", &counter.to_string()]);
    (locks, counter)
}

const HOUR: i64 = 3_600_000_000;

#[test]
fn fault_36_tokens_jump_forward_with_the_clock_of_the_server() {
    let server = Server::start();
    let (locks, before) = fenced_after_a_jump(&server, HOUR);
    assert!(token(&locks) >= before + HOUR.unsigned_abs());
}

#[test]
fn fault_37_tokens_go_on_when_the_clock_of_the_server_jumps_back() {
    let server = Server::start();
    let (locks, before) = fenced_after_a_jump(&server, -HOUR);
    assert_eq!([token(&locks), token(&locks)], [before + 1, before + 2]);
}

/// The holder is gone, and its lease will not end within the test, or never.
fn assert_found_by_the_poll_cap(jump: &[&str]) {
    let server = Server::start();
    let (dead, waiting) = (server.locks(), locks_of(server.builder().poll_cap(POLL_CAP)));
    dead.lock_with_lease("n", ms(500)).unwrap();
    server.ask::<i64>(jump);
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.try_lock_for("n", LONG).unwrap() && waiting.unlock("n").is_ok());
        run_out(&dead.hold("n").unwrap());
        assert!(!waiter.is_finished(), "the server says that it is locked");
        let deleted = Mark::now();
        server.ask::<i64>(&["DEL", "n"]);
        let (got, when) = finish(waiter);
        assert!(got && when - deleted <= POLL_CAP + SOON, "found after {:?}", when - deleted);
    });
    assert_err!(dead.unlock("n"), Lost);
}

#[test]
fn fault_37_a_waiter_looks_though_the_lease_was_prolonged_by_an_hour() {
    assert_found_by_the_poll_cap(&["PEXPIRE", "n", "3600000"]);
}

#[test]
fn fault_37_a_waiter_looks_though_the_lease_has_no_end() {
    assert_found_by_the_poll_cap(&["PERSIST", "n"]);
}

/// What the server grants beyond the lease is not believed, and given back.
#[test]
fn fault_37_a_backward_jump_of_the_server_prolongs_no_belief() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock_with_lease("n", ms(300)).unwrap();
    let (hold, taken) = (locks.hold("n").unwrap(), Mark::now());
    server.ask::<i64>(&["PEXPIRE", "n", "3600000"]);
    run_out(&hold);
    assert!(taken.elapsed() <= ms(300) + LATE, "believed for {:?}", taken.elapsed());
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Lost, false));
    assert_err!(locks.unlock("n"), Lost);
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}

#[test]
fn fault_37_a_renewal_gives_a_lock_without_an_end_its_lease_again() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    locks.lock("n").unwrap();
    assert_eq!(server.ask::<i64>(&["PERSIST", "n"]), 1);
    eventually(LONG, "it has a lease again", || server.pttl("n") > 0);
    assert!(server.pttl("n") <= WATCHED.as_millis() as i64);
    locks.unlock("n").unwrap();
}

/// Every line of the source that is code and names one of these words.
fn uses(words: &[&str]) -> Vec<String> {
    fn files(folder: &Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    let root = Path::new(harness::ROOT).join("src");
    let mut found = Vec::new();
    for path in files(&root).into_iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named = code.filter(|line| words.iter().any(|word| line.contains(word)));
        let path = path.strip_prefix(&root).unwrap().display().to_string();
        found.extend(named.map(|line| format!("{path}: {}", line.trim())));
    }
    found
}

/// What is shown to people has a wall clock's time. It is read once for each client, into a number that no script and no lock reads as a time.
/// A census tells moments of the usual clock by that number, and its ages are differences of two of them.
const SHOWN: [&str; 4] = ["base/owner.rs", "census.rs", "census/", "inspect/"];

/// No wall clock is read where locks are, so none can jump: what is read instead, the next test says.
#[test]
fn fault_38_no_wall_clock_is_used() {
    let is_shown = |line: &String| SHOWN.iter().any(|file| line.starts_with(file));
    let wall = uses(&["SystemTime", "UNIX_EPOCH", "Realtime", "gettimeofday", "chrono"]);
    assert_eq!(wall.into_iter().filter(|line| !is_shown(line)).collect::<Vec<_>>(), [""; 0]);
    let readers = uses(&["owner::read("]);
    assert!(!readers.is_empty() && readers.iter().all(|line| line.starts_with("inspect/")), "{readers:?}");
}

/// Belief rests on a clock that goes on while the machine sleeps. `Instant` stands still then. So it may only bound a
/// sleep, show when a hold began, and tell whether that was before its thread took a group: an order and no length.
/// That a hold is over after a suspend is tested beside `Tenure` and `Watchdog`, whose clock can be set.
#[test]
fn fault_39_belief_rests_on_a_clock_that_counts_suspend() {
    assert_eq!(uses(&["ClockId::Boottime"]).len(), 1);
    assert_eq!(uses(&["clock_gettime"]).len(), 1);
    let instants = uses(&["Instant::now()"]);
    let bounds_a_sleep = |line: &String| line.starts_with("store/subscriber.rs: let until");
    let others: Vec<_> = instants.iter().filter(|line| !bounds_a_sleep(line)).collect();
    let began = "lease/hold.rs: acquired_at: Instant::now(),";
    let group_began = "registry/thread.rs: let begun = Self { since: Instant::now(), is_inner };";
    let mut others: Vec<_> = others.into_iter().map(String::as_str).collect();
    others.sort_unstable();
    assert_eq!(others, [began, group_began]);
}
