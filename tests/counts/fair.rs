//! What fair locks cost: the commands of a lock that nobody else wants, and of those that wait.

use crate::TIMES;
use crate::company::scripts_a_pair;
use crate::server::Server;
use harness::queue::MINUTE;
use redlatch::{FairLock, RedLock};

fn patient(server: &Server) -> FairLock {
    FairLock::new(&server.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE).build().unwrap())
}

fn pair(locks: &FairLock) {
    locks.lock("n").unwrap();
    locks.unlock("n").unwrap();
}

#[test]
fn a_pair_of_a_fair_lock_is_two_commands() {
    let server = Server::start();
    let locks = patient(&server);
    pair(&locks);
    let commands = server.commands_during(|| (0..TIMES).for_each(|_| pair(&locks)));
    assert_eq!(commands.len(), 2 * TIMES, "{commands:#?}");
}

#[test]
fn a_try_of_a_busy_fair_lock_is_one_command() {
    let server = Server::start();
    let (holder, locks) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    assert!(!locks.try_lock("n").unwrap());
    let commands = server.commands_during(|| (0..TIMES).for_each(|_| assert!(!locks.try_lock("n").unwrap())));
    assert_eq!(commands.len(), TIMES, "{commands:#?}");
    holder.unlock("n").unwrap();
}

/// The ask that joins, and the release that gives the lock to the next: however many wait.
#[test]
fn a_hand_off_of_a_fair_lock_is_two_scripts() {
    for clients in [2, 8] {
        let server = Server::start();
        let clients: Vec<_> = (0..clients).map(|_| patient(&server)).collect();
        let mut seen = Vec::new();
        let few = (0..10).any(|_| {
            seen.push(scripts_a_pair(&server, &clients));
            *seen.last().unwrap() <= 2.2
        });
        println!("{seen:.2?} scripts a pair of {} clients", clients.len());
        assert!(few, "{seen:.2?} scripts a pair of {} clients", clients.len());
    }
}
