//! Leases of a request's own that are renewed.

use crate::server::Server;
use crate::threads::{LONG, Mark, OUTLIVED, WATCHED, elsewhere, eventually, finish, ms, spawn_asleep};
use redlatch::{HandOff, HoldState, LocalRedLock, MultiLock, RedLock, RedLockExt, ReentrantLock, Reentry, Terms};
use std::time::Duration;

/// Short beside the watchdog's 30 s, and with room for a machine that stalls.
const SHORT: Duration = Duration::from_secs(3);

/// Longer than a lease that is not renewed lasts.
fn outlive(locks: &dyn RedLock, name: &str) {
    let hold = locks.hold(name).unwrap();
    eventually(LONG, "it outlives its lease", || {
        assert!(hold.is_valid() && hold.remaining() <= SHORT, "{hold:?}");
        hold.acquired_at().elapsed() > SHORT + ms(500)
    });
}

fn keeps<L: RedLock>(locks: &L) {
    let guard = locks.request("n").renewed_lease(SHORT).guard().unwrap().unwrap();
    assert!(locks.remaining_time_to_live("n").unwrap().unwrap() <= SHORT);
    outlive(locks, "n");
    assert!(locks.remaining_time_to_live("n").unwrap().unwrap() <= SHORT, "it was renewed for longer");
    guard.unlock().unwrap();
    assert!(!locks.is_locked("n").unwrap());
}

#[test]
fn a_short_lease_is_renewed_for_as_long_as_it_is() {
    keeps(&Server::start().locks());
}

#[test]
fn a_short_lease_is_renewed_in_memory() {
    keeps(&LocalRedLock::new());
}

#[test]
fn a_short_lease_is_renewed_at_a_quorum() {
    let servers = [(); 3].map(|()| Server::start());
    keeps(&crate::harness::quorum::connect(&servers));
}

#[test]
fn a_group_has_a_short_lease_for_each() {
    let server = Server::start();
    let locks = server.locks();
    let group = MultiLock::of([(&locks, "a"), (&locks, "b")]);
    let guard = group.request().renewed_lease(SHORT).guard().unwrap().unwrap();
    outlive(&locks, "a");
    assert!(["a", "b"].iter().all(|key| server.pttl(key) <= SHORT.as_millis() as i64));
    guard.unlock().unwrap();
}

/// Each is renewed in its own time, by its own lease.
#[test]
fn short_and_long_leases_live_side_by_side() {
    let server = Server::start();
    let locks = server.locks();
    let long = locks.guard("patient").unwrap();
    let short = locks.request("short").renewed_lease(SHORT).guard().unwrap().unwrap();
    let commands = server.commands_during(|| outlive(&locks, "short"));
    let renewals = |key: &str| commands.iter().filter(|command| command.contains(&format!("\"{key}\""))).count();
    assert!((3..=5).contains(&renewals("short")), "{commands:#?}");
    assert_eq!(renewals("patient"), 0, "{commands:#?}");
    assert!(long.remaining() > 2 * SHORT);
    drop((long, short));
}

/// What it is for.
#[test]
fn a_holder_that_ends_blocks_others_for_its_own_lease_only() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    elsewhere(|| std::mem::forget(locks.request("n").renewed_lease(ms(500)).guard().unwrap()));
    assert!(other.try_lock_for("n", SHORT).unwrap());
    other.unlock("n").unwrap();
}

#[test]
fn an_inner_level_can_only_make_it_longer() {
    for reentry in [Reentry::Mirrored, Reentry::Local] {
        let server = Server::start();
        let locks = ReentrantLock::new(&server.builder().reentry(reentry).build().unwrap());
        let outer = locks.request("n").renewed_lease(SHORT).guard().unwrap().unwrap();
        drop(locks.request("n").renewed_lease(ms(200)).guard().unwrap().unwrap());
        assert!(outer.remaining() > ms(500));
        drop(locks.guard("n").unwrap());
        assert!(outer.remaining() > 2 * SHORT, "{reentry:?}: the inner level asked for 30 s");
        eventually(LONG, "it outlives the short one", || outer.acquired_at().elapsed() > SHORT + ms(500));
        assert!(outer.is_valid());
        outer.unlock().unwrap();
    }
}

/// What the longer level was granted goes on, and no more of it is asked for.
#[test]
fn a_longer_lease_is_renewed_for_as_long_as_its_level_is_open() {
    let server = Server::start();
    let locks = server.locks();
    let outer = locks.request("n").renewed_lease(SHORT).guard().unwrap().unwrap();
    drop(locks.request("n").renewed_lease(4 * SHORT).guard().unwrap().unwrap());
    assert!(outer.remaining() > 2 * SHORT, "{outer:?}");
    let before = locks.client().stats().renewals;
    let commands = server.commands_during(|| {
        eventually(LONG, "it is renewed", || locks.client().stats().renewals > before + 1);
    });
    let renewals: Vec<_> = commands.iter().filter(|command| command.contains("\"n\"")).collect();
    assert!(renewals.len() > 1 && renewals.iter().all(|command| command.contains("\"3000\"")), "{renewals:#?}");
    outer.unlock().unwrap();
}

