//! Whoever may publish can tell a waiter anything but the name of its ticket, and whoever may write can change the queue: that costs
//! time at most.

use super::{
    CHANNEL, MARK, QUEUE, assert_served, ear_of, eventually_empty, holder, line, locks_of, pass, patient, places,
    queued,
};
use crate::proxy::numbers;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::RedLock;
use std::thread::{ScopedJoinHandle, scope};
use std::time::Instant;

/// The ear of the client whose ticket is the head.
fn ear(server: &Server) -> (String, String) {
    let (ticket, _) = line(server).swap_remove(0);
    (ear_of(&ticket), ticket)
}

/// That a waiter has heard all that it was told before: the last of it makes it come back to a queue that was lost.
#[track_caller]
fn asks_when_told(server: &Server, ear: &str, ticket: &str) {
    server.ask::<i64>(&["DEL", QUEUE]);
    server.ask::<i64>(&["PUBLISH", ear, &format!("{ticket} free")]);
    eventually(LONG, "it is queued again", || line(server).len() == 1);
}

#[test]
fn messages_on_an_ear_grant_nothing() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let owner = server.owner("n");
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let (ear, ticket) = ear(&server);
        let client = ticket.split(':').next().unwrap();
        let forged = [
            format!("{ticket} free"),
            format!("{ticket} 0"),
            format!("{ticket} "),
            format!("{ticket}  given"),
            ticket.clone(),
            format!("{client}:99999999999999999999 given"),
            format!("{client}:77 given"),
            "00000000-0000-0000-0000-000000000000:1 given".to_owned(),
            String::new(),
            "\r\n".to_owned(),
            ": ".to_owned(),
            "x".repeat(60_000),
        ];
        for payload in &forged {
            assert_eq!(server.ask::<i64>(&["PUBLISH", &ear, payload]), 1);
        }
        asks_when_told(&server, &ear, &ticket);
        assert_eq!(other.client().stats().reconnects, 0);
        assert_eq!(server.owner("n"), owner);
        assert!(!waiter.is_finished());
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

#[test]
fn garbage_on_an_ear_disturbs_nobody() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let (mut random, mut admin) = (numbers(0x5EED_0041), server.connection());
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let (ear, ticket) = ear(&server);
        for _ in 0..1_000 {
            let payload: Vec<u8> = (0..random(100)).map(|_| random(256) as u8).collect();
            let heard: i64 = redis::cmd("PUBLISH").arg(&ear).arg(payload).query(&mut admin).unwrap();
            assert_eq!(heard, 1);
        }
        asks_when_told(&server, &ear, &ticket);
        assert_eq!(other.client().stats().reconnects, 0);
        assert!(!waiter.is_finished());
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// Told again and again that the lock is free, or was given to an ask before, a waiter does not ask again and again.
#[test]
fn a_storm_on_an_ear_makes_no_storm_of_asks() {
    for news in ["free", "given"] {
        let server = Server::start();
        let (holder, other) = (holder(&server), patient(&server));
        scope(|scope| {
            let waiter = queued(scope, &server, || pass(&other));
            let (ear, ticket) = ear(&server);
            let mut storm = redis::pipe();
            for _ in 0..100 {
                storm.cmd("PUBLISH").arg(&ear).arg(format!("{} {news}", ticket.split('.').next().unwrap()));
            }
            let (mut flooding, start, mut published) = (server.connection(), Instant::now(), 0);
            let allowed = || 32 + start.elapsed().as_millis() as usize / 2 + 1;
            let commands = server.commands_during(|| {
                // Also on a machine that is late: then for longer.
                let is_storm = |published| start.elapsed() >= ms(500) && published > 2 * allowed();
                while !is_storm(published) && start.elapsed() < LONG {
                    storm.exec(&mut flooding).unwrap();
                    published += 100;
                }
            });
            let asks = commands.iter().filter(|command| command.starts_with("\"evalsha")).count();
            let allowed = allowed();
            assert!(published > 2 * allowed, "no storm: {published} messages");
            println!("{asks} asks for {published} messages {news:?}, {allowed} allowed");
            assert!(asks <= allowed, "{asks} asks, {allowed} allowed");
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            assert_served(waiter, unlocked);
        });
        eventually_empty(&server);
    }
}

