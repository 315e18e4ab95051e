//! That no memory grows with the number of calls: a program makes them for months.

use crate::counting::{bytes, bytes_until};
use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, elsewhere, eventually, if_answered, ms, run_out};
use redlatch::{CancelToken, Error, LocalRedLock, MultiLock, QuorumLock, RedLock, RedLockExt, ReentrantLock, Terms};
use std::time::Duration;

/// So many calls are counted together.
const CALLS: usize = 500;

/// Tables and buffers grow now and then, and other threads have some of their own: what grows with calls does so in each
/// of many rounds. A node that answers late has one more connection made, with a buffer of 8 KiB: on a busy machine four rounds
/// in succession had one or two more, of at most 24 that the pools of three nodes may have.
const ROUNDS: usize = 12;

/// What a round may leave: less than a pointer for each call.
const SPARE: isize = 2_048;

/// How long a round waits for other threads: at a quorum a call ends with a majority of the answers, and the thread of the
/// last node has what it still has to do, which on a busy machine grew to more than is spared.
const CATCH_UP: Duration = Duration::from_secs(2);

/// That one of the rounds leaves next to nothing: those after it are not needed.
fn assert_flat(what: &str, mut call: impl FnMut(usize)) {
    let mut round = |number: usize| {
        let calls = number * CALLS..(number + 1) * CALLS;
        bytes_until(CATCH_UP, SPARE, || calls.for_each(&mut call)).1
    };
    let mut left = Vec::new();
    let is_flat = (0..=ROUNDS).map(&mut round).skip(1).any(|more| {
        left.push(more);
        more <= SPARE
    });
    println!("{left:?} bytes after {CALLS} times: {what}");
    assert!(is_flat, "{left:?} bytes after {CALLS} times: {what}");
}

/// The tables of the process-wide map keep the size that they once needed.
fn grow_tables() {
    let locks = LocalRedLock::new();
    let names: Vec<_> = (0..10_000).map(|number| format!("order:{number}")).collect();
    drop(names.iter().map(|name| locks.guard(name).unwrap()).collect::<Vec<_>>());
}

/// What may be asked of a hold in a loop.
fn asking<L: RedLock>(locks: &L) {
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    assert_flat("lost", |_| assert!(hold.lost().is_empty()));
    assert_flat("clone and state", |_| assert!(hold.clone().is_valid() && hold.remaining() > ms(1)));
    assert_flat("verify", |_| assert!(locks.verify(&hold).unwrap()));
    assert_flat("extend", |_| hold.extend(Duration::from_secs(20)).unwrap());
    assert_flat("levels", |_| drop(locks.guard("n").unwrap()));
    assert_flat("busy", |_| assert!(elsewhere(|| !locks.try_lock("n").unwrap())));
    locks.unlock("n").unwrap();
    assert_flat("lost of a hold that is over", |_| assert!(hold.lost().try_recv().is_err()));
}

fn pairs<L: RedLock>(locks: &L) {
    let token = CancelToken::new();
    assert_flat("pairs", |_| drop(locks.guard("n").unwrap()));
    assert_flat("pairs of another name each", |call| drop(locks.guard(&format!("order:{call}")).unwrap()));
    assert_flat("pairs with one token", |_| {
        locks.lock_cancellable("n", &token).unwrap();
        locks.unlock("n").unwrap();
    });
    assert_flat("closures", |_| locks.execute_in_lock("n", || ()).unwrap());
}

#[test]
fn no_memory_grows_with_calls() {
    alone(|| {
        let server = Server::start();
        let locks = server.locks();
        pairs(&locks);
        asking(&locks);
        assert_flat("lock objects", |_| drop(ReentrantLock::new(locks.client()).guard("n").unwrap()));
        assert_flat("stats", |_| assert_eq!(locks.client().stats().holds, 0));
    });
}

#[test]
fn no_memory_grows_with_calls_in_memory_and_at_a_quorum() {
    alone(|| {
        let locks = LocalRedLock::new();
        pairs(&locks);
        asking(&locks);
        let servers = [(); 3].map(|()| Server::start());
        let locks = QuorumLock::connect(servers.iter().map(Server::url)).unwrap();
        pairs(&locks);
        asking(&locks);
    });
}

