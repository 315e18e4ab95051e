//! Row 129: the key of a held lock becomes something that is no lock, and the holder is the first to meet it.

use crate::harness::quorum;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, spawn_asleep};
use redlatch::{
    FencedLock, HandOff, Hold, HoldState, LossCause, MultiLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock,
};

const FOREIGN: &str = "precious";

fn replace(server: &Server, key: &str) {
    server.ask::<String>(&["SET", key, FOREIGN]);
}

/// That what replaced the lock is as it was; then it goes.
#[track_caller]
fn assert_untouched(server: &Server, key: &str) {
    assert_eq!(server.ask::<String>(&["GET", key]), FOREIGN);
    assert_eq!(server.pttl(key), -1);
    server.ask::<i64>(&["DEL", key]);
}

/// Every kind that has its key at one server. Renewals come too seldom to be the first to find out.
fn kinds(server: &Server) -> Vec<(&'static str, Box<dyn RedLock>)> {
    let reentrant = |hand_off| ReentrantLock::new(&server.builder().hand_off(hand_off).build().unwrap());
    let sides = ReadWriteLock::new(&server.builder().build().unwrap());
    vec![
        ("reentrant", Box::new(reentrant(HandOff::default()))),
        ("never passed on", Box::new(reentrant(HandOff::off()))),
        ("fenced", Box::new(FencedLock::new(&server.builder().build().unwrap()))),
        ("read", Box::new(sides.read().clone())),
        ("write", Box::new(sides.write().clone())),
    ]
}

#[track_caller]
fn assert_removed(hold: &Hold, kind: &str) {
    assert_eq!(hold.lost().recv_timeout(LONG).expect(kind).cause(), LossCause::Removed, "{kind}");
    assert_eq!(hold.state(), HoldState::Lost, "{kind}");
}

/// One use of a lock under the name `n`, whose key is replaced before it ends.
fn each_kind(act: impl Fn(&dyn RedLock, &Server, &str)) {
    let server = Server::start();
    for (kind, locks) in kinds(&server) {
        act(&*locks, &server, kind);
        assert_untouched(&server, "n");
        assert_eq!(locks.hold_count("n"), 0, "{kind}");
        drop(locks.guard("n").unwrap());
        server.clear();
    }
}

#[test]
fn fault_129_an_unlock_says_that_the_hold_is_lost() {
    each_kind(|locks, server, kind| {
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        replace(server, "n");
        assert_err!(locks.unlock("n"), Lost);
        assert_removed(&hold, kind);
    });
}

#[test]
fn fault_129_an_inner_level_says_that_the_hold_is_lost() {
    each_kind(|locks, server, kind| {
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        replace(server, "n");
        assert_err!(locks.lock("n"), Lost);
        assert_err!(locks.unlock("n"), Lost);
        assert_removed(&hold, kind);
        server.ask::<i64>(&["DEL", "n"]);
        locks.lock("n").unwrap();
        locks.lock("n").unwrap();
        replace(server, "n");
        // The server does not know how often somebody reads, and is not told when an inner level ends.
        let inner = locks.unlock("n");
        assert!(kind == "read" || matches!(inner, Err(redlatch::Error::Lost { .. })), "{kind}: {inner:?}");
        assert_err!(locks.unlock("n"), Lost);
    });
}

#[test]
fn fault_129_the_drop_of_a_guard_tells_the_loss() {
    each_kind(|locks, server, kind| {
        let guard = locks.guard("n").unwrap();
        let hold = guard.hold().clone();
        replace(server, "n");
        drop(guard);
        assert_removed(&hold, kind);
    });
}

#[test]
fn fault_129_work_that_was_not_protected_to_its_end_is_an_error() {
    each_kind(|locks, server, kind| {
        let mut ran = false;
        let error = locks.execute_in_lock("n", || {
            ran = true;
            replace(server, "n");
        });
        let error = error.expect_err(kind);
        assert!(ran && error.work_ran(), "{kind}: {error:?}");
    });
}

#[test]
fn fault_129_no_lock_is_granted_where_something_else_is() {
    each_kind(|locks, server, kind| {
        replace(server, "n");
        for error in [locks.lock("n"), locks.try_lock("n").map(drop), locks.execute_in_lock("n", || ())] {
            let error = error.expect_err(kind);
            assert!(
                matches!(&error, redlatch::Error::Refused { code, .. } if code == "WRONGTYPE"),
                "{kind}: {error:?}"
            );
            assert!(error.to_string().contains("\"n\"") && !error.to_string().contains(FOREIGN), "{kind}: {error}");
        }
    });
}

/// Where others ask for a lock it is released by the script that serves those who queue.
#[test]
fn fault_129_an_unlock_beside_others_who_ask_says_that_the_hold_is_lost() {
    each_kind(|locks, server, kind| {
        let others = server.locks();
        let theirs = others.guard("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || {
                locks.lock("n").unwrap();
                let commands = server.commands_during(|| {
                    replace(server, "n");
                    assert_err!(locks.unlock("n"), Lost);
                });
                let in_turn = commands.iter().any(|command| command.contains("redlatch_turn:"));
                assert_eq!(in_turn, ["reentrant", "fenced"].contains(&kind), "{kind}: {commands:#?}");
            });
            // On a late machine it may sleep before it has asked.
            let listens = |channel: &String| channel.contains("{n}");
            eventually(LONG, "it waits", || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).iter().any(listens));
            theirs.unlock().unwrap();
            finish(waiter);
        });
    });
}

#[test]
fn fault_129_a_group_frees_its_other_members_and_names_the_one_that_is_lost() {
    let server = Server::start();
    let locks = server.locks();
    let group = MultiLock::of(["a", "b", "c"].map(|name| (&locks, name)));
    for by_closure in [false, true] {
        let error = match by_closure {
            true => group.execute_in_lock(|| replace(&server, "b")).unwrap_err(),
            false => {
                let guard = group.guard().unwrap();
                replace(&server, "b");
                guard.unlock().unwrap_err()
            }
        };
        assert!(error.to_string().contains("\"b\""), "{error}");
        assert_eq!(error.work_ran(), by_closure, "{error:?}");
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["b"]);
        assert_untouched(&server, "b");
    }
}

#[test]
fn fault_129_a_node_of_a_quorum_whose_key_was_replaced_has_lost_it() {
    let servers = quorum::start(3);
    let locks = quorum::patient(&servers);
    for (replaced, is_lost) in [(1, false), (2, true)] {
        let guard = locks.guard("n").unwrap();
        quorum::eventually_confirmed(&locks, 3);
        servers[..replaced].iter().for_each(|server| replace(server, "n"));
        let unlocked = guard.unlock();
        assert_eq!(matches!(unlocked, Err(redlatch::Error::Lost { .. })), is_lost, "{unlocked:?}");
        assert_eq!(unlocked.is_ok(), !is_lost);
        servers[..replaced].iter().for_each(|server| assert_untouched(server, "n"));
        quorum::eventually_free(&servers);
        let ran = locks.execute_in_lock("n", || {
            quorum::eventually_confirmed(&locks, 3);
            servers[..replaced].iter().for_each(|server| replace(server, "n"));
        });
        assert_eq!(ran.as_ref().is_err_and(redlatch::Error::work_ran), is_lost, "{ran:?}");
        assert_eq!(ran.is_ok(), !is_lost);
        servers[..replaced].iter().for_each(|server| assert_untouched(server, "n"));
        quorum::eventually_free(&servers);
    }
}
