//! What permits and latches cost: the commands of calls that nobody is in the way of, and the keys that operations leave.

use crate::TIMES;
use crate::server::Server;
use redlatch::{Client, CountDownLatch, LeasedSemaphore, Permits, Semaphore, Terms};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

fn client(server: &Server) -> Client {
    server.builder().build().unwrap()
}

/// How many commands `act` sends each time, once it has been done before.
#[track_caller]
fn assert_sends(server: &Server, commands: usize, act: impl Fn()) {
    act();
    let seen = server.commands_during(|| (0..TIMES).for_each(|_| act()));
    assert_eq!(seen.len(), commands * TIMES, "{seen:#?}");
}

fn pair(acquired: redlatch::Result<Option<Permits>>) {
    acquired.unwrap().unwrap().release().unwrap();
}

#[test]
fn a_pair_of_permits_is_two_commands() {
    let server = Server::start();
    let (leased, counted) = (LeasedSemaphore::new(&client(&server)), Semaphore::new(&client(&server)));
    leased.try_set_permits("leased", 5).unwrap();
    counted.try_set_permits("counted", 5).unwrap();
    assert_sends(&server, 2, || pair(leased.acquire("leased", 1, &Terms::new())));
    assert_sends(&server, 2, || pair(counted.acquire("counted", 1, &Terms::new())));
}

#[test]
fn a_try_of_permits_that_are_out_is_one_command() {
    let server = Server::start();
    let leased = LeasedSemaphore::new(&client(&server));
    leased.try_set_permits("leased", 1).unwrap();
    let held = leased.try_acquire("leased", 1).unwrap();
    assert_sends(&server, 1, || assert!(leased.try_acquire("leased", 1).unwrap().is_none()));
    drop(held);
}

#[test]
fn each_call_of_a_latch_is_one_command() {
    let server = Server::start();
    let latches = CountDownLatch::new(&client(&server));
    assert!(latches.try_set_count("n", 1_000, None).unwrap());
    assert_sends(&server, 1, || assert!(latches.count_down("n").unwrap() > 0));
    latches.open("n").unwrap();
    assert_sends(&server, 1, || assert!(latches.wait("n", &Terms::new()).unwrap()));
}

/// One for each thread that had operations at once, however many it had.
#[test]
fn operations_leave_one_result_for_each_thread() {
    const THREADS: usize = 4;
    let server = Server::start();
    let counted = Semaphore::new(&client(&server));
    counted.try_set_permits("n", 10).unwrap();
    scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TIMES).for_each(|_| pair(counted.acquire("n", 1, &Terms::new()))));
        }
    });
    let keys: Vec<String> = server.ask(&["KEYS", "redlatch_op:*"]);
    assert!((1..=THREADS).contains(&keys.len()), "{keys:?}");
    assert!(keys.iter().all(|key| server.ask::<i64>(&["PTTL", key]) > 0), "{keys:?}");
}

/// How many scripts an acquire and a release are of clients that come again at once.
fn scripts_a_pair(server: &Server, clients: &[LeasedSemaphore]) -> f64 {
    const PAIRS: usize = 300;
    let (left, before) = (AtomicUsize::new(PAIRS), evalshas(server));
    scope(|scope| {
        for semaphore in clients {
            scope.spawn(|| {
                while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                    pair(semaphore.acquire("n", 1, &Terms::new()));
                }
            });
        }
    });
    (evalshas(server) - before) / PAIRS as f64
}

fn evalshas(server: &Server) -> f64 {
    let stats = server.ask::<String>(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    calls.map_or(0.0, |calls| calls.parse().unwrap())
}

/// The ask that joins, the release that tells the first, and the ask of that one: however many wait.
#[test]
fn a_permit_goes_from_client_to_client_by_three_scripts() {
    for clients in [2, 8] {
        let server = Server::start();
        let clients: Vec<_> = (0..clients).map(|_| LeasedSemaphore::new(&client(&server))).collect();
        clients[0].try_set_permits("n", 1).unwrap();
        let mut seen = Vec::new();
        let few = (0..10).any(|_| {
            seen.push(scripts_a_pair(&server, &clients));
            *seen.last().unwrap() <= 3.3
        });
        println!("{seen:.2?} scripts a pair of {} clients", clients.len());
        assert!(few, "{seen:.2?} scripts a pair of {} clients", clients.len());
    }
}
