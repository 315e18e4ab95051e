//! What a shutdown frees, how, and what it says of the rest; and that no loss is forgotten by it.

use crate::harness::quorum;
use crate::process::alone;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish, ms, spawn_asleep, timed};
use redlatch::{
    CancelToken, Client, ClientBuilder, FairLock, FencedLock, LossCause, MultiLock, ReadWriteLock, RedLock, RedLockExt,
    ReentrantLock, Semaphore, Terms,
};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A lease that is not renewed while a test runs: its renewals would be among the commands that are counted.
const UNRENEWED: Duration = Duration::from_secs(600);

/// A command for each hundred holds, and room for the handshakes of connections that are new.
const COMMANDS: usize = 100 + 40;

fn locks_of(builder: ClientBuilder) -> ReentrantLock {
    ReentrantLock::new(&builder.build().unwrap())
}

fn sides_of(builder: ClientBuilder) -> ReadWriteLock {
    ReadWriteLock::new(&builder.build().unwrap())
}

/// Takes so many locks, a hundred by one command where that can be.
fn take(locks: &impl RedLock, prefix: &str, count: usize) {
    let names: Vec<_> = (0..count).map(|number| format!("{prefix}{number}")).collect();
    for names in names.chunks(100) {
        let group = MultiLock::of(names.iter().map(|name| (locks, name.as_str())));
        assert!(group.acquire(&Terms::new()).unwrap().is_some());
    }
}

#[test]
fn ten_thousand_holds_are_freed_in_batches() {
    alone(|| {
        let server = Server::start();
        let locks = locks_of(server.builder().watchdog_timeout(UNRENEWED));
        take(&locks, "n", 10_000);
        let began = Instant::now();
        let commands = server.commands_during(|| locks.client().shutdown());
        println!("a shutdown of 10,000 holds took {:?}, {} commands", began.elapsed(), commands.len());
        assert!(commands.len() <= COMMANDS, "{} commands", commands.len());
        assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    });
}

/// The budget is for servers that do not answer. It also bounds how long a new connection is waited for, which a busy
/// machine makes slowly: so one connection is all that is needed.
#[test]
fn a_shutdown_goes_on_as_long_as_the_server_answers() {
    alone(|| {
        keep_log();
        let (server, budget) = (Server::start(), ms(500));
        let proxy = Proxy::new(server.socket());
        let builder = Client::builder(&proxy.url()).pool_size(1).outage_budget(budget);
        let locks = locks_of(builder.watchdog_timeout(UNRENEWED));
        take(&locks, "n", 4_000);
        proxy.delay(ms(20));
        let ((), took) = timed(|| locks.client().shutdown());
        assert!(took.real() > budget, "it was too short to show anything: {took:?}");
        assert_eq!(logged("at shutdown"), [""; 0]);
        assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    });
}

/// It would refuse them one by one all the same, and a server that loads its data takes its time for that.
#[test]
fn a_shutdown_asks_no_more_of_a_server_that_serves_nobody() {
    alone(|| {
        keep_log();
        let server = Server::start();
        let locks = locks_of(server.builder().watchdog_timeout(UNRENEWED));
        take(&locks, "n", 1_000);
        let _: String = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        let commands = server.commands_during(|| locks.client().shutdown());
        // One of each connection, and the handshakes.
        assert!(commands.len() <= 4 + 40, "{} commands", commands.len());
        let lines = logged("at shutdown");
        assert!(lines.len() == 1 && lines[0].starts_with("at shutdown 1000 lock(s)"), "{lines:?}");
        assert!(lines[0].contains("READONLY"), "{lines:?}");
        let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]);
        server.clear();
    });
}

#[test]
fn a_quorum_frees_its_holds_in_batches() {
    let servers = quorum::start(3);
    let locks = quorum::builder(&servers).node_timeout(quorum::SLOW).watchdog_timeout(UNRENEWED).build().unwrap();
    let all_have = |count: i64| servers.iter().all(|server| server.ask::<i64>(&["DBSIZE"]) == count);
    for hundred in 1..=10 {
        take(&locks, &format!("n{hundred}-"), 100);
        // A node that still has much to do when all are to be freed is not waited for: its keys are left to their leases.
        eventually(LONG, "every node has them", || all_have(100 * hundred));
    }
    let commands = servers[1].commands_during(|| locks.shutdown());
    // A hundred are of two threads of each node.
    assert!(commands.len() <= 2 * 10 + 40, "{} commands", commands.len());
    eventually(LONG, "every node is free", || all_have(0));
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Kept;

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

pub(crate) fn keep_log() {
    log::set_logger(&Kept).unwrap();
    log::set_max_level(log::LevelFilter::Info);
}

pub(crate) fn logged(start: &str) -> Vec<String> {
    LINES.lock().unwrap().iter().filter(|line| line.starts_with(start)).cloned().collect()
}

#[test]
fn a_shutdown_without_a_server_says_how_many_locks_may_stay() {
    alone(|| {
        keep_log();
        let mut server = Server::start();
        let locks = locks_of(server.builder().key_prefix("shop:").watchdog_timeout(UNRENEWED));
        take(&locks, "n", 350);
        server.kill();
        locks.client().shutdown();
        let lines = logged("at shutdown");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("at shutdown 350 lock(s), \"shop:n"), "{lines:?}");
        server.restart();
    });
}

