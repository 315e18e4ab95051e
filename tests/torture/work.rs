//! One thread of a worker: what it does with the locks, and the log of it.

use crate::guarded::Locks;
use crate::history::journal;
use crate::history::record::{Kind, Log, MS, Op, Outcome, Record, hash, now};
use crate::history::sides::{is_read, is_side, lock_of, number};
use crate::history::tokens::Grant;
use crate::plan::Plan;
use crate::wish::{Wish, executed, outcome, request};
use fastrand::Rng;
use redlatch::{CancelToken, Hold, Result, Terms};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Tokens that somebody else cancels, and when.
pub(crate) type Cancels = Mutex<Vec<(u64, CancelToken)>>;

const DEEPEST: u8 = 3;

/// How long a wandering thread stays with a name, in ns.
pub(crate) const STAY: u64 = 100 * MS;

pub(crate) struct Hand<'a> {
    pub(crate) locks: &'a Locks,
    pub(crate) cancels: &'a Cancels,
    /// The worker is to end.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) counters: &'a File,
    /// What fenced locks protect.
    pub(crate) journal: &'a File,
    pub(crate) plan: &'a Plan,
    /// Whether its process writes where each has one side alone.
    pub(crate) is_writer: bool,
    pub(crate) log: Log,
    pub(crate) rng: Rng,
    /// When a lock was last asked for.
    pub(crate) asked: u64,
    /// The holds of the current turn.
    pub(crate) holds: HashMap<u8, Hold>,
    /// The last hold, if it had a token.
    pub(crate) grant: Option<Grant>,
}

