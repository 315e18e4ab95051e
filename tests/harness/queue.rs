//! The harness's view of the queue of processes beside the lock `n`, and clients that wait in it.

use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish};
use redlatch::{Client, ClientBuilder, RedLock, ReentrantLock};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

pub const MINUTE: Duration = Duration::from_secs(60);
pub const CHANNEL: &str = "redisson_lock__channel:{n}";
pub const MEMBERS: &str = "redlatch_members:{n}";
pub const QUEUE: &str = "redlatch_queue:{n}";
pub const MARK: &str = "redlatch_turn:{n}";

pub fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

/// The locks of a client whose waiters look only when a message tells them to.
pub fn patient(server: &Server) -> ReentrantLock {
    patient_at(&server.url())
}

pub fn patient_at(url: &str) -> ReentrantLock {
    locks_of(Client::builder(url).poll_cap(MINUTE).watchdog_timeout(MINUTE))
}

/// Takes the lock as soon as it can, and releases it.
pub fn pass(locks: &ReentrantLock) -> bool {
    locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok()
}

/// The tickets in the queue, in order, each with its arrival.
pub fn line(server: &Server) -> Vec<(String, u64)> {
    server.ask(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"])
}

pub fn length(server: &Server) -> usize {
    server.ask(&["ZCARD", QUEUE])
}

/// The places in the queue, each with its arrival: a ticket without the number of its last ask.
pub fn places(server: &Server) -> Vec<(String, u64)> {
    let number = |ticket: &str| ticket.split('.').next().unwrap().to_owned();
    line(server).into_iter().map(|(ticket, arrival)| (number(&ticket), arrival)).collect()
}

/// The channel on which the client of a ticket listens.
pub fn ear_of(ticket: &str) -> String {
    format!("redlatch_ear:{}", ticket.split(':').next().unwrap())
}

#[track_caller]
pub fn eventually_empty(server: &Server) {
    eventually(LONG, "nobody is queued", || length(server) == 0);
}

/// Starts a thread that waits for the lock, which is held, and returns when that thread is queued. Joining it gives the result
/// of `act` and when `act` ended.
#[track_caller]
pub fn queued<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    server: &Server,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let before = length(server);
    let handle = scope.spawn(move || (act(), Mark::now()));
    eventually(LONG, "it is queued", || length(server) > before);
    handle
}

/// Checks that a waiter got the lock soon after `since`.
#[track_caller]
pub fn assert_served(waiter: ScopedJoinHandle<'_, (bool, Mark)>, since: Mark) {
    let (got, when) = finish(waiter);
    assert!(got && when - since <= SOON, "served after {:?}", when - since);
}

/// A client that holds the lock after it waited for it. So its release, if it comes soon, is one in turn.
pub fn holder(server: &Server) -> ReentrantLock {
    let (holder, other) = (patient(server), patient(server));
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        scope.spawn(move || {
            other.lock("n").unwrap();
            tell.send(()).unwrap();
            eventually(LONG, "it is queued", || length(server) == 1);
            other.unlock("n").unwrap();
        });
        told.recv().unwrap();
        holder.lock("n").unwrap();
    });
    holder
}

/// Sets the flag when it is dropped, also by a panic. So threads that work until the flag is set end.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
