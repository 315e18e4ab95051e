//! Rows 50 to 53 and 133: times, names and databases at the edges of what there is.

use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{
    LATE, LONG, Mark, SOON, answered, eventually, finish, if_answered, ms, refusal, spawn_asleep, timed,
};
use crate::{MINUTE, locks_of};
use redlatch::{Client, ClientBuilder, Error, HoldState, RedLock, RedLockExt};
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
const NANO: Duration = Duration::from_nanos(1);

/// Each with no command sent and nothing held: a lease that the server truncates or cannot parse would be a lock that
/// excludes nobody, or one that never ends.
#[test]
fn fault_50_leases_out_of_range_are_refused_before_anything_is_sent() {
    let server = Server::start();
    let locks = server.locks();
    let held = locks.guard("held").unwrap();
    let far = [1 << 53, (1 << 53) + 1, u64::MAX].map(Duration::from_millis);
    let near = [Duration::ZERO, NANO, ms(1), ms(10) - NANO];
    let commands = server.commands_during(|| {
        for lease in near.into_iter().chain(far).chain([YEAR + NANO, Duration::MAX]) {
            assert_err!(locks.lock_with_lease("n", lease), Config);
            assert_err!(locks.try_lock_for_with_lease("n", ms(50), lease), Config);
            assert_err!(locks.request("n").lease(lease).guard(), Config);
            assert_err!(held.extend(lease), Config);
            assert_err!(locks.lock_with_lease("held", lease), Config);
        }
    });
    assert_eq!(commands, [""; 0]);
    assert_eq!((held.count(), locks.hold_count("n")), (1, 0));
}

#[test]
fn fault_50_leases_in_range_are_what_the_server_has() {
    let server = Server::start();
    let locks = server.locks();
    for lease in [ms(10), ms(11) - NANO, ms(12_345), LONG, YEAR] {
        locks.lock_with_lease("n", lease).unwrap();
        let left = server.pttl("n");
        assert!(left == -2 || (0..=lease.as_millis() as i64).contains(&left), "{left} ms of {lease:?}");
        assert!(lease < SOON || left as u128 > lease.as_millis() - 1_000, "{left} ms of {lease:?}");
        let _ = locks.unlock("n");
    }
}

/// The lock would be over before its holder hears of it.
#[test]
fn fault_50_a_lease_shorter_than_the_round_trip_is_never_held() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).outage_budget(SOON));
    locks.lock("warm").unwrap();
    locks.unlock("warm").unwrap();
    proxy.delay(ms(120));
    let (result, took) = timed(|| locks.try_lock_for_with_lease("n", ms(500), ms(60)));
    assert!(!matches!(result, Ok(true)), "{result:?}");
    assert!(took <= ms(500) + LATE, "took {took:?}");
    let (result, took) = timed(|| locks.lock_with_lease("n", ms(60)));
    // The last attempt may be the one that was not answered any more.
    assert!(matches!(result, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })), "{result:?}");
    // It begins within the budget, and may take one more.
    assert!(took <= SOON + SOON + LATE, "took {took:?}");
    assert_eq!(locks.hold_count("n"), 0);
    proxy.clear();
    locks.lock_with_lease("n", ms(60)).unwrap();
    let _ = locks.unlock("n");
}

#[test]
fn fault_50_a_lease_shorter_than_the_wait_is_counted_from_the_acquire() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let guard = other.guard("n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            assert!(locks.try_lock_for_with_lease("n", LONG, SOON).unwrap());
            let valid = locks.hold("n").unwrap().is_valid();
            let _ = locks.unlock("n");
            valid
        });
        std::thread::sleep(SOON + ms(100));
        drop(guard);
        assert!(finish(waiter).0, "its lease was spent while it waited");
    });
}

const WAITS: [Duration; 6] =
    [Duration::ZERO, NANO, ms_const(1), YEAR, Duration::MAX.checked_sub(NANO).unwrap(), Duration::MAX];

