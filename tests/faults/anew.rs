//! Rows 120 to 122: sentinels whose count of epochs begins anew.

use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms, spawn_asleep};
use crate::{LEASE, locks_of, patient};
use harness::oracle::Oracle;
use harness::sentinel::{Group, NAME};
use redlatch::{Client, Error, RedLock, RedLockExt, ReentrantLock};

/// A group whose first master was replaced, and which node is the master now.
fn replaced_once() -> (Group, usize) {
    let group = Group::start();
    group.fail_over(0);
    let master = group.settled();
    (group, master)
}

/// Waits until a client that is asked takes its locks at this node.
#[track_caller]
fn eventually_at(group: &Group, node: usize, locks: &ReentrantLock) {
    eventually(LONG, "the new master is followed", || {
        locks.guard("asked").is_ok_and(|_guard| group.nodes[node].pttl("asked") > 0)
    });
}

/// The clients ask for nothing meanwhile. What was held is held on at the new master, and the next failover is followed as ever.
#[test]
fn fault_120_a_master_that_is_moved_by_hand_and_monitored_anew_is_followed() {
    let (group, old) = replaced_once();
    let [holder, waiter] = [(); 2].map(|()| patient(group.builder()));
    let new = 3 - old;
    std::thread::scope(|scope| {
        let kept = holder.guard("kept").unwrap();
        group.replicated(old);
        let waiting = spawn_asleep(scope, || waiter.guard("kept").map(drop));
        let listens = |node: usize| group.nodes[node].subscribers("redisson_lock__channel:{kept}") == 1;
        eventually(LONG, "it listens", || listens(old));
        group.set_anew(new);
        eventually(LONG, "all have left", || group.nodes[old].clients() == 0);
        eventually(SOON, "it listens there", || listens(new));
        assert!(holder.verify(&kept).unwrap());
        let released = Mark::now();
        kept.unlock().unwrap();
        let (served, when) = finish(waiting);
        assert!(served.is_ok() && when - released <= 2 * SOON, "{served:?} after {:?}", when - released);
    });
    assert_eq!(group.settled(), new);
    group.fail_over(1);
    eventually_at(&group, group.replaced(new), &holder);
}

#[test]
fn fault_120_strict_clients_follow_it_too() {
    let (group, old) = replaced_once();
    let locks = locks_of(group.builder().watchdog_timeout(LEASE).outage_budget(LONG).strict(true));
    eventually_at(&group, old, &locks);
    let new = 3 - old;
    let moved = Mark::now();
    group.set_anew(new);
    eventually_at(&group, new, &locks);
    assert!(moved.elapsed() >= LEASE, "it may have forgotten what the old master granted");
}

/// It says nothing any more, and may be cut off from this client alone. It is left when it comes back as a replica.
#[test]
fn fault_121_a_master_that_is_gone_when_another_is_monitored_anew_is_left_by_its_own_word() {
    let (mut group, old) = replaced_once();
    let locks = locks_of(group.builder().outage_budget(ms(500)));
    eventually_at(&group, old, &locks);
    let new = 3 - old;
    group.nodes[old].kill();
    group.set_anew(new);
    for _ in 0..5 {
        let error = locks.lock("n").unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    assert_eq!(group.nodes[new].pttl("n"), -2);
    let known = group.nodes[new].known_as();
    group.nodes[old].come_back(known);
    eventually_at(&group, new, &locks);
}

/// The other way out: a failover, whose epoch is above all that these sentinels ever counted.
#[test]
fn fault_121_or_by_the_next_failover() {
    let (mut group, old) = replaced_once();
    let locks = locks_of(group.builder().outage_budget(ms(500)));
    eventually_at(&group, old, &locks);
    let new = 3 - old;
    group.nodes[old].kill();
    group.set_anew(new);
    assert!(locks.lock("n").unwrap_err().is_retryable());
    group.fail_over(0);
    eventually_at(&group, 0, &locks);
}

/// Sentinels that a test speaks for, and the client that asks all of them.
fn oracles(master: &Server, epoch: u64) -> ([Oracle; 3], ReentrantLock) {
    let oracles = [(); 3].map(|()| Oracle::naming(master.port(), epoch));
    let addresses: Vec<_> = oracles.iter().map(Oracle::address).collect();
    let url = format!("redis+sentinel://{}/{NAME}", addresses.join(","));
    let locks = locks_of(Client::builder(&url).outage_budget(ms(500)));
    drop(locks.guard("n").unwrap());
    (oracles, locks)
}

/// All name an old master, which says that it is one; so does the new one. Nobody goes back. When the new one has given way, one of
/// three sentinels is not enough, and two are.
#[test]
fn fault_122_a_lower_epoch_counts_for_a_majority_if_the_present_master_gives_way() {
    let [old, new] = [(); 2].map(|()| Server::start_on_tcp());
    let (oracles, locks) = oracles(&new, 2);
    oracles.iter().for_each(|oracle| oracle.name(old.port(), 1));
    oracles.iter().for_each(Oracle::heard);
    {
        let _guard = locks.guard("n").unwrap();
        assert!(new.pttl("n") > 0 && old.pttl("n") == -2);
    }
    oracles[1..].iter().for_each(|oracle| oracle.name(new.port(), 2));
    oracles.iter().for_each(Oracle::heard);
    let _: String = new.ask(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    for _ in 0..3 {
        let error = locks.lock("m").unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "READONLY"), "{error}");
        assert_eq!(old.pttl("m"), -2);
    }
    oracles[1].name(old.port(), 1);
    eventually(LONG, "two of three are a majority", || locks.guard("m").is_ok_and(|_guard| old.pttl("m") > 0));
    let _: String = new.ask(&["REPLICAOF", "NO", "ONE"]);
    new.clear();
}

/// Their files were lost, so they count from 0 again, and the next failover has an epoch that is lower than that of before.
#[test]
fn fault_122_a_count_that_begins_anew_is_taken_from_a_majority() {
    let [mut first, second] = [(); 2].map(|()| Server::start_on_tcp());
    let (oracles, locks) = oracles(&first, 5);
    let at = |server: &Server| locks.guard("n").is_ok_and(|_guard| server.pttl("n") > 0);
    oracles.iter().for_each(|oracle| oracle.name(first.port(), 0));
    oracles.iter().for_each(Oracle::heard);
    oracles[0].name(second.port(), 1);
    oracles[0].heard();
    assert!(at(&first), "one alone, which may be one that was away");
    first.kill();
    oracles[1].name(second.port(), 1);
    eventually(LONG, "the new master is followed", || at(&second));
    first.restart();
}
