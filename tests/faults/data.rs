//! Rows 5 to 7 and 14 to 17: keys that vanish, change or are not ours.

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, answered, eventually, finish, ms, spawn_asleep, timed};
use crate::{LEASE, warnings};
use redlatch::{Applied, Error, FencedLock, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::time::{Duration, Instant};

/// A watched hold notices within a third of its lease that its key is gone.
const NOTICED: Duration = Duration::from_secs(LEASE.as_secs() / 3);

/// That a hold learns soon that its key was taken away, and what came in its place is left alone.
fn assert_noticed(server: &Server, commands: &[&[&str]], left: Option<&str>) {
    let locks = server.locks_watched(LEASE);
    let guard = locks.guard("n").unwrap();
    let lost = guard.lost();
    for command in commands {
        let _: redis::Value = server.ask(command);
    }
    let (told, took) = timed(|| lost.recv_timeout(LONG).unwrap());
    assert_eq!(told.cause(), LossCause::Removed, "{commands:?}");
    assert!(took <= NOTICED + SOON, "{commands:?}: noticed after {took:?}");
    assert!(!guard.is_valid());
    assert_err!(locks.lock("n"), Lost);
    assert_err!(guard.unlock(), Lost);
    assert_eq!(server.ask::<Option<String>>(&["HGET", "n", "a stranger"]).as_deref(), left, "{commands:?}");
    server.clear();
    drop(locks.guard("n").unwrap());
}

#[test]
fn fault_05_a_key_that_an_administrator_takes_away_is_lost() {
    let server = Server::start();
    assert_noticed(&server, &[&["FLUSHDB"]], None);
    assert_noticed(&server, &[&["DEL", "n"]], None);
    assert_noticed(&server, &[&["UNLINK", "n"]], None);
    assert_noticed(&server, &[&["SWAPDB", "0", "1"]], None);
    assert_noticed(&server, &[&["RENAME", "n", "elsewhere"]], None);
    assert_noticed(&server, &[&["PEXPIRE", "n", "1"]], None);
}

#[test]
fn fault_05_what_came_in_the_keys_place_is_left_alone() {
    let server = Server::start();
    let stranger: &[&str] = &["HSET", "other", "a stranger", "1"];
    assert_noticed(&server, &[stranger, &["RENAME", "other", "n"]], Some("1"));
    assert_noticed(&server, &[&["DEL", "n"], &["HSET", "n", "a stranger", "1"]], Some("1"));
}

/// Nobody is told of a `FLUSHALL`: the poll finds it.
#[test]
fn fault_05_a_waiter_finds_the_lock_free_after_a_flush() {
    let server = Server::start();
    let holder = server.locks();
    let waiting = ReentrantLock::new(&server.builder().poll_cap(ms(200)).build().unwrap());
    let guard = holder.request("n").lease(LONG).guard().unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.try_lock_for("n", LONG).unwrap() && waiting.unlock("n").is_ok());
        let flushed = Mark::now();
        server.clear();
        let (got, when) = finish(waiter);
        assert!(got && when - flushed <= ms(200) + SOON, "got it after {:?}", when - flushed);
    });
    assert_err!(guard.unlock(), Lost);
}

#[test]
fn fault_05_a_flush_loses_every_hold() {
    let server = Server::start();
    let locks = server.locks_watched(LEASE);
    let guards = ["a", "b", "c"].map(|name| locks.guard(name).unwrap());
    server.ask::<String>(&["FLUSHALL"]);
    for guard in guards {
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
        assert_err!(guard.unlock(), Lost);
    }
}

#[test]
fn fault_06_renewals_and_waiters_do_not_notice_a_flush_of_the_scripts() {
    let server = Server::start();
    let (locks, other) = (server.locks_watched(LEASE), server.locks());
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok());
        for _ in 0..3 {
            server.ask::<String>(&["SCRIPT", "FLUSH"]);
            let before = locks.client().stats().renewals;
            eventually(LONG, "it is renewed", || locks.client().stats().renewals > before);
        }
        server.ask::<String>(&["SCRIPT", "FLUSH"]);
        assert!(locks.verify(&guard).unwrap() && !waiter.is_finished());
        server.ask::<String>(&["SCRIPT", "FLUSH"]);
        guard.unlock().unwrap();
        assert!(finish(waiter).0);
    });
    let stats = locks.client().stats();
    assert_eq!((stats.failed_renewals, stats.reconnects, stats.lost), (0, 0, 0));
}

