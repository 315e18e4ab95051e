//! A long queue in which many give up or die.

use super::{eventually_empty, patient, patient_at, queue};
use crate::process::{Peer, with_peer};
use crate::server::Server;
use crate::threads::{LONG, Mark, eventually, finish, ms};
use redlatch::{CancelToken, Error, FairLock, RedLock, RedLockExt};
use std::sync::Mutex;
use std::thread::{Scope, ScopedJoinHandle, scope, sleep};

const WAITERS: usize = 500;

/// The list on the server by which the test has the other process start its next waiter.
const STARTS: &str = "it:starts";

/// A process that starts a waiter each time it is told to.
fn waits_when_told(url: &str) {
    let (locks, client) = (patient_at(url), redis::Client::open(url).unwrap());
    let mut connection = client.get_connection().unwrap();
    scope(|scope| {
        loop {
            let _: (String, String) = redis::cmd("BLPOP").arg(STARTS).arg(0).query(&mut connection).unwrap();
            scope.spawn(|| locks.try_lock_for("n", 3 * LONG).unwrap() && locks.unlock("n").is_ok());
        }
    });
}

/// What becomes of a waiter: of ten one is in the other process and one is cancelled.
#[derive(PartialEq)]
enum Fate {
    Served,
    Cancelled,
    InTheOtherProcess,
}

fn fate(number: usize) -> Fate {
    match number % 10 {
        3 => Fate::InTheOtherProcess,
        7 => Fate::Cancelled,
        _ => Fate::Served,
    }
}

struct Crowd<'a> {
    server: &'a Server,
    clients: &'a [FairLock],
    token: &'a CancelToken,
    served: &'a Mutex<Vec<usize>>,
}

impl Crowd<'_> {
    /// One call of this process that waits, and ends by the lock or by the token.
    fn wait(&self, number: usize) {
        let request = self.clients[number % self.clients.len()].request("n").wait(6 * LONG);
        match fate(number) {
            Fate::Cancelled => {
                assert!(matches!(request.cancelled_by(self.token).guard(), Err(Error::Cancelled { .. })))
            }
            _ => {
                let guard = request.guard().unwrap().expect("its turn");
                self.served.lock().unwrap().push(number);
                guard.unlock().unwrap();
            }
        }
    }

    /// All of them queue, in the order of their numbers.
    fn queues<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Vec<ScopedJoinHandle<'s, ()>> {
        let start = |number| {
            let waiter = match fate(number) {
                Fate::InTheOtherProcess => {
                    self.server.ask::<i64>(&["RPUSH", STARTS, "1"]);
                    None
                }
                _ => Some(scope.spawn(move || self.wait(number))),
            };
            eventually(LONG, "it is queued", || self.server.ask::<usize>(&["LLEN", super::LIST]) == number + 1);
            waiter
        };
        (0..WAITERS).filter_map(start).collect()
    }
}

/// All others are served in order, and the dead cost them nothing.
fn assert_served_in_order(start: &dyn Fn(&Server) -> Peer) {
    let server = Server::start();
    let (holder, clients) = (patient(&server), [(); 4].map(|()| patient(&server)));
    let (token, served, peer) = (CancelToken::new(), Mutex::default(), start(&server));
    let crowd = Crowd { server: &server, clients: &clients, token: &token, served: &served };
    holder.lock("n").unwrap();
    let took = scope(|scope| {
        let waiters = crowd.queues(scope);
        drop(peer);
        token.cancel();
        sleep(ms(100));
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(finish);
        let took = unlocked.elapsed();
        // If each of the dead cost an offer, it would be more.
        assert!(took <= LONG, "{took:?}");
        took
    });
    println!("{WAITERS} waiters, a tenth ended and a tenth cancelled: the others were served within {took:?}");
    let expected: Vec<_> = (0..WAITERS).filter(|number| fate(*number) == Fate::Served).collect();
    assert_eq!(served.into_inner().unwrap(), expected);
    assert!(queue(&server).is_empty());
    eventually_empty(&server);
}

#[test]
fn five_hundred_are_served_in_order_though_a_tenth_is_killed() {
    with_peer(
        |url| {
            waits_when_told(url);
        },
        |start| {
            assert_served_in_order(start);
        },
    );
}
