//! A group of all kinds: those of one server, both sides of read-write locks, a quorum and one in memory.

use super::Any;
use crate::server::Server;
use crate::threads::{LONG, SOON, answered, elsewhere, finish, ms, spawn_asleep, timed, while_held_elsewhere};
use redlatch::{
    Client, Error, FencedLock, HandOff, LocalReadWriteLock, LocalRedLock, MultiLock, ReadWriteLock, RedLock,
    RedLockExt, ReentrantLock,
};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const NAMES: [&str; 6] = ["fenced", "local", "quorum", "read", "reentrant", "write"];

/// Where in [`NAMES`] the members are that several may have.
const READ: usize = 3;

/// What the locks are on; the first server has all but the quorum.
struct Place {
    servers: Vec<Server>,
    local: LocalRedLock,
}

impl Place {
    fn new() -> Self {
        Self { servers: std::iter::repeat_with(Server::start).take(4).collect(), local: LocalRedLock::new() }
    }

    /// One lock of each kind, by clients of their own.
    fn locks(&self) -> [Any; 6] {
        let client = Client::connect(&self.servers[0].url()).unwrap();
        let sides = ReadWriteLock::new(&client);
        let quorum = crate::harness::quorum::connect(&self.servers[1..]);
        [
            Arc::new(FencedLock::new(&client)),
            Arc::new(self.local.clone()),
            Arc::new(quorum),
            Arc::new(sides.read().clone()),
            Arc::new(ReentrantLock::new(&client)),
            Arc::new(sides.write().clone()),
        ]
    }

    /// The side that keeps readers out of the member that several may have.
    fn writes(&self) -> Any {
        Arc::new(ReadWriteLock::connect(&self.servers[0].url()).unwrap().write().clone())
    }
}

fn group(locks: &[Any; 6]) -> MultiLock<'_> {
    locks.iter().zip(NAMES).collect()
}

fn locked(locks: &[Any; 6]) -> [bool; 6] {
    [0, 1, 2, 3, 4, 5].map(|at| locks[at].is_locked(NAMES[at]).unwrap())
}

#[test]
fn a_group_of_all_kinds_is_all_or_nothing() {
    let place = Place::new();
    let (locks, others, writer) = (place.locks(), place.locks(), place.writes());
    let group = group(&locks);
    for (busy, name) in NAMES.into_iter().enumerate() {
        let by = if busy == READ { &writer } else { &others[busy] };
        while_held_elsewhere(by, name, |_| {
            assert!(!group.try_lock().unwrap(), "{name} is busy");
            assert_eq!(locked(&locks), [0, 1, 2, 3, 4, 5].map(|at| at == busy && busy != READ), "{name} is busy");
            std::thread::scope(|scope| {
                let waiter = spawn_asleep(scope, || !answered(|| group.try_lock_for(ms(100))).0);
                assert!(finish(waiter).0);
            });
        });
        std::thread::scope(|scope| {
            by.lock(name).unwrap();
            let waiter = spawn_asleep(scope, || group.try_lock_for(LONG).unwrap() && group.unlock().is_ok());
            by.unlock(name).unwrap();
            assert!(finish(waiter).0, "{name} is free");
        });
    }
    let guard = group.guard().unwrap();
    assert_eq!((locked(&locks), guard.holds().len()), ([true; 6], 6));
    let tries = |at: usize| others[at].try_lock(NAMES[at]).unwrap() && others[at].unlock(NAMES[at]).is_ok();
    let had = elsewhere(|| [0, 1, 2, 3, 4, 5].map(tries));
    assert_eq!(had, [0, 1, 2, 3, 4, 5].map(|at| at == READ), "readers are together");
    guard.unlock().unwrap();
    assert!(!group.is_locked().unwrap());
}

#[test]
fn a_member_of_any_kind_that_is_lost_is_told_and_the_rest_is_released() {
    let place = Place::new();
    let (locks, others) = (place.locks(), place.locks());
    let group = group(&locks);
    for (lost, name) in NAMES.into_iter().enumerate() {
        let guard = group.guard().unwrap();
        assert!(others[lost].force_unlock(name).unwrap());
        let member = &guard.holds()[lost];
        assert!(member.resource() == name && !locks[lost].verify(member).unwrap() && !guard.is_valid());
        let error = guard.unlock().unwrap_err();
        assert!(matches!(error, Error::Lost { .. }) && error.resource() == Some(name), "{error}");
        assert_eq!(locked(&locks), [false; 6]);
    }
}

