//! Beginning and end: of clients, of their threads, of threads that hold locks.

use crate::harness::quorum;
use crate::process::alone;
use crate::server::Server;
use crate::threads::{
    LONG, Mark, OUTLIVED, SOON, WATCHED, answered, elsewhere, eventually, finish, ms, of_redlatch, run_out,
    spawn_asleep,
};
use redlatch::{Hold, HoldState, LocalRedLock, RedLock, RedLockExt, ReentrantLock, Reentry};
use std::time::Instant;

/// Uses a client so that all of its threads run: the pool, the timer, the renewals, the subscriber, the callback.
fn use_everything(server: &Server, locks: &ReentrantLock) {
    let other = server.locks();
    let guard = locks.guard("n").unwrap();
    let waited = other.guard("other").unwrap();
    assert!(!answered(|| locks.try_lock_for("other", ms(50))).0);
    drop((guard, waited));
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    hold.lost().recv_timeout(LONG).unwrap();
    assert_err!(locks.unlock("n"), Lost);
}

/// A client that reports what it loses, and renews often.
fn client_with_everything(server: &Server) -> (ReentrantLock, crossbeam_channel::Receiver<redlatch::LostHold>) {
    let (tell, told) = crossbeam_channel::unbounded();
    let builder = server.builder().watchdog_timeout(WATCHED).on_lost(move |lost| tell.send(lost).unwrap());
    (ReentrantLock::new(&builder.build().unwrap()), told)
}

#[test]
fn dropping_the_last_clone_of_a_client_ends_its_threads() {
    alone(|| {
        let server = Server::start();
        let (locks, told) = client_with_everything(&server);
        use_everything(&server, &locks);
        told.recv_timeout(LONG).unwrap();
        let all = ["redlatch-timer", "redlatch-watchd", "redlatch-subscr", "redlatch-events", "redlatch-pool"];
        eventually(LONG, "each of its threads runs", || {
            all.iter().all(|name| of_redlatch().iter().any(|of| of == name))
        });
        drop((locks.client().clone(), locks));
    });
}

#[test]
fn a_shutdown_ends_the_threads_too() {
    alone(|| {
        let server = Server::start();
        let (locks, told) = client_with_everything(&server);
        use_everything(&server, &locks);
        told.recv_timeout(LONG).unwrap();
        locks.client().shutdown();
        eventually(LONG, "only the pool's thread is left", || of_redlatch().iter().all(|name| name == "redlatch-pool"));
    });
}

#[test]
fn a_client_has_no_thread_for_each_lock_or_waiter() {
    alone(|| {
        let server = Server::start();
        let (one, other) = (server.locks_watched(WATCHED), server.locks_watched(WATCHED));
        let names: Vec<_> = (0..20).map(|number| format!("n{number}")).collect();
        let guards: Vec<_> = names.iter().map(|name| one.guard(name).unwrap()).collect();
        std::thread::scope(|scope| {
            for name in &names {
                let other = &other;
                spawn_asleep(scope, move || drop(other.guard(name).unwrap()));
            }
            eventually(LONG, "renewals", || guards.iter().all(|guard| guard.acquired_at().elapsed() > WATCHED / 2));
            assert!(of_redlatch().len() <= 2 * 5, "{:?}", of_redlatch());
            drop(guards);
        });
    });
}

/// Exact from the moment that they start, which their names are not.
fn threads_of_this_process() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_quorum_that_is_idle_has_one_thread_however_many_its_nodes_are() {
    alone(|| {
        let servers = quorum::start(5);
        let before = threads_of_this_process();
        let locks = quorum::connect(&servers);
        assert_eq!(threads_of_this_process() - before, 1, "that of the pools");
        drop(locks.guard("n").unwrap());
        let pools = || of_redlatch().iter().filter(|name| *name == "redlatch-pool").count();
        eventually(LONG, "the others ask the nodes", || of_redlatch().len() > 5 && pools() == 1);
    });
}

#[test]
fn a_client_that_is_not_used_starts_no_connection() {
    let server = Server::start();
    let _locks = server.locks();
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert_eq!(clients.lines().count(), 1, "{clients}");
}

#[test]
fn dropping_a_lock_in_memory_ends_its_threads() {
    alone(|| {
        let locks = LocalRedLock::new();
        locks.lock("n").unwrap();
        eventually(LONG, "its timer runs", || of_redlatch() == ["redlatch-timer"]);
        drop((locks.clone(), locks));
    });
}

#[test]
fn dropping_the_last_clone_of_a_client_releases_its_holds() {
    let server = Server::start();
    let locks = server.locks();
    let client = locks.client().clone();
    let holds: Vec<Hold> = ["a", "b"].map(|name| locks.guard_forgotten(name)).into();
    drop(locks);
    assert!(holds.iter().all(|hold| hold.state() == HoldState::Held), "a clone of the client is left");
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 2);
    drop(client);
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    assert!(holds.iter().all(|hold| hold.state() == HoldState::Released && !hold.is_valid() && hold.count() == 0));
    assert_err!(holds[0].extend(LONG), NotHeld);
}

/// A hold that is not tied to a guard.
trait Forgotten: RedLock {
    fn guard_forgotten(&self, name: &str) -> Hold {
        self.lock(name).unwrap();
        self.hold(name).unwrap()
    }
}

impl<L: RedLock> Forgotten for L {}

