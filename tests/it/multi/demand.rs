//! Groups beside others that want one of their members, again and again: those are given it one after the other.

use super::MultiLock;
use crate::harness::queue::locks_of;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LONG, SOON, eventually, finish, ms, timed};
use redlatch::{Client, Error, RedLock, RedLockExt, ReentrantLock, Terms};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{Scope, scope};
use std::time::{Duration, Instant};

const NAMES: [&str; 2] = ["a", "b"];

/// A try finds a member free next to never. By tries alone a group waited for up to 13 s here.
const TIME: Duration = Duration::from_secs(5);

fn client(server: &Server) -> ReentrantLock {
    locks_of(Client::builder(&server.url()))
}

/// Others want a lock again and again, until this is dropped, also by a test that fails.
#[derive(Default)]
struct Demand {
    over: AtomicBool,
    turns: AtomicUsize,
}

struct Over<'a>(&'a Demand);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, SeqCst);
    }
}

impl Demand {
    /// So many clients, each of which holds it for so long.
    fn add<'s>(&'s self, scope: &'s Scope<'s, '_>, server: &'s Server, name: &'s str, clients: usize, hold: Duration) {
        for locks in std::iter::repeat_with(|| client(server)).take(clients) {
            scope.spawn(move || {
                while !self.over.load(SeqCst) {
                    locks.lock(name).unwrap();
                    std::thread::sleep(hold);
                    locks.unlock(name).unwrap();
                    self.turns.fetch_add(1, SeqCst);
                }
            });
        }
    }

    #[track_caller]
    fn eventually(&self, turns: usize) {
        eventually(LONG, "all are there", || self.turns.load(SeqCst) > turns);
    }
}

/// Each name is wanted by four clients, which come again at once.
#[test]
fn a_group_has_its_turn_though_each_member_is_in_demand() {
    let (server, demand) = (Server::start(), Demand::default());
    scope(|scope| {
        let _over = Over(&demand);
        NAMES.into_iter().for_each(|name| demand.add(scope, &server, name, 4, ms(1)));
        let locks = client(&server);
        let group = MultiLock::of(NAMES.map(|name| (&locks, name)));
        demand.eventually(100);
        let waits = [(); 10].map(|()| {
            let since = Instant::now();
            let hold = group.acquire(&Terms::new().wait(TIME)).unwrap();
            let waited = since.elapsed();
            group.release(&hold.expect("it has its turn")).unwrap();
            waited
        });
        println!("{} turns of others; the group waited for {waits:?}", demand.turns.load(SeqCst));
    });
}

/// The queue of the second is longer than any bound while the first is held: it is waited for with empty hands.
#[test]
fn a_group_has_its_turn_though_one_member_is_held_for_long_each_time() {
    let (server, demand) = (Server::start(), Demand::default());
    scope(|scope| {
        let _over = Over(&demand);
        demand.add(scope, &server, "a", 2, ms(1));
        demand.add(scope, &server, "b", 3, ms(400));
        let locks = client(&server);
        let group = MultiLock::of(NAMES.map(|name| (&locks, name)));
        demand.eventually(100);
        for _ in 0..3 {
            let hold = group.acquire(&Terms::new().wait(LONG)).unwrap();
            group.release(&hold.expect("it has its turn")).unwrap();
        }
    });
}

/// The server is far away, so a group may wait for long with a part in hand. While the one member is held, the groups begin with it; then
/// the other is held, and some begin with that.
#[test]
fn groups_that_begin_with_either_member_do_not_keep_each_other_out() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    proxy.delay(ms(50));
    let clients = [(); 4].map(|()| locks_of(Client::builder(&proxy.url())));
    let holder = client(&server);
    scope(|scope| {
        let held = holder.guard("b").unwrap();
        let wait = |locks| {
            scope.spawn(move || {
                let group = MultiLock::of(NAMES.map(|name| (locks, name)));
                group.try_lock_for(LONG).and_then(|got| if got { group.unlock().map(|()| got) } else { Ok(got) })
            })
        };
        let groups: Vec<_> = clients.iter().cycle().take(8).map(wait).collect();
        std::thread::sleep(ms(2_000));
        let a = holder.guard("a").unwrap();
        drop(held);
        std::thread::sleep(ms(2_500));
        drop(a);
        let since = Instant::now();
        let got: Vec<_> = groups.into_iter().map(finish).map(Result::unwrap).collect();
        println!("all were in after {:?}", since.elapsed());
        assert_eq!(got, [true; 8], "each is in within {LONG:?}");
    });
}

/// A group wants the one lock, which is in demand, and another that is held for long: it waits for that with empty hands. If it held the one
/// each time for as long as it may, the others would wait for most of the time.
#[test]
fn who_wants_a_member_does_not_wait_for_all_that_the_group_waits_for() {
    const HELD: Duration = Duration::from_secs(6);
    let server = Server::start();
    let (holder, others, grouped) = (client(&server), client(&server), client(&server));
    scope(|scope| {
        let held = holder.guard("b").unwrap();
        scope.spawn(|| {
            let group = MultiLock::of(NAMES.map(|name| (&grouped, name)));
            group.lock().and_then(|()| group.unlock()).unwrap();
        });
        let (since, mut longest, mut all) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        while since.elapsed() < HELD {
            let asked = Instant::now();
            others.lock("a").unwrap();
            let waited = asked.elapsed();
            longest = longest.max(waited);
            all += if waited > ms(15) { waited } else { Duration::ZERO };
            others.unlock("a").unwrap();
        }
        drop(held);
        println!("it waited for {longest:?}, {all:?} in all");
        assert!(longest < HELD / 4 && all < HELD / 2, "{longest:?}, {all:?} in all");
    });
    assert_eq!(grouped.client().stats().timed_out, 0, "the wait of the group did not end in vain");
}

/// One of them has a member in hand now and then, and each has a place in a line or in a queue.
#[test]
fn a_shutdown_ends_all_groups_that_wait_and_leaves_nothing_of_them() {
    let server = Server::start();
    let clients = [(); 4].map(|()| client(&server));
    let holder = client(&server);
    let held = holder.guard("b").unwrap();
    scope(|scope| {
        let wait = |locks| scope.spawn(move || MultiLock::of(NAMES.map(|name| (locks, name))).try_lock_for(LONG));
        let groups: Vec<_> = clients.iter().cycle().take(40).map(wait).collect();
        let are_queued = || server.ask::<usize>(&["ZCARD", "redlatch_queue:{b}"]) > 1;
        eventually(LONG, "one waits with a member in hand", || are_queued() && holder.is_locked("a").unwrap());
        let ((), took) = timed(|| clients.iter().for_each(|locks| locks.client().shutdown()));
        assert!(took <= SOON, "{took:?}");
        for got in groups.into_iter().map(finish) {
            assert!(matches!(got, Err(Error::Closed { .. })), "{got:?}");
        }
    });
    eventually(SOON, "nothing is left", || server.ask::<Vec<String>>(&["KEYS", "*"]) == ["b"]);
    held.unlock().unwrap();
}
