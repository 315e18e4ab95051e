//! Passing a lock on in memory between threads of one process, and what must stay true of it.

use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, WATCHED, eventually, finish, if_answered, ms, spawn_asleep, timed};
use redlatch::{
    CancelToken, Client, ClientBuilder, HandOff, Hold, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, Terms,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

/// In order of arrival, for as long as the test takes.
fn freely() -> HandOff {
    HandOff::default().within(LONG).in_order()
}

fn passing(server: &Server, how: HandOff) -> ReentrantLock {
    ReentrantLock::new(&server.builder().hand_off(how).build().unwrap())
}

/// A thread that waits for the lock, gives its hold, and unlocks when the hold's owner says so.
fn next<'s>(scope: &'s Scope<'s, '_>, locks: &'s ReentrantLock) -> ScopedJoinHandle<'s, (Hold, Mark)> {
    spawn_asleep(scope, || {
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        locks.unlock("n").unwrap();
        hold
    })
}

#[test]
fn a_pass_needs_no_command() {
    let server = Server::start();
    let locks = passing(&server, freely());
    drop(locks.guard("warm up").unwrap());
    let commands = server.commands_during(|| {
        let guard = locks.guard("n").unwrap();
        scope(|scope| {
            let waiters = [0; 5].map(|_| next(scope, &locks));
            guard.unlock().unwrap();
            for waiter in waiters {
                finish(waiter);
            }
        });
    });
    assert_eq!(commands.len(), 2, "{commands:#?}");
    assert_eq!((locks.client().stats().acquires, locks.client().stats().passes), (7, 5));
}

#[test]
fn off_every_unlock_goes_to_the_server() {
    let server = Server::start();
    let locks = passing(&server, HandOff::off());
    let guard = locks.guard("n").unwrap();
    let owner = guard.owner().to_owned();
    scope(|scope| {
        let waiter = next(scope, &locks);
        guard.unlock().unwrap();
        assert_ne!(finish(waiter).0.owner(), owner);
    });
    assert_eq!(locks.client().stats().passes, 0);
}

#[test]
fn who_passed_it_on_has_released_it_and_cannot_touch_the_next_hold() {
    let server = Server::start();
    let locks = passing(&server, freely());
    let first = locks.acquire("n", &Terms::new()).unwrap().unwrap();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            locks.lock("n").unwrap();
            let hold = locks.hold("n").unwrap();
            eventually(LONG, "the other has tried", || !locks.is_held_by_thread("n", first.thread()));
            (hold.is_valid() && locks.verify(&hold).unwrap() && hold.owner() == first.owner(), locks.unlock("n"))
        });
        locks.release(&first).unwrap();
        assert_eq!((first.state(), first.count(), first.is_valid()), (HoldState::Released, 0, false));
        assert_eq!(first.remaining(), Duration::ZERO);
        assert_err!(locks.release(&first), NotHeld);
        assert_err!(first.extend(LONG), NotHeld);
        assert!(!locks.verify(&first).unwrap());
        let (held, unlocked) = finish(waiter).0;
        assert!(held && unlocked.is_ok());
    });
}

#[test]
fn the_watchdog_goes_on_with_a_tenure_that_was_passed_on() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(WATCHED).hand_off(freely()).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let guard = locks.guard("n").unwrap();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            let guard = locks.guard("n").unwrap();
            std::thread::sleep(2 * WATCHED);
            assert!(guard.is_valid() && locks.verify(&guard).unwrap());
            guard.unlock().unwrap();
        });
        guard.unlock().unwrap();
        finish(waiter);
    });
    assert_eq!((client.stats().passes, client.stats().lost), (1, 0));
}

#[test]
fn other_processes_get_their_turn() {
    let server = Server::start();
    let (crowd, other) = (passing(&server, HandOff::default()), passing(&server, HandOff::default()));
    let over = std::sync::atomic::AtomicBool::new(false);
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    crowd.execute_in_lock("n", || ()).unwrap();
                }
            });
        }
        eventually(LONG, "the crowd passes it on", || crowd.client().stats().passes > 100);
        let waits: Vec<_> = (0..20).map(|_| timed(|| drop(other.guard("n").unwrap())).1).collect();
        over.store(true, SeqCst);
        println!("the other waited {waits:?}");
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(3)), "{waits:?}");
    });
}