/// The connection goes with what it had to read; the place does not.
#[test]
fn a_message_of_more_than_64_kib_on_an_ear_costs_no_place() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let ((ear, _), before) = (ear(&server), places(&server));
        for round in 1..=2 {
            server.ask::<i64>(&["PUBLISH", &ear, &"x".repeat(64 * 1024 + 1)]);
            eventually(LONG, "it has another connection", || other.client().stats().reconnects == round);
            eventually(LONG, "it listens again", || server.subscribers(&ear) == 1 && server.subscribers(CHANNEL) >= 1);
        }
        assert_eq!(places(&server), before);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// A ticket that nobody has is before all others, and the channel of its client is listened to.
const FORGED: &str = "5ca1ab1e:1.2.3.4.900";

/// Nobody waits for longer than until he looks again.
#[track_caller]
fn assert_late(waiter: ScopedJoinHandle<'_, (bool, Mark)>, since: Mark) {
    let (got, when) = finish(waiter);
    assert!(got && when - since <= ms(1_500) + SOON, "served after {:?}", when - since);
}

/// What it is given is over with its offer.
#[test]
fn a_forged_head_that_listens_delays_and_does_not_block() {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 3].map(|()| patient(&server)));
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe("redlatch_ear:5ca1ab1e").unwrap();
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        server.ask::<i64>(&["ZADD", QUEUE, "1", FORGED]);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_eq!(server.owner("n").0, "5ca1ab1e:3:4");
        waiters.into_iter().for_each(|waiter| assert_late(waiter, unlocked));
    });
    assert_eq!(line(&server), []);
}

/// The same with one who knew that it was the first, and looks at its poll cap.
#[test]
fn a_forged_head_that_listens_does_not_block_the_only_one_behind_it() {
    let server = Server::start();
    let (holder, other) = (holder(&server), locks_of(server.builder().poll_cap(ms(1_500))));
    let mut stranger = server.connection();
    let mut ear = stranger.as_pubsub();
    ear.subscribe("redlatch_ear:5ca1ab1e").unwrap();
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        server.ask::<i64>(&["ZADD", QUEUE, "1", FORGED]);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_late(waiter, unlocked);
    });
    assert_eq!(line(&server), []);
}

/// Marks that are set again and again keep who waits from the lock for as long, and no one else.
#[test]
fn a_forged_mark_delays_only_as_long_as_it_is_there() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        server.ask::<i64>(&["ZADD", QUEUE, "1", "gone:1"]);
        server.ask::<String>(&["SET", MARK, "foreign", "PX", "900"]);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        let (got, when) = finish(waiter);
        assert!(got && when - unlocked <= ms(900) + SOON, "served after {:?}", when - unlocked);
    });
    eventually_empty(&server);
}

/// Scores that no arrival has.
#[test]
fn a_forged_queue_blocks_nobody() {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 3].map(|()| patient(&server)));
    scope(|scope| {
        for (score, member) in [("-inf", ""), ("inf", "x"), ("1e300", ":"), ("-5", "a b c"), ("0.5", "\r\n")] {
            server.ask::<i64>(&["ZADD", QUEUE, score, member]);
        }
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| assert_served(waiter, unlocked));
    });
    server.ask::<i64>(&["DEL", QUEUE]);
}

/// The next to take it would delete such a lock.
#[test]
fn no_lock_is_where_the_queue_or_the_mark_of_another_may_be() {
    let server = Server::start();
    let locks = patient(&server);
    for name in [QUEUE, MARK, "redlatch_turn:n"] {
        assert_err!(locks.lock(name), Config);
        assert_err!(locks.try_lock(name), Config);
    }
}

/// Others keep what is no lock where the queue, or the mark, would be.
#[test]
fn keys_of_others_in_the_queues_place_keep_nobody_from_the_lock() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    holder.unlock("n").unwrap();
    for name in [QUEUE, MARK] {
        server.ask::<i64>(&["HSET", name, "a field", "1"]);
        for _ in 0..3 {
            holder.lock("n").unwrap();
            scope(|scope| {
                let waiter = crate::threads::spawn_asleep(scope, || pass(&other));
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(waiter, unlocked);
            });
        }
        server.ask::<i64>(&["DEL", name]);
    }
    eventually(LONG, "nothing is left", || server.ask::<Vec<String>>(&["KEYS", "*"]).is_empty());
}