/// Leaves a server 3 MB, and fills them until `enough`.
fn fill(server: &Server, policy: &str, enough: impl Fn() -> bool) {
    server.ask::<String>(&["CONFIG", "SET", "maxmemory-policy", policy]);
    let memory: String = server.ask(&["INFO", "memory"]);
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let allowed = used.parse::<u64>().unwrap() + 3_000_000;
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", &allowed.to_string()]);
    let big = "x".repeat(10_000);
    let end = Instant::now() + LONG;
    for number in 0.. {
        if enough() || Instant::now() > end {
            break;
        }
        let _ = server.try_ask::<String>(&["SET", &format!("fill:{number}"), &big]);
    }
    assert!(enough(), "{policy} evicts it");
}

fn assert_lost_when_evicted(policy: &str) {
    let server = Server::start();
    let locks = server.locks_watched(LEASE);
    let guard = locks.guard("n").unwrap();
    let lost = guard.lost();
    fill(&server, policy, || server.pttl("n") == -2);
    let (told, took) = timed(|| lost.recv_timeout(LONG).unwrap());
    assert_eq!(told.cause(), LossCause::Removed);
    assert!(took <= NOTICED + SOON, "{policy}: noticed after {took:?}");
    assert_err!(guard.unlock(), Lost);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    server.clear();
}

#[test]
fn fault_07_a_lock_evicted_by_its_ttl_is_lost_at_the_next_renewal() {
    assert_lost_when_evicted("volatile-ttl");
}

#[test]
fn fault_07_a_lock_evicted_by_its_idle_time_is_lost_at_the_next_renewal() {
    assert_lost_when_evicted("volatile-lru");
}

#[test]
fn fault_07_a_lock_evicted_like_any_key_is_lost_at_the_next_renewal() {
    assert_lost_when_evicted("allkeys-lru");
}

#[test]
fn fault_07_a_full_server_that_evicts_nothing_keeps_the_lock() {
    let server = Server::start();
    let locks = server.locks_watched(LEASE);
    let guard = locks.guard("n").unwrap();
    fill(&server, "noeviction", || server.try_ask::<String>(&["SET", "fill:more", &"x".repeat(10_000)]).is_err());
    let before = locks.client().stats().renewals;
    eventually(LONG, "it is renewed", || locks.client().stats().renewals > before);
    guard.unlock().unwrap();
    server.clear();
}

/// That a verb is refused because the key is no lock, and says so at once.
fn assert_wrong_type<T: std::fmt::Debug>(result: redlatch::Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"), "{error:?}");
    assert_eq!((error.applied(), error.is_retryable()), (Applied::No, false));
    assert!(error.to_string().contains("\"n\"") && !error.to_string().contains("precious"), "{error}");
}

#[test]
fn fault_14_a_key_of_another_type_is_refused_and_untouched() {
    let server = Server::start();
    let locks = server.locks();
    server.ask::<String>(&["SET", "n", "precious"]);
    assert_wrong_type(locks.lock("n"));
    assert_wrong_type(locks.try_lock("n"));
    assert_wrong_type(locks.try_lock_for("n", LONG));
    assert_wrong_type(locks.execute_in_lock("n", || unreachable!("without the lock")));
    assert_wrong_type(locks.force_unlock("n"));
    assert_wrong_type(locks.is_locked("n"));
    assert_wrong_type(locks.remaining_time_to_live("n"));
    assert_err!(locks.unlock("n"), NotHeld);
    assert_eq!(server.ask::<String>(&["GET", "n"]), "precious");
    assert_eq!(server.pttl("n"), -1);
    server.ask::<i64>(&["DEL", "n"]);
}

#[test]
fn fault_14_a_hold_whose_key_became_something_else_is_lost() {
    let server = Server::start();
    let locks = server.locks_watched(LEASE);
    let guard = locks.guard("n").unwrap();
    let kept = locks.guard("m").unwrap();
    let lost = guard.lost();
    server.ask::<String>(&["SET", "n", "precious"]);
    let (told, took) = timed(|| lost.recv_timeout(LONG).unwrap());
    assert_eq!(told.cause(), LossCause::Removed);
    assert!(took <= NOTICED + SOON, "noticed after {took:?}");
    assert_err!(guard.unlock(), Lost);
    assert_eq!(server.ask::<String>(&["GET", "n"]), "precious");
    let before = locks.client().stats().renewals;
    eventually(LONG, "the other hold is renewed", || locks.client().stats().renewals > before);
    assert_eq!(kept.state(), HoldState::Held);
    server.ask::<i64>(&["DEL", "n"]);
}

