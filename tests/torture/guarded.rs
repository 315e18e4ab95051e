//! What a worker writes only while its lock is held: a number to a list beside the lock, by commands that the server runs if the hold
//! is there.

use crate::history::record::{Kind, Op, Record, now};
use crate::history::sides::{is_read, is_side};
use crate::permits::Semaphores;
use crate::plan::Order;
use crate::wish::outcome;
use crate::work::{Hand, resource};
use crate::worker::is_fair;
use redlatch::{Client, Command, FairLock, FencedLock, Hold, ReadWriteLock, RedLock, ReentrantLock, Result, Value};

/// A kind that has them run.
pub(crate) trait Guarded: RedLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>>;
}

impl Guarded for ReentrantLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

impl Guarded for FencedLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

impl Guarded for FairLock {
    fn run(&self, hold: &Hold, commands: &[Command]) -> Result<Vec<Value>> {
        self.while_held(hold, commands)
    }
}

/// The locks of a worker.
pub(crate) struct Locks {
    alone: Box<dyn Guarded>,
    sides: Option<ReadWriteLock>,
    pub(crate) semaphores: Semaphores,
}

impl Locks {
    /// Two kinds of locks exclude each other, too. Those with sides have names of their own.
    pub(crate) fn new(order: &Order, client: &Client) -> Self {
        let plan = &order.plan;
        let is_fenced = plan.fenced || (plan.mixed && order.number.is_multiple_of(3));
        let alone: Box<dyn Guarded> = match is_fair(plan, order.number) {
            true => Box::new(FairLock::new(client)),
            false if is_fenced => Box::new(FencedLock::new(client)),
            false => Box::new(ReentrantLock::new(client)),
        };
        let (sides, semaphores) = ((plan.sides > 0).then(|| ReadWriteLock::new(client)), Semaphores::new(client));
        Self { alone, sides, semaphores }
    }

    /// The kind that has this name, or its side.
    pub(crate) fn of(&self, name: u8) -> &dyn RedLock {
        match &self.sides {
            Some(sides) if is_read(name) => sides.read(),
            Some(sides) if is_side(name) => sides.write(),
            _ => &self.alone,
        }
    }
}

/// The list of a lock, in its slot.
pub(crate) fn list(name: u8) -> String {
    format!("{{{}}}{LIST}", resource(name))
}

/// How its key ends.
pub(crate) const LIST: &str = ":written";

impl Hand<'_> {
    /// The last call may have to be outlasted first. Whether the hold is still there is for the server to say.
    pub(crate) fn write_while_held(&mut self, name: u8) {
        let Some(hold) = self.holds.get(&name).cloned() else { return };
        let (number, budget) = (self.rng.u64(..), self.plan.outage + 2 * self.plan.response);
        let depth = self.locks.alone.hold_count(&resource(name)) as u8;
        let call = Record { at: now(), kind: Kind::Call, op: Op::Commands, name, depth, ..Record::default() };
        self.log.write(Record { owner: number, value: budget, ..call });
        let push = Command::new("RPUSH").key(list(name)).arg(number.to_string());
        let result = self.locks.alone.run(&hold, &[push]);
        self.end(Op::Commands, name, outcome(&result, |answers| answers.len() == 1));
    }
}