/// How many clients are told of the lock's releases.
fn listeners(server: &Server) -> usize {
    server.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{n}"]).1
}

/// A lock that is never passed on though it could be, with so much time for others to ask first.
fn giving_way(builder: ClientBuilder, span: Duration) -> ReentrantLock {
    let how = HandOff::default().within(Duration::ZERO).give_way(span);
    ReentrantLock::new(&builder.response_timeout(LONG / 2).hand_off(how).build().unwrap())
}

/// Who else waits has to be woken, and the next thread of this process is awake: five times it would not be second by
/// chance. The server refuses the queue, or that would say who is next.
#[test]
fn a_process_gives_way_to_others_that_were_told() {
    let server = Server::start();
    let url = server.let_in("app", "secret", "+@all &* ~n");
    let (crowd, other) = (giving_way(Client::builder(&url), SOON), ReentrantLock::new(&Client::connect(&url).unwrap()));
    for _ in 0..5 {
        let guard = crowd.guard("n").unwrap();
        scope(|scope| {
            let elsewhere = next(scope, &other);
            // A thread that sleeps may do so before it listens.
            eventually(LONG, "it can be told", || listeners(&server) > 0);
            let here = next(scope, &crowd);
            guard.unlock().unwrap();
            let (first, second) = (finish(elsewhere).0, finish(here).0);
            assert!(first.acquired_at() < second.acquired_at());
        });
    }
}

#[test]
fn a_process_gives_way_to_nobody_when_nobody_else_listens() {
    let server = Server::start();
    let (crowd, other) = (giving_way(server.builder(), LONG / 2), server.locks());
    let held = other.guard("n").unwrap();
    scope(|scope| {
        let waiter = next(scope, &crowd);
        // A thread that sleeps may do so before it listens.
        eventually(LONG, "it can be told", || listeners(&server) > 0);
        held.unlock().unwrap();
        finish(waiter);
    });
    // This client listens still, and is told of its own release.
    assert_eq!(listeners(&server), 1);
    let guard = crowd.guard("n").unwrap();
    scope(|scope| {
        let waiter = next(scope, &crowd);
        let start = Instant::now();
        guard.unlock().unwrap();
        assert!(finish(waiter).0.acquired_at() - start < LONG / 2);
    });
}

#[test]
fn a_lease_of_ones_own_is_asked_of_the_server() {
    const LEASE: Duration = Duration::from_secs(300);
    let server = Server::start();
    let locks = passing(&server, freely());
    let guard = locks.guard("n").unwrap();
    let owner = guard.owner().to_owned();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            locks.lock_with_lease("n", LEASE).unwrap();
            let hold = locks.hold("n").unwrap();
            assert!(hold.remaining() > LEASE / 2 && hold.owner() != owner);
            locks.unlock("n").unwrap();
        });
        guard.unlock().unwrap();
        finish(waiter);
    });
}

#[test]
fn a_force_unlock_here_ends_the_passing() {
    let server = Server::start();
    let locks = passing(&server, freely());
    let guard = locks.guard("n").unwrap();
    let owner = guard.owner().to_owned();
    scope(|scope| {
        let waiter = next(scope, &locks);
        assert!(locks.force_unlock("n").unwrap());
        assert_ne!(finish(waiter).0.owner(), owner, "a new tenure");
        assert_err!(guard.unlock(), Lost);
    });
}

/// Elsewhere it ends with the next renewal, and whoever holds it then is told.
#[test]
fn a_force_unlock_elsewhere_is_learnt_by_the_last_hold() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(WATCHED).hand_off(freely()).build().unwrap();
    let (locks, other) = (ReentrantLock::new(&client), server.locks());
    let guard = locks.guard("n").unwrap();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || {
            let guard = locks.guard("n").unwrap();
            let cause = guard.lost().recv_timeout(LONG).unwrap().cause();
            assert_err!(guard.unlock(), Lost);
            cause
        });
        assert!(other.force_unlock("n").unwrap());
        guard.unlock().unwrap();
        assert_eq!(finish(waiter).0, LossCause::Removed);
    });
}

#[test]
fn a_thread_that_ends_with_a_lock_that_was_passed_to_it_is_no_longer_renewed() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(WATCHED).hand_off(freely()).build().unwrap();
    let (locks, other) = (ReentrantLock::new(&client), server.locks());
    let guard = locks.guard("n").unwrap();
    scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("n").unwrap());
        guard.unlock().unwrap();
        finish(waiter);
    });
    assert_eq!(client.stats().passes, 1);
    assert!(other.try_lock_for("n", LONG).unwrap());
    other.unlock("n").unwrap();
}

