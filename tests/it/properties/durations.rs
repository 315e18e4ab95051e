//! Any duration as a lease, a wait or a setting: it works, or is an error of the caller's, and nothing overflows.

use super::check;
use crate::server::Server;
use crate::threads::{LATE, LONG, eventually, finish, if_answered, ms, timed};
use proptest::prelude::*;
use proptest::sample::select;
use redlatch::{CancelToken, Client, ClientBuilder, Error, HoldState, LocalRedLock};
use redlatch::{RedLock, RedLockExt, ReentrantLock, Terms};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(10);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// All sizes, and the neighbours of every bound that this crate, Redis, Lua or the system has.
fn duration() -> impl Strategy<Value = Duration> {
    let bounds = [0, 1, 9, 10, 99, 100, 2_000, 15_000, 30_000, 86_400_000, 31_536_000_000];
    let words = [1 << 31, 1 << 32, 1 << 53, 1 << 62, i64::MAX as u64, u64::MAX];
    let bound = select([&bounds[..], &words[..]].concat()).prop_map(Duration::from_millis);
    let step = select(vec![Duration::ZERO, Duration::from_nanos(1), ms(1)]);
    let near = (bound, step, any::<bool>())
        .prop_map(|(bound, step, up)| if up { bound.saturating_add(step) } else { bound.saturating_sub(step) });
    let of_a_size = (0..94_u32, any::<u64>()).prop_map(|(bits, low)| {
        let nanos = (1_u128 << bits) | (u128::from(low) % (1 << bits));
        Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
    });
    prop_oneof![3 => near, 3 => of_a_size, 1 => any::<Duration>(), 1 => Just(Duration::MAX)]
}

fn is_lease(span: Duration) -> bool {
    (SHORTEST..=YEAR).contains(&span)
}

