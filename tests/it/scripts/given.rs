//! The release that gives the lock to the head of the queue, and what it does about a head that cannot have it.

use super::in_turn::{Ask, MARK, QUEUE, Said, clean, line, line_up};
use super::told::{LAST, Release, heard};
use super::{assert_lock, put, run};
use crate::server::Server;
use redis::RedisResult;

/// One whose ear is that of `aa`, for its thread 7 and its hold 9.
const FIRST: &str = "aa:1f.2.7.9.1500";
const SECOND: &str = "bb:2.1.8.3.1000";
const EARS: [&str; 2] = ["redlatch_ear:aa", "redlatch_ear:bb"];
const CHANNEL: &str = "redisson_lock__channel:{n}";

/// What a release of the lock says.
fn said(server: &Server, release: Release) -> [i64; 3] {
    put(server, "n", "me", "1", "40000");
    redis::from_redis_value(release.at(server).unwrap()).unwrap()
}

#[test]
fn the_head_has_the_lock_and_is_told() {
    let server = Server::start();
    for (second, news) in [("0", &[][..]), ("1", &[format!("{} bb:2 after:1500", EARS[1])])] {
        line_up(&server, &[FIRST, SECOND]);
        let release = Release { second, ..LAST };
        let heard = heard(&server, &[&EARS[..], &[CHANNEL]].concat(), || assert_eq!(said(&server, release), [1, 2, 0]));
        assert_eq!(heard, [&[format!("{} {FIRST} given", EARS[0])][..], news].concat(), "nobody else is told");
        assert_lock(&server, "n", "aa:7:9", "1", 1_500);
        assert_eq!((line(&server), server.pttl(MARK)), (vec![SECOND.to_owned()], -2));
        clean(&server);
    }
}

/// In a cluster of shards the lock is before the client in the name of its ear.
#[test]
fn the_owner_is_the_end_of_the_ear() {
    let server = Server::start();
    let ticket = "{n}:x:1a2b-3c:ff.1.2.3.100";
    line_up(&server, &[ticket]);
    let heard = heard(&server, &["redlatch_ear:{n}:x:1a2b-3c"], || assert_eq!(said(&server, LAST), [1, 2, 0]));
    assert_eq!(heard, [format!("redlatch_ear:{{n}}:x:1a2b-3c {ticket} given")]);
    assert_lock(&server, "n", "1a2b-3c:2:3", "1", 100);
    clean(&server);
}

#[test]
fn the_dead_get_nothing_and_are_removed() {
    let server = Server::start();
    line_up(&server, &["dd:1.1.1.1.1000", "ee:1.1.1.1.1000", SECOND, FIRST]);
    let heard = heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 2, 0]));
    assert_eq!(heard, [format!("{} {SECOND} given", EARS[1]), format!("{} aa:1f after:1000", EARS[0])]);
    assert_lock(&server, "n", "bb:8:3", "1", 1_000);
    assert_eq!(line(&server), [FIRST]);
    clean(&server);
}

/// Whoever may write there can line up what he likes: PEXPIRE by zero would delete the lock and say that it had not.
#[test]
fn what_is_no_offer_is_told_and_gets_nothing() {
    let server = Server::start();
    let no_offers = ["0", "9", "60001", "9223372036854775808", "-5", "1e3", "0x64", "", " 500", "500 "];
    for ticket in no_offers.map(|offer| format!("aa:1.1.7.9.{offer}")).iter().map(String::as_str).chain([
        "aa:1",
        "aa:1.1.7.9",
        "aa:1.1.7.1000",
        "aa:1.1.x.9.1000",
        "aa:1.1.7.9.1000.1",
        "aa:g.1.7.9.1000",
    ]) {
        line_up(&server, &[ticket, SECOND]);
        let heard = heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 1, 0], "{ticket}"));
        let known = ticket.split('.').next().unwrap();
        assert_eq!(heard[0], format!("{} {known} 0", EARS[0]));
        assert_eq!((server.pttl("n"), line(&server).len()), (-2, 2), "{ticket}");
        clean(&server);
    }
}

