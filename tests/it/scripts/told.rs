//! The release in turn and the leave: who is told, and whose turn it is then.

use super::in_turn::{Ask, MARK, QUEUE, Said, clean, line, line_up};
use super::{assert_lock, number, put, run};
use crate::lua;
use crate::server::Server;
use crate::threads::LONG;
use redis::{RedisResult, Value};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const MEMBERS: &str = "redlatch_members:{n}";

/// The messages that come on these channels while `act` runs, as `channel payload`.
pub(super) fn heard(server: &Server, channels: &[&str], act: impl FnOnce()) -> Vec<String> {
    const END: &str = "the end";
    let mut connection = server.connection();
    connection.set_read_timeout(Some(LONG)).unwrap();
    let mut listener = connection.as_pubsub();
    channels.iter().chain([&END]).for_each(|channel| listener.subscribe(channel).unwrap());
    act();
    server.ask::<i64>(&["PUBLISH", END, ""]);
    let messages = std::iter::repeat_with(|| listener.get_message().unwrap());
    let messages = messages.map(|message| (message.get_channel_name().to_owned(), message.get_payload().unwrap()));
    messages
        .take_while(|(channel, _)| channel != END)
        .map(|(channel, text): (_, String)| format!("{channel} {text}"))
        .collect()
}

/// How a release is made.
#[derive(Clone, Copy)]
pub(super) struct Release {
    pub(super) left: &'static str,
    pub(super) foreign_turn: &'static str,
    pub(super) to_all: &'static str,
    pub(super) second: &'static str,
}

pub(super) const LAST: Release = Release { left: "0", foreign_turn: "0", to_all: "0", second: "1" };

impl Release {
    pub(super) fn args(self) -> [&'static str; 10] {
        ["me", self.left, CHANNEL, QUEUE, MARK, "900", MEMBERS, self.foreign_turn, self.to_all, self.second]
    }

    pub(super) fn at(self, server: &Server) -> RedisResult<Value> {
        run(server, "release_in_turn", &["n"], &self.args())
    }

    /// What the common channel was told, and whether the head was.
    fn told(self, server: &Server) -> [i64; 2] {
        put(server, "n", "me", "1", "40000");
        let reply = self.at(server).unwrap();
        assert_eq!(server.pttl("n"), -2);
        let [all, told, 0] = redis::from_redis_value::<Vec<i64>>(reply).unwrap()[..] else {
            panic!("an array of three")
        };
        [all, told]
    }
}

const EARS: [&str; 5] = ["redlatch_ear:a", "redlatch_ear:b", "redlatch_ear:c", "redlatch_ear:d", CHANNEL];

#[test]
fn the_head_is_told_and_the_turn_is_its_own() {
    let server = Server::start();
    line_up(&server, &["a:1", "b:7", "c:3"]);
    let release = Release { second: "0", ..LAST };
    let heard = heard(&server, &EARS[..4], || assert_eq!(release.told(&server), [1, 1]));
    assert_eq!(heard, ["redlatch_ear:a a:1 0"]);
    assert_eq!(line(&server), ["a:1", "b:7", "c:3"], "they are queued until they take it");
    assert_eq!(server.ask::<String>(&["GET", MARK]), "head");
    assert!(server.pttl(MARK) > 0 && server.pttl(MARK) <= 900);
    clean(&server);
}

/// The head may be stopped: somebody has to come.
#[test]
fn the_second_is_told_if_it_is_asked_for() {
    let server = Server::start();
    for behind in [&["b:7"][..], &["b:7", "c:3"]] {
        line_up(&server, &[&["a:1"], behind].concat());
        let heard = heard(&server, &EARS[..4], || assert_eq!(LAST.told(&server), [1, 1]));
        assert_eq!(heard, ["redlatch_ear:a a:1 0", "redlatch_ear:b b:7 1"]);
        clean(&server);
    }
}

