//! Programs that end in the middle of things: a shutdown under load or from inside a callback.

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms};
use redlatch::{Client, Error, RedLock, RedLockExt, RedisRedLock, ReentrantLock};
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

fn work_until_closed(locks: &RedisRedLock, name: &str) {
    loop {
        match locks.execute_in_lock(name, || ()) {
            Ok(()) => {}
            Err(Error::Closed { .. }) => return,
            // Its hold was released under it.
            Err(Error::NotHeld { .. } | Error::Lost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
