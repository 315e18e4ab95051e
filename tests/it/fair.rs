//! Fair locks: waiting threads get the lock in the order in which they came, whatever becomes of the others in the queue.
//!
//! Where it is the queue that must do it, lease and poll cap are a minute: nothing else could wake a waiter in time.

mod beside;
mod crowd;
mod ends;
mod groups;
mod moves;
mod order;
mod redisson;
mod reports;

use crate::harness::queue::{MINUTE, assert_served};
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually};
use redlatch::{Client, ClientBuilder, FairLock, RedLock};
use std::thread::{Scope, ScopedJoinHandle};

const LIST: &str = "redisson_lock_queue:{n}";
const ENDS: &str = "redisson_lock_timeout:{n}";
const TICKETS: &str = "redlatch_tickets:{n}";

fn locks_of(builder: ClientBuilder) -> FairLock {
    FairLock::new(&builder.build().unwrap())
}

/// The locks of a client whose waiters look only when a message tells them to.
fn patient(server: &Server) -> FairLock {
    patient_at(&server.url())
}

fn patient_at(url: &str) -> FairLock {
    locks_of(Client::builder(url).poll_cap(MINUTE).watchdog_timeout(MINUTE))
}

/// The same, and they reach the ears of clients alone, so none of their scripts tells all.
fn giving(server: &Server) -> FairLock {
    patient_at(&server.let_in("giving", "pw", "~* +@all resetchannels &redlatch_ear:*"))
}

/// Takes the lock as soon as it can, and releases it.
fn pass(locks: &FairLock) -> bool {
    locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok()
}

/// The owner fields in the queue, in order.
fn queue(server: &Server) -> Vec<String> {
    server.ask(&["LRANGE", LIST, "0", "-1"])
}

#[track_caller]
fn eventually_empty(server: &Server) {
    let is_empty = || [LIST, ENDS, TICKETS].iter().all(|key| server.ask::<i64>(&["EXISTS", key]) == 0);
    eventually(LONG, "nothing of the queue is left", is_empty);
}

/// All that wait have subscribed, and no ticket polls.
#[track_caller]
fn eventually_heard(server: &Server) {
    let tickets = || server.ask::<Vec<String>>(&["HVALS", TICKETS]);
    eventually(LONG, "each hears of its turn", || tickets().iter().all(|ticket| ticket.ends_with(".1500")));
}

/// Starts a thread that waits for the lock, which is held, and returns when that thread hears of its turn.
#[track_caller]
fn queued<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    server: &Server,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let handle = placed(scope, server, act);
    eventually_heard(server);
    handle
}

/// The same, and returns when that thread has its place: it may hear nothing yet.
#[track_caller]
fn placed<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    server: &Server,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let before = queue(server).len();
    let handle = scope.spawn(move || (act(), Mark::now()));
    eventually(LONG, "it is queued", || queue(server).len() > before);
    handle
}
