//! Read-write locks: readers together, a writer alone, and who of them comes first.

mod believed;
mod downgrades;
mod in_memory;
mod moves;
mod on_the_wire;
mod starving;

use crate::server::Server;
use crate::threads::{
    LONG, Mark, OUTLIVED, SOON, WATCHED, answered, elsewhere, eventually, finish, ms, run_out, spawn_asleep,
    while_held_elsewhere,
};
use redlatch::{
    Client, Error, LocalReadWriteLock, MultiLock, ReadWriteLock, RedLock, RedLockExt, ReentrantLock, Terms,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn locks(server: &Server) -> ReadWriteLock {
    ReadWriteLock::connect(&server.url()).unwrap()
}

/// The same lock by two clients, as two processes have it.
fn two(server: &Server) -> [ReadWriteLock; 2] {
    [(); 2].map(|()| locks(server))
}

#[test]
fn readers_are_together_and_a_writer_is_alone() {
    let server = Server::start();
    let [one, other] = two(&server);
    let reading = one.read().guard("n").unwrap();
    let beside = other.read().guard("n").unwrap();
    assert!(elsewhere(|| one.read().try_lock("n").unwrap() && one.read().unlock("n").is_ok()));
    assert!(elsewhere(|| !one.write().try_lock("n").unwrap() && !other.write().try_lock("n").unwrap()));
    assert!(one.read().is_locked("n").unwrap() && !one.write().is_locked("n").unwrap());
    reading.unlock().unwrap();
    assert!(elsewhere(|| !one.write().try_lock("n").unwrap()), "one reads still");
    beside.unlock().unwrap();
    let writing = one.write().guard("n").unwrap();
    assert!(!other.write().try_lock("n").unwrap() && !other.read().try_lock("n").unwrap());
    assert!(one.write().is_locked("n").unwrap() && !one.read().is_locked("n").unwrap());
    writing.unlock().unwrap();
    assert!(!one.write().is_locked("n").unwrap());
}

/// Writers count on each other's number, and readers see none that is half done.
#[test]
fn nobody_reads_or_writes_beside_a_writer() {
    let server = Server::start();
    let clients = two(&server);
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let writes = |locks: &ReadWriteLock| {
        let guard = locks.write().guard("n").unwrap();
        let seen = first.load(SeqCst);
        first.store(seen + 1, SeqCst);
        std::thread::yield_now();
        second.store(seen + 1, SeqCst);
        guard.unlock().unwrap();
    };
    let reads = |locks: &ReadWriteLock| {
        let guard = locks.read().guard("n").unwrap();
        assert_eq!(first.load(SeqCst), second.load(SeqCst), "a writer is at work");
        guard.unlock().unwrap();
    };
    std::thread::scope(|scope| {
        for locks in clients.iter().flat_map(|locks| [locks; 3]) {
            scope.spawn(|| (0..40).for_each(|_| writes(locks)));
            scope.spawn(|| (0..40).for_each(|_| reads(locks)));
        }
    });
    assert_eq!((first.into_inner(), second.into_inner()), (240, 240));
}

#[test]
fn a_side_is_entered_again_and_left_as_often() {
    let server = Server::start();
    let [locks, other] = two(&server);
    for (side, may) in [(locks.read() as &dyn RedLock, true), (locks.write(), false)] {
        side.lock("n").unwrap();
        assert!(side.try_lock("n").unwrap() && side.hold_count("n") == 2);
        side.unlock("n").unwrap();
        assert!(side.is_held_by_current_thread("n") && side.verify(&side.hold("n").unwrap()).unwrap());
        assert!(!other.write().try_lock("n").unwrap());
        assert_eq!(other.read().try_lock("n").unwrap(), may);
        let _ = other.read().unlock("n");
        side.unlock("n").unwrap();
        assert_err!(side.unlock("n"), NotHeld);
    }
}

/// It would wait for itself.
#[test]
fn who_reads_and_asks_to_write_is_told_so_at_once() {
    let server = Server::start();
    let locks = locks(&server);
    let plain = ReentrantLock::new(locks.client());
    let guard = locks.read().guard("n").unwrap();
    for side in [locks.write() as &dyn RedLock, &plain] {
        let error = side.lock("n").unwrap_err();
        assert!(
            matches!(&error, Error::Config { .. })
                && error.to_string().contains("as a read lock, and would wait for itself: give that up first"),
            "{error}"
        );
        assert_err!(side.try_lock("n"), Config);
        assert_err!(side.try_lock_for("n", LONG), Config);
        let group = MultiLock::of([(&plain as &dyn RedLock, "m"), (side, "n")]);
        assert_err!(group.lock(), Config);
    }
    assert!(guard.is_valid() && !plain.is_locked("m").unwrap());
    guard.unlock().unwrap();
    let guard = plain.guard("n").unwrap();
    assert_err!(locks.read().lock("n"), Config);
    assert_err!(locks.write().lock("n"), Config);
    guard.unlock().unwrap();
}

/// It is lost at the server as well, so its thread waits for itself no more.
#[test]
fn a_read_hold_that_ran_out_refuses_reads_of_its_thread_until_it_unlocks_and_no_writes() {
    let server = Server::start();
    let (locks, local) = (locks(&server), LocalReadWriteLock::new());
    let on_server = (locks.read() as &dyn RedLock, locks.write() as &dyn RedLock);
    for (read, write) in [on_server, (local.read(), local.write())] {
        read.lock_with_lease("n", ms(60)).unwrap();
        run_out(&read.hold("n").unwrap());
        assert_err!(read.try_lock("n"), Lost);
        eventually(LONG, "it has ended at the server", || write.try_lock("n").unwrap());
        assert_err!(read.try_lock("n"), Lost);
        write.unlock("n").unwrap();
        assert_err!(read.unlock("n"), Lost);
        assert!(read.try_lock("n").unwrap());
        read.unlock("n").unwrap();
    }
}

#[test]
fn each_side_gives_up_its_own_holds_alone() {
    let server = Server::start();
    let locks = locks(&server);
    let write = locks.write().guard("n").unwrap();
    let read = locks.read().guard("n").unwrap();
    assert_err!(locks.read().release(write.hold()), Config);
    assert_err!(locks.write().release(read.hold()), Config);
    assert_eq!((locks.read().hold_count("n"), locks.write().hold_count("n")), (1, 1));
    read.unlock().unwrap();
    write.unlock().unwrap();
}

#[test]
fn all_readers_come_in_when_the_writer_leaves() {
    let server = Server::start();
    let clients = two(&server);
    let (inside, most, all) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(20));
    clients[0].write().lock("n").unwrap();
    let reads = |locks: &ReadWriteLock| {
        let guard = locks.read().guard("n").unwrap();
        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        all.wait();
        guard.unlock().unwrap();
    };
    std::thread::scope(|scope| {
        let each = clients.iter().flat_map(|locks| [locks; 10]);
        let readers: Vec<_> = each.map(|locks| spawn_asleep(scope, || reads(locks))).collect();
        assert_eq!(inside.load(SeqCst), 0);
        clients[0].write().unlock("n").unwrap();
        readers.into_iter().for_each(|reader| finish(reader).0);
    });
    assert_eq!(most.into_inner(), 20);
}

