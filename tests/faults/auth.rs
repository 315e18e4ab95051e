//! Rows 56 and 57: who may log in, and what he may do.

use crate::harness::permissions::documented;
use crate::harness::quorum::start;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, WATCHED, eventually, finish, ms, spawn_asleep, timed};
use crate::{LEASE, locks_of};
use redlatch::{Applied, Client, Error, HoldState, LossCause, MultiLock, Naming, QuorumLock};
use redlatch::{RedLock, RedLockExt, ReentrantLock, Result};
use std::time::{Duration, Instant};

/// Makes the user `app` by pasting what the documentation says, and then gives and takes with these rules. The URL is his.
fn paste(server: &Server, rules: &str) -> String {
    server.ask::<String>(&documented());
    let words: Vec<_> = ["ACL", "SETUSER", "app"].into_iter().chain(rules.split_whitespace()).collect();
    server.ask::<String>(&words);
    server.url_as("app", "secret")
}

/// The locks of a new client of that user.
fn user(server: &Server, rules: &str) -> ReentrantLock {
    locks_of(Client::builder(&paste(server, rules)).watchdog_timeout(WATCHED).poll_cap(ms(200)))
}

/// How often anyone connected.
fn connections(server: &Server) -> usize {
    let stats: String = server.ask(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().parse().unwrap()
}

/// At once, for good, with the code, and with what to do.
fn assert_refused<T: std::fmt::Debug>(call: impl FnOnce() -> Result<T>, expected: &str, advice: &str) -> Error {
    let (result, took) = timed(call);
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == expected), "{error:?}");
    assert!(!error.is_retryable() && took <= SOON, "{error:?} took {took:?}");
    assert!(error.to_string().contains(advice), "{error}");
    error
}

#[test]
fn fault_56_a_wrong_password_is_refused_at_once_and_not_tried_again() {
    let server = Server::start();
    server.let_in("app", "pw", "~* &* +@all");
    let locks = locks_of(Client::builder(&server.url_as("app", "wrong")));
    let before = connections(&server);
    let error = assert_refused(|| locks.lock("n"), "WRONGPASS", "check user and password");
    assert_eq!(error.applied(), Applied::No);
    assert_eq!(connections(&server), before + 1);
}

/// A holder and a waiter from whom `act` takes the right to go on: both are told in time, and nobody storms.
fn assert_cut_off(act: impl FnOnce(&Server), code: &str, advice: &str) {
    let server = Server::start();
    let locks = user(&server, "~*");
    let admin = server.locks();
    let held = locks.guard("n").unwrap();
    let taken = admin.guard("other").unwrap();
    let lost = held.lost();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("other"));
        eventually(LONG, "it is subscribed", || server.subscribers("redisson_lock__channel:{other}") == 1);
        let (start, before) = (Instant::now(), connections(&server));
        act(&server);
        let mut suspect = false;
        eventually(LONG, "it is lost", || {
            suspect |= held.state() == HoldState::Suspect;
            held.state() == HoldState::Lost
        });
        assert!(suspect, "it was never suspect");
        assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
        let (result, _) = finish(waiter);
        assert_refused(|| result, code, advice);
        assert_refused(|| locks.lock("n2"), code, advice);
        let rate = (connections(&server) - before) as f64 / start.elapsed().as_secs_f64();
        assert!(rate < 30.0, "{rate} connections a second");
    });
    assert!(taken.is_valid());
    assert_err!(held.unlock(), Lost);
    eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
}

#[test]
fn fault_56_a_user_that_is_deleted_loses_what_it_holds() {
    let delete = |server: &Server| assert_eq!(server.ask::<i64>(&["ACL", "DELUSER", "app"]), 1);
    assert_cut_off(delete, "WRONGPASS", "check user and password");
}

#[test]
fn fault_56_a_user_that_is_disabled_loses_what_it_holds() {
    let disable = |server: &Server| {
        server.ask::<String>(&["ACL", "SETUSER", "app", "off"]);
        server.ask::<i64>(&["CLIENT", "KILL", "USER", "app"]);
    };
    assert_cut_off(disable, "WRONGPASS", "check user and password");
}

#[test]
fn fault_56_a_user_whose_rules_are_narrowed_loses_what_it_holds() {
    let narrow = |server: &Server| drop(server.ask::<String>(&["ACL", "SETUSER", "app", "-evalsha", "-eval"]));
    assert_cut_off(narrow, "NOPERM", "docs/permissions.md");
}

/// What is documented is enough for everything.
#[test]
fn fault_57_the_documented_permissions_are_enough() {
    let server = Server::start();
    let locks = locks_of(Client::builder(&paste(&server, "")).watchdog_timeout(LEASE));
    let guard = locks.request("shop:n").lease(LONG).guard().unwrap().unwrap();
    locks.lock("shop:n").unwrap();
    guard.extend(LONG).unwrap();
    assert!(locks.verify(&guard).unwrap() && locks.is_locked("shop:n").unwrap());
    assert!(locks.remaining_time_to_live("shop:n").unwrap().is_some());
    locks.unlock("shop:n").unwrap();
    guard.unlock().unwrap();
    locks.lock("shop:n").unwrap();
    let renewals = locks.client().stats().renewals;
    eventually(LONG, "it is renewed", || locks.client().stats().renewals > renewals);
    assert!(locks.force_unlock("shop:n").unwrap());
    assert_err!(locks.unlock("shop:n"), Lost);
    MultiLock::of([(&locks, "shop:a"), (&locks, "shop:b")]).guard().unwrap().unlock().unwrap();
}

