//! One thread that writes and reads, in each order.

use super::{locks, two};
use crate::proxy::{Proxy, Step};
use crate::server::Server;
use crate::threads::{LONG, elsewhere, finish, ms, spawn_asleep};
use redlatch::{Client, HandOff, ReadWriteLock, RedLock, RedLockExt, Terms};
use std::time::Duration;

/// Of a write hold under which somebody reads for longer.
const SHORT: Duration = Duration::from_millis(1_000);

#[test]
fn who_writes_may_read_and_go_on_reading() {
    let server = Server::start();
    let hand_off = HandOff::default().within(LONG);
    let [locks, other] = [(); 2].map(|()| ReadWriteLock::new(&server.builder().hand_off(hand_off).build().unwrap()));
    let write = locks.write().guard("n").unwrap();
    let read = locks.read().guard("n").unwrap();
    assert!(elsewhere(|| !locks.read().try_lock("n").unwrap()), "a sibling would read beside the writer");
    assert!(!other.read().try_lock("n").unwrap());
    std::thread::scope(|scope| {
        let waiter =
            spawn_asleep(scope, || other.read().try_lock_for("n", LONG).unwrap() && other.read().unlock("n").is_ok());
        write.unlock().unwrap();
        assert!(finish(waiter).0, "who waits to read is told");
    });
    assert!(read.is_valid() && locks.read().verify(read.hold()).unwrap());
    assert!(!other.write().try_lock("n").unwrap());
    assert_eq!(server.ask::<String>(&["HGET", "n", "mode"]), "read");
    read.unlock().unwrap();
    other.write().guard("n").unwrap().unlock().unwrap();
}

/// Those who wait in line before it wait for what it has.
#[test]
fn who_writes_reads_past_the_threads_of_its_process_that_wait_for_it() {
    let server = Server::start();
    let locks = locks(&server);
    for lease in [None, Some(LONG)] {
        locks.write().lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || locks.read().lock("n").is_ok() && locks.read().unlock("n").is_ok());
            let terms = lease.into_iter().fold(Terms::new().wait(LONG), Terms::lease);
            let read = locks.read().acquire("n", &terms).unwrap();
            locks.write().unlock("n").unwrap();
            assert!(read.is_some(), "it waits for itself");
            assert!(finish(waiter).0);
            locks.read().unlock("n").unwrap();
        });
    }
}

/// W R R and R first again, with what is left after each.
#[test]
fn sides_are_given_up_in_any_order() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let (read, write) = (locks.read(), locks.write());
    let busy = || !other.write().try_lock("n").unwrap();
    let sides: [&dyn RedLock; 2] = [read, write];
    for order in [[1, 0, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0], [1, 0, 1, 1, 0, 1], [1, 1, 0, 1, 0, 1], [1, 1, 0, 1, 1, 0]] {
        order[..3].iter().for_each(|side| sides[*side].lock("n").unwrap());
        for side in &order[3..] {
            assert!(busy(), "{order:?}");
            sides[*side].unlock("n").unwrap();
        }
        assert!(!busy(), "{order:?}");
        other.write().unlock("n").unwrap();
    }
}

/// A writer's re-entry for a short time, and a short read under it.
#[test]
fn a_short_lease_inside_of_a_long_one_shortens_nothing() {
    let server = Server::start();
    let locks = locks(&server);
    let long = ms(60_000);
    locks.write().lock_with_lease("n", long).unwrap();
    locks.write().lock_with_lease("n", ms(500)).unwrap();
    locks.read().lock_with_lease("n", ms(500)).unwrap();
    assert!(server.pttl("n") > 50_000);
    locks.read().unlock("n").unwrap();
    locks.write().unlock("n").unwrap();
    assert!(server.pttl("n") > 50_000, "what the writer has is not that of its reads");
    locks.write().unlock("n").unwrap();
}

/// Else a writer's long lease would keep the next one out after a reader that has a short one.
#[test]
fn the_lock_has_the_ttl_of_those_who_are_left() {
    let server = Server::start();
    let [locks, other] = two(&server);
    locks.write().lock_with_lease("n", ms(60_000)).unwrap();
    locks.read().lock_with_lease("n", ms(5_000)).unwrap();
    locks.write().unlock("n").unwrap();
    assert!((3_000..=5_000).contains(&server.pttl("n")), "{}", server.pttl("n"));
    other.read().lock_with_lease("n", ms(20_000)).unwrap();
    assert!(server.pttl("n") > 15_000);
    other.read().unlock("n").unwrap();
    assert!(server.pttl("n") <= 5_000);
    locks.read().unlock("n").unwrap();
}

/// Its field would keep readers out for as long as somebody reads under it, whether its thread unlocks it or not.
#[test]
fn a_write_lease_that_ends_leaves_the_lock_to_who_reads_under_it() {
    let server = Server::start();
    let [locks, other] = two(&server);
    locks.write().lock_with_lease("n", SHORT).unwrap();
    let read = locks.read().guard("n").unwrap();
    assert!(!other.read().try_lock("n").unwrap());
    assert!(other.read().try_lock_for("n", LONG).unwrap(), "nobody writes any more");
    assert!(read.is_valid() && !elsewhere(|| other.write().try_lock("n").unwrap()));
    other.read().unlock("n").unwrap();
    assert_err!(locks.write().unlock("n"), Lost);
    read.unlock().unwrap();
}

/// The release of the write side is tried again for as long as its field may be there, which is not its own lease.
#[test]
fn a_write_release_is_made_up_for_after_an_outage_that_outlasts_its_lease() {
    let server = Server::start();
    let proxy = Proxy::new(server.socket());
    let client = Client::builder(&proxy.url()).outage_budget(ms(100)).build().unwrap();
    let (locks, direct) = (ReadWriteLock::new(&client), self::locks(&server));
    locks.write().lock_with_lease("n", SHORT).unwrap();
    locks.read().lock_with_lease("n", Duration::from_secs(60)).unwrap();
    proxy.set(|_, _, _| vec![Step::Cut]);
    locks.write().unlock("n").unwrap_err();
    std::thread::sleep(2 * SHORT);
    assert!(!direct.read().try_lock("n").unwrap());
    proxy.clear();
    assert!(direct.read().try_lock_for("n", LONG).unwrap(), "nobody writes any more");
    direct.read().unlock("n").unwrap();
    locks.read().unlock("n").unwrap();
}
