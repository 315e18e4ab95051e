//! How a thread acquires a lock of any kind: it waits in the line of its process, and at the head it contends with a bid for a tenure.

use super::engine::Engine;
use super::keeping::Departure;
use super::patience::{Part, Patience, Terms};
use super::primitive::heard;
use super::waiting::bid::{Bid, Call};
use super::waiting::line::{Backing, Line};
use super::waiting::policy::NAMES;
use super::waiting::queue::{Given, Manner, Ticket, offer, stays};
use super::waiting::wait::{News, Outcome};
use crate::base::config::Asked;
use crate::base::error::{Error, Result};
use crate::base::key::Key;
use crate::base::meters::Timer;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::signal::{Listening, Semaphore};
use crate::base::stats::Contention;
use crate::base::time::{Lease, Moment};
use crate::client::Post;
use crate::lease::hold::Hold;
use crate::lease::tenure::Tenure;
use crate::registry::{Entered, LeftBehind, Lent, registry};
use std::cell::OnceCell;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Acquires a lock for the current thread; `None` if the wait ended without the lock.
pub(super) fn acquire(engine: &Engine, resource: &str, terms: &Terms<'_>) -> Result<Option<Hold>> {
    let mut timer = Timer::begin(terms.part == Part::No);
    let result = look_and_wait(engine, resource, terms, &mut timer);
    timer.end(|| Some(&engine.meter), resource, terms.wait.is_zero(), &result);
    let counters = &engine.space.counters;
    match &result {
        Ok(None) if !terms.wait.is_zero() && terms.part != Part::Passing => counters.timed_out.add(1),
        Err(Error::Cancelled { .. }) => counters.cancelled.add(1),
        _ => {}
    }
    result
}

/// A first look, without an allocation, answers the calls that need neither the wire nor a place in the line.
fn look_and_wait(engine: &Engine, resource: &str, terms: &Terms<'_>, timer: &mut Timer) -> Result<Option<Hold>> {
    let name = engine.space.full_key(resource)?;
    let asked = engine.space.config.asked(terms.lease, terms.renewed)?;
    let patience = engine.patience(resource).on(terms);
    patience.stop.check()?;
    let tries = terms.wait.is_zero();
    match registry().glance(engine.ground(), &name, engine.takes(asked)) {
        Some(Entered::Mine(hold)) => {
            timer.enters_again();
            return deepen(engine, &hold, asked, patience);
        }
        Some(Entered::Granted(hold)) if engine.accept(&hold)? => return Ok(Some(hold)),
        Some(Entered::Sibling) if tries => return Ok(busy(engine)),
        _ => {}
    }
    let is_let_in = engine.check_own_way(&name)?;
    let key = &engine.space.key_of(name).of_side(engine.kind.side);
    if tries {
        try_now(engine, key, &patience, asked)
    } else {
        wait(engine, key, patience, asked, is_let_in, matches!(terms.part, Part::No | Part::EmptyHanded))
    }
}

/// Enters one more level. Only its token can wake this call.
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

/// Waits in the line of this process. If the thread's other hold lets it in, it goes past the line: the others may wait for that hold. The
/// current thread does not hold the lock. A wait that is not told is that of a group, which has other members and gives them back
/// before long.
fn wait(
    engine: &Engine,
    key: &Key,
    patience: Patience<'_>,
    asked: Asked,
    is_let_in: bool,
    is_told: bool,
) -> Result<Option<Hold>> {
    let goes_past = is_let_in || !engine.kind.in_line;
    let waiter = &Lent::new(engine.takes(asked).filter(|_| !goes_past));
    let post = Post::new(&engine.space, key.resource(), waiter, true);
    let patience = patience.woken_by(&waiter.semaphore);
    let patience = &if is_told { patience.watched_by(&post) } else { patience };
    patience.stop.check()?;
    let (config, stop, contention) = (&engine.space.config, &patience.stop, &Contention::new(&engine.space.counters));
    let call = &Call { config, stop, contention, semaphore: &waiter.semaphore };
    let backing = &Siblings { engine, patience };
    let (registry, space, name) = (registry(), engine.ground(), key.shared());
    let line = Line { registry, space, name, waiter, call, backing };
    let contend = || call.contend(&mut TenureBid::new(engine, key, patience, asked, &waiter.semaphore));
    let won = if goes_past { line.go_past(contend) } else { line.wait(contend, Some) };
    engine.space.counters.meters.handed_over(&won, &waiter.semaphore.woken);
    won
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

    /// If a hold was passed on to a call that ends all the same, the next in line gets it. Without a next one, a background thread releases
    /// it: the caller's time is up.
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

/// The bid for a lock: a tenure. Its owner id stays the same until an attempt is left without an answer.
struct TenureBid<'a> {
    engine: &'a Engine,
    key: &'a Key,
    patience: &'a Patience<'a>,
    asked: Asked,
    tenure: Arc<Tenure>,
    /// The lock was found to be a key without TTL.
    is_endless: bool,
    /// The ticket, if the kind has a queue, and the call has subscribed or joins at once.
    ticket: OnceCell<Arc<Ticket>>,
    /// For how long a script gives it the lock.
    offer: Lease,
    /// What attempts without an answer may have left in the queue, and when they cannot be executed any more.
    departures: Vec<(Departure, Moment)>,
    /// When the last ask began, and how many force unlocks had ended by then.
    asked_at: (Moment, u64),
}

