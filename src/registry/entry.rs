//! What this process knows of one lock, and every step from one holder to the next. It does no I/O and has no clock.

use super::holders::Holders;
use super::thread::current_thread;
use super::waiter::Waiter;
use super::waiters::Waiters;
use crate::base::config::HandOff;
use crate::base::kind::Kind;
use crate::base::sync::atomic::Ordering::Relaxed;
use crate::base::sync::thread::ThreadId;
use crate::base::time::Moment;
use crate::lease::hold::Hold;
use crate::lease::tenure::{Audience, Tenure};
use std::sync::Arc;
use std::time::Duration;

/// What this process knows of one lock: the threads that have it, and those that wait.
///
/// While the lock is occupied, no thread of this process contends on the wire. Otherwise the head of the line contends, alone.
/// The others are parked behind it in order of arrival. A release passes the tenure on to the first of them, or ends
/// it on the wire and promotes that one to the head.
///
/// Passing on has two forms, as in parking_lot. Within a turn the tenure is only *kept*. The next thread that comes takes it,
/// most often the one that runs already, and the first parked one is roused to come too. After the turn the tenure is
/// *granted* to the first parked one, so that it does not wait behind running threads for long.
/// A kept tenure is never forgotten: a parked thread that can take it is on the way.
///
/// A tenure of a kind that shares is open for a while. It is granted to those that are parked in front, and a thread that comes
/// while nobody waits shares it, too. Its last holder ends it. Other threads may have a tenure of their own beside it, so the head
/// of the line contends also while the lock is held.
#[derive(Default)]
pub(super) struct ThreadEntry {
    pub(super) holders: Holders,
    pub(super) waiters: Waiters,
    /// Lost holds that their threads still have to unlock. Other holds may have come after them.
    pub(super) lost: Vec<Hold>,
}

impl ThreadEntry {
    pub(super) fn of(&self, thread: ThreadId) -> Option<&Hold> {
        self.lost.iter().chain(self.holders.in_force()).find(|hold| hold.thread() == thread)
    }

    /// The holds whose tenures may still be believed in.
    pub(super) fn believed(&self) -> impl Iterator<Item = &Hold> {
        self.lost.iter().filter(|hold| hold.tenure().is_valid()).chain(self.holders.holds())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.lost.is_empty() && self.waiters.is_empty()
    }

    /// The current thread comes and does not wait. Returns what can be said without the wire. The thread can go on with tenures
    /// of the kind `takes`.
    pub(super) fn glance(&mut self, takes: Option<&'static Kind>) -> Option<Entered> {
        let thread = current_thread();
        if let Some(hold) = self.of(thread) {
            return Some(Entered::Mine(hold.clone()));
        }
        if let Some(hold) = takes.and_then(|kind| self.join(kind, thread)) {
            return Some(Entered::Granted(hold));
        }
        self.holders.in_force().next().filter(|hold| hold.is_valid() && !hold.kind().shared).map(|_| Entered::Sibling)
    }

    /// Gives a thread that comes what it can have without the server: the kept tenure, or a share of an open one while nobody waits.
    fn join(&mut self, kind: &'static Kind, thread: ThreadId) -> Option<Hold> {
        let kept = self.holders.take_kept(kind, thread);
        kept.or_else(|| if self.waiters.is_empty() { self.holders.share(kind, thread) } else { None })
    }

    /// A call comes to wait, of a thread that has no hold here.
    pub(super) fn enter(&mut self, waiter: &Arc<Waiter>) -> Entered {
        if let Some(hold) = waiter.takes.and_then(|kind| self.join(kind, waiter.thread)) {
            return Entered::Granted(hold);
        }
        if self.waiters.is_empty() && !self.holders.is_occupied() {
            self.waiters.lead(waiter);
            return Entered::Head;
        }
        self.waiters.park(waiter);
        self.place_of(waiter)
    }

    fn place_of(&mut self, waiter: &Arc<Waiter>) -> Entered {
        self.promote();
        if self.waiters.is_head(waiter) { Entered::Head } else { Entered::Parked }
    }

    /// Lets the next waiter contend if the lock is not occupied and nobody contends.
    fn promote(&mut self) {
        if !self.holders.is_occupied() {
            self.waiters.promote();
        }
    }

    /// A thread acquired the lock on the wire.
    pub(super) fn settle(&mut self, hold: &Hold) {
        if !hold.kind().shared {
            // Earlier holds go out of the way. They stay known while their threads still have to unlock them.
            self.lost.extend(self.holders.empty());
        }
        self.holders.settle(hold);
    }

    /// Opens the tenure of a hold until then. Those in front of the line that can share it do so.
    pub(super) fn open(&mut self, hold: &Hold, until: Moment) {
        self.holders.open(hold, until);
        while self.grant(|holders, kind, thread| holders.share(kind, thread)) {}
    }

