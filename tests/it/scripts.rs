//! Each Lua file run directly, with arguments that the library would not send or only rarely does.

mod counters;
mod given;
mod groups;
mod in_order;
mod in_turn;
mod told;

use crate::lua;
use crate::server::Server;
use crate::threads::LONG;
use redis::{RedisResult, Value};

/// A deadline long gone.
const PAST: &str = "1";

fn run(server: &Server, script: &str, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
    let count = keys.len().to_string();
    let said = server.try_ask(&[&["EVAL", &lua::script(script), &count], keys, args].concat());
    said.map(|said| lua::unnamed(said, args.first().unwrap_or(&"")))
}

/// A deadline that is not over, on the server's clock.
fn ahead(server: &Server) -> String {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    ((seconds + 100) * 1_000_000 + micros).to_string()
}

fn number(reply: RedisResult<Value>) -> i64 {
    redis::from_redis_value(reply.unwrap()).unwrap()
}

/// Redis 6 puts the errors of the commands that a script runs into a sentence of its own.
fn assert_code(reply: RedisResult<Value>, code: &str) {
    let error = reply.expect_err("it is refused");
    let sentence = error.detail().filter(|detail| detail.starts_with("Error running script (call to "));
    let told = sentence.map_or(error.code() == Some(code), |sentence| sentence.contains(&format!("{code} ")));
    assert!(told, "expected {code}: {error}");
}

/// Makes a lock by hand.
fn put(server: &Server, key: &str, owner: &str, count: &str, ttl: &str) {
    server.ask::<i64>(&["HSET", key, owner, count]);
    server.ask::<i64>(&["PEXPIRE", key, ttl]);
}

fn fields(server: &Server, key: &str) -> Vec<(String, String)> {
    server.ask(&["HGETALL", key])
}

/// That a key has exactly one field, and how much time is left, roughly.
fn assert_lock(server: &Server, key: &str, owner: &str, count: &str, ttl: i64) {
    assert_eq!(fields(server, key), [(owner.to_owned(), count.to_owned())]);
    let left = server.pttl(key);
    assert!(left <= ttl && left > ttl - 20_000, "{left} of {ttl} ms");
}

fn clean(server: &Server) {
    server.ask::<i64>(&["DEL", "n", "m", "text"]);
}

/// A message that `act` sent to the channel, if any.
fn message_of(server: &Server, act: impl FnOnce()) -> String {
    let mut connection = server.connection();
    connection.set_read_timeout(Some(LONG)).unwrap();
    let mut listener = connection.as_pubsub();
    listener.subscribe("channel").unwrap();
    act();
    server.ask::<i64>(&["PUBLISH", "channel", "none"]);
    listener.get_message().unwrap().get_payload().unwrap()
}

#[test]
fn acquire_takes_a_free_lock() {
    let server = Server::start();
    let reply = run(&server, "acquire", &["n"], &[&ahead(&server), "60000", "me", "1"]);
    assert_eq!(reply.unwrap(), Value::Nil);
    assert_lock(&server, "n", "me", "1", 60_000);
    clean(&server);
}

#[test]
fn acquire_says_how_long_another_holds_it() {
    let server = Server::start();
    put(&server, "n", "other", "2", "40000");
    let left = number(run(&server, "acquire", &["n"], &[&ahead(&server), "60000", "me", "1"]));
    assert!(left > 20_000 && left <= 40_000);
    assert_lock(&server, "n", "other", "2", 40_000);
    server.ask::<i64>(&["PERSIST", "n"]);
    assert_eq!(number(run(&server, "acquire", &["n"], &[&ahead(&server), "60000", "me", "1"])), -1);
    assert_eq!(server.pttl("n"), -1);
    clean(&server);
}

#[test]
fn acquire_may_be_repeated() {
    let server = Server::start();
    for lease in ["40000", "80000", "10"] {
        let reply = run(&server, "acquire", &["n"], &[&ahead(&server), lease, "me", "1"]);
        assert_eq!(reply.unwrap(), Value::Nil);
    }
    assert_lock(&server, "n", "me", "1", 80_000);
    clean(&server);
}

