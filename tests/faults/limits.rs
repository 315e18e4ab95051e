//! Rows 54, 55 and 88: renewals that have much or slow work, a process that gets no files, threads or memory, and one
//! that waits for thousands of locks.

use crate::locks_of;
use crate::process::{alone, alone_with};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LATE, LONG, SOON, WATCHED, eventually, ms, timed};
use redlatch::{Client, LossCause, RedLock, RedLockExt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A server that answers nothing takes no renewal from the locks of another.
#[test]
fn fault_54_a_stopped_server_does_not_hold_up_the_renewals_of_another() {
    let (stopped, server) = (Server::start(), Server::start());
    let (stuck, locks) = (stopped.locks_watched(WATCHED), server.locks_watched(3 * WATCHED));
    let (doomed, guard) = (stuck.guard("n").unwrap(), locks.guard("n").unwrap());
    stopped.freeze();
    assert_eq!(doomed.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    let renewed = locks.client().stats().renewals;
    eventually(LONG, "it is renewed again and again", || locks.client().stats().renewals > renewed + 2);
    assert!(guard.is_valid() && locks.client().stats().failed_renewals == 0);
    stopped.thaw();
    assert_err!(doomed.unlock(), Lost);
}

/// Far away, and many: they go in batches, and the margin that a program can watch stays wide.
#[test]
fn fault_54_many_holds_at_a_slow_server_keep_their_margin() {
    // Each answer has two seconds, and a proxy between that is as late as this process.
    const LEASE: Duration = Duration::from_secs(6);
    const HOLDS: usize = 300;
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let locks = locks_of(Client::builder(&proxy.url()).watchdog_timeout(LEASE));
    let names: Vec<_> = (0..HOLDS).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| locks.lock(name).unwrap());
    proxy.delay(ms(100));
    let stats = || locks.client().stats();
    eventually(LONG, "each is renewed three times", || stats().renewals >= 3 * HOLDS as u64);
    println!("{:?}", stats());
    assert_eq!((stats().lost, stats().failed_renewals), (0, 0));
    assert!(stats().smallest_renewal_margin.unwrap() >= 1.0 / 3.0);
    proxy.clear();
    names.iter().for_each(|name| locks.unlock(name).unwrap());
}

/// Lowers what the system gives this process, until it is dropped.
struct Limited {
    resource: Resource,
    before: Rlimit,
    /// Threads that sleep until this is dropped.
    sleepers: Vec<Sender<()>>,
}

impl Limited {
    fn to(resource: Resource, current: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(current), maximum: before.maximum }).unwrap();
        Self { resource, before, sleepers: Vec::new() }
    }

    /// Not one file more than there are.
    fn files() -> Self {
        Self::to(Resource::Nofile, 3)
    }

    /// 100 MiB more than there is: enough for all else, too little for the stack of a thread where that is larger. The C
    /// library keeps the stack of the thread that ended last: sleepers take what is kept.
    fn memory() -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let mut limited = Self::to(Resource::As, pages * 4_096 + 100 * 1_024 * 1_024);
        while let (sleeper, Ok(_)) = asleep() {
            limited.sleepers.push(sleeper);
            assert!(limited.sleepers.len() < 10, "threads can be started");
        }
        limited
    }
}

/// A thread that sleeps until its sender is dropped, if it can be started.
fn asleep() -> (Sender<()>, std::io::Result<JoinHandle<()>>) {
    let (sleeper, woken) = channel::<()>();
    (sleeper, Builder::new().spawn(move || woken.iter().for_each(drop)))
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.resource, self.before).unwrap();
    }
}

#[test]
fn fault_55_without_a_file_a_call_fails_and_a_connection_that_is_there_goes_on() {
    alone(|| {
        let server = Server::start();
        let fresh = locks_of(server.builder().outage_budget(ms(300)));
        let (used, holder) = (server.locks(), server.locks());
        used.lock("n").unwrap();
        holder.lock_with_lease("busy", ms(400)).unwrap();
        let limited = Limited::files();
        let (result, took) = timed(|| fresh.lock("m"));
        assert_err!(result, Unavailable);
        assert!(took <= ms(300) + SOON, "took {took:?}");
        let (result, took) = timed(|| fresh.try_lock_for("m", ms(100)));
        assert_err!(result, Unavailable);
        assert!(took <= ms(100) + LATE, "took {took:?}");
        used.unlock("n").unwrap();
        assert!(used.try_lock_for("busy", LONG).unwrap(), "without a subscriber it polls");
        used.unlock("busy").unwrap();
        drop(limited);
        fresh.lock("m").unwrap();
        fresh.unlock("m").unwrap();
        assert_err!(holder.unlock("busy"), Lost);
    });
}

