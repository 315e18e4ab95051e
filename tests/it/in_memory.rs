//! Semaphores and latches in memory answer as those on a server do.

use crate::proxy::numbers;
use crate::server::shared;
use crate::threads::{LONG, elsewhere, finish, ms, spawn_asleep, timed};
use redlatch::{Client, CountDownLatch, Error, LeasedSemaphore, Permits, Semaphore, Terms};
use std::thread::scope;
use std::time::Duration;

const ROUNDS: usize = 40;
const STEPS: usize = 60;

/// Each has names of its own.
fn client(seed: u64) -> Client {
    Client::builder(&shared().url()).key_prefix(format!("in-memory:{seed}:")).build().unwrap()
}

/// Some number in this range.
type Random = Box<dyn FnMut(std::ops::Range<u32>) -> u32>;

fn random(seed: u64) -> Random {
    let mut below = numbers(seed + 1);
    Box::new(move |range| range.start + below(u64::from(range.end - range.start)) as u32)
}

/// Gives one of them back.
fn give_back(random: &mut Random, held: &mut Vec<Permits>) -> Option<bool> {
    let at = if held.is_empty() { None } else { Some(random(0..held.len() as u32) as usize) };
    at.map(|at| held.swap_remove(at).release().is_ok())
}

fn take(held: &mut Vec<Permits>, taken: redlatch::Result<Option<Permits>>) -> Option<u32> {
    let taken = taken.unwrap();
    let count = taken.as_ref().map(Permits::count);
    held.extend(taken);
    count
}

/// What some calls with this seed answer.
fn of_leased(semaphore: &LeasedSemaphore, seed: u64) -> Vec<String> {
    let (mut random, mut held) = (random(seed), Vec::new());
    let answers = (0..STEPS).map(|_| match random(0..8) {
        0 => format!("{:?}", semaphore.try_set_permits("n", random(0..6))),
        1 => format!("{:?}", semaphore.set_permits("n", random(0..6))),
        2..5 => format!("{:?}", take(&mut held, semaphore.try_acquire("n", random(1..4)))),
        5 => format!("{:?}", give_back(&mut random, &mut held)),
        6 => format!("{:?}", (semaphore.available_permits("n"), semaphore.acquired_permits("n"))),
        _ if random(0..6) == 0 => format!("{:?}", semaphore.delete("n")),
        _ if random(0..4) == 0 => format!("{:?}", semaphore.force_release("n")),
        _ => format!("{:?}", semaphore.next_return("n").unwrap().is_some()),
    });
    answers.collect()
}

fn of_counted(semaphore: &Semaphore, seed: u64) -> Vec<String> {
    let (mut random, mut held) = (random(seed), Vec::new());
    let answers = (0..STEPS).map(|_| match random(0..8) {
        0 => format!("{:?}", semaphore.try_set_permits("n", random(0..6))),
        1 => format!("{:?}", semaphore.add_permits("n", random(1..3))),
        2 => format!("{:?}", semaphore.remove_permits("n", random(1..3))),
        3..5 => format!("{:?}", take(&mut held, semaphore.try_acquire("n", random(1..4)))),
        5 => format!("{:?}", give_back(&mut random, &mut held)),
        6 => format!("{:?}", semaphore.available_permits("n")),
        _ if random(0..4) == 0 => format!("{:?}", semaphore.delete("n")),
        _ => format!("{:?}", semaphore.drain_permits("n")),
    });
    answers.collect()
}

fn of_latches(latches: &CountDownLatch, seed: u64) -> Vec<String> {
    let mut random = random(seed);
    let answers = (0..STEPS).map(|_| match random(0..5) {
        0 => format!("{:?}", latches.try_set_count("n", random(1..4), (random(0..2) == 0).then_some(LONG))),
        1 => format!("{:?}", latches.count_down("n")),
        2 => format!("{:?}", latches.count("n")),
        3 => format!("{:?}", latches.wait("n", &Terms::new().wait(Duration::ZERO))),
        _ if random(0..4) == 0 => format!("{:?}", latches.open("n")),
        _ => format!("{:?}", latches.wait("n", &Terms::new().wait(ms(1)))),
    });
    answers.collect()
}

#[test]
fn each_answer_is_that_of_a_server() {
    for seed in 0..ROUNDS as u64 {
        let [one, two, three] = [0, 1, 2].map(|kind| client(3 * seed + kind));
        assert_eq!(of_leased(&LeasedSemaphore::in_memory(), seed), of_leased(&LeasedSemaphore::new(&one), seed));
        assert_eq!(of_counted(&Semaphore::in_memory(), seed), of_counted(&Semaphore::new(&two), seed));
        let latches = CountDownLatch::new(&three);
        // A wait of 1 ms leaves a late machine too little time to connect.
        latches.count("n").unwrap();
        assert_eq!(of_latches(&CountDownLatch::in_memory(), seed), of_latches(&latches, seed));
    }
}

#[test]
fn a_release_wakes_who_waits_and_a_lease_that_ends_does_too() {
    let (leased, counted) = (LeasedSemaphore::in_memory(), Semaphore::in_memory());
    leased.try_set_permits("n", 1).unwrap();
    counted.try_set_permits("n", 1).unwrap();
    let (one, other) = (leased.try_acquire("n", 1).unwrap(), counted.try_acquire("n", 1).unwrap());
    scope(|scope| {
        let waits = spawn_asleep(scope, || leased.acquire("n", 1, &Terms::new().wait(LONG).lease(ms(50))).unwrap());
        drop(one);
        let held = finish(waits).0.unwrap();
        let next = leased.acquire("n", 1, &Terms::new().wait(LONG)).unwrap();
        assert!(next.is_some() && matches!(held.release(), Err(Error::Lost { .. })));
        let waits = spawn_asleep(scope, || counted.acquire("n", 1, &Terms::new().wait(LONG)).unwrap().is_some());
        drop(other);
        assert!(finish(waits).0);
    });
}

#[test]
fn the_last_count_wakes_who_waits_and_a_time_that_is_over_does_too() {
    let latches = CountDownLatch::in_memory();
    latches.try_set_count("n", 1, None).unwrap();
    scope(|scope| {
        let waits = spawn_asleep(scope, || latches.wait("n", &Terms::new().wait(LONG)).unwrap());
        latches.count_down("n").unwrap();
        assert!(finish(waits).0);
    });
    latches.try_set_count("n", 1, Some(ms(50))).unwrap();
    let (waited, _) = timed(|| latches.wait("n", &Terms::new().wait(LONG)));
    assert!(matches!(waited, Err(Error::Expired { .. })), "{waited:?}");
}

#[test]
fn a_shutdown_ends_waits_and_clones_share_what_is_in_memory() {
    let latches = CountDownLatch::in_memory();
    latches.clone().try_set_count("n", 1, None).unwrap();
    assert_eq!(elsewhere(|| latches.count("n").unwrap()), 1);
    scope(|scope| {
        let waits = spawn_asleep(scope, || latches.wait("n", &Terms::new()));
        latches.client().shutdown();
        let waited = finish(waits).0;
        assert!(matches!(waited, Err(Error::Closed { .. })), "{waited:?}");
    });
}
