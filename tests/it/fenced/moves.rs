//! Tokens of locks in a cluster whose slot is half moved, or whose counter is in another slot.

use crate::harness::cluster::{Cluster, Keys, names_in_slot, slot_of};
use crate::harness::member::Member;
use crate::threads::{LONG, eventually, finish, ms};
use redlatch::{FencedLock, RedLock, RedLockExt, ShardedPubsub};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

fn fenced(cluster: &Cluster, told: ShardedPubsub) -> FencedLock {
    FencedLock::new(&cluster.builder().sharded_pubsub(told).build().unwrap())
}

/// Takes it, by whoever comes: tokens that grow.
fn assert_grow(clients: &[FencedLock], name: &str, last: &mut Option<u64>) {
    for locks in clients {
        let guard = locks.guard(name).unwrap();
        assert!(guard.token().is_some() && guard.token() > *last, "{name}: {:?} after {last:?}", guard.token());
        *last = guard.token();
        assert_eq!(locks.last_token(name).unwrap(), *last, "{name}");
        assert!(locks.verify(guard.hold()).unwrap());
        guard.unlock().unwrap();
    }
}

/// The counter and the lock are here or there, in all four ways, and both are nowhere.
#[test]
fn tokens_grow_in_a_slot_that_stays_half_moved() {
    for told in [ShardedPubsub::Auto, ShardedPubsub::Off] {
        let cluster = Cluster::start();
        let slot = slot_of(&cluster.name_at(0, 0));
        let names: Vec<_> = names_in_slot(slot).take(5).collect();
        let [both, lock, counter, neither, new] = [0, 1, 2, 3, 4].map(|at| names[at].as_str());
        let counter_of = |name: &str| format!("redisson_lock_token:{{{name}}}");
        let clients = [(); 2].map(|()| fenced(&cluster, told));
        let mut last = [None; 5];
        for (name, last) in names[..4].iter().zip(&mut last) {
            assert_grow(&clients, name, last);
        }
        let held = [both, lock, counter, neither].map(|name| clients[0].guard(name).unwrap());
        let go = [both, &counter_of(both), lock, &counter_of(counter)];
        let moved = cluster.half_move(slot, 1, Keys::Named(&go));
        for guard in held {
            assert!(clients[0].verify(guard.hold()).unwrap());
            assert!(!clients[1].try_lock(guard.resource()).unwrap(), "{}", guard.resource());
            guard.unlock().unwrap();
        }
        for (name, last) in [both, lock, counter, neither, new].into_iter().zip(&mut last) {
            assert_grow(&clients, name, last);
            assert_grow(&clients, name, last);
        }
        cluster.finish_move(moved);
        for (name, last) in names.iter().zip(&mut last) {
            assert_grow(&clients, name, last);
        }
    }
}

/// A name whose braces hold no tag has its counter elsewhere, as its channel.
#[test]
fn a_name_whose_counter_is_in_another_slot_has_tokens_all_the_same() {
    let cluster = Cluster::start();
    let day = Duration::from_secs(24 * 60 * 60);
    let forgets = FencedLock::new(&cluster.builder().token_ttl(day).build().unwrap());
    let clients = [fenced(&cluster, ShardedPubsub::Auto), forgets];
    for (name, counter) in [("a{b", "a{b"), ("{}x", "{}x"), ("a}", "{a}}")] {
        assert_grow(&clients, name, &mut None);
        let mut last = clients[0].last_token(name).unwrap();
        assert_grow(&clients, name, &mut last);
        let counter = format!("redisson_lock_token:{counter}");
        let left: i64 = cluster.nodes[cluster.master_of(&counter)].ask(&["PTTL", &counter]);
        assert!(left > 86_400_000, "{left} ms are left of {counter}");
    }
}

