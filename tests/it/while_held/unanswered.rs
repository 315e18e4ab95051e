//! Commands whose answer was lost: they are never sent again, and what comes after them does not meet a late copy.

use super::{bytes, get, passing, set};
use crate::proxy::{Flow, Proxy, Step, deliver, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, finish, ms, patiently, spawn_asleep, timed};
use redlatch::{Applied, Command, Error, Hold, RedLock, RedLockExt, ReentrantLock, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SCRIPT: &str = "while_held/run";

/// Locks behind a proxy, whose server knows the script.
fn behind(proxy: &Proxy, response_timeout: Duration) -> ReentrantLock {
    let locks = passing(&proxy.url(), response_timeout);
    let guard = locks.guard("warm up").unwrap();
    locks.while_held(guard.hold(), &[]).unwrap();
    guard.unlock().unwrap();
    locks
}

fn count() -> Command {
    Command::new("INCR").key("a")
}

fn assert_unknown(locks: &ReentrantLock, hold: &Hold, command: Command) {
    let error = locks.while_held(hold, &[command]).unwrap_err();
    assert!(matches!(error, Error::CommandsUnknown { .. }), "{error:?}");
    assert_eq!((error.applied(), error.is_retryable()), (Applied::Unknown, false));
}

/// The next answer to the commands is not passed on, and the connection is cut or stays open.
fn lose_answer(proxy: &Proxy, cut: bool) {
    let (asks, mut asked, mut lost) = (runs(SCRIPT), false, false);
    proxy.set(move |_, flow, data| {
        let is_lost = asked && !lost && flow == Flow::Reply;
        (asked, lost) = (asked || asks(flow, data), lost || is_lost);
        match (is_lost, cut) {
            (true, true) => vec![Step::Cut],
            (true, false) => Vec::new(),
            _ => pass(data),
        }
    });
}

#[test]
fn commands_without_an_answer_are_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = behind(&proxy, ms(400));
    let guard = locks.guard("n").unwrap();
    for (cut, so_far) in [(true, "1"), (false, "3")] {
        lose_answer(&proxy, cut);
        let seen = server.commands_during(|| assert_unknown(&locks, guard.hold(), count()));
        assert_eq!(seen.iter().filter(|command| command.contains("\"a\"")).count(), 1, "{seen:?}");
        assert_eq!(get(&server, "a").as_deref(), Some(so_far));
        locks.while_held(guard.hold(), &[count()]).unwrap();
    }
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    server.clear();
}

/// As modules answer several at once. The commands were run: what is a refusal as a whole would be asked for again.
#[test]
fn an_error_within_an_answer_is_an_answer() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = behind(&proxy, LONG / 4);
    let guard = locks.guard("n").unwrap();
    let (asks, mut asked) = (runs(SCRIPT), false);
    proxy.set(move |_, flow, data| {
        let is_answer = asked && flow == Flow::Reply;
        asked = asks(flow, data);
        pass(if is_answer { b"*3\r\n:0\r\n$0\r\n\r\n*1\r\n*2\r\n:1\r\n-OOM no room\r\n" } else { data })
    });
    let answers = locks.while_held(guard.hold(), &[count()]).unwrap();
    assert_eq!(answers, [Value::Array(vec![Value::Integer(1), Value::Error("OOM no room".to_owned())])]);
    assert_eq!(get(&server, "a").as_deref(), Some("1"));
    proxy.set(|_, _, data| pass(data));
    guard.unlock().unwrap();
    server.clear();
}

/// A copy that comes late would else undo what the next call did.
#[test]
fn the_next_call_waits_until_the_last_cannot_come_any_more() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = behind(&proxy, ms(600));
    let guard = locks.guard("n").unwrap();
    let late = keep_back(&proxy);
    let (answer, took) = timed(|| {
        assert_unknown(&locks, guard.hold(), set("a", "late"));
        locks.while_held(guard.hold(), &[set("a", "next")])
    });
    assert_eq!(answer.unwrap(), [bytes("OK")]);
    assert!(took >= ms(600), "{took:?}");
    let answer = deliver(&server.socket(), &late.lock().unwrap()).unwrap();
    assert!(answer.starts_with("-STALE"), "{answer}");
    assert_eq!(get(&server, "a").as_deref(), Some("next"));
    guard.unlock().unwrap();
    server.clear();
}

