//! The acquire in turn: who gets a free lock, who is told to wait for whom, and where one queues.

mod refusals;

use super::told::heard;
use super::{PAST, ahead, assert_code, assert_lock, put};
use crate::lua;
use crate::server::Server;
use crate::threads::{LONG, eventually};
use redis::{RedisResult, Value};

pub(super) const QUEUE: &str = "redlatch_queue:{n}";
pub(super) const MARK: &str = "redlatch_turn:{n}";

/// Tickets with offers, and the ears of their clients.
pub(super) const FIRST: &str = "aa:1f.2.7.9.1500";
pub(super) const SECOND: &str = "bb:2.1.8.3.1000";
pub(super) const EARS: [&str; 2] = ["redlatch_ear:aa", "redlatch_ear:bb"];

/// One who asks for the lock in turn.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) ticket: &'a str,
    /// Its names before.
    pub(super) before: &'a str,
    /// 0: it does not queue; -1: it leaves.
    pub(super) ttl: i64,
}

/// What it was told.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Taken,
    Busy { left: i64, rank: i64, promised: i64, foreign: i64 },
}

impl<'a> Ask<'a> {
    pub(super) fn by_ticket(ticket: &'a str) -> Self {
        Self { ticket, before: "", ttl: 15_000 }
    }

    /// One who has not had to wait yet.
    pub(super) fn at_once() -> Self {
        Self { ttl: 0, ..Self::by_ticket("") }
    }

    /// The arguments before those of the plain script, behind the deadline.
    fn more(self) -> [String; 5] {
        let [queue, mark, ticket, before] = [QUEUE, MARK, self.ticket, self.before].map(str::to_owned);
        [queue, mark, ticket, before, self.ttl.to_string()]
    }

    pub(super) fn by(self, connection: &mut redis::Connection, deadline: &str, lease: &str) -> RedisResult<Value> {
        let script = lua::script("in_turn+acquire");
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg("n").arg(deadline).arg(&self.more()[..]).arg(&[lease, "me", "1"]);
        command.query(connection).map(|said| lua::unnamed(said, deadline))
    }

    pub(super) fn at(self, server: &Server) -> Said {
        understood(self.by(&mut server.connection(), &ahead(server), "60000").unwrap())
    }
}

pub(super) fn understood(reply: Value) -> Said {
    if reply == Value::Nil {
        return Said::Taken;
    }
    let [left, rank, promised, foreign] = redis::from_redis_value::<Vec<i64>>(reply).unwrap()[..] else {
        panic!("an array of four")
    };
    Said::Busy { left, rank, promised, foreign }
}

/// The rank of one who is queued behind a holder.
#[track_caller]
fn queued(said: &Said) -> i64 {
    match *said {
        Said::Busy { left: 1.., rank, promised: 0, .. } => rank,
        _ => panic!("{said:?}"),
    }
}

/// The rank of one who is told that the free lock is left to foreigners for that long at most.
#[track_caller]
fn promised(said: &Said, within: i64) -> i64 {
    match *said {
        Said::Busy { left: -2, rank, promised, foreign: 0 } if promised > 0 && promised <= within => rank,
        _ => panic!("{said:?}"),
    }
}

/// A queue by hand, each with the number of its place as its arrival.
pub(super) fn line_up(server: &Server, tickets: &[&str]) {
    for (place, ticket) in tickets.iter().enumerate() {
        server.ask::<i64>(&["ZADD", QUEUE, &(place + 1).to_string(), ticket]);
    }
}

pub(super) fn line(server: &Server) -> Vec<String> {
    server.ask(&["ZRANGE", QUEUE, "0", "-1"])
}

fn mark(server: &Server, ms: &str) {
    server.ask::<String>(&["SET", MARK, "foreign", "PX", ms]);
}

fn now(server: &Server) -> i64 {
    let (seconds, micros): (i64, i64) = server.ask(&["TIME"]);
    seconds * 1_000_000 + micros
}

