//! The lock is given by a release, and who is given it believes no more than it may.

use super::{
    CHANNEL, MINUTE, QUEUE, assert_served, ear_of, eventually_empty, holder, length, line, locks_of, pass, patient,
    queued,
};
use crate::proxy::{Flow, Proxy, Step, pass as pass_on, runs};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use redlatch::{CancelToken, Client, ClientBuilder, Error, FencedLock, HandOff, RedLock, RedLockExt, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
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

/// A client whose waiters look only when they are told to.
fn other_client(server: &Server, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
    set(Client::builder(&server.url()).poll_cap(MINUTE).watchdog_timeout(MINUTE)).build().unwrap()
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

/// A thread of each client takes the locks by turns. So the second time each is given, by a release that knows of who waits. It returns how
/// many were believed to be given, and how many of all are still held two offers later.
fn given_and_kept(server: &Server, [locks, other]: &[ReentrantLock; 2], names: &[String]) -> [usize; 2] {
    let waits = |name: &str| {
        let queue = format!("redlatch_queue:{{{name}}}");
        eventually(LONG, "it is queued", || server.ask::<usize>(&["ZCARD", &queue]) == 1);
    };
    names.iter().for_each(|name| locks.lock(name).unwrap());
    let guards = scope(|scope| {
        scope.spawn(|| {
            for name in names {
                assert!(other.try_lock_for(name, LONG).unwrap());
                waits(name);
                other.unlock(name).unwrap();
            }
        });
        let take = |name: &String| {
            waits(name);
            locks.unlock(name).unwrap();
            let guard = locks.guard(name).unwrap();
            (guard.hold().remaining() <= OFFER, guard)
        };
        names.iter().map(take).collect::<Vec<_>>()
    });
    sleep(2 * OFFER);
    let given = guards.iter().filter(|(given, _)| *given).count();
    [given, guards.into_iter().filter_map(|(_, guard)| guard.unlock().ok()).count()]
}

/// Whoever is given many locks prolongs each of them in time.
#[test]
fn of_many_locks_that_were_given_none_is_lost() {
    const THREADS: usize = 16;
    const EACH: usize = 25;
    let server = Server::start();
    let clients = [(); 2].map(|()| patient(&server));
    let [given, kept] = scope(|scope| {
        let hold = |thread| {
            let names: Vec<_> = (0..EACH).map(|name| format!("{thread}-{name}")).collect();
            let (server, clients) = (&server, &clients);
            scope.spawn(move || given_and_kept(server, clients, &names))
        };
        let threads: Vec<_> = (0..THREADS).map(hold).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    });
    assert!(given > THREADS * EACH / 2, "{given} were given");
    assert_eq!(kept, THREADS * EACH);
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
    let (holder, other) = (holder(&server), patient(&server));
    let mut stranger = server.connection();
    stranger.set_read_timeout(Some(ms(200))).unwrap();
    let mut ears = stranger.as_pubsub();
    ears.psubscribe("redlatch_ear:*").unwrap();
    let mut names = Vec::new();
    // One release of 128 gives the lock to nobody.
    for _ in 0..129 {
        scope(|scope| {
            let waiter = queued(scope, &server, || pass(&other));
            names.extend(line(&server).into_iter().map(|(ticket, _)| ticket));
            holder.unlock("n").unwrap();
            assert!(finish(waiter).0);
        });
        holder.lock("n").unwrap();
    }
    let heard = std::iter::from_fn(|| ears.get_message().ok()).map(|message| message.get_payload::<String>().unwrap());
    let told: Vec<_> = heard.filter(|text| !text.ends_with(" given")).collect();
    assert!(!told.is_empty(), "nothing but what was given");
    assert!(told.iter().all(|text| names.iter().all(|name| !text.contains(name))), "{told:?}");
    holder.unlock("n").unwrap();
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

/// That one who waits with this has it by one release and one ask, and whatever it needs besides.
#[track_caller]
fn assert_asked_for(act: &(dyn Fn(&Server) -> bool + Sync), server: &Server) {
    let holder = holder(server);
    scope(|scope| {
        let waiter = queued(scope, server, || act(server));
        let (ticket, _) = line(server).swap_remove(0);
        assert!(ticket.ends_with(".1500"), "{ticket}");
        let (unlocked, before) = (Mark::now(), scripts(server));
        holder.unlock("n").unwrap();
        assert_served(waiter, unlocked);
        // Its own release is the third.
        assert_eq!(scripts(server) - before, 3);
    });
    eventually_empty(server);
}

#[test]
fn a_lease_of_its_own_is_asked_for() {
    let server = Server::start();
    let other = patient(&server);
    let has_all = |server: &Server| {
        other.lock_with_lease("n", ms(40_000)).is_ok() && server.pttl("n") > 30_000 && other.unlock("n").is_ok()
    };
    assert_asked_for(&has_all, &server);
}

/// It would be prolonged beyond what it may be held.
#[test]
fn what_may_not_be_held_for_two_leases_is_asked_for() {
    let server = Server::start();
    let capped = locks_of(server.builder().watchdog_timeout(ms(2_000)).max_hold(ms(3_999)).poll_cap(MINUTE));
    let has_all = |server: &Server| capped.lock("n").is_ok() && server.pttl("n") > 1_500 && capped.unlock("n").is_ok();
    assert_asked_for(&has_all, &server);
}

const COUNTER: &str = "redisson_lock_token:{n}";

/// A re-entrant lock has no token to give.
#[test]
fn a_token_that_is_not_given_is_asked_for() {
    let server = Server::start();
    let fenced = FencedLock::new(&other_client(&server, |builder| builder));
    let has_all = |server: &Server| {
        let guard = fenced.guard("n").unwrap();
        guard.token().is_some() && server.pttl("n") > 30_000 && guard.unlock().is_ok()
    };
    assert_asked_for(&has_all, &server);
    server.ask::<i64>(&["DEL", COUNTER]);
}

/// The release of another counts the tokens on for it.
#[test]
fn a_fenced_lock_is_given_with_its_token() {
    let server = Server::start();
    let [first, second] = [(); 2].map(|()| FencedLock::new(&other_client(&server, |builder| builder)));
    let (holder, has, goes) = (holder(&server), channel(), channel());
    scope(|scope| {
        let first = queued(scope, &server, move || {
            let guard = first.guard("n").unwrap();
            has.0.send(()).unwrap();
            goes.1.recv().unwrap();
            (guard.token(), guard.unlock().is_ok())
        });
        holder.unlock("n").unwrap();
        has.1.recv().unwrap();
        let second = queued(scope, &server, || {
            let guard = second.guard("n").unwrap();
            let (scripts, given) = (scripts(&server), guard.hold().remaining() <= OFFER);
            (guard.token(), scripts, given && guard.unlock().is_ok())
        });
        let before = scripts(&server);
        goes.0.send(()).unwrap();
        let ((earlier, first_is_done), _) = finish(first);
        let ((token, after, second_is_done), _) = finish(second);
        assert!(first_is_done && second_is_done);
        assert!(earlier.is_some() && token > earlier, "{token:?} after {earlier:?}");
        assert_eq!(after - before, 1);
        assert_eq!(server.ask::<u64>(&["GET", COUNTER]), token.unwrap());
    });
    eventually_empty(&server);
    server.ask::<i64>(&["DEL", COUNTER]);
}

/// A message does not say which process of the server granted it.
#[test]
fn a_strict_client_asks() {
    let server = Server::start();
    let strict = ReentrantLock::new(&other_client(&server, |builder| builder.watchdog_timeout(ms(2_000)).strict(true)));
    // Its quarantine is over then.
    pass(&strict);
    let has_all = |server: &Server| strict.lock("n").is_ok() && server.pttl("n") > 1_500 && strict.unlock("n").is_ok();
    assert_asked_for(&has_all, &server);
}

/// The message that gives it the lock comes to an end after any of its bytes, with the connection: it finds what it has when it asks.
#[test]
fn whatever_comes_of_the_message_the_lock_is_its_own() {
    let server = Server::start();
    let (holder, proxy) = (holder(&server), Proxy::new(server.socket()));
    let other = locks_of(Client::builder(&proxy.url()).poll_cap(MINUTE).watchdog_timeout(MINUTE));
    let at_last = |data: &[u8], word: &[u8]| data.windows(word.len()).rposition(|part| part == word);
    // Of all bytes of the longest message: the numbers of a ticket have no fixed length.
    let (cuts, length) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
    // A holder that was stopped for 2 s expects nobody, and gives nothing: that round is no cut. So there are more rounds than bytes.
    for at in (0..1_000).map(|_| cuts.load(SeqCst)).take_while(|at| *at < length.load(SeqCst)) {
        let (counted, seen, mut cut) = (Arc::clone(&cuts), Arc::clone(&length), false);
        proxy.set(move |_, flow, data| {
            if cut || flow != Flow::Reply || at_last(data, b" given").is_none() {
                return pass_on(data);
            }
            cut = true;
            counted.fetch_add(1, SeqCst);
            // The reply to a subscription may be before it in the same read.
            let message = at_last(data, b"*3").unwrap();
            seen.fetch_max(data.len() - message, SeqCst);
            vec![Step::Send(data[..data.len().min(message + at)].to_vec()), Step::Cut]
        });
        scope(|scope| {
            let waiter = queued(scope, &server, || pass(&other));
            let unlocked = Mark::now();
            holder.unlock("n").unwrap();
            assert_served(waiter, unlocked);
        });
        eventually_empty(&server);
        holder.lock("n").unwrap();
    }
    assert!(cuts.load(SeqCst) == length.load(SeqCst) && cuts.load(SeqCst) > 100, "{cuts:?} cuts, of {length:?} bytes");
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
