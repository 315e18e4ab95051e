//! The acquire in turn: who gets a free lock, who is told to wait for whom, and where one queues.

mod refusals;

use super::told::heard;
use super::{PAST, ahead, assert_code, assert_lock, put};
use crate::lua;
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually};
use redis::{RedisResult, Value};

pub(super) const QUEUE: &str = "redlatch_queue:{n}";
pub(super) const MARK: &str = "redlatch_turn:{n}";

/// How long a turn is left to the head, ms.
pub(super) const TURN: &str = "900";

/// One who asks for the lock in turn.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) ticket: &'a str,
    /// Its names before.
    pub(super) before: &'a str,
    /// 0: a newcomer; -1: it does not queue.
    pub(super) arrival: i64,
    pub(super) ttl: i64,
}

/// What it was told.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Taken,
    Busy { left: i64, rank: i64, promised: i64, arrival: i64, foreign: i64 },
}

impl<'a> Ask<'a> {
    pub(super) fn newcomer(ticket: &'a str) -> Self {
        Self { ticket, before: "", arrival: 0, ttl: 15_000 }
    }

    fn back(ticket: &'a str, arrival: i64) -> Self {
        Self { arrival, ..Self::newcomer(ticket) }
    }

    /// One who has not had to wait yet.
    pub(super) fn at_once() -> Self {
        Self { arrival: -1, ..Self::newcomer("") }
    }

    /// The arguments before those of the plain script, behind the deadline.
    fn more(self) -> [String; 7] {
        let (arrival, ttl) = (self.arrival.to_string(), self.ttl.to_string());
        let [queue, mark, ticket, before, turn] = [QUEUE, MARK, self.ticket, self.before, TURN].map(str::to_owned);
        [queue, mark, ticket, before, arrival, ttl, turn]
    }

    pub(super) fn by(self, connection: &mut redis::Connection, deadline: &str, lease: &str) -> RedisResult<Value> {
        let script = lua::script("in_turn+acquire");
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg("n").arg(deadline).arg(&self.more()[..]).arg(&[lease, "me", "1"]);
        command.query(connection)
    }

    pub(super) fn at(self, server: &Server) -> Said {
        understood(self.by(&mut server.connection(), &ahead(server), "60000").unwrap())
    }
}

pub(super) fn understood(reply: Value) -> Said {
    if reply == Value::Nil {
        return Said::Taken;
    }
    let [left, rank, promised, arrival, foreign] = redis::from_redis_value::<Vec<i64>>(reply).unwrap()[..] else {
        panic!("an array of five")
    };
    Said::Busy { left, rank, promised, arrival, foreign }
}

/// Rank and arrival of one who is queued behind a holder.
#[track_caller]
fn queued(said: &Said) -> (i64, i64) {
    match *said {
        Said::Busy { left: 1.., rank, promised: 0, arrival, .. } => (rank, arrival),
        _ => panic!("{said:?}"),
    }
}