impl<'a> TenureBid<'a> {
    fn new(
        engine: &'a Engine,
        key: &'a Key,
        patience: &'a Patience<'a>,
        asked: Asked,
        semaphore: &Arc<Semaphore>,
    ) -> Self {
        let queue = engine.primitive.queue(key).filter(|queue| queue.is_of_threads());
        Self {
            engine,
            key,
            patience,
            asked,
            tenure: engine.space.tenure(key),
            is_endless: false,
            ticket: queue.map_or_else(OnceCell::new, |queue| queue.ticket(key, semaphore).into()),
            offer: offer(engine.space.config.length(asked)),
            departures: Vec::new(),
            asked_at: (Moment(0), 0),
        }
    }
}

/// A wait may end with its first answer, before it has subscribed to anything else.
impl Drop for TenureBid<'_> {
    fn drop(&mut self) {
        self.ticket.get().into_iter().for_each(|ticket| ticket.listens_no_more());
    }
}

/// A lock that was given to the ticket.
impl TenureBid<'_> {
    /// The lock, if it was given to the last ask and that can be believed. The message names that ask, so the lock was given after
    /// `asked_at`, for the whole offer. Half of the offer must be left, so that the watchdog can prolong it in time. A later force unlock
    /// or change of the master may have taken it away. An attempt without an answer has a release by its owner id on the way.
    /// If one of these speaks against it, the call asks, and finds that it has the lock.
    fn given(&mut self) -> Result<Option<Hold>> {
        let Some(ticket) = self.ticket.get() else { return Ok(None) };
        let Some(Given { token }) = ticket.takes_what_was_given().filter(|_| self.tenure.is_unused()) else {
            return Ok(None);
        };
        let (space, offer, (sent, forced)) = (&self.engine.space, self.offer, self.asked_at);
        // Read before the alarm is checked: the watchdog verifies a hold that is older than the alarm, so a later alarm covers this hold.
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
        // The server counts the offer from when the lock was given, which is before `now`.
        self.tenure.may_last(now.plus(offer.at_most()));
        let hold = self.engine.hold(&self.tenure, (sent, offer), self.asked, forced)?;
        if let (Some(_), Some(queue)) = (&hold, self.engine.primitive.queue(self.key)) {
            queue.won(self.key, Manner::Queued(ticket));
        }
        Ok(hold)
    }

    /// Asks under the owner id that the queue may give the lock to.
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
        // If the server executes this attempt late, the ticket joins and may be given the lock. So the sweeper takes the ticket out, and
        // releases the owner unless this call has won with it.
        if let (Some(ticket), Some(due)) = (self.ticket.get(), self.tenure.sweep_due()) {
            let owner = if matches!(outcome, Ok(Outcome::Won(_))) { None } else { Some(&self.tenure) };
            self.departures.push((Departure::of(ticket, owner), due));
        }
        outcome
    }

    /// Asks until an attempt by this owner id was answered, and none by it was not. An attempt without an answer gives up its owner id, and
    /// the next one, by a new owner, takes over the place in the queue.
    fn attempt_until_clean(&mut self) -> Result<Outcome<Hold>> {
        let mut outcome = self.attempt()?;
        for _ in 0..NAMES {
            let is_busy = matches!(outcome, Outcome::Busy(_) | Outcome::Reserved(_)) && !self.tenure.is_unused();
            if !is_busy || self.ticket.get().is_none() || self.patience.stop.is_over() {
                break;
            }
            outcome = self.attempt()?;
        }
        Ok(outcome)
    }

    /// The wait is over. A master that replaces this one may not know that, and would give the lock to the place, for an offer each. So the
    /// place is kept in mind as long as the tenure, and taken out there.
    fn keeps_its_place_in_mind(&self) {
        if let Some(ticket) =
            self.ticket.get().filter(|ticket| ticket.may_have_been_queued() && self.engine.health.moves())
        {
            let space = &self.engine.space;
            self.tenure.note_ticket(ticket.names(), stays(&space.config, space.clock.now()));
        }
    }

    /// Has the sweeper take out what attempts without an answer left in the queue. Not before the last of them: its command must find the
    /// place that it takes over.
    fn depart(&mut self) {
        for (departure, due) in self.departures.drain(..) {
            self.engine.leave_queue(departure, due);
        }
    }
}

impl TenureBid<'_> {
    /// Logs once a wait.
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
            self.keeps_its_place_in_mind();
            return Ok(Outcome::Won(hold));
        }
        let outcome = self.attempt_until_clean();
        self.depart();
        let outcome = outcome?;
        if let (Outcome::Won(_), Some(ticket)) = (&outcome, self.ticket.get()) {
            self.keeps_its_place_in_mind();
            if ticket.leaves_a_place() {
                self.engine.leave_queue_now(Departure::of(ticket, None));
            }
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
        self.depart();
        self.keeps_its_place_in_mind();
        match self.ticket.get() {
            Some(ticket) if ticket.may_be_queued() => {
                self.engine.leave_queue_now(Departure::of(ticket, Some(&self.tenure)));
            }
            // Its last ask has left the queue.
            Some(_) => self.engine.note_freed(&self.tenure),
            None => {}
        }
        if self.engine.kind.leaves_marks {
            self.engine.sweep_now(&self.tenure);
        }
    }
}
