//! The scripts of groups.

use super::{PAST, ahead, assert_code, assert_lock, message_of, number, put, run};
use crate::lua;
use crate::server::Server;
use redis::Value;

/// The number of the lock that is taken; zero: all are acquired.
fn acquire(server: &Server, keys: &[&str], lease: &str, owners: &[&str]) -> i64 {
    match run(server, "acquire_group", keys, &[&[&*ahead(server), lease], owners].concat()) {
        Ok(Value::Nil) => 0,
        taken => number(taken),
    }
}

fn release(server: &Server, keys: &[&str], args: &[&str]) -> Vec<i64> {
    redis::from_redis_value(run(server, "release_group", keys, args).unwrap()).unwrap()
}

fn clean(server: &Server) {
    server.ask::<i64>(&["DEL", "a", "b", "c", "text"]);
}

#[test]
fn a_group_of_free_locks_is_taken() {
    let server = Server::start();
    assert_eq!(acquire(&server, &["a", "b", "c"], "60000", &["x", "y", "z"]), 0);
    for (key, owner) in [("a", "x"), ("b", "y"), ("c", "z")] {
        assert_lock(&server, key, owner, "1", 60_000);
    }
    clean(&server);
}

#[test]
fn a_group_with_a_taken_lock_is_left_alone() {
    let server = Server::start();
    for (taken, key) in ["a", "b", "c"].into_iter().enumerate() {
        put(&server, key, "other", "2", "40000");
        assert_eq!(acquire(&server, &["a", "b", "c"], "60000", &["x", "y", "z"]), taken as i64 + 1);
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [key], "nothing was written");
        assert_lock(&server, key, "other", "2", 40_000);
        clean(&server);
    }
}

#[test]
fn a_group_may_be_taken_again_by_the_same_attempt() {
    let server = Server::start();
    for lease in ["40000", "80000", "10"] {
        assert_eq!(acquire(&server, &["a", "b"], lease, &["x", "y"]), 0);
    }
    assert_lock(&server, "a", "x", "1", 80_000);
    // One of them was taken away meanwhile.
    server.ask::<i64>(&["DEL", "b"]);
    assert_eq!(acquire(&server, &["a", "b"], "80000", &["x", "y"]), 0);
    assert_lock(&server, "b", "y", "1", 80_000);
    clean(&server);
}

#[test]
fn a_stale_group_does_nothing() {
    let server = Server::start();
    assert_code(run(&server, "acquire_group", &["a", "b"], &[PAST, "60000", "x", "y"]), "STALE");
    put(&server, "a", "x", "1", "40000");
    assert_code(run(&server, "acquire_group", &["a", "b"], &[PAST, "80000", "x", "y"]), "STALE");
    assert_lock(&server, "a", "x", "1", 40_000);
    assert_eq!(server.pttl("b"), -2);
    clean(&server);
}

#[test]
fn no_lock_of_a_group_is_left_without_an_end() {
    let server = Server::start();
    let never = "9223372036854775807";
    let reply = run(&server, "acquire_group", &["a", "b"], &[&ahead(&server), never, "x", "y"]);
    assert!(reply.is_err(), "{reply:?}");
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    // What a copy of the attempt took keeps its time.
    put(&server, "b", "y", "1", "40000");
    let reply = run(&server, "acquire_group", &["a", "b"], &[&ahead(&server), never, "x", "y"]);
    assert!(reply.is_err(), "{reply:?}");
    assert_eq!(server.pttl("a"), -2);
    assert_lock(&server, "b", "y", "1", 40_000);
    clean(&server);
}

#[test]
fn a_group_without_memory_is_refused_and_released() {
    let server = Server::start();
    put(&server, "a", "x", "1", "40000");
    put(&server, "b", "y", "1", "40000");
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_code(run(&server, "acquire_group", &["c", "d"], &[&ahead(&server), "60000", "x", "y"]), "OOM");
    assert_eq!(release(&server, &["a", "b"], &["x", "channel", "y", "channel"]), [1, 1]);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

#[test]
fn a_group_with_a_key_of_another_type_writes_nothing() {
    let server = Server::start();
    server.ask::<String>(&["SET", "text", "not a lock"]);
    assert_code(run(&server, "acquire_group", &["a", "text"], &[&ahead(&server), "60000", "x", "y"]), "WRONGTYPE");
    assert_eq!(server.pttl("a"), -2);
    put(&server, "a", "x", "1", "40000");
    assert_eq!(release(&server, &["text", "a"], &["y", "channel", "x", "channel"]), [0, 1]);
    assert_eq!(server.ask::<String>(&["GET", "text"]), "not a lock");
    assert_eq!(server.pttl("a"), -2);
    clean(&server);
}

#[test]
fn a_group_is_freed_and_told_but_never_anothers() {
    let server = Server::start();
    put(&server, "a", "x", "1", "40000");
    put(&server, "b", "other", "1", "40000");
    let message = message_of(&server, || {
        let args = ["x", "channel", "y", "nobody", "z", "nobody"];
        assert_eq!(release(&server, &["a", "b", "c"], &args), [3, 0, 0], "one listens");
    });
    assert_eq!(message, "0");
    assert_eq!(server.pttl("a"), -2);
    assert_lock(&server, "b", "other", "1", 40_000);
    let message = message_of(&server, || {
        assert_eq!(release(&server, &["a", "b"], &["x", "channel", "y", "channel"]), [0, 0]);
    });
    assert_eq!(message, "none");
    clean(&server);
}

#[test]
fn a_denied_publish_does_not_undo_the_release_of_a_group() {
    let server = Server::start();
    put(&server, "a", "x", "1", "40000");
    put(&server, "b", "y", "1", "40000");
    let url = server.let_in("user", "secret", &format!("~* +@all {} &told", server.no_channels()));
    let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
    let script = redis::Script::new(&lua::script("release_group"));
    let reply: Value = script.key("a").key("b").arg("x").arg("secret").arg("y").arg("told").invoke(&mut user).unwrap();
    // Before 7.0 a script publishes on all channels or on none.
    let told = if server.version() < (7, 0) { 2 } else { 1 };
    assert_eq!(reply, Value::Array(vec![Value::Int(2), Value::Int(told)]));
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}
