//! Programs that end in the middle of things: a shutdown under load or from inside a callback, and processes that end
//! while they hold a lock.

use crate::process::{alone, built};
use crate::server::{Server, Signal, signal};
use crate::threads::{LATE, LONG, Mark, SOON, elsewhere, eventually, finish, ms};
use redlatch::{Client, Error, RedLock, RedLockExt, RedisRedLock, ReentrantLock};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);

/// A client whose callback runs `act` with the client itself, and tells when that is done.
fn client_that(server: &Server, act: fn(Client)) -> (ReentrantLock, crossbeam_channel::Receiver<()>) {
    let (tell, told) = crossbeam_channel::bounded(1);
    let myself: Arc<Mutex<Option<Client>>> = Arc::default();
    let inside = Arc::clone(&myself);
    let on_lost = move |_| {
        act(inside.lock().unwrap().take().expect("one loss"));
        tell.send(()).unwrap();
    };
    let client = server.builder().watchdog_timeout(LEASE).on_lost(on_lost).build().unwrap();
    *myself.lock().unwrap() = Some(client.clone());
    (ReentrantLock::new(&client), told)
}

fn lose(locks: &ReentrantLock) {
    locks.lock_with_lease("lost", ms(20)).unwrap();
}

#[test]
fn a_callback_may_shut_its_own_client_down() {
    alone(|| {
        let server = Server::start();
        let (locks, told) = client_that(&server, |client| client.shutdown());
        let held = locks.guard("held").unwrap();
        lose(&locks);
        told.recv_timeout(LONG).expect("the shutdown came back");
        assert_err!(held.unlock(), Closed);
        assert_err!(locks.lock("n"), Closed);
    });
}

#[test]
fn a_callback_may_drop_the_last_clone_of_its_own_client() {
    alone(|| {
        let server = Server::start();
        let (locks, told) = client_that(&server, drop);
        lose(&locks);
        drop(locks);
        // The loss may have been found after the client was gone: then nothing is told, and nothing is left.
        let _ = told.recv_timeout(ms(500));
        eventually(LONG, "the lost lock's key ends with its lease", || server.pttl("lost") == -2);
    });
}

#[test]
fn a_shutdown_while_threads_lock_wait_and_unlock() {
    alone(|| {
        let server = Server::start();
        let locks = RedisRedLock::connect(&server.url()).unwrap();
        let shared = locks.guard("held").unwrap();
        std::thread::scope(|scope| {
            let names = ["a", "a", "a", "b", "b", "c", "held", "held"];
            let busy = names.map(|name| scope.spawn(|| work_until_closed(&locks, name)));
            std::thread::sleep(ms(50));
            locks.client().shutdown();
            busy.into_iter().for_each(finish);
        });
        assert!(!shared.is_valid());
        // The server checks in its end that nothing of it is left.
    });
}

/// Every answer says whether the work ran, however the shutdown falls: what it pays must not be paid twice.
fn work_until_closed(locks: &RedisRedLock, name: &str) {
    loop {
        let mut ran = false;
        let done = locks.execute_in_lock(name, || ran = true);
        assert_eq!(done.as_ref().map_or_else(Error::work_ran, |()| true), ran, "{done:?}");
        match done {
            Ok(()) => {}
            Err(Error::Closed { .. }) => return,
            // It was over under the work, or given back before it.
            Err(Error::Unprotected { .. } | Error::NotHeld { .. } | Error::Lost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn work_that_a_shutdown_overtakes_is_told_to_have_run() {
    let server = Server::start();
    let locks = server.locks();
    let paid = locks.execute_in_lock("n", || locks.client().shutdown());
    assert!(paid.as_ref().is_err_and(Error::work_ran), "{paid:?}");
    assert_err!(locks.execute_in_lock("n", || unreachable!("without the lock")), Closed);
}

/// The endings of docs/leases.md, and whether the lock stays until its lease ends. Each is that of a holder of the bench
/// `leases`, a program whose `main` returns.
const ENDINGS: [(&str, bool); 11] = [
    ("SIGKILL", true),
    ("SIGTERM", true),
    ("process::exit", true),
    ("process::abort", true),
    ("main returns, static client", true),
    ("main returns, detached thread holds", true),
    ("main returns, owned guard forgotten", true),
    ("main returns, guard forgotten", false),
    ("main returns, guard in scope", false),
    ("panic of main", false),
    ("Client::shutdown, process::exit", false),
];

#[test]
fn the_end_of_a_process_leaves_its_lock_until_the_lease_ends_or_not_at_all() {
    let server = Server::start();
    let program = built("--bench", "leases");
    std::thread::scope(|scope| {
        let endings = ENDINGS.map(|(ending, stays)| {
            let (server, program) = (&server, &program);
            scope.spawn(move || {
                end_while_it_holds(server, program, ending);
                let (left, ended) = (server.pttl(ending), Mark::now());
                assert_eq!(left > 0, stays, "{ending}: {left} ms are left");
                let (locks, bound) = (server.locks(), if stays { LEASE + LATE } else { SOON });
                locks.lock(ending).unwrap();
                assert!(ended.elapsed() <= bound, "{ending}: free after {:?}", ended.elapsed());
                locks.unlock(ending).unwrap();
            })
        });
        endings.into_iter().for_each(finish);
    });
}

/// Starts a process that locks what is called like its ending, and waits until it has ended so.
fn end_while_it_holds(server: &Server, program: &str, ending: &str) {
    let mut command = Command::new(program);
    command.args(["--holder", &server.url(), ending, &LEASE.as_millis().to_string(), ending]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "held");
    match ending {
        "SIGKILL" => child.kill().unwrap(),
        "SIGTERM" => signal(Signal::TERM, child.id()).unwrap(),
        // The end of its input tells it.
        _ => drop(child.stdin.take()),
    }
    child.wait().unwrap();
}

#[test]
fn a_forgotten_guard_holds_as_long_as_its_thread_lives() {
    let server = Server::start();
    let lease = 3 * LEASE;
    let locks = server.locks_watched(lease);
    elsewhere(|| {
        std::mem::forget(locks.guard("n").unwrap());
        std::thread::sleep(lease + LATE);
        let renewed = locks.is_held_by_current_thread("n") && server.pttl("n") > 0;
        assert!(renewed, "{:?}", locks.client().stats());
    });
    let ended = Mark::now();
    assert!(locks.try_lock_for("n", LONG).unwrap());
    assert!(ended.elapsed() <= lease + LATE, "free after {:?}", ended.elapsed());
    locks.unlock("n").unwrap();
}
