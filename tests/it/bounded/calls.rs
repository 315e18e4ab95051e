//! The calls, with their budgets.

use super::{ANSWER, BUDGET, Stage, locks_at};
use crate::threads::{Mark, Took, finish, ms, patiently, spawn_asleep, timed};
use redlatch::{CancelToken, RedLock, RedLockExt};
use std::time::Duration;

/// How long the timed calls wait.
const WAIT: Duration = Duration::from_millis(400);

/// The same for one that waited already when the fault began.
const LONG_WAIT: Duration = Duration::from_millis(1_500);

/// How long a ping may take.
const PING: Duration = Duration::from_millis(150);

const MINUTE: Duration = Duration::from_secs(60);

/// What does not depend on the server: the client's own time.
const NOTHING: Duration = Duration::ZERO;

pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) budget: Duration,
    /// Prepares, awaits the fault, and says how long the call then took.
    pub(super) make: fn(&Stage) -> Took,
}

const fn call(name: &'static str, budget: Duration, make: fn(&Stage) -> Took) -> Call {
    Call { name, budget, make }
}

pub(super) const CALLS: &[Call] = &[
    call("lock", BUDGET, |stage| stage.acquire(|| stage.locks.lock(stage.name).map(|()| true))),
    call("lock_with_lease", BUDGET, |stage| {
        stage.acquire(|| stage.locks.lock_with_lease(stage.name, MINUTE).map(|()| true))
    }),
    call("lock_cancellable", BUDGET, |stage| {
        stage.acquire(|| stage.locks.lock_cancellable(stage.name, &CancelToken::new()).map(|()| true))
    }),
    call("lock_cancellable, from its cancel", ANSWER, cancelled),
    call("try_lock", ANSWER, |stage| stage.acquire(|| stage.locks.try_lock(stage.name))),
    call("try_lock_with_lease", ANSWER, |stage| stage.acquire(|| stage.locks.try_lock_with_lease(stage.name, MINUTE))),
    call("try_lock_for", WAIT, |stage| stage.acquire(|| stage.locks.try_lock_for(stage.name, WAIT))),
    call("try_lock_for_with_lease", WAIT, |stage| {
        stage.acquire(|| stage.locks.try_lock_for_with_lease(stage.name, WAIT, MINUTE))
    }),
    call("try_lock_for, while it waits", LONG_WAIT, |stage| {
        stage.wait(|| stage.locks.try_lock_for(stage.name, LONG_WAIT))
    }),
    call("execute_in_lock", BUDGET, |stage| stage.acquire(|| stage.locks.execute_in_lock(stage.name, || true))),
    call("execute_in_lock, after its work", BUDGET, |stage| {
        stage.warm();
        let worked = stage.locks.execute_in_lock(stage.name, || {
            stage.begins();
            Mark::now()
        });
        worked.unwrap().elapsed()
    }),
    call("re-entry by lock", BUDGET, |stage| stage.held(|| stage.locks.lock(stage.name).is_ok())),
    call("re-entry by try_lock", ANSWER, |stage| stage.held(|| stage.locks.try_lock(stage.name).is_ok())),
    call("re-entry by try_lock_for", WAIT, |stage| stage.held(|| stage.locks.try_lock_for(stage.name, WAIT).is_ok())),
    call("unlock", BUDGET, |stage| stage.held(|| stage.locks.unlock(stage.name).is_ok())),
    call("inner unlock", ANSWER, |stage| {
        patiently(|| stage.locks.lock(stage.name));
        stage.held(|| stage.locks.unlock(stage.name).is_ok())
    }),
    call("verify", ANSWER, |stage| stage.held(|| stage.locks.verify(&stage.locks.hold(stage.name).unwrap()).is_ok())),
    call("extend", BUDGET, |stage| stage.held(|| stage.locks.hold(stage.name).unwrap().extend(MINUTE).is_ok())),
    call("is_locked", BUDGET, |stage| stage.held(|| stage.locks.is_locked(stage.name).is_ok())),
    call("remaining_time_to_live", BUDGET, |stage| {
        stage.held(|| stage.locks.remaining_time_to_live(stage.name).is_ok())
    }),
    call("force_unlock", BUDGET, |stage| stage.held(|| stage.locks.force_unlock(stage.name).is_ok())),
    call("ping", PING, |stage| stage.held(|| stage.locks.client().ping(PING).is_ok())),
    call("drop of a guard", ANSWER, |stage| {
        let guard = patiently(|| stage.locks.guard(stage.name));
        stage.begins();
        timed(|| drop(guard)).1
    }),
    call("drop of a guard, disconnected", ANSWER, |stage| {
        let guard = patiently(|| stage.locks.guard(stage.name));
        stage.begins();
        let _ = stage.locks.try_lock("another");
        timed(|| drop(guard)).1
    }),
    call("shutdown", ANSWER, |stage| stage.busy_client(|| stage.locks.client().shutdown())),
    call("drop of the last client", ANSWER, |stage| {
        let locks = locks_at(stage.url);
        patiently(|| locks.lock(stage.name));
        stage.begins();
        timed(|| drop(locks)).1
    }),
    call("drop of the last client, disconnected", ANSWER, |stage| {
        let locks = locks_at(stage.url);
        patiently(|| locks.lock(stage.name));
        stage.begins();
        let _ = locks.try_lock("another");
        timed(|| drop(locks)).1
    }),
    call("hold_count, is_valid, stats", NOTHING, |stage| {
        stage.held(|| {
            let hold = stage.locks.hold(stage.name).unwrap();
            let _ = stage.locks.client().stats();
            hold.is_valid() && stage.locks.hold_count(stage.name) == 1
        })
    }),
];

