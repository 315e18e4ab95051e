//! Waits that end before the server got to them: without the lock, and without an error.

use super::multi::members::Wrapper;
use crate::proxy::{Flow, Proxy, pass, pass_after};
use crate::server::Server;
use crate::threads::{LONG, ms, while_held_elsewhere};
use redlatch::{
    Client, Error, FencedLock, MultiLock, QuorumLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Result,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How long the server may execute a command after it was sent.
const LEASE: Duration = Duration::from_millis(10);

/// By how much each command arrives later. Its answer is waited for 200 ms at least.
const HELD_UP: Duration = Duration::from_millis(60);

/// The time of a wait and of a try. The server comes to several attempts in it, to each too late.
const TIME: Duration = Duration::from_millis(300);

/// A server whose commands are held up from some moment on.
struct Slow {
    server: Server,
    proxy: Proxy,
}

impl Slow {
    fn start() -> Self {
        let server = Server::start();
        let proxy = Proxy::new(server.socket());
        Self { server, proxy }
    }

    fn hold_up(&self) {
        self.proxy.set(|_, flow, data| {
            let is_script = data.windows(4).any(|word| word == b"EVAL");
            if flow == Flow::Request && is_script { pass_after(HELD_UP, data) } else { pass(data) }
        });
    }

    fn client(&self) -> Client {
        Client::builder(&self.proxy.url()).response_timeout(TIME).build().unwrap()
    }
}

/// What such a call ends with. A machine that is late itself may keep the answer from arriving in time: then it is made again.
#[track_caller]
fn ended<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let unclear = |told: &Result<T>| matches!(told, Err(Error::OutcomeUnknown { .. }));
    (0..20).map(|_| call()).find(|told| !unclear(told)).expect("a machine that is not always late")
}

/// A try is told of a server that needs longer than one response time-out; a wait is over.
#[track_caller]
fn assert_in_vain(locks: &dyn RedLock, slow: &[Slow]) {
    drop(locks.guard("n").unwrap());
    slow.iter().for_each(Slow::hold_up);
    assert!(!ended(|| locks.try_lock_for_with_lease("n", ms(2), LEASE)).unwrap());
    assert!(!ended(|| locks.try_lock_for_with_lease("n", TIME, LEASE)).unwrap());
    let request = |wait| locks.request("n").wait(wait).lease(LEASE);
    assert!(ended(|| request(TIME).guard()).unwrap().is_none());
    assert!(ended(|| request(TIME).execute(|_| unreachable!("without the lock"))).unwrap().is_none());
    let error = ended(|| request(Duration::ZERO).guard()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("the server took too long to execute it"), "{error}");
    slow.iter().for_each(|slow| slow.proxy.clear());
    assert!(locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok());
}

#[test]
fn a_wait_of_each_kind_ends_in_vain_if_the_server_comes_to_it_too_late() {
    let slow = [Slow::start()];
    let client = slow[0].client();
    let sides = ReadWriteLock::new(&client);
    assert_in_vain(&ReentrantLock::new(&client), &slow);
    assert_in_vain(&FencedLock::new(&client), &slow);
    assert_in_vain(&sides.read(), &slow);
    assert_in_vain(&sides.write(), &slow);
    assert_eq!(client.stats().timed_out, 16, "each wait is counted");
    slow[0].server.clear();
}

#[test]
fn a_wait_for_a_quorum_ends_in_vain_if_its_servers_come_to_it_too_late() {
    let slow = [(); 3].map(|()| Slow::start());
    let builder = QuorumLock::builder(slow.iter().map(|slow| slow.proxy.url()));
    assert_in_vain(&builder.response_timeout(TIME).node_timeout(TIME).build().unwrap(), &slow);
}

#[test]
fn a_wait_for_one_more_level_ends_in_vain_and_the_hold_goes_on() {
    let slow = Slow::start();
    let locks = ReentrantLock::new(&slow.client());
    let guard = locks.guard("n").unwrap();
    slow.hold_up();
    assert!(!ended(|| locks.try_lock_for_with_lease("n", TIME, LEASE)).unwrap());
    slow.proxy.clear();
    assert_eq!(locks.hold_count("n"), 1);
    guard.unlock().unwrap();
}

/// By one script, and one by one.
#[test]
fn a_wait_for_a_group_ends_in_vain_if_the_server_comes_to_it_too_late() {
    let slow = Slow::start();
    let client = slow.client();
    let (locks, fenced) = (ReentrantLock::new(&client), FencedLock::new(&client));
    let together = MultiLock::of([(&locks, "a"), (&locks, "b")]);
    let apart = MultiLock::of([(&locks as &dyn RedLock, "a"), (&fenced, "c")]);
    for group in [together, apart] {
        drop(group.guard().unwrap());
        slow.hold_up();
        assert!(!ended(|| group.try_lock_for_with_lease(TIME, LEASE)).unwrap());
        assert!(ended(|| group.request().wait(TIME).lease(LEASE).guard()).unwrap().is_none());
        assert_err!(ended(|| group.request().wait(Duration::ZERO).lease(LEASE).guard()), Unavailable);
        slow.proxy.clear();
    }
    slow.server.clear();
}

/// A member that is away when the wait of its group ends; before, so many of its calls reached it.
fn group_with_one_that_goes_away(after: usize) -> Result<bool> {
    let asked = AtomicUsize::new(0);
    let locks = Wrapper::new(move |name| {
        if name != "b" || asked.fetch_add(1, SeqCst) < after {
            return Ok(());
        }
        std::thread::sleep(ms(20));
        Err(Error::unavailable(name, "the connection is refused"))
    });
    let mut told = Ok(true);
    while_held_elsewhere(&locks.inner, "b", |_| {
        told = MultiLock::of([(&locks, "a"), (&locks, "b")]).try_lock_for(ms(10));
    });
    told
}

#[test]
fn a_group_whose_busy_member_goes_away_ends_in_vain_and_one_that_was_away_all_the_time_is_told() {
    assert!(!group_with_one_that_goes_away(1).unwrap());
    assert_err!(group_with_one_that_goes_away(0), Unavailable);
}