const fn ms_const(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn fault_51_any_wait_takes_a_free_lock() {
    let server = Server::start();
    let locks = server.locks();
    for wait in WAITS {
        let taken = (0..10).find_map(|_| {
            eventually(LONG, "nothing is left of a call that was not answered", || server.pttl("n") == -2);
            if_answered(|| locks.try_lock_for("n", wait))
        });
        assert!(taken.expect("one of some calls is answered").0, "{wait:?}");
        assert!(answered(|| locks.try_lock_for_with_lease("n", wait, YEAR)).0, "{wait:?} to re-enter");
        locks.unlock("n").unwrap();
        locks.unlock("n").unwrap();
    }
}

#[test]
fn fault_51_any_wait_for_a_held_lock_ends_as_it_says() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    for wait in WAITS {
        let guard = other.guard("n").unwrap();
        if wait < SOON {
            let (got, took) = answered(|| locks.try_lock_for("n", wait));
            assert!(!got && took <= wait + LATE, "{wait:?} took {took:?}");
            continue;
        }
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || locks.try_lock_for("n", wait).unwrap() && locks.unlock("n").is_ok());
            let unlocked = Mark::now();
            drop(guard);
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= SOON, "{wait:?}: woken after {:?}", when - unlocked);
        });
    }
}

/// No sum of a point in time and one of these overflows, wherever it is used.
#[test]
fn fault_51_settings_without_an_end_work() {
    let server = Server::start_on_tcp();
    let endless = |builder: ClientBuilder| {
        builder.outage_budget(Duration::MAX).poll_cap(Duration::MAX).connect_timeout(Duration::MAX)
    };
    for url in [server.url(), server.tcp_url()] {
        let (locks, other) = (locks_of(endless(Client::builder(&url))), server.locks());
        let longest = locks_of(endless(Client::builder(&url)).watchdog_timeout(YEAR).response_timeout(YEAR / 2));
        let guard = other.guard("n").unwrap();
        std::thread::scope(|scope| {
            let wait = || locks.lock("n").is_ok() && locks.unlock("n").is_ok();
            let waiters = [spawn_asleep(scope, wait), spawn_asleep(scope, wait)];
            drop(guard);
            waiters.into_iter().for_each(|waiter| assert!(finish(waiter).0));
        });
        longest.lock("n").unwrap();
        let hold = longest.hold("n").unwrap();
        assert!(hold.remaining() > YEAR - YEAR / 50 && hold.state() == HoldState::Held);
        longest.client().shutdown();
    }
    for builder in [server.builder().watchdog_timeout(Duration::MAX), server.builder().response_timeout(Duration::MAX)]
    {
        assert_err!(builder.build(), Config);
    }
}

/// Names that mean something to a protocol, a script, a pattern or Redisson.
#[test]
fn fault_52_any_name_of_1_to_1024_bytes_is_a_lock() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let long = "x".repeat(1_024);
    let names = [
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "\0",
        "{",
        "}",
        "{}",
        "}{",
        "a{b}c{d}",
        "*",
        "h?llo[a-z]",
        "\u{10FFFF}",
        " ",
        "%n%s",
        "0",
        "-1",
        "redisson_lock__channel:{n}",
        "redisson_unlock_latch:{n}:0",
        "ARGV[1]",
        &long,
    ];
    for name in names {
        let guard = locks.guard(name).unwrap();
        assert_eq!(server.owner(name).0, guard.owner(), "{name:?}");
        assert!(!other.try_lock(name).unwrap(), "{name:?}");
        assert!(locks.is_locked(name).unwrap() && locks.verify(&guard).unwrap(), "{name:?}");
        guard.unlock().unwrap();
        assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0, "{name:?}");
    }
    for name in [String::new(), "x".repeat(1_025), "x".repeat(1_000_000)] {
        assert_err!(locks.lock(&name), Config);
    }
}