#[test]
fn each_side_wakes_the_other() {
    let server = Server::start();
    let [one, other] = two(&server);
    for (holds, waits) in [(one.read() as &dyn RedLock, other.write() as &dyn RedLock), (one.write(), other.read())] {
        holds.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = spawn_asleep(scope, || waits.try_lock_for("n", LONG).unwrap() && waits.unlock("n").is_ok());
            let unlocked = Mark::now();
            holds.unlock("n").unwrap();
            let (got, when) = finish(waiter);
            assert!(got && when - unlocked <= SOON, "woken after {:?}", when - unlocked);
        });
    }
}

/// Readers with leases of all lengths keep the writer out until the last of them is over, whoever goes first.
#[test]
fn the_writer_comes_when_the_last_lease_of_a_reader_is_over() {
    let server = Server::start();
    let clients = two(&server);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (at, lease) in [50, 600, 200, 100].into_iter().enumerate() {
            let locks = clients[at % 2].clone();
            let reads = move || locks.read().lock_with_lease("n", ms(lease)).unwrap();
            finish(scope.spawn(reads));
        }
        let given_back = scope.spawn(|| clients[0].read().guard("n").unwrap().unlock().unwrap());
        finish(given_back);
    });
    assert!(clients[1].write().try_lock_for("n", LONG).unwrap());
    assert!(start.elapsed() >= ms(599), "it wrote beside a reader, after {:?}", start.elapsed());
    clients[1].write().unlock("n").unwrap();
}

#[test]
fn fifty_readers_are_held_for_longer_than_the_watchdog_gives_at_once() {
    let server = Server::start();
    let locks = ReadWriteLock::new(&server.builder().watchdog_timeout(WATCHED).build().unwrap());
    let (held, stop) = (Barrier::new(51), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let guard = locks.read().guard("n").unwrap();
                held.wait();
                while !stop.load(SeqCst) {
                    assert!(guard.is_valid());
                    std::thread::sleep(ms(10));
                }
                guard.unlock().unwrap();
            });
        }
        held.wait();
        std::thread::sleep(OUTLIVED);
        assert!(!locks.write().try_lock("n").unwrap());
        stop.store(true, SeqCst);
    });
    locks.write().guard("n").unwrap().unlock().unwrap();
}

/// As if its process had been killed: nobody renews it.
#[test]
fn the_reader_of_a_client_that_is_gone_disappears() {
    let server = Server::start();
    let [locks, other] = two(&server);
    server.ask::<i64>(&["HSET", "n", "mode", "read", "gone:1", "1"]);
    server.ask::<String>(&["SET", "{n}:gone:1:rwlock_timeout:1", "1", "PX", "1500"]);
    server.ask::<i64>(&["PEXPIRE", "n", "1500"]);
    let guard = locks.read().guard("n").unwrap();
    let dead = other.read().request("n").lease(ms(1_400)).guard().unwrap().unwrap();
    std::thread::sleep(ms(1_600));
    assert!(!dead.is_valid() && server.ask::<i64>(&["HLEN", "n"]) == 4, "{guard:?}");
    guard.unlock().unwrap();
    assert_eq!(server.ask::<i64>(&["EXISTS", "n"]), 0, "both are over");
    assert_err!(dead.unlock(), Lost);
}

