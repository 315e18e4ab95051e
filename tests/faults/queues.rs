//! Rows 58 to 64: what may become of the queue of those who wait, and of those in it.
//!
//! Lease and poll cap are a minute: nothing but the queue and messages could serve a waiter in time. What a single fault
//! leads to step by step is in `tests/it/turns`; here many go on while it happens again and again.

use crate::process::{Peer, alone, hear, tell, with_peer};
use crate::proxy::numbers;
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use harness::queue::{
    MARK, Over, QUEUE, assert_served, eventually_empty, holder, length, line, pass, patient, patient_at, places, queued,
};
use redlatch::RedLock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;
use std::time::{Duration, Instant};

/// For so long one that is stopped has what it is given.
const OFFER: Duration = Duration::from_millis(1_500);

/// How long a fault goes on.
const DISTURBED: Duration = Duration::from_millis(1_500);

/// Several clients pass the lock around for as long as the fault goes on, which `disturb` does again and again, and for a
/// while after it: never do two of them have it, and all go on getting it.
pub(crate) fn assert_goes_round<L: RedLock>(server: &Server, clients: &[L], mut disturb: impl FnMut()) {
    let (over, inside) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts: Vec<_> = clients.iter().map(|_| AtomicUsize::new(0)).collect();
    scope(|scope| {
        for (locks, count) in clients.iter().zip(&counts) {
            let (over, inside) = (&over, &inside);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    assert!(locks.try_lock_for("n", LONG).unwrap(), "not served");
                    assert!(!inside.swap(true, SeqCst), "two have the lock");
                    inside.store(false, SeqCst);
                    locks.unlock("n").unwrap();
                    count.fetch_add(1, SeqCst);
                }
            });
        }
        let (_over, start) = (Over(&over), Instant::now());
        while start.elapsed() < DISTURBED {
            disturb();
        }
        let before: Vec<_> = counts.iter().map(|count| count.load(SeqCst)).collect();
        eventually(LONG, "all go on", || {
            counts.iter().zip(&before).all(|(count, before)| count.load(SeqCst) > *before)
        });
        over.store(true, SeqCst);
    });
    println!("{counts:?}");
    server.ask::<i64>(&["DEL", QUEUE, MARK]);
}

/// A process that waits, and says when it had its turn.
fn wait_in_turn(url: &str) {
    let locks = patient_at(url);
    assert!(locks.try_lock_for("n", LONG).unwrap());
    tell(url, "had its turn");
    locks.unlock("n").unwrap();
}

fn start_queued(server: &Server, start: &dyn Fn(&Server) -> Peer) -> Peer {
    let before = length(server);
    let peer = start(server);
    eventually(LONG, "the process is queued", || length(server) == before + 1);
    peer
}

#[test]
fn fault_58_processes_that_are_killed_while_they_wait_are_skipped() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| {
            let server = Server::start();
            let (holder, [first, last]) = (holder(&server), [(); 2].map(|()| patient(&server)));
            scope(|scope| {
                let mut dead = vec![start_queued(&server, start), start_queued(&server, start)];
                let first = queued(scope, &server, || pass(&first));
                dead.push(start_queued(&server, start));
                let last = queued(scope, &server, || pass(&last));
                drop(dead);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(first, unlocked);
                assert_served(last, unlocked);
            });
            eventually_empty(&server);
        },
    );
}

#[test]
fn fault_59_a_process_that_is_stopped_while_it_waits_costs_an_offer_and_comes_last() {
    with_peer(
        |url| {
            wait_in_turn(url);
        },
        |start| {
            let server = Server::start();
            let (holder, [other, later]) = (holder(&server), [(); 2].map(|()| patient(&server)));
            scope(|scope| {
                let stopped = start_queued(&server, start);
                stopped.freeze();
                let waiter = queued(scope, &server, || pass(&other));
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                let (got, when) = finish(waiter);
                assert!(
                    got && when - unlocked >= OFFER - ms(10) && when - unlocked <= OFFER + SOON,
                    "served after {:?}",
                    when - unlocked
                );
                assert!(holder.try_lock_for("n", LONG).unwrap());
                let later = queued(scope, &server, || pass(&later));
                stopped.thaw();
                eventually(LONG, "it is queued again", || length(&server) == 2);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(later, unlocked);
                assert_eq!(hear(&server), "had its turn");
                stopped.join();
            });
            eventually_empty(&server);
        },
    );
}