#[test]
fn fault_15_a_hash_without_end_is_waited_for_and_never_deleted() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().poll_cap(ms(200)).build().unwrap());
    server.ask::<i64>(&["HSET", "n", "a stranger", "1"]);
    assert!(locks.is_locked("n").unwrap());
    assert_eq!(locks.remaining_time_to_live("n").unwrap(), Some(Duration::MAX));
    assert!(!locks.try_lock("n").unwrap());
    assert!(!answered(|| locks.try_lock_for("n", ms(500))).0);
    assert_eq!((server.owner("n"), server.pttl("n")), (("a stranger".to_owned(), 1), -1));
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
        assert!(!waiter.is_finished());
        let deleted = Mark::now();
        server.ask::<i64>(&["DEL", "n"]);
        let (got, when) = finish(waiter);
        assert!(got && when - deleted <= ms(200) + SOON, "got it after {:?}", when - deleted);
    });
}

#[test]
fn fault_15_a_hash_without_end_is_warned_of_once_a_wait() {
    alone(|| {
        let told = warnings::that_say("without TTL");
        let server = Server::start();
        let locks = ReentrantLock::new(&server.builder().poll_cap(ms(20)).build().unwrap());
        server.ask::<i64>(&["HSET", "n", "a stranger", "1"]);
        for waits in 1..=2 {
            assert!(!locks.try_lock_for("n", SOON).unwrap());
            let warnings = told.seen.lock().unwrap();
            assert_eq!(warnings.len(), waits, "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains("\"n\"")), "{warnings:?}");
        }
        server.ask::<i64>(&["DEL", "n"]);
    });
}

#[test]
fn fault_16_a_strangers_field_that_is_no_number_is_only_busy() {
    let server = Server::start();
    let locks = server.locks();
    server.ask::<i64>(&["HSET", "n", "a stranger", "not a number"]);
    assert!(!locks.try_lock("n").unwrap());
    assert!(locks.force_unlock("n").unwrap());
    assert!(locks.guard("n").unwrap().is_valid());
}

/// The locks of a client that has the server's own numbers replaced while it holds `n` once.
fn with_count(count: &str, act: impl FnOnce(&Server, &ReentrantLock)) {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    server.ask::<i64>(&["HSET", "n", guard.owner(), count]);
    act(&server, &locks);
    guard.unlock().unwrap();
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn fault_16_a_count_that_cannot_grow_or_is_no_number_is_overwritten() {
    for count in ["9223372036854775807", "not a number", ""] {
        with_count(count, |server, locks| {
            server.ask::<i64>(&["PEXPIRE", "n", "5000"]);
            locks.lock("n").unwrap();
            assert_eq!(server.owner("n").1, 2);
            assert!(server.pttl("n") > 20_000, "the time is refreshed");
            locks.unlock("n").unwrap();
            assert_eq!(server.owner("n").1, 1);
        });
    }
}

#[test]
fn fault_16_a_count_that_is_no_number_is_released() {
    with_count("not a number", |server, locks| {
        assert_eq!(server.ask::<i64>(&["HLEN", "n"]), 1);
        assert_eq!(locks.hold_count("n"), 1);
    });
}

#[test]
fn fault_17_a_counter_of_tokens_that_is_none_fails_closed() {
    let server = Server::start();
    let (locks, counter) = (FencedLock::connect(&server.url()).unwrap(), "redisson_lock_token:{n}");
    for wrong in ["x", "-1", "1.5", "9007199254740991", "9007199254740992"] {
        server.ask::<String>(&["SET", counter, wrong]);
        let error = locks.lock("n").unwrap_err();
        let refused = matches!(&error, Error::Refused { code, applied: Applied::No, .. } if code == "TOKEN");
        assert!(refused && !locks.is_locked("n").unwrap(), "{wrong:?}: {error:?}");
        assert_eq!(server.ask::<String>(&["GET", counter]), wrong);
    }
    server.ask::<String>(&["SET", counter, "9007199254740990"]);
    assert_eq!(locks.guard("n").unwrap().token(), Some(9_007_199_254_740_991), "the greatest");
    assert_err!(locks.lock("n"), Refused);
}
