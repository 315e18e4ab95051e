//! The queue of a fair lock, as the script that asks keeps it.

use super::{ahead, put, run};
use crate::harness::lua;
use crate::server::Server;
use crate::threads::LONG;

const LIST: &str = "redisson_lock_queue:{n}";
const ENDS: &str = "redisson_lock_timeout:{n}";
const TICKETS: &str = "redlatch_tickets:{n}";

const WAIT: i64 = 15_000;

/// The lock is busy, and this hold of a thread asks for it, after others.
fn asks(server: &Server, hold: u8, before: &[u8]) {
    asks_for(server, hold, before, WAIT);
}

/// The same for so many ms; 0: it does not queue.
fn asks_for(server: &Server, hold: u8, before: &[u8], wait: i64) {
    let (owner, ticket) = (format!("c:1:{hold}"), format!("c:{}", name(hold)));
    let before = before.iter().map(|hold| name(*hold)).collect::<Vec<_>>().join(" ");
    let (deadline, wait) = (ahead(server), wait.to_string());
    let queue = [LIST, ENDS, TICKETS, "channel", &ticket, &before, &wait];
    let args = [&[deadline.as_str()], &queue[..], &["60000", &owner, "1"]].concat();
    run(server, "fair/in_order+acquire", &["n"], &args).unwrap();
}

fn name(hold: u8) -> String {
    format!("1.{hold}.1.{hold}.1500p")
}

fn leaves(server: &Server, hold: u8) {
    let owner = format!("c:1:{hold}");
    run(server, "queue/leave_order", &["n"], &[LIST, ENDS, TICKETS, "channel", &owner]).unwrap();
}

/// At a server with a busy lock.
fn while_busy(check: impl FnOnce(&Server)) {
    let server = Server::start();
    put(&server, "n", "other:1:1", "1", "60000");
    check(&server);
    server.ask::<i64>(&["DEL", "n", LIST, ENDS, TICKETS]);
}

/// The server executes an ask without an answer after the one that repeats it. Redisson fails with a place that is there twice: when one of
/// the two is gone, the other has no end.
#[test]
fn a_late_ask_leaves_no_place_twice() {
    while_busy(|server| {
        asks(server, 2, &[1]);
        asks(server, 3, &[]);
        asks(server, 1, &[]);
        asks(server, 2, &[1]);
        assert_eq!(server.ask::<Vec<String>>(&["LRANGE", LIST, "0", "-1"]), ["c:1:2", "c:1:3"]);
        assert_eq!(server.ask::<i64>(&["ZCARD", ENDS]), 2);
    });
}

/// The connection was lost between the choice of its name and this ask: the ticket does not poll, and cannot be told.
#[test]
fn a_place_that_an_ask_moves_without_joining_keeps_a_ticket() {
    while_busy(|server| {
        asks(server, 1, &[]);
        asks(server, 2, &[]);
        asks_for(server, 3, &[1], 0);
        assert_eq!(server.ask::<Vec<String>>(&["LRANGE", LIST, "0", "-1"]), ["c:1:3", "c:1:2"]);
        assert_eq!(server.ask::<String>(&["HGET", TICKETS, "c:1:3"]), format!("c:{}", name(3)));
    });
}

/// When a thread of Redisson's takes the lock, 5 minutes are taken off the ends behind it, however long it waited.
#[test]
fn an_end_that_counts_a_wait_of_redissons_is_moved_with_each_look() {
    while_busy(|server| {
        let end = || server.ask::<i64>(&["ZSCORE", ENDS, "c:1:1"]);
        let (seconds, _): (i64, i64) = server.ask(&["TIME"]);
        server.ask::<i64>(&["RPUSH", LIST, "java:7"]);
        server.ask::<i64>(&["ZADD", ENDS, &(seconds * 1_000 + 300_000).to_string(), "java:7"]);
        asks(server, 1, &[]);
        let first = end();
        std::thread::sleep(std::time::Duration::from_millis(20));
        asks(server, 1, &[]);
        assert!(end() >= first + 20, "{}", end() - first);
    });
}

/// A thread that looks often leaves its end as it is until a third of its wait is over.
#[test]
fn an_end_is_moved_in_time() {
    while_busy(|server| {
        let end = || server.ask::<i64>(&["ZSCORE", ENDS, "c:1:1"]);
        asks(server, 1, &[]);
        let first = end();
        asks(server, 1, &[]);
        assert_eq!(end(), first);
        let (seconds, _): (i64, i64) = server.ask(&["TIME"]);
        server.ask::<i64>(&["ZADD", ENDS, &(seconds * 1_000 + WAIT / 2).to_string(), "c:1:1"]);
        asks(server, 1, &[]);
        assert!(end() >= first, "{}", end() - first);
    });
}

