//! Threads on groups that overlap, in random order, on members of several kinds, servers and clients.

use super::Any;
use crate::harness::queue::Over;
use crate::proxy::numbers;
use crate::server::Server;
use crate::threads::{LONG, if_answered};
use redlatch::{CancelToken, LocalRedLock, MultiLock, RedLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const THREADS: usize = 8;

/// For how long, in seconds, when it shall be longer than usual.
const SECONDS: &str = "REDLATCH_MULTI_SECONDS";

/// The resources: six on the first server, one on the second, one in memory.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "other", "memory"];

/// Who holds each resource: the thread's number from 1 on, or nobody.
type Holders = [AtomicUsize; NAMES.len()];

/// The locks of one half of the threads: clients of their own, so that the halves meet at the servers.
struct Half {
    first: Any,
    second: Any,
}

fn lock_of(half: &Half, local: &Any, at: usize) -> (Any, &'static str) {
    let lock = match NAMES[at] {
        "other" => &half.second,
        "memory" => local,
        _ => &half.first,
    };
    (Arc::clone(lock), NAMES[at])
}

/// Two to four different resources.
fn pick(random: &mut impl FnMut(u64) -> u64) -> Vec<usize> {
    let mut picked = Vec::new();
    let count = 2 + random(3) as usize;
    while picked.len() < count {
        let at = random(NAMES.len() as u64) as usize;
        if !picked.contains(&at) {
            picked.push(at);
        }
    }
    picked
}

/// Takes the group in one of its forms; whether it has it.
fn take(group: &MultiLock<'_>, form: u64) -> bool {
    match form {
        0 => group.try_lock().unwrap(),
        1 => if_answered(|| group.try_lock_for(Duration::from_millis(2))).is_some_and(|(got, _)| got),
        2 => {
            let token = CancelToken::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    token.cancel();
                });
                group.lock_cancellable(&token).is_ok()
            })
        }
        _ => {
            assert!(group.try_lock_for(LONG).unwrap(), "a deadlock: {group:?}");
            true
        }
    }
}

/// Is alone with each of these resources.
fn work(thread: usize, picked: &[usize], holders: &Holders, busy: Duration) {
    for at in picked {
        assert_eq!(holders[*at].swap(thread, SeqCst), 0, "two threads hold {}", NAMES[*at]);
    }
    std::thread::sleep(busy);
    for at in picked {
        assert_eq!(holders[*at].swap(0, SeqCst), thread, "two threads hold {}", NAMES[*at]);
    }
}

#[test]
fn overlapping_groups_in_random_order_neither_deadlock_nor_overlap() {
    let span = std::env::var(SECONDS).map_or(3, |seconds| seconds.parse().unwrap());
    let servers = [Server::start(), Server::start()];
    let local: Any = Arc::new(LocalRedLock::new());
    let halves = [(); 2].map(|()| Half { first: Arc::new(servers[0].locks()), second: Arc::new(servers[1].locks()) });
    let (holders, end) = (Holders::default(), Instant::now() + Duration::from_secs(span));
    let (taken, missed) = ([(); THREADS].map(|()| AtomicU64::new(0)), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (halves, local, holders, taken, missed) = (&halves, &local, &holders, &taken, &missed);
            scope.spawn(move || {
                let mut random = numbers(thread as u64 * 7_919 + 1);
                while Instant::now() < end {
                    let picked = pick(&mut random);
                    let group: MultiLock<'_> =
                        picked.iter().map(|at| lock_of(&halves[thread % 2], local, *at)).collect();
                    if !take(&group, random(8)) {
                        missed.fetch_add(1, SeqCst);
                        continue;
                    }
                    work(thread + 1, &picked, holders, Duration::from_micros(random(300)));
                    group.unlock().unwrap();
                    taken[thread].fetch_add(1, SeqCst);
                }
            });
        }
    });
    let taken = taken.map(AtomicU64::into_inner);
    println!("groups taken in {span} s by each thread: {taken:?}; given up: {missed:?}");
    assert!(taken.iter().all(|taken| *taken > 0), "a thread never had a group: {taken:?}");
    for server in &servers {
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
    }
    assert!(NAMES.iter().all(|name| !local.is_locked(name).unwrap()));
}

/// Processes that hand both members on among themselves leave each of them free now and then.
#[test]
fn a_group_gets_in_beside_processes_that_hand_its_members_on() {
    let (server, over) = (Server::start(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for name in ["a", "a", "a", "b", "b", "b"] {
            let (locks, over) = (server.locks(), &over);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    locks.lock(name).unwrap();
                    std::thread::sleep(Duration::from_micros(200));
                    locks.unlock(name).unwrap();
                }
            });
        }
        let _over = Over(&over);
        let locks = server.locks();
        let group: MultiLock<'_> = [(&locks as &dyn RedLock, "a"), (&locks, "b")].into_iter().collect();
        for _ in 0..20 {
            assert!(group.try_lock_for(LONG).unwrap(), "others never leave a gap");
            group.unlock().unwrap();
        }
    });
}
