//! Rows 40 to 42, 44, 45, 124 and 125: threads and processes that stop, end, panic or die while they hold locks.

use crate::locks_of;
use crate::process::{alone, hear, tell, with_peer};
use crate::server::Server;
use crate::threads::{LATE, LONG, Mark, OUTLIVED, WATCHED, elsewhere, eventually, finish, ms, timed};
use crate::warnings::that_say;
use redlatch::{Client, Hold, HoldState, LossCause, RedLock, RedLockExt, ReentrantLock};
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(1);

fn locks_of_peer(url: &str) -> ReentrantLock {
    ReentrantLock::new(&Client::builder(url).watchdog_timeout(LEASE).build().unwrap())
}

/// Holds the lock, and says when.
fn peer_that_holds(url: &str) -> (ReentrantLock, Hold) {
    let locks = locks_of_peer(url);
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    tell(url, "held");
    (locks, hold)
}

/// Whoever comes after a process that ended with the lock gets it when the lease ends.
fn assert_free_within_the_lease(server: &Server) {
    let (locks, start) = (server.locks(), Mark::now());
    assert!(locks.try_lock_for("n", LONG).unwrap());
    assert!(start.elapsed() <= LEASE + LATE, "free after {:?}", start.elapsed());
    println!("free {:?} after the end of a process with a lease of {LEASE:?}", start.elapsed());
    locks.unlock("n").unwrap();
}

#[test]
fn fault_40_a_process_that_was_stopped_beyond_its_lease_knows_at_once() {
    with_peer(
        |url| {
            let (locks, hold) = peer_that_holds(url);
            let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
            // Stopped in this wait. The lock goes to the parent meanwhile, so the answer comes after it.
            let go: Option<(String, String)> = redis::cmd("BLPOP").arg("it:go").arg(20).query(&mut connection).unwrap();
            assert!(!hold.is_valid() && go.is_some());
            assert_eq!(hold.state(), HoldState::Lost);
            assert_err!(locks.lock("n"), Lost);
            assert_err!(locks.unlock("n"), Lost);
            tell(url, "lost");
        },
        |start| {
            let server = Server::start();
            let locks = server.locks();
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            peer.freeze();
            let guard = locks.guard("n").unwrap();
            server.ask::<i64>(&["RPUSH", "it:go", "go"]);
            peer.thaw();
            assert_eq!(hear(&server), "lost");
            assert!(locks.verify(&guard).unwrap(), "the late unlock freed another's lock");
            peer.join();
        },
    );
}

/// Nobody took the lock meanwhile, but somebody could have: the late renewal must not make it valid again.
#[test]
fn fault_40_a_hold_is_not_revived_by_the_renewal_after_a_stop() {
    with_peer(
        |url| {
            let (locks, hold) = peer_that_holds(url);
            let lost = hold.lost().recv_timeout(LONG).expect("told of the loss");
            assert_eq!(lost.cause(), LossCause::Expired);
            assert!(!hold.is_valid());
            assert_err!(locks.unlock("n"), Lost);
            tell(url, "lost");
        },
        |start| {
            let server = Server::start();
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            peer.freeze();
            assert!(server.pttl("n") > 0);
            // The key stays longer than the lease, so that a renewal would find it.
            assert_eq!(server.ask::<i64>(&["PEXPIRE", "n", "60000"]), 1);
            std::thread::sleep(LEASE + LATE);
            peer.thaw();
            assert_eq!(hear(&server), "lost");
            eventually(LONG, "the key is gone", || server.pttl("n") == -2);
            peer.join();
        },
    );
}

#[test]
fn fault_41_a_thread_that_ends_while_it_holds_is_no_longer_renewed() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let (hold, lost) = elsewhere(|| {
        let guard = locks.guard("n").unwrap();
        let held = (guard.hold().clone(), guard.lost());
        std::mem::forget(guard);
        held
    });
    let ended = Mark::now();
    assert_eq!(lost.recv_timeout(LONG).unwrap().cause(), LossCause::Expired);
    assert!(ended.elapsed() <= WATCHED + LATE, "lost {:?} after its thread", ended.elapsed());
    assert_eq!(hold.state(), HoldState::Lost);
    assert!(locks.try_lock_for("n", LONG).unwrap(), "it is free again");
    locks.unlock("n").unwrap();
}

/// What a thread does in the destructor of something that it had before it first used a lock.
struct AtTheEnd(RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|act| act());
    }
}

thread_local! {
    static AT_THE_END: AtTheEnd = const { AtTheEnd(RefCell::new(None)) };
}

/// What `act` gives in such a destructor, which runs when the library's own have run.
fn in_a_late_destructor<T: Send + 'static>(
    locks: &ReentrantLock,
    act: impl FnOnce(&ReentrantLock) -> T + Send + 'static,
) -> T {
    let (tell, told) = channel();
    let locks = locks.clone();
    let thread = std::thread::spawn(move || {
        let late = locks.clone();
        AT_THE_END.with(|end| end.0.replace(Some(Box::new(move || tell.send(act(&late)).unwrap()))));
        drop(locks.guard("before").unwrap());
    });
    thread.join().unwrap();
    told.recv().expect("the destructor ran")
}