/// What somebody may do to the queue and the mark who has no business there.
fn forge(server: &Server, random: &mut impl FnMut(u64) -> u64) {
    let number = random(2_000_000_000_000_000).to_string();
    let forged: [&[&str]; 9] = [
        &["DEL", QUEUE, MARK],
        &["ZADD", QUEUE, "1", "gone:1"],
        &["ZADD", QUEUE, "inf", ""],
        &["ZADD", QUEUE, &number, &number],
        &["ZREMRANGEBYRANK", QUEUE, "0", "0"],
        &["PERSIST", QUEUE],
        &["SET", MARK, "foreign", "PX", "20"],
        &["SET", MARK, "head"],
        &["RENAME", MARK, QUEUE],
    ];
    // On a key of another type most are refused.
    let _ = server.try_ask::<redis::Value>(forged[random(9) as usize]);
}

#[test]
fn fault_60_a_forged_queue_grants_nothing_and_blocks_nobody() {
    let server = Server::start();
    let clients = [(); 4].map(|()| patient(&server));
    let mut random = numbers(0x5EED_0060);
    assert_goes_round(&server, &clients, || {
        forge(&server, &mut random);
        std::thread::sleep(ms(random(5)));
    });
}

/// The lines of the log that speak of a refused queue.
pub(crate) static REFUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Refusals;

impl log::Log for Refusals {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if text.contains("refuses the queue") {
            REFUSED.lock().unwrap().push(text);
        }
    }

    fn flush(&self) {}
}

/// From now on these lines are kept. A process has one logger.
pub(crate) fn keep_refusals() {
    log::set_logger(&Refusals).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
}

#[test]
fn fault_61_rights_that_are_taken_away_cost_the_order_and_one_line_of_the_log() {
    alone(|| {
        keep_refusals();
        let server = Server::start();
        let url = server.let_in("user", "pw", "~* +@all &*");
        let clients = [(); 3].map(|()| patient_at(&url));
        let mut rules = ["~n +@all", "~* +@all", "~* +@all -zadd", "~* +@all -pubsub", "~* +@all"].into_iter().cycle();
        assert_goes_round(&server, &clients, || {
            // Not reset first, as it would be by another let_in: nobody is to be refused the lock.
            let change = ["ACL", "SETUSER", "user", "resetkeys"];
            let change: Vec<_> = change.into_iter().chain(rules.next().unwrap().split(' ')).collect();
            server.ask::<String>(&change);
            std::thread::sleep(ms(100));
        });
        let refused = REFUSED.lock().unwrap();
        assert!((1..=clients.len()).contains(&refused.len()), "{refused:?}");
        assert!(refused.iter().all(|line| line.contains(QUEUE)), "{refused:?}");
    });
}

#[test]
fn fault_62_without_memory_nobody_queues_and_everybody_is_served_when_there_is_some() {
    let server = Server::start();
    let clients = [(); 3].map(|()| patient(&server));
    assert_goes_round(&server, &clients, || {
        for size in ["1", "0"] {
            server.ask::<String>(&["CONFIG", "SET", "maxmemory", size]);
            std::thread::sleep(ms(100));
        }
    });
}

/// All that wait came, by their arrivals, an hour later than it is now.
#[test]
fn fault_63_those_who_come_after_a_step_back_of_the_clock_are_behind_those_before_it() {
    const HOUR: u64 = 3_600_000_000;
    let server = Server::start();
    let (holder, clients) = (holder(&server), [(); 6].map(|()| patient(&server)));
    scope(|scope| {
        let (before, after) = clients.split_at(3);
        let mut waiters: Vec<_> = before.iter().map(|locks| queued(scope, &server, || pass(locks))).collect();
        let now = line(&server)[2].1;
        // One that asks again meanwhile has another ticket.
        eventually(LONG, "all came in an hour", || {
            for (ticket, arrival) in line(&server).into_iter().filter(|(_, arrival)| *arrival <= now) {
                server.ask::<i64>(&["ZADD", QUEUE, "XX", &(arrival + HOUR).to_string(), &ticket]);
            }
            line(&server).iter().all(|(_, arrival)| *arrival > now)
        });
        let first = places(&server);
        for (place, locks) in after.iter().enumerate() {
            waiters.push(queued(scope, &server, || pass(locks)));
            let line = places(&server);
            assert_eq!(line[..3], first);
            assert!(line.is_sorted_by_key(|(_, arrival)| *arrival) && line.len() == 4 + place);
        }
        let mut arrivals: Vec<_> = line(&server).into_iter().map(|(_, arrival)| arrival).collect();
        arrivals.dedup();
        assert_eq!(arrivals.len(), clients.len(), "none has that of another");
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| assert_served(waiter, unlocked));
    });
    eventually_empty(&server);
}

#[test]
fn fault_64_connections_that_break_again_and_again_cost_nobody_the_lock() {
    let server = Server::start();
    let clients = [(); 4].map(|()| patient(&server));
    assert_goes_round(&server, &clients, || {
        server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        std::thread::sleep(ms(70));
    });
}