#[test]
fn a_shutdown_frees_what_it_may_and_names_what_it_may_not() {
    alone(|| {
        keep_log();
        let server = Server::start();
        let user = |keys: &str| server.let_in("u", "p", &format!("{keys} &* +@all"));
        let url = user("~*");
        let locks = locks_of(Client::builder(&url).watchdog_timeout(UNRENEWED));
        take(&locks, "mine:", 150);
        locks.lock("theirs").unwrap();
        user("~mine:*");
        locks.client().shutdown();
        assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["theirs"]);
        let lines = logged("at shutdown");
        assert!(lines.len() == 1 && lines[0].starts_with("at shutdown 1 lock(s), \"theirs\""), "{lines:?}");
        server.clear();
    });
}

/// A client that counts what its callback is told.
fn counting(server: &Server, told: &'static AtomicUsize) -> ReentrantLock {
    locks_of(server.builder().on_lost(move |_| _ = told.fetch_add(1, SeqCst)))
}

/// Whoever hears of a loss by its channel may be the one who ends the client.
#[test]
fn a_loss_is_told_to_the_callback_though_its_listener_drops_the_client() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start();
    for losses in 1..=100 {
        let locks = counting(&server, &TOLD);
        locks.lock_with_lease("n", ms(20)).unwrap();
        let lost = locks.hold("n").unwrap().lost();
        std::thread::scope(|scope| {
            let listener = scope.spawn(move || {
                assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
                drop(locks);
            });
            finish(listener);
        });
        eventually(LONG, "the callback is told", || TOLD.load(SeqCst) == losses);
    }
}

/// Nobody but the shutdown can have found it.
#[test]
fn a_loss_that_the_shutdown_finds_is_told_to_the_callback() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start();
    for losses in 1..=50 {
        let locks = counting(&server, &TOLD);
        locks.lock_with_lease("n", ms(20)).unwrap();
        let hold = locks.hold("n").unwrap();
        while hold.is_valid() {
            std::hint::spin_loop();
        }
        locks.client().shutdown();
        eventually(LONG, "the callback is told", || TOLD.load(SeqCst) == losses);
    }
}

/// So many commands free a thousand readers and as many writers, with room for the handshakes of connections that are new.
const COMMANDS_OF_SIDES: usize = 2 * 10 + 40;

/// Nobody has looked for it since, and the connections are cut. What the shutdown frees itself is no loss, however late its answer is.
#[test]
fn a_loss_that_only_a_shutdowns_release_finds_is_told_to_callback_and_channel() {
    let servers = quorum::start(3);
    let server = &servers[0];
    for (is_lost, kind) in [true, false].into_iter().flat_map(|is_lost| (0..6).map(move |kind| (is_lost, kind))) {
        let told = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&told);
        let callback = move |_| _ = count.fetch_add(1, SeqCst);
        let close: Box<dyn Fn()>;
        let locks: Box<dyn RedLock> = if kind == 0 {
            let locks = quorum::builder(&servers).on_lost(callback).build().unwrap();
            let closed = locks.clone();
            close = Box::new(move || closed.shutdown());
            Box::new(locks)
        } else {
            let client = server.builder().on_lost(callback).build().unwrap();
            let closed = client.clone();
            close = Box::new(move || closed.shutdown());
            match kind {
                1 => Box::new(ReentrantLock::new(&client)),
                2 => Box::new(FairLock::new(&client)),
                3 => Box::new(FencedLock::new(&client)),
                4 => Box::new(ReadWriteLock::new(&client).read().clone()),
                _ => Box::new(ReadWriteLock::new(&client).write().clone()),
            }
        };
        locks.lock("n").unwrap();
        let lost = locks.hold("n").unwrap().lost();
        if is_lost {
            servers.iter().for_each(|server| _ = server.ask::<String>(&["FLUSHALL"]));
            servers.iter().for_each(|server| _ = server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]));
        }
        close();
        assert_eq!(lost.try_recv().is_ok(), is_lost, "kind {kind}");
        eventually(LONG, "the callback is told", || told.load(SeqCst) == usize::from(is_lost));
    }
}