/// Rank of one who is told that the free lock is promised to another for that long at most.
#[track_caller]
fn promised(said: &Said, within: i64) -> i64 {
    match *said {
        Said::Busy { left: -2, rank, promised, .. } if promised > 0 && promised <= within => rank,
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

fn mark(server: &Server, whose: &str, ms: &str) {
    server.ask::<String>(&["SET", MARK, whose, "PX", ms]);
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
    for ask in [Ask::at_once(), Ask::newcomer("a:1"), Ask::back("a:1", 5)] {
        assert_eq!(ask.at(&server), Said::Taken);
        assert_lock(&server, "n", "me", "1", 60_000);
        assert_eq!(keys(&server), ["n"]);
        // A copy of the same attempt.
        assert_eq!(ask.at(&server), Said::Taken);
        assert_eq!(keys(&server), ["n"]);
        clean(&server);
    }
}

#[test]
fn what_is_promised_to_another_is_not_taken() {
    let server = Server::start();
    line_up(&server, &["head:1"]);
    mark(&server, "head", "900");
    assert_eq!(promised(&Ask::at_once().at(&server), 900), -1);
    assert_eq!(promised(&Ask::newcomer("a:1").at(&server), 900), 1);
    assert_eq!(promised(&Ask::newcomer("b:1").at(&server), 900), 2);
    assert_eq!(promised(&Ask::newcomer("a:1").at(&server), 900), 1);
    assert_eq!(line(&server), ["head:1", "a:1", "b:1"]);
    assert_eq!(server.pttl("n"), -2);
    clean(&server);
}

#[test]
fn the_head_takes_what_is_promised_to_it() {
    let server = Server::start();
    line_up(&server, &["head:1", "a:1"]);
    mark(&server, "head", "900");
    assert_eq!(Ask::back("head:1", 1).at(&server), Said::Taken);
    assert_eq!(line(&server), ["a:1"]);
    assert_eq!(server.pttl(MARK), -2, "the turn is over");
    clean(&server);
}

#[test]
fn a_turn_of_foreigners_is_not_the_heads_either() {
    let server = Server::start();
    line_up(&server, &["head:1"]);
    mark(&server, "foreign", "900");
    assert_eq!(promised(&Ask::back("head:1", 1).at(&server), 900), 0);
    server.ask::<i64>(&["DEL", MARK]);
    assert_eq!(Ask::back("head:1", 1).at(&server), Said::Taken);
    clean(&server);
}

#[test]
fn who_takes_a_lock_that_was_promised_to_nobody_passes_those_before_it_and_tells_them() {
    let server = Server::start();
    line_up(&server, &["a:1", "b:2", "c:3", "d:4"]);
    let heard = heard(&server, &["redlatch_ear:a", "redlatch_ear:b", "redlatch_ear:d"], || {
        assert_eq!(Ask::back("c:3", 3).at(&server), Said::Taken);
    });
    assert_eq!(heard, ["redlatch_ear:a a:1 -1", "redlatch_ear:b b:2 -1"]);
    assert_eq!(line(&server), ["d:4"]);
    clean(&server);
}

/// Else who comes between two turns would pass over those who wait each time.
#[test]
fn who_is_not_queued_leaves_the_lock_to_those_who_are() {
    let server = Server::start();
    for (ask, rank) in [(Ask::at_once(), -1), (Ask::newcomer("c:1"), 2)] {
        line_up(&server, &["a:1", "b:1"]);
        let heard = heard(&server, &["redlatch_ear:a", "redlatch_ear:b"], || {
            assert_eq!(promised(&ask.at(&server), 900), rank);
            // The mark says so, and nobody is told again.
            assert_eq!(promised(&ask.at(&server), 900), rank);
        });
        assert_eq!(heard, ["redlatch_ear:a a:1 0", "redlatch_ear:b b:1 1"]);
        assert_eq!((server.pttl("n"), server.ask::<String>(&["GET", MARK])), (-2, "head".to_owned()));
        clean(&server);
    }
}

#[test]
fn who_is_not_queued_takes_what_only_the_dead_wait_for() {
    let server = Server::start();
    for ask in [Ask::at_once(), Ask::newcomer("b:1")] {
        line_up(&server, &["gone:1", "gone:2", "gone:3"]);
        assert_eq!(ask.at(&server), Said::Taken);
        assert_eq!(keys(&server), ["n"], "they are removed");
        clean(&server);
    }
}

/// It was passed over, and the turn was left to the one behind it meanwhile: with its old arrival it is the head again.
#[test]
fn who_comes_back_to_the_head_takes_what_was_promised_to_the_next() {
    let server = Server::start();
    line_up(&server, &["x:0", "b:1"]);
    server.ask::<i64>(&["ZREM", QUEUE, "x:0"]);
    mark(&server, "head", "900");
    assert_eq!(Ask::back("a:1", 1).at(&server), Said::Taken);
    assert_eq!(line(&server), ["b:1"]);
    clean(&server);
}

#[test]
fn who_finds_the_lock_held_queues_by_its_arrival() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let before = now(&server);
    let (rank, first) = queued(&Ask::newcomer("b:1").at(&server));
    assert!(rank == 0 && first >= before && first <= now(&server), "{first}");
    let (rank, second) = queued(&Ask::newcomer("a:1").at(&server));
    assert!(rank == 1 && second > first, "{second} after {first}");
    assert_eq!(queued(&Ask::back("a:1", second).at(&server)), (1, second));
    // It was passed over, and comes again with what it had.
    server.ask::<i64>(&["ZREM", QUEUE, "b:1"]);
    assert_eq!(queued(&Ask::back("b:1", first).at(&server)), (0, first));
    assert_eq!(server.ask::<i64>(&["ZSCORE", QUEUE, "b:1"]), first);
    assert_lock(&server, "n", "other", "1", 40_000);
    clean(&server);
}

/// The head waits to be told that the lock is free, and would not be as long as the one before it is stopped.
#[test]
fn who_comes_back_to_be_the_head_tells_the_one_that_was() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    line_up(&server, &["a:0", "b:1", "c:1"]);
    server.ask::<i64>(&["ZREM", QUEUE, "a:0"]);
    let ears = ["redlatch_ear:b", "redlatch_ear:c"];
    let tells = |ask: Ask<'_>| heard(&server, &ears, || assert!(queued(&ask.at(&server)).0 >= 0));
    assert_eq!(tells(Ask::back("a:1", 1)), ["redlatch_ear:b b:1 1"]);
    assert_eq!(tells(Ask::back("a:1", 1)), [""; 0], "it is there already");
    assert_eq!(tells(Ask::newcomer("d:1")), [""; 0]);
    assert_eq!(line(&server), ["a:1", "b:1", "c:1", "d:1"]);
    clean(&server);
}

