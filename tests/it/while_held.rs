//! Commands of a caller's that are run only while its hold is there: what becomes of them, each its own answer.

mod sides;
mod slots;
mod unanswered;

use crate::server::Server;
use crate::threads::{LONG, SOON, WATCHED, eventually, finish, ms, spawn_asleep, while_held_elsewhere};
use redlatch::{
    Applied, Client, Command, Error, FencedLock, HandOff, Hold, HoldState, LocalRedLock, ReadWriteLock, RedLock,
    RedLockExt, ReentrantLock, Result, Value, WriteLock,
};
use std::time::Duration;

fn set(key: &str, value: &str) -> Command {
    Command::new("SET").key(key).arg(value)
}

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

/// What a key has, as the administrator sees it.
fn get(server: &Server, key: &str) -> Option<String> {
    server.ask(&["GET", key])
}

/// Each kind by one method.
trait Runs: RedLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>>;
}

impl Runs for ReentrantLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

impl Runs for FencedLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

impl Runs for WriteLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

fn read_write(server: &Server) -> ReadWriteLock {
    ReadWriteLock::connect(&server.url()).unwrap()
}

/// Tries it with each kind that has it, on a server of its own.
fn with_each(check: impl Fn(&Server, &dyn Runs)) {
    let server = Server::start();
    check(&server, &server.locks());
    server.clear();
    check(&server, &FencedLock::connect(&server.url()).unwrap());
    server.clear();
    check(&server, read_write(&server).write());
    server.clear();
}

#[test]
fn commands_are_run_in_their_order_and_answered() {
    with_each(|server, locks| {
        let guard = locks.guard("n").unwrap();
        let commands = [
            set("a", "1"),
            Command::new("GET").key("absent"),
            Command::new("INCR").key("a"),
            Command::new("MGET").key("a").key("absent"),
            Command::new("LRANGE").key("list").arg("0").arg("-1"),
        ];
        let empty = Value::Array(Vec::new());
        let pair = Value::Array(vec![bytes("2"), Value::Nil]);
        let answers = locks.run(guard.hold(), &commands).unwrap();
        assert_eq!(answers, [bytes("OK"), Value::Nil, Value::Integer(2), pair, empty]);
        assert_eq!((answers[0].text(), answers[2].integer(), answers[1].text()), (Some("OK"), Some(2), None));
        assert_eq!(locks.run(guard.hold(), &[]).unwrap(), []);
        let seen = server.commands_during(|| drop(locks.run(guard.hold(), &commands[2..]).unwrap()));
        assert_eq!(seen.len(), 1, "{seen:?}");
        guard.unlock().unwrap();
    });
}

#[test]
fn keys_and_words_are_any_bytes_and_have_no_prefix() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().key_prefix("shop:").build().unwrap());
    let guard = locks.guard("n").unwrap();
    let (key, value) = (b"\xff\0\r\n$1".as_slice(), b"\0*2\r\n\xfe".as_slice());
    let commands = [Command::new("SET").key(key).arg(value), Command::new("GET").key(key), set("plain", "")];
    assert_eq!(locks.while_held(guard.hold(), &commands).unwrap()[1], Value::Bytes(value.to_vec()));
    assert_eq!(get(&server, "plain").as_deref(), Some(""));
    guard.unlock().unwrap();
    server.clear();
}

/// However it was lost, and whether its holder knows.
#[test]
fn nothing_is_run_when_the_hold_is_over() {
    let ways: [fn(&Server); 5] = [
        |server| server.ask::<()>(&["EVAL", "redis.call('DEL', 'n')", "0"]),
        |server| server.ask::<()>(&["EVAL", "redis.call('DEL', 'n') redis.call('HSET', 'n', 'other:1:1', 1)", "0"]),
        |server| drop(server.ask::<String>(&["SET", "n", "x"])),
        |server| drop(server.ask::<String>(&["FLUSHALL"])),
        |server| {
            server.ask::<i64>(&["PEXPIRE", "n", "1"]);
            eventually(LONG, "it has expired", || server.pttl("n") == -2);
        },
    ];
    with_each(|server, locks| {
        for lose in ways {
            let guard = locks.guard("n").unwrap();
            lose(server);
            assert_err!(locks.run(guard.hold(), &[set("a", "1")]), Lost);
            assert_eq!((get(server, "a"), guard.hold().state()), (None, HoldState::Lost));
            assert_err!(locks.run(guard.hold(), &[set("a", "1")]), Lost);
            assert_err!(guard.unlock(), Lost);
            server.clear();
        }
    });
}

/// The server still has it for 1 % of the lease, or without an end, but its holder believes in it no more.
#[test]
fn nothing_is_sent_for_a_hold_that_is_not_believed_in() {
    with_each(|server, locks| {
        let guard = locks.request("n").lease(ms(50)).guard().unwrap().unwrap();
        server.ask::<i64>(&["PERSIST", "n"]);
        eventually(LONG, "it is over", || !guard.is_valid());
        let seen = server.commands_during(|| assert_err!(locks.run(guard.hold(), &[set("a", "1")]), Lost));
        assert!(!seen.iter().any(|command| command.contains("\"a\"")), "{seen:?}");
        assert_err!(guard.unlock(), Lost);
    });
}