/// That one way to take the lock refuses the lease or gives a hold that lasts no longer; then gives it back.
fn assert_lease(locks: &LocalRedLock, lease: Duration, result: redlatch::Result<bool>) {
    if !is_lease(lease) {
        assert_err!(result, Config);
        assert!(locks.hold("n").is_none() && !locks.is_locked("n").unwrap(), "a refused lease took the lock");
        return;
    }
    assert!(result.unwrap(), "it was free");
    let hold = locks.hold("n").unwrap();
    assert!(hold.remaining() < lease, "{:?} of {lease:?}", hold.remaining());
    assert!(locks.remaining_time_to_live("n").unwrap().is_none_or(|left| left <= lease));
    match locks.unlock("n") {
        Ok(()) => assert_eq!(hold.state(), HoldState::Released),
        Err(Error::Lost { .. }) if lease < LONG => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_works_or_is_refused() {
    check(1_000, duration(), |lease| {
        let locks = LocalRedLock::new();
        assert_lease(&locks, lease, locks.lock_with_lease("n", lease).map(|()| true));
        assert_lease(&locks, lease, locks.try_lock_for_with_lease("n", Duration::ZERO, lease));
        assert_lease(&locks, lease, locks.try_lock_for_with_lease("n", Duration::MAX, lease));
        let guard = locks.request("n").lease(lease).guard();
        assert_lease(&locks, lease, guard.map(|guard| guard.map(std::mem::forget).is_some()));
        let held = locks.acquire("n", &Terms::new().lease(lease));
        assert_lease(&locks, lease, held.map(|hold| hold.is_some()));
        match locks.execute_in_lock_for("n", LONG, lease, || 1) {
            Err(Error::Unprotected { .. }) => assert!(is_lease(lease) && lease < LONG),
            Ok(done) => assert!(is_lease(lease) && done == Some(1)),
            refused => assert_lease(&locks, lease, refused.map(|_| true)),
        }
    });
}

#[test]
fn an_extension_works_or_is_refused() {
    check(1_000, duration(), |lease| {
        let locks = LocalRedLock::new();
        let guard = locks.guard("n").unwrap();
        let before = guard.remaining();
        let extended = guard.extend(lease);
        if is_lease(lease) {
            extended.unwrap();
        } else {
            assert_err!(extended, Config);
        }
        assert!(guard.is_valid() && guard.remaining() + LONG > before, "an extension never shortens");
        assert!(guard.remaining() <= lease.clamp(before, before.max(YEAR)));
        guard.unlock().unwrap();
    });
}

#[test]
fn an_inner_lease_works_or_is_refused() {
    check(1_000, (duration(), any::<bool>()), |(lease, watched)| {
        let locks = LocalRedLock::new();
        let outer = if watched { locks.guard("n") } else { locks.request("n").lease(LONG).guard().map(Option::unwrap) };
        let outer = outer.unwrap();
        let inner = locks.lock_with_lease("n", lease);
        assert_eq!(inner.is_ok(), is_lease(lease), "{inner:?}");
        assert_eq!(outer.count(), if is_lease(lease) { 2 } else { 1 });
        assert!(outer.is_valid());
        inner.iter().for_each(|()| locks.unlock("n").unwrap());
        outer.unlock().unwrap();
    });
}

/// A wait that can be told from none at all, and is short enough to be waited out.
const PATIENT: Duration = Duration::from_millis(20);

#[test]
fn a_wait_ends_by_itself_or_with_the_lock() {
    // Between what can be waited out and what a busy machine never reaches, nothing can be said.
    let waits = duration().prop_map(|wait| if wait <= PATIENT { wait } else { wait.max(LONG) });
    check(150, waits, |wait| {
        let locks = LocalRedLock::new();
        assert!(locks.try_lock_for("n", wait).unwrap(), "it is free");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (got, took) = timed(|| locks.try_lock_for("n", wait).unwrap());
                assert!(got || took >= wait, "{wait:?} was over after {took:?}");
                if got {
                    locks.unlock("n").unwrap()
                } else {
                    assert!(took <= wait + LATE, "took {took:?}")
                }
                got
            });
            if wait <= PATIENT {
                assert!(!finish(waiter), "two hold it");
            } else {
                std::thread::sleep(ms(1));
                locks.unlock("n").unwrap();
                assert!(finish(waiter), "it was free in time");
            }
        });
        if locks.hold_count("n") > 0 {
            locks.unlock("n").unwrap();
        }
    });
}

#[test]
fn a_wait_of_any_length_can_be_cancelled() {
    check(300, (duration(), duration()), |(wait, lease)| {
        let (locks, token) = (LocalRedLock::new(), CancelToken::new());
        token.cancel();
        let request = locks.request("n").wait(wait).lease(lease).cancelled_by(&token);
        let result = request.guard();
        if is_lease(lease) {
            assert_err!(result, Cancelled)
        } else {
            assert_err!(result, Config)
        }
        assert!(!locks.is_locked("n").unwrap());
    });
}

#[test]
fn a_refused_lease_sends_nothing_and_a_good_one_is_the_servers_ttl() {
    let server = Server::start();
    let locks = server.locks();
    check(200, (duration(), duration()), |(wait, lease)| {
        let take = || locks.try_lock_for_with_lease("n", wait, lease);
        if !is_lease(lease) {
            let commands = server.commands_during(|| assert_err!(take(), Config));
            assert!(commands.is_empty(), "{commands:?}");
            return;
        }
        let taken = (0..10).find_map(|_| {
            eventually(LONG, "nothing is left of a call that was not answered", || server.pttl("n") == -2);
            if_answered(take)
        });
        // A very short one may be over before its answer is here.
        let (got, _) = taken.expect("one of some calls is answered");
        assert!(got || lease < LONG);
        let (millis, left) = (i64::try_from(lease.as_millis()).unwrap(), server.pttl("n"));
        assert!(left <= millis && (lease < LONG || left > millis - LONG.as_millis() as i64), "{left} of {millis} ms");
        if got {
            let unlocked = locks.unlock("n");
            assert!(unlocked.is_ok() || lease < LONG, "{unlocked:?}");
        }
    });
}

