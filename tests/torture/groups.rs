//! What a thread of a worker does with groups: locks of several kinds taken as one, and threads that end with what they hold.

use crate::history::record::{Kind, Op, Outcome, Record, now};
use crate::history::sides::{is_side, read, write};
use crate::wish::{Wish, outcome};
use crate::work::{Hand, resource};
use redlatch::{GroupGuard, GroupRequest, MultiLock};
use std::time::Duration;

/// Longer leases, in ms, are not leaked.
const LONG: u64 = 600;

/// How a group is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Unlocks,
    Drops,
    /// The thread panics, and unwinding drops the guard.
    Panics,
    /// The guard is leaked, and the thread ends.
    Leaks,
}

impl Hand<'_> {
    pub(crate) fn group_turn(&mut self) {
        let names = self.pick_group();
        match self.rng.u32(..8) {
            0 => self.ending_turn(&names, End::Panics),
            1 | 2 => self.ending_turn(&names, End::Leaks),
            3 | 4 => drop(self.gather(&names, End::Drops)),
            _ => drop(self.gather(&names, End::Unlocks)),
        }
    }

    /// A side of each read-write lock, and where all is mixed a lock that one thread has alone: in any order, two of them at least.
    fn pick_group(&mut self) -> Vec<u8> {
        let mut names = if self.plan.mixed { vec![self.pick_name()] } else { Vec::new() };
        for lock in 0..self.plan.sides as u8 {
            let writes = if self.plan.mixed { self.one_in(3) } else { self.is_writer };
            names.push(if writes { write(lock) } else { read(lock) });
        }
        self.rng.shuffle(&mut names);
        let least = names.len().min(2);
        names.truncate(self.rng.usize(least..=names.len()));
        names
    }

    /// Whether the group was had.
    fn gather(&mut self, names: &[u8], end: End) -> bool {
        let (locks, wish) = (self.locks, self.wish_for(end));
        let group = MultiLock::of(names.iter().map(|&name| (locks.of(name), resource(name))));
        let op = if wish.fixed_lease().is_some() { Op::GroupLeased } else { Op::Group };
        // Each member's last word to the server may take one response time-out.
        let answers = names.len() as u64 * self.plan.response;
        let budget = if wish.budget > 0 { wish.budget + answers } else { 0 };
        names.iter().for_each(|&name| self.begin(op, name, budget));
        let result = request(&group, &wish).guard();
        names.iter().for_each(|&name| self.end(op, name, outcome(&result, Option::is_some)));
        let Ok(Some(guard)) = result else { return false };
        self.work(names);
        self.give_up(names, guard, end);
        true
    }

    /// What is leaked keeps the others out for a lease: where the watchdog's is of seconds, nothing else would show after a failover.
    fn wish_for(&mut self, end: End) -> Wish {
        let wish = if self.plan.mixed { self.wish() } else { Wish::PLAIN };
        let is_long = end == End::Leaks && self.plan.watchdog > LONG;
        let lease = wish.lease.or_else(|| is_long.then(|| Duration::from_millis(self.rng.u64(100..LONG))));
        Wish { lease, ..wish }
    }

    fn work(&mut self, names: &[u8]) {
        while names.iter().all(|&name| self.check(name).is_some()) && !self.one_in(4) {
            for &name in names {
                self.count(name);
                if !is_side(name) && self.one_in(3) {
                    self.write_while_held(name);
                }
            }
            self.sleep((0, 2));
        }
    }

    fn give_up(&mut self, names: &[u8], guard: GroupGuard<'_>, end: End) {
        let (op, budget) = match end {
            End::Leaks => return std::mem::forget(guard),
            End::Unlocks => (Op::Unlock, self.plan.outage + self.plan.response),
            End::Drops | End::Panics => (Op::Drop, 2 * self.plan.response),
        };
        names.iter().for_each(|&name| self.begin(op, name, budget));
        if end == End::Panics {
            std::panic::resume_unwind(Box::new(()));
        }
        let result = if end == End::Unlocks {
            guard.unlock()
        } else {
            drop(guard);
            Ok(())
        };
        // Of which member an error is, it does not say.
        self.gave_up(op, names, if result.is_ok() { Outcome::Yes } else { Outcome::Unknown });
    }

    fn gave_up(&mut self, op: Op, names: &[u8], outcome: Outcome) {
        names.iter().for_each(|&name| self.end(op, name, outcome));
        names.iter().for_each(|&name| self.look_over(name));
    }

    /// A thread of its own has the group and ends. What it leaves is looked at until all of it is over.
    fn ending_turn(&mut self, names: &[u8], end: End) {
        let ended = std::thread::scope(|scope| scope.spawn(|| self.gather(names, end)).join());
        match ended {
            Err(_) => self.gave_up(Op::Drop, names, Outcome::Yes),
            Ok(true) => self.outlive(names),
            Ok(false) => {}
        }
    }

    fn outlive(&mut self, names: &[u8]) {
        for &name in names {
            self.log.write(Record { at: now(), kind: Kind::Ended, name, ..Record::default() });
        }
        while names.iter().filter(|&&name| self.check(name).is_some()).count() > 0 {
            self.sleep((2, 15));
        }
    }
}

fn request<'g>(group: &'g MultiLock<'g>, wish: &'g Wish) -> GroupRequest<'g, 'g> {
    let with_lease = if wish.renewed { GroupRequest::renewed_lease } else { GroupRequest::lease };
    let request = wish.lease.into_iter().fold(group.request().wait(wish.wait), with_lease);
    wish.token.iter().fold(request, GroupRequest::cancelled_by)
}