fn cancelled(stage: &Stage) -> Took {
    let token = CancelToken::new();
    stage.warm();
    stage.begins();
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let result = stage.locks.lock_cancellable(stage.name, &token);
            (result, Mark::now())
        });
        std::thread::sleep(ms(100));
        let cancelled = Mark::now();
        token.cancel();
        let (result, end) = finish(calling);
        assert!(result.is_err(), "{result:?}");
        end - cancelled
    })
}

impl Stage<'_> {
    /// The client has a connection.
    fn warm(&self) {
        patiently(|| self.locks.lock(self.name));
        let _ = self.locks.unlock(self.name);
    }

    /// How long a call took that can get no lock.
    fn acquire(&self, call: impl FnOnce() -> redlatch::Result<bool>) -> Took {
        self.warm();
        self.begins();
        let (result, took) = timed(call);
        assert!(!matches!(result, Ok(true)), "{}: {result:?}", self.name);
        took
    }

    /// How long a call took whose thread holds the lock.
    fn held(&self, call: impl FnOnce() -> bool) -> Took {
        patiently(|| self.locks.lock(self.name));
        self.begins();
        timed(call).1
    }

    /// How long a call took that waited already for somebody else's lock.
    fn wait(&self, call: impl FnOnce() -> redlatch::Result<bool> + Send) -> Took {
        self.other.lock_with_lease(self.name, MINUTE).unwrap();
        std::thread::scope(|scope| {
            let waiting = spawn_asleep(scope, || timed(call));
            self.begins();
            let ((result, took), _) = finish(waiting);
            assert!(!matches!(result, Ok(true)), "{}: {result:?}", self.name);
            took
        })
    }

    /// How long a call took of a client that has holds, a subscriber and a renewed hold.
    fn busy_client(&self, call: impl FnOnce()) -> Took {
        let taken = format!("{} of another", self.name);
        self.other.lock_with_lease(&taken, MINUTE).unwrap();
        self.warm();
        assert!(!patiently(|| self.locks.try_lock_for(&taken, ANSWER)));
        self.other.unlock(&taken).unwrap();
        for number in 0..3 {
            patiently(|| self.locks.lock(&format!("{} {number}", self.name)));
        }
        self.begins();
        timed(call).1
    }
}