/// The last ticket is gone, so the next one makes the key anew.
#[test]
fn tickets_beside_a_long_queue_of_redissons_have_a_ttl() {
    while_busy(|server| {
        let (seconds, _): (u64, u64) = server.ask(&["TIME"]);
        server.ask::<i64>(&["RPUSH", LIST, "java:7"]);
        server.ask::<i64>(&["ZADD", ENDS, &(seconds * 1_000 + 900_000).to_string(), "java:7"]);
        asks(server, 1, &[]);
        leaves(server, 1);
        asks(server, 2, &[]);
        assert!(server.ask::<i64>(&["PTTL", TICKETS]) > WAIT);
    });
}

/// Each of Redisson's that joins behind this thread counts for 5 minutes more than the one before it, and sets no TTL.
#[test]
fn the_queue_outlives_all_who_join_behind() {
    while_busy(|server| {
        for (hold, short) in [LIST, ENDS, TICKETS].into_iter().enumerate() {
            asks(server, hold as u8, &[]);
            for key in [LIST, ENDS, TICKETS] {
                let ttl: i64 = server.ask(&["PTTL", key]);
                assert!(ttl > 200 * 300_000, "{key}: {ttl} ms");
            }
            server.ask::<i64>(&["PEXPIRE", short, "60000000"]);
        }
        asks(server, 3, &[]);
        assert!(server.ask::<i64>(&["PTTL", TICKETS]) > 200 * 300_000);
    });
}

/// The lock was granted to an ask without an answer, and an older one left half a place.
#[test]
fn a_hold_is_taken_over_beside_a_broken_queue() {
    let server = Server::start();
    put(&server, "n", "c:1:2", "1", "60000");
    server.ask::<i64>(&["ZADD", ENDS, "1", "c:1:1"]);
    server.ask::<String>(&["SET", LIST, "no list"]);
    asks(&server, 3, &[2, 1]);
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "n"]), ["c:1:3"]);
    server.ask::<i64>(&["DEL", "n", LIST, ENDS, TICKETS]);
}

/// A script drops 64 at most. An ask that has done so does not come before those who live and stand behind.
#[test]
fn a_try_does_not_come_before_a_waiter_behind_many_dead() {
    let server = Server::start();
    put(&server, "n", "other:1:1", "1", "60000");
    let (seconds, _): (u64, u64) = server.ask(&["TIME"]);
    let end = (seconds * 1_000 + 60_000).to_string();
    for hold in 0..70 {
        let field = format!("d:1:{hold}");
        server.ask::<i64>(&["RPUSH", LIST, &field]);
        server.ask::<i64>(&["ZADD", ENDS, &end, &field]);
        server.ask::<i64>(&["HSET", TICKETS, &field, &format!("d:1.1.1.{hold}.1500")]);
    }
    asks(&server, 1, &[]);
    server.ask::<i64>(&["DEL", "n"]);
    for _ in 0..2 {
        let deadline = ahead(&server);
        let args = [&deadline, LIST, ENDS, TICKETS, "channel", "", "", "0", "60000", "c:2:1", "1"];
        run(&server, "fair/in_order+acquire", &["n"], &args).unwrap();
        assert_eq!(server.ask::<i64>(&["HEXISTS", "n", "c:2:1"]), 0);
    }
    assert_eq!(server.ask::<i64>(&["HEXISTS", "n", "c:1:1"]), 1);
    server.ask::<i64>(&["DEL", "n", LIST, ENDS, TICKETS]);
}

/// Its user may not publish to the next. Another leave would not find the field again, and serve nobody.
#[test]
fn who_leaves_a_free_lock_and_cannot_serve_tells_all() {
    while_busy(|server| {
        // Before 7.0 rules for channels do not count for a script that publishes.
        if server.version() < (7, 0) {
            return;
        }
        let url = server.let_in("leaver", "pw", "~* +@all resetchannels &channel");
        let mut leaver = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut waiter = server.connection();
        waiter.set_read_timeout(Some(LONG)).unwrap();
        let mut ear = waiter.as_pubsub();
        ear.subscribe("channel").unwrap();
        asks(server, 1, &[]);
        asks(server, 2, &[]);
        server.ask::<i64>(&["DEL", "n"]);
        let (script, args) = (lua::script("queue/leave_order"), ["1", "n", LIST, ENDS, TICKETS, "channel", "c:1:1"]);
        assert_eq!(redis::cmd("EVAL").arg(script).arg(&args).query::<u64>(&mut leaver).unwrap(), 1);
        assert_eq!(ear.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    });
}

/// All others may have looked before the lock was free, and would not be told.
#[test]
fn who_leaves_a_free_lock_serves_the_next() {
    while_busy(|server| {
        asks(server, 1, &[]);
        asks(server, 2, &[]);
        server.ask::<i64>(&["DEL", "n"]);
        leaves(server, 1);
        assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "n"]), ["c:1:2"]);
    });
}