/// Its hold is out of the way of those who share the lock, and still believed by whoever has a clone of it.
#[test]
fn a_force_unlock_ends_what_a_thread_had_that_ended_beside_others() {
    let server = Server::start();
    let [locks, _] = two(&server);
    locks.read().lock("n").unwrap();
    let ended = std::thread::scope(|scope| {
        let reads = || locks.read().acquire("n", &Terms::new().lease(Duration::from_secs(20))).unwrap().unwrap();
        scope.spawn(reads).join().unwrap()
    });
    assert!(ended.is_valid());
    assert!(locks.read().force_unlock("n").unwrap());
    assert!(!ended.is_valid(), "somebody else may have the lock");
    assert_err!(locks.read().unlock("n"), Lost);
}

#[test]
fn a_force_unlock_is_of_one_side() {
    let server = Server::start();
    let [locks, other] = two(&server);
    assert!(!other.read().force_unlock("n").unwrap() && !other.write().force_unlock("n").unwrap());
    let read = locks.read().guard("n").unwrap();
    assert!(!other.write().force_unlock("n").unwrap());
    assert!(locks.read().verify(read.hold()).unwrap());
    assert!(other.read().force_unlock("n").unwrap());
    assert!(!locks.read().verify(read.hold()).unwrap());
    assert_err!(read.unlock(), Lost);

    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    assert!(other.write().force_unlock("n").unwrap());
    assert!(!locks.write().verify(write.hold()).unwrap() && locks.read().verify(read.hold()).unwrap());
    assert!(other.read().try_lock("n").unwrap() && !elsewhere(|| other.write().try_lock("n").unwrap()));
    other.read().unlock("n").unwrap();
    read.unlock().unwrap();
    assert_err!(write.unlock(), Lost);

    let (write, read) = (locks.write().guard("n").unwrap(), locks.read().guard("n").unwrap());
    assert!(other.read().is_locked("n").unwrap() && other.read().force_unlock("n").unwrap());
    assert!(locks.write().verify(write.hold()).unwrap() && !locks.read().verify(read.hold()).unwrap());
    assert_err!(read.unlock(), Lost);
    write.unlock().unwrap();
}

#[test]
fn a_lock_of_another_kind_keeps_both_sides_out() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let plain = ReentrantLock::new(other.client());
    let guard = plain.guard("n").unwrap();
    for side in [locks.read() as &dyn RedLock, locks.write()] {
        assert!(!side.try_lock("n").unwrap() && !side.is_locked("n").unwrap() && !side.force_unlock("n").unwrap());
    }
    for side in [other.read() as &dyn RedLock, other.write()] {
        assert!(!side.force_unlock("n").unwrap() && guard.is_valid(), "by the client that has it");
    }
    guard.unlock().unwrap();
    for side in [locks.read() as &dyn RedLock, locks.write()] {
        while_held_elsewhere(side, "n", |_| assert!(!plain.try_lock("n").unwrap()));
    }
}

#[test]
fn a_group_may_have_a_side_of_each_lock() {
    let server = Server::start();
    let [locks, other] = two(&server);
    let plain = ReentrantLock::new(locks.client());
    let sides: [(&dyn RedLock, &str); 3] = [(locks.read(), "n"), (locks.write(), "m"), (&plain, "o")];
    let group = MultiLock::of(sides);
    let guard = group.guard().unwrap();
    assert!(other.read().try_lock("n").unwrap() && !other.read().try_lock("m").unwrap());
    guard.unlock().unwrap();
    assert!(elsewhere(|| !answered(|| group.try_lock_for(ms(50))).0 || group.unlock().is_ok()));
    other.read().unlock("n").unwrap();
}

#[test]
fn a_client_that_is_shut_down_gives_both_sides_back_and_wakes_who_waits() {
    let server = Server::start();
    let [locks, other] = two(&server);
    other.write().lock("n").unwrap();
    other.read().lock("n").unwrap();
    locks.read().lock("m").unwrap();
    let stats = locks.client().stats();
    assert_eq!(stats.holds, 1);
    std::thread::scope(|scope| {
        let waiter = spawn_asleep(scope, || locks.read().lock("n"));
        let waiting = spawn_asleep(scope, || locks.write().lock("n"));
        locks.client().shutdown();
        assert_err!(finish(waiter).0, Closed);
        assert_err!(finish(waiting).0, Closed);
    });
    other.client().shutdown();
    eventually(LONG, "all is given back", || server.leftovers().is_empty());
}

#[test]
fn the_debug_forms_name_the_kinds() {
    let locks = ReadWriteLock::new(&Client::connect("redis://127.0.0.1:1/").unwrap());
    assert!(format!("{locks:?}").starts_with("ReadWriteLock"));
    assert!(format!("{:?}", locks.read()).starts_with("ReadLock"));
    assert!(format!("{:?}", locks.write()).starts_with("WriteLock"));
}