#[test]
fn fault_55_a_renewal_without_a_file_is_repeated_until_the_lease_ends() {
    alone(|| {
        let server = Server::start();
        let locks = server.locks_watched(WATCHED);
        locks.lock("n").unwrap();
        let lost = locks.hold("n").unwrap().lost();
        let limited = Limited::files();
        assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
        drop(limited);
        assert!(locks.client().stats().failed_renewals > 1);
        assert_err!(locks.unlock("n"), Lost);
        let (_guard, renewed) = (locks.guard("n").unwrap(), locks.client().stats().renewals);
        eventually(LONG, "it is renewed", || locks.client().stats().renewals > renewed);
    });
}

/// No stack can be had for a thread: of a pool, a timer, those that renew, a subscriber, a callback.
#[test]
fn fault_55_without_a_thread_calls_fail_or_wait_without_help() {
    // More than what is left and what the C library may give back meanwhile: its heaps for threads are 64 MiB each.
    alone_with(&[("RUST_MIN_STACK", "268435456")], || {
        let server = Server::start();
        let builder = || server.builder().watchdog_timeout(ms(3_000));
        let (fresh, timed, holder) = (locks_of(builder()), locks_of(builder()), server.locks());
        timed.lock_with_lease("n", LONG).unwrap();
        timed.unlock("n").unwrap();
        holder.lock_with_lease("busy", ms(400)).unwrap();
        let limited = Limited::memory();
        assert_err!(Client::connect(&server.url()), Config);
        assert_err!(fresh.lock("n"), Unavailable);
        assert_eq!(fresh.hold_count("n"), 0);
        assert!(timed.try_lock_for_with_lease("busy", LONG, LONG).unwrap(), "without a subscriber it polls");
        timed.unlock("busy").unwrap();
        timed.lock("m").unwrap();
        let lost = timed.hold("m").unwrap().lost();
        assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired, "nobody could renew it");
        drop(limited);
        assert_err!(timed.unlock("m"), Lost);
        for locks in [&fresh, &timed] {
            assert!(locks.try_lock_for("n", LONG).unwrap());
            let renewed = locks.client().stats().renewals;
            eventually(LONG, "it is renewed", || locks.client().stats().renewals > renewed);
            locks.unlock("n").unwrap();
        }
        assert_err!(holder.unlock("busy"), Lost);
    });
}

/// Others give up at some number of names that one client waits for, or need a connection for each.
#[test]
fn fault_88_a_client_may_wait_for_thousands_of_names_at_once() {
    alone(|| {
        const NAMES: usize = 2_000;
        let server = Server::start();
        let (holder, waiter) = (server.locks(), server.locks());
        let names: Vec<_> = (0..NAMES).map(|number| format!("n{number}")).collect();
        names.iter().for_each(|name| holder.lock(name).unwrap());
        std::thread::scope(|scope| {
            // A busy machine may take long until each of them had one of the connections.
            let wait = |name: &String| waiter.try_lock_for(name, 3 * LONG).unwrap() && waiter.unlock(name).is_ok();
            let small = || Builder::new().stack_size(256 * 1_024);
            let start = |name| small().spawn_scoped(scope, move || wait(name)).unwrap();
            let waiting: Vec<_> = names.iter().map(start).collect();
            let channels = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]).len();
            eventually(LONG, "all are listened for", || channels() == NAMES);
            let connections = server.ask::<String>(&["CLIENT", "LIST"]).lines().count();
            assert!(connections < 50, "{connections} connections");
            names.iter().for_each(|name| holder.unlock(name).unwrap());
            assert!(waiting.into_iter().all(|waiter| waiter.join().unwrap()));
        });
    });
}
