//! The release that gives the lock to the head of the queue, and what it does about a head that cannot have it.

use super::in_turn::{EARS, FIRST, MARK, QUEUE, SECOND, clean, line, line_up};
use super::told::{LAST, Release, heard};
use super::{assert_lock, put, run};
use crate::server::Server;
use redis::RedisResult;

const COUNTER: &str = "redisson_lock_token:{n}";
const CHANNEL: &str = "redisson_lock__channel:{n}";

/// What a release of the lock says.
fn said(server: &Server, release: Release) -> [i64; 3] {
    put(server, "n", "me", "1", "40000");
    redis::from_redis_value(release.at(server).unwrap()).unwrap()
}

#[test]
fn the_first_has_the_lock_and_is_told() {
    let server = Server::start();
    line_up(&server, &[FIRST, SECOND]);
    let heard = heard(&server, &[&EARS[..], &[CHANNEL]].concat(), || assert_eq!(said(&server, LAST), [1, 2, 0]));
    assert_eq!(heard, [format!("{} {FIRST} given", EARS[0])], "nobody else is told");
    assert_lock(&server, "n", "aa:7:9", "1", 1_500);
    assert_eq!((line(&server), server.pttl(MARK)), (vec![SECOND.to_owned()], -2));
    clean(&server);
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

/// The tokens are counted on for who is given the lock, and for nobody else.
#[test]
fn a_release_with_a_counter_gives_a_token() {
    let server = Server::start();
    let with_token = Release { counter: COUNTER, ..LAST };
    let ahead = 1_u64 << 52;
    server.ask::<String>(&["SET", COUNTER, &ahead.to_string()]);
    line_up(&server, &["gone:1.1.1.1.1000", FIRST]);
    let heard = heard(&server, &EARS, || assert_eq!(said(&server, with_token), [1, 2, 0]));
    assert_eq!(heard, [format!("{} {FIRST} given:{}", EARS[0], ahead + 1)]);
    assert_eq!(server.ask::<u64>(&["GET", COUNTER]), ahead + 1);
    assert!(server.pttl(COUNTER) > 60_000, "its time counts from when the clock has come to it");
    clean(&server);
    assert_eq!(said(&server, with_token)[1], 0, "nobody is there");
    assert_eq!(server.ask::<u64>(&["GET", COUNTER]), ahead + 1);
    server.ask::<i64>(&["DEL", COUNTER]);
}

/// Who needs a token asks, and is told what is wrong.
#[test]
fn a_counter_that_is_none_gives_no_token() {
    let server = Server::start();
    for counter in [&["SET", COUNTER, "x"][..], &["LPUSH", COUNTER, "1"], &["SET", COUNTER, "9007199254740991"]] {
        let _: redis::Value = server.ask(counter);
        line_up(&server, &[FIRST]);
        let with_token = Release { counter: COUNTER, ..LAST };
        let heard = heard(&server, &EARS, || assert_eq!(said(&server, with_token), [1, 2, 0], "{counter:?}"));
        assert_eq!(heard, [format!("{} {FIRST} given", EARS[0])]);
        server.ask::<i64>(&["DEL", COUNTER]);
        clean(&server);
    }
}

#[test]
fn the_dead_get_nothing_and_are_removed() {
    let server = Server::start();
    line_up(&server, &["dd:1.1.1.1.1000", "ee:1.1.1.1.1000", SECOND, FIRST]);
    let heard = heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 2, 0]));
    assert_eq!(heard, [format!("{} {SECOND} given", EARS[1])]);
    assert_lock(&server, "n", "bb:8:3", "1", 1_000);
    assert_eq!(line(&server), [FIRST]);
    clean(&server);
}

/// Whoever may write there can line up what he likes: PEXPIRE by zero would delete the lock and say that it had not.
#[test]
fn what_is_no_offer_gets_nothing_and_is_removed() {
    let server = Server::start();
    let no_offers = ["0", "9", "0100", "1501", "9223372036854775808", "-5", "1e3", "0x64", "", " 500", "500 "];
    for ticket in no_offers.map(|offer| format!("aa:1.1.7.9.{offer}")).iter().map(String::as_str).chain([
        "aa:1",
        "aa:1.1.7.9",
        "aa:1.1.7.1000",
        "aa:1.1.x.9.1000",
        "aa:1.1.7.9.1000.1",
        "aa:g.1.7.9.1000",
    ]) {
        line_up(&server, &[ticket, SECOND]);
        let heard = heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 2, 0], "{ticket}"));
        assert_eq!(heard, [format!("{} {SECOND} given", EARS[1])], "{ticket}");
        assert_lock(&server, "n", "bb:8:3", "1", 1_000);
        assert_eq!(line(&server), [""; 0], "{ticket}");
        clean(&server);
    }
}

/// 64 of them when the lock would be given to them, the rest when they would be told.
#[test]
fn a_hundred_that_are_gone_are_removed_by_a_release() {
    let server = Server::start();
    let gone: Vec<_> = (0..100).map(|number| format!("gone:{number:x}.1.1.1.1000")).collect();
    line_up(&server, &gone.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        said(&server, Release { foreign_turn: "0", ..LAST })[1],
        0,
        "the rest are found to be gone when they are told"
    );
    assert_eq!((line(&server), server.pttl("n")), (Vec::new(), -2));
    clean(&server);
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
fn no_foreigner_listens_so_the_first_has_the_lock() {
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
    for rules in
        ["~n +@all &redisson*", "~* +@all -publish", "~* +@all -pubsub", "~* +@all -zpopmin", "~* +@all -pexpire"]
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

/// It was given the lock and did not hear of it, or not soon enough.
#[test]
fn who_has_been_given_the_lock_finds_it_when_it_asks() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    heard(&server, &EARS, || assert_eq!(said(&server, LAST), [1, 2, 0]));
    let deadline = super::ahead(&server);
    let asking = ["aa:1f.3.7.9.1500", "1f.2.7.9.1500", "15000"];
    let args = [&[&*deadline, QUEUE, MARK][..], &asking, &["60000", "aa:7:9", "1"]].concat();
    assert_eq!(run(&server, "in_turn+acquire", &["n"], &args).unwrap(), redis::Value::Nil);
    assert_lock(&server, "n", "aa:7:9", "1", 60_000);
    assert_eq!(line(&server), [""; 0]);
    clean(&server);
}

/// It finds the lock when it looks.
#[test]
fn who_polls_is_given_the_lock_without_a_listener() {
    let server = Server::start();
    line_up(&server, &["cc:1.2.3.4.1000p", FIRST]);
    assert_eq!(said(&server, LAST), [1, 2, 0]);
    assert_lock(&server, "n", "cc:3:4", "1", 1_000);
    assert_eq!(line(&server), [FIRST]);
    clean(&server);
}