#[test]
fn who_does_not_queue_is_told_of_the_holder() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let (rank, arrival) = queued(&Ask::at_once().at(&server));
    assert_eq!((rank, arrival), (-1, -1), "as it asked");
    server.ask::<i64>(&["PERSIST", "n"]);
    assert!(matches!(Ask::newcomer("a:1").at(&server), Said::Busy { left: -1, rank: 0, promised: 0, .. }));
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
        let said = Ask::newcomer("a:1").at(&server);
        assert!(matches!(said, Said::Busy { foreign, .. } if foreign == expected), "{owner:?}: {said:?}");
        clean(&server);
    }
    line_up(&server, &["head:1"]);
    mark(&server, "foreign", "900");
    assert!(matches!(Ask::newcomer("a:1").at(&server), Said::Busy { left: -2, foreign: 0, .. }), "nobody holds it");
    clean(&server);
}

/// Nor does a mark stand for anything while the lock is held.
#[test]
fn a_held_lock_is_promised_to_nobody() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    line_up(&server, &["head:1"]);
    mark(&server, "head", "900");
    assert_eq!(queued(&Ask::newcomer("a:1").at(&server)).0, 1);
    clean(&server);
}

#[test]
fn an_arrival_in_the_future_becomes_now() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let far = now(&server) + 3_600_000_000;
    let (_, arrival) = queued(&Ask::back("a:1", far).at(&server));
    assert!(arrival < far && arrival <= now(&server), "{arrival}");
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
        let (rank, arrival) = queued(&Ask::newcomer(ticket).at(&server));
        assert!(rank == place as i64 + 1 && arrival >= far, "{ticket}: {rank}, {arrival}");
    }
    assert_eq!(line(&server), ["m:1", "z:1", "y:1", "a:1"]);
    clean(&server);
}

#[test]
fn a_join_refreshes_the_queues_time_and_never_shortens_it() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    let left_after = |ttl: i64| {
        queued(&Ask { ttl, ..Ask::newcomer("a:1") }.at(&server));
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
    let (rank, _) = queued(&Ask { ttl: i64::MAX, ..Ask::newcomer("a:1") }.at(&server));
    assert_eq!(rank, -1);
    assert_eq!(keys(&server), ["n"]);
    clean(&server);
}

#[test]
fn a_mark_that_none_of_ours_left_promises_nothing() {
    let server = Server::start();
    let marks: [&[&str]; 5] = [
        &["SET", MARK, "head"],
        &["SET", MARK, "foreign"],
        &["SET", MARK, "head", "PX", "60000"],
        &["SET", MARK, "foreign", "PX", "9223372036854"],
        &["LPUSH", MARK, "head"],
    ];
    for mark in marks {
        line_up(&server, &["head:1"]);
        let _: Value = server.ask(mark);
        assert_eq!(Ask::newcomer("a:1").at(&server), Said::Taken, "{mark:?}");
        clean(&server);
    }
}

#[test]
fn a_mark_is_void_when_nobody_queues() {
    let server = Server::start();
    mark(&server, "head", "900");
    assert_eq!(Ask::at_once().at(&server), Said::Taken);
    assert_eq!(keys(&server), ["n"]);
    clean(&server);
}
