//! What a thread of a worker does with read-write locks, besides what it does with all: it goes from one side to the other, and looks at
//! what writers count.

use crate::history::record::{Kind, Op, Record, hash, now};
use crate::history::sides::{is_read, is_write, number, read, write};
use crate::wish::{Wish, outcome};
use crate::work::{Hand, resource};
use std::time::Duration;

impl Hand<'_> {
    /// Whether the next turn is with a read-write lock.
    pub(crate) fn uses_sides(&mut self) -> bool {
        self.plan.sides > 0 && (!self.plan.mixed || self.one_in(3))
    }

    /// A side of any of them.
    pub(crate) fn pick_side(&mut self) -> u8 {
        let lock = self.rng.u64(..self.plan.sides) as u8;
        let writes = if self.plan.writers > 0 { self.is_writer } else { self.one_in(4) };
        if writes { write(lock) } else { read(lock) }
    }

    /// Whether the thread is to go over to reading in a turn with this name.
    pub(crate) fn downgrades(&mut self, name: u8) -> bool {
        is_write(name) && (self.plan.downgrades || (self.plan.mixed && self.one_in(3)))
    }

    /// Writes, reads under that, and reads on when it has given up the write hold.
    pub(crate) fn downgrade_turn(&mut self, lock: u8) {
        let (outer, inner, plain) = (write(lock), read(lock), !self.plan.mixed);
        let wish = if plain { Wish::PLAIN } else { self.wish() };
        if !self.acquire(outer, &wish) {
            return;
        }
        self.count(outer);
        let wish = if plain { Wish::PLAIN } else { self.wish() };
        let reads = self.acquire(inner, &wish);
        self.count(outer);
        self.unlock(outer);
        if !reads {
            return;
        }
        if plain {
            self.stay(inner);
        } else {
            self.inside(inner, 1, wish.fixed_lease());
        }
        self.unlock(inner);
    }

    /// Works for as long as the plan says.
    fn stay(&mut self, name: u8) {
        let until = now() + self.rng.u64(self.plan.hold.0..=self.plan.hold.1) * 1_000_000;
        while self.check(name).is_some() && now() < until {
            self.count(name);
            self.sleep((1, 2));
        }
    }

    /// Who writes reads for a while; who reads is refused to write, which would wait for itself.
    pub(crate) fn try_other_side(&mut self, name: u8) {
        let (reads, writes) = (read(number(name)), write(number(name)));
        if is_read(name) {
            return self.upgrade(reads, writes);
        }
        if self.locks.of(reads).hold_count(&resource(reads)) > 0 {
            return;
        }
        let wish = self.wish();
        if self.acquire(reads, &wish) {
            self.inside(reads, 1, wish.fixed_lease());
            self.unlock(reads);
        }
    }

    fn upgrade(&mut self, reads: u8, writes: u8) {
        if self.locks.of(writes).hold_count(&resource(writes)) > 0 || self.check(reads).is_none() {
            return;
        }
        self.begin(Op::Upgrade, writes, self.plan.response);
        let result = self.locks.of(writes).try_lock_for(&resource(writes), Duration::from_secs(1));
        self.end(Op::Upgrade, writes, outcome(&result, |&acquired| acquired));
    }

    /// Nobody counts while a reader is in.
    pub(crate) fn look(&mut self, name: u8) {
        let Some(hold) = self.holds.get(&name) else { return };
        let owner = hash(hold.owner());
        if self.check(name).is_none() {
            return;
        }
        let at = now();
        let (value, _) = self.counted(name);
        self.sleep((0, 1));
        let (last, _) = self.counted(name);
        let (deadline, valid) = (now(), value == last);
        if self.check(name).is_some() {
            self.log.write(Record { at, deadline, value, owner, kind: Kind::Look, name, valid, ..Record::default() });
        }
    }
}
