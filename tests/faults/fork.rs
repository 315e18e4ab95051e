//! Row 43, a forked child: it has its parent's locks, sockets and owner ids in memory, and may use none of them.

#![expect(unsafe_code, reason = "fork and waitpid have no safe form")]

use crate::process::alone;
use crate::server::Server;
use crate::threads::{LONG, eventually, finish};
use redlatch::{LocalRedLock, RedLock, RedLockExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Runs `act` in a forked child of this process, which ends with it; whether it went well.
fn in_fork(act: impl FnOnce()) -> bool {
    // SAFETY: the child runs nothing but `act`, which by what is tested here takes no lock that another thread
    // of the parent may hold, and ends without destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let well = catch_unwind(AssertUnwindSafe(act)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn fault_43_a_forked_child_is_told_closed_and_touches_nothing() {
    alone(|| {
        let server = Server::start();
        let locks = server.locks();
        let guard = locks.guard("n").unwrap();
        let hold = guard.hold().clone();
        let mut guard = Some(guard);
        let mut child_locks = Some(locks.clone());
        let commands = server.commands_during(|| {
            let well = in_fork(|| {
                let locks = child_locks.take().unwrap();
                assert_err!(locks.lock("m"), Closed);
                assert_err!(locks.try_lock("n"), Closed);
                assert_err!(locks.unlock("n"), Closed);
                assert_err!(locks.force_unlock("n"), Closed);
                assert_err!(locks.verify(&hold), Closed);
                assert!(locks.hold("n").is_none());
                locks.client().shutdown();
                drop(guard.take());
                drop(locks);
            });
            assert!(well, "the child failed");
        });
        assert_eq!(commands, [""; 0], "the child used the parent's connection");
        assert!(hold.is_valid() && locks.verify(&hold).unwrap());
        guard.take().unwrap().unlock().unwrap();
    });
}

/// The thread that waits is the parent's alone, and so is its place.
#[test]
fn fault_43_a_forked_child_takes_no_place_in_a_queue_and_gives_none_up() {
    const QUEUE: [&str; 5] = ["ZRANGE", "redlatch_queue:{n}", "0", "-1", "WITHSCORES"];
    alone(|| {
        let server = Server::start();
        let (holder, other) = (server.locks(), server.locks());
        let mut child_locks = Some(other.clone());
        holder.lock("n").unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.try_lock_for("n", LONG).unwrap() && other.unlock("n").is_ok());
            let line = || server.ask::<Vec<String>>(&QUEUE);
            eventually(LONG, "it is queued", || line().len() == 2);
            let before = line();
            let well = in_fork(|| {
                let locks = child_locks.take().unwrap();
                assert_err!(locks.try_lock_for("n", LONG), Closed);
                assert_err!(locks.lock("n"), Closed);
                drop(locks);
            });
            assert!(well, "the child failed");
            assert_eq!(line(), before);
            holder.unlock("n").unwrap();
            assert!(finish(waiter));
        });
    });
}

/// Its thread's end looks for holds that were left, in a map that another thread had locked at the fork.
#[test]
fn fault_43_a_forked_child_ends() {
    alone(|| {
        let (locks, over) = (LocalRedLock::new(), AtomicBool::new(false));
        locks.lock("n").unwrap();
        let well = std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (locks, over) = (&locks, &over);
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        locks.execute_in_lock(name, || ()).unwrap();
                    }
                });
            }
            let well = (0..300).all(|_| {
                in_fork(|| {
                    // SAFETY: ends the process, with the destructors of its thread; the alarm does if they hang.
                    unsafe {
                        libc::alarm(5);
                        libc::exit(0);
                    }
                })
            });
            over.store(true, SeqCst);
            well
        });
        assert!(well, "a child hung");
        locks.unlock("n").unwrap();
    });
}