#[test]
fn a_release_to_all_and_one_to_foreigners_give_nothing() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    let to_all = Release { to_all: "1", ..LAST };
    heard(&server, &EARS, || assert_eq!(said(&server, to_all), [1, 1, 0]));
    let to_foreigners = Release { foreign_turn: "900", ..LAST };
    // The listener of the channel is one of theirs.
    heard(&server, &[&EARS[..], &[CHANNEL]].concat(), || assert_eq!(said(&server, to_foreigners)[1], -1));
    assert_eq!((server.pttl("n"), line(&server)), (-2, vec![FIRST.to_owned()]));
    clean(&server);
}

#[test]
fn no_foreigner_listens_so_the_head_has_the_lock() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    let to_foreigners = Release { foreign_turn: "900", ..LAST };
    heard(&server, &EARS, || assert_eq!(said(&server, to_foreigners), [1, 2, 0]));
    assert_lock(&server, "n", "aa:7:9", "1", 1_500);
    clean(&server);
}

/// Nobody is told, so nobody may have it: the lock is free, and its queue as it was.
#[test]
fn who_may_not_give_leaves_the_lock_free() {
    let server = Server::start();
    for rules in ["~n +@all &redisson*", "~* +@all -publish", "~* +@all -pubsub", "~* +@all -zrem", "~* +@all -pexpire"]
    {
        if rules.contains('&') && server.version() < (7, 0) {
            // Up to then a script publishes wherever it likes.
            continue;
        }
        let user =
            server.let_in("user", "pw", &if rules.contains('&') { rules.to_owned() } else { format!("{rules} &*") });
        let mut user = redis::Client::open(user).unwrap().get_connection().unwrap();
        line_up(&server, &[FIRST, SECOND]);
        server.ask::<i64>(&["PEXPIRE", QUEUE, "15000"]);
        put(&server, "n", "me", "1", "40000");
        let mut released = || -> RedisResult<redis::Value> {
            let script = crate::lua::script("release_in_turn");
            redis::cmd("EVAL").arg(script).arg(1).arg("n").arg(&LAST.args()[..]).query(&mut user)
        };
        heard(&server, &EARS, || drop(released().unwrap()));
        assert_eq!(server.pttl("n"), -2, "{rules}");
        assert_eq!(line(&server), [FIRST, SECOND], "{rules}");
        assert!(server.pttl(QUEUE) > 0, "{rules}");
        clean(&server);
    }
}

#[test]
fn an_ask_takes_the_place_of_the_one_before_it() {
    let server = Server::start();
    line_up(&server, &["a:1.1"]);
    server.ask::<i64>(&["PEXPIRE", QUEUE, "15000"]);
    put(&server, "n", "other", "1", "40000");
    let outside = Ask { before: "1.1", arrival: -1, ..Ask::newcomer("a:1.0") };
    assert!(matches!(outside.at(&server), Said::Busy { .. }));
    assert!(server.pttl(QUEUE) > 0, "it keeps its end");
    server.ask::<i64>(&["DEL", QUEUE]);
    line_up(&server, &["a:1.1", "b:1"]);
    let again = Ask { before: "1.0 1.1", ..Ask::newcomer("a:1.2") };
    assert!(matches!(again.at(&server), Said::Busy { rank: 0, .. }));
    assert_eq!(line(&server), ["a:1.2", "b:1"]);
    assert!(matches!(again.at(&server), Said::Busy { rank: 0, .. }), "a copy of it");
    assert_eq!(server.ask::<f64>(&["ZSCORE", QUEUE, "a:1.2"]), 1.0);
    server.ask::<i64>(&["DEL", "n"]);
    assert_eq!(Ask { before: "1.2", ..Ask::newcomer("a:1.3") }.at(&server), Said::Taken);
    assert_eq!(line(&server), ["b:1"], "it leaves by the name that it had");
    clean(&server);
}

/// It was given the lock and did not hear of it, or not soon enough.
#[test]
fn who_has_been_given_the_lock_finds_it_when_it_asks() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 2, 0]));
    let deadline = super::ahead(&server);
    let asking = ["aa:1f.3.7.9.1500", "1f.2.7.9.1500", "0", "15000", "900"];
    let args = [&[&*deadline, QUEUE, MARK][..], &asking, &["60000", "aa:7:9", "1"]].concat();
    assert_eq!(run(&server, "in_turn+acquire", &["n"], &args).unwrap(), redis::Value::Nil);
    assert_lock(&server, "n", "aa:7:9", "1", 60_000);
    assert_eq!(line(&server), [""; 0]);
    clean(&server);
}