#[test]
fn a_shutdown_ends_what_is_passed_on() {
    let server = Server::start();
    let locks = passing(&server, HandOff::default().within(LONG));
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while locks.execute_in_lock("n", || ()).is_ok() {});
        }
        eventually(LONG, "it is passed on", || locks.client().stats().passes > 1_000);
        locks.client().shutdown();
    });
    assert_err!(locks.lock("n"), Closed);
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
    assert_eq!((locks.client().stats().holds, locks.client().stats().waiters), (0, 0));
}

#[test]
fn nobody_waits_long_behind_threads_that_run() {
    let server = Server::start();
    let locks = passing(&server, HandOff::default().within(LONG));
    let over = std::sync::atomic::AtomicBool::new(false);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    locks.execute_in_lock("n", || ()).unwrap();
                }
            });
        }
        eventually(LONG, "it is passed on", || locks.client().stats().passes > 100);
        for _ in 0..50 {
            let (got, took) = timed(|| locks.try_lock_for("n", LONG).unwrap());
            assert!(got && took <= SOON, "starved for {took:?}");
            locks.unlock("n").unwrap();
        }
        over.store(true, SeqCst);
    });
}

/// A grant beats a time-out, a cancel beats a grant; whoever goes gives it to the next, and nothing is left behind.
#[test]
fn grants_race_time_outs_and_cancels() {
    for how in [freely(), HandOff::default().within(LONG), HandOff::default()] {
        let server = Server::start();
        let locks = passing(&server, how);
        let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let enter = |got: bool| {
            if got {
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                entered.fetch_add(1, SeqCst);
                inside.fetch_sub(1, SeqCst);
                locks.unlock("n").unwrap();
            }
        };
        let end = Instant::now() + Duration::from_secs(2);
        scope(|scope| {
            for thread in 0..6u64 {
                let (enter, locks) = (&enter, &locks);
                scope.spawn(move || {
                    for turn in (thread * 37..).take_while(|_| Instant::now() < end) {
                        let wait = Duration::from_micros(turn * 7 % 400);
                        match turn % 4 {
                            0 => enter(if_answered(|| locks.try_lock_for("n", wait)).is_some_and(|(got, _)| got)),
                            1 => enter(locks.try_lock("n").unwrap()),
                            2 => enter(cancelled(locks, wait)),
                            _ => enter(locks.lock("n").is_ok()),
                        }
                    }
                });
            }
        });
        let stats = locks.client().stats();
        assert_eq!((stats.holds, stats.waiters, stats.lost), (0, 0, 0));
        println!("{how:?}: {} entered, {} by a pass", entered.load(SeqCst), stats.passes);
        assert!(stats.passes > 0);
        // Who went though it was granted left its release to the sweeper.
        assert!(locks.try_lock_for("n", LONG).unwrap(), "it is free");
        locks.unlock("n").unwrap();
    }
}

/// Waits for the lock until another thread cancels that; whether it got it.
fn cancelled(locks: &ReentrantLock, after: Duration) -> bool {
    let token = CancelToken::new();
    scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(after);
            token.cancel();
        });
        locks.lock_cancellable("n", &token).is_ok()
    })
}

/// Everything that passes it on and everything that takes it away, at once.
#[test]
fn force_unlocks_race_passes() {
    let server = Server::start();
    let locks = passing(&server, HandOff::default());
    let end = Instant::now() + Duration::from_secs(2);
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    let (result, took) = timed(|| locks.try_lock_for("n", ms(500)));
                    assert!(took <= ms(500) + LATE, "{took:?} for {result:?}");
                    if result.unwrap() {
                        let hold = locks.hold("n").unwrap();
                        let unlocked = locks.unlock("n");
                        assert!(matches!(unlocked, Ok(()) | Err(redlatch::Error::Lost { .. })), "{unlocked:?}");
                        assert!(!hold.is_valid() && hold.count() == 0);
                    }
                }
            });
        }
        while Instant::now() < end {
            std::thread::sleep(ms(3));
            locks.force_unlock("n").unwrap();
        }
    });
    let stats = locks.client().stats();
    assert_eq!((stats.holds, stats.waiters), (0, 0));
}