#[test]
fn another_holder_keeps_what_it_wrote() {
    let server = Server::start();
    let (paused, next) = (server.locks(), server.locks());
    let late = paused.guard("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    let guard = next.guard("n").unwrap();
    next.while_held(guard.hold(), &[set("a", "next")]).unwrap();
    assert_err!(paused.while_held(late.hold(), &[set("a", "late")]), Lost);
    assert_eq!(get(&server, "a").as_deref(), Some("next"));
    guard.unlock().unwrap();
    assert_err!(late.unlock(), Lost);
    server.clear();
}

#[test]
fn only_the_thread_that_holds_it_may() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let run = |hold: &Hold| locks.while_held(hold, &[set("a", "1")]);
    while_held_elsewhere(&locks, "n", |hold| assert_err!(run(hold), NotHeld));
    let guard = locks.guard("n").unwrap();
    let hold = guard.hold().clone();
    guard.unlock().unwrap();
    assert_err!(run(&hold), NotHeld);
    assert_err!(run(other.guard("n").unwrap().hold()), Config);
    assert_err!(run(LocalRedLock::new().guard("n").unwrap().hold()), Config);
    assert_err!(run(FencedLock::new(locks.client()).guard("n").unwrap().hold()), Config);
    let guard = locks.guard("n").unwrap();
    locks.client().shutdown();
    assert_err!(run(guard.hold()), Closed);
    assert_eq!(get(&server, "a"), None);
}

#[test]
fn each_level_of_a_hold_may() {
    with_each(|server, locks| {
        let outer = locks.guard("n").unwrap();
        let inner = locks.guard("n").unwrap();
        let depth = || server.ask::<Vec<String>>(&["HVALS", "n"]);
        let count = depth();
        assert_eq!(locks.run(inner.hold(), &[set("a", "1")]).unwrap(), [bytes("OK")]);
        assert_eq!(depth(), count, "the depth is left alone");
        inner.unlock().unwrap();
        assert_eq!(locks.run(outer.hold(), &[set("a", "2")]).unwrap(), [bytes("OK")]);
        outer.unlock().unwrap();
    });
}

/// Locks that are passed on for as long as the test takes.
fn passing(url: &str, response_timeout: Duration) -> ReentrantLock {
    let how = HandOff::default().within(LONG).in_order();
    let client = Client::builder(url).hand_off(how).response_timeout(response_timeout);
    ReentrantLock::new(&client.build().unwrap())
}

/// Whose owner field is that of the thread before.
#[test]
fn a_hold_that_was_passed_on_may() {
    let server = Server::start();
    let locks = passing(&server.url(), SOON);
    let guard = locks.guard("n").unwrap();
    std::thread::scope(|scope| {
        let next = spawn_asleep(scope, || {
            let guard = locks.guard("n").unwrap();
            locks.while_held(guard.hold(), &[set("a", "1")])
        });
        locks.while_held(guard.hold(), &[set("a", "0")]).unwrap();
        guard.unlock().unwrap();
        finish(next).0.unwrap();
    });
    assert_eq!((locks.client().stats().passes, get(&server, "a").as_deref()), (1, Some("1")));
    server.clear();
}

fn failed(locks: &dyn Runs, hold: &Hold, commands: &[Command]) -> (usize, String, Vec<Value>, Applied) {
    let error = locks.run(hold, commands).unwrap_err();
    assert!(!error.is_retryable() && !error.work_ran(), "{error:?}");
    let applied = error.applied();
    let Error::CommandFailed { at, code, answers, .. } = error else { panic!("{error:?}") };
    (at, code, answers, applied)
}

#[test]
fn those_before_the_one_that_failed_were_run_and_the_others_not() {
    with_each(|server, locks| {
        let guard = locks.guard("n").unwrap();
        let wrong = Command::new("LPUSH").key("a").arg("x");
        let said = failed(locks, guard.hold(), &[set("a", "1"), wrong.clone(), set("b", "2")]);
        assert_eq!(said, (2, "WRONGTYPE".to_owned(), vec![bytes("OK")], Applied::Yes));
        assert_eq!((get(server, "a").as_deref(), get(server, "b")), (Some("1"), None));
        assert_eq!(failed(locks, guard.hold(), &[wrong]), (1, "WRONGTYPE".to_owned(), vec![], Applied::No));
        guard.unlock().unwrap();
    });
}

