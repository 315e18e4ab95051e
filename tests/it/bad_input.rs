//! What a caller, a setting or a stranger's key may have wrong, and what each of them is told.

use crate::server::{Server, free_port};
use crate::threads::{LATE, LONG, Mark, SOON, finish, ms, spawn_asleep, timed};
use redlatch::{Applied, Client, Error, RedLock, RedLockExt, ReentrantLock};
use std::error::Error as _;
use std::time::Duration;

const SECRET: &str = "Sesame-0815";

/// That every verb refuses a lease, and nothing was taken.
fn assert_bad_lease(lease: Duration) {
    let server = Server::start();
    let locks = server.locks();
    let commands = server.commands_during(|| {
        assert_err!(locks.lock_with_lease("n", lease), Config);
        assert_err!(locks.try_lock_with_lease("n", lease), Config);
        assert_err!(locks.try_lock_for_with_lease("n", ms(50), lease), Config);
        assert_err!(locks.request("n").lease(lease).guard(), Config);
        assert_err!(locks.execute_in_lock_for("n", LONG, lease, || unreachable!("without the lock")), Config);
    });
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(locks.hold_count("n"), 0);
}

#[test]
fn a_lease_of_zero_is_an_error() {
    assert_bad_lease(Duration::ZERO);
}

#[test]
fn a_lease_of_a_nanosecond_is_an_error() {
    assert_bad_lease(Duration::from_nanos(1));
}

#[test]
fn a_lease_below_10_ms_is_an_error() {
    assert_bad_lease(Duration::from_micros(9_999));
}

#[test]
fn a_lease_of_max_is_an_error() {
    assert_bad_lease(Duration::MAX);
}

#[test]
fn a_lease_above_a_year_is_an_error() {
    assert_bad_lease(Duration::from_secs(365 * 24 * 3_600) + ms(1));
}

#[test]
fn the_longest_lease_is_a_year() {
    let server = Server::start();
    let locks = server.locks();
    let year = Duration::from_secs(365 * 24 * 3_600);
    let guard = locks.request("n").lease(year).guard().unwrap().unwrap();
    assert!(guard.is_valid());
    assert!(server.pttl("n") > 364 * 24 * 3_600_000);
}

#[test]
fn the_shortest_lease_is_10_ms() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock_with_lease("n", ms(10)).unwrap();
    let hold = locks.hold("n").unwrap();
    assert!(hold.remaining() <= ms(8));
    crate::threads::run_out(&hold);
    assert_err!(locks.unlock("n"), Lost);
}

#[test]
fn a_wait_of_zero_takes_a_free_lock() {
    let server = Server::start();
    let locks = server.locks();
    assert!(locks.try_lock_for("n", Duration::ZERO).unwrap());
    locks.unlock("n").unwrap();
}

#[test]
fn a_wait_of_max_takes_a_free_lock() {
    let server = Server::start();
    let locks = server.locks();
    assert!(locks.try_lock_for_with_lease("n", Duration::MAX, LONG).unwrap());
    locks.unlock("n").unwrap();
}

#[test]
fn a_wait_of_almost_max_takes_a_free_lock() {
    let server = Server::start();
    let locks = server.locks();
    assert!(locks.try_lock_for("n", Duration::MAX - Duration::from_nanos(1)).unwrap());
    locks.unlock("n").unwrap();
}

/// That every verb refuses a name, and nothing was asked of the server.
fn assert_bad_name(name: &str) {
    let server = Server::start();
    let locks = server.locks();
    let commands = server.commands_during(|| {
        assert_err!(locks.lock(name), Config);
        assert_err!(locks.try_lock(name), Config);
        assert_err!(locks.guard(name), Config);
        assert_err!(locks.force_unlock(name), Config);
        assert_err!(locks.is_locked(name), Config);
        assert_err!(locks.remaining_time_to_live(name), Config);
    });
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(locks.hold_count(name), 0);
}

#[test]
fn an_empty_name_is_an_error() {
    assert_bad_name("");
}

#[test]
fn a_name_of_1025_bytes_is_an_error() {
    assert_bad_name(&"x".repeat(1_025));
}

#[test]
fn a_name_of_1025_bytes_in_fewer_characters_is_an_error() {
    assert_bad_name(&format!("{}ü", "ü".repeat(512)));
}

/// That a lock of this name is taken and given back, on the server too, and wakes who waits for it.
fn assert_good_name(name: &str) {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let guard = locks.guard(name).unwrap();
    assert_eq!(server.owner(name).0, guard.owner());
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.try_lock_for(name, LONG).unwrap() && other.unlock(name).is_ok());
        let unlocked = Mark::now();
        guard.unlock().unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn a_name_of_1024_bytes_works() {
    assert_good_name(&"x".repeat(1_024));
}

#[test]
fn a_name_with_braces_works() {
    assert_good_name("a{b}c}{");
}

#[test]
fn a_name_with_newlines_works() {
    assert_good_name("*1\r\n$8\r\nFLUSHALL\r\n");
}

#[test]
fn a_name_with_a_nul_works() {
    assert_good_name("a\0b");
}

