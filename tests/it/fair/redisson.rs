//! Redisson's half of the queue, by the commands of its scripts. `tests/interop` has the real one.

use super::{ENDS, LIST, TICKETS, eventually_empty, pass, patient, patient_at, queue, queued};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, answered, eventually, finish, ms};
use redlatch::RedLock;
use std::thread::scope;

const JAVA: &str = "java:7";

/// The server's clock, ms.
fn now(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1_000 + micros / 1_000
}

/// A thread of Redisson's joins, for so many ms.
fn joins(server: &Server, wait: u64) {
    server.ask::<i64>(&["RPUSH", LIST, JAVA]);
    server.ask::<i64>(&["ZADD", ENDS, &(now(server) + wait).to_string(), JAVA]);
}

/// What Redisson's script does when its thread is the first and the lock is free. Returns the first, and the end of the next one.
const TAKES: &str = "
    local first = redis.call('LPOP', KEYS[2])
    redis.call('ZREM', KEYS[3], first)
    for _, field in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
        redis.call('ZINCRBY', KEYS[3], -ARGV[1], field)
    end
    redis.call('HSET', KEYS[1], first, 1)
    redis.call('PEXPIRE', KEYS[1], 30000)
    return { first, redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] }";

/// Checks that this script takes out nobody else: it takes a wait off the end of the next one, which is still to come.
fn takes(server: &Server, wait: u64) {
    let (first, end): (String, f64) = server.ask(&["EVAL", TAKES, "3", "n", LIST, ENDS, &wait.to_string()]);
    assert!(first == JAVA && end > now(server) as f64, "{first} {end}");
}

#[test]
fn a_thread_of_redisson_is_told_when_it_is_first_and_comes_in_its_order() {
    let server = Server::start();
    is_told_and_comes_in_its_order(&server, 300_000);
    eventually_empty(&server);
}

/// What it takes off is its own wait.
#[test]
fn a_thread_of_redisson_that_waits_for_an_hour_costs_nobody_its_place() {
    let server = Server::start();
    is_told_and_comes_in_its_order(&server, 3_600_000);
    eventually_empty(&server);
}

/// Redisson took a process of ours out of the queue that had died, and left its ticket.
#[test]
fn a_ticket_without_a_place_hides_no_thread_of_redisson() {
    let server = Server::start();
    let dead = "00000000-0000-0000-0000-000000000001";
    server.ask::<i64>(&["HSET", TICKETS, &format!("{dead}:1:1"), &format!("{dead}:1.1.1.1.1500")]);
    is_told_and_comes_in_its_order(&server, 300_000);
    assert!(server.pttl(TICKETS) > 0);
    // The first in an empty queue forgets it.
    let (holder, other) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    assert!(!answered(|| other.try_lock_for("n", ms(50))).0);
    holder.unlock("n").unwrap();
    eventually_empty(&server);
}

fn is_told_and_comes_in_its_order(server: &Server, wait: u64) {
    let (holder, other) = (patient(server), patient(server));
    let mut java = server.connection();
    java.set_read_timeout(Some(LONG)).unwrap();
    let mut ear = java.as_pubsub();
    ear.subscribe(format!("redisson_lock__channel:{{n}}:{JAVA}")).unwrap();
    holder.lock("n").unwrap();
    joins(server, wait);
    scope(|scope| {
        let waiter = queued(scope, server, || pass(&other));
        let field = queue(server).remove(1);
        let own = format!("redisson_lock__channel:{{n}}:{field}");
        eventually(LONG, "it listens to Redisson", || server.subscribers(&own) == 1);
        holder.unlock("n").unwrap();
        assert_eq!(ear.get_message().unwrap().get_payload::<String>().unwrap(), "0");
        assert!(!other.try_lock("n").unwrap(), "it is kept for that thread");
        takes(server, wait);
        // It looks once more, finds that it is the first, and looks no more unless it is told.
        let ticket = || server.ask::<String>(&["HGET", TICKETS, &field]);
        let before = ticket();
        eventually(LONG, "it looks", || ticket() != before);
        server.ask::<i64>(&["DEL", "n"]);
        let freed = Mark::now();
        server.ask::<i64>(&["PUBLISH", &own, "0"]);
        let (got, when) = finish(waiter);
        assert!(got && when - freed <= SOON, "{:?}", when - freed);
    });
}

/// A user with the rights that Redisson needs may not read tickets. A Java thread that is told nothing sleeps until the lease would have ended.
#[test]
fn who_may_not_read_tickets_tells_a_thread_of_redisson() {
    let server = Server::start();
    let holder = patient_at(&server.let_in("holder", "pw", "~n ~redisson_lock_* +@all &*"));
    let mut java = server.connection();
    java.set_read_timeout(Some(LONG)).unwrap();
    let mut ear = java.as_pubsub();
    ear.subscribe(format!("redisson_lock__channel:{{n}}:{JAVA}")).unwrap();
    for by_force in [false, true] {
        holder.lock("n").unwrap();
        joins(&server, 60_000);
        if by_force {
            assert!(holder.force_unlock("n").unwrap());
        } else {
            holder.unlock("n").unwrap();
        }
        assert_eq!(ear.get_message().unwrap().get_payload::<String>().unwrap(), "0");
        server.ask::<i64>(&["DEL", LIST, ENDS]);
    }
}

/// The answer to its first ask comes too late for it to subscribe, and says that a thread of Redisson is before it.
#[test]
fn a_wait_that_ends_with_its_first_answer_listens_no_more() {
    let server = Server::start();
    let (proxy, holder) = (Proxy::new(server.socket()), patient(&server));
    let other = patient_at(&proxy.url());
    assert!(other.try_lock("n").unwrap());
    other.unlock("n").unwrap();
    holder.lock("n").unwrap();
    joins(&server, 60_000);
    proxy.delay(ms(60));
    // On a busy machine they may fail, and then show nothing.
    (0..5).for_each(|_| assert!(!matches!(other.try_lock_for("n", ms(30)), Ok(true))));
    proxy.clear();
    let own = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel:{n}:*"]);
    eventually(LONG, "it listens no more", || own().is_empty());
    holder.unlock("n").unwrap();
    server.ask::<i64>(&["DEL", LIST, ENDS]);
}

#[test]
fn a_thread_of_redisson_that_died_costs_its_wait() {
    let server = Server::start();
    let (holder, other) = (patient(&server), patient(&server));
    holder.lock("n").unwrap();
    joins(&server, 1_000);
    let died = Mark::now();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - died >= ms(990) && when - died <= ms(1_000) + SOON, "{:?}", when - died);
    });
    eventually_empty(&server);
}
