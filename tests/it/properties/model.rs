//! What a sequence of calls has to do, said once more in the shortest way: each call's answer, and all that can be
//! asked after it.

use std::fmt;

pub(super) const THREADS: usize = 3;
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// The leases that are asked for, in seconds: far apart, so that what is left tells them apart. The first is the
/// watchdog's.
pub(super) const LEASES: [u64; 3] = [30, 60, 90];

/// One call of one thread. Numbers of guards and holds wrap around.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) thread: usize,
    pub(super) name: usize,
    pub(super) verb: Verb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Only where it need not wait; a try otherwise.
    Lock,
    TryLock,
    TryLockFor,
    TryLockWithLease(usize),
    LockCancelled,
    Guard,
    GuardWithLease(usize),
    Unlock,
    /// A guard of this thread, in any order.
    DropGuard(usize),
    UnlockGuard(usize),
    /// Any hold that there ever was, whoever's.
    Release(usize),
    Extend(usize, usize),
    Verify(usize),
    ForceUnlock,
    IsLocked,
    TimeToLive,
    /// Waits for what another thread holds, which gives it back; a try if nobody does.
    TakeOver,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}, {}: {:?}", self.thread, NAMES[self.name], self.verb)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Bool(bool),
    /// For so many seconds yet, rounded up to a lease.
    Lasts(Option<u64>),
    NotHeld,
    Lost,
    Cancelled,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Held,
    Lost,
    Released,
}

/// What a hold shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) thread: usize,
    pub(super) name: usize,
    pub(super) count: usize,
    pub(super) state: State,
    pub(super) lasts: u64,
}

/// The hold that a thread finds under a name: its count, and whether it is valid.
pub(super) type Found = (usize, bool);

#[derive(Default)]
pub(super) struct Model {
    pub(super) holds: Vec<Seen>,
    /// Numbers of holds, for each thread.
    guards: [Vec<usize>; THREADS],
}

impl Model {
    /// Who holds a lock, by the number of the hold.
    pub(super) fn holder(&self, name: usize) -> Option<usize> {
        self.holds.iter().position(|hold| hold.name == name && hold.state == State::Held)
    }

    /// The hold that a thread has to unlock, be it lost.
    fn of(&self, thread: usize, name: usize) -> Option<usize> {
        self.holds.iter().position(|hold| (hold.thread, hold.name) == (thread, name) && hold.count > 0)
    }

    pub(super) fn found(&self, thread: usize, name: usize) -> Found {
        let hold = self.of(thread, name).map(|hold| self.holds[hold]);
        hold.map_or((0, false), |hold| (hold.count, hold.state == State::Held))
    }

    pub(super) fn guards(&self, thread: usize) -> usize {
        self.guards[thread].len()
    }

    /// Whether a lock would wait.
    pub(super) fn waits(&self, thread: usize, name: usize) -> bool {
        self.of(thread, name).is_none() && self.holder(name).is_some()
    }

    pub(super) fn answer(&mut self, Call { thread, name, verb }: Call) -> Answer {
        match verb {
            Verb::Lock => self.done(thread, name, 0),
            Verb::TryLock | Verb::TryLockFor => self.acquire(thread, name, 0),
            Verb::TryLockWithLease(lease) => self.acquire(thread, name, lease),
            Verb::LockCancelled => Answer::Cancelled,
            Verb::Guard => self.guard(thread, name, 0),
            Verb::GuardWithLease(lease) => self.guard(thread, name, lease),
            Verb::Unlock => self.of(thread, name).map_or(Answer::NotHeld, |hold| self.release(thread, hold)),
            Verb::DropGuard(guard) => self.drop_guard(thread, guard).map_or(Answer::Done, |_| Answer::Done),
            Verb::UnlockGuard(guard) => self.drop_guard(thread, guard).unwrap_or(Answer::Done),
            Verb::Release(hold) => self.release(thread, hold),
            Verb::Extend(hold, lease) => self.extend(hold, lease),
            Verb::Verify(hold) => Answer::Bool(self.holds[hold].state == State::Held),
            Verb::ForceUnlock => self.force_unlock(name),
            Verb::IsLocked => Answer::Bool(self.holder(name).is_some()),
            Verb::TimeToLive => Answer::Lasts(self.holder(name).map(|hold| self.holds[hold].lasts)),
            Verb::TakeOver => self.take_over(thread, name),
        }
    }

    fn acquire(&mut self, thread: usize, name: usize, lease: usize) -> Answer {
        let lasts = LEASES[lease];
        if let Some(hold) = self.of(thread, name).map(|hold| &mut self.holds[hold]) {
            if hold.state == State::Lost {
                return Answer::Lost;
            }
            (hold.count, hold.lasts) = (hold.count + 1, hold.lasts.max(lasts));
            return Answer::Bool(true);
        }
        let free = self.holder(name).is_none();
        if free {
            self.holds.push(Seen { thread, name, count: 1, state: State::Held, lasts });
        }
        Answer::Bool(free)
    }

    fn done(&mut self, thread: usize, name: usize, lease: usize) -> Answer {
        match self.acquire(thread, name, lease) {
            Answer::Bool(true) => Answer::Done,
            answer => answer,
        }
    }

    fn guard(&mut self, thread: usize, name: usize, lease: usize) -> Answer {
        let answer = self.acquire(thread, name, lease);
        if answer == Answer::Bool(true) {
            let hold = self.of(thread, name).unwrap();
            self.guards[thread].push(hold);
        }
        answer
    }

    fn drop_guard(&mut self, thread: usize, guard: usize) -> Option<Answer> {
        (self.guards(thread) > 0).then(|| {
            let hold = self.guards[thread].remove(guard % self.guards(thread));
            self.release(thread, hold)
        })
    }

    fn release(&mut self, thread: usize, hold: usize) -> Answer {
        let hold = &mut self.holds[hold];
        if hold.thread != thread || hold.count == 0 {
            return Answer::NotHeld;
        }
        hold.count -= 1;
        if hold.state == State::Lost {
            return Answer::Lost;
        }
        if hold.count == 0 {
            (hold.state, hold.lasts) = (State::Released, 0);
        }
        Answer::Done
    }

    fn extend(&mut self, hold: usize, lease: usize) -> Answer {
        let hold = &mut self.holds[hold];
        match hold.state {
            State::Held => hold.lasts = hold.lasts.max(LEASES[lease]),
            State::Lost => return Answer::Lost,
            State::Released => return Answer::NotHeld,
        }
        Answer::Done
    }

    fn force_unlock(&mut self, name: usize) -> Answer {
        let holder = self.holder(name);
        if let Some(hold) = holder {
            (self.holds[hold].state, self.holds[hold].lasts) = (State::Lost, 0);
        }
        Answer::Bool(holder.is_some())
    }

    /// The holder gives back all levels, and the waiter gets it.
    fn take_over(&mut self, thread: usize, name: usize) -> Answer {
        if self.waits(thread, name) {
            let hold = self.holder(name).unwrap();
            (self.holds[hold].count, self.holds[hold].state, self.holds[hold].lasts) = (0, State::Released, 0);
        }
        self.done(thread, name, 0)
    }
}
