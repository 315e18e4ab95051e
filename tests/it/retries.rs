//! Programs that call again for as long as an error may pass.

use crate::server::{Server, free_port};
use crate::threads::{LONG, Mark, eventually, finish, ms};
use redlatch::{CancelToken, Client, Error, QuorumLock, RedLock, RedLockExt, ReentrantLock};
use std::time::{Duration, Instant};

const BUDGET: Duration = Duration::from_millis(50);

/// Locks on a port where nobody listens, whose outage budget is spent.
fn without_a_server() -> ReentrantLock {
    let url = format!("redis://127.0.0.1:{}/", free_port());
    let locks = ReentrantLock::new(&Client::builder(&url).outage_budget(BUDGET).build().unwrap());
    assert_err!(locks.lock("n"), Unavailable);
    locks
}

/// How often a call fails in a second.
fn failures<T>(mut call: impl FnMut() -> redlatch::Result<T>) -> usize {
    let end = Instant::now() + Duration::from_secs(1);
    (0..).take_while(|_| Instant::now() < end).filter(|_| call().is_err_and(|error| error.is_retryable())).count()
}

#[test]
fn a_loop_of_retries_does_not_spin() {
    let locks = without_a_server();
    assert!((2..=10).contains(&failures(|| locks.guard("n"))));
    assert!((2..=10).contains(&failures(|| locks.is_locked("n"))));
    assert!((2..=10).contains(&failures(|| locks.force_unlock("n"))));
}

/// Those that wait behind another one of their process fail with it, and whoever comes back first asks the server.
#[test]
fn loops_of_many_threads_at_one_lock_do_not_spin() {
    let locks = without_a_server();
    let counts = std::thread::scope(|scope| {
        let loops = [(); 8].map(|()| scope.spawn(|| failures(|| locks.guard("n"))));
        loops.map(finish)
    });
    // One more of each when it is overtaken in the queue.
    assert!(counts.iter().all(|count| (1..=20).contains(count)), "{counts:?}");
}

#[test]
fn loops_of_many_threads_at_one_lock_are_served_when_the_outage_is_over() {
    let mut server = Server::start();
    let locks = ReentrantLock::new(&server.builder().outage_budget(BUDGET).build().unwrap());
    drop(locks.guard("n").unwrap());
    server.kill();
    let pass = || {
        retry(|| locks.guard("n")).unwrap().unlock().unwrap();
        Mark::now()
    };
    std::thread::scope(|scope| {
        let loops = [(); 8].map(|()| scope.spawn(pass));
        std::thread::sleep(ms(500));
        server.restart();
        let back = Mark::now();
        for served in loops.map(finish) {
            assert!(served - back <= Duration::from_secs(2), "served after {:?}", served - back);
        }
    });
}

#[test]
fn a_loop_of_retries_at_a_read_only_server_does_not_spin() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().outage_budget(BUDGET).build().unwrap());
    server.ask::<String>(&["REPLICAOF", "127.0.0.1", "1"]);
    // On a busy machine the budget may be over before there is an answer.
    eventually(LONG, "it is refused", || matches!(locks.lock("n"), Err(Error::Refused { .. })));
    assert!((2..=10).contains(&failures(|| locks.guard("n"))));
    server.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    drop(locks.guard("n").unwrap());
}

#[test]
fn a_loop_of_retries_at_a_quorum_does_not_spin() {
    let urls = [(); 3].map(|()| format!("redis://127.0.0.1:{}/", free_port()));
    let locks = QuorumLock::builder(urls).outage_budget(BUDGET).build().unwrap();
    assert!((2..=10).contains(&failures(|| locks.guard("n"))));
}

/// Calls for as long as the error may pass: until the first other answer. It ends by itself if that never comes.
fn retry<T>(mut call: impl FnMut() -> redlatch::Result<T>) -> redlatch::Result<T> {
    let end = Instant::now() + LONG;
    loop {
        match call() {
            Err(error) if error.is_retryable() => assert!(Instant::now() < end, "{error}"),
            answer => return answer,
        }
    }
}

#[test]
fn a_call_that_holds_back_hears_of_a_cancel_and_of_a_shutdown() {
    let (locks, token) = (without_a_server(), CancelToken::new());
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| retry(|| locks.lock_cancellable("n", &token)));
        std::thread::sleep(ms(50));
        token.cancel();
        assert_err!(finish(looping), Cancelled);
        let looping = scope.spawn(|| retry(|| locks.lock("n")));
        std::thread::sleep(ms(50));
        locks.client().shutdown();
        assert_err!(finish(looping), Closed);
    });
}

/// The loop of the front page ends when the server is back.
#[test]
fn a_loop_of_retries_is_served_when_the_outage_is_over() {
    let mut server = Server::start();
    let locks = ReentrantLock::new(&server.builder().outage_budget(BUDGET).build().unwrap());
    drop(locks.guard("n").unwrap());
    server.kill();
    std::thread::scope(|scope| {
        let looping = scope.spawn(|| retry(|| locks.guard("n")).unwrap().unlock());
        std::thread::sleep(ms(300));
        server.restart();
        finish(looping).unwrap();
    });
}
