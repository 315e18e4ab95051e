//! Whatever the program's logger does, it changes nothing of what happens to a lock.

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, WATCHED, elsewhere, eventually};
use redlatch::{Client, OwnedGuard, RedLock, RedLockExt, ReentrantLock};
use std::cell::{Cell, RefCell};
use std::sync::Mutex;

/// Formats each line in a buffer of its thread, as tracing's formatter does: when the thread has dropped that buffer
/// already, the next line panics.
struct Buffered;

thread_local! {
    static BUFFER: RefCell<String> = const { RefCell::new(String::new()) };
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for Buffered {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        BUFFER.with_borrow_mut(|buffer| {
            *buffer = record.args().to_string();
            LINES.lock().unwrap().push(buffer.clone());
        });
    }

    fn flush(&self) {}
}

fn log_all(logger: &'static dyn log::Log) {
    log::set_logger(logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
}

/// How many lines were logged that have this in them.
fn lines_with(part: &str) -> usize {
    LINES.lock().unwrap().iter().filter(|line| line.contains(part)).count()
}

/// The first log line of a thread comes after its first lock, so its buffer is dropped before our destructor runs.
#[test]
fn a_thread_may_end_while_it_holds_after_it_logged() {
    alone(|| {
        log_all(&Buffered);
        let server = Server::start();
        let client = server.builder().key_prefix("shop:").watchdog_timeout(WATCHED).build().unwrap();
        let locks = ReentrantLock::new(&client);
        for holds in 1..=3 {
            elsewhere(|| {
                std::mem::forget(locks.guard("n").unwrap());
                log::info!("working");
            });
            eventually(LONG, "it is told", || lines_with("a thread ended while it held lock \"shop:n\" at ") == holds);
            assert!(locks.try_lock_for("n", LONG).unwrap(), "it was renewed on");
            locks.unlock("n").unwrap();
        }
        assert_eq!(lines_with("was lost while held by"), 3);
    });
}

thread_local! {
    static KEPT: RefCell<Option<OwnedGuard<ReentrantLock>>> = const { RefCell::new(None) };
}

/// The guard of a thread-local is dropped after the logger's buffer, and its release fails.
#[test]
fn a_guard_may_be_dropped_when_its_thread_cannot_log_any_more() {
    alone(|| {
        log_all(&Buffered);
        let mut server = Server::start();
        let locks = server.locks();
        std::thread::scope(|scope| {
            let (held, is_held) = std::sync::mpsc::channel();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let keep = locks.clone();
            let holder = scope.spawn(move || {
                KEPT.set(Some(keep.owned_guard("n").unwrap()));
                log::info!("working");
                held.send(()).unwrap();
                let _ = wait.recv();
            });
            is_held.recv().unwrap();
            server.kill();
            drop(go);
            holder.join().unwrap();
        });
        server.restart();
        assert!(!locks.is_locked("n").unwrap());
    });
}

/// Panics at every line.
struct Panicking;

impl log::Log for Panicking {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }

    fn flush(&self) {}
}

/// The loss is told in the middle of an unlock: what comes after it in there has to be done all the same.
#[test]
fn an_unlock_that_finds_a_loss_ends_the_hold_though_the_logger_panics() {
    alone(|| {
        log_all(&Panicking);
        let server = Server::start();
        let locks = server.locks();
        locks.lock("n").unwrap();
        let hold = locks.hold("n").unwrap();
        server.ask::<i64>(&["DEL", "n"]);
        assert_err!(locks.unlock("n"), Lost);
        assert_eq!((hold.count(), locks.hold_count("n")), (0, 0), "the hold was not buried");
        assert!(locks.try_lock("n").unwrap());
        locks.unlock("n").unwrap();
    });
}

/// Takes a lock for each line, as one that writes to a shared file does, but for the lines of that lock itself.
struct Locking;

static LOCKS: Mutex<Option<ReentrantLock>> = Mutex::new(None);

thread_local! {
    static LOGS: Cell<bool> = const { Cell::new(false) };
}

impl log::Log for Locking {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        let locks = LOCKS.lock().unwrap().clone();
        let Some(locks) = locks.filter(|_| !LOGS.replace(true)) else { return };
        if let Ok(true) = locks.try_lock("the log") {
            let _ = locks.unlock("the log");
        }
        LINES.lock().unwrap().push(format!("{:?} {:?}", locks.client().stats(), locks.is_locked("the log").is_ok()));
        LOGS.set(false);
    }

    fn flush(&self) {}
}

/// Nothing of ours is locked while a line is logged: here by the sweeper, which may not delete what nobody holds.
#[test]
fn a_logger_may_use_the_client_that_logs() {
    alone(|| {
        log_all(&Locking);
        let server = Server::start();
        let url = server.let_in("u", "p", "~* &* +@all -del");
        let client = Client::builder(&url).watchdog_timeout(WATCHED).build().unwrap();
        let locks = ReentrantLock::new(&client);
        *LOCKS.lock().unwrap() = Some(locks.clone());
        for _ in 0..3 {
            locks.lock("n").unwrap();
            assert!(locks.unlock("n").is_err(), "it may not delete");
            let lines = LINES.lock().unwrap().len();
            // Else its last attempt finds that the lock has ended with its lease, and there is nothing to say.
            assert_eq!(server.ask::<i64>(&["PERSIST", "n"]), 1);
            eventually(LONG, "the sweeper gives up", || LINES.lock().unwrap().len() > lines);
            assert_eq!(server.ask::<i64>(&["DEL", "n"]), 1);
        }
        *LOCKS.lock().unwrap() = None;
        drop((locks, client));
        server.clear();
    });
}

/// It cannot know what the locks of a client without a prefix are called.
#[test]
fn who_may_lock_some_names_is_told_that_the_rule_is_for_any() {
    alone(|| {
        log_all(&Buffered);
        let server = Server::start();
        let url = server.let_in("app", "secret", "+@all &* ~order:* ~redlatch_queue:* ~redlatch_turn:*");
        let locks = ReentrantLock::new(&Client::builder(&url).build().unwrap());
        locks.guard("order:1").unwrap().unlock().unwrap();
        assert_eq!(lines_with("since there is no key_prefix): ACL SETUSER app ~*"), 1);
    });
}