/// While a slot goes round and round, with counters that come before their locks or after them.
#[test]
fn tokens_grow_in_the_order_of_holds_while_their_slot_moves() {
    let cluster = Cluster::start();
    let slot = slot_of(&cluster.name_at(0, 0));
    let name = names_in_slot(slot).next().unwrap();
    let (order, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let works = |_| {
            scope.spawn(|| {
                let locks = fenced(&cluster, ShardedPubsub::Auto);
                while !stop.load(SeqCst) {
                    let guard = locks.guard(&name).unwrap();
                    order.lock().unwrap().push(guard.token().unwrap());
                    guard.unlock().unwrap();
                }
            })
        };
        let workers = [(); 3].map(works);
        for round in 1..=12 {
            let moved = cluster.half_move(slot, round % 3, if round % 2 == 0 { Keys::None } else { Keys::All });
            std::thread::sleep(ms(20));
            cluster.finish_move(moved);
            // Masters that have not heard of one move take the same epoch in the next, and are at odds about the slot for seconds.
            cluster.settled();
        }
        eventually(LONG, "they lock", || order.lock().unwrap().len() > 100);
        stop.store(true, SeqCst);
        workers.into_iter().for_each(|worker| finish(worker));
    });
    let order = order.into_inner().unwrap();
    assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
}

/// The lock is taken before it shows that its counter, which is elsewhere, is none.
#[test]
fn a_lock_is_given_back_whose_counter_is_none() {
    let cluster = Cluster::start();
    let name = cluster.name_at(0, 0);
    cluster.nodes[0].ask::<String>(&["SET", &format!("redisson_lock_token:{{{name}}}"), "x"]);
    let moved = cluster.half_move(slot_of(&name), 1, Keys::None);
    let locks = fenced(&cluster, ShardedPubsub::Auto);
    let error = locks.lock(&name).unwrap_err();
    assert!(error.to_string().contains("TOKEN"), "{error}");
    eventually(LONG, "it is given back", || !locks.is_locked(&name).unwrap());
    cluster.finish_move(moved);
}

/// A lock at one node whose counter is at another, each of which can be stopped.
struct Apart {
    cluster: Cluster,
    name: String,
    counter: String,
}

impl Apart {
    fn start() -> Self {
        let cluster = Cluster::start();
        let mut pairs = (0..).map(|number| (format!("a{{{number}"), format!("redisson_lock_token:a{{{number}")));
        let (name, counter) =
            pairs.find(|(lock, counter)| cluster.master_of(lock) != cluster.master_of(counter)).unwrap();
        Self { cluster, name, counter }
    }

    fn node_of(&self, key: &str) -> &Member {
        &self.cluster.nodes[self.cluster.master_of(key)]
    }

    /// Somebody takes the lock, and comes to count its tokens when the counter's node goes on. Its token, and another's.
    fn take(&self, meanwhile: impl FnOnce(&Member, &Member)) -> (u64, u64) {
        let (locks, mut last) = (fenced(&self.cluster, ShardedPubsub::Auto), None);
        assert_grow(std::slice::from_ref(&locks), &self.name, &mut last);
        let (of_lock, of_counter) = (self.node_of(&self.name), self.node_of(&self.counter));
        of_counter.freeze();
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| locks.guard(&self.name).unwrap().token().unwrap());
            eventually(LONG, "it has the lock", || of_lock.ask::<bool>(&["EXISTS", &self.name]));
            meanwhile(of_lock, of_counter);
            eventually(LONG, "it has a token", || of_counter.ask::<Option<u64>>(&["GET", &self.counter]) > last);
            // Time to go on, for who would not look.
            std::thread::sleep(ms(20));
            let of_another = of_counter.ask(&["INCR", &self.counter]);
            of_lock.thaw();
            (finish(holder), of_another)
        })
    }
}

/// As if an early copy of the acquire had put the lock back, after a force unlock and somebody else's hold: the lock is there when it is
/// looked at, and its counter has gone on since.
#[test]
fn a_token_is_not_believed_when_it_is_not_the_last() {
    let (token, of_another) = Apart::start().take(|of_lock, of_counter| {
        of_lock.freeze();
        of_counter.thaw();
    });
    assert!(token > of_another, "{token} after {of_another}");
}

/// After a force unlock: a token that is counted then is greater than that of whoever has the lock.
#[test]
fn a_token_is_not_believed_when_the_lock_is_anothers_by_then() {
    let apart = Apart::start();
    let (token, of_another) = apart.take(|of_lock, of_counter| {
        of_lock.ask::<i64>(&["DEL", &apart.name]);
        of_lock.ask::<i64>(&["HSET", &apart.name, "another", "1"]);
        of_lock.ask::<i64>(&["PEXPIRE", &apart.name, "3000"]);
        of_counter.thaw();
    });
    assert!(token > of_another, "{token} after {of_another}");
}
