//! Rows 11, 20 and 21: a server of another role, kind or age than the client expects.

use crate::lua;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, eventually, finish, patiently, spawn_asleep, timed};
use crate::{LEASE, assert_given_up, assert_refused, assert_told, hasty, locks_of};
use redlatch::{HoldState, LossCause, MultiLock, RedLock, RedLockExt, ReentrantLock};
use std::collections::BTreeSet;
use std::time::Duration;

/// Where nobody listens: a replica of it keeps its data, and takes no writes.
const NOWHERE: [&str; 3] = ["REPLICAOF", "127.0.0.1", "1"];

/// The key got no end, as if the server's clock had stood: on a demoted server it is there for ever.
fn demote_with_endless_key(server: &Server, key: &str) {
    let mut connection = server.connection();
    redis::pipe().cmd("PERSIST").arg(key).cmd(NOWHERE[0]).arg(&NOWHERE[1..]).exec(&mut connection).unwrap();
}

#[test]
fn fault_11_validity_is_never_answered_from_a_read_of_a_demoted_server() {
    let server = Server::start();
    let locks = hasty(&server);
    let guard = patiently(|| locks.guard("n"));
    demote_with_endless_key(&server, "n");
    eventually(LONG, "it is suspect", || guard.state() == HoldState::Suspect);
    let (told, took) = timed(|| guard.lost().recv_timeout(LONG).unwrap());
    assert_eq!(told.cause(), LossCause::Expired);
    assert!(took <= LEASE + LATE, "lost after {took:?}");
    assert_eq!(server.ask::<i64>(&["HEXISTS", "n", guard.owner()]), 1, "a read still says that it is held");
    assert!(!guard.is_valid() && !locks.verify(&guard).unwrap());
    assert_err!(locks.lock("n"), Lost);
    server.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    assert_err!(guard.unlock(), Lost);
    drop(patiently(|| locks.guard("n")));
}

#[test]
fn fault_11_a_demoted_server_is_never_believed_when_asked() {
    let server = Server::start();
    let locks = server.locks();
    let guard = locks.guard("n").unwrap();
    server.ask::<String>(&NOWHERE);
    assert_told("READONLY", || locks.verify(&guard));
    assert_told("READONLY", || locks.try_lock("m"));
    assert_told("READONLY", || locks.try_lock("n"));
    assert_eq!(guard.count(), 1, "the inner level was not counted");
    assert!(guard.is_valid(), "its lease is not over");
    server.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
    assert!(locks.verify(&guard).unwrap());
}

#[test]
fn fault_11_a_wait_goes_on_when_a_demoted_server_is_promoted_again() {
    let server = Server::start();
    let (locks, hasty) = (server.locks(), hasty(&server));
    server.ask::<String>(&NOWHERE);
    assert_given_up(timed(|| hasty.lock("n")));
    assert_told("READONLY", || hasty.try_lock("n"));
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.lock("n").is_ok() && locks.unlock("n").is_ok());
        let asked_again = || locks.client().stats().reconnects >= 1;
        eventually(LONG, "it is refused, and asks on a new connection, which may lead to the new master", asked_again);
        server.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
        assert!(finish(waiter).0);
    });
}

const SLOTS: u16 = 16_384;

fn serve(server: &Server, slots: std::ops::Range<u16>) {
    let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
    let words: Vec<_> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
    server.ask::<String>(&words);
}

fn await_cluster(server: &Server) {
    let is_up = || server.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    eventually(LONG, "the cluster is up", is_up);
}

/// Two nodes, each with one half of the slots.
fn two_nodes() -> (Server, Server) {
    let (here, there) = (Server::start_in_cluster(), Server::start_in_cluster());
    serve(&here, 0..SLOTS / 2);
    serve(&there, SLOTS / 2..SLOTS);
    here.ask::<String>(&["CLUSTER", "MEET", "127.0.0.1", &there.port().to_string()]);
    await_cluster(&here);
    (here, there)
}

/// A name whose lock is in the first or second half of the slots.
fn name_in(server: &Server, half: u16) -> String {
    let slot = |name: &str| server.ask::<u16>(&["CLUSTER", "KEYSLOT", name]);
    (0..).map(|number| format!("n{number}")).find(|name| slot(name) / (SLOTS / 2) == half).unwrap()
}

