//! What locks cost that several clients want: the commands, and what stays of those who wait.
//!
//! Who waits looks by itself when others come later than they use to, which a busy machine makes them do: so what counts is
//! the least, or what is usual.

use crate::counting::bytes;
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms};
use crate::usual;
use harness::queue::{CHANNEL, MINUTE, Over, QUEUE, eventually_empty, holder, length, locks_of, pass, patient, queued};
use redlatch::RedLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

/// The scripts among commands.
fn scripts(commands: &[String]) -> usize {
    commands.iter().filter(|command| command.starts_with("\"eval")).count()
}

/// How many scripts a pair is of clients that lock, unlock and come again at once.
pub(crate) fn scripts_a_pair<L: RedLock>(server: &Server, clients: &[L]) -> f64 {
    const PAIRS: usize = 300;
    let (over, pairs) = (AtomicBool::new(false), AtomicUsize::new(0));
    scope(|scope| {
        for locks in clients {
            let (over, pairs) = (&over, &pairs);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    locks.lock("n").unwrap();
                    pairs.fetch_add(1, SeqCst);
                    locks.unlock("n").unwrap();
                }
            });
        }
        let _over = Over(&over);
        eventually(LONG, "all come at once", || pairs.load(SeqCst) > 30);
        let before = pairs.load(SeqCst);
        let mut made = 0;
        let commands = server.commands_during(|| {
            eventually(LONG, "they go on", || pairs.load(SeqCst) >= before + PAIRS);
            made = pairs.load(SeqCst) - before;
        });
        scripts(&commands) as f64 / made as f64
    })
}

/// The release and the newcomer's ask that joins; and now and then a message to all, after which the head asks.
#[test]
fn a_pair_of_many_clients_is_two_scripts() {
    for (clients, most) in [(2, 2.2), (3, 2.2), (8, 2.3)] {
        let server = Server::start();
        let clients: Vec<_> = (0..clients).map(|_| patient(&server)).collect();
        let mut seen = Vec::new();
        let few = (0..10).any(|_| {
            seen.push(scripts_a_pair(&server, &clients));
            *seen.last().unwrap() <= most
        });
        println!("{seen:.2?} scripts a pair of {} clients", clients.len());
        assert!(few, "{seen:.2?} scripts a pair of {} clients", clients.len());
        eventually_empty(&server);
    }
}

/// Where it waited lately it listens still: its first ask joins, and it is given the lock.
#[test]
fn who_is_given_the_lock_asks_once() {
    let server = Server::start();
    let (one, other) = (holder(&server), patient(&server));
    let commands = || {
        let commands = server.commands_during(|| {
            scope(|scope| {
                let waiter = queued(scope, &server, || pass(&other));
                one.unlock("n").unwrap();
                assert!(finish(waiter).0);
            });
        });
        one.lock("n").unwrap();
        // Those of the test itself are no scripts, and the other's release is one more.
        scripts(&commands)
    };
    let usually = usual(commands);
    println!("{usually} scripts");
    assert_eq!(usually, 3);
    one.unlock("n").unwrap();
    eventually_empty(&server);
}

/// An ask, three channels and that of questions, one more ask when each of two is confirmed, one as its time ends, and the leave of its place and of what it may have been given.
#[test]
fn a_wait_in_vain_is_few_commands() {
    let server = Server::start();
    let holder = holder(&server);
    let waits = || {
        // The self-test is counted elsewhere.
        let other = locks_of(server.builder().poll_cap(MINUTE).self_test(false));
        assert!(!other.try_lock_for("n", ms(300)).unwrap());
        eventually_empty(&server);
    };
    // Then the server knows all scripts.
    waits();
    let commands = server.commands_during(waits);
    let (scripts, listens) =
        (scripts(&commands), commands.iter().filter(|line| line.starts_with("\"subscribe\"")).count());
    println!("{scripts} scripts, {listens} channels");
    // And once more if its subscriptions were slow.
    assert!(scripts <= 6 && listens <= 4, "{commands:#?}");
    holder.unlock("n").unwrap();
}

/// A client subscribes once to the questions of a census, and nothing else is sent for that while nobody asks.
#[test]
fn a_census_costs_a_client_one_subscription() {
    let server = Server::start();
    let (holder, other) = (holder(&server), locks_of(server.builder().poll_cap(MINUTE).self_test(false)));
    let waits = || {
        assert!(!other.try_lock_for("n", ms(300)).unwrap());
        eventually_empty(&server);
        eventually(LONG, "its channels are given up", || server.channels_of_locks().is_empty());
    };
    let census = |commands: &[String]| commands.iter().filter(|line| line.contains("redlatch_census:")).count();
    let (first, second) = (server.commands_during(waits), server.commands_during(waits));
    assert_eq!((census(&first), census(&second)), (1, 0), "{first:#?} {second:#?}");
    holder.unlock("n").unwrap();
}

/// As long as nothing happens, who waits looks once an offer, and the first of them once a poll cap.
#[test]
fn those_who_wait_for_long_send_next_to_nothing() {
    const WAITING: usize = 6;
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); WAITING].map(|()| patient(&server)));
    scope(|scope| {
        let waiters: Vec<_> = clients.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let commands = server.commands_during(|| std::thread::sleep(ms(2_000)));
        println!("{} scripts of {WAITING} that wait", scripts(&commands));
        assert!(scripts(&commands) <= 2 * WAITING, "{commands:#?}");
        holder.unlock("n").unwrap();
        assert!(waiters.into_iter().all(|waiter| finish(waiter).0));
    });
    eventually_empty(&server);
}

/// A queue's name, its channels and what is known of the company are given up with it.
#[test]
fn no_memory_grows_with_waits_in_company() {
    alone(|| {
        const WAITS: usize = 100;
        let server = Server::start();
        let (holder, other) = (patient(&server), patient(&server));
        let round = || {
            for _ in 0..WAITS {
                holder.lock("n").unwrap();
                scope(|scope| {
                    let waiter = queued(scope, &server, || pass(&other));
                    holder.unlock("n").unwrap();
                    finish(waiter);
                });
            }
        };
        round();
        let least = (0..4).map(|_| bytes(round).1).min().unwrap();
        println!("{least} bytes after {WAITS} waits");
        assert!(least <= (WAITS * 8).cast_signed(), "{least} bytes after {WAITS} waits");
    });
}

/// Nothing of it is at the server when all have gone.
#[test]
fn nothing_is_left_of_a_crowd() {
    let server = Server::start();
    let clients: Vec<_> = (0..4).map(|_| locks_of(server.builder().watchdog_timeout(MINUTE))).collect();
    scope(|scope| {
        for locks in &clients {
            scope.spawn(|| assert!((0..50).all(|_| pass(locks))));
        }
    });
    eventually_empty(&server);
    assert_eq!((length(&server), server.ask::<i64>(&["EXISTS", QUEUE, "n"])), (0, 0));
    eventually(LONG, "nobody listens", || server.subscribers(CHANNEL) == 0);
    eventually(LONG, "to nothing", || server.channels_of_locks().is_empty());
}