#[test]
fn a_name_that_is_not_ascii_works() {
    assert_good_name("Schloß 🔒");
}

/// That nothing an error shows has the secret in it.
fn assert_no_secret(error: &Error) {
    let source = error.source().map(|source| format!("{source} {source:?}"));
    let shown = format!("{error} {error:?} {source:?}");
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn a_url_that_is_none_is_an_error_without_its_secret() {
    let bad = ["", "nonsense", "http://u:Sesame-0815@h", "redis://u:Sesame-0815@h:port", "redis://u:Sesame-0815@h/db"];
    // A password that is not escaped begins a query.
    let unescaped = ["redis://u:?Sesame-0815@h", "unix:///socket?pass=12&Sesame-0815"];
    for url in [&bad[..], &unescaped].concat() {
        let error = Client::connect(url).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains("redis://"), "it says what is right: {error}");
        assert_no_secret(&error);
    }
}

#[test]
fn a_url_where_nobody_listens_is_unavailable_after_the_outage_budget() {
    let url = format!("redis://u:{SECRET}@127.0.0.1:{}/", free_port());
    let client = Client::builder(&url).outage_budget(ms(300)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let (result, took) = timed(|| locks.lock("n"));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(took >= ms(300) && took <= ms(300) + SOON, "took {took:?}");
    assert_eq!((error.applied(), error.is_retryable(), error.resource()), (Applied::No, true, Some("n")));
    assert_no_secret(&error);
    let (result, took) = timed(|| locks.try_lock_for("n", ms(100)));
    assert_err!(result, Unavailable);
    assert!(took <= ms(100) + LATE, "took {took:?}");
}

/// That a lock is refused for a reason of authentication, at once, and no secret is shown.
fn assert_not_let_in(url: &str, code: &str) {
    let locks = ReentrantLock::connect(url).unwrap();
    let (result, took) = timed(|| locks.lock("n"));
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Refused { code: said, .. } if said == code), "{error:?}");
    assert!(took <= SOON, "took {took:?}");
    assert_eq!((error.applied(), error.is_retryable(), error.resource()), (Applied::No, false, Some("n")));
    assert!(error.to_string().contains("password"), "it says what to do: {error}");
    assert!(error.source().is_some());
    assert_no_secret(&error);
    for shown in [format!("{locks:?}"), format!("{:?}", Client::builder(url))] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let server = Server::start();
    server.ask::<String>(&["CONFIG", "SET", "requirepass", "the right one"]);
    assert_not_let_in(&server.url_as("default", SECRET), "WRONGPASS");
}

#[test]
fn a_missing_password_is_refused() {
    let server = Server::start();
    server.ask::<String>(&["CONFIG", "SET", "requirepass", SECRET]);
    assert_not_let_in(&server.url(), "NOAUTH");
}

#[test]
fn a_user_that_does_not_exist_is_refused() {
    let server = Server::start();
    assert_not_let_in(&server.url_as("nobody", SECRET), "WRONGPASS");
}

#[test]
fn a_disabled_user_is_refused() {
    let server = Server::start();
    assert_not_let_in(&server.let_in("gone", SECRET, "off ~* &* +@all"), "WRONGPASS");
}

#[test]
fn the_right_password_lets_in() {
    let server = Server::start();
    let locks = ReentrantLock::connect(&server.let_in("worker", SECRET, "~* &* +@all")).unwrap();
    assert!(locks.guard("n").unwrap().is_valid());
    assert!(!format!("{locks:?}").contains(SECRET));
}

#[test]
fn a_missing_permission_is_refused_by_name() {
    let server = Server::start();
    let locks = ReentrantLock::connect(&server.let_in("weak", "pw", "~other* &* +@all")).unwrap();
    let error = locks.try_lock("n").unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM"), "{error:?}");
    assert!(!error.is_retryable());
    assert_eq!(locks.hold_count("n"), 0);
}

#[test]
fn a_setting_out_of_range_is_named() {
    let builder = || Client::builder("redis://h");
    let cases = [
        (builder().watchdog_timeout(Duration::ZERO), "watchdog_timeout"),
        (builder().watchdog_timeout(ms(99)), "watchdog_timeout"),
        (builder().response_timeout(Duration::from_secs(16)), "response_timeout"),
        (builder().pool_size(0), "pool_size"),
        (builder().poll_cap(Duration::ZERO), "poll_cap"),
        (builder().connect_timeout(Duration::ZERO), "connect_timeout"),
        (builder().key_prefix("x".repeat(1_025)), "key_prefix"),
    ];
    for (builder, setting) in cases {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(setting), "{setting}: {error}");
    }
}

#[test]
fn a_response_timeout_that_no_socket_option_can_hold_connects() {
    let server = Server::start_on_tcp();
    let (month, year) = (Duration::from_secs(30 * 24 * 3_600), Duration::from_secs(365 * 24 * 3_600));
    let builder = Client::builder(&server.tcp_url()).watchdog_timeout(year).response_timeout(month);
    let locks = ReentrantLock::new(&builder.outage_budget(SOON).build().unwrap());
    locks.guard("n").unwrap().unlock().unwrap();
}
