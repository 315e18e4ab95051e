//! Semaphores: so many permits and no more, given in order, and none lost or doubled.
//!
//! Where a message must wake a waiter, lease and poll cap are a minute: nothing else could wake it in time.

/// Makes two tests of each of these functions, one of each kind of semaphore.
macro_rules! of_both_kinds {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn of_a_semaphore() {
                super::$name::<redlatch::Semaphore>();
            }

            #[test]
            fn of_a_leased_semaphore() {
                super::$name::<redlatch::LeasedSemaphore>();
            }
        })*
    };
}

mod basics;
mod bytes;
mod ends;
mod force;
mod keys;
mod leases;
mod order;
mod reports;
mod resized;
mod waking;
mod wrong;

use crate::harness::queue::MINUTE;
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually};
use redlatch::{Client, ClientBuilder, LeasedSemaphore, Permits, Result, Semaphore, Terms};
use std::panic::RefUnwindSafe;
use std::thread::{Scope, ScopedJoinHandle};

const LEASES: &str = "{n}:timeout";
const PLACES: &str = "redlatch_places:{n}";

/// What both kinds can do.
trait Kind: Send + Sync + RefUnwindSafe {
    fn new(client: &Client) -> Self;
    fn client(&self) -> &Client;
    fn try_set_permits(&self, name: &str, permits: u32) -> Result<bool>;
    fn available_permits(&self, name: &str) -> Result<Option<i64>>;
    fn acquire(&self, name: &str, permits: u32, terms: &Terms<'_>) -> Result<Option<Permits>>;
    fn try_acquire(&self, name: &str, permits: u32) -> Result<Option<Permits>>;
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        $(impl Kind for $kind {
            fn new(client: &Client) -> Self {
                Self::new(client)
            }

            fn client(&self) -> &Client {
                self.client()
            }

            fn try_set_permits(&self, name: &str, permits: u32) -> Result<bool> {
                self.try_set_permits(name, permits)
            }

            fn available_permits(&self, name: &str) -> Result<Option<i64>> {
                self.available_permits(name)
            }

            fn acquire(&self, name: &str, permits: u32, terms: &Terms<'_>) -> Result<Option<Permits>> {
                self.acquire(name, permits, terms)
            }

            fn try_acquire(&self, name: &str, permits: u32) -> Result<Option<Permits>> {
                self.try_acquire(name, permits)
            }
        })*
    };
}

kinds!(Semaphore LeasedSemaphore);

fn of<S: Kind>(builder: ClientBuilder) -> S {
    S::new(&builder.build().unwrap())
}

/// The semaphores of a client with default settings.
fn usual<S: Kind>(server: &Server) -> S {
    of(server.builder())
}

/// The semaphores of a client whose waiters look only when a message tells them to.
fn patient<S: Kind>(server: &Server) -> S {
    patient_at(&server.url())
}

fn patient_at<S: Kind>(url: &str) -> S {
    of(Client::builder(url).poll_cap(MINUTE).watchdog_timeout(MINUTE))
}

/// A server where the semaphore `n` has so many permits, and a patient client.
fn with_permits<S: Kind>(permits: u32) -> (Server, S) {
    let server = Server::start();
    let semaphores: S = patient(&server);
    assert!(semaphores.try_set_permits("n", permits).unwrap());
    (server, semaphores)
}

/// Terms that a test may wait for.
fn bounded<'t>() -> Terms<'t> {
    Terms::new().wait(LONG)
}

#[track_caller]
fn take<S: Kind>(semaphores: &S, permits: u32) -> Permits {
    semaphores.acquire("n", permits, &bounded()).unwrap().expect("its turn")
}

/// Takes so many permits as soon as it can, and gives them back.
fn pass<S: Kind>(semaphores: &S, permits: u32) -> bool {
    semaphores.acquire("n", permits, &bounded()).unwrap().is_some_and(|permits| permits.release().is_ok())
}

/// How many permits are left, as the server says.
#[track_caller]
fn left<S: Kind>(semaphores: &S) -> i64 {
    semaphores.available_permits("n").unwrap().expect("they are set")
}

/// The places of those that wait.
fn places(server: &Server) -> Vec<String> {
    server.ask(&["HKEYS", PLACES])
}

#[track_caller]
fn eventually_nobody_waits(server: &Server) {
    eventually(LONG, "no place is left", || server.ask::<i64>(&["EXISTS", PLACES]) == 0);
}

/// Starts a thread that waits for permits, and returns when its client has a place. The client must have none before.
#[track_caller]
fn placed<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    server: &Server,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let before = places(server).len();
    let handle = scope.spawn(move || (act(), Mark::now()));
    eventually(LONG, "it has a place", || places(server).len() > before);
    handle
}

/// Starts a thread that waits for permits of this client, and returns when the client counts one more waiter.
#[track_caller]
fn in_line<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    client: &Client,
    act: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, (T, Mark)> {
    let before = client.stats().waiters;
    let handle = scope.spawn(move || (act(), Mark::now()));
    eventually(LONG, "it waits", || client.stats().waiters > before);
    handle
}