#[test]
fn fault_125_what_is_locked_in_a_late_destructor_and_left_is_not_renewed() {
    alone(|| {
        let warnings = that_say("a thread ended while it held lock \"n\"");
        let server = Server::start();
        let locks = server.locks_watched(WATCHED);
        for levels in 1..=2 {
            let hold = in_a_late_destructor(&locks, move |locks| {
                (0..levels).for_each(|_| locks.lock("n").unwrap());
                locks.hold("n").unwrap()
            });
            let left = Mark::now();
            assert_eq!(hold.owner().split(':').nth(1), Some("0"), "the destructor ran too early");
            assert_eq!(hold.lost().recv_timeout(LONG).expect("it is not renewed").cause(), LossCause::Expired);
            assert!(left.elapsed() <= WATCHED + LATE, "lost {:?} after its thread", left.elapsed());
            assert_eq!(warnings.seen.lock().unwrap().len(), levels, "it is told, once");
            assert!(locks.try_lock_for("n", LONG).unwrap(), "it is free again");
            locks.unlock("n").unwrap();
        }
    });
}

/// While others of its process wait, and after they have had it.
#[test]
fn fault_125_what_is_released_in_a_late_destructor_is_free() {
    let server = Server::start();
    let locks = server.locks();
    let first = in_a_late_destructor(&locks, |locks| {
        let guard = locks.guard("n").unwrap();
        assert_eq!(locks.execute_in_lock("n", || guard.count()).unwrap(), 2);
        guard.unlock()
    });
    assert!(first.is_ok() && server.pttl("n") == -2, "{first:?}");
    let guard = locks.guard("n").unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| in_a_late_destructor(&locks, |locks| locks.execute_in_lock("n", || ())));
        eventually(LONG, "it waits", || locks.client().stats().waiters == 1);
        guard.unlock().unwrap();
        finish(waiter)
    });
    assert!(waiting.is_ok() && server.pttl("n") == -2, "{waiting:?}");
    assert_eq!(locks.client().stats().holds, 0);
}

/// And the other way round. Whether the lock is renewed is what the guard that is left asked for.
#[test]
fn fault_124_guards_that_are_dropped_in_the_order_they_were_made_keep_their_terms() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let leased = locks.request("n").lease(WATCHED).guard().unwrap().unwrap();
    let renewed = locks.guard("n").unwrap();
    drop(leased);
    eventually(LONG, "it outlives the lease", || {
        assert!(renewed.is_valid(), "{renewed:?}");
        renewed.acquired_at().elapsed() >= OUTLIVED
    });
    let leased = locks.request("n").lease(WATCHED).guard().unwrap().unwrap();
    let dropped = Mark::now();
    drop(renewed);
    assert_eq!(leased.lost().recv_timeout(LONG).expect("it is not renewed").cause(), LossCause::Expired);
    assert!(dropped.elapsed() <= WATCHED + LATE, "lost {:?} after its renewed level", dropped.elapsed());
    assert_err!(leased.unlock(), Lost);
}

/// The system gives the ids and the stacks of ended threads to new ones, which must not be taken for them.
#[test]
fn fault_42_a_new_thread_is_nobody_that_ended() {
    let server = Server::start();
    let locks = server.locks_watched(WATCHED);
    let system_id = || std::fs::read_link("/proc/thread-self").unwrap();
    let leak = || {
        std::mem::forget(locks.guard("n").unwrap());
        system_id()
    };
    let (first, mut numbers) = (elsewhere(leak), HashSet::new());
    for turn in 0..200 {
        let number = elsewhere(|| {
            assert_err!(locks.unlock("n"), NotHeld);
            assert!(turn > 0 || !locks.try_lock("n").unwrap(), "re-entered the hold of {first:?} as {:?}", system_id());
            let guard = locks.guard("m").unwrap();
            guard.owner().split(':').nth(1).unwrap().to_owned()
        });
        assert!(numbers.insert(number), "a thread number was used again");
    }
    assert!(locks.try_lock_for("n", LONG).unwrap());
    locks.unlock("n").unwrap();
}

#[test]
fn fault_44_a_guards_drop_is_bounded_by_one_answer() {
    let server = Server::start();
    let locks = ReentrantLock::new(&server.builder().response_timeout(ms(300)).build().unwrap());
    let guard = locks.guard("n").unwrap();
    server.freeze();
    let ((), took) = timed(|| drop(guard));
    assert!(took <= ms(300) + LATE, "took {took:?}");
    server.thaw();
    eventually(LONG, "the key is gone", || server.pttl("n") == -2);
}

#[test]
fn fault_44_a_panic_under_the_lock_releases_every_level() {
    let server = Server::start();
    let locks = server.locks();
    let ways: [&dyn Fn(); 3] = [
        &|| locks.execute_in_lock("n", || panic!("on purpose")).unwrap(),
        &|| drop((locks.guard("n").unwrap(), panic_under(&locks))),
        &|| locks.request("n").execute(|_| panic_under(&locks)).map(drop).unwrap(),
    ];
    for way in ways {
        assert!(catch_unwind(AssertUnwindSafe(way)).is_err());
        assert_eq!((locks.hold_count("n"), server.pttl("n")), (0, -2));
    }
}