/// A name with a brace is not wrapped again, so these two share a channel: that wakes a waiter too often, no more.
#[test]
fn fault_52_names_that_share_a_channel_are_two_locks() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let (plain, braced) = (locks.guard("x").unwrap(), locks.guard("{x}").unwrap());
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.try_lock_for("x", LONG).unwrap() && other.unlock("x").is_ok());
        eventually(LONG, "it is subscribed", || server.subscribers("redisson_lock__channel:{x}") == 1);
        braced.unlock().unwrap();
        assert!(!waiter.is_finished() && plain.is_valid() && other.try_lock("{x}").unwrap());
        other.unlock("{x}").unwrap();
        plain.unlock().unwrap();
        assert!(finish(waiter).0);
    });
}

/// What Redisson or another program keeps under the name of a lock is refused, named and left alone.
#[test]
fn fault_52_a_name_that_something_else_has_is_refused() {
    let server = Server::start();
    let locks = server.locks();
    let queue = "redisson_delay_queue:{n}";
    server.ask::<i64>(&["RPUSH", queue, "7"]);
    for result in [locks.lock(queue), locks.try_lock(queue).map(drop), locks.force_unlock(queue).map(drop)] {
        let error = result.unwrap_err();
        assert!(matches!(&error, redlatch::Error::Refused { code, .. } if code == "WRONGTYPE"), "{error:?}");
        assert!(error.to_string().contains(queue) && error.to_string().contains("choose another name"), "{error}");
    }
    assert_eq!(server.ask::<Vec<String>>(&["LRANGE", queue, "0", "-1"]), ["7"]);
    server.clear();
}

/// Redlock clients, such as rslock and redlock, keep a lock as a string. By one name they and this library exclude each other, and
/// neither waits for the other.
#[test]
fn fault_133_a_string_lock_of_another_library_excludes_and_is_excluded() {
    let server = Server::start();
    let locks = server.locks();
    let theirs = |value: &str| server.ask::<Option<String>>(&["SET", "n", value, "NX", "PX", "60000"]);
    assert!(theirs("theirs").is_some());
    let (waited, took) = timed(|| locks.try_lock_for("n", MINUTE).unwrap_err());
    assert!(took <= LONG, "it waited: {took:?}");
    for error in [waited, refusal(|| locks.try_lock("n")), locks.lock("n").unwrap_err()] {
        assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"), "{error:?}");
        assert!(error.to_string().contains("another lock library") && !error.is_retryable(), "{error}");
    }
    assert_eq!(server.ask::<String>(&["GET", "n"]), "theirs");
    assert_eq!(server.ask::<i64>(&["DEL", "n"]), 1);
    let guard = locks.guard("n").unwrap();
    assert!(theirs("theirs").is_none());
    assert!(locks.verify(&guard).unwrap());
    guard.unlock().unwrap();
    assert!(theirs("theirs").is_some());
    server.clear();
}

/// Channels know no database: an unlock in one wakes a waiter in the other, who finds its own lock held.
#[test]
fn fault_53_locks_of_two_databases_only_share_their_messages() {
    let server = Server::start();
    let of_database = |number| format!("{}?db={number}", server.url());
    let (first, second) = (locks_of(Client::builder(&of_database(0))), locks_of(Client::builder(&of_database(1))));
    let (waiting, zero) = (locks_of(Client::builder(&of_database(1))), first.guard("n").unwrap());
    let one = second.guard("n").unwrap();
    assert!(zero.is_valid() && one.is_valid(), "two keys");
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.try_lock_for("n", LONG).unwrap() && waiting.unlock("n").is_ok());
        let looks = server.commands_during(|| {
            zero.unlock().unwrap();
            eventually(LONG, "the waiter was woken", || server.ask::<i64>(&["DBSIZE"]) == 0);
            std::thread::sleep(ms(50));
        });
        assert!(looks.len() > 1, "{looks:?}");
        assert!(!waiter.is_finished() && one.is_valid() && second.verify(&one).unwrap());
        let unlocked = Mark::now();
        one.unlock().unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}