pub(super) fn clean(server: &Server) {
    server.ask::<i64>(&["DEL", "n", QUEUE, MARK]);
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.ask(&["KEYS", "*"]);
    keys.sort();
    keys
}

#[test]
fn a_free_lock_is_taken_and_leaves_no_queue() {
    let server = Server::start();
    for ask in [Ask::at_once(), Ask::by_ticket("a:1")] {
        assert_eq!(ask.at(&server), Said::Taken);
        assert_lock(&server, "n", "me", "1", 60_000);
        assert_eq!(keys(&server), ["n"]);
        // A copy of the same attempt.
        assert_eq!(ask.at(&server), Said::Taken);
        assert_eq!(keys(&server), ["n"]);
        clean(&server);
    }
}

/// A lease that ended, a release of a JVM or a force unlock left it free.
#[test]
fn a_free_lock_beside_a_queue_is_given_to_the_first() {
    let server = Server::start();
    for (ask, rank) in [(Ask::at_once(), -1), (Ask::by_ticket("cc:3"), 1), (Ask::by_ticket(SECOND), 0)] {
        line_up(&server, &[FIRST, SECOND]);
        let heard = heard(&server, &EARS, || {
            assert!(
                matches!(ask.at(&server), Said::Busy { left: 1..=1_500, promised: 0, rank: seen, .. } if seen == rank)
            );
        });
        assert_eq!(heard, [format!("{} {FIRST} given", EARS[0])]);
        assert_lock(&server, "n", "aa:7:9", "1", 1_500);
        assert_eq!(line(&server)[0], SECOND);
        clean(&server);
    }
}

#[test]
fn the_first_takes_a_free_lock() {
    let server = Server::start();
    line_up(&server, &[FIRST, SECOND]);
    let heard = heard(&server, &EARS, || assert_eq!(Ask::by_ticket(FIRST).at(&server), Said::Taken));
    assert_eq!((heard, line(&server)), (Vec::new(), vec![SECOND.to_owned()]));
    clean(&server);
}

#[test]
fn who_is_not_queued_takes_what_only_the_dead_wait_for() {
    let server = Server::start();
    for ask in [Ask::at_once(), Ask::by_ticket("b:1")] {
        line_up(&server, &["dd:1.1.1.1.1000", "gone:2", "ee:3.1.1.1.1500"]);
        assert_eq!(ask.at(&server), Said::Taken);
        assert_eq!(keys(&server), ["n"], "they are removed");
        clean(&server);
    }
}

#[test]
fn what_is_left_to_foreigners_is_not_taken() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    mark(&server, "900");
    let heard = heard(&server, &EARS, || {
        assert_eq!(promised(&Ask::by_ticket(FIRST).at(&server), 900), 0);
        assert_eq!(promised(&Ask::by_ticket("a:1").at(&server), 900), 1);
        assert_eq!(promised(&Ask::at_once().at(&server), 900), -1);
    });
    assert_eq!(heard, [""; 0], "nor given");
    assert_eq!((line(&server), server.pttl("n")), (vec![FIRST.to_owned(), "a:1".to_owned()], -2));
    server.ask::<i64>(&["DEL", MARK]);
    assert_eq!(Ask::by_ticket(FIRST).at(&server), Said::Taken);
    clean(&server);
}

/// Nor does the mark stand for anything while the lock is held.
#[test]
fn a_mark_that_none_of_ours_left_promises_nothing() {
    let server = Server::start();
    let marks: [&[&str]; 4] = [
        &["SET", MARK, "foreign"],
        &["SET", MARK, "foreign", "PX", "60000"],
        &["SET", MARK, "foreign", "PX", "9223372036854"],
        &["LPUSH", MARK, "foreign"],
    ];
    for mark in marks {
        let _: Value = server.ask(mark);
        assert_eq!(Ask::by_ticket("a:1").at(&server), Said::Taken, "{mark:?}");
        clean(&server);
    }
    put(&server, "n", "other", "1", "40000");
    mark(&server, "900");
    assert_eq!(queued(&Ask::by_ticket("a:1").at(&server)), 0);
    clean(&server);
}