fn panic_under(locks: &ReentrantLock) {
    let _inner = locks.guard("n").unwrap();
    panic!("on purpose");
}

/// A drop while the server is gone, during a panic: a second panic would abort the process.
#[test]
fn fault_44_a_drop_that_fails_in_a_panic_does_not_abort() {
    let mut server = Server::start();
    let locks = ReentrantLock::new(&server.builder().response_timeout(ms(300)).build().unwrap());
    let killed = catch_unwind(AssertUnwindSafe(|| {
        let _guard = locks.guard("n").unwrap();
        server.kill();
        panic!("on purpose");
    }));
    assert!(killed.is_err());
    assert_eq!(locks.hold_count("n"), 0);
    server.restart();
    drop(locks.guard("n").unwrap());
}

/// Panics where the watchdog says that a renewal failed.
struct Panicking;

impl log::Log for Panicking {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if std::thread::current().name() == Some("redlatch-watchdog") && record.level() == log::Level::Warn {
            PANICS.fetch_add(1, SeqCst);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }

    fn flush(&self) {}
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A panic of a kind's own code on that thread is in `watchdog::tests`.
#[test]
fn fault_44_a_logger_that_panics_in_the_watchdog_costs_no_hold() {
    alone(|| {
        log::set_logger(&Panicking).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let server = Server::start();
        let locks = server.locks_watched(3 * LEASE);
        let guard = locks.guard("n").unwrap();
        for outages in 1..=2 {
            server.ask::<String>(&["REPLICAOF", "127.0.0.1", "1"]);
            eventually(LONG, "the logger panics", || PANICS.load(SeqCst) == outages);
            assert_eq!(guard.state(), HoldState::Suspect);
            server.ask::<String>(&["REPLICAOF", "NO", "ONE"]);
            eventually(LONG, "it is renewed again", || guard.state() == HoldState::Held);
        }
        guard.unlock().unwrap();
    });
}

/// With an abort nothing unwinds.
#[test]
fn fault_44_a_process_that_aborts_holds_its_lock_no_longer_than_the_lease() {
    with_peer(
        |url| {
            let locks = locks_of_peer(url);
            let aborted = locks.execute_in_lock("n", || {
                tell(url, "held");
                std::process::abort();
            });
            drop(aborted);
        },
        |start| {
            let server = Server::start();
            let _peer = start(&server);
            assert_eq!(hear(&server), "held");
            assert_free_within_the_lease(&server);
        },
    );
}

/// An exit runs no destructor of another frame.
#[test]
fn fault_45_a_process_that_exits_holds_its_lock_no_longer_than_the_lease() {
    with_peer(
        |url| {
            let _guard = locks_of_peer(url).owned_guard("n").unwrap();
            tell(url, "held");
            std::process::exit(0);
        },
        |start| {
            let server = Server::start();
            let _peer = start(&server);
            assert_eq!(hear(&server), "held");
            assert_free_within_the_lease(&server);
        },
    );
}

#[test]
fn fault_45_a_killed_process_holds_its_lock_no_longer_than_the_lease() {
    with_peer(
        |url| {
            let _held = peer_that_holds(url);
            loop {
                std::thread::park();
            }
        },
        |start| {
            let server = Server::start();
            let peer = start(&server);
            assert_eq!(hear(&server), "held");
            assert!(!server.locks().try_lock("n").unwrap());
            drop(peer);
            assert_free_within_the_lease(&server);
        },
    );
}

/// Whoever can say good-bye does: then nobody waits for a lease.
#[test]
fn fault_45_a_shutdown_frees_every_lock_at_once() {
    with_peer(
        |url| {
            let (locks, _) = peer_that_holds(url);
            locks.lock_with_lease("m", Duration::from_secs(60)).unwrap();
            locks.client().shutdown();
            tell(url, "shut down");
            std::process::exit(0);
        },
        |start| {
            let server = Server::start();
            let _peer = start(&server);
            assert_eq!([hear(&server), hear(&server)], ["held", "shut down"]);
            assert_eq!((server.pttl("n"), server.pttl("m")), (-2, -2));
        },
    );
}

/// A thread that is stuck would keep its lock for ever.
#[test]
fn fault_41_a_hold_that_reaches_the_cap_is_lost_and_the_next_gets_the_lock() {
    let cap = 3 * WATCHED;
    let server = Server::start();
    let holder = locks_of(server.builder().watchdog_timeout(WATCHED).max_hold(cap));
    let other = server.locks();
    let guard = holder.guard("n").unwrap();
    let (lost, held) = timed(|| guard.lost().recv_timeout(LONG).unwrap());
    assert_eq!(lost.cause(), LossCause::Overheld);
    assert!(held >= cap - WATCHED && held <= cap + LATE, "{held:?}");
    assert!(other.try_lock_for("n", LONG).unwrap());
    other.unlock("n").unwrap();
    assert_eq!(guard.state(), HoldState::Lost);
    assert_err!(guard.unlock(), Lost);
}
