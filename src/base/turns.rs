//! Turns at a resource that only a limited number of threads may use at once.

use crate::base::signal::Semaphore;
use crate::base::stop::Stop;
use crate::base::sync::Mutex;
use crate::base::time::{Clock, Moment};
use std::collections::VecDeque;
use std::sync::Arc;

/// A number of turns, given in order of arrival.
///
/// A turn that ends goes to the thread that has waited longest, under the lock that all newcomers take. A pool alone gives a returned
/// connection to the next thread that asks, which is a running one. The thread that it wakes finds nothing and goes to the end of the line.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    state: Mutex<State>,
}

/// Invariant: while a turn is free, both lines are empty.
#[derive(Debug)]
struct State {
    free: u32,
    /// The semaphore of each waiting thread.
    lines: [VecDeque<Arc<Semaphore>>; 2],
}

/// The line of a thread. Threads in the second line get a turn only if the first is empty.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rank {
    First,
    Second,
}

/// A thread's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t>(&'t Turns);

impl Turns {
    pub(crate) fn new(count: u32, clock: Clock) -> Self {
        Self { clock, state: Mutex::new(State { free: count, lines: Default::default() }) }
    }

    /// Waits for a turn, until `until` or until the call is stopped. With `None` the thread has left the line.
    pub(crate) fn take(&self, rank: Rank, until: Moment, stop: Option<&Stop<'_>>) -> Option<Turn<'_>> {
        let place = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(Turn(self));
            }
            let place = stop.map_or_else(Arc::default, Stop::bed);
            state.lines[rank as usize].push_back(Arc::clone(&place));
            place
        };
        loop {
            let left = until.since(self.clock.now());
            place.acquire(left);
            let is_over = left.is_zero() || stop.is_some_and(|stop| stop.check().is_err());
            // Whatever woke this thread: if it is not in line any more, a turn was given to it.
            if !self.is_in_line(rank, &place, is_over) {
                return Some(Turn(self));
            }
            if is_over {
                return None;
            }
        }
    }

    /// How many wait in line.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().lines.iter().map(VecDeque::len).sum()
    }

    /// Whether a place is still in line. If its thread `leaves`, takes it out.
    fn is_in_line(&self, rank: Rank, place: &Arc<Semaphore>, leaves: bool) -> bool {
        let line = &mut self.state.lock().lines[rank as usize];
        let at = line.iter().position(|other| Arc::ptr_eq(other, place));
        if let (Some(at), true) = (at, leaves) {
            line.remove(at);
        }
        at.is_some()
    }
}

impl State {
    /// Gives a turn that ended to the next in line, and returns its semaphore.
    fn pass_on(&mut self) -> Option<Arc<Semaphore>> {
        let next = self.lines.iter_mut().find_map(VecDeque::pop_front);
        if next.is_none() {
            self.free += 1;
        }
        next
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = self.0.state.lock().pass_on();
        if let Some(next) = next {
            next.release();
        }
    }
}
