//! The tokens of fenced locks: one a hold, greater than each before, whatever becomes of the counter.

mod moves;

use crate::proxy::{Proxy, Step, deliver, pass, runs};
use crate::server::Server;
use crate::threads::{LONG, finish, ms, spawn_asleep};
use redlatch::{Client, Error, FencedLock, HandOff, Hold, LocalRedLock, MultiLock, RedLock, RedLockExt, ReentrantLock};
use std::sync::Mutex;
use std::time::Duration;

const COUNTER: &str = "redisson_lock_token:{n}";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of a lock that is renewed, by default.
const WATCHED: Duration = Duration::from_secs(30);

fn fenced(server: &Server) -> FencedLock {
    FencedLock::connect(&server.url()).unwrap()
}

/// Takes and gives back the lock `n`: its token.
fn token(locks: &FencedLock) -> u64 {
    let guard = locks.guard("n").unwrap();
    let token = guard.token().unwrap();
    guard.unlock().unwrap();
    token
}

/// The server's clock, us.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1_000_000 + micros
}

#[test]
fn a_token_is_the_same_on_each_level_and_greater_for_the_next_hold() {
    let server = Server::start();
    let (locks, other) = (fenced(&server), fenced(&server));
    assert_eq!(locks.last_token("n").unwrap(), None);
    let before = now(&server);
    let guard = locks.guard("n").unwrap();
    let inner = locks.guard("n").unwrap();
    let first = guard.token().unwrap();
    assert!((before..=now(&server)).contains(&first), "it follows the clock of the server");
    assert_eq!((inner.token(), locks.hold("n").unwrap().token()), (Some(first), Some(first)));
    assert_eq!(locks.last_token("n").unwrap(), Some(first));
    guard.extend(LONG).unwrap();
    inner.unlock().unwrap();
    let hold = guard.hold().clone();
    guard.unlock().unwrap();
    assert_eq!(hold.token(), Some(first), "also when it is over");
    assert!(token(&other) > first && other.last_token("n").unwrap() > Some(first));
    assert_eq!(server.pttl(COUNTER), -1);
}

#[test]
fn other_kinds_have_no_tokens_and_are_kept_out() {
    let server = Server::start();
    let client = server.builder().build().unwrap();
    let (fenced, plain) = (FencedLock::new(&client), ReentrantLock::new(&client));
    assert_eq!(plain.guard("n").unwrap().token(), None);
    let guard = fenced.guard("n").unwrap();
    assert_err!(plain.lock("n"), Config);
    assert_err!(plain.unlock("n"), Config);
    assert!(!server.locks().try_lock("n").unwrap());
    guard.unlock().unwrap();
}

/// Threads of two processes, as it were, that wait for each other: no two holds have a token, and they grow in the order of holds.
fn assert_in_order(hand_off: HandOff) {
    let server = Server::start();
    let clients = [(); 2].map(|()| FencedLock::new(&server.builder().hand_off(hand_off).build().unwrap()));
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let turns = |locks: &FencedLock| {
            for _ in 0..50 {
                let guard = locks.guard("n").unwrap();
                order.lock().unwrap().push(guard.token().unwrap());
                guard.unlock().unwrap();
            }
        };
        let all: Vec<_> =
            clients.iter().flat_map(|locks| [locks; 3]).map(|locks| scope.spawn(move || turns(locks))).collect();
        all.into_iter().for_each(finish);
    });
    let order = order.into_inner().unwrap();
    assert!(order.len() == 300 && order.is_sorted_by(|one, next| one < next), "{order:?}");
    assert_eq!(clients[0].last_token("n").unwrap(), order.last().copied());
}

/// For tests of what takes a fenced lock. Threads pass it on in memory, and each hold has a token of its own all the same.
#[test]
fn locks_in_memory_have_tokens() {
    let locks = LocalRedLock::new();
    let guard = locks.guard("n").unwrap();
    let (first, inner) = (guard.token(), locks.guard("n").unwrap());
    assert!(first.is_some() && inner.token() == first);
    inner.unlock().unwrap();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let take = || {
            let guard = locks.guard("n").unwrap();
            order.lock().unwrap().push((guard.token(), guard.hold().clone()));
            guard.unlock().unwrap();
        };
        let all: Vec<_> = (0..8).map(|_| spawn_asleep(scope, take)).collect();
        guard.unlock().unwrap();
        all.into_iter().for_each(|waiter| _ = finish(waiter));
    });
    let (order, holds): (Vec<_>, Vec<_>) = order.into_inner().unwrap().into_iter().unzip();
    assert!(order.len() == 8 && order[0] > first && order.is_sorted_by(|one, next| one < next), "{first:?} {order:?}");
    assert!(holds.iter().map(Hold::token).eq(order), "it stays when the tenure is passed on");
}

