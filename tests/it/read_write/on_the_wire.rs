//! What is on the server, and what the scripts say to copies that come again, late or half.

use super::{ReadWriteLock, locks, two};
use crate::server::Server;
use crate::threads::{LONG, WATCHED, elsewhere, eventually, ms};
use redis::Value;
use redlatch::{HoldState, RedLock, RedLockExt};
use std::collections::BTreeMap;

/// A moment that no test sees.
const LATE: &str = "9007199254740991";

fn fields(server: &Server) -> BTreeMap<String, String> {
    server.ask(&["HGETALL", "n"])
}

#[test]
fn it_is_there_as_redisson_has_it() {
    let server = Server::start();
    let locks = locks(&server);
    let read = locks.read().guard("n").unwrap();
    locks.read().lock("n").unwrap();
    let owner = read.owner().to_owned();
    let timeout = format!("{{n}}:{owner}:rwlock_timeout:1");
    let expected = BTreeMap::from([("mode".to_owned(), "read".to_owned()), (owner, "1".to_owned())]);
    assert_eq!(fields(&server), expected, "a read hold counts once, however deep it is");
    assert_eq!(server.ask::<String>(&["GET", &timeout]), "1");
    assert!((25_000..=30_000).contains(&server.pttl("n")) && (25_000..=30_000).contains(&server.pttl(&timeout)));
    locks.read().unlock("n").unwrap();
    read.unlock().unwrap();
    assert_eq!(server.leftovers(), [""; 0]);
    let write = locks.write().guard("n").unwrap();
    let owner = format!("{}:write", write.owner());
    assert_eq!(fields(&server), BTreeMap::from([("mode".into(), "write".into()), (owner, "1".into())]));
    write.unlock().unwrap();
}

#[test]
fn braces_of_a_name_are_its_slot() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.read().guard("{a}b").unwrap();
    let timeout = format!("{{a}}b:{}:rwlock_timeout:1", guard.owner());
    assert_eq!(server.ask::<i64>(&["EXISTS", &timeout]), 1);
    guard.unlock().unwrap();
}

#[test]
fn alone_each_side_costs_two_commands() {
    let server = Server::start();
    let locks = locks(&server);
    for side in [locks.read() as &dyn RedLock, locks.write()] {
        drop(side.guard("n").unwrap());
        let commands = server.commands_during(|| drop(side.guard("n").unwrap()));
        assert_eq!(commands.len(), 2, "{commands:?}");
    }
}

/// A script of the kind as a server gets it.
fn call(server: &Server, script: &str, keys: &[&str], args: &[&str]) -> Value {
    let script = redis::Script::new(&crate::lua::script(script));
    let mut call = script.prepare_invoke();
    let said = call.key(keys).arg(args).invoke(&mut server.connection()).unwrap();
    // What releases has no deadline, and the first of its arguments may be what it says.
    if args[0] == LATE { crate::lua::unnamed(said, LATE) } else { said }
}

fn timeout(owner: &str) -> String {
    format!("{{n}}:{owner}:rwlock_timeout:1")
}

fn read(server: &Server, owner: &str, lease: &str, proof: &str) -> Value {
    let (keys, advice) = (["n", &timeout(owner)], ["", "", "", "0", "0"]);
    call(server, "reads/acquire", &keys, &[&[LATE, lease, owner, proof], &advice[..]].concat())
}

fn write(server: &Server, owner: &str, lease: &str) -> Value {
    call(server, "writes/acquire", &["n"], &[LATE, lease, &format!("{owner}:write"), "1", "", "", "", "0", "0"])
}

/// What a script for several locks says of the first.
fn first(reply: Value) -> Value {
    let Value::Array(replies) = reply else { panic!("{reply:?} is of no lock") };
    replies.into_iter().next().unwrap()
}

fn release_read(server: &Server, owner: &str) -> Value {
    let args = ["1", "10", "0", owner, "redisson_rwlock:{n}", "{n}:", "", "", "", "", "", "", ""];
    first(call(server, "reads/release", &["n", &timeout(owner)], &args))
}

fn release_write(server: &Server, owner: &str) -> Value {
    let args = ["1", "10", "0", "0", &format!("{owner}:write"), "redisson_rwlock:{n}", "{n}:", "", "", ""];
    first(call(server, "writes/release", &["n"], &args))
}

const DONE: Value = Value::Nil;
const NOT_HELD: Value = Value::Int(0);
const UNHEARD: Value = Value::Int(1);

#[test]
fn copies_that_come_again_change_nothing() {
    let server = Server::start();
    assert_eq!([(); 2].map(|()| read(&server, "a:1:1", "60000", "")), [DONE, DONE]);
    assert_eq!(server.ask::<i64>(&["HGET", "n", "a:1:1"]), 1);
    assert_eq!(read(&server, "a:1:1", "10", ""), DONE);
    assert!(server.pttl("n") > 50_000 && server.pttl(&timeout("a:1:1")) > 50_000, "shortened by a copy");
    assert_eq!([(); 2].map(|()| release_read(&server, "a:1:1")), [UNHEARD, NOT_HELD]);
    assert_eq!([(); 2].map(|()| write(&server, "a:1:2", "60000")), [DONE, DONE]);
    assert_eq!([(); 2].map(|()| release_write(&server, "a:1:2")), [UNHEARD, NOT_HELD]);
}

