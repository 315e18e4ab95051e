//! How a thread acquires a lock of any kind: in the line of its process, and at the head of it with a bid for a tenure.

use super::engine::Engine;
use super::keeping::Departure;
use super::patience::{Patience, Terms};
use super::primitive::heard;
use super::waiting::bid::{Bid, Call};
use super::waiting::line::{Backing, Line};
use super::waiting::queue::{Given, Manner, Ticket, offer};
use super::waiting::wait::{News, Outcome};
use crate::base::config::Asked;
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::time::{Lease, Moment};
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::registry::{Entered, LeftBehind, Lent, registry};
use std::cell::OnceCell;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Acquires a lock for the current thread; `None` when the wait ended without it.
pub(super) fn acquire(engine: &Engine, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
    let result = look_and_wait(engine, resource, terms);
    let counters = &engine.space.counters;
    match &result {
        Ok(None) if !terms.wait.is_zero() && !terms.is_part => counters.timed_out.add(1),
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
    let key = &engine.space.key_of(name).of_side(engine.kind.side);
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
        Outcome::Again | Outcome::Busy(_) | Outcome::Reserved(_) => Ok(busy(engine)),
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
    fn take_back(&self, left: LeftBehind) {
        match left {
            LeftBehind::Nothing => {}
            LeftBehind::Granted(hold) if self.engine.pass_on(&hold) => {}
            LeftBehind::Granted(hold) | LeftBehind::Unclaimed(hold) => self.engine.give_back(&hold),
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
    /// For how long it is given the lock.
    offer: Lease,
    /// When the last ask began, and how many force unlocks had ended by then.
    asked_at: (Moment, u64),
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
            offer: offer(engine.space.config.length(asked)),
            asked_at: (Moment(0), 0),
        }
    }
}

/// What was given.
impl TenureBid<'_> {
    /// The lock, if it was given to the last ask, and that can be believed: the message has the name of that ask, so it was given after
    /// `asked_at`, and for the whole offer. What is left of it has to be half at least, so that it can be prolonged in time. A force
    /// unlock or another master since then may have taken it away. And of an owner id with an attempt that was not answered a release is
    /// on its way.
    ///
    /// Whoever does not believe asks, and finds that it has the lock.
    fn given(&mut self) -> Result<Option<Hold>> {
        let Some(ticket) = self.ticket.get() else { return Ok(None) };
        let Some(Given { token }) = ticket.takes_what_was_given().filter(|_| self.tenure.is_unused()) else {
            return Ok(None);
        };
        let (space, offer, (sent, forced)) = (&self.engine.space, self.offer, self.asked_at);
        // Before the look at the alarm: one that comes after it is later than this, and the watchdog verifies the hold.
        let now = space.clock.now();
        let sent = if mutant::is(Mutant::BelievesWhenTold) { now } else { sent };
        let is_late = now >= sent.plus(offer.span() / 2);
        if is_late || space.forced() != forced || space.watchdog.was_alarmed_since(sent) {
            return Ok(None);
        }
        if !self.engine.believes_given(&self.tenure, self.asked, token) {
            return Ok(None);
        }
        self.tenure.note_acquired(now);
        // At the server it lasts from when it was given.
        self.tenure.may_last(now.plus(offer.span()));
        let hold = self.engine.hold(&self.tenure, (sent, offer), self.asked, forced)?;
        if let (Some(_), Some(queue)) = (&hold, self.engine.primitive.queue(self.key)) {
            queue.won(self.key, Manner::Queued(ticket));
        }
        Ok(hold)
    }

    /// Asks, as the owner to whom the lock may be given.
    fn attempt(&mut self) -> Result<Outcome<Hold>> {
        if !self.tenure.is_unused() {
            self.tenure = self.engine.space.tenure(self.key);
        }
        if let (Some(ticket), Some(queue)) = (self.ticket.get(), self.engine.primitive.queue(self.key)) {
            queue.offers(ticket, self.tenure.owner(), self.offer);
        }
        self.asked_at = (self.engine.space.clock.now(), self.engine.space.forced());
        let manner = match self.ticket.get() {
            None => Manner::Newcomer,
            Some(ticket) if self.patience.stop.is_over() => Manner::Last(ticket),
            Some(ticket) => Manner::Queued(ticket),
        };
        let outcome = self.engine.try_take(&mut self.tenure, self.asked, manner, self.patience);
        // Executed late it joins, and may be given the lock: as its owner, unless that has it now.
        if let (Some(ticket), Some(due)) = (self.ticket.get(), self.tenure.sweep_due()) {
            let owner = if matches!(outcome, Ok(Outcome::Won(_))) { None } else { Some(&self.tenure) };
            self.engine.leave_queue(Departure::of(ticket, owner), due);
        }
        outcome
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
        if let Some(hold) = self.given()? {
            return Ok(Outcome::Won(hold));
        }
        let mut outcome = self.attempt()?;
        // Its owner id is given up and its place will be: it asks as another one, which takes that place.
        let is_busy = matches!(outcome, Outcome::Busy(_) | Outcome::Reserved(_)) && !self.tenure.is_unused();
        if is_busy && self.ticket.get().is_some() && !self.patience.stop.is_over() {
            outcome = self.attempt()?;
        }
        if let (Outcome::Won(_), Some(ticket)) = (&outcome, self.ticket.get())
            && ticket.leaves_a_place()
        {
            self.engine.leave_queue(Departure::of(ticket, None), self.engine.space.clock.now());
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

    fn rank(&self) -> Option<u32> {
        self.ticket.get()?.rank()
    }

    fn forget_news(&self) {
        self.ticket.get().into_iter().for_each(|ticket| ticket.told().forget());
    }

    fn take_news(&self) -> Option<News> {
        self.ticket.get()?.told().take()
    }

    fn is_of_this_process(&self) -> bool {
        self.engine.kind.is_of_this_process
    }

    fn withdraw(&mut self) {
        if let Some(ticket) = self.ticket.get().filter(|ticket| ticket.may_be_queued()) {
            self.engine.leave_queue(Departure::of(ticket, Some(&self.tenure)), self.engine.space.clock.now());
        }
        if self.engine.kind.leaves_marks {
            self.engine.sweep_now(&self.tenure);
        }
    }
}
