//! Read-write locks in a cluster whose slot is half moved, or whose keys are in several slots; where a master is replaced; and
//! strict clients.

use crate::harness::cluster::{Cluster, Keys, names_in_slot, slot_of};
use crate::harness::sentinel::Group;
use crate::server::Server;
use crate::threads::{LONG, Mark, OUTLIVED, SOON, WATCHED, elsewhere, eventually, finish, ms};
use redlatch::{Error, LossCause, ReadWriteLock, RedLock, RedLockExt, ShardedPubsub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn locks(cluster: &Cluster, told: ShardedPubsub) -> ReadWriteLock {
    ReadWriteLock::new(&cluster.builder().sharded_pubsub(told).build().unwrap())
}

/// Readers together, a writer alone, and one who goes on reading.
fn assert_works([one, other]: &[ReadWriteLock; 2], name: &str) {
    let read = one.read().guard(name).unwrap();
    assert!(other.read().try_lock(name).unwrap(), "{name}");
    assert!(elsewhere(|| !other.write().try_lock(name).unwrap()), "{name}");
    assert!(one.read().verify(read.hold()).unwrap(), "{name}");
    read.unlock().unwrap();
    assert!(elsewhere(|| !one.write().try_lock(name).unwrap()), "{name}");
    other.read().unlock(name).unwrap();
    let write = one.write().guard(name).unwrap();
    assert!(!other.read().try_lock(name).unwrap() && !other.write().try_lock(name).unwrap(), "{name}");
    let read = one.read().guard(name).unwrap();
    assert!(one.write().verify(write.hold()).unwrap());
    write.unlock().unwrap();
    assert!(one.read().verify(read.hold()).unwrap() && other.read().try_lock(name).unwrap(), "{name}");
    read.unlock().unwrap();
    other.read().unlock(name).unwrap();
    assert!(!one.read().is_locked(name).unwrap() && !one.write().is_locked(name).unwrap(), "{name}");
}

/// Lock and time-out are here or there, in all four ways, and both are nowhere; another one reads beside it, or nobody does.
#[test]
fn holds_live_and_locks_work_in_a_slot_that_stays_half_moved() {
    for told in [ShardedPubsub::Auto, ShardedPubsub::Off] {
        let cluster = Cluster::start();
        let slot = slot_of(&cluster.name_at(0, 0));
        let names: Vec<_> = names_in_slot(slot).take(9).collect();
        let clients = [(); 2].map(|()| locks(&cluster, told));
        let held: Vec<_> = names[..8].iter().map(|name| clients[0].read().guard(name).unwrap()).collect();
        let beside: Vec<_> = names[4..8].iter().map(|name| clients[1].read().guard(name).unwrap()).collect();
        let timeouts: Vec<_> =
            held.iter().map(|hold| format!("{{{}}}:{}:rwlock_timeout:1", hold.resource(), hold.owner())).collect();
        let go: Vec<&str> =
            [0, 4].iter().flat_map(|at| [&*names[*at], &*timeouts[*at], &*names[at + 1], &*timeouts[at + 2]]).collect();
        let moved = cluster.half_move(slot, 1, Keys::Named(&go));
        for guard in held {
            let name = guard.resource().to_owned();
            assert!(clients[0].read().verify(guard.hold()).unwrap(), "{name}");
            assert!(elsewhere(|| !clients[1].write().try_lock(&name).is_ok_and(|got| got)), "{name}");
            guard.unlock().unwrap();
        }
        for guard in beside {
            assert!(clients[1].read().verify(guard.hold()).unwrap() && guard.is_valid(), "{}", guard.resource());
            assert!(elsewhere(|| !clients[0].write().try_lock(guard.resource()).unwrap()), "{}", guard.resource());
            guard.unlock().unwrap();
        }
        names.iter().for_each(|name| assert_works(&clients, name));
        cluster.finish_move(moved);
        names.iter().for_each(|name| assert_works(&clients, name));
    }
}

/// The watchdog finds both keys, wherever they are.
#[test]
fn a_reader_is_renewed_in_a_slot_that_stays_half_moved() {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster.name_at(0, 0));
    let names: Vec<_> = names_in_slot(slot).take(2).collect();
    let locks = ReadWriteLock::new(&cluster.builder().watchdog_timeout(WATCHED).build().unwrap());
    let [first, second] = [0, 1].map(|at| locks.read().guard(&names[at]).unwrap());
    let timeout = format!("{{{}}}:{}:rwlock_timeout:1", names[1], second.owner());
    let moved = cluster.half_move(slot, 1, Keys::Named(&[&names[0], &timeout]));
    std::thread::sleep(OUTLIVED);
    assert!(first.is_valid() && second.is_valid(), "{first:?} {second:?}");
    first.unlock().unwrap();
    second.unlock().unwrap();
    cluster.finish_move(moved);
}

