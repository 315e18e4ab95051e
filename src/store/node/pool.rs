//! The connections of a node that its calls share.
//!
//! The pool hands out a [`Wire`] before it is connected. The wire connects on the thread that uses it, in that call's own time, and its
//! error keeps its type. r2d2 would connect in the background, back off for several seconds, and lose the type of errors.
//! r2d2 keeps no order among the threads that wait for a wire, so each thread takes a turn first: [`Turns`].

use super::{GRACE, Limits, Server, Wire};
use crate::base::error::{Error, Result};
use crate::base::time::{Clock, Moment};
use crate::base::turns::{Rank, Turn, Turns};
use scheduled_thread_pool::ScheduledThreadPool;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Makes the wires. It never fails: connecting is left to [`Wire`], on the caller's thread.
#[derive(Debug)]
struct Manager {
    server: Arc<Server>,
}

impl r2d2::ManageConnection for Manager {
    type Connection = Wire;
    type Error = std::convert::Infallible;

    fn connect(&self) -> std::result::Result<Wire, Self::Error> {
        Ok(Wire::new(Arc::clone(&self.server)))
    }

    fn is_valid(&self, _: &mut Wire) -> std::result::Result<(), Self::Error> {
        Ok(())
    }

    /// A broken wire drops its connection by itself and connects again when it is used.
    fn has_broken(&self, _: &mut Wire) -> bool {
        false
    }
}

/// The thread on which r2d2 makes wires. A wire takes no time to make, so all pools of a client share one thread.
pub(crate) type Worker = Arc<ScheduledThreadPool>;

/// Starts the thread. The crate `scheduled_thread_pool` panics if the system gives it none.
pub(crate) fn pool_worker() -> Result<Worker> {
    let build = || ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("redlatch-pool").build();
    let unable = |_| Error::config("the system gives no thread for the connection pool: raise its limits");
    std::panic::catch_unwind(build).map(Arc::new).map_err(unable)
}

pub(super) struct Pool {
    turns: Turns,
    wires: r2d2::Pool<Manager>,
}

/// A wire, and the turn that gives a thread the right to it. The wire is dropped first: it is back before the next thread has its turn.
pub(super) struct PooledWire<'p> {
    wire: r2d2::PooledConnection<Manager>,
    _turn: Turn<'p>,
}

impl Pool {
    /// Wires are made at their first use. Making all at once would take a third of the time to a client's first lock.
    pub(super) fn new(server: &Arc<Server>, size: u32, worker: &Worker) -> Self {
        let wires = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .thread_pool(Arc::clone(worker))
            .build_unchecked(Manager { server: Arc::clone(server) });
        Self { turns: Turns::new(size, Clock::Boot), wires }
    }

    pub(super) fn size(&self) -> u32 {
        self.wires.max_size()
    }

    /// A wire, in turn; `None` if the turn did not come in time.
    pub(super) fn wire(&self, rank: Rank, until: Moment, limits: Limits<'_>) -> Option<PooledWire<'_>> {
        let turn = self.turns.take(rank, until, limits.stop)?;
        // There are as many wires as turns, so a wire is idle or being made. On a busy machine making it may take longer than the call
        // has to connect.
        let wire = self.wires.try_get().or_else(|| self.wires.get_timeout(GRACE).ok())?;
        Some(PooledWire { wire, _turn: turn })
    }
}

impl Deref for PooledWire<'_> {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for PooledWire<'_> {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Settings;
    use crate::store::node::{LEAST_TO_CONNECT, Target};
    use std::sync::mpsc::channel;

    /// A pool of one wire.
    fn pool(worker: &Worker) -> Pool {
        let (target, config) = (Target::of("redis://127.0.0.1/").unwrap(), Settings::default().derive().unwrap());
        Pool::new(&Arc::new(Server::new(target, &config, Arc::default())), 1, worker)
    }

    fn wire(pool: &Pool, until: Moment) -> Option<PooledWire<'_>> {
        pool.wire(Rank::Second, until, Limits::any_time(until))
    }

    #[test]
    fn a_wire_that_is_not_made_yet_is_not_in_use() {
        let worker = pool_worker().unwrap();
        let soon = || Clock::Boot.now().plus(LEAST_TO_CONNECT);
        let is_waited_for = || {
            let pool = pool(&worker);
            worker.execute(|| std::thread::sleep(2 * LEAST_TO_CONNECT));
            let (taken, other) = (wire(&pool, soon()), wire(&pool, soon()));
            assert!(other.is_none(), "it is in use");
            taken.is_some()
        };
        // The pool waits 200 ms more for the wire. A late machine may not make it by then, so one try of ten is enough.
        assert!((0..10).any(|_| is_waited_for()));
    }

    /// The thread that gives a wire back runs already, so it asks again before the thread that it woke can.
    #[test]
    fn a_wire_that_comes_back_is_that_of_the_thread_that_waits() {
        let pool = &pool(&pool_worker().unwrap());
        let first = std::iter::repeat_with(|| wire(pool, Moment::MAX)).flatten().next();
        let (done, wait) = channel::<()>();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let wire = wire(pool, Moment::MAX);
                let _ = wait.recv();
                wire.is_some()
            });
            while pool.turns.waiting() == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(wire(pool, Moment(0)).is_none(), "it overtook who waited");
            drop(done);
            assert!(waiting.join().unwrap());
        });
        assert!(wire(pool, Moment(0)).is_some());
    }
}