#[test]
fn acquire_leaves_no_lock_without_an_end() {
    let server = Server::start();
    let reply = run(&server, "acquire", &["n"], &[&ahead(&server), "9223372036854775807", "me", "1"]);
    assert!(reply.is_err(), "{reply:?}");
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn reenter_writes_an_absolute_count() {
    let server = Server::start();
    put(&server, "n", "me", "1", "40000");
    for _ in 0..2 {
        assert_eq!(run(&server, "reenter", &["n"], &[&ahead(&server), "80000", "me", "2"]).unwrap(), Value::Nil);
        assert_lock(&server, "n", "me", "2", 80_000);
    }
    assert_eq!(run(&server, "reenter", &["n"], &[&ahead(&server), "10", "me", "3"]).unwrap(), Value::Nil);
    assert_lock(&server, "n", "me", "3", 80_000);
    clean(&server);
}

#[test]
fn reenter_creates_nothing_and_touches_nobody_elses() {
    let server = Server::start();
    assert_eq!(number(run(&server, "reenter", &["n"], &[&ahead(&server), "60000", "me", "2"])), 0);
    assert_eq!(server.pttl("n"), -2);
    put(&server, "n", "other", "1", "40000");
    assert_eq!(number(run(&server, "reenter", &["n"], &[&ahead(&server), "80000", "me", "2"])), 0);
    assert_lock(&server, "n", "other", "1", 40_000);
    clean(&server);
}

#[test]
fn a_stale_deadline_does_nothing() {
    let server = Server::start();
    assert_code(run(&server, "acquire", &["m"], &[PAST, "60000", "me", "1"]), "STALE");
    assert_eq!(server.pttl("m"), -2);
    put(&server, "n", "me", "1", "40000");
    assert_code(run(&server, "acquire", &["n"], &[PAST, "80000", "me", "2"]), "STALE");
    assert_code(run(&server, "reenter", &["n"], &[PAST, "80000", "me", "2"]), "STALE");
    assert_code(run(&server, "renew", &["n"], &[PAST, "80000", "me"]), "STALE");
    assert_lock(&server, "n", "me", "1", 40_000);
    clean(&server);
}

/// A wrapper hands on what is behind its own arguments, however many keys there are.
#[test]
fn what_says_which_process_serves_prolongs_all_the_same() {
    let server = Server::start();
    put(&server, "n", "me", "1", "40000");
    put(&server, "m", "other", "1", "40000");
    let args = [&*ahead(&server), "epoch", "anew", "5000", "80000", "me", "other"];
    let reply = run(&server, "serving+renew", &["n", "m"], &args).unwrap();
    assert_eq!(reply, Value::Array(vec![Value::Int(1), Value::Int(1)]));
    assert_lock(&server, "n", "me", "1", 80_000);
    assert_lock(&server, "m", "other", "1", 80_000);
    assert!(server.ask::<String>(&["GET", "epoch"]).starts_with("anew 5000 "));
    server.ask::<i64>(&["DEL", "epoch"]);
    clean(&server);
}

/// A server takes no script that is not whole.
#[test]
fn each_file_is_whole_by_itself() {
    let server = Server::start();
    for (path, text) in lua::files() {
        let sha = server.try_ask::<String>(&["SCRIPT", "LOAD", &lua::with_preludes(&text)]);
        assert!(sha.is_ok(), "{}: {sha:?}", path.display());
    }
}

/// The quarantine has no clock of its own: what comes too late does not even begin one.
#[test]
fn a_stale_acquire_of_a_strict_client_begins_no_quarantine() {
    let server = Server::start();
    let strict = |deadline: &str| {
        let args = [deadline, "epoch", "anew", "5000", "60000", "me", "1"];
        run(&server, "quarantine+acquire", &["n"], &args)
    };
    assert_code(strict(PAST), "STALE");
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    assert_eq!(strict(&ahead(&server)).unwrap(), Value::Array(vec![Value::Int(5_000)]));
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["epoch"]);
    server.ask::<i64>(&["DEL", "epoch"]);
}