    /// The thread of a hold gives it up. Passes the tenure on to a parked thread, or leaves it to those that share it.
    /// False if the release has to go to the wire: no parked thread can take the tenure, the bounds of passing on are reached,
    /// or less than half of the watchdog's `lease`, or of what was granted, is left. Also if more than `lease` is left: the next
    /// thread did not ask for so much.
    pub(super) fn pass_on(&mut self, hold: &Hold, bounds: &HandOff, lease: Duration) -> bool {
        if self.holders.leave_or_shut(hold) {
            return true;
        }
        if !self.has_taker(hold) {
            return false;
        }
        let now = hold.tenure().now();
        if !self.holders.is_passable(hold, bounds, now, lease) {
            return false;
        }
        if self.holders.keep(hold, now, bounds.turn) {
            self.waiters.rouse();
        } else {
            self.grant_kept();
        }
        true
    }

    /// Whether the first parked one can go on with the tenure, without the server.
    fn has_taker(&self, hold: &Hold) -> bool {
        hold.kind().passed_on
            && self.waiters.first().and_then(|first| first.takes).is_some_and(|kind| hold.is_of_kind(kind))
    }

    /// Grants the kept tenure to the first parked one. If the tenure was lost meanwhile, that one stays in the line, and is woken
    /// to look.
    pub(super) fn grant_kept(&mut self) {
        if !self.grant(|holders, kind, thread| holders.take_kept(kind, thread)) {
            self.waiters.wake_first();
        }
    }

    /// Grants the first parked one what it can have. From here on it has the hold, also if its wait ends otherwise.
    fn grant(&mut self, give: impl FnOnce(&mut Holders, &'static Kind, ThreadId) -> Option<Hold>) -> bool {
        let Some(first) = self.waiters.first().map(Arc::clone) else { return false };
        let Some(hold) = first.takes.and_then(|kind| give(&mut self.holders, kind, first.thread)) else { return false };
        self.waiters.serve_first();
        *first.granted.lock() = Some(hold);
        first.semaphore.release();
        true
    }

    /// A parked waiter looks whether its turn has come. This also notices a hold that ended and was told to nobody.
    pub(super) fn look_of(&mut self, waiter: &Arc<Waiter>) -> Entered {
        waiter.roused.store(false, Relaxed);
        if let Some(hold) = waiter.take_granted() {
            return Entered::Granted(hold);
        }
        if let Some(hold) = waiter.takes.and_then(|kind| self.holders.take_kept(kind, waiter.thread)) {
            self.waiters.forget(waiter);
            return Entered::Granted(hold);
        }
        self.place_of(waiter)
    }

    /// A waiter stops waiting.
    pub(super) fn leave(&mut self, waiter: &Arc<Waiter>) -> LeftBehind {
        let was_head = self.waiters.is_head(waiter);
        self.waiters.forget(waiter);
        if was_head {
            self.promote();
        }
        match waiter.take_granted() {
            Some(hold) => LeftBehind::Granted(hold),
            None => self.find_taker(),
        }
    }

    /// Has a parked thread come for the kept tenure, or ends it if none can take it.
    fn find_taker(&mut self) -> LeftBehind {
        let Some(hold) = self.holders.kept().cloned() else { return LeftBehind::Nothing };
        if self.has_taker(&hold) {
            self.waiters.rouse();
            return LeftBehind::Nothing;
        }
        hold.tenure().end();
        LeftBehind::Unclaimed(hold)
    }

    /// The outermost level of a hold is gone: the next may come. Returns whether the thread of the hold still counted it.
    pub(super) fn remove(&mut self, hold: &Hold) -> bool {
        self.lost.retain(|lost| !lost.is(hold));
        let counted = self.holders.clear(hold);
        let gives_way = self.waiters.head().is_none() && hold.tenure().audience() == Some(Audience::Others);
        self.waiters.wake_head();
        self.promote();
        if let (true, Some(head)) = (gives_way, self.waiters.head()) {
            head.gives_way.store(true, Relaxed);
        }
        counted
    }

    /// A tenure was lost: its holds go out of the way of the next one. Returns them.
    pub(super) fn lose(&mut self, tenure: &Arc<Tenure>) -> Vec<Hold> {
        let of_tenure = |hold: &&Hold| Arc::ptr_eq(hold.tenure(), tenure);
        let holds = self.lost.iter().chain(self.holders.in_force()).filter(of_tenure).cloned().collect();
        self.lost.extend(self.holders.lose(tenure));
        self.waiters.wake_head();
        self.promote();
        holds
    }

    /// A thread ended without an unlock. This runs in a destructor of the thread, so it neither logs nor allocates.
    pub(super) fn thread_ended(&mut self, thread: ThreadId) {
        self.holders.thread_ended(thread);
        self.lost.retain(|hold| !hold.ends_with(thread));
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

/// What a waiter that stops waiting leaves to its caller to release.
pub(crate) enum LeftBehind {
    Nothing,
    /// It had been granted the lock, and stops all the same.
    Granted(Hold),
    /// It was the last that could have taken the kept tenure, which has ended now.
    Unclaimed(Hold),
}
