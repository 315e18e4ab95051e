//! Rows 155 to 157, the corners: inner levels, shared holds, nodes that never granted, and what is left of a release that took long.

use crate::doubts::rounds;
use crate::doubts_strays::change_next;
use crate::proxy::{Flow, Proxy, Step, pass};
use crate::server::Server;
use crate::threads::{LONG, SOON, elsewhere, eventually, finish, ms, timed};
use crate::{MINUTE, locks_of};
use harness::quorum;
use redlatch::{Client, LossCause, MultiLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock};
use std::thread::scope;
use std::time::Duration;

/// The next script is executed, and the connection is closed before its answer.
fn lose_next_answer(proxy: &Proxy) {
    change_next(proxy, "EVAL", |_| vec![Step::Cut]);
}

/// Scripts that are known, and a proxy.
fn warmed(server: &Server) -> (Proxy, ReentrantLock) {
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(MINUTE));
    [(); 2].iter().for_each(|()| locks.lock("n").unwrap());
    [(); 2].iter().for_each(|()| locks.unlock("n").unwrap());
    (proxy, locks)
}

/// It may have freed nothing but its level.
#[test]
fn fault_155_an_inner_release_without_an_answer_explains_no_loss() {
    let server = Server::start();
    let (proxy, locks) = warmed(&server);
    for _ in 0..rounds(1) {
        [(); 2].iter().for_each(|()| locks.lock("n").unwrap());
        lose_next_answer(&proxy);
        locks.unlock("n").unwrap();
        proxy.clear();
        let _: i64 = server.ask(&["DEL", "n"]);
        assert_err!(locks.unlock("n"), Lost);
    }
}

/// The server comes back with its data, and confirms a hold by an inner level.
#[test]
fn fault_155_an_inner_level_confirms_a_hold_at_a_new_server() {
    let mut server = Server::start_with_data();
    let (proxy, locks) = warmed(&server);
    for _ in 0..rounds(1) {
        locks.lock("n").unwrap();
        server.kill();
        server.restart();
        locks.lock("n").unwrap();
        locks.unlock("n").unwrap();
        lose_next_answer(&proxy);
        assert!(locks.unlock("n").is_ok());
        proxy.clear();
        assert_eq!(locks.client().stats().lost, 0);
    }
}

/// By the lock's queue, of which the first waiter has the lock then.
#[test]
fn fault_155_a_release_that_gave_the_lock_away_is_no_loss() {
    let server = Server::start();
    let (proxy, locks) = warmed(&server);
    let other = server.locks();
    // In the first turn the clients get to know each other.
    for turn in 0..=2 * rounds(1) {
        let guard = locks.guard("n").unwrap();
        scope(|scope| {
            let waiting = scope.spawn(|| other.lock("n").and_then(|()| other.unlock("n")));
            eventually(LONG, "it is queued", || server.ask::<i64>(&["ZCARD", "redlatch_queue:{n}"]) == 1);
            if turn > 0 {
                lose_next_answer(&proxy);
            }
            let ended = if turn % 2 == 0 {
                guard.unlock()
            } else {
                drop(guard);
                Ok(())
            };
            finish(waiting).unwrap();
            assert!(ended.is_ok() && locks.client().stats().lost == 0, "turn {turn}: {ended:?}");
        });
        proxy.clear();
    }
    std::thread::sleep(ms(100));
    assert_eq!(locks.client().stats().lost, 0);
}

/// A thread's group has a read hold that its sibling shares.
#[test]
fn fault_156_a_group_leaves_a_read_hold_to_those_who_share_it() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let (locks, read) = (ReadWriteLock::new(&client), ReadWriteLock::new(&client).read().clone());
    let plain = ReentrantLock::new(&client);
    let mine = read.guard("r").unwrap();
    elsewhere(|| {
        let members: [(&dyn RedLock, &str); 2] = [(&plain, "n"), (&read, "r")];
        let group = MultiLock::of(members);
        group.lock().unwrap();
        group.unlock().unwrap();
    });
    assert!(mine.is_valid() && read.verify(&mine).unwrap());
    assert!(!elsewhere(|| locks.write().try_lock("r").unwrap()));
    mine.unlock().unwrap();
}

/// Two nodes of five are another's. They say "not here", as before.
#[test]
fn fault_156_nodes_that_never_granted_have_no_vote_in_a_release() {
    let servers = quorum::start(5);
    let locks = quorum::connect(&servers);
    for _ in 0..rounds(1) {
        servers[..2].iter().for_each(|server| quorum::occupy(server, MINUTE));
        locks.lock("n").unwrap();
        quorum::eventually_confirmed(&locks, 3);
        servers[4].freeze();
        let (unlocked, took) = timed(|| locks.unlock("n"));
        servers[4].thaw();
        assert!(unlocked.is_ok() && took <= ms(1_000) + 2 * SOON, "{unlocked:?} after {took:?}");
        servers[..2].iter().for_each(quorum::vacate);
        eventually(LONG, "the last one is freed", || !quorum::has_key(&servers[4]));
    }
}

/// The server says nothing to the end of the lease, and others of the process go on when nobody believes in the hold any more.
#[test]
fn fault_157_a_release_that_outlasts_its_lease_is_counted_once() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(crate::LEASE));
    elsewhere(|| {
        locks.lock_with_lease("n", ms(300)).unwrap();
        proxy.set(|_, flow, data| if flow == Flow::Request { vec![] } else { pass(data) });
        assert!(locks.unlock("n").is_ok());
        proxy.clear();
        assert_eq!(locks.client().stats().holds, 0);
    });
    // The end of a thread that still holds is the end of its renewals.
    let lost = elsewhere(|| {
        locks.lock_with_lease("n", ms(300)).unwrap();
        proxy.set(|_, flow, data| if flow == Flow::Request { vec![] } else { pass(data) });
        assert!(locks.unlock("n").is_ok());
        proxy.clear();
        locks.lock("m").unwrap();
        locks.hold("m").unwrap().lost()
    });
    assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    eventually(LONG, "its lease ends", || server.pttl("m") == -2);
    assert_eq!(locks.client().stats().holds, 0);
}

/// Nobody ever hears what became of it: the channel says so.
#[test]
fn fault_157_a_release_that_is_given_up_leaves_no_channel_that_hangs() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).response_timeout(ms(100)).outage_budget(ms(200)));
    locks.lock_with_lease("n", Duration::from_secs(2)).unwrap();
    let hold = locks.hold("n").unwrap();
    let lost = hold.lost();
    proxy.set(|_, flow, data| if flow == Flow::Request { vec![] } else { pass(data) });
    assert!(locks.unlock("n").is_err());
    let (told, took) = timed(|| lost.recv_timeout(LONG));
    assert!(told.is_err() && took < LONG, "{told:?} after {took:?}");
    proxy.clear();
    eventually(LONG, "its lease ends", || server.pttl("n") == -2);
}
