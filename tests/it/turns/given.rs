//! The lock is given by a release, and who is given it believes no more than it may.

use super::{
    CHANNEL, MINUTE, QUEUE, assert_served, ear_of, eventually_empty, holder, length, line, locks_of, pass, patient,
    queued,
};
use crate::proxy::{Proxy, Step, pass as pass_on, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{CancelToken, Client, Error, HandOff, RedLock, RedLockExt, ReentrantLock};
use std::thread::{scope, sleep};
use std::time::Duration;

/// For so long who is given a lock has it, unless it is prolonged.
const OFFER: Duration = Duration::from_millis(1_500);

/// How many scripts the server ran.
fn scripts(server: &Server) -> u64 {
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok();
    stats.lines().find_map(calls).unwrap_or(0)
}

/// Waits for the lock, tells how many scripts there had been when it had it, and gives it back after that long.
fn counted(locks: &ReentrantLock, server: &Server, after: Duration) -> u64 {
    assert!(locks.try_lock_for("n", LONG).unwrap());
    let scripts = scripts(server);
    sleep(after);
    locks.unlock("n").unwrap();
    scripts
}

#[test]
fn one_release_is_all_that_it_costs() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || counted(&other, &server, Duration::ZERO));
        let before = scripts(&server);
        holder.unlock("n").unwrap();
        assert_eq!(finish(waiter).0 - before, 1);
    });
    eventually_empty(&server);
}

/// It is prolonged as soon as it is not as short as most holds are.
#[test]
fn who_holds_on_has_its_own_lease_soon() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || {
            let guard = other.guard("n").unwrap();
            let given = guard.hold().remaining();
            eventually(SOON, "it is prolonged", || {
                guard.hold().remaining() > MINUTE - LONG && server.pttl("n") > 40_000
            });
            sleep(2 * OFFER);
            (given, guard.unlock().is_ok())
        });
        holder.unlock("n").unwrap();
        let ((given, kept), _) = finish(waiter);
        assert!(given <= OFFER && kept, "{given:?}");
    });
}

/// What is left of its offer would be too little, counted from its ask, so it asks again.
#[test]
fn who_waited_for_longer_than_half_an_offer_asks_again() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || {
            let guard = other.guard("n").unwrap();
            let (remaining, scripts) = (guard.hold().remaining(), scripts(&server));
            guard.unlock().unwrap();
            (remaining, scripts)
        });
        sleep(OFFER / 2 + ms(50));
        let before = scripts(&server);
        holder.unlock("n").unwrap();
        let ((remaining, after), _) = finish(waiter);
        assert_eq!(after - before, 2);
        assert!(remaining > OFFER, "{remaining:?}");
    });
}

/// The name of a ticket is that of its last ask. Of another name it does not believe that it was given the lock.
#[test]
fn what_was_given_to_another_name_is_not_believed() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let others: [fn(&str) -> String; 3] = [
        |ticket| ticket.replace(&format!(".{}.", ticket.split('.').nth(1).unwrap()), ".0."),
        |ticket| ticket.replace(".1500", ".60000"),
        |ticket| ticket.split('.').next().unwrap().to_owned(),
    ];
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        for forge in others {
            // It asks because of each, and has another name then.
            let (ticket, _) = line(&server).swap_remove(0);
            let forged = forge(&ticket);
            assert_ne!(forged, ticket);
            assert_eq!(server.ask::<i64>(&["PUBLISH", &ear_of(&ticket), &format!("{forged} given")]), 1);
            eventually(LONG, "it asks", || line(&server)[0].0 != ticket);
            assert!(!waiter.is_finished() && holder.is_locked("n").unwrap());
        }
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
    eventually_empty(&server);
}

/// Whoever may listen on the ear of a client hears nothing by which he could tell it that it has the lock.
#[test]
fn what_a_ticket_is_told_does_not_tell_its_name() {
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 3].map(|()| patient(&server)));
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let mut stranger = server.connection();
        stranger.set_read_timeout(Some(ms(200))).unwrap();
        let mut ears = stranger.as_pubsub();
        ears.psubscribe("redlatch_ear:*").unwrap();
        // So long that the second is told, too.
        sleep(ms(20));
        let names: Vec<_> = line(&server).into_iter().map(|(ticket, _)| ticket).collect();
        holder.unlock("n").unwrap();
        let mut told = 0;
        while let Ok(message) = ears.get_message() {
            let text: String = message.get_payload().unwrap();
            told += usize::from(!text.ends_with(" given"));
            assert!(text.ends_with(" given") || names.iter().all(|name| !text.contains(name)), "{text}");
        }
        assert!(told > 0, "nothing but what was given");
        waiters.into_iter().for_each(|waiter| assert!(finish(waiter).0));
    });
    eventually_empty(&server);
}

/// As by a release: the lock is its own, and nobody has told it.
fn give_by_hand(server: &Server) {
    let (ticket, _) = line(server).swap_remove(0);
    let (client, name) = ticket.split_once(':').unwrap();
    let [_, _, thread, hold, offer] = name.split('.').collect::<Vec<_>>()[..] else { panic!("{ticket}") };
    server.ask::<i64>(&["ZREM", QUEUE, &ticket]);
    server.ask::<i64>(&["DEL", "n"]);
    server.ask::<i64>(&["HSET", "n", &format!("{client}:{thread}:{hold}"), "1"]);
    server.ask::<i64>(&["PEXPIRE", "n", offer]);
}