/// A copy that shows a write hold that is over is a reader as any other.
#[test]
fn a_proof_is_good_for_as_long_as_the_write_hold_is_there() {
    let server = Server::start();
    write(&server, "a:1:1", "60000");
    assert_eq!(read(&server, "a:1:2", "60000", "a:1:1:write"), DONE);
    assert!(matches!(read(&server, "b:1:1", "60000", "b:1:9:write"), Value::Int(_)));
    release_write(&server, "a:1:1");
    release_read(&server, "a:1:2");
    write(&server, "b:1:1", "60000");
    assert!(matches!(read(&server, "a:1:2", "60000", "a:1:1:write"), Value::Int(_)), "another one writes");
    release_write(&server, "b:1:1");
}

#[test]
fn what_comes_too_late_does_nothing() {
    let server = Server::start();
    for (script, keys) in [("reads/acquire", 2), ("writes/acquire", 1), ("reads/renew", 2), ("reads/timeout", 1)] {
        let text = crate::lua::script(script);
        let script = redis::Script::new(&text);
        let mut call = script.prepare_invoke();
        call.key(&["n", "m"][..keys]).arg(&["1", "60000", "a:1:1", "", "", "", "0"]);
        let error = call.invoke::<Value>(&mut server.connection()).unwrap_err();
        assert_eq!(error.code(), Some("STALE"), "{error}");
    }
    assert_eq!(server.leftovers(), [""; 0]);
}

/// As an eviction does it. PEXPIRE of what is not there says nothing of it.
#[test]
fn a_reader_without_its_time_out_is_lost() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let guard = locks.read().guard("n").unwrap();
    assert!(locks.read().verify(guard.hold()).unwrap());
    assert_eq!(server.ask::<i64>(&["DEL", &timeout(guard.owner())]), 1);
    assert!(!locks.read().verify(guard.hold()).unwrap());
    assert_eq!(guard.state(), HoldState::Lost);
    other.read().guard("n").unwrap().unlock().unwrap();
    assert!(other.write().try_lock("n").unwrap(), "and is in nobody's way");
    other.write().unlock("n").unwrap();
    assert_err!(guard.unlock(), Lost);
}

/// Else the lock would outlive its readers by the lease of one that is none any more.
#[test]
fn a_reader_without_its_time_out_does_not_prolong_the_lock() {
    let server = Server::start();
    let (gone, there) = (timeout("a:1:1"), timeout("b:1:1"));
    let renew =
        |keys: &[&str], owners: &[&str]| call(&server, "reads/renew", keys, &[&[LATE, "60000"], owners].concat());
    ["a:1:1", "b:1:1"].iter().for_each(|owner| assert_eq!(read(&server, owner, "5000", ""), DONE));
    assert_eq!(server.ask::<i64>(&["DEL", &gone]), 1);
    let said = |said: &[i64]| Value::Array(said.iter().copied().map(Value::Int).collect());
    assert_eq!(renew(&["n", &gone], &["a:1:1", ""]), said(&[0, 0]));
    assert!(server.pttl("n") <= 5_000, "{}", server.pttl("n"));
    assert_eq!(renew(&["n", &gone, "n", &there], &["a:1:1", "", "b:1:1", ""]), said(&[0, 0, 1, 1]));
    assert!(server.pttl("n") > 50_000 && server.pttl(&there) > 50_000);
    release_read(&server, "b:1:1");
}

#[test]
fn a_renewal_tells_of_a_time_out_that_is_gone() {
    let server = Server::start();
    let locks = ReadWriteLock::new(&server.builder().watchdog_timeout(WATCHED).build().unwrap());
    let [guard, other] = ["n", "m"].map(|name| locks.read().guard(name).unwrap());
    server.ask::<i64>(&["DEL", &timeout(guard.owner())]);
    eventually(LONG, "it is lost", || guard.state() == HoldState::Lost);
    assert!(other.is_valid(), "the one beside it is renewed");
    assert_err!(guard.unlock(), Lost);
    other.unlock().unwrap();
}

/// As an administrator has it who lets an incident be over when he says so.
#[test]
fn a_lock_without_an_end_is_kept() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let guard = locks.read().guard("n").unwrap();
    server.ask::<i64>(&["PERSIST", "n"]);
    other.read().guard("n").unwrap().unlock().unwrap();
    assert!(elsewhere(|| !other.write().try_lock("n").unwrap()) && guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn a_full_server_takes_holds_back() {
    let server = Server::start();
    let locks = ReadWriteLock::new(&server.builder().outage_budget(ms(200)).build().unwrap());
    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    let other = locks.read().guard("m").unwrap();
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_err!(locks.read().lock("o"), Refused);
    assert_err!(locks.write().lock("o"), Refused);
    write.unlock().unwrap();
    assert_eq!(server.ask::<String>(&["HGET", "n", "mode"]), "read");
    read.unlock().unwrap();
    other.unlock().unwrap();
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
}
