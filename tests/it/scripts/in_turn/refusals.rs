//! What the server refuses or holds back: the lock is asked for all the same.

use super::*;

#[test]
fn a_queue_of_another_type_keeps_nobody_from_the_lock() {
    let server = Server::start();
    server.ask::<String>(&["SET", QUEUE, "not a queue"]);
    assert_eq!(Ask::by_ticket("a:1").at(&server), Said::Taken);
    assert_lock(&server, "n", "me", "1", 60_000);
    put(&server, "n", "other", "1", "40000");
    server.ask::<i64>(&["HDEL", "n", "me"]);
    assert_eq!(queued(&Ask::by_ticket("a:1").at(&server)), -1);
    assert_eq!(server.ask::<String>(&["GET", QUEUE]), "not a queue");
    clean(&server);
}

#[test]
fn an_error_of_the_lock_is_the_answer_and_nobody_queues() {
    let server = Server::start();
    let by = |deadline: &str, lease: &str| Ask::by_ticket("a:1").by(&mut server.connection(), deadline, lease);
    put(&server, "n", "other", "1", "40000");
    assert_code(by(PAST, "60000"), "STALE");
    assert_eq!(keys(&server), ["n"]);
    server.ask::<i64>(&["DEL", "n"]);
    server.ask::<String>(&["SET", "n", "not a lock"]);
    assert_code(by(&ahead(&server), "60000"), "WRONGTYPE");
    assert_eq!(keys(&server), ["n"]);
    server.ask::<i64>(&["DEL", "n"]);
    line_up(&server, &["a:1", "b:1"]);
    assert!(by(&ahead(&server), "9223372036854775807").is_err());
    assert_eq!((server.pttl("n"), line(&server).len()), (-2, 2), "what was not granted changes no queue");
    clean(&server);
}

#[test]
fn who_may_not_queue_is_served_as_without_a_queue() {
    let server = Server::start();
    for rules in
        ["~n +@all", "~* +@all -zadd", "~* +@all -zrank", "~* +@all -zrange", "~* +@all -zpopmin", "~* +@all -hkeys"]
    {
        let url = server.let_in("user", "pw", &format!("{rules} &*"));
        let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
        line_up(&server, &["gone:1.1.1.1.1000"]);
        let mut ask = || understood(Ask::by_ticket("a:1").by(&mut user, &ahead(&server), "60000").unwrap());
        assert_eq!(ask(), Said::Taken, "{rules}");
        assert_lock(&server, "n", "me", "1", 60_000);
        server.ask::<i64>(&["DEL", "n"]);
        put(&server, "n", "other", "1", "40000");
        for others in [true, false] {
            let has_a_place = queued(&ask()) >= 0;
            assert_eq!(line(&server).iter().any(|ticket| ticket == "a:1"), has_a_place, "{rules}, others: {others}");
            assert!(!has_a_place || server.pttl(QUEUE) > 0, "{rules}, others: {others}");
            server.ask::<i64>(&["DEL", QUEUE]);
        }
        clean(&server);
    }
}

/// No mark leaves the lock to foreigners, so it is given.
#[test]
fn who_may_not_see_the_mark_gives_to_the_first() {
    let server = Server::start();
    let url = server.let_in("user", "pw", &format!("~n ~{QUEUE} +@all &*"));
    let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
    line_up(&server, &[FIRST, SECOND]);
    let ask = Ask::by_ticket("a:1");
    let heard = heard(&server, &EARS, || {
        queued(&understood(ask.by(&mut user, &ahead(&server), "60000").unwrap()));
    });
    assert_eq!(heard, [format!("{} {FIRST} given", EARS[0])]);
    clean(&server);
}

/// What it may not give it takes.
#[test]
fn who_may_not_give_takes_what_is_free() {
    let server = Server::start();
    for rules in ["-zpopmin", "-pubsub", "-publish"] {
        let url = server.let_in("user", "pw", &format!("~* +@all {rules} &*"));
        let mut user = redis::Client::open(url).unwrap().get_connection().unwrap();
        line_up(&server, &[FIRST, SECOND]);
        let ask = Ask::by_ticket("a:1");
        let heard = heard(&server, &EARS, || {
            let reply = ask.by(&mut user, &ahead(&server), "60000").unwrap();
            assert_eq!(understood(reply), Said::Taken, "{rules}");
        });
        assert_eq!(heard, [""; 0], "{rules}");
        assert_lock(&server, "n", "me", "1", 60_000);
        clean(&server);
    }
}

#[test]
fn who_finds_no_memory_waits_without_a_place() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(queued(&Ask::by_ticket("a:1").at(&server)), -1);
    server.ask::<i64>(&["DEL", "n"]);
    assert_code(Ask::by_ticket("a:1").by(&mut server.connection(), &ahead(&server), "60000"), "OOM");
    assert_eq!(keys(&server), [""; 0]);
}

/// A new name needs memory, and the place is that of an earlier one.
#[test]
fn who_asks_for_the_last_time_leaves_without_memory() {
    let server = Server::start();
    put(&server, "n", "other", "1", "40000");
    line_up(&server, &[FIRST, SECOND]);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let last = Ask { before: "1f.2.7.9.1500", ttl: -1, ..Ask::by_ticket("aa:1f.3.7.9.1500") };
    assert_eq!(queued(&last.at(&server)), -2);
    assert_eq!(line(&server), [SECOND]);
    server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    clean(&server);
}

/// Strict mode, in turn.
fn strict(server: &Server, ask: Ask<'_>, run_id: &str, quarantine: &str) -> RedisResult<Value> {
    let script = lua::script("quarantine+in_turn+acquire");
    let (mut command, deadline) = (redis::cmd("EVAL"), ahead(server));
    command.arg(script).arg(1).arg("n");
    command.arg(&[&*deadline, "epoch", run_id, quarantine]).arg(&ask.more()[..]).arg(&["60000", "me", "1"]);
    command.query(&mut server.connection()).map(|said| lua::unnamed(said, &deadline))
}

#[test]
fn the_quarantine_comes_before_the_queue() {
    let server = Server::start();
    let ask = |ticket, run_id: &str| strict(&server, Ask::by_ticket(ticket), run_id, "300");
    assert!(matches!(ask("a:1", "one").unwrap(), Value::Array(left) if left.len() == 1));
    assert_eq!(keys(&server), ["epoch"], "nobody queues in it");
    assert_code(strict(&server, Ask::by_ticket("a:1"), "one", "400"), "MISMATCH");
    eventually(LONG, "the quarantine is over", || ask("a:1", "one").unwrap() == Value::Nil);
    server.ask::<i64>(&["DEL", "n"]);
    put(&server, "n", "other", "1", "40000");
    assert_eq!(queued(&understood(ask("a:1", "one").unwrap())), 0);
    assert_eq!(queued(&understood(ask("b:1", "one").unwrap())), 1);
    server.ask::<i64>(&["DEL", "n"]);
    mark(&server, "900");
    assert_eq!(promised(&understood(ask("b:1", "one").unwrap()), 900), 1);
    server.ask::<i64>(&["DEL", MARK]);
    assert_eq!(ask("a:1", "one").unwrap(), Value::Nil);
    assert_eq!(line(&server), ["b:1"]);
    server.ask::<i64>(&["DEL", "epoch"]);
    clean(&server);
}