/// Those that no script may run, and those that are wrong.
#[test]
fn what_a_server_does_not_run_is_said() {
    with_each(|_, locks| {
        let guard = locks.guard("n").unwrap();
        let several = [
            Command::new("SUBSCRIBE").arg("c"),
            Command::new("MULTI"),
            Command::new("EVAL").arg("return 1").arg("0"),
            Command::new("NO-SUCH-COMMAND"),
            Command::new("GET"),
            Command::new(""),
        ];
        for command in several {
            assert_eq!(failed(locks, guard.hold(), &[command]).1, "ERR");
        }
        assert!(guard.is_valid());
        guard.unlock().unwrap();
    });
}

/// Redis 7.0 and older do not run it in a script at all, later ones and Valkey as one that does not wait.
#[test]
fn a_command_that_waits_does_not_wait() {
    with_each(|_, locks| {
        let guard = locks.guard("n").unwrap();
        match locks.run(guard.hold(), &[Command::new("BLPOP").key("list").arg("0")]) {
            Ok(answers) => assert_eq!(answers, [Value::Nil]),
            Err(error) => assert!(matches!(&error, Error::CommandFailed { code, .. } if code == "ERR"), "{error:?}"),
        }
        guard.unlock().unwrap();
    });
}

#[test]
fn permissions_are_those_of_the_user() {
    let server = Server::start();
    let all = "+@all -lpush ~n ~redlatch_*:{n} ~a &*";
    let locks = ReentrantLock::connect(&server.let_in("app", "secret", all)).unwrap();
    let guard = locks.guard("n").unwrap();
    let refused = Command::new("LPUSH").key("a").arg("x");
    let said = failed(&locks, guard.hold(), &[Command::new("GET").key("a"), refused]);
    assert_eq!(said, (2, "NOPERM".to_owned(), vec![Value::Nil], Applied::Yes));
    let error = locks.while_held(guard.hold(), &[set("a", "1"), set("b", "2")]).unwrap_err();
    assert!(matches!(&error, Error::Refused { code, .. } if code == "NOPERM") && error.applied() == Applied::No);
    assert_eq!(get(&server, "a"), None, "a key is looked at before any command");
    guard.unlock().unwrap();
}

/// It says so of the first write, and then nothing was run and it may pass.
#[test]
fn a_server_that_takes_no_writes_runs_none() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().outage_budget(ms(50)).build().unwrap());
    let guard = locks.guard("n").unwrap();
    locks.while_held(guard.hold(), &[set("a", "1")]).unwrap();
    let states: [(&str, [&[&str]; 2]); 2] = [
        ("OOM", [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]]),
        ("READONLY", [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]]),
    ];
    for (expected, [begin, end]) in states {
        server.ask::<String>(begin);
        let error = locks.while_held(guard.hold(), &[set("a", "2"), set("b", "2")]).unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == expected), "{error:?}");
        assert_eq!((error.applied(), error.is_retryable()), (Applied::No, true));
        assert_eq!(failed(&locks, guard.hold(), &[Command::new("GET").key("a"), set("a", "2")]).0, 2);
        server.ask::<String>(end);
    }
    assert_eq!((get(&server, "a").as_deref(), get(&server, "b")), (Some("1"), None));
    guard.unlock().unwrap();
    server.clear();
}

#[test]
fn a_list_may_be_long_and_no_longer() {
    let server = Server::start();
    let locks = passing(&server.url(), LONG / 4);
    let guard = locks.guard("n").unwrap();
    let push = |words: usize| (2..words).fold(Command::new("RPUSH").key("a"), |command, _| command.arg("x"));
    let run = |commands: &[Command]| locks.while_held(guard.hold(), commands);
    assert_eq!(run(&[push(7_000)]).unwrap(), [Value::Integer(6_998)]);
    let many = vec![Command::new("INCR").key("b"); 50_000];
    assert_eq!(run(&many).unwrap()[49_999], Value::Integer(50_000));
    let big = Command::new("SET").key("c").arg(vec![b'x'; (32 << 20) - 5]);
    assert_eq!(run(std::slice::from_ref(&big)).unwrap(), [bytes("OK")]);
    let key = Command::new("GET").key(vec![b'x'; 17 << 20]);
    let several = [vec![key], vec![push(7_001)], vec![Command::new("PING"); 100_001], vec![big, Command::new("PING")]];
    for too_much in several {
        assert_err!(run(&too_much), Config);
    }
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    server.clear();
}

/// What is quiet there is what grants; who holds goes on.
#[test]
fn a_strict_client_runs_them_too() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(WATCHED).strict(true).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let guard = locks.guard("n").unwrap();
    locks.while_held(guard.hold(), &[set("a", "1")]).unwrap();
    server.clear();
    assert_err!(locks.while_held(guard.hold(), &[set("a", "2")]), Lost);
    assert_eq!(get(&server, "a"), None);
    let _ = guard.unlock();
    server.clear();
}

#[test]
fn a_debug_form_shows_no_value() {
    let text = format!("{:?}", Command::new("SET").key("order:42").arg("secret"));
    assert!(text.contains("order:42") && !text.contains("secret"), "{text}");
}