#[test]
fn a_stale_reply_tells_the_servers_clock_in_plain_digits() {
    let server = Server::start();
    let error = run(&server, "acquire", &["n"], &[PAST, "60000", "me", "1"]).unwrap_err();
    let told: u64 = error.detail().unwrap().parse().expect("plain digits");
    let (seconds, _): (u64, u64) = server.ask(&["TIME"]);
    assert!((told / 1_000_000).abs_diff(seconds) < 60);
}

#[test]
fn release_of_a_foreign_owner_frees_nothing() {
    let server = Server::start();
    put(&server, "n", "other", "2", "40000");
    for left in ["0", "1"] {
        let message = message_of(&server, || {
            assert_eq!(number(run(&server, "release", &["n"], &["me", left, "channel"])), 0);
        });
        assert_eq!(message, "none");
    }
    assert_lock(&server, "n", "other", "2", 40_000);
    clean(&server);
    assert_eq!(number(run(&server, "release", &["n"], &["me", "0", "channel"])), 0);
}

#[test]
fn release_of_a_level_writes_an_absolute_count_and_keeps_the_time() {
    let server = Server::start();
    put(&server, "n", "me", "3", "40000");
    for _ in 0..2 {
        let message = message_of(&server, || {
            assert_eq!(number(run(&server, "release", &["n"], &["me", "2", "channel"])), 1);
        });
        assert_eq!(message, "none");
    }
    assert_lock(&server, "n", "me", "2", 40_000);
    clean(&server);
}

