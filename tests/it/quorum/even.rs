//! A quorum of an even number of nodes: half of them keep a majority from everybody, and are none.

use crate::harness::quorum::{
    MINUTE, UNHURRIED, builder, connect, eventually_confirmed, eventually_free, occupy, patient, start, vacate,
};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, SOON, elsewhere, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Error, HoldState, LossCause, QuorumLock, RedLock, RedLockExt};
use std::time::Duration;

const EVEN: [usize; 2] = [4, 6];

/// The least outage budget: whoever takes a busy lock for an outage fails after that.
const BUDGET: Duration = Duration::from_millis(300);

fn hurried(servers: &[Server]) -> QuorumLock {
    builder(servers).outage_budget(BUDGET).build().unwrap()
}

#[test]
fn what_another_holds_is_busy() {
    for nodes in EVEN {
        let servers = start(nodes);
        let (holder, other) = (patient(&servers), hurried(&servers));
        let guard = holder.request("n").lease(MINUTE).guard().unwrap().unwrap();
        eventually_confirmed(&holder, nodes);
        elsewhere(|| {
            assert!(!other.try_lock("n").unwrap());
            let (locked, took) = timed(|| other.try_lock_for("n", ms(100)));
            assert!(!locked.unwrap() && took <= ms(100) + LATE, "took {took:?}");
            assert!(other.is_locked("n").unwrap());
            assert!(other.remaining_time_to_live("n").unwrap().is_some_and(|left| left <= MINUTE));
        });
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || other.lock("n").and_then(|()| other.unlock("n")));
            std::thread::sleep(2 * BUDGET);
            assert!(!waiter.is_finished(), "{:?}", finish(waiter).0);
            let unlocked = Mark::now();
            guard.unlock().unwrap();
            let (result, when) = finish(waiter);
            result.unwrap();
            assert!(when - unlocked <= SOON, "woken after {:?}", when - unlocked);
        });
        eventually_free(&servers);
    }
}

#[test]
fn a_lease_that_ends_at_half_of_the_nodes_lets_the_next_one_in() {
    for nodes in EVEN {
        let servers = start(nodes);
        let locks = hurried(&servers);
        servers[..nodes / 2].iter().for_each(|server| occupy(server, ms(1_000)));
        let (locked, took) = timed(|| locks.lock("n"));
        locked.unwrap();
        assert!(took >= ms(500) && took <= ms(1_000) + SOON, "took {took:?}");
        locks.unlock("n").unwrap();
        servers[..nodes / 2 - 1].iter().for_each(|server| occupy(server, MINUTE));
        drop(locks.guard("n").unwrap());
        servers.iter().for_each(vacate);
    }
}

#[test]
fn a_hold_is_renewed_re_entered_and_lost_with_half_of_the_nodes() {
    for nodes in EVEN {
        let servers = start(nodes);
        let locks = builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap();
        let guard = locks.guard("n").unwrap();
        eventually_confirmed(&locks, nodes);
        servers[..nodes / 2 - 1].iter().for_each(Server::clear);
        eventually_confirmed(&locks, nodes / 2 + 1);
        locks.guard("n").unwrap().unlock().unwrap();
        assert!(locks.verify(&guard).unwrap() && guard.state() == HoldState::Held);
        elsewhere(|| assert!(!connect(&servers).try_lock("n").unwrap()));
        servers[nodes / 2].clear();
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
        assert_err!(locks.lock("n"), Lost);
        assert_err!(guard.unlock(), Lost);
        eventually_free(&servers);
    }
}

#[test]
fn one_node_that_is_down_changes_nothing() {
    for nodes in EVEN {
        let mut servers = start(nodes);
        let (holder, other) = (builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap(), hurried(&servers));
        servers[0].kill();
        let guard = holder.guard("n").unwrap();
        eventually_confirmed(&holder, nodes - 1);
        let renewals = holder.stats().renewals;
        elsewhere(|| {
            assert!(!other.try_lock("n").unwrap());
            assert!(!other.try_lock_for("n", 2 * BUDGET).unwrap());
            assert!(other.is_locked("n").unwrap());
        });
        eventually(LONG, "it was renewed", || holder.stats().renewals > renewals);
        assert!(guard.is_valid() && holder.verify(&guard).unwrap());
        guard.unlock().unwrap();
        elsewhere(|| other.guard("n").unwrap().unlock().unwrap());
        assert!(!other.is_locked("n").unwrap());
        eventually_free(&servers[1..]);
    }
}

#[test]
fn what_others_hold_is_force_unlocked() {
    for nodes in EVEN {
        let servers = start(nodes);
        let locks = connect(&servers);
        servers[..nodes / 2].iter().for_each(|server| occupy(server, MINUTE));
        assert!(locks.is_locked("n").unwrap() && locks.force_unlock("n").unwrap());
        eventually_free(&servers);
        servers[..nodes / 2 - 1].iter().for_each(|server| occupy(server, MINUTE));
        assert!(!locks.is_locked("n").unwrap() && !locks.force_unlock("n").unwrap(), "others could have had it");
    }
}

#[test]
fn half_of_the_nodes_grant_nothing_and_confirm_nothing() {
    for nodes in EVEN {
        let mut servers = start(nodes);
        let (holder, other) = (builder(&servers).watchdog_timeout(UNHURRIED).build().unwrap(), hurried(&servers));
        let guard = holder.guard("n").unwrap();
        eventually_confirmed(&holder, nodes);
        servers[..nodes / 2].iter_mut().for_each(Server::kill);
        elsewhere(|| {
            // The other half says that somebody has it, and nobody can get a majority of the rest.
            assert!(!other.try_lock("n").unwrap() && other.is_locked("n").unwrap());
            assert_err!(other.lock("free"), Unavailable);
            assert_err!(other.force_unlock("free"), Unavailable);
        });
        assert_eq!(guard.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
        eventually_free(&servers[nodes / 2..]);
    }
}
