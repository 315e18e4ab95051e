//! What a client counts.

use crate::server::Server;
use crate::threads::{LONG, answered, eventually, finish, ms, spawn_asleep};
use redlatch::{CancelToken, Client, FairLock, RedLock, RedLockExt, ReentrantLock};

/// The locks of a new client, and the client.
fn locks_of<L: RedLock>(server: &Server, of: impl Fn(&Client) -> L) -> (L, Client) {
    let client = server.builder().build().unwrap();
    (of(&client), client)
}

#[test]
fn a_call_that_waits_is_contended_once() {
    waiting_is_contended_once(ReentrantLock::new);
    waiting_is_contended_once(FairLock::new);
}

fn waiting_is_contended_once<L: RedLock>(of: impl Fn(&Client) -> L) {
    let server = Server::start();
    let ((one, _), (other, client)) = (locks_of(&server, &of), locks_of(&server, &of));
    let guard = one.guard("n").unwrap();
    std::thread::scope(|scope| {
        let pass = || other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok();
        let waiting = [spawn_asleep(scope, pass), spawn_asleep(scope, pass)];
        eventually(LONG, "both wait", || client.stats().waiters == 2);
        drop(guard);
        assert!(waiting.into_iter().all(|waiting| finish(waiting).0));
    });
    let stats = client.stats();
    assert_eq!((stats.contended, stats.acquires, stats.waiters, stats.holds), (2, 2, 0, 0));
}

/// A call that gets its lock at once waits for nothing, also while its command is under way.
#[test]
fn only_calls_that_found_their_lock_busy_are_waiters() {
    finding_it_busy_makes_a_waiter(ReentrantLock::new);
    finding_it_busy_makes_a_waiter(FairLock::new);
}

fn finding_it_busy_makes_a_waiter<L: RedLock>(of: impl Fn(&Client) -> L) {
    let server = Server::start();
    let ((holder, _), (locks, client)) = (locks_of(&server, &of), locks_of(&server, &of));
    let guard = holder.guard("n").unwrap();
    drop(locks.guard("warm up").unwrap());
    std::thread::scope(|scope| {
        let pass = || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok();
        let waiting = [(); 3].map(|()| spawn_asleep(scope, pass));
        eventually(LONG, "all wait", || client.stats().waiters == 3);
        server.freeze();
        let free = ["a", "b", "c"].map(|name| spawn_asleep(scope, || locks.guard(name).unwrap().unlock()));
        assert_eq!(client.stats().waiters, 3);
        server.thaw();
        assert!(free.into_iter().all(|free| finish(free).0.is_ok()));
        drop(guard);
        assert!(waiting.into_iter().all(|waiting| finish(waiting).0));
    });
    assert_eq!(client.stats().waiters, 0);
}

#[test]
fn waits_that_end_without_the_lock_are_counted() {
    ends_are_counted(ReentrantLock::new);
    ends_are_counted(FairLock::new);
}

fn ends_are_counted<L: RedLock>(of: impl Fn(&Client) -> L) {
    let server = Server::start();
    let ((holder, _), (locks, client), token) = (locks_of(&server, &of), locks_of(&server, &of), CancelToken::new());
    let guard = holder.guard("n").unwrap();
    assert!(!locks.try_lock("n").unwrap());
    let stats = || client.stats();
    assert_eq!((stats().timed_out, stats().contended), (0, 1));
    let mut before = stats();
    let (got, _) = answered(|| {
        before = stats();
        locks.try_lock_for("n", ms(20))
    });
    assert!(!got && (stats().timed_out - before.timed_out, stats().contended - before.contended) == (1, 1));
    token.cancel();
    assert_err!(locks.lock_cancellable("n", &token), Cancelled);
    assert_eq!((stats().cancelled, stats().waiters), (1, 0));
    drop(guard);
}