#[test]
fn those_whose_ears_nobody_has_are_removed_and_the_next_are_told() {
    let server = Server::start();
    line_up(&server, &["gone:1", "a:1", "gone:2", "gone:3", "b:1", "gone:4", "c:1"]);
    let heard = heard(&server, &EARS[..4], || assert_eq!(LAST.told(&server), [1, 1]));
    assert_eq!(heard, ["redlatch_ear:a a:1 0", "redlatch_ear:b b:1 1"]);
    assert_eq!(line(&server), ["a:1", "b:1", "gone:4", "c:1"], "of those behind them nobody asks");
    clean(&server);
}

#[test]
fn when_all_are_gone_everybody_is_told() {
    let server = Server::start();
    line_up(&server, &["gone:1", "gone:2", "gone:3"]);
    let heard = heard(&server, &[CHANNEL, MEMBERS], || assert_eq!(LAST.told(&server), [3, 0]));
    assert_eq!(heard, [format!("{CHANNEL} 0")]);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0], "no mark, no queue, no lock");
}

#[test]
fn nobody_queued_is_told_by_the_common_channel() {
    let server = Server::start();
    assert_eq!(LAST.told(&server), [1, 0], "nobody listens");
    let heard = heard(&server, &[CHANNEL], || assert_eq!(LAST.told(&server), [3, 0]));
    assert_eq!(heard, [format!("{CHANNEL} 0")]);
    assert_eq!(server.pttl(MARK), -2);
}

/// Who listens to the common channel and not to that of our clients is told there.
#[test]
fn foreigners_are_told_besides_those_who_queue() {
    let server = Server::start();
    line_up(&server, &["a:1"]);
    let both = [&EARS[..], &[MEMBERS]].concat();
    let of_ours = heard(&server, &both, || assert_eq!(LAST.told(&server), [1, 1]));
    assert_eq!(of_ours, ["redlatch_ear:a a:1 0"], "all who listen are ours");
    let with_foreigner = heard(&server, &EARS, || assert_eq!(LAST.told(&server), [3, 1]));
    assert_eq!(with_foreigner, ["redlatch_ear:a a:1 0".to_owned(), format!("{CHANNEL} 0")]);
    clean(&server);
}

#[test]
fn a_release_to_all_is_told_to_all() {
    let server = Server::start();
    line_up(&server, &["a:1"]);
    let both = [&EARS[..], &[MEMBERS]].concat();
    let heard = heard(&server, &both, || {
        assert_eq!(Release { to_all: "1", ..LAST }.told(&server), [3, 1]);
    });
    assert_eq!(heard, ["redlatch_ear:a a:1 0".to_owned(), format!("{CHANNEL} 0")]);
    clean(&server);
}

#[test]
fn a_turn_is_given_to_foreigners_only_if_any_listen() {
    let server = Server::start();
    let release = Release { foreign_turn: "900", ..LAST };
    line_up(&server, &["a:1"]);
    let heard_by_all = heard(&server, &EARS, || assert_eq!(release.told(&server), [3, -1]));
    assert_eq!(heard_by_all, ["redlatch_ear:a a:1 0".to_owned(), format!("{CHANNEL} 0")], "the head comes after them");
    assert_eq!(server.ask::<String>(&["GET", MARK]), "foreign");
    let heard = heard(&server, &EARS[..1], || assert_eq!(release.told(&server), [1, 1]));
    assert_eq!(heard, ["redlatch_ear:a a:1 0"]);
    assert_eq!(server.ask::<String>(&["GET", MARK]), "head");
    clean(&server);
}

/// Of others the plain release tells nobody either.
#[test]
fn only_the_last_level_of_its_owner_tells() {
    let server = Server::start();
    line_up(&server, &["a:1"]);
    let heard = heard(&server, &EARS, || {
        assert_eq!(number(LAST.at(&server)), 0);
        put(&server, "n", "me", "3", "40000");
        assert_eq!(number(Release { left: "2", ..LAST }.at(&server)), 1);
        assert_lock(&server, "n", "me", "2", 40_000);
        server.ask::<i64>(&["DEL", "n"]);
        put(&server, "n", "other", "1", "40000");
        assert_eq!(number(LAST.at(&server)), 0);
    });
    assert_eq!(heard, [""; 0]);
    assert_eq!(server.pttl(MARK), -2);
    clean(&server);
}