#[test]
fn release_of_the_last_level_frees_and_tells() {
    let server = Server::start();
    put(&server, "n", "me", "3", "40000");
    let message = message_of(&server, || {
        assert_eq!(number(run(&server, "release", &["n"], &["me", "0", "channel"])), 3, "one listens");
    });
    assert_eq!(message, "0");
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn a_release_says_how_many_were_told() {
    let server = Server::start();
    let mut connections = [(); 2].map(|()| server.connection());
    let mut listeners = connections.each_mut().map(redis::Connection::as_pubsub);
    for (told, listener) in listeners.iter_mut().enumerate() {
        put(&server, "n", "me", "1", "40000");
        let reply = [1, 3, 4][told];
        assert_eq!(number(run(&server, "release", &["n"], &["me", "0", "channel"])), reply);
        listener.subscribe("channel").unwrap();
    }
    put(&server, "n", "me", "1", "40000");
    assert_eq!(number(run(&server, "release", &["n"], &["me", "0", "channel"])), 4);
}

/// `fault_08`: the server is out of memory.
#[test]
fn the_last_release_and_a_renewal_work_without_memory() {
    let server = Server::start();
    put(&server, "n", "me", "1", "40000");
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_code(run(&server, "acquire", &["m"], &[&ahead(&server), "60000", "me", "1"]), "OOM");
    let renewed = run(&server, "renew", &["n"], &[&ahead(&server), "80000", "me"]);
    assert_eq!(renewed.unwrap(), Value::Array(vec![Value::Int(1)]));
    assert_eq!(number(run(&server, "release", &["n"], &["me", "0", "channel"])), 1);
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn renew_answers_for_each_lock_and_only_lengthens() {
    let server = Server::start();
    put(&server, "mine", "a", "1", "40000");
    put(&server, "longer", "b", "2", "3600000");
    put(&server, "foreign", "x", "1", "40000");
    server.ask::<String>(&["SET", "text", "not a lock"]);
    let keys = ["mine", "text", "absent", "foreign", "longer"];
    let reply = run(&server, "renew", &keys, &[&ahead(&server), "80000", "a", "t", "c", "d", "b"]);
    let held: Vec<i64> = redis::from_redis_value(reply.unwrap()).unwrap();
    assert_eq!(held, [1, 0, 0, 0, 1]);
    assert_lock(&server, "mine", "a", "1", 80_000);
    assert_lock(&server, "longer", "b", "2", 3_600_000);
    assert_lock(&server, "foreign", "x", "1", 40_000);
    assert_eq!(server.ask::<String>(&["GET", "text"]), "not a lock");
    server.ask::<i64>(&["DEL", "mine", "longer", "foreign", "text"]);
}

#[test]
fn force_unlock_frees_whoever_holds_it_and_tells() {
    let server = Server::start();
    put(&server, "n", "other", "3", "40000");
    let message = message_of(&server, || {
        assert_eq!(number(run(&server, "force_unlock", &["n"], &["channel"])), 3, "one listens");
    });
    assert_eq!(message, "0");
    assert_eq!(server.pttl("n"), -2);
    let message = message_of(&server, || {
        assert_eq!(number(run(&server, "force_unlock", &["n"], &["channel"])), 0);
    });
    assert_eq!(message, "none");
}

#[test]
fn a_denied_publish_does_not_undo_a_release() {
    let server = Server::start();
    let url = server.let_in("quiet", "pw", &format!("~* +@all {}", server.no_channels()));
    let connect = redis::Client::open(url).unwrap();
    let mut quiet = connect.get_connection().unwrap();
    for (script, args) in [("release", &["me", "0", "channel"][..]), ("force_unlock", &["channel"])] {
        put(&server, "n", "me", "1", "40000");
        let reply: i64 =
            redis::cmd("EVAL").arg(lua::script(script)).arg(1).arg("n").arg(args).query(&mut quiet).unwrap();
        assert_eq!(reply, 2, "done, but nobody was told");
        assert_eq!(server.pttl("n"), -2);
    }
}

/// Who may not look knows nothing: neither that a hold is lost, nor that there is nothing to release.
#[test]
fn a_batch_that_may_not_look_says_so_of_no_lock() {
    let server = Server::start();
    let url = server.let_in("blind", "pw", &format!("~* +@all -hexists {}", server.no_channels()));
    let mut blind = redis::Client::open(url).unwrap().get_connection().unwrap();
    put(&server, "n", "me", "1", "40000");
    let deadline = ahead(&server);
    for (script, args) in [("renew", &[&*deadline, "80000", "me"][..]), ("release_group", &["me", "channel"])] {
        let text = lua::script(script);
        let reply: RedisResult<Value> = redis::cmd("EVAL").arg(text).arg(1).arg("n").arg(args).query(&mut blind);
        assert!(reply.is_err(), "{script}: {reply:?}");
    }
    assert_lock(&server, "n", "me", "1", 40_000);
    clean(&server);
}

#[test]
fn a_key_of_another_type_is_no_hold_and_kept() {
    let server = Server::start();
    server.ask::<String>(&["SET", "text", "not a lock"]);
    let deadline = ahead(&server);
    assert_code(run(&server, "acquire", &["text"], &[&deadline, "60000", "me", "1"]), "WRONGTYPE");
    assert_eq!(number(run(&server, "reenter", &["text"], &[&deadline, "60000", "me", "2"])), 0);
    for left in ["0", "1"] {
        assert_eq!(number(run(&server, "release", &["text"], &["me", left, "channel"])), 0);
        let in_turn = ["me", left, "channel", "queue", "mark", "0", "members", "0", "0", "0"];
        assert_eq!(number(run(&server, "release_in_turn", &["text"], &in_turn)), 0);
    }
    assert_code(run(&server, "force_unlock", &["text"], &["channel"]), "WRONGTYPE");
    assert_eq!(server.ask::<String>(&["GET", "text"]), "not a lock");
    assert_eq!(server.pttl("text"), -1);
    clean(&server);
}