/// The next request that has commands is kept, to be delivered later, and its connection is cut.
pub(super) fn keep_back(proxy: &Proxy) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let (asks, keep) = (runs(SCRIPT), Arc::clone(&kept));
    proxy.set(move |_, flow, data| {
        if !asks(flow, data) || !keep.lock().unwrap().is_empty() {
            return pass(data);
        }
        keep.lock().unwrap().extend(data);
        vec![Step::Cut]
    });
    kept
}

/// It would have the same owner field, which a late copy would find.
#[test]
fn a_tenure_is_not_passed_on_while_a_late_copy_may_come() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = behind(&proxy, LONG / 4);
    let guard = locks.guard("n").unwrap();
    let owner = guard.owner().to_owned();
    let late = keep_back(&proxy);
    std::thread::scope(|scope| {
        let next = spawn_asleep(scope, || {
            let guard = locks.guard("n").unwrap();
            let answer = deliver(&server.socket(), &late.lock().unwrap()).unwrap();
            (answer, guard.owner().to_owned())
        });
        assert_unknown(&locks, guard.hold(), set("a", "late"));
        guard.unlock().unwrap();
        let (answer, next) = finish(next).0;
        assert_eq!((answer.as_str(), get(&server, "a")), (":0\r\n", None));
        assert_ne!(next, owner);
    });
    assert_eq!(locks.client().stats().passes, 0);
}

/// And it is again, once none can.
#[test]
fn a_tenure_is_passed_on_when_a_late_copy_cannot_come_any_more() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = behind(&proxy, ms(400));
    let guard = locks.guard("n").unwrap();
    lose_answer(&proxy, true);
    std::thread::scope(|scope| {
        let next = spawn_asleep(scope, || drop(locks.guard("n").unwrap()));
        assert_unknown(&locks, guard.hold(), count());
        locks.while_held(guard.hold(), &[]).unwrap();
        guard.unlock().unwrap();
        finish(next);
    });
    assert_eq!(locks.client().stats().passes, 1);
    server.clear();
}

/// It would write after the next holder did.
#[test]
fn a_server_that_stood_still_does_not_run_them_late() {
    let server = Server::start();
    let client = server.builder().response_timeout(ms(300)).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let guard = locks.guard("n").unwrap();
    locks.while_held(guard.hold(), &[]).unwrap();
    server.freeze();
    assert_unknown(&locks, guard.hold(), set("a", "late"));
    std::thread::sleep(ms(100));
    server.thaw();
    assert_eq!(get(&server, "a"), None);
    assert!(patiently(|| locks.verify(guard.hold())));
    guard.unlock().unwrap();
}

/// The connections that were there are closed, and it is seen before anything is written to them: a server may do so with those that are idle,
/// and at each restart. Nothing was sent that could have been run, so it is asked for until the server is back.
#[test]
fn what_was_not_sent_is_sent_when_the_server_is_there_again() {
    let mut server = Server::start_with_data();
    let client = server.builder().outage_budget(LONG).watchdog_timeout(LONG).build().unwrap();
    let locks = ReentrantLock::new(&client);
    let guard = locks.guard("n").unwrap();
    let ask = |command| locks.while_held(guard.hold(), &[command]);
    server.kill();
    std::thread::scope(|scope| {
        let back = scope.spawn(|| {
            std::thread::sleep(ms(500));
            server.restart();
        });
        assert_eq!(ask(count()).unwrap()[0].integer(), Some(1));
        finish(back);
    });
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(ask(count()).unwrap()[0].integer(), Some(2));
    guard.unlock().unwrap();
    server.clear();
}