/// Says that a cluster is not for this client, and that nothing was done.
#[track_caller]
fn assert_says_cluster<T: std::fmt::Debug>(result: redlatch::Result<T>, code: &str) {
    let error = assert_refused(result, code);
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[test]
fn fault_20_a_cluster_that_is_down_is_said_so_and_waited_for() {
    let server = Server::start_in_cluster();
    let (hasty, patient) = (hasty(&server), server.locks());
    assert_given_up(timed(|| hasty.lock("n")));
    assert_told("CLUSTERDOWN", || hasty.try_lock("n"));
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || patient.lock("n").is_ok() && patient.unlock("n").is_ok());
        assert!(!waiter.is_finished());
        serve(&server, 0..SLOTS);
        assert!(finish(waiter).0);
    });
}

#[test]
fn fault_20_a_lock_of_another_node_is_refused_at_once() {
    let (here, there) = two_nodes();
    let locks = here.locks();
    let name = name_in(&here, 1);
    let (result, took) = timed(|| locks.lock(&name));
    assert_says_cluster(result, "MOVED");
    assert!(took <= SOON, "took {took:?}");
    assert_says_cluster(locks.try_lock(&name), "MOVED");
    assert_says_cluster(locks.is_locked(&name), "MOVED");
    drop(locks.guard(&name_in(&here, 0)).unwrap());
    assert_eq!(there.ask::<i64>(&["DBSIZE"]), 0);
}

#[test]
fn fault_20_a_lock_on_its_way_to_another_node_is_refused_at_once() {
    let (here, there) = two_nodes();
    let locks = here.locks_watched(LEASE);
    let name = name_in(&here, 0);
    let names = [format!("{{{name}}}a"), format!("{{{name}}}b"), format!("{{{name}}}c")];
    let (kept, removed) = (locks.guard(&names[0]).unwrap(), locks.guard(&names[1]).unwrap());
    let slot = here.ask::<u16>(&["CLUSTER", "KEYSLOT", &name]).to_string();
    let other: String = there.ask(&["CLUSTER", "MYID"]);
    here.ask::<String>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &other]);
    assert_says_cluster(locks.lock(&names[2]), "ASK");
    here.ask::<i64>(&["DEL", &names[1]]);
    eventually(LONG, "ASK, or TRYAGAIN for both, makes it suspect", || removed.state() == HoldState::Suspect);
    here.ask::<String>(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    eventually(LONG, "it is held again", || kept.state() == HoldState::Held);
    assert_err!(removed.unlock(), Lost);
    kept.unlock().unwrap();
}

/// The same calls by the URL of a cluster.
#[test]
fn fault_20_by_its_own_url_a_cluster_is_followed() {
    let (here, there) = two_nodes();
    let url = here.tcp_url().replace("redis://", "redis+cluster://");
    let locks = ReentrantLock::connect(&url).unwrap();
    for half in [0, 1] {
        let name = name_in(&here, half);
        drop(locks.guard(&name).unwrap());
        assert!(locks.try_lock(&name).unwrap() && locks.is_locked(&name).unwrap());
        locks.unlock(&name).unwrap();
    }
    assert_eq!(there.ask::<i64>(&["DBSIZE"]), 0);
}

/// A batch of renewals is one command, which a cluster takes for one slot only.
#[test]
fn fault_20_locks_of_several_slots_are_renewed_one_by_one() {
    let server = Server::start_in_cluster();
    serve(&server, 0..SLOTS);
    await_cluster(&server);
    let locks = server.locks_watched(LEASE);
    let guards = ["a", "b", "c"].map(|name| locks.guard(name).unwrap());
    eventually(LONG, "each is renewed more than once", || locks.client().stats().renewals >= 9);
    assert_eq!(locks.client().stats().failed_renewals, 0);
    for guard in guards {
        guard.unlock().unwrap();
    }
}

/// Since when there is a command, by the server itself; up to Redis 6 it cannot tell, but it knows its own.
fn since(server: &Server, command: &str) -> String {
    if server.try_ask::<redis::Value>(&["COMMAND", "DOCS"]).is_err() {
        let known: Vec<redis::Value> = server.ask(&["COMMAND", "INFO", command]);
        assert_ne!(known, [redis::Value::Nil], "{command} is unknown");
        return "6.0.0".to_owned();
    }
    let docs: Vec<(String, Vec<redis::Value>)> = server.ask(&["COMMAND", "DOCS", command]);
    let (_, fields) = docs.into_iter().next().unwrap_or_else(|| panic!("{command} is unknown"));
    let texts = fields.into_iter().map(|field| redis::from_redis_value::<String>(field).unwrap_or_default());
    texts.skip_while(|text| text != "since").nth(1).unwrap()
}