#[test]
fn read_write_holds_are_freed_in_batches() {
    alone(|| {
        let server = Server::start();
        let locks = sides_of(server.builder().watchdog_timeout(UNRENEWED));
        for number in 0..1_000 {
            locks.read().lock(&format!("r{number}")).unwrap();
            locks.write().lock(&format!("w{number}")).unwrap();
        }
        let began = Instant::now();
        let commands = server.commands_during(|| locks.client().shutdown());
        println!(
            "a shutdown of 1,000 readers and 1,000 writers took {:?}, {} commands",
            began.elapsed(),
            commands.len()
        );
        assert!(commands.len() <= COMMANDS_OF_SIDES, "{} commands", commands.len());
        assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
    });
}

/// In one batch: what others read stays theirs, what only this client had is free, who waits is told, and a key that holds something
/// else is left alone and is in nobody's way.
#[test]
fn a_batch_of_read_write_holds_does_to_each_lock_what_its_own_release_does() {
    let server = Server::start();
    let [locks, other] = [(); 2].map(|()| sides_of(server.builder().watchdog_timeout(UNRENEWED).poll_cap(UNRENEWED)));
    ["shared", "wanted", "text", "z"].iter().for_each(|name| locks.read().lock(name).unwrap());
    locks.write().lock("both").unwrap();
    locks.read().lock("both").unwrap();
    locks.write().lock("written").unwrap();
    let theirs = other.read().acquire("shared", &Terms::new()).unwrap().unwrap();
    server.ask::<String>(&["SET", "text", "else"]);
    std::thread::scope(|scope| {
        let waits = [("wanted", other.write()), ("written", other.write())];
        let waiting = waits.map(|(name, side)| {
            spawn_asleep(scope, move || side.try_lock_for(name, LONG).unwrap() && side.unlock(name).is_ok())
        });
        locks.client().shutdown();
        waiting.into_iter().for_each(|thread| assert!(finish(thread).0, "it is told that the lock is free"));
    });
    assert!(other.read().verify(&theirs).unwrap());
    assert_eq!(server.ask::<i64>(&["HLEN", "shared"]), 2, "the mode and the other reader");
    assert_eq!(server.ask::<String>(&["GET", "text"]), "else");
    other.read().release(&theirs).unwrap();
    // A client that has waited listens to questions for as long as it lives.
    drop(other);
    server.ask::<i64>(&["DEL", "text"]);
    eventually(LONG, "nothing is left", || server.leftovers().is_empty());
}

/// How many places there are in the queues of processes, of threads, and of those that wait for permits.
fn places(server: &Server) -> [i64; 3] {
    [["ZCARD", "redlatch_queue:{a}"], ["LLEN", "redisson_lock_queue:{b}"], ["HLEN", "redlatch_places:{c}"]]
        .map(|words| server.ask(&words))
}

/// A process may end right after its shutdown. A place that it leaves is in the way of other processes.
#[test]
fn a_shutdown_waits_until_places_of_cancelled_calls_are_gone() {
    let server = Server::start();
    let holder = server.builder().build().unwrap();
    let (locks, fair, permits) = (ReentrantLock::new(&holder), FairLock::new(&holder), Semaphore::new(&holder));
    permits.try_set_permits("c", 1).unwrap();
    let held = (locks.guard("a").unwrap(), fair.guard("b").unwrap(), permits.acquire("c", 1, &Terms::new()).unwrap());
    for _ in 0..20 {
        let (client, token) = (server.builder().build().unwrap(), CancelToken::new());
        let terms = Terms::new().cancelled_by(&token);
        std::thread::scope(|scope| {
            let waiting = [
                scope.spawn(|| ReentrantLock::new(&client).acquire("a", &terms).is_err()),
                scope.spawn(|| FairLock::new(&client).acquire("b", &terms).is_err()),
                scope.spawn(|| Semaphore::new(&client).acquire("c", 1, &terms).is_err()),
            ];
            eventually(LONG, "all have places", || places(&server) == [1, 1, 1]);
            token.cancel();
            assert!(waiting.into_iter().all(finish));
        });
        client.shutdown();
        assert_eq!(places(&server), [0, 0, 0]);
    }
    drop(held);
    permits.delete("c").unwrap();
}
