//! The release in turn and the leave: who is told.

use super::in_turn::{Ask, FIRST, MARK, QUEUE, SECOND, Said, clean, line, line_up};
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
    pub(super) counter: &'static str,
}

pub(super) const LAST: Release = Release { left: "0", foreign_turn: "0", to_all: "0", counter: "" };

impl Release {
    pub(super) fn args(self) -> [&'static str; 10] {
        ["me", self.left, CHANNEL, QUEUE, MARK, MEMBERS, self.foreign_turn, self.to_all, self.counter, "60000"]
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

const TO_ALL: Release = Release { to_all: "1", ..LAST };
const TO_FOREIGNERS: Release = Release { foreign_turn: "900", ..LAST };

const EARS: [&str; 3] = ["redlatch_ear:aa", "redlatch_ear:bb", CHANNEL];

/// That it may come has a name that no message tells but that which gives it the lock.
#[test]
fn a_release_to_all_tells_the_first_besides() {
    let server = Server::start();
    line_up(&server, &["gone:1", "gone:2", FIRST, SECOND]);
    let both = [&EARS[..], &[MEMBERS]].concat();
    let heard = heard(&server, &both, || assert_eq!(TO_ALL.told(&server), [3, 1]));
    assert_eq!(heard, ["redlatch_ear:aa aa:1f free".to_owned(), format!("{CHANNEL} 0")]);
    assert_eq!(line(&server), [FIRST, SECOND], "those before it are removed");
    assert_eq!(server.pttl(MARK), -2);
    clean(&server);
}

/// Who polls is no process that is gone. What only ends as its ticket does is no ticket.
#[test]
fn who_polls_is_the_first_though_nobody_listens() {
    let server = Server::start();
    line_up(&server, &["gone:p", "gone:1.1.1.1.1000", "cc:1.2.3.4.1000p", FIRST]);
    assert_eq!(heard(&server, &EARS, || assert_eq!(TO_ALL.told(&server), [3, 1])), [format!("{CHANNEL} 0")]);
    assert_eq!(line(&server), ["cc:1.2.3.4.1000p", FIRST]);
    server.ask::<i64>(&["DEL", QUEUE]);
}

/// Whoever may write the queue can make it long.
#[test]
fn of_many_that_are_gone_a_release_to_all_removes_64() {
    let server = Server::start();
    let gone: Vec<_> = (0..100).map(|number| format!("gone:{number}")).collect();
    line_up(&server, &gone.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(heard(&server, &[CHANNEL], || assert_eq!(TO_ALL.told(&server), [3, 0])), [format!("{CHANNEL} 0")]);
    assert_eq!(line(&server).len(), 36);
    server.ask::<i64>(&["DEL", QUEUE]);
}

#[test]
fn when_all_are_gone_everybody_is_told() {
    let server = Server::start();
    line_up(&server, &["gone:1.1.1.1.1000", "gone:2", "gone:3"]);
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

#[test]
fn the_lock_is_left_to_foreigners_only_if_any_listen() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    let told = heard(&server, &EARS, || assert_eq!(TO_FOREIGNERS.told(&server), [3, -1]));
    assert_eq!(told, ["redlatch_ear:aa aa:1f free".to_owned(), format!("{CHANNEL} 0")], "the first comes after them");
    assert_eq!(server.ask::<String>(&["GET", MARK]), "foreign");
    assert!(server.pttl(MARK) > 0 && server.pttl(MARK) <= 900);
    clean(&server);
    line_up(&server, &[FIRST]);
    put(&server, "n", "me", "1", "40000");
    let of_ours = [&EARS[..], &[MEMBERS]].concat();
    let told = heard(&server, &of_ours, || drop(TO_FOREIGNERS.at(&server).unwrap()));
    assert_eq!(told, [format!("redlatch_ear:aa {FIRST} given")], "all who listen are ours");
    assert_eq!(server.pttl(MARK), -2);
    clean(&server);
}

/// Of others the plain release tells nobody either.
#[test]
fn only_the_last_level_of_its_owner_tells() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
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
    for rules in ["~n +@all", "~* +@all -zpopmin", "~* +@all -pubsub"] {
        let url = server.let_in("user", "pw", &format!("{rules} &*"));
        let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
        line_up(&server, &[FIRST]);
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
    line_up(&server, &[FIRST]);
    put(&server, "n", "me", "1", "40000");
    let mut release = redis::cmd("EVAL");
    release.arg(lua::script("release_in_turn")).arg(1).arg("n").arg(&LAST.args());
    let heard = heard(&server, &EARS, || {
        let said: Vec<Value> = release.query(&mut quiet).unwrap();
        assert_eq!(said[..2], [Value::Int(2), Value::Int(-2)], "done, but nobody was told");
    });
    assert_eq!(heard, [""; 0]);
    assert_eq!((server.pttl("n"), line(&server)), (-2, vec![FIRST.to_owned()]));
    clean(&server);
}

/// A script that has deleted something may write.
#[test]
fn a_lock_is_given_without_memory() {
    let server = Server::start();
    line_up(&server, &[FIRST]);
    put(&server, "n", "me", "1", "40000");
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let heard = heard(&server, &EARS[..1], || assert!(matches!(LAST.at(&server).unwrap(), Value::Array(_))));
    assert_eq!(heard, [format!("redlatch_ear:aa {FIRST} given")]);
    assert_lock(&server, "n", "aa:7:9", "1", 1_500);
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
    let Said::Busy { rank, .. } = Ask::by_ticket("a:1").at(&server) else { panic!("it is held") };
    assert_eq!(rank, 7);
    server.ask::<i64>(&["DEL", "n"]);
    assert_eq!(Ask::by_ticket("a:1").at(&server), Said::Taken);
    assert_eq!(line(&server), [""; 0], "none of them is a ticket");
    clean(&server);
}

fn leave(server: &Server, ticket: &str) -> i64 {
    leave_as(server, ticket, "")
}

fn leave_as(server: &Server, ticket: &str, before: &str) -> i64 {
    number(run(server, "queue/leave", &["n"], &[QUEUE, ticket, before]))
}

#[test]
fn who_leaves_a_free_lock_gives_it_to_the_next() {
    let server = Server::start();
    line_up(&server, &["a:1", FIRST, SECOND]);
    let heard = heard(&server, &EARS, || assert_eq!(leave(&server, "a:1"), 1));
    assert_eq!(heard, [format!("redlatch_ear:aa {FIRST} given")]);
    assert_lock(&server, "n", "aa:7:9", "1", 1_500);
    assert_eq!(line(&server), [SECOND]);
    clean(&server);
}

#[test]
fn who_leaves_a_held_lock_gives_and_tells_nothing() {
    let server = Server::start();
    line_up(&server, &["a:1", FIRST]);
    put(&server, "n", "other", "1", "40000");
    let heard = heard(&server, &EARS, || {
        assert_eq!(leave(&server, "a:1"), 1);
        assert_eq!(leave(&server, "a:1"), 0, "it is gone");
    });
    assert_eq!(heard, [""; 0]);
    assert_lock(&server, "n", "other", "1", 40_000);
    assert_eq!(line(&server), [FIRST]);
    clean(&server);
}

#[test]
fn who_was_not_there_tells_nobody() {
    let server = Server::start();
    assert_eq!(leave(&server, "a:1"), 0);
    line_up(&server, &[FIRST]);
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
    line_up(&server, &[FIRST]);
    server.ask::<String>(&["SET", MARK, "foreign", "PX", "900"]);
    let heard = heard(&server, &EARS[..2], || {
        assert_eq!(run(&server, "acquire", &["n"], &[&deadline, "60000", "me", "1"]).unwrap(), Value::Nil);
        assert_eq!(number(run(&server, "release", &["n"], &["me", "0", CHANNEL])), 1);
        assert_eq!(run(&server, "acquire_group", &["n"], &[&deadline, "60000", "me"]).unwrap(), redis::Value::Nil);
        let released = run(&server, "release_group", &["n"], &["me", CHANNEL]).unwrap();
        assert_eq!(released, Value::Array(vec![Value::Int(1)]));
        put(&server, "n", "other", "1", "40000");
        assert_eq!(number(run(&server, "force_unlock", &["n"], &[CHANNEL])), 1);
    });
    assert_eq!(heard, [""; 0]);
    assert_eq!(line(&server), [FIRST]);
    assert!(server.pttl(MARK) > 0);
    clean(&server);
}