#[test]
fn who_finds_the_lock_held_queues_behind_those_who_came_before() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let before = now(&server);
    for (ticket, rank) in [("b:1", 0), ("a:1", 1), ("c:1", 2), ("a:1", 1), ("b:1", 0)] {
        assert_eq!(queued(&Ask::by_ticket(ticket).at(&server)), rank, "{ticket}");
    }
    let arrival = server.ask::<i64>(&["ZSCORE", QUEUE, "b:1"]);
    assert!((before..=now(&server)).contains(&arrival), "{arrival}");
    server.ask::<i64>(&["ZREM", QUEUE, "b:1"]);
    assert_eq!(queued(&Ask::by_ticket("b:1").at(&server)), 2, "who is not there any more comes last");
    assert_lock(&server, "n", "other", "1", 40_000);
    clean(&server);
}

#[test]
fn who_does_not_queue_is_told_of_the_holder() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    assert_eq!(queued(&Ask::at_once().at(&server)), -1);
    assert_eq!(keys(&server), ["n"]);
    server.ask::<i64>(&["PERSIST", "n"]);
    assert!(matches!(Ask::by_ticket("a:1").at(&server), Said::Busy { left: -1, rank: 0, promised: 0, .. }));
    clean(&server);
}

/// Owners of ours have three parts. An owner that others wrote in the same form is taken for one of ours.
#[test]
fn a_holder_that_is_none_of_ours_is_told_apart() {
    let server = Server::start();
    let ours = ["uuid:1:2", "c4b30d92-0b1a-4c5e-9b1e-2f2d9f3a7c11:12:345"];
    let foreign = ["uuid:1", "other", "", "a:b:c", "uuid:1:", "uuid:1:2:3", "\0:1"];
    for (owner, expected) in ours.map(|owner| (owner, 0)).into_iter().chain(foreign.map(|owner| (owner, 1))) {
        put(&server, "n", owner, "1", "40000");
        let said = Ask::by_ticket("a:1").at(&server);
        assert!(matches!(said, Said::Busy { foreign, .. } if foreign == expected), "{owner:?}: {said:?}");
        clean(&server);
    }
}

/// The first is dead, and the next is who asks: it is given the lock, and has no place any more.
#[test]
fn who_is_given_the_lock_by_its_own_ask_has_it() {
    let server = Server::start();
    line_up(&server, &["gone:1.1.1.1.1000", "aa:1f.2.me.9.1500", FIRST]);
    let own = "aa:1f.2.7.9.1500";
    let mut connection = server.connection();
    let args = [&*ahead(&server), QUEUE, MARK, own, "", "15000", "60000", "aa:7:9", "1"];
    let heard = heard(&server, &EARS, || {
        let mut ask = redis::cmd("EVAL");
        ask.arg(lua::script("in_turn+acquire")).arg(1).arg("n").arg(&args);
        assert_eq!(lua::unnamed(ask.query(&mut connection).unwrap(), args[0]), Value::Nil);
    });
    assert_eq!(heard, [format!("{} {own} given", EARS[0])]);
    assert_lock(&server, "n", "aa:7:9", "1", 60_000);
    assert_eq!(line(&server), [""; 0]);
    clean(&server);
}

/// Those who came before the server's clock was put back have arrivals that it has not reached.
#[test]
fn newcomers_stay_in_order_when_the_clock_steps_back() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let far = now(&server) + 3_600_000_000;
    server.ask::<i64>(&["ZADD", QUEUE, &far.to_string(), "m:1"]);
    for (place, ticket) in ["z:1", "y:1", "a:1"].into_iter().enumerate() {
        assert_eq!(queued(&Ask::by_ticket(ticket).at(&server)), place as i64 + 1, "{ticket}");
    }
    assert_eq!(line(&server), ["m:1", "z:1", "y:1", "a:1"]);
    clean(&server);
}

