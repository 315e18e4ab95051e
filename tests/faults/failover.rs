//! Row 19: a master that dies, and a replica that takes its place.
//!
//! The client follows by its address, as with a name or an address that moves: a link to the master's socket.

use crate::LEASE;
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, eventually};
use redlatch::{Client, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::path::PathBuf;

/// Where nobody listens.
const NOWHERE: [&str; 2] = ["127.0.0.1", "1"];

struct Pair {
    address: PathBuf,
    master: Server,
    replica: Server,
}

impl Pair {
    /// A replica that has what its master has, and an address that leads to the master.
    fn start() -> Self {
        let (master, replica) = (Server::start_on_tcp(), Server::start());
        master.ask::<String>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        replica.ask::<String>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        let address = master.socket().with_file_name("address");
        let pair = Self { address, master, replica };
        eventually(LONG, "the replica is up to date", || pair.is_linked());
        pair.lead_to(&pair.master);
        pair
    }

    fn is_linked(&self) -> bool {
        self.replica.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    }

    fn lead_to(&self, server: &Server) {
        let _ = std::fs::remove_file(&self.address);
        std::os::unix::fs::symlink(server.socket(), &self.address).unwrap();
    }

    fn locks(&self) -> ReentrantLock {
        let builder = Client::builder(&format!("unix://{}", self.address.display()));
        ReentrantLock::new(&builder.watchdog_timeout(LEASE).build().unwrap())
    }

    /// From now on the replica learns nothing.
    fn sever(&self) {
        self.replica.ask::<String>(&["REPLICAOF", NOWHERE[0], NOWHERE[1]]);
    }

    fn promote(&self) {
        self.replica.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
        self.lead_to(&self.replica);
    }
}

fn await_renewal(locks: &ReentrantLock) {
    let before = locks.client().stats().renewals;
    eventually(LONG, "a renewal is confirmed", || locks.client().stats().renewals > before);
}

#[test]
fn fault_19_a_lock_that_was_not_replicated_is_lost_with_its_master() {
    let mut pair = Pair::start();
    let (first, second) = (pair.locks(), pair.locks());
    pair.sever();
    let guard = first.guard("n").unwrap();
    let lost = guard.lost();
    pair.master.kill();
    pair.promote();
    let promoted = Mark::now();
    let successor = second.guard("n").unwrap();
    assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    let took = promoted.elapsed();
    assert!(took <= LEASE / 3 + LATE, "told after {took:?}");
    assert!(first.is_locked("n").unwrap());
    assert_err!(guard.unlock(), Lost);
    assert!(second.verify(&successor).unwrap());
}

#[test]
fn fault_19_a_lock_that_was_replicated_survives_its_master() {
    let mut pair = Pair::start();
    let locks = pair.locks();
    let guard = locks.guard("n").unwrap();
    eventually(LONG, "it is replicated", || pair.replica.pttl("n") > 0);
    pair.master.kill();
    pair.promote();
    await_renewal(&locks);
    assert!(guard.state() == HoldState::Held && locks.verify(&guard).unwrap());
    assert!(!pair.locks().try_lock("n").unwrap());
}

/// A master that does not know of its replacement goes on renewing: two hold the lock. It ends when the old master
/// is demoted, and nothing before that can be promised.
#[test]
fn fault_19_a_split_brain_ends_with_the_demotion_of_the_old_master() {
    let pair = Pair::start();
    let (first, second) = (pair.locks(), pair.locks());
    pair.sever();
    let guard = first.guard("n").unwrap();
    await_renewal(&first);
    pair.promote();
    let successor = second.guard("n").unwrap();
    await_renewal(&first);
    assert!(guard.is_valid() && successor.is_valid(), "both believe");
    let lost = guard.lost();
    pair.master.ask::<String>(&["REPLICAOF", NOWHERE[0], NOWHERE[1]]);
    let demoted = Mark::now();
    assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    assert!(demoted.elapsed() <= LEASE / 3 + SOON, "told after {:?}", demoted.elapsed());
    assert!(first.is_locked("n").unwrap());
    assert_err!(guard.unlock(), Lost);
    assert!(second.verify(&successor).unwrap());
    pair.master.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    pair.master.clear();
}
