//! What this process knows of one lock, and every step from one holder to the next. No I/O, no clock of its own.

use super::mark::current_thread;
use super::waiter::Waiter;
use crate::config::HandOff;
use crate::hold::Hold;
use crate::mutant::{self, Mutant};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread::ThreadId;
use crate::tenure::{Standing, Tenure};
use crate::time::Moment;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What this process knows of one lock.
///
/// While `hold` is occupied nobody of this process contends on the wire. Otherwise `head` does, alone, and the
/// others are parked behind it in order of arrival. A release passes the tenure on to the first of them, or ends it
/// on the wire and promotes them.
///
/// Passing on has two forms, as in parking_lot. Within a turn the tenure is only *kept*: the next thread that comes
/// takes it, which is most often the one that runs already, and the first parked one is roused to come too. After
/// the turn it is granted to the first parked one, so that nobody waits behind running threads for long.
/// Kept means: somebody parked can take it and is on the way, so that it is never forgotten.
#[derive(Default)]
pub(super) struct ThreadEntry {
    /// The hold in force, or one whose end was not noticed yet.
    pub(super) hold: Option<Hold>,
    /// `hold` was released, and its tenure is kept for the next thread of this process.
    kept: bool,
    /// How often the tenure was passed on, and since when its turns are of the same thread.
    passes: usize,
    turn_since: Option<Moment>,
    /// Nobody else was told of the last release: the next tenure may be passed on for longer.
    alone: bool,
    /// Lost holds with levels still to be unlocked, beside whatever came after them.
    pub(super) lost: Vec<Hold>,
    /// The waiter that contends on the wire.
    pub(super) head: Option<Arc<Waiter>>,
    pub(super) parked: VecDeque<Arc<Waiter>>,
}

/// While nobody outside of this process listens, the bounds of passing on are so many times as wide.
const ALONE: u32 = 4;

impl ThreadEntry {
    pub(super) fn of(&self, thread: ThreadId) -> Option<&Hold> {
        self.lost.iter().chain(self.in_force()).find(|hold| hold.thread() == thread)
    }

    /// The hold of a thread that has not released it.
    pub(super) fn in_force(&self) -> Option<&Hold> {
        self.hold.as_ref().filter(|_| !self.kept)
    }

    /// Whatever tenure of this lock may still be believed in.
    pub(super) fn believed(&self) -> impl Iterator<Item = &Hold> {
        self.lost.iter().filter(|hold| hold.tenure().is_valid()).chain(&self.hold)
    }