/// A name whose braces hold no tag has its time-outs elsewhere, as its channel.
#[test]
fn a_name_whose_time_outs_are_in_other_slots_is_locked_all_the_same() {
    let cluster = Cluster::start();
    let clients = [(); 2].map(|()| locks(&cluster, ShardedPubsub::Auto));
    for name in ["a{b", "{}x", "a}"] {
        assert_works(&clients, name);
    }
}

/// While a slot goes round and round: nobody reads or writes beside a writer.
#[test]
fn nobody_is_beside_a_writer_while_their_slot_moves() {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster.name_at(0, 0));
    let name = names_in_slot(slot).next().unwrap();
    let (stop, first, second) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writes in [true, false, true, false] {
            let (stop, first, second, name, cluster) = (&stop, &first, &second, &name, &cluster);
            scope.spawn(move || {
                let locks = locks(cluster, ShardedPubsub::Auto);
                while !stop.load(SeqCst) {
                    let side: &dyn RedLock = if writes { locks.write() } else { locks.read() };
                    let guard = side.guard(name).unwrap();
                    let seen = first.load(SeqCst);
                    if writes {
                        first.store(seen + 1, SeqCst);
                        std::thread::yield_now();
                        second.store(seen + 1, SeqCst);
                    }
                    assert_eq!(first.load(SeqCst), second.load(SeqCst), "somebody writes beside it");
                    guard.unlock().unwrap();
                }
            });
        }
        for round in 1..=10 {
            let moved = cluster.half_move(slot, round % 3, if round % 2 == 0 { Keys::None } else { Keys::All });
            std::thread::sleep(ms(30));
            cluster.finish_move(moved);
        }
        eventually(LONG, "they write", || first.load(SeqCst) > 50);
        stop.store(true, SeqCst);
    });
}

/// Has the first node replaced if it is the master; by which one it was.
fn master_after(group: &Group) -> usize {
    if group.master() == 0 {
        group.fail_over(0);
    }
    group.replaced(0)
}

/// Its replicas have it that somebody waits to write, and what becomes of that writer they do not hear: it has the lock at the master,
/// and another node is made the master when `ends` is done with it. Nobody may be kept out there, where it waits for two minutes more.
fn assert_is_let_in_after_a_failover(ends: impl Fn(&ReadWriteLock, &Group) + Sync) {
    const MINUTE: Duration = Duration::from_secs(60);
    let group = Group::start();
    let clients = [(); 2].map(|()| {
        let builder = group.builder().watchdog_timeout(WATCHED).poll_cap(MINUTE).outage_budget(MINUTE);
        ReadWriteLock::new(&builder.build().unwrap())
    });
    let [writer, reader] = &clients;
    let marked = |node: usize| group.nodes[node].ask::<i64>(&["EXISTS", "redlatch_writer:{n}"]) == 1;
    std::thread::scope(|scope| {
        let guard = reader.read().guard("n").unwrap();
        let writes = scope.spawn(|| {
            assert!(writer.write().try_lock_for("n", LONG).unwrap());
            assert!(!marked(0));
            ends(writer, &group);
        });
        eventually(LONG, "replicas know that it waits", || (1..group.nodes.len()).all(marked));
        group.sever(0);
        guard.unlock().unwrap();
        finish(writes);
    });
    let new = master_after(&group);
    group.nodes[new].ask::<i64>(&["HSET", "here", "mode", "write", "x", "1"]);
    let has_moved = |locks: &ReadWriteLock| locks.write().is_locked("here").is_ok_and(|here| here);
    eventually(LONG, "both have moved", || clients.iter().all(has_moved));
    let moved = Mark::now();
    assert!(reader.read().try_lock_for("n", LONG).unwrap(), "it is kept out");
    assert!(moved.elapsed() <= 2 * SOON, "it was let in after {:?}", moved.elapsed());
    // A reader may be let in before that: the writer's client does not listen at the new master yet, so its mark counts no more.
    eventually(SOON, "the writer is out of the mark", || !marked(new));
    reader.read().unlock("n").unwrap();
}

