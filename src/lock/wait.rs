//! How a thread waits for a lock of any kind: in the line of its process, and at the head of it with a bid for a
//! tenure.

mod bid;
mod line;

use super::engine::Engine;
use super::patience::{Patience, Terms};
use super::primitive::heard;
use super::queue::{Manner, Ticket};
use crate::base::config::Asked;
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::say::say;
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::time::Moment;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::registry::{Entered, Left, Lent, registry};
use bid::{Bid, Call, looks_when_woken};
use line::{Backing, Line};
use std::cell::OnceCell;
use std::sync::Arc;

pub(crate) use bid::Outcome;

#[cfg(test)]
mod tests;

/// Acquires a lock for the current thread; `None` when the wait ended without it.
pub(super) fn acquire(engine: &Engine, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
    let result = look_and_wait(engine, resource, terms);
    let counters = &engine.space.counters;
    match &result {
        Ok(None) if !terms.wait.is_zero() => counters.timed_out.add(1),
        Err(Error::Cancelled { .. }) => counters.cancelled.add(1),
        _ => {}
    }
    result
}

/// A first look tells what needs neither the wire nor a place in the queue, so that it allocates nothing.
fn look_and_wait(engine: &Engine, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
    let name = engine.space.full_key(resource)?;
    let asked = engine.space.config.asked(terms.lease, terms.renewed)?;
    let patience = engine.patience(resource).on(terms);
    patience.stop.check()?;
    let tries = terms.wait.is_zero();
    match registry().glance(engine.ground(), &name, engine.takes(asked)) {
        Some(Entered::Mine(hold)) => return deepen(engine, &hold, asked, patience),
        Some(Entered::Granted(hold)) if engine.accept(&hold)? => return Ok(Some(hold)),
        Some(Entered::Sibling) if tries => return Ok(busy(engine)),
        _ => {}
    }
    let is_let_in = engine.check_own_way(&name)?;
    let key = &engine.primitive.names(engine.space.key_of(name));
    if tries { try_now(engine, key, &patience, asked) } else { wait(engine, key, patience, asked, is_let_in) }
}

/// One more level. Nothing but its token can wake such a call.
fn deepen(engine: &Engine, hold: &Hold, asked: Asked, patience: Patience<'_>) -> Result<Option<Hold>> {
    engine.check_kind(hold)?;
    let semaphore = patience.stop.token.map(|_| Arc::default());
    match &semaphore {
        Some(semaphore) => engine.reenter(hold, asked, &patience.woken_by(semaphore)),
        None => engine.reenter(hold, asked, &patience),
    }
}

/// One attempt, without a place in the queue.
fn try_now(engine: &Engine, key: &Key, patience: &Patience<'_>, asked: Asked) -> Result<Option<Hold>> {
    let mut tenure = engine.space.tenure(key);
    match engine.try_take(&mut tenure, asked, Manner::Try, patience)? {
        Outcome::Won(hold) => Ok(Some(hold)),
        Outcome::Late => Ok(None),
        Outcome::Again | Outcome::Busy(_) | Outcome::Left(_) => Ok(busy(engine)),
    }
}

/// Waits in the line of this process, or past it if what the current thread has beside lets it in: the others may wait for that. It
/// does not hold the lock.
fn wait(engine: &Engine, key: &Key, patience: Patience<'_>, asked: Asked, is_let_in: bool) -> Result<Option<Hold>> {
    let waiter = &Lent::new(engine.takes(asked).filter(|_| !is_let_in));
    let patience = &patience.woken_by(&waiter.semaphore);
    patience.stop.check()?;
    let (config, stop, contention) = (&engine.space.config, &patience.stop, &Contention::new(&engine.space.counters));
    let call = &Call { config, stop, contention, semaphore: &waiter.semaphore };
    let backing = &Siblings { engine, patience };
    let line = Line { registry: registry(), space: engine.ground(), key, waiter, call, backing };
    let contend = || call.contend(&mut TenureBid::new(engine, key, patience, asked));
    if is_let_in { line.go_past(contend) } else { line.wait(contend) }
}

fn busy(engine: &Engine) -> Option<Hold> {
    engine.space.counters.contended.add(1);
    None
}