#[test]
fn no_memory_grows_with_calls_of_groups() {
    alone(|| {
        let server = Server::start();
        let (locks, other) = (server.locks(), LocalRedLock::new());
        let group = MultiLock::of([(&locks as &dyn RedLock, "a"), (&locks, "b"), (&other, "c")]);
        assert_flat("pairs of groups", |_| drop(group.guard().unwrap()));
        let hold = group.acquire(&Terms::new()).unwrap().unwrap();
        assert_flat("lost of a group", |_| assert!(hold.lost().is_empty()));
        group.release(&hold).unwrap();
    });
}

/// Their channels stay subscribed for a while, and then go.
#[test]
fn no_memory_is_kept_of_names_that_were_waited_for() {
    alone(|| {
        const NAMES: usize = 100;
        let server = Server::start();
        // One connection each: a short wait that a late machine ends without an answer has another one made, with its buffer.
        let locks = || ReentrantLock::new(&server.builder().pool_size(1).build().unwrap());
        let (holder, locks) = (locks(), locks());
        let round = |number: usize| {
            let names: Vec<_> = (0..NAMES).map(|name| format!("order:{}", number * NAMES + name)).collect();
            let held: Vec<_> = names.iter().map(|name| holder.guard(name).unwrap()).collect();
            names.iter().for_each(|name| {
                let got = if_answered(|| locks.try_lock_for(name, ms(2)));
                assert!(got.is_none_or(|(got, _)| !got));
            });
            drop(held);
            eventually(LONG, "the channels are given up", || {
                server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*order*"]).is_empty()
            });
        };
        grow_tables();
        // Each round waits for as long as channels stay subscribed.
        let mut left = Vec::new();
        let is_flat = (0..=ROUNDS).map(|number| bytes(|| round(number)).1).skip(1).any(|more| {
            left.push(more);
            more <= SPARE
        });
        println!("{left:?} bytes after {NAMES} names");
        assert!(is_flat, "{left:?} bytes after {NAMES} names");
    });
}

#[test]
fn no_memory_is_kept_of_clients() {
    alone(|| {
        const CLIENTS: usize = 40;
        let server = Server::start();
        // By number and not by name, which a thread gets only when it runs; and more than one look, for a list that
        // is read while threads end may lack others.
        let threads = || {
            std::thread::sleep(ms(2));
            std::fs::read_dir("/proc/self/task").unwrap().count()
        };
        let before = threads();
        grow_tables();
        let have_ended = || (0..3).all(|_| threads() == before);
        let round = || {
            (0..CLIENTS).for_each(|_| drop(server.locks().guard("n").unwrap()));
            eventually(LONG, "their threads have ended", have_ended);
        };
        let least = (0..=ROUNDS).map(|_| bytes(round).1).skip(1).min().unwrap();
        println!("{least} bytes after {CLIENTS} clients");
        assert!(least <= (CLIENTS * 64).cast_signed(), "{least} bytes after {CLIENTS} clients");
    });
}

/// The client remembers a lock that was left to its lease until the thread unlocks it: `docs/leases.md` says so, and what it costs.
#[test]
fn locks_that_were_left_to_their_leases_are_small_and_go_with_their_unlocks() {
    alone(|| {
        const NAMES: usize = 2_000;
        let server = Server::start();
        let locks = server.locks();
        let names = |from: usize, count: usize| (from..from + count).map(|number| format!("order:{number}"));
        let leave = |name: &String| locks.lock_with_lease(name, ms(50)).unwrap();
        let unlock_all = |names: &[String]| {
            names.iter().for_each(|name| run_out(&locks.hold(name).unwrap()));
            names.iter().for_each(|name| assert!(matches!(locks.unlock(name), Err(Error::Lost { .. }))));
        };
        grow_tables();
        let left: Vec<_> = names(0, NAMES).collect();
        let ((), kept) = bytes(|| {
            left.iter().for_each(leave);
            left.iter().for_each(|name| run_out(&locks.hold(name).unwrap()));
        });
        println!("{} bytes each", kept / NAMES.cast_signed());
        assert!(kept <= (NAMES * 1_024).cast_signed(), "{kept} bytes");
        unlock_all(&left);
        assert_flat("left to their leases, and then unlocked", |call| {
            if call % CALLS == CALLS - 1 {
                let left: Vec<_> = names(NAMES + call - call % CALLS, CALLS).collect();
                left.iter().for_each(leave);
                unlock_all(&left);
            }
        });
    });
}