/// That a waiter who never polls is woken by the message on this channel.
fn assert_woken(server: &Server, locks: &ReentrantLock, waiting: &ReentrantLock, channel: &str) {
    let guard = locks.guard("shop:n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.lock("shop:n").is_ok() && waiting.unlock("shop:n").is_ok());
        eventually(LONG, "it is subscribed", || server.subscribers(channel) == 1);
        let unlocked = Mark::now();
        guard.unlock().unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
    });
}

#[test]
fn fault_57_the_documented_channels_are_enough() {
    let server = Server::start();
    for (rules, naming, channel) in
        [("", Naming::Redisson, "redisson_lock__channel:{shop:n}"), (JEDIS, Naming::Jedis, "__red__lock:shop:n")]
    {
        let url = paste(&server, if server.version() < (6, 2) { "" } else { rules });
        let client = || locks_of(Client::builder(&url).naming(naming).poll_cap(LONG));
        assert_woken(&server, &client(), &client(), channel);
    }
}

/// In place of Redisson's channels.
const JEDIS: &str = "resetchannels &__red__lock:*";

#[test]
fn fault_57_the_documented_permissions_are_enough_for_a_strict_client() {
    let server = Server::start();
    let url = paste(&server, "+get +set +info");
    let locks = locks_of(Client::builder(&url).key_prefix("shop:").watchdog_timeout(WATCHED).strict(true));
    assert!(locks.try_lock_for("n", LONG).unwrap());
    locks.unlock("n").unwrap();
    server.ask::<i64>(&["DEL", "shop:redlatch:epoch"]);
}

/// Each node asks its user for the same.
#[test]
fn fault_57_the_documented_permissions_are_enough_for_a_quorum() {
    let servers = start(3);
    let locks =
        QuorumLock::builder(servers.iter().map(|server| paste(server, ""))).node_timeout(ms(1_000)).build().unwrap();
    let guard = locks.guard("shop:n").unwrap();
    eventually(LONG, "every node confirms it", || guard.confirmed_by() == Some((3, 3)));
    assert!(locks.verify(&guard).unwrap());
    guard.unlock().unwrap();
}

#[test]
fn fault_57_a_client_says_its_name_where_it_may() {
    let server = Server::start();
    let named = |rules| {
        let locks = user(&server, &format!("~* {rules}"));
        drop(locks.guard("n").unwrap());
        server.ask::<String>(&["CLIENT", "LIST"]).contains("lib-name=redlatch")
    };
    // Older servers know no such names, nor the rule for them.
    let known = server.version() >= (7, 2);
    assert_eq!(named(""), known);
    assert!(!known || !named("-client|setinfo"));
}

/// What becomes of a lock and its unlock without one permission.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Without {
    Lock,
    Unlock,
    Nothing,
}

#[test]
fn fault_57_a_missing_permission_is_named_and_leaves_nothing() {
    let server = Server::start();
    let missing = [
        ("-eval", Without::Lock),
        ("-evalsha", Without::Lock),
        ("-time", Without::Lock),
        ("-pttl", Without::Lock),
        ("-hset", Without::Lock),
        ("-pexpire", Without::Lock),
        ("resetkeys ~elsewhere:*", Without::Lock),
        ("-hexists", Without::Unlock),
        ("-del", Without::Unlock),
        ("-publish", Without::Nothing),
        ("-hlen", Without::Nothing),
        ("-subscribe", Without::Nothing),
        ("-unsubscribe", Without::Nothing),
        ("-ping", Without::Nothing),
        ("-select", Without::Nothing),
        (server.no_channels(), Without::Nothing),
    ];
    for (rule, without) in missing {
        server.ask::<String>(&["SCRIPT", "FLUSH"]);
        let locks = user(&server, &format!("~* {rule}"));
        let refused = |call: &dyn Fn() -> Result<()>| drop(assert_refused(call, "NOPERM", "docs/permissions.md"));
        if without == Without::Lock {
            refused(&|| locks.lock("n"));
        } else {
            locks.lock_with_lease("n", ms(500)).unwrap();
            match without {
                Without::Unlock => refused(&|| locks.unlock("n")),
                _ => locks.unlock("n").unwrap(),
            }
        }
        assert_eq!(locks.hold_count("n"), 0, "{rule}");
        assert_ne!(server.pttl("n"), -1, "{rule}: a lock that never ends");
        eventually(LONG, "the key ends with its lease", || server.pttl("n") == -2);
    }
}

/// The documented exception: a lock that gets no lease cannot be taken back either.
#[test]
fn fault_57_without_pexpire_and_del_a_lock_never_ends() {
    let server = Server::start();
    let locks = user(&server, "~* -pexpire -del");
    assert_refused(|| locks.lock("n"), "NOPERM", "docs/permissions.md");
    assert_eq!((server.pttl("n"), locks.hold_count("n")), (-1, 0));
    server.clear();
}

/// Each permission that only some verbs need is named by them.
#[test]
fn fault_57_what_a_lock_does_not_need_is_refused_where_it_is_needed() {
    let server = Server::start();
    let locks = user(&server, "~* -hlen");
    locks.lock("n").unwrap();
    assert_refused(|| locks.is_locked("n"), "NOPERM", "docs/permissions.md");
    locks.unlock("n").unwrap();
    assert_refused(|| locks.force_unlock("n"), "NOPERM", "docs/permissions.md");
    let (locks, other) = (user(&server, "~* -subscribe -publish -ping"), server.locks());
    other.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
        let unlocked = Mark::now();
        other.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= ms(200) + SOON, "found after {:?}", when - unlocked);
    });
}