/// The next has it, and not after the offer.
#[test]
fn who_gives_up_what_it_was_given_frees_it() {
    let server = Server::start();
    let clients = [(); 2].map(|()| patient(&server));
    for _ in 0..3 {
        let (_holder, token) = (holder(&server), CancelToken::new());
        scope(|scope| {
            let first = queued(scope, &server, || {
                let cancelled = clients[0].request("n").cancelled_by(&token).guard();
                matches!(cancelled, Err(Error::Cancelled { .. }))
            });
            let second = queued(scope, &server, || pass(&clients[1]));
            give_by_hand(&server);
            let given = Mark::now();
            token.cancel();
            assert!(finish(first).0);
            let (got, when) = finish(second);
            assert!(got && when - given < OFFER - ms(300), "served after {:?}", when - given);
        });
        eventually_empty(&server);
    }
}

/// It was not told, as when its connection is cut: it finds what it has when it listens again.
#[test]
fn who_missed_that_it_was_given_the_lock_finds_it() {
    let server = Server::start();
    let (_holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        give_by_hand(&server);
        let given = Mark::now();
        server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_served(waiter, given);
    });
    eventually_empty(&server);
}

/// Of whom a lease of its own is asked for, or what is not to be renewed for long, nothing is given: it has exactly that.
#[test]
fn a_lease_of_its_own_is_asked_for() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    let capped = locks_of(server.builder().watchdog_timeout(ms(2_000)).max_hold(ms(3_999)).poll_cap(MINUTE));
    let acts: [&(dyn Fn() -> bool + Sync); 2] = [
        &|| other.lock_with_lease("n", ms(40_000)).is_ok() && server.pttl("n") > 30_000 && other.unlock("n").is_ok(),
        &|| capped.lock("n").is_ok() && server.pttl("n") > 1_500 && capped.unlock("n").is_ok(),
    ];
    for act in acts {
        scope(|scope| {
            let waiter = queued(scope, &server, act);
            let (ticket, _) = line(&server).swap_remove(0);
            assert!(!ticket.contains('.'), "{ticket}");
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            assert_served(waiter, unlocked);
        });
        eventually_empty(&server);
        holder.lock("n").unwrap();
    }
    holder.unlock("n").unwrap();
}

/// Half of what it was given is as good as half of its lease.
#[test]
fn what_was_given_is_passed_on_in_memory() {
    let server = Server::start();
    let holder = holder(&server);
    let hand_off = HandOff::default().within(SOON).in_order();
    let other = locks_of(Client::builder(&server.url()).poll_cap(MINUTE).watchdog_timeout(MINUTE).hand_off(hand_off));
    scope(|scope| {
        let first = queued(scope, &server, || pass(&other));
        let second = scope.spawn(|| pass(&other));
        eventually(LONG, "it waits", || other.client().stats().waiters == 2);
        holder.unlock("n").unwrap();
        assert!(finish(first).0 && second.join().unwrap());
    });
    assert_eq!(other.client().stats().passes, 1);
    eventually_empty(&server);
}

/// Only the lock's own queue is asked: two names that differ in braces have a channel in common, and a client one ear.
#[test]
fn nobody_is_given_a_lock_whose_name_differs_in_braces() {
    let server = Server::start();
    let (holder, other) = (holder(&server), patient(&server));
    scope(|scope| {
        let waiter = queued(scope, &server, || pass(&other));
        let stranger = patient(&server);
        for _ in 0..3 {
            stranger.lock("{n}").unwrap();
            stranger.unlock("{n}").unwrap();
        }
        sleep(ms(50));
        assert!(!waiter.is_finished() && length(&server) == 1 && server.subscribers(CHANNEL) > 0);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
    });
}

/// The answer to its ask is lost, and the repeat has the lock. What that ask may have left is given up later, and the lock is not.
#[test]
fn who_has_the_lock_by_a_repeated_ask_keeps_it() {
    const ANSWER: Duration = Duration::from_millis(200);
    let server = Server::start();
    let (holder, proxy) = (holder(&server), Proxy::new(server.socket()));
    let builder = Client::builder(&proxy.url()).watchdog_timeout(MINUTE).poll_cap(MINUTE);
    let other = locks_of(builder.response_timeout(ANSWER));
    scope(|scope| {
        let waiter = queued(scope, &server, || {
            let guard = other.guard("n").unwrap();
            sleep(3 * ANSWER);
            other.verify(guard.hold()).unwrap() && guard.unlock().is_ok()
        });
        sleep(OFFER / 2 + ms(50));
        let (asks, mut cut) = (runs("in_turn+acquire"), 0);
        proxy.set(move |_, flow, data| {
            let lost = asks(flow, data) && cut == 0;
            cut += usize::from(lost);
            if lost { vec![Step::Send(data.to_vec()), Step::Cut] } else { pass_on(data) }
        });
        holder.unlock("n").unwrap();
        assert!(finish(waiter).0, "it was freed");
    });
    eventually_empty(&server);
}