#[test]
fn tokens_grow_in_the_order_of_holds() {
    assert_in_order(HandOff::default());
    assert_in_order(HandOff::off());
}

/// As an administrator, an eviction and a restart do it.
#[test]
fn tokens_go_on_growing_when_the_server_has_lost_them() {
    let mut server = Server::start();
    let locks = fenced(&server);
    let mut last = 0;
    let mut assert_grows = |locks: &FencedLock| {
        let next = token(locks);
        assert!(next > last, "{next} after {last}");
        last = next;
    };
    assert_grows(&locks);
    server.ask::<String>(&["FLUSHALL"]);
    assert_grows(&locks);
    assert_eq!(server.ask::<i64>(&["DEL", COUNTER]), 1);
    assert_grows(&locks);
    server.kill();
    server.restart();
    assert_grows(&locks);
}

/// Counted from when the clock has come to it, and after the lease: so whatever is minted when it is forgotten is greater.
#[test]
fn a_counter_that_is_to_be_forgotten_is_kept_until_the_clock_is_ahead_of_it() {
    let server = Server::start();
    let client = server.builder().token_ttl(DAY).build().unwrap();
    let (locks, forever) = (FencedLock::new(&client), fenced(&server));
    let assert_kept = |span: Duration| {
        let left = ms(server.pttl(COUNTER).try_into().unwrap());
        assert!(left <= span && left + LONG > span, "{left:?} of {span:?}");
    };
    let first = token(&locks);
    assert_kept(DAY + WATCHED);
    let guard = locks.request("n").lease(DAY).guard().unwrap().unwrap();
    assert_kept(2 * DAY);
    guard.unlock().unwrap();
    server.ask::<String>(&["SET", COUNTER, &(now(&server) + 3_600_000_000).to_string()]);
    let ahead = token(&locks);
    assert_kept(DAY + WATCHED + Duration::from_secs(3_600));
    assert!(token(&forever) == ahead + 1 && server.pttl(COUNTER) == -1);
    server.ask::<i64>(&["DEL", COUNTER]);
    assert_eq!(locks.last_token("n").unwrap(), None);
    assert!(token(&locks) > first);
}

/// Redisson counts by INCR, and whoever is ahead of the clock is not overtaken by it.
#[test]
fn tokens_go_on_from_what_others_counted() {
    let server = Server::start();
    let locks = fenced(&server);
    let first = token(&locks);
    let ahead = first + 3_600_000_000;
    server.ask::<String>(&["SET", COUNTER, &ahead.to_string()]);
    let java: u64 = server.ask(&["INCR", COUNTER]);
    assert_eq!((java, token(&locks), token(&locks)), (ahead + 1, ahead + 2, ahead + 3));
    server.ask::<String>(&["SET", COUNTER, "7"]);
    assert!(token(&locks) > first, "a counter that Java began anew");
}

/// What an acquire refuses is not shown as a token, and what it counts on from is no error.
#[test]
fn the_last_token_is_read_as_an_acquire_reads_it() {
    let server = Server::start();
    let (locks, counter) = (fenced(&server), "redisson_lock_token:{n}");
    server.ask::<String>(&["SET", counter, "+5"]);
    assert_err!(locks.last_token("n"), Refused);
    assert_err!(locks.try_lock("n"), Refused);
    server.ask::<String>(&["SET", counter, "0"]);
    assert_eq!(locks.last_token("n").unwrap(), None);
    assert_eq!(Some(token(&locks)), locks.last_token("n").unwrap());
}

/// Each copy of an acquire whose answer was lost has a token, and whoever comes after it a greater one.
#[test]
fn an_acquire_that_is_asked_for_again_has_another_token() {
    let server = Server::start();
    let mut connection = server.connection();
    let script = redis::Script::new(&crate::lua::script("fenced/acquire"));
    let mut ask = |owner: &str| -> redis::Value {
        let mut call = script.key("n");
        call.key(COUNTER).arg("9007199254740991").arg(60_000).arg(owner).arg(0);
        crate::lua::unnamed(call.invoke(&mut connection).unwrap(), "9007199254740991")
    };
    let mut tokens: Vec<u64> = (0..3).map(|_| redis::from_redis_value(ask("a:1:1")).unwrap()).collect();
    assert!(matches!(ask("b:1:1"), redis::Value::Int(left) if left > 0), "it is taken");
    assert_eq!(server.ask::<i64>(&["DEL", "n"]), 1);
    tokens.push(redis::from_redis_value(ask("b:1:1")).unwrap());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    server.ask::<i64>(&["DEL", "n"]);
}