impl<'a> Hand<'a> {
    pub(crate) fn run(&mut self) {
        while self.goes_on() {
            if self.plan.groups > 0 && self.one_in(self.plan.groups as u32) {
                self.group_turn();
                self.holds.clear();
                continue;
            }
            if self.plan.permits > 0 && self.one_in(self.plan.permits as u32) {
                self.permit_turn();
                continue;
            }
            if self.plan.crosses {
                self.cross_turn();
                continue;
            }
            let name = if self.uses_sides() { self.pick_side() } else { self.pick_name() };
            if self.one_in(8) {
                self.write();
            }
            match self.downgrades(name) {
                true => self.downgrade_turn(number(name)),
                false if self.plan.mixed => self.mixed_turn(name),
                false => self.simple_turn(name),
            }
            self.holds.clear();
            self.sleep(self.plan.pause);
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    pub(crate) fn pick_name(&mut self) -> u8 {
        let number = if self.plan.wanders { now() / STAY } else { self.rng.u64(..) };
        (number % self.plan.names) as u8
    }

    /// Between two bounds in ms, by the microsecond.
    pub(crate) fn sleep(&mut self, (least, most): (u64, u64)) {
        std::thread::sleep(Duration::from_micros(self.rng.u64(least * 1_000..=most * 1_000)));
    }

    pub(crate) fn one_in(&mut self, number: u32) -> bool {
        self.rng.u32(..number) == 0
    }

    /// Locks, holds and unlocks.
    fn simple_turn(&mut self, name: u8) {
        let lease =
            if self.plan.asks_zero && self.one_in(2) { Some(0) } else { Some(self.plan.lease).filter(|&l| l > 0) };
        let op = match lease {
            Some(0) => Op::Zero,
            Some(_) => Op::Leased,
            None => Op::Lock,
        };
        let lease = lease.map(Duration::from_millis);
        if !self.acquire(name, &Wish { op, lease, renewed: self.plan.renewed, ..Wish::PLAIN }) {
            return;
        }
        let until = now() + self.rng.u64(self.plan.hold.0..=self.plan.hold.1) * MS;
        let longest = now() + 3 * self.plan.lease * MS;
        // Whoever waits behind it is to end in time, too: some hold for 10 s.
        while self.goes_on()
            && self.check(name).is_some()
            && if self.plan.overstays { now() < longest } else { now() < until }
        {
            self.count(name);
            if self.plan.guarded && !is_side(name) {
                self.write_while_held(name);
            }
            self.sleep((1, 2));
        }
        if self.plan.overstays {
            self.sleep((5, 50));
        }
        self.unlock(name);
    }

    /// Takes two locks in any order, each for a while only: those that wait for each other give up.
    fn cross_turn(&mut self) {
        let first = self.pick_name();
        let second = (first + 1 + self.rng.u8(..self.plan.names as u8 - 1)) % self.plan.names as u8;
        let wish = |wait: u64| Wish { op: Op::TryFor, budget: wait, wait: Duration::from_millis(wait), ..Wish::PLAIN };
        let [short, long] = [self.rng.u64(20..60), self.rng.u64(20..100)];
        if self.acquire(first, &wish(short)) {
            if self.acquire(second, &wish(long)) {
                self.count(second);
                self.unlock(second);
            }
            self.unlock(first);
        }
        self.holds.clear();
        self.sleep(self.plan.pause);
    }

    /// Takes a lock with a greater number while it holds this one. All do so in this order, so none waits for another in a circle.
    fn nest(&mut self, name: u8) {
        let greater = name + 1;
        if u64::from(greater) >= self.plan.names {
            return;
        }
        let name = self.rng.u8(greater..self.plan.names as u8);
        let wish = self.wish();
        if !self.holds.contains_key(&name) && self.acquire(name, &wish) {
            self.inside(name, DEEPEST, wish.fixed_lease());
            self.unlock(name);
        }
    }

    fn mixed_turn(&mut self, name: u8) {
        match self.rng.u32(..100) {
            0 => return self.unlock_again(name),
            1 => {
                let wish = Wish { lease: Some(Duration::from_micros(900)), op: Op::Zero, ..self.wish() };
                self.acquire(name, &wish);
            }
            2 if self.plan.forces => self.force(name),
            3..35 => self.guarded_turn(name),
            35..60 => self.executed_turn(name),
            _ => {
                let wish = self.wish();
                if self.acquire(name, &wish) {
                    self.inside(name, 1, wish.fixed_lease());
                    self.unlock(name);
                }
            }
        }
        if self.one_in(8) {
            self.unlock_again(name);
        }
    }

    fn guarded_turn(&mut self, name: u8) {
        let (locks, wish, resource) = (self.locks.of(name), self.wish(), resource(name));
        self.begin(wish.op, name, wish.budget);
        let result = request(locks, &resource, &wish).guard();
        self.end(wish.op, name, outcome(&result, Option::is_some));
        let Ok(Some(guard)) = result else { return };
        self.inside(name, 1, wish.fixed_lease());
        if self.one_in(2) {
            self.release(Op::Drop, name, self.plan.response, || {
                drop(guard);
                Ok(())
            });
        } else {
            self.release(Op::Unlock, name, self.plan.over(), || guard.unlock());
        }
    }

    fn executed_turn(&mut self, name: u8) {
        let (locks, wish, resource) = (self.locks.of(name), self.wish(), resource(name));
        let mut ran = false;
        self.begin(wish.op, name, wish.budget);
        let result = request(locks, &resource, &wish).execute(|_| {
            ran = true;
            self.end(wish.op, name, Outcome::Yes);
            self.inside(name, 1, wish.fixed_lease());
            self.begin(Op::Leave, name, self.plan.over());
        });
        if ran {
            self.end(Op::Leave, name, executed(&result, ran));
            self.look_over(name);
        } else {
            self.end(wish.op, name, executed(&result, ran));
        }
    }

    /// The plain calls of the trait.
    pub(crate) fn acquire(&mut self, name: u8, wish: &Wish) -> bool {
        let (locks, name_of) = (self.locks.of(name), resource(name));
        self.begin(wish.op, name, wish.budget);
        let result = match (wish.op, wish.lease, &wish.token) {
            (Op::Zero, Some(lease), _) => locks.try_lock_for_with_lease(&name_of, Duration::from_millis(20), lease),
            (_, Some(lease), _) if wish.renewed => {
                locks.acquire(&name_of, &Terms::new().renewed_lease(lease)).map(|hold| hold.is_some())
            }
            (_, Some(lease), _) => locks.lock_with_lease(&name_of, lease).map(|()| true),
            (_, _, Some(token)) => locks.lock_cancellable(&name_of, token).map(|()| true),
            (Op::Try, ..) => locks.try_lock(&name_of),
            (Op::TryFor, ..) => locks.try_lock_for(&name_of, wish.wait),
            _ => locks.lock(&name_of).map(|()| true),
        };
        self.end(wish.op, name, outcome(&result, |&acquired| acquired));
        matches!(result, Ok(true))
    }

    pub(crate) fn unlock(&mut self, name: u8) {
        let locks = self.locks.of(name);
        self.release(Op::Unlock, name, self.plan.over(), || locks.unlock(&resource(name)));
    }

    fn release(&mut self, op: Op, name: u8, budget: u64, act: impl FnOnce() -> Result<()>) {
        self.begin(op, name, budget);
        let result = act();
        self.end(op, name, outcome(&result, |()| true));
        self.look_over(name);
    }

    /// What is not held is not unlocked.
    fn unlock_again(&mut self, name: u8) {
        self.begin(Op::Again, name, self.plan.response);
        let result = self.locks.of(name).unlock(&resource(name));
        self.end(Op::Again, name, outcome(&result, |()| true));
    }

    fn force(&mut self, name: u8) {
        self.begin(Op::Force, name, self.plan.outage + self.plan.response);
        let result = self.locks.of(name).force_unlock(&resource(name));
        self.end(Op::Force, name, outcome(&result, |&freed| freed));
    }

    /// What is done while the lock is held.
    pub(crate) fn inside(&mut self, name: u8, level: u8, lease: Option<Duration>) {
        while self.check(name).is_some() {
            match self.rng.u32(..1_000) {
                0..400 => self.count(name),
                400..450 => self.deeper(name, level),
                450..470 => self.extend(name),
                470..490 => self.verify(name),
                490..493 if self.plan.lingers == 0 => self.sleep((50, 400)),
                490 => self.linger(name),
                493..503 => self.overstay(name, lease),
                503..560 => self.sleep((0, 2)),
                560..640 if is_side(name) => self.try_other_side(name),
                560..640 => self.write_while_held(name),
                640..660 if self.plan.nests && !is_side(name) => self.nest(name),
                _ => break,
            }
        }
        self.check(name);
        self.write();
    }

    /// Writes in the name of the last hold to what refuses it if it is too late. Nothing else is asked: it may be over, and the lock
    /// another's.
    fn write(&self) {
        self.grant.into_iter().for_each(|grant| journal::append(self.journal, grant));
    }

    /// Stays for long, at work.
    fn linger(&mut self, name: u8) {
        let end = now() + self.rng.u64(..self.plan.lingers) * MS;
        while now() < end && self.check(name).is_some() {
            self.count(name);
            if self.one_in(4) && !is_side(name) {
                self.write_while_held(name);
            }
            self.sleep((2, 20));
        }
    }

    /// Stays until the lease has run out, unless an outer level is renewed.
    fn overstay(&mut self, name: u8, lease: Option<Duration>) {
        let end = now() + lease.map_or(0, |lease| 2 * lease.as_nanos() as u64);
        while now() < end && self.check(name).is_some() {
            self.sleep((1, 5));
        }
    }

    fn deeper(&mut self, name: u8, level: u8) {
        if level == DEEPEST {
            return;
        }
        let wish = Wish { token: None, ..self.wish() };
        let op = if wish.op == Op::Cancellable { Op::Lock } else { wish.op };
        let budget = if wish.op == Op::TryFor { wish.budget } else { self.plan.outage + self.plan.response };
        let lease = wish.fixed_lease();
        if self.acquire(name, &Wish { op, budget, ..wish }) {
            self.inside(name, level + 1, lease);
            self.unlock(name);
        }
    }

    fn extend(&mut self, name: u8) {
        let Some(hold) = self.holds.get(&name).cloned() else { return };
        let lease = Duration::from_millis(self.rng.u64(20..self.plan.watchdog));
        self.begin(Op::Extend, name, self.plan.watchdog);
        let result = hold.extend(lease);
        self.end(Op::Extend, name, outcome(&result, |()| true));
    }

    fn verify(&mut self, name: u8) {
        let Some(hold) = self.holds.get(&name).cloned() else { return };
        self.begin(Op::Verify, name, self.plan.response);
        let result = self.locks.of(name).verify(&hold);
        self.end(Op::Verify, name, outcome(&result, |&held| held));
    }

    /// What the name's counter is now, and where that stands.
    pub(crate) fn counted(&self, name: u8) -> (u64, u64) {
        let (place, mut word) = (u64::from(lock_of(name)) * 8, [0; 8]);
        self.counters.read_exact_at(&mut word, place).expect("the counters");
        (u64::from_le_bytes(word), place)
    }

    /// Adds one to the name's counter, if the lock is still valid right before the write. A reader looks at it.
    pub(crate) fn count(&mut self, name: u8) {
        if is_read(name) {
            return self.look(name);
        }
        self.write();
        let at = now();
        let (value, place) = self.counted(name);
        self.log.write(Record { at, kind: Kind::Read, name, value, ..Record::default() });
        std::thread::sleep(Duration::from_micros(self.rng.u64(0..200)));
        let Some(deadline) = self.check(name) else { return };
        let record = Record { name, deadline, value: value + 1, ..Record::default() };
        self.log.write(Record { at: now(), kind: Kind::Write, ..record });
        self.counters.write_all_at(&(value + 1).to_le_bytes(), place).expect("the counters");
        self.log.write(Record { at: now(), kind: Kind::Wrote, ..record });
    }

    /// Until when the hold is surely valid; `None` when it is not.
    pub(crate) fn check(&mut self, name: u8) -> Option<u64> {
        let hold = self.holds.get(&name)?;
        let before = now();
        let valid = hold.is_valid();
        let deadline = before + hold.remaining().as_nanos() as u64;
        let at = if valid { before } else { now() };
        self.log.write(Record { at, kind: Kind::Check, name, valid, deadline, ..Record::default() });
        valid.then_some(deadline)
    }

    /// After the last release the hold is not valid, whatever became of it.
    pub(crate) fn look_over(&mut self, name: u8) {
        if self.locks.of(name).hold_count(&resource(name)) == 0
            && let Some(hold) = self.holds.get(&name)
        {
            let valid = hold.is_valid();
            self.log.write(Record { at: now(), kind: Kind::Over, name, valid, ..Record::default() });
        }
    }

    pub(crate) fn begin(&mut self, op: Op, name: u8, budget: u64) {
        if op.releases() {
            self.check(name);
        }
        let depth = self.locks.of(name).hold_count(&resource(name)) as u8;
        let at = now();
        if op.acquires() {
            self.asked = at;
        }
        self.log.write(Record { at, kind: Kind::Call, op, name, depth, value: budget, ..Record::default() });
    }

    pub(crate) fn end(&mut self, op: Op, name: u8, outcome: Outcome) {
        let at = now();
        let hold = self.locks.of(name).hold(&resource(name));
        let depth = hold.as_ref().map_or(0, |hold| hold.count() as u8);
        let deadline = hold.as_ref().map_or(0, |hold| at + hold.remaining().as_nanos() as u64);
        let owner = hold.as_ref().map_or(0, |hold| hash(hold.owner()));
        let token = hold.as_ref().and_then(Hold::token);
        let value = token.unwrap_or(0);
        let done = Record { at, kind: Kind::Done, op, name, depth, outcome, ..Record::default() };
        self.log.write(Record { deadline, owner, value, ..done });
        if op.acquires()
            && outcome == Outcome::Yes
            && let Some(hold) = hold
        {
            self.holds.insert(name, hold);
            if depth == 1 && !is_side(name) {
                self.grant = token.map(|token| Grant { name, asked: self.asked, had: at, token });
            }
        }
    }
}

pub(crate) fn resource(name: u8) -> String {
    match number(name) {
        number if is_side(name) => format!("{{torture:{number}}}:sides"),
        number => format!("torture:{number}"),
    }
}
