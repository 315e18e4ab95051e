//! Rows 56 and 57: who may log in, and what he may do.

use crate::locks_of;
use crate::server::Server;
use crate::threads::{LONG, SOON, WATCHED, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{Applied, Client, Error, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock, Result};
use std::time::{Duration, Instant};

/// What the documentation of the crate says that a user needs, without the keys.
const NEEDED: &str = "&redisson_lock__channel:* +eval +evalsha +time +hlen +pttl +hexists +hset +pexpire +del \
                      +publish +subscribe +unsubscribe +ping +select";

/// Gives the user these rules and no others, and the locks of a new client of his.
fn user(server: &Server, rules: &str) -> ReentrantLock {
    let words: Vec<_> = "ACL SETUSER app reset on >pw".split(' ').chain(rules.split_whitespace()).collect();
    server.ask::<String>(&words);
    locks_of(Client::builder(&server.url_as("app", "pw")).watchdog_timeout(WATCHED).poll_cap(ms(200)))
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
    assert!(!error.is_retryable() && took < SOON, "{error:?} took {took:?}");
    assert!(error.to_string().contains(advice), "{error}");
    error
}

#[test]
fn fault_56_a_wrong_password_is_refused_at_once_and_not_tried_again() {
    let server = Server::start();
    server.ask::<String>(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let locks = locks_of(Client::builder(&server.url_as("app", "wrong")));
    let before = connections(&server);
    let error = assert_refused(|| locks.lock("n"), "WRONGPASS", "check user and password");
    assert_eq!(error.applied(), Applied::No);
    assert_eq!(connections(&server), before + 1);
}

/// A holder and a waiter from whom `act` takes the right to go on: both are told in time, and nobody storms.
fn assert_cut_off(act: impl FnOnce(&Server), code: &str, advice: &str) {
    let server = Server::start();
    let locks = user(&server, &format!("~* {NEEDED}"));
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
    assert_cut_off(narrow, "NOPERM", "Which permissions");
}

/// The list of the documentation is enough for everything.
#[test]
fn fault_57_the_documented_permissions_are_enough() {
    let server = Server::start();
    let locks = user(&server, &format!("~shop:* {NEEDED}"));
    let waiting = locks_of(Client::builder(&server.url_as("app", "pw")).poll_cap(LONG));
    let guard = locks.request("shop:n").lease(LONG).guard().unwrap().unwrap();
    locks.lock("shop:n").unwrap();
    guard.extend(LONG).unwrap();
    assert!(locks.verify(&guard).unwrap() && locks.is_locked("shop:n").unwrap());
    assert!(locks.remaining_time_to_live("shop:n").unwrap().is_some());
    locks.unlock("shop:n").unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || waiting.lock("shop:n").is_ok() && waiting.unlock("shop:n").is_ok());
        eventually(LONG, "it is subscribed", || server.subscribers("redisson_lock__channel:{shop:n}") == 1);
        let unlocked = Instant::now();
        guard.unlock().unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < SOON, "woken after {:?}", when - unlocked);
    });
    locks.lock("shop:n").unwrap();
    assert!(locks.force_unlock("shop:n").unwrap());
    assert_err!(locks.unlock("shop:n"), Lost);
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
        ("resetchannels", Without::Nothing),
    ];
    for (rule, without) in missing {
        server.ask::<String>(&["SCRIPT", "FLUSH"]);
        let locks = user(&server, &format!("~* {NEEDED} {rule}"));
        let refused = |call: &dyn Fn() -> Result<()>| drop(assert_refused(call, "NOPERM", "Which permissions"));
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
    let locks = user(&server, &format!("~* {NEEDED} -pexpire -del"));
    assert_refused(|| locks.lock("n"), "NOPERM", "Which permissions");
    assert_eq!((server.pttl("n"), locks.hold_count("n")), (-1, 0));
    server.clear();
}

/// Each permission that only some verbs need is named by them.
#[test]
fn fault_57_what_a_lock_does_not_need_is_refused_where_it_is_needed() {
    let server = Server::start();
    let locks = user(&server, &format!("~* {NEEDED} -hlen"));
    locks.lock("n").unwrap();
    assert_refused(|| locks.is_locked("n"), "NOPERM", "Which permissions");
    locks.unlock("n").unwrap();
    assert_refused(|| locks.force_unlock("n"), "NOPERM", "Which permissions");
    let (locks, other) = (user(&server, &format!("~* {NEEDED} -subscribe -publish -ping")), server.locks());
    other.lock_with_lease("n", Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
        let unlocked = Instant::now();
        other.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked < ms(200) + SOON, "found after {:?}", when - unlocked);
    });
}