/// The settings that are durations: what sets each, and its bounds when the others have their defaults.
type Setting = (&'static str, fn(ClientBuilder, Duration) -> ClientBuilder, Duration, Duration);

const SETTINGS: [Setting; 5] = [
    ("watchdog_timeout", ClientBuilder::watchdog_timeout, Duration::from_millis(100), YEAR),
    ("connect_timeout", ClientBuilder::connect_timeout, SHORTEST, Duration::MAX),
    ("response_timeout", ClientBuilder::response_timeout, SHORTEST, Duration::from_secs(15)),
    ("outage_budget", ClientBuilder::outage_budget, Duration::ZERO, Duration::MAX),
    ("poll_cap", ClientBuilder::poll_cap, SHORTEST, Duration::MAX),
];

#[test]
fn one_setting_is_taken_inside_its_bounds_and_named_outside() {
    check(1_000, (select(SETTINGS.to_vec()), duration()), |((name, set, least, most), span)| {
        match set(Client::builder("redis://h"), span).build() {
            Ok(_) => assert!((least..=most).contains(&span)),
            Err(error) => {
                assert!(!(least..=most).contains(&span), "{error}");
                assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(name), "{error}");
            }
        }
    });
}

/// What has to be true of all settings together for a client to be built.
fn fits(spans: &[Duration; 5]) -> bool {
    let [watchdog, connect, response, _, poll] = *spans;
    let response_fits = response >= SHORTEST && response <= watchdog / 2;
    (ms(100)..=YEAR).contains(&watchdog) && response_fits && connect.min(poll) >= SHORTEST
}

/// Settings that fit each other more often than chance would have it, and all others.
fn settings() -> impl Strategy<Value = [Duration; 5]> {
    let fitting = [duration(), duration(), duration(), duration(), duration()].prop_map(
        |[watchdog, connect, response, outage, poll]| {
            let watchdog = watchdog.clamp(ms(100), YEAR);
            let response = response.clamp(SHORTEST, watchdog / 2);
            [watchdog, connect.max(SHORTEST), response, outage, poll.max(SHORTEST)]
        },
    );
    prop_oneof![2 => fitting, 1 => [duration(), duration(), duration(), duration(), duration()]]
}

/// Repeats a call whose time-outs may be too short for a busy machine; whatever else it says is wrong.
fn until_answered<T>(mut call: impl FnMut() -> redlatch::Result<T>) -> T {
    let end = std::time::Instant::now() + LONG;
    loop {
        match call() {
            Err(error) if error.is_retryable() && std::time::Instant::now() < end => {}
            result => return result.unwrap(),
        }
    }
}

/// That a client with these settings takes, waits for, prolongs and gives back a lock.
fn use_settings(url: &str, spans: &[Duration; 5]) {
    let set = |builder, ((_, set, ..), span): (&Setting, &Duration)| set(builder, *span);
    let result = SETTINGS.iter().zip(spans).fold(Client::builder(url), set).build();
    if !fits(spans) {
        return assert_err!(result, Config);
    }
    let locks = ReentrantLock::new(&result.unwrap());
    let guard = until_answered(|| locks.request("n").wait(LONG).guard()).expect("it is free");
    let busy = std::thread::scope(|scope| finish(scope.spawn(|| until_answered(|| locks.try_lock_for("n", ms(3))))));
    let lost = guard.state() == HoldState::Lost;
    assert!(!busy || lost, "two held it");
    assert!(until_answered(|| locks.verify(&guard)) || spans[0] < LONG);
    let released = guard.unlock();
    assert!(released.is_ok() || spans[0] < LONG || spans[2] < LONG, "{released:?}");
    locks.client().shutdown();
}

#[test]
fn settings_that_fit_work() {
    let server = Server::start_on_tcp();
    let urls = [server.url(), server.tcp_url()];
    check(100, (select(urls.to_vec()), settings()), |(url, spans)| use_settings(&url, &spans));
    server.clear();
}