#[track_caller]
fn assert_in_redis_6_0(server: &Server, command: &str) {
    let since = since(server, command);
    let version: Vec<u32> = since.split('.').map(|part| part.parse().unwrap()).collect();
    assert!(version < vec![6, 0, 1], "{command} came with {since}");
}

/// What else scripts say in calls: options that Redis 6.0 has, and texts of their own.
const WORDS: [&str; 19] = [
    "PX",
    "WITHSCORES",
    "BEFORE",
    "NUMSUB",
    "%.0f",
    "%.3f",
    "NX",
    "XX",
    "LIMIT",
    "-inf",
    "foreign",
    " given",
    "redlatch_ear:",
    "mode",
    "read",
    "write",
    "waiting",
    "turn",
    ":rwlock_timeout:",
];

/// The commands that a script runs, each of them without other options: those have ages of their own. The self-test is given the
/// commands of the others.
fn commands_of(script: &str) -> Vec<&str> {
    let code = script.lines().filter(|line| !line.trim_start().starts_with("--"));
    let calls = code.flat_map(|line| line.split("redis.call(").skip(1).chain(line.split("redis.pcall(").skip(1)));
    let calls = calls.map(|call| call.split(')').next().unwrap());
    calls
        .filter(|call| !call.starts_with("unpack("))
        .map(|call| {
            let (command, rest) = call.split_once(',').unwrap_or((call, ""));
            let mut words = rest.split('\'').skip(1).step_by(2);
            assert!(
                words.all(|word| WORDS.contains(&word) || !word.contains(char::is_alphabetic)),
                "an option: {call}"
            );
            command.trim_matches('\'')
        })
        .collect()
}

#[test]
fn fault_21_scripts_run_only_commands_of_redis_6_0() {
    let server = Server::start();
    let scripts = lua::files();
    let commands: BTreeSet<_> = scripts.iter().flat_map(|(_, script)| commands_of(script)).collect();
    println!("in scripts: {commands:?}");
    assert!(commands.len() >= 8, "the commands were not found: {commands:?}");
    for command in commands {
        assert_in_redis_6_0(&server, command);
    }
}

/// `CLIENT SETINFO` is newer, and may be refused: by this very server if it is older than 7.2.
#[test]
fn fault_21_only_commands_of_redis_6_0_are_sent() {
    let server = Server::start();
    let lines = server.commands_during(|| every_command(&server));
    let words = |line: &String| line.split('"').skip(1).step_by(2).take(2).map(str::to_owned).collect::<Vec<_>>();
    let sent: BTreeSet<_> = lines.iter().map(words).filter(|words| words[..] != ["client", "setinfo"]).collect();
    let sent: BTreeSet<_> = sent.into_iter().map(|words| words[0].clone()).collect();
    println!("on the wire: {sent:?}");
    for expected in ["evalsha", "eval", "subscribe", "pttl", "select", "time"] {
        assert!(sent.contains(expected), "{expected} was not seen: {sent:?}");
    }
    for command in sent {
        assert_in_redis_6_0(&server, &command);
    }
}

/// Everything a client does, on another database than the administrator's.
fn every_command(server: &Server) {
    let locks = ReentrantLock::connect(&format!("{}?db=1", server.url())).unwrap();
    let other = ReentrantLock::connect(&format!("{}?db=1", server.url())).unwrap();
    let guard = locks.guard("n").unwrap();
    assert!(locks.verify(&guard).unwrap() && locks.is_locked("n").unwrap());
    guard.extend(Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok());
        eventually(LONG, "it waits for news", || server.subscribers("redisson_lock__channel:{n}") == 1);
        guard.unlock().unwrap();
        assert!(finish(waiter).0);
    });
    locks.lock("n").unwrap();
    assert!(locks.force_unlock("n").unwrap());
    assert_err!(locks.unlock("n"), Lost);
    drop(MultiLock::of([(&locks, "a"), (&locks, "b")]).guard().unwrap());
    assert!(!locks_of(server.builder().strict(true)).try_lock("n").unwrap(), "a new server is quarantined");
    server.clear();
}