/// Whatever the form, and whether inner levels are in memory.
#[test]
fn a_level_takes_its_own_terms_with_it_whichever_is_closed_first() {
    for reentry in [Reentry::Mirrored, Reentry::Local] {
        let server = Server::start();
        let client = server.builder().watchdog_timeout(WATCHED).reentry(reentry).build().unwrap();
        let locks = ReentrantLock::new(&client);
        let leased = locks.request("n").lease(WATCHED).owned_guard().unwrap().unwrap();
        locks
            .request("n")
            .execute(|renewed| {
                let both = Mark::now();
                drop(leased);
                eventually(LONG, "it outlives both leases", || {
                    assert!(renewed.is_valid(), "{reentry:?}: {renewed:?}");
                    both.elapsed() >= OUTLIVED
                });
            })
            .unwrap();
        assert!(!locks.is_locked("n").unwrap());
    }
}

/// The level of a hold that was found by its name is the innermost, as that of an unlock.
#[test]
fn an_unlock_closes_the_innermost_level() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    locks.lock("n").unwrap();
    locks.lock_with_lease("n", WATCHED).unwrap();
    let both = Mark::now();
    locks.release(&locks.hold("n").unwrap()).unwrap();
    let hold = locks.hold("n").unwrap();
    eventually(LONG, "it outlives both leases", || {
        assert!(hold.is_valid(), "{hold:?}");
        both.elapsed() >= OUTLIVED
    });
    locks.lock_with_lease("n", ms(10)).unwrap();
    locks.unlock("n").unwrap();
    assert!(locks.client().stats().holds == 1 && hold.is_valid());
    locks.unlock("n").unwrap();
}

#[test]
fn it_begins_with_the_level_that_asks_for_it() {
    let server = Server::start();
    let locks = server.locks();
    let outer = locks.request("n").lease(SHORT).guard().unwrap().unwrap();
    let inner = locks.request("n").renewed_lease(SHORT).guard().unwrap().unwrap();
    outlive(&locks, "n");
    drop(inner);
    assert_eq!(outer.lost().recv_timeout(LONG).unwrap().cause(), redlatch::LossCause::Expired);
    assert_err!(outer.unlock(), Lost);
}

/// Who asked for the usual lease must not get one that is renewed for less.
#[test]
fn it_is_not_passed_on_in_memory() {
    let server = Server::start();
    let client = server.builder().hand_off(HandOff::default().within(LONG)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let twenty = Duration::from_secs(20);
    for (first, second) in [(Some(twenty), None), (None, Some(twenty))] {
        let terms = |lease: Option<Duration>| lease.map_or(Terms::new(), |lease| Terms::new().renewed_lease(lease));
        let hold = locks.acquire("n", &terms(first)).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || {
                let hold = locks.acquire("n", &terms(second)).unwrap().unwrap();
                (hold.owner().to_owned(), locks.release(&hold).unwrap())
            });
            locks.release(&hold).unwrap();
            assert_ne!(finish(waiter).0.0, hold.owner());
        });
    }
    assert_eq!(client.stats().passes, 0);
}

#[test]
fn its_bounds_are_told() {
    let server = Server::start();
    let locks = server.locks();
    let asked = |lease| locks.request("n").renewed_lease(lease).guard().map(drop);
    for lease in [Duration::ZERO, ms(99), Duration::from_secs(366 * 86_400)] {
        assert_err!(asked(lease), Config);
    }
    asked(ms(100)).unwrap();
    let capped = ReentrantLock::new(&server.builder().max_hold(Duration::from_secs(40)).build().unwrap());
    assert_err!(capped.request("n").renewed_lease(Duration::from_secs(41)).guard().map(drop), Config);
    let strict = ReentrantLock::new(&server.builder().watchdog_timeout(ms(300)).strict(true).build().unwrap());
    assert_err!(strict.request("n").renewed_lease(SHORT).guard().map(drop), Config);
}

/// A renewal that is not answered is repeated in time: it does not wait for as long as an answer to others may take.
#[test]
fn a_short_lease_survives_a_server_that_stops_for_half_of_it() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.request("n").renewed_lease(2 * SHORT).guard().unwrap().unwrap();
    eventually(LONG, "it was renewed", || locks.client().stats().renewals > 0);
    server.freeze();
    eventually(LONG, "a renewal fails", || guard.state() == HoldState::Suspect);
    server.thaw();
    eventually(SHORT, "it is renewed again", || guard.state() == HoldState::Held);
    guard.unlock().unwrap();
}

/// What is left is less than a third when it is held: it has to be renewed all the same, and sooner.
#[test]
fn a_lease_whose_acquire_was_answered_late_is_renewed() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().response_timeout(2 * SHORT).build().unwrap());
    drop(locks.guard("warm up").unwrap());
    server.freeze();
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let guard = locks.request("n").renewed_lease(2 * SHORT).guard().unwrap().unwrap();
            assert!(guard.remaining() < 2 * SHORT / 3, "{guard:?}");
            eventually(LONG, "it outlives its lease", || {
                assert!(guard.is_valid(), "{guard:?}");
                guard.acquired_at().elapsed() > 2 * SHORT
            });
        });
        std::thread::sleep(2 * SHORT * 3 / 4);
        server.thaw();
        finish(holder);
    });
}

/// Its own length is set aside while it lasts for longer, and comes back.
#[test]
fn a_lease_that_was_extended_is_renewed_when_that_is_over() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.request("n").renewed_lease(ms(2_000)).guard().unwrap().unwrap();
    guard.extend(SHORT).unwrap();
    eventually(LONG, "it outlives both", || {
        assert!(guard.is_valid(), "{guard:?}");
        guard.acquired_at().elapsed() > SHORT + ms(2_500)
    });
    guard.unlock().unwrap();
}
