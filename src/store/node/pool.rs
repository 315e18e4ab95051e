//! The connections of a node that its calls share.
//!
//! The pool hands out *slots*, not connections: a slot connects on the thread that uses it, inside that call's own time, and its error
//! keeps its type. So r2d2's background connecting, its back-off of several seconds and its untyped errors never come into play. Who
//! has a slot is said by turns in front of it: r2d2 keeps no order among the threads that wait for one.

use super::{GRACE, Limits, Server, Wire};
use crate::base::error::{Error, Result};
use crate::base::time::{Clock, Moment};
use crate::base::turns::{Rank, Turn, Turns};
use scheduled_thread_pool::ScheduledThreadPool;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Hands out slots. It never fails: connecting is left to [`Wire`], on the caller's thread.
#[derive(Debug)]
struct Slots {
    server: Arc<Server>,
}

impl r2d2::ManageConnection for Slots {
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

/// The thread that r2d2 makes its slots on, which takes no time: one is enough for all pools of a client.
pub(crate) type Worker = Arc<ScheduledThreadPool>;

/// Starts it. The crate panics when the system gives it none.
pub(crate) fn pool_worker() -> Result<Worker> {
    let build = || ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("redlatch-pool").build();
    let unable = |_| Error::config("the system gives no thread for the connection pool: raise its limits");
    std::panic::catch_unwind(build).map(Arc::new).map_err(unable)
}

pub(super) struct Pool {
    turns: Turns,
    slots: r2d2::Pool<Slots>,
}

/// A slot of the pool, and the turn that gives a thread the right to it. The slot goes back first, so that it is there for the next.
pub(super) struct Slot<'p> {
    wire: r2d2::PooledConnection<Slots>,
    _turn: Turn<'p>,
}

impl Pool {
    /// Its slots are made when they are first asked for: all at once would take a third of the time to a client's first lock.
    pub(super) fn new(server: &Arc<Server>, size: u32, worker: &Worker) -> Self {
        let slots = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .thread_pool(Arc::clone(worker))
            .build_unchecked(Slots { server: Arc::clone(server) });
        Self { turns: Turns::new(size, Clock::Boot), slots }
    }

    pub(super) fn size(&self) -> u32 {
        self.slots.max_size()
    }

    /// A slot, in turn; `None` if that did not come in time.
    pub(super) fn slot(&self, rank: Rank, until: Moment, limits: Limits<'_>) -> Option<Slot<'_>> {
        let turn = self.turns.take(rank, until, limits.stop)?;
        // Others have no more slots than turns, so one is idle or being made: on a busy machine its thread may take longer than a
        // call has to connect.
        let wire = self.slots.try_get().or_else(|| self.slots.get_timeout(GRACE).ok())?;
        Some(Slot { wire, _turn: turn })
    }
}

impl Deref for Slot<'_> {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Slot<'_> {
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

    /// With one slot.
    fn pool(worker: &Worker) -> Pool {
        let (target, config) = (Target::of("redis://127.0.0.1/").unwrap(), Settings::default().derive().unwrap());
        Pool::new(&Arc::new(Server::new(target, &config, Arc::default())), 1, worker)
    }

    fn slot(pool: &Pool, until: Moment) -> Option<Slot<'_>> {
        pool.slot(Rank::Second, until, Limits::any_time(until))
    }

    #[test]
    fn a_slot_that_is_not_made_yet_is_not_in_use() {
        let worker = pool_worker().unwrap();
        let soon = || Clock::Boot.now().plus(LEAST_TO_CONNECT);
        let is_waited_for = || {
            let pool = pool(&worker);
            worker.execute(|| std::thread::sleep(2 * LEAST_TO_CONNECT));
            let (taken, other) = (slot(&pool, soon()), slot(&pool, soon()));
            assert!(other.is_none(), "it is in use");
            taken.is_some()
        };
        // It is waited for 200 ms longer, within which a machine that is late does not always make it.
        assert!((0..10).any(|_| is_waited_for()));
    }

    /// A thread that runs asks again before the one that it woke can.
    #[test]
    fn a_slot_that_comes_back_is_that_of_the_thread_that_waits() {
        let pool = &pool(&pool_worker().unwrap());
        let first = std::iter::repeat_with(|| slot(pool, Moment::MAX)).flatten().next();
        let (done, wait) = channel::<()>();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let slot = slot(pool, Moment::MAX);
                let _ = wait.recv();
                slot.is_some()
            });
            while pool.turns.waiting() == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(slot(pool, Moment(0)).is_none(), "it overtook who waited");
            drop(done);
            assert!(waiting.join().unwrap());
        });
        assert!(slot(pool, Moment(0)).is_some());
    }
}