#[test]
fn a_shutdown_releases_and_wakes_waiters_with_closed() {
    let server = Server::start();
    let (one, other) = (server.locks(), server.locks());
    let theirs = one.guard("theirs").unwrap();
    let ours = other.guard("ours").unwrap();
    let lost = ours.lost();
    std::thread::scope(|scope| {
        let heads = (0..2).map(|_| spawn_asleep(scope, || other.lock("theirs")));
        let queued = (0..2).map(|_| spawn_asleep(scope, || other.lock("ours")));
        let waiters: Vec<_> = heads.chain(queued).collect();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        let closed = Mark::now();
        other.client().shutdown();
        for waiter in waiters {
            let (result, when) = finish(waiter);
            assert_err!(result, Closed);
            assert!(when - closed <= SOON, "woken after {:?}", when - closed);
        }
    });
    assert_eq!((ours.state(), ours.is_valid(), ours.count()), (HoldState::Released, false, 0));
    assert_eq!(lost.recv_timeout(LONG), Err(crossbeam_channel::RecvTimeoutError::Disconnected));
    assert!(one.try_lock("ours").unwrap(), "it is free for others");
    one.unlock("ours").unwrap();
    assert!(theirs.is_valid());
    assert_err!(ours.unlock(), Closed);
}

#[test]
fn after_a_shutdown_every_call_is_closed() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    locks.client().shutdown();
    locks.client().shutdown();
    let commands = server.commands_during(|| {
        assert_err!(locks.lock("n"), Closed);
        assert_err!(locks.try_lock("m"), Closed);
        assert_err!(locks.try_lock_for("m", LONG), Closed);
        assert_err!(locks.is_locked("n"), Closed);
        assert_err!(locks.force_unlock("n"), Closed);
        assert_err!(locks.remaining_time_to_live("n"), Closed);
        assert_err!(locks.verify(&guard), Closed);
        assert_err!(locks.release(&guard), Closed);
        drop(guard);
    });
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
}

#[test]
fn a_hold_outlives_its_client_as_released() {
    let hold = LocalRedLock::new().guard_forgotten("n");
    assert_eq!((hold.state(), hold.is_valid()), (HoldState::Released, false));
    assert_err!(hold.extend(LONG), NotHeld);
}

#[test]
fn two_locks_in_memory_are_two_namespaces() {
    let (one, other) = (LocalRedLock::new(), LocalRedLock::new());
    let _guard = one.guard("n").unwrap();
    assert!(other.try_lock("n").unwrap());
    assert!(elsewhere(|| !one.clone().try_lock("n").unwrap()));
    other.unlock("n").unwrap();
}

#[test]
fn the_end_of_a_thread_does_not_touch_the_holds_of_others() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let guard = locks.guard("n").unwrap();
    elsewhere(|| std::mem::forget(locks.guard("m").unwrap()));
    eventually(LONG, "it outlives its lease", || {
        assert!(guard.is_valid(), "{guard:?}");
        guard.acquired_at().elapsed() > OUTLIVED
    });
}

#[test]
fn a_waiter_takes_over_from_a_thread_that_ended() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (held, is_held) = std::sync::mpsc::channel();
        let locks = &locks;
        scope.spawn(move || {
            std::mem::forget(locks.guard("n").unwrap());
            held.send(()).unwrap();
            let _ = told.recv();
        });
        is_held.recv().unwrap();
        let waiter = spawn_asleep(scope, || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
        drop(tell);
        let ended = Mark::now();
        let (got, when) = finish(waiter);
        assert!(got && when - ended <= WATCHED + SOON, "taken over after {:?}", when - ended);
    });
}

#[test]
fn a_callback_that_panics_or_blocks_stops_nothing() {
    let server = Server::start();
    let (tell, told) = crossbeam_channel::unbounded();
    let callback = move |lost: redlatch::LostHold| {
        tell.send(lost.resource().to_owned()).unwrap();
        assert!(lost.resource() != "a", "on purpose");
    };
    let locks = ReentrantLock::new(&server.builder().on_lost(callback).build().unwrap());
    for name in ["a", "b"] {
        locks.lock_with_lease(name, ms(50)).unwrap();
        run_out(&locks.hold(name).unwrap());
        assert_eq!(told.recv_timeout(LONG).unwrap(), name);
        assert_err!(locks.unlock(name), Lost);
    }
}

#[test]
fn a_callback_that_blocks_does_not_hold_up_renewals() {
    let server = Server::start();
    let (go, wait) = crossbeam_channel::bounded::<()>(0);
    let callback = move |_| assert!(wait.recv().is_err());
    let client = server.builder().watchdog_timeout(WATCHED).on_lost(callback).build().unwrap();
    let locks = ReentrantLock::new(&client);
    locks.lock_with_lease("a", ms(20)).unwrap();
    run_out(&locks.hold("a").unwrap());
    let guard = locks.guard("b").unwrap();
    eventually(LONG, "it outlives its lease", || {
        assert!(guard.is_valid(), "{guard:?}");
        guard.acquired_at().elapsed() > OUTLIVED
    });
    drop(go);
    assert_err!(locks.unlock("a"), Lost);
}

/// Each re-entry tells the watchdog of a change at most, and never puts off a renewal that is due.
#[test]
fn a_hold_that_is_entered_again_and_again_is_renewed() {
    let server = Server::start();
    let builder = server.builder().watchdog_timeout(WATCHED).reentry(Reentry::Local);
    let locks = ReentrantLock::new(&builder.build().unwrap());
    let guard = locks.guard("n").unwrap();
    let end = Instant::now() + OUTLIVED;
    while Instant::now() < end {
        locks.execute_in_lock("n", || std::thread::sleep(ms(1))).unwrap();
    }
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}