#[test]
fn a_join_refreshes_the_queues_time_and_never_shortens_it() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let left_after = |ttl: i64| {
        queued(&Ask { ttl, ..Ask::by_ticket("a:1") }.at(&server));
        server.pttl(QUEUE)
    };
    let near = |left: i64, ttl: i64| assert!(left <= ttl && left > ttl - 5_000, "{left} of {ttl} ms");
    near(left_after(30_000), 30_000);
    near(left_after(60_000), 60_000);
    near(left_after(30_000), 60_000);
    server.ask::<i64>(&["PEXPIRE", QUEUE, "10"]);
    near(left_after(30_000), 30_000);
    server.ask::<i64>(&["PERSIST", QUEUE]);
    near(left_after(30_000), 30_000);
    clean(&server);
}

/// Else it would outlive everybody.
#[test]
fn a_queue_that_gets_no_end_is_given_up() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    assert_eq!(queued(&Ask { ttl: i64::MAX, ..Ask::by_ticket("a:1") }.at(&server)), -1);
    assert_eq!(keys(&server), ["n"]);
    clean(&server);
}

#[test]
fn an_ask_takes_the_place_of_the_one_before_it() {
    let server = Server::start();
    line_up(&server, &["a:1.1"]);
    server.ask::<i64>(&["PEXPIRE", QUEUE, "15000"]);
    put(&server, "n", "other", "1", "40000");
    let outside = Ask { before: "1.1", ttl: 0, ..Ask::by_ticket("a:1.0") };
    assert!(matches!(outside.at(&server), Said::Busy { .. }));
    assert!(server.pttl(QUEUE) > 0, "it keeps its end");
    server.ask::<i64>(&["DEL", QUEUE]);
    line_up(&server, &["a:1.1", "b:1"]);
    let again = Ask { before: "1.0 1.1", ..Ask::by_ticket("a:1.2") };
    assert!(matches!(again.at(&server), Said::Busy { rank: 0, .. }));
    assert_eq!(line(&server), ["a:1.2", "b:1"]);
    assert!(matches!(again.at(&server), Said::Busy { rank: 0, .. }), "a copy of it");
    assert_eq!(server.ask::<f64>(&["ZSCORE", QUEUE, "a:1.2"]), 1.0);
    server.ask::<i64>(&["DEL", "n"]);
    assert_eq!(Ask { before: "1.2", ..Ask::by_ticket("a:1.3") }.at(&server), Said::Taken);
    assert_eq!(line(&server), ["b:1"], "it leaves by the name that it had");
    clean(&server);
}

/// By whatever name it has it.
#[test]
fn who_asks_for_the_last_time_keeps_no_place() {
    let server = Server::start();
    for before in ["", "1f.2.7.9.1500"] {
        put(&server, "n", "other", "1", "40000");
        line_up(&server, &[FIRST, SECOND]);
        let ticket = if before.is_empty() { FIRST } else { "aa:1f.3.7.9.1500" };
        let said = Ask { before, ttl: -1, ..Ask::by_ticket(ticket) }.at(&server);
        assert_eq!(queued(&said), -2);
        assert_eq!(line(&server), [SECOND]);
        clean(&server);
    }
}

/// The first takes it, and of others the first is given it.
#[test]
fn who_asks_for_the_last_time_takes_what_is_free_for_it() {
    let server = Server::start();
    let last = |ticket| Ask { ttl: -1, ..Ask::by_ticket(ticket) };
    line_up(&server, &[FIRST, SECOND]);
    assert_eq!(last(FIRST).at(&server), Said::Taken);
    assert_eq!(line(&server), [SECOND]);
    clean(&server);
    line_up(&server, &[FIRST, SECOND]);
    let heard = heard(&server, &EARS, || assert_eq!(queued(&last(SECOND).at(&server)), -2));
    assert_eq!(heard, [format!("{} {FIRST} given", EARS[0])]);
    assert_eq!(line(&server), Vec::<String>::new());
    clean(&server);
}
