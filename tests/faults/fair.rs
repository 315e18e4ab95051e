//! Rows 136 to 141: what may become of the queue of a fair lock, and of those in it.
//!
//! Lease and poll cap are a minute where nothing but the queue and messages is to serve a waiter in time.

use crate::process::{Peer, alone, hear, tell, with_peer};
use crate::proxy::numbers;
use crate::queues::{REFUSED, assert_goes_round, keep_refusals};
use crate::server::Server;
use crate::threads::{LONG, Mark, SOON, eventually, finish, ms};
use harness::member::Member;
use harness::queue::{MINUTE, Over, assert_served, ear_of};
use harness::sentinel::{Group, Shape};
use redlatch::{Client, FairLock, RedLock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::Duration;

const LIST: &str = "redisson_lock_queue:{n}";
const ENDS: &str = "redisson_lock_timeout:{n}";
const TICKETS: &str = "redlatch_tickets:{n}";

/// For so long one that is stopped has what it is given.
const OFFER: Duration = Duration::from_millis(1_500);

/// Of clients that find by themselves what nobody tells them.
const LOOK: Duration = Duration::from_millis(300);

fn locks_at(url: &str, poll_cap: Duration) -> FairLock {
    FairLock::new(&Client::builder(url).poll_cap(poll_cap).watchdog_timeout(MINUTE).build().unwrap())
}

fn patient(server: &Server) -> FairLock {
    locks_at(&server.url(), MINUTE)
}

fn length(server: &Server) -> usize {
    server.ask(&["LLEN", LIST])
}

#[track_caller]
fn queued<'s>(scope: &'s Scope<'s, '_>, server: &Server, locks: &'s FairLock) -> ScopedJoinHandle<'s, (bool, Mark)> {
    let before = length(server);
    let pass = || locks.try_lock_for("n", LONG).unwrap() && locks.unlock("n").is_ok();
    let handle = scope.spawn(move || (pass(), Mark::now()));
    eventually_queued(server, before + 1);
    handle
}

/// So many wait, and hear of their turns: no ticket polls.
#[track_caller]
fn eventually_queued(server: &Server, count: usize) {
    let tickets = || server.ask::<Vec<String>>(&["HVALS", TICKETS]);
    let hear = || tickets().iter().all(|ticket| ticket.ends_with(".1500"));
    eventually(LONG, "it is queued", || length(server) == count && hear());
}

/// A process that waits, and says when it had its turn.
fn wait_in_order(url: &str) {
    let locks = locks_at(url, MINUTE);
    assert!(locks.try_lock_for("n", LONG).unwrap());
    tell(url, "had its turn");
    locks.unlock("n").unwrap();
}

#[track_caller]
fn start_queued(server: &Server, start: &dyn Fn(&Server) -> Peer) -> Peer {
    let before = length(server);
    let peer = start(server);
    eventually_queued(server, before + 1);
    peer
}

#[track_caller]
fn eventually_empty(server: &Server) {
    eventually(LONG, "nobody is queued", || server.ask::<i64>(&["EXISTS", LIST, ENDS, TICKETS]) == 0);
}

#[test]
fn fault_136_processes_that_are_killed_while_they_wait_for_a_fair_lock_are_skipped() {
    with_peer(
        |url| {
            wait_in_order(url);
        },
        |start| {
            let server = Server::start();
            let [holder, first, last] = [(); 3].map(|()| patient(&server));
            holder.lock("n").unwrap();
            scope(|scope| {
                let mut dead = vec![start_queued(&server, start), start_queued(&server, start)];
                let first = queued(scope, &server, &first);
                dead.push(start_queued(&server, start));
                let last = queued(scope, &server, &last);
                drop(dead);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(first, unlocked);
                assert_served(last, unlocked);
            });
            eventually_empty(&server);
        },
    );
}

#[test]
fn fault_137_a_process_that_is_stopped_while_it_waits_for_a_fair_lock_costs_an_offer_and_comes_last() {
    with_peer(
        |url| {
            wait_in_order(url);
        },
        |start| {
            let server = Server::start();
            let [holder, other, later] = [(); 3].map(|()| patient(&server));
            holder.lock("n").unwrap();
            scope(|scope| {
                let stopped = start_queued(&server, start);
                stopped.freeze();
                let waiter = queued(scope, &server, &other);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                let (got, when) = finish(waiter);
                let took = when - unlocked;
                assert!(got && took >= OFFER - ms(10) && took <= OFFER + SOON, "served after {took:?}");
                assert!(holder.try_lock_for("n", LONG).unwrap());
                let later = queued(scope, &server, &later);
                stopped.thaw();
                eventually(LONG, "it is queued again", || length(&server) == 2);
                let unlocked = Mark::now();
                holder.unlock("n").unwrap();
                assert_served(later, unlocked);
                assert_eq!(hear(&server), "had its turn");
                stopped.join();
            });
            eventually_empty(&server);
        },
    );
}

/// What somebody may do to the queue who has no business there. A field like one of Redisson's counts for no longer than a moment.
fn forge(server: &Server, random: &mut impl FnMut(u64) -> u64) {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    let soon = (seconds * 1_000 + micros / 1_000 + 20).to_string();
    let forged: [&[&str]; 12] = [
        &["DEL", LIST],
        &["DEL", ENDS],
        &["DEL", TICKETS],
        &["DEL", LIST, ENDS, TICKETS],
        &["LPUSH", LIST, "java:7"],
        &["ZADD", ENDS, &soon, "java:7"],
        &["HSET", TICKETS, "java:7", "no ticket"],
        &["LPOP", LIST],
        &["RPOPLPUSH", LIST, LIST],
        &["SET", LIST, "x", "PX", "20"],
        &["SET", ENDS, "x", "PX", "20"],
        &["SET", TICKETS, "x", "PX", "20"],
    ];
    // On a key of another type most are refused.
    let _ = server.try_ask::<redis::Value>(forged[random(12) as usize]);
}

#[test]
fn fault_138_a_forged_queue_of_a_fair_lock_grants_nothing_and_blocks_nobody() {
    let server = Server::start();
    let clients = [(); 4].map(|()| locks_at(&server.url(), LOOK));
    let mut random = numbers(0x5EED_0138);
    assert_goes_round(&server, &clients, || {
        forge(&server, &mut random);
        std::thread::sleep(ms(random(5)));
    });
    server.ask::<i64>(&["DEL", LIST, ENDS, TICKETS]);
}

#[test]
fn fault_139_rights_for_the_queue_of_a_fair_lock_that_are_taken_away_cost_the_order_and_one_line_of_the_log() {
    alone(|| {
        keep_refusals();
        let server = Server::start();
        let url = server.let_in("user", "pw", "~* +@all &*");
        let clients = [(); 3].map(|()| locks_at(&url, LOOK));
        let mut rules = ["~n +@all", "~* +@all", "~* +@all -rpush", "~* +@all -lindex", "~* +@all"].into_iter().cycle();
        assert_goes_round(&server, &clients, || {
            // Not reset first, as it would be by another let_in: nobody is to be refused the lock.
            let change = ["ACL", "SETUSER", "user", "resetkeys"];
            let change: Vec<_> = change.into_iter().chain(rules.next().unwrap().split(' ')).collect();
            server.ask::<String>(&change);
            std::thread::sleep(ms(100));
        });
        let refused = REFUSED.lock().unwrap();
        assert!((1..=clients.len()).contains(&refused.len()), "{refused:?}");
        assert!(refused.iter().all(|line| line.contains(LIST)), "{refused:?}");
        server.ask::<i64>(&["DEL", LIST, ENDS, TICKETS]);
    });
}

/// Nothing is refused to the unlock, which finds an empty queue.
#[test]
fn fault_139_a_waiter_that_is_refused_its_place_in_the_queue_of_a_fair_lock_says_so_once() {
    alone(|| {
        keep_refusals();
        let server = Server::start();
        let url = server.let_in("user", "pw", "~* +@all -rpush &*");
        let [holder, refused] = [(); 2].map(|()| locks_at(&url, LOOK));
        holder.lock("n").unwrap();
        for _ in 0..2 {
            assert!(!refused.try_lock_for("n", LOOK).unwrap());
        }
        holder.unlock("n").unwrap();
        let lines = REFUSED.lock().unwrap();
        assert!(matches!(&lines[..], [line] if line.contains(LIST)), "{lines:?}");
    });
}

#[test]
fn fault_140_without_memory_everybody_gets_a_fair_lock_when_there_is_some() {
    let server = Server::start();
    let clients = [(); 3].map(|()| locks_at(&server.url(), LOOK));
    assert_goes_round(&server, &clients, || {
        for size in ["1", "0"] {
            server.ask::<String>(&["CONFIG", "SET", "maxmemory", size]);
            std::thread::sleep(ms(100));
        }
    });
    eventually_empty(&server);
}

/// Those that have places keep the lock among themselves meanwhile, and there is no moment at which it is free.
#[test]
fn fault_140_who_was_refused_a_place_once_has_its_turn_when_there_is_memory() {
    let server = Server::start();
    let [holder, refused, one, other] = [(); 4].map(|()| locks_at(&server.url(), LOOK));
    let over = AtomicBool::new(false);
    let circle = &|locks: &FairLock| {
        while !over.load(SeqCst) {
            assert!(locks.try_lock_for("n", LONG).unwrap());
            eventually(LONG, "another waits", || length(&server) > 0 || over.load(SeqCst));
            locks.unlock("n").unwrap();
        }
    };
    holder.lock("n").unwrap();
    scope(|scope| {
        server.ask::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
        let waiter = scope.spawn(|| refused.try_lock_for("n", LONG).unwrap() && refused.unlock("n").is_ok());
        // It asks again when it has subscribed.
        std::thread::sleep(LOOK);
        assert_eq!(length(&server), 0);
        server.ask::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
        let _over = Over(&over);
        let others = [&one, &other].map(|locks| scope.spawn(move || circle(locks)));
        eventually(LONG, "the others wait", || length(&server) >= 2);
        let unlocked = Mark::now();
        holder.unlock("n").unwrap();
        assert!(finish(waiter));
        assert!(Mark::now() - unlocked <= SOON);
        over.store(true, SeqCst);
        others.into_iter().for_each(finish);
    });
    eventually_empty(&server);
}

fn locks_of(group: &Group) -> FairLock {
    FairLock::new(&group.builder().poll_cap(MINUTE).watchdog_timeout(MINUTE).outage_budget(LONG).build().unwrap())
}

/// The owner fields in the queue at a node, once there are so many.
#[track_caller]
fn queue_at(node: &Member, count: usize) -> Vec<String> {
    let mut fields = Vec::new();
    eventually(LONG, "all are queued at this node", || {
        fields = node.ask(&["LRANGE", LIST, "0", "-1"]);
        fields.len() == count
    });
    fields
}

/// Each thread waits at this node, and listens there.
#[track_caller]
fn eventually_hear_at(node: &Member) {
    let tickets = || node.ask::<Vec<String>>(&["HVALS", TICKETS]);
    let listens = |ticket: &String| node.subscribers(&ear_of(ticket)) == 1;
    eventually(LONG, "all listen", || tickets().iter().all(|ticket| ticket.ends_with(".1500") && listens(ticket)));
}

/// Whose client has this field of the queue.
fn number_of(field: &str, clients: &[FairLock]) -> usize {
    let is_of = |locks: &FairLock| field.starts_with(&locks.client().id().to_string());
    clients.iter().position(is_of).expect("it is of one of the clients")
}

/// Four threads wait while the master dies. `queues` is called before they do, and `queued` after. Returns in which order they were served.
fn served_after_a_failover(queues: impl FnOnce(&Group), queued: impl FnOnce(&Group)) -> Vec<usize> {
    let mut group = Group::of(Shape::SMALL);
    let (holder, clients) = (locks_of(&group), [(); 4].map(|()| locks_of(&group)));
    let (served, mut order) = (Mutex::new(Vec::new()), Vec::new());
    holder.lock("n").unwrap();
    group.replicated(0);
    queues(&group);
    scope(|scope| {
        for (number, locks) in clients.iter().enumerate() {
            let served = &served;
            scope.spawn(move || {
                assert!(locks.try_lock_for("n", 3 * LONG).unwrap());
                served.lock().unwrap().push(number);
                locks.unlock("n").unwrap();
            });
            queue_at(&group.nodes[0], number + 1);
        }
        eventually_hear_at(&group.nodes[0]);
        queued(&group);
        group.nodes[0].kill();
        let new = &group.nodes[group.replaced(0)];
        queue_at(new, clients.len());
        eventually_hear_at(new);
        order = queue_at(new, clients.len());
        holder.unlock("n").unwrap();
    });
    let served = served.into_inner().unwrap();
    let order: Vec<_> = order.iter().map(|field| number_of(field, &clients)).collect();
    assert_eq!(served, order, "in the order of the queue at the new master");
    served
}

/// The queue is data. So the new master has it, and each thread finds its place there.
#[test]
fn fault_141_threads_that_wait_for_a_fair_lock_keep_their_order_if_the_new_master_has_it() {
    assert_eq!(served_after_a_failover(|_| (), |group| group.replicated(0)), [0, 1, 2, 3]);
}

/// Each thread asks at the new master, and joins the queue there.
#[test]
fn fault_141_threads_whose_places_in_the_queue_of_a_fair_lock_were_lost_take_new_ones() {
    let mut served = served_after_a_failover(|group| group.sever(0), |_| ());
    served.sort_unstable();
    assert_eq!(served, [0, 1, 2, 3]);
}