/// Its lease is over when the master is replaced.
#[test]
fn a_writer_that_waits_no_more_keeps_nobody_out_after_a_failover() {
    assert_is_let_in_after_a_failover(|writer, _| {
        writer.write().unlock("n").unwrap();
        std::thread::sleep(OUTLIVED);
    });
}

/// What it had was taken away, so its release found nothing.
#[test]
fn a_writer_that_was_robbed_keeps_nobody_out_after_a_failover() {
    assert_is_let_in_after_a_failover(|writer, group| {
        group.nodes[0].ask::<i64>(&["DEL", "n"]);
        let unlocked = writer.write().unlock("n");
        assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    });
}

/// It was granted what the new master does not know, and never unlocks it.
#[test]
fn a_writer_that_lost_its_lock_by_a_failover_keeps_nobody_out_after_it() {
    assert_is_let_in_after_a_failover(|writer, group| {
        let hold = writer.write().hold("n").unwrap();
        master_after(group);
        assert_eq!(hold.lost().recv_timeout(LONG).unwrap().cause(), LossCause::Removed);
    });
}

/// As at a master that did not hear that it has the lock: it is in the mark there, and its lease ends before that is seen.
#[test]
fn a_writer_whose_lease_ended_is_taken_out_of_the_mark() {
    let server = Server::start();
    let locks = ReadWriteLock::new(&server.builder().build().unwrap());
    let guard = locks.write().request("n").lease(WATCHED).guard().unwrap().unwrap();
    let hold = guard.hold();
    let field = format!("{}:write", hold.owner());
    server.ask::<i64>(&["DEL", "n"]);
    server.ask::<i64>(&["ZADD", "redlatch_writer:{n}", "1", &field, "9e15", &format!("+{field}")]);
    eventually(WATCHED + 2 * SOON, "it is out", || server.ask::<i64>(&["EXISTS", "redlatch_writer:{n}"]) == 0);
    assert!(!hold.is_valid());
}

#[test]
fn strict_clients_have_both_sides_after_the_quarantine() {
    let server = Server::start();
    let clients =
        [(); 2].map(|()| ReadWriteLock::new(&server.builder().watchdog_timeout(WATCHED).strict(true).build().unwrap()));
    assert!(!clients[0].read().try_lock("n").unwrap() && !clients[1].write().try_lock("n").unwrap());
    assert!(clients[0].read().try_lock_for("n", LONG).unwrap());
    clients[0].read().unlock("n").unwrap();
    assert_works(&clients, "n");
    let guard = clients[0].read().guard("n").unwrap();
    std::thread::sleep(OUTLIVED);
    assert!(guard.is_valid(), "it is renewed");
    guard.unlock().unwrap();
}

/// What the other node grants now it could not say there; prolonging is no grant.
#[test]
fn a_strict_client_grants_nothing_on_the_way_and_keeps_what_it_has() {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster.name_at(0, 0));
    let names: Vec<_> = names_in_slot(slot).take(2).collect();
    let strict = || {
        let builder = cluster.builder().watchdog_timeout(WATCHED).strict(true);
        ReadWriteLock::new(&builder.build().unwrap())
    };
    let locks = strict();
    assert!(locks.read().try_lock_for(&names[0], LONG).unwrap());
    let hold = locks.read().hold(&names[0]).unwrap();
    let moved = cluster.half_move(slot, 1, Keys::All);
    for side in [locks.read() as &dyn RedLock, locks.write()] {
        assert!(!side.try_lock(&names[1]).unwrap());
    }
    std::thread::sleep(OUTLIVED);
    assert!(hold.is_valid() && locks.read().verify(&hold).unwrap());
    locks.read().unlock(&names[0]).unwrap();
    cluster.finish_move(moved);
    assert!(locks.write().try_lock_for(&names[1], LONG).unwrap());
    locks.write().unlock(&names[1]).unwrap();
}