/// A thread ends with its group. Another thread shares the group's read hold, and its release is the last of that: the others
/// of the group stay. Whoever pairs the holds with the members that he gave has to see just that.
#[test]
fn what_a_thread_that_ended_had_is_told_of_each_member_by_itself() {
    let server = Server::start();
    // However late the second reader comes, it shares.
    let client = server.builder().hand_off(HandOff::default().within(LONG)).build().unwrap();
    let (sides, fenced) = (ReadWriteLock::new(&client), FencedLock::new(&client));
    let members: [(&dyn RedLock, _); 3] = [(sides.read(), "n1"), (sides.write(), "n0"), (&fenced, "g")];
    let holds = std::thread::scope(|scope| {
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let (has, had) = std::sync::mpsc::channel::<()>();
        let first = scope.spawn(move || {
            let group = MultiLock::of(members);
            let hold = group.acquire(&redlatch::Terms::new()).unwrap().unwrap();
            has.send(()).unwrap();
            ended.recv().unwrap();
            hold
        });
        had.recv().unwrap();
        sides.read().lock("n1").unwrap();
        ends.send(()).unwrap();
        first.join().unwrap()
    });
    let holds: Vec<_> = holds.holds().iter().collect();
    assert!(holds.iter().all(|hold| hold.is_valid()), "{holds:?}");
    sides.read().unlock("n1").unwrap();
    let seen: Vec<_> = members.iter().zip(&holds).map(|((_, name), hold)| (*name, hold.is_valid())).collect();
    assert_eq!(seen, [("n1", false), ("n0", true), ("g", true)]);
    let others = Client::connect(&server.url()).unwrap();
    let (sides, fenced) = (ReadWriteLock::new(&others), FencedLock::new(&others));
    let others: [(&dyn RedLock, _); 3] = [(sides.write(), "n1"), (sides.write(), "n0"), (&fenced, "g")];
    assert_eq!(others.map(|(lock, name)| lock.try_lock(name).unwrap()), [true, false, false]);
}

/// Two groups in opposite order, threads that take one lock inside another, and readers beside them.
#[test]
fn groups_of_all_kinds_in_opposite_order_do_not_deadlock() {
    let place = Place::new();
    let (locks, others) = (place.locks(), place.locks());
    let turned = MultiLock::of(others.iter().zip(NAMES).rev());
    let (group, inside) = (group(&locks), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for group in [&group, &turned] {
            let inside = &inside;
            scope.spawn(move || {
                for _ in 0..10 {
                    assert!(group.try_lock_for(LONG).unwrap(), "a deadlock");
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "both are in");
                    inside.fetch_sub(1, SeqCst);
                    group.unlock().unwrap();
                }
            });
        }
        let (last, first) = ((&others[5], NAMES[5]), (&others[0], NAMES[0]));
        scope.spawn(move || {
            for _ in 0..10 {
                assert!(last.0.try_lock_for(last.1, LONG).unwrap(), "a deadlock");
                assert!(first.0.try_lock_for(first.1, LONG).unwrap(), "a deadlock");
                first.0.unlock(first.1).unwrap();
                last.0.unlock(last.1).unwrap();
            }
        });
        scope.spawn(|| (0..10).for_each(|_| others[READ].execute_in_lock(NAMES[READ], || ()).unwrap()));
    });
    assert_eq!(locked(&locks), [false; 6]);
}

#[test]
fn readers_in_groups_are_together() {
    let server = Server::start();
    let clients = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let all = Barrier::new(6);
    std::thread::scope(|scope| {
        for at in 0..6 {
            let (client, all) = (&clients[at % 2], &all);
            scope.spawn(move || {
                let (sides, own) = (ReadWriteLock::new(client), ReentrantLock::new(client));
                let members: [(&dyn RedLock, String); 3] =
                    [(sides.read(), "n".to_owned()), (&own, format!("own {at}")), (sides.read(), "m".to_owned())];
                MultiLock::of(members).execute_in_lock(|| all.wait()).unwrap();
            });
        }
    });
}

/// The group would wait for itself. It is told before anything is asked, so also while another has the lock.
#[test]
fn both_sides_of_one_lock_in_a_group_are_refused_at_once() {
    let server = Server::start();
    let client = Client::connect(&server.url()).unwrap();
    let (sides, local) = (ReadWriteLock::new(&client), LocalReadWriteLock::new());
    let fenced = FencedLock::new(&client);
    let of_two_kinds: [[&dyn RedLock; 2]; 3] =
        [[sides.read(), sides.write()], [local.read(), local.write()], [&fenced, sides.write()]];
    for [one, other] in of_two_kinds {
        for members in [[(one, "n"), (other, "n"), (other, "m")], [(other, "n"), (other, "m"), (one, "n")]] {
            let group = MultiLock::of(members);
            while_held_elsewhere(other, "n", |_| {
                let (refused, took) = timed(|| group.lock().unwrap_err());
                let said = refused.to_string();
                assert!(matches!(refused, Error::Config { .. }) && took <= SOON, "{refused} after {took:?}");
                assert!(said.contains("write lock") && said.contains("leave one of them out"), "{said}");
                assert_err!(group.try_lock(), Config);
            });
            assert!(!group.is_locked().unwrap());
        }
    }
    // The same side twice is entered twice, and of different locks both sides are one group.
    let group = MultiLock::of([(sides.read() as &dyn RedLock, "n"), (sides.read(), "n"), (sides.write(), "m")]);
    group.guard().unwrap().unlock().unwrap();
    // Who writes may read by a group, too.
    sides.write().lock("n").unwrap();
    group.guard().unwrap().unlock().unwrap();
    sides.write().unlock("n").unwrap();
}
