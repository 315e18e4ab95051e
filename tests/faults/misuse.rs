//! Rows 46 to 49: calls that a program has no right to make, or makes too often.

use crate::locks_of;
use crate::server::Server;
use crate::threads::{LONG, elsewhere, ms, run_out};
use redlatch::{Hold, HoldState, LocalRedLock, LockGuard, OwnedGuard, RedLock, RedLockExt, ReentrantLock, Reentry};
use std::sync::Arc;

/// What the holder has must be left alone by `act`, on the server too.
fn assert_left_alone<T>(server: &Server, hold: &Hold, act: impl FnOnce() -> T) -> T {
    let result = act();
    assert!(hold.is_valid());
    assert_eq!(server.owner(hold.resource()), (hold.owner().to_owned(), hold.count() as i64));
    result
}

/// Two traits with one method: naming it is only unambiguous for a type that is not `Send`.
trait StaysOnItsThread<A> {
    fn stays() {}
}

impl<T: ?Sized> StaysOnItsThread<()> for T {}
impl<T: ?Sized + Send> StaysOnItsThread<u8> for T {}

/// The documentation of `LockGuard` shows the compiler's refusal; this does not compile without it.
#[test]
fn fault_46_guards_cannot_be_sent_to_another_thread() {
    <LockGuard<'static, LocalRedLock> as StaysOnItsThread<_>>::stays();
    <LockGuard<'static, ReentrantLock> as StaysOnItsThread<_>>::stays();
    <OwnedGuard<ReentrantLock> as StaysOnItsThread<_>>::stays();
}

#[test]
fn fault_46_an_unlock_from_another_thread_is_an_error_without_effect() {
    let server = Server::start();
    let locks = server.locks();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    let commands = server.commands_during(|| {
        elsewhere(|| {
            assert_err!(locks.unlock("n"), NotHeld);
            assert_err!(locks.release(&hold), NotHeld);
        });
    });
    assert_eq!(commands, [""; 0]);
    assert_left_alone(&server, &hold, || ());
    locks.unlock("n").unwrap();
}

#[test]
fn fault_47_an_unlock_too_many_frees_nobody() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    assert_err!(locks.unlock("n"), NotHeld);
    locks.lock("n").unwrap();
    let released = locks.hold("n").unwrap();
    locks.unlock("n").unwrap();
    other.lock("n").unwrap();
    let stranger = other.hold("n").unwrap();
    assert_left_alone(&server, &stranger, || {
        assert_err!(locks.unlock("n"), NotHeld);
        assert_err!(locks.release(&released), NotHeld);
        assert_err!(released.extend(LONG), NotHeld);
        assert!(!locks.verify(&released).unwrap());
    });
    other.unlock("n").unwrap();
}

/// The lock went to somebody else after its lease: neither unlock nor drop nor a second unlock touches that.
#[test]
fn fault_47_an_unlock_after_a_loss_frees_nobody() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    let lose = |ends: &dyn Fn(LockGuard<'_, ReentrantLock>)| {
        let guard = locks.request("n").lease(ms(100)).guard().unwrap().unwrap();
        run_out(&guard);
        assert!(other.try_lock_for("n", LONG).unwrap());
        let stranger = other.hold("n").unwrap();
        assert_left_alone(&server, &stranger, || ends(guard));
        other.unlock("n").unwrap();
        assert_err!(locks.unlock("n"), NotHeld);
    };
    lose(&|guard| assert_err!(guard.unlock(), Lost));
    lose(&|guard| drop(guard));
    lose(&|guard| {
        assert_err!(locks.unlock("n"), Lost);
        assert_err!(guard.unlock(), NotHeld);
    });
    lose(&|guard| {
        assert_err!(locks.unlock("n"), Lost);
        drop(guard);
    });
}

/// The outer code would go on under a hold that is not its own.
#[test]
fn fault_48_a_lost_lock_is_not_re_entered() {
    let server = Server::start();
    let (locks, other) = (server.locks(), server.locks());
    locks.lock("n").unwrap();
    locks.lock("n").unwrap();
    let hold = locks.hold("n").unwrap();
    server.ask::<i64>(&["DEL", "n"]);
    assert_err!(locks.lock("n"), Lost);
    let commands = server.commands_during(|| {
        assert_err!(locks.lock("n"), Lost);
        assert_err!(locks.try_lock("n"), Lost);
        assert_err!(locks.try_lock_for("n", LONG), Lost);
        assert_err!(locks.guard("n"), Lost);
        assert_err!(locks.execute_in_lock("n", || unreachable!("without the lock")), Lost);
    });
    assert!(commands.iter().all(|command| !command.starts_with("\"evalsha")), "{commands:?}");
    assert_eq!((hold.state(), hold.count(), server.pttl("n")), (HoldState::Lost, 2, -2));
    other.lock("n").unwrap();
    let stranger = other.hold("n").unwrap();
    assert_left_alone(&server, &stranger, || {
        assert_err!(locks.unlock("n"), Lost);
        assert_err!(locks.lock("n"), Lost);
        assert_err!(locks.unlock("n"), Lost);
        assert!(!locks.try_lock("n").unwrap(), "an acquire like any other");
    });
    other.unlock("n").unwrap();
    locks.lock("n").unwrap();
    assert_ne!(locks.hold("n").unwrap().owner(), hold.owner());
    locks.unlock("n").unwrap();
}

/// That a count at its end is an error is tested beside `LocalRedLock`: nobody counts so far by calling.
#[test]
fn fault_49_many_levels_are_counted_exactly() {
    let server = Server::start();
    let mirrored = Arc::new(server.locks());
    let local = Arc::new(locks_of(server.builder().reentry(Reentry::Local)));
    for (locks, levels, mirror) in [(mirrored, 1_000, 1_000), (local, 100_000, 1)] {
        (0..levels).for_each(|_| locks.lock("n").unwrap());
        assert_eq!((locks.hold_count("n"), server.owner("n").1), (levels, mirror));
        (0..levels).for_each(|_| locks.unlock("n").unwrap());
        assert_eq!((locks.hold_count("n"), server.pttl("n")), (0, -2));
        assert_err!(locks.unlock("n"), NotHeld);
    }
}