    /// Held, kept, or being released right now: whoever contended would only find it busy.
    fn is_occupied(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| {
            matches!(hold.tenure().standing(), Standing::Held | Standing::Suspect | Standing::Ended)
        })
    }

    /// The current thread comes and does not wait: what can be said without the wire.
    pub(super) fn glance(&mut self, watched: bool) -> Option<Entered> {
        let thread = current_thread();
        if let Some(hold) = self.of(thread) {
            return Some(Entered::Mine(hold.clone()));
        }
        if let Some(hold) = watched.then(|| self.take_kept(thread)).flatten() {
            return Some(Entered::Granted(hold));
        }
        self.in_force().filter(|hold| hold.is_valid()).map(|_| Entered::Sibling)
    }

    /// A call comes to wait, of a thread that has no hold here.
    pub(super) fn enter(&mut self, waiter: &Arc<Waiter>) -> Entered {
        if let Some(hold) = self.take_if_kept(waiter) {
            return Entered::Granted(hold);
        }
        if self.head.is_none() && self.parked.is_empty() && !self.is_occupied() {
            self.head = Some(Arc::clone(waiter));
            return Entered::Head;
        }
        self.parked.push_back(Arc::clone(waiter));
        self.promote();
        if self.is_head(waiter) { Entered::Head } else { Entered::Parked }
    }

    /// Lets the next waiter contend, once the lock is not occupied and nobody does.
    pub(super) fn promote(&mut self) {
        if self.head.is_none() && !self.parked.is_empty() && !self.is_occupied() {
            self.head = self.parked.pop_front();
            self.wake_head();
        }
    }

    /// The lock may be free: whoever contends should look.
    pub(super) fn wake_head(&self) {
        if let Some(head) = &self.head {
            head.semaphore.release();
        }
    }

    pub(super) fn is_head(&self, waiter: &Arc<Waiter>) -> bool {
        self.head.as_ref().is_some_and(|head| Arc::ptr_eq(head, waiter))
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.head.is_some() || !self.parked.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hold.is_none() && self.lost.is_empty() && !self.is_awaited()
    }

    /// A thread acquired the lock on the wire.
    pub(super) fn settle(&mut self, hold: &Hold) {
        self.retire();
        self.hold = Some(hold.clone());
        (self.passes, self.turn_since) = (0, None);
    }

    /// Takes the hold in force out of the way; it is kept while its thread still has to unlock it.
    pub(super) fn retire(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.alone = false;
            self.lost.extend(Some(hold).filter(|hold| hold.count() > 0 && !hold.is_orphan()));
        }
        self.kept = false;
    }

    /// Passes the tenure of a hold that its thread gives up on to a parked thread. False when the release has to go
    /// to the wire: nobody is parked who can take it, the bounds of passing on are reached, or less than half of the
    /// watchdog's `lease` is left; or more than all of it, for the next thread did not ask for so much.
    pub(super) fn pass_on(&mut self, hold: &Hold, bounds: &HandOff, lease: Duration) -> bool {
        if !self.has_taker() {
            return false;
        }
        let now = hold.tenure().now();
        if !self.is_passable(hold, bounds, now, lease) {
            return false;
        }
        self.passes += 1;
        hold.close(true);
        self.kept = true;
        if now.since(*self.turn_since.get_or_insert(now)) < bounds.turn {
            self.rouse();
        } else {
            self.turn_since = Some(now);
            self.grant();
        }
        true
    }

    /// Whether the first parked one can go on under the watchdog's lease, without a word to the server.
    fn has_taker(&self) -> bool {
        self.parked.front().is_some_and(|first| first.watched)
    }

    /// Whether the tenure is ours to pass on, and sure enough, and other processes need not get their turn yet.
    fn is_passable(&self, hold: &Hold, bounds: &HandOff, now: Moment, lease: Duration) -> bool {
        let tenure = hold.tenure();
        let is_current = self.hold.as_ref().is_some_and(|current| current.is(hold));
        let is_sure = tenure.is_watched() && tenure.standing() == Standing::Held;
        let left = tenure.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now));
        let lasts = (lease / 2..=lease).contains(&left);
        let stretch = if self.alone { ALONE } else { 1 };
        let is_early = self.passes < bounds.passes.saturating_mul(stretch as usize)
            && now.since(tenure.held_since()) < bounds.within.saturating_mul(stretch);
        is_current && is_sure && lasts && is_early
    }

    /// Wakes the first parked one for the kept tenure, unless it is on the way.
    fn rouse(&mut self) {
        if mutant::is(Mutant::NeverRouses) {
            return;
        }
        if let Some(first) = self.parked.front().filter(|first| !first.roused.swap(true, Relaxed)) {
            first.semaphore.release();
        }
    }

    /// Gives the kept tenure to the first parked one. From here on it has it, whatever else happens to its wait.
    /// A tenure that was lost meanwhile is no gift: then the first stays in the queue, and looks.
    fn grant(&mut self) {
        let Some(first) = self.parked.front().map(Arc::clone) else { return };
        if let Some(hold) = self.take_kept(first.thread) {
            self.parked.pop_front();
            *first.granted.lock() = Some(hold);
        }
        first.semaphore.release();
    }

    /// A thread comes to the kept tenure, and has it.
    pub(super) fn take_kept(&mut self, thread: ThreadId) -> Option<Hold> {
        let last = self.hold.as_ref().filter(|hold| self.kept && hold.tenure().is_valid())?;
        let next = last.pass_to(thread);
        self.hold = Some(next.clone());
        self.kept = mutant::is(Mutant::GivesTwice);
        Some(next)
    }

    /// A parked waiter looks how it stands. Also notices what ended without anyone telling.
    pub(super) fn look_of(&mut self, waiter: &Arc<Waiter>) -> Entered {
        waiter.roused.store(false, Relaxed);
        if let Some(hold) = waiter.take_granted() {
            return Entered::Granted(hold);
        }
        if let Some(hold) = self.take_if_kept(waiter) {
            self.parked.retain(|parked| !Arc::ptr_eq(parked, waiter));
            return Entered::Granted(hold);
        }
        self.promote();
        if self.is_head(waiter) { Entered::Head } else { Entered::Parked }
    }

    fn take_if_kept(&mut self, waiter: &Waiter) -> Option<Hold> {
        if waiter.watched { self.take_kept(waiter.thread) } else { None }
    }

    /// A waiter goes.
    pub(super) fn leave(&mut self, waiter: &Arc<Waiter>) -> Left {
        if self.is_head(waiter) {
            self.head = None;
            self.promote();
        } else {
            self.parked.retain(|parked| !Arc::ptr_eq(parked, waiter));
        }
        match waiter.take_granted() {
            Some(hold) => Left::Granted(hold),
            None => self.find_taker(),
        }
    }

    /// Sees to it that somebody comes for a kept tenure, or ends it.
    fn find_taker(&mut self) -> Left {
        let Some(hold) = self.hold.clone().filter(|_| self.kept) else { return Left::Nothing };
        if self.has_taker() {
            self.rouse();
            return Left::Nothing;
        }
        hold.tenure().end();
        Left::Unclaimed(hold)
    }

    /// The outermost level of a hold is gone: the next may come. Whether its thread still counted it.
    pub(super) fn remove(&mut self, hold: &Hold) -> bool {
        self.lost.retain(|lost| !lost.is(hold));
        let is_current = self.hold.as_ref().is_some_and(|current| current.is(hold));
        let counted = !(is_current && self.kept);
        let told_others = hold.tenure().told_others();
        if is_current {
            self.hold = None;
            self.kept = false;
            self.alone = told_others == Some(false);
        }
        let gives_way = self.head.is_none() && told_others == Some(true);
        self.wake_head();
        self.promote();
        if let (true, Some(head)) = (gives_way, &self.head) {
            head.gives_way.store(true, Relaxed);
        }
        counted
    }

    /// A tenure was lost: its hold is out of the way of the next one. Returns that hold, unless nobody had it.
    pub(super) fn lose(&mut self, tenure: &Arc<Tenure>) -> Option<Hold> {
        let of_tenure = |hold: &&Hold| Arc::ptr_eq(hold.tenure(), tenure);
        let hold = self.lost.iter().chain(self.in_force()).find(of_tenure).cloned();
        if self.hold.as_ref().is_some_and(|current| of_tenure(&current)) {
            self.retire();
        }
        self.wake_head();
        self.promote();
        hold
    }
}

/// What a call finds when it comes to a lock, or looks again.
pub(crate) enum Entered {
    /// The current thread holds it, or lost it and has not unlocked it yet.
    Mine(Hold),
    /// The tenure of another thread of this process was passed on to the caller.
    Granted(Hold),
    /// Another thread of this process surely holds it.
    Sibling,
    /// The caller is the one that contends on the wire.
    Head,
    /// The caller is queued behind others of this process.
    Parked,
}

/// What a waiter that goes leaves to its caller to release.
pub(crate) enum Left {
    Nothing,
    /// It had been granted the lock, and goes all the same.
    Granted(Hold),
    /// It was the last that could have taken a kept tenure, which has ended now.
    Unclaimed(Hold),
}