/// What the script of a release in turn says when the queue is refused: the lock is free and everybody is told. Servers
/// word the error differently.
#[track_caller]
fn assert_told_commonly(server: &Server, reply: RedisResult<Value>, words: &[&str]) {
    let Value::Array(said) = reply.unwrap() else { panic!("an array") };
    assert_eq!(said[..2], [Value::Int(3), Value::Int(-2)], "{said:?}");
    let error: String = redis::from_redis_value(said[2].clone()).unwrap();
    assert!(words.iter().any(|words| error.to_lowercase().contains(words)), "{error}");
    assert_eq!(server.pttl("n"), -2);
}

#[test]
fn a_queue_of_another_type_keeps_no_lock_from_being_released() {
    let server = Server::start();
    server.ask::<String>(&["SET", QUEUE, "not a queue"]);
    put(&server, "n", "me", "1", "40000");
    let heard = heard(&server, &[CHANNEL], || assert_told_commonly(&server, LAST.at(&server), &["wrongtype"]));
    assert_eq!(heard, [format!("{CHANNEL} 0")]);
    clean(&server);
}

#[test]
fn who_may_not_use_the_queue_tells_all() {
    let server = Server::start();
    for rules in ["~n +@all", "~* +@all -zrange", "~* +@all -pubsub", "~* +@all -set"] {
        let url = server.let_in("user", "pw", &format!("{rules} &*"));
        let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
        line_up(&server, &["a:1"]);
        put(&server, "n", "me", "1", "40000");
        let heard = heard(&server, &[CHANNEL, EARS[0]], || {
            let mut release = redis::cmd("EVAL");
            release.arg(lua::script("release_in_turn")).arg(1).arg("n").arg(&LAST.args());
            assert_told_commonly(&server, release.query(&mut user), &["the user executing", "no permissions"]);
        });
        assert_eq!(heard.last(), Some(&format!("{CHANNEL} 0")), "{rules}");
        clean(&server);
    }
}

#[test]
fn who_may_not_publish_releases_all_the_same() {
    let server = Server::start();
    let url = server.let_in("quiet", "pw", &format!("~* +@all {}", server.no_channels()));
    let mut quiet = redis::Client::open(url).unwrap().get_connection().unwrap();
    line_up(&server, &["a:1"]);
    put(&server, "n", "me", "1", "40000");
    let mut release = redis::cmd("EVAL");
    release.arg(lua::script("release_in_turn")).arg(1).arg("n").arg(&LAST.args());
    let said: Vec<Value> = release.query(&mut quiet).unwrap();
    assert_eq!(said[..2], [Value::Int(2), Value::Int(-2)], "done, but nobody was told");
    assert_eq!(server.pttl("n"), -2);
    clean(&server);
}

/// A script that has deleted something may write.
#[test]
fn a_lock_is_released_in_turn_without_memory() {
    let server = Server::start();
    line_up(&server, &["a:1"]);
    put(&server, "n", "me", "1", "40000");
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let heard = heard(&server, &EARS[..1], || assert!(matches!(LAST.at(&server).unwrap(), Value::Array(_))));
    assert_eq!(heard, ["redlatch_ear:a a:1 0"]);
    assert_eq!(server.pttl("n"), -2);
    clean(&server);
}

/// Members that no client of ours would write.
#[test]
fn a_forged_queue_keeps_no_lock_from_being_released_or_taken() {
    let server = Server::start();
    let long = "x".repeat(70_000);
    let forged: [&[u8]; 7] = [b"", b":", b"no ticket", b"\0\xff:1", long.as_bytes(), b"a:1 0", b"%s:%d"];
    let mut admin = server.connection();
    for (score, member) in ["-inf", "inf", "0", "1e300", "-1", "0.5", "1"].into_iter().zip(forged) {
        redis::cmd("ZADD").arg(QUEUE).arg(score).arg(member).exec(&mut admin).unwrap();
    }
    assert_eq!(LAST.told(&server), [1, 0], "none of them listens");
    assert_eq!(line(&server), [""; 0]);
    for (score, member) in ["-inf", "inf", "0", "1e300", "-1", "0.5", "1"].into_iter().zip(forged) {
        redis::cmd("ZADD").arg(QUEUE).arg(score).arg(member).exec(&mut admin).unwrap();
    }
    put(&server, "n", "other", "1", "40000");
    let Said::Busy { rank, .. } = Ask::newcomer("a:1").at(&server) else { panic!("it is held") };
    assert_eq!(rank, 7);
    server.ask::<i64>(&["DEL", "n"]);
    assert_eq!(Ask::newcomer("a:1").at(&server), Said::Taken);
    assert_eq!(line(&server), [""; 0], "all were before it");
    clean(&server);
}