/// The first answer is lost, and the second request comes once more when the lock is free: what it takes then is nobody's, and is swept.
#[test]
fn copies_of_an_acquire_count_on_for_nobody() {
    let server = Server::start();
    let before = token(&fenced(&server));
    let (proxy, is_acquire) = (Proxy::new(server.socket()), runs("fenced/acquire"));
    let (tell, sent) = crossbeam_channel::unbounded();
    let mut is_first = true;
    proxy.set(move |_, flow, data| {
        if !is_acquire(flow, data) {
            return pass(data);
        }
        tell.send(data.to_vec()).unwrap();
        if std::mem::take(&mut is_first) { vec![Step::Copy(data.to_vec()), Step::Cut] } else { pass(data) }
    });
    let locks = FencedLock::connect(&proxy.url()).unwrap();
    let held = token(&locks);
    let copies: Vec<_> = sent.try_iter().collect();
    assert!(copies.len() == 2 && before < held, "{held} after {before}");
    let answer = deliver(&server.socket(), &copies[1]).unwrap();
    let late = answer.lines().nth(2).and_then(|line| line.parse().ok()).expect(&answer);
    let next = token(&fenced(&server));
    assert!(held < late && late < next, "{held}, {late}, {next}");
}

#[test]
fn a_group_has_the_tokens_of_its_members() {
    let server = Server::start();
    let (locks, plain) = (fenced(&server), server.locks());
    let all = MultiLock::of([(&locks as &dyn RedLock, "n"), (&plain, "m")]);
    let guard = all.guard().unwrap();
    let tokens: Vec<_> = guard.hold().holds().iter().map(Hold::token).collect();
    assert_eq!(tokens.iter().flatten().count(), 1, "{tokens:?}");
    drop(guard);
}

#[test]
fn a_strict_client_has_tokens_too() {
    let server = Server::start();
    let client = server.builder().watchdog_timeout(harness::threads::WATCHED).strict(true).build().unwrap();
    let locks = FencedLock::new(&client);
    assert!(!locks.try_lock("n").unwrap());
    let first = token(&locks);
    assert!(token(&locks) > first);
}

#[test]
fn a_lock_that_nobody_wants_else_costs_two_commands() {
    let server = Server::start();
    let locks = fenced(&server);
    token(&locks);
    let commands = server.commands_during(|| drop(locks.guard("n").unwrap()));
    assert_eq!(commands.len(), 2, "{commands:?}");
}

/// What is wrong with a counter that is a string is in tests/faults/data.rs.
#[test]
fn a_counter_of_another_type_takes_no_lock_and_no_lock_takes_a_counter() {
    let server = Server::start();
    let locks = fenced(&server);
    server.ask::<i64>(&["HSET", COUNTER, "a", "b"]);
    assert_err!(locks.lock("n"), Refused);
    assert_err!(locks.last_token("n"), Refused);
    assert!(!locks.is_locked("n").unwrap());
    server.ask::<i64>(&["DEL", COUNTER]);
    server.ask::<String>(&["SET", COUNTER, "x"]);
    assert!(locks.last_token("n").unwrap_err().to_string().contains("TOKEN"));
    let error = server.locks().lock(COUNTER).unwrap_err();
    assert!(matches!(&error, Error::Config { .. }) && error.to_string().contains("tokens"), "{error}");
}

/// Held by nobody who could write: who was paused has a smaller token than whoever came after.
#[test]
fn a_resource_that_compares_tokens_refuses_who_was_paused() {
    let server = Server::start();
    let (paused, next) = (fenced(&server), fenced(&server));
    let late = paused.request("n").lease(ms(50)).guard().unwrap().unwrap();
    let guard = next.guard("n").unwrap();
    let seen = guard.token().max(late.token());
    assert!(guard.token() == seen && late.token() < seen && !late.is_valid());
    drop(guard);
    assert_err!(late.unlock(), Lost);
}

#[test]
fn the_debug_form_names_the_kind() {
    let locks = FencedLock::new(&Client::connect("redis://127.0.0.1:1/").unwrap());
    assert!(format!("{locks:?}").starts_with("FencedLock") && format!("{:?}", locks.client()).contains("Client"));
}