/// The threads of a process that wait for the same lock.
struct Siblings<'a> {
    engine: &'a Engine,
    patience: &'a Patience<'a>,
}

impl Backing for Siblings<'_> {
    fn accept(&self, hold: &Hold) -> Result<bool> {
        self.engine.accept(hold)
    }

    /// What was passed on to a call that goes all the same is given to the next, or released in the background: its
    /// caller's time is up.
    fn take_back(&self, left: Left) {
        match left {
            Left::Nothing => {}
            Left::Granted(hold) if self.engine.pass_on(&hold) => {}
            Left::Granted(hold) | Left::Unclaimed(hold) => self.engine.give_back(&hold),
        }
    }

    fn check_outage(&self) -> Result<()> {
        self.patience.check_outage()
    }
}

/// The bid of a lock: a tenure, with an owner id of its own until an attempt of it is left open.
struct TenureBid<'a> {
    engine: &'a Engine,
    key: &'a Key,
    patience: &'a Patience<'a>,
    asked: Asked,
    tenure: Arc<Tenure>,
    /// The lock was found to be a key without TTL.
    is_endless: bool,
    /// Where the kind has a queue, once it listens.
    ticket: OnceCell<Arc<Ticket>>,
    /// When no attempt of it that was not answered can be executed any more, with whatever owner id, and join the queue.
    open_until: Option<Moment>,
}

impl<'a> TenureBid<'a> {
    fn new(engine: &'a Engine, key: &'a Key, patience: &'a Patience<'a>, asked: Asked) -> Self {
        Self {
            engine,
            key,
            patience,
            asked,
            tenure: engine.space.tenure(key),
            is_endless: false,
            ticket: OnceCell::new(),
            open_until: None,
        }
    }
}

impl TenureBid<'_> {
    /// Once a wait.
    fn say_endless(&mut self) {
        if !std::mem::replace(&mut self.is_endless, true) {
            let (lock, address) = (self.key.full(), self.engine.health.address_of(self.key.resource()));
            say!(warn, "lock {lock:?} at {address} is a key without TTL: it is polled until someone deletes it");
        }
    }
}

impl Bid for TenureBid<'_> {
    type Won = Hold;

    fn ask(&mut self) -> Result<Outcome<Hold>> {
        if !self.tenure.is_unused() {
            self.tenure = self.engine.space.tenure(self.key);
        }
        self.ticket.get().into_iter().for_each(|ticket| ticket.looks());
        let manner = self.ticket.get().map_or(Manner::Newcomer, Manner::Queued);
        let outcome = self.engine.try_take(&mut self.tenure, self.asked, manner, self.patience);
        self.open_until = self.open_until.max(self.tenure.sweep_due());
        let outcome = outcome?;
        if let (Outcome::Won(_), Some(ticket)) = (&outcome, self.ticket.get()) {
            let left = ticket.leaves_a_place().then(|| self.engine.space.clock.now());
            self.engine.leave_queue(ticket, left);
            self.engine.leave_queue(ticket, self.open_until);
        }
        if matches!(outcome, Outcome::Busy(None)) {
            self.say_endless();
        }
        Ok(outcome)
    }

    fn expects_a_wait(&self) -> bool {
        self.engine.primitive.queue(self.key).is_some_and(|queue| queue.expects_a_wait(self.key))
    }

    fn listen(&self, semaphore: &Arc<Semaphore>) -> Option<Box<dyn Listening>> {
        match self.engine.primitive.queue(self.key) {
            Some(queue) => heard(queue.listen(self.ticket.get_or_init(|| queue.ticket(self.key, semaphore)))),
            None => self.engine.primitive.listen(self.key, semaphore),
        }
    }

    fn sleeps_until(&self, woken: bool) -> Moment {
        match self.ticket.get() {
            Some(ticket) => ticket.sleeps_until(woken),
            None => looks_when_woken(woken),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.engine.primitive.is_of_this_process()
    }

    fn withdraw(&mut self) {
        if let Some(ticket) = self.ticket.get().filter(|ticket| ticket.may_be_queued()) {
            self.engine.leave_queue(ticket, Some(self.engine.space.clock.now()));
            self.engine.leave_queue(ticket, self.open_until);
        }
        if self.engine.primitive.leaves_marks() {
            self.engine.sweep_now(&self.tenure);
        }
    }
}
