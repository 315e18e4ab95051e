//! Very many waiters, holds and calls: what one process needs for them, and that nothing grows.
//!
//! Each test runs in a process of its own, because it counts that process's threads, files and memory. What it
//! measured is printed.

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, ms, of_redlatch};
use redlatch::{Client, RedLock, ReentrantLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

const MANY: usize = 1_000;

/// The pool's worker, the timer, two that renew, the sweeper, the subscriber, the events.
const THREADS: usize = 7;

/// A lease that is not renewed while a test runs: its renewals would be among the commands that are counted.
const UNRENEWED: Duration = Duration::from_secs(600);

/// Long enough for two pings and a poll.
const IDLE: Duration = Duration::from_millis(6_500);

fn spawn(act: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().stack_size(128 * 1024).spawn(act).unwrap()
}

/// The memory of this process that is in use, in bytes.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The processor time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ms(ticks * 10)
}

/// While all wait, nothing is sent but what looks whether a lock is free and whether the server is there.
fn assert_idle_and_cheap(server: &Server, client: &Client, before: usize, locks: usize) {
    let per_waiter = (memory() - before) / MANY;
    println!("{MANY} waiters on {locks} locks: {per_waiter} bytes each, its thread's stack included");
    assert!(of_redlatch().len() <= THREADS, "{:?}", of_redlatch());
    let commands = server.commands_during(|| std::thread::sleep(IDLE));
    let (polls, others): (Vec<_>, Vec<_>) = commands.iter().partition(|command| command.starts_with("\"evalsha\""));
    assert!(others.iter().all(|command| *command == "\"ping\""), "{others:?}");
    assert!(polls.len() <= 2 * locks, "{} polls of {locks} locks in {IDLE:?}", polls.len());
    assert_eq!(server.ask::<String>(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count(), 1);
    assert_eq!(client.stats().waiters, MANY);
}

#[test]
fn a_thousand_threads_wait_for_one_lock() {
    alone(|| {
        let server = Server::start();
        let (holder, locks) = (server.locks_watched(UNRENEWED), server.locks());
        let served = Arc::new(AtomicUsize::new(0));
        holder.lock("n").unwrap();
        let before = memory();
        let waiters = (0..MANY).map(|_| {
            let (locks, served) = (locks.clone(), Arc::clone(&served));
            spawn(move || {
                locks.lock("n").unwrap();
                served.fetch_add(1, SeqCst);
                locks.unlock("n").unwrap();
            })
        });
        let waiters: Vec<_> = waiters.collect();
        eventually(LONG, "all wait", || locks.client().stats().waiters == MANY);
        eventually(LONG, "one is subscribed", || server.subscribers("redisson_lock__channel:{n}") == 1);
        assert_idle_and_cheap(&server, locks.client(), before, 1);
        let start = Instant::now();
        holder.unlock("n").unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        println!("all served within {:?}", start.elapsed());
        assert_eq!(served.load(SeqCst), MANY);
    });
}

#[test]
fn a_thousand_threads_wait_for_a_thousand_locks_held_elsewhere() {
    alone(|| {
        let server = Server::start();
        let holder = server.locks_watched(UNRENEWED);
        // A busy machine may take long until each of a thousand threads had one of the connections.
        let locks = ReentrantLock::new(&server.builder().outage_budget(UNRENEWED).build().unwrap());
        let names: Vec<_> = (0..MANY).map(|number| format!("n{number}")).collect();
        names.iter().for_each(|name| holder.lock(name).unwrap());
        let before = memory();
        let waiters = names.iter().map(|name| {
            let (locks, name) = (locks.clone(), name.clone());
            spawn(move || {
                locks.lock(&name).unwrap();
                locks.unlock(&name).unwrap();
            })
        });
        let waiters: Vec<_> = waiters.collect();
        eventually(LONG, "all are subscribed", || {
            server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel:{n*"]).len() == MANY
        });
        assert_idle_and_cheap(&server, locks.client(), before, MANY);
        let start = Instant::now();
        for (name, waiter) in names.iter().zip(waiters) {
            holder.unlock(name).unwrap();
            waiter.join().unwrap();
        }
        println!("freed and served one by one within {:?}", start.elapsed());
    });
}

#[test]
fn ten_thousand_holds_are_renewed() {
    alone(|| {
        const HOLDS: usize = 10_000;
        // Four seconds are left for a renewal that is due.
        const LEASE: Duration = Duration::from_secs(6);
        let server = Server::start();
        let lost = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lost);
        let on_lost = move |_| {
            count.fetch_add(1, SeqCst);
        };
        let client = server.builder().watchdog_timeout(LEASE).on_lost(on_lost).build().unwrap();
        let locks = ReentrantLock::new(&client);
        locks.lock("warm").unwrap();
        locks.unlock("warm").unwrap();
        let before = memory();
        let names: Vec<_> = (0..HOLDS).map(|number| format!("n{number}")).collect();
        names.iter().for_each(|name| locks.lock(name).unwrap());
        println!("{HOLDS} holds: {} bytes each", (memory() - before) / HOLDS);
        let (start, cpu) = (Instant::now(), cpu_time());
        let commands = server.commands_during(|| std::thread::sleep(LEASE)).len();
        let share = (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
        let stats = client.stats();
        println!("{commands} commands in {:?}, {:.1} % of a core, {stats:?}", LEASE, 100.0 * share);
        assert!(of_redlatch().len() <= THREADS, "{:?}", of_redlatch());
        assert_eq!((stats.holds, stats.lost, stats.failed_renewals, lost.load(SeqCst)), (HOLDS, 0, 0, 0));
        assert!(commands <= HOLDS, "renewals go in batches: {commands}");
        names.iter().for_each(|name| locks.unlock(name).unwrap());
    });
}

#[test]
fn a_hundred_thousand_pairs_and_two_hundred_reconnects_leave_nothing() {
    alone(|| {
        let server = Server::start();
        let locks = ReentrantLock::new(&server.builder().pool_size(1).build().unwrap());
        let pairs = |number: usize| {
            for _ in 0..number {
                locks.lock("n").unwrap();
                locks.unlock("n").unwrap();
            }
        };
        pairs(1);
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        pairs(10_000);
        let before = (open_files(), of_redlatch().len(), memory());
        for _ in 0..200 {
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            pairs(450);
        }
        let after = (open_files(), of_redlatch().len(), memory());
        println!("files, threads and memory before and after: {before:?}, {after:?}");
        assert!(locks.client().stats().reconnects >= 200);
        eventually(SOON, "no file more than before", || open_files() <= before.0 + 1);
        assert_eq!(after.1, before.1);
        assert!(after.2 <= before.2 + 2 * 1024 * 1024, "memory grows");
    });
}