fn leave(server: &Server, ticket: &str) -> i64 {
    leave_as(server, ticket, "")
}

fn leave_as(server: &Server, ticket: &str, before: &str) -> i64 {
    number(run(server, "leave", &["n"], &[QUEUE, MARK, "900", ticket, before]))
}

#[test]
fn who_leaves_a_free_lock_tells_the_next() {
    let server = Server::start();
    line_up(&server, &["a:1", "b:1"]);
    let heard = heard(&server, &EARS, || assert_eq!(leave(&server, "a:1"), 1));
    assert_eq!(heard, ["redlatch_ear:b b:1 0"]);
    assert_eq!(line(&server), ["b:1"]);
    assert_eq!(server.ask::<String>(&["GET", MARK]), "head");
    clean(&server);
}

#[test]
fn who_leaves_a_held_lock_tells_nobody() {
    let server = Server::start();
    line_up(&server, &["a:1", "b:1"]);
    put(&server, "n", "other", "1", "40000");
    let heard = heard(&server, &EARS, || {
        assert_eq!(leave(&server, "a:1"), 1);
        assert_eq!(leave(&server, "a:1"), 0, "it is gone");
    });
    assert_eq!(heard, [""; 0]);
    assert_eq!((line(&server), server.pttl(MARK)), (vec!["b:1".to_owned()], -2));
    clean(&server);
}

#[test]
fn who_was_not_there_tells_nobody() {
    let server = Server::start();
    assert_eq!(leave(&server, "a:1"), 0);
    line_up(&server, &["b:1"]);
    let heard = heard(&server, &EARS, || assert_eq!(leave(&server, "a:1"), 0));
    assert_eq!(heard, [""; 0]);
    clean(&server);
}

/// Whether its last ask came to the server is not known: it is in the queue by one of its names.
#[test]
fn who_leaves_does_so_by_all_of_its_names() {
    let server = Server::start();
    for queued in ["a:1.1", "a:1.2"] {
        put(&server, "n", "other", "1", "40000");
        line_up(&server, &[queued, "b:1"]);
        assert_eq!(leave_as(&server, "a:1.2", "1.0 1.1"), 1);
        assert_eq!(line(&server), ["b:1"]);
        clean(&server);
    }
}

#[test]
fn the_last_to_leave_leaves_nothing() {
    let server = Server::start();
    line_up(&server, &["a:1"]);
    assert_eq!(leave(&server, "a:1"), 1);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

/// Groups, tries and a force unlock know neither queue nor mark.
#[test]
fn the_other_scripts_leave_queue_and_mark_alone() {
    let server = Server::start();
    let deadline = super::ahead(&server);
    line_up(&server, &["a:1"]);
    server.ask::<String>(&["SET", MARK, "head", "PX", "60000"]);
    let heard = heard(&server, &EARS[..4], || {
        assert_eq!(run(&server, "acquire", &["n"], &[&deadline, "60000", "me", "1"]).unwrap(), Value::Nil);
        assert_eq!(number(run(&server, "release", &["n"], &["me", "0", CHANNEL])), 1);
        assert_eq!(number(run(&server, "acquire_group", &["n"], &[&deadline, "60000", "me"])), 0);
        let released = run(&server, "release_group", &["n"], &["me", CHANNEL]).unwrap();
        assert_eq!(released, Value::Array(vec![Value::Int(1)]));
        put(&server, "n", "other", "1", "40000");
        assert_eq!(number(run(&server, "force_unlock", &["n"], &[CHANNEL])), 1);
    });
    assert_eq!(heard, [""; 0]);
    assert_eq!(line(&server), ["a:1"]);
    assert_eq!(server.ask::<String>(&["GET", MARK]), "head");
    clean(&server);
}
