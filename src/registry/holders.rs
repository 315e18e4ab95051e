//! The threads of this process that have a lock.

use crate::base::config::HandOff;
use crate::base::kind::Kind;
use crate::base::mutant::{self, Mutant};
use crate::base::sync::thread::ThreadId;
use crate::base::time::{Lease, Moment};
use crate::lease::hold::Hold;
use crate::lease::tenure::{Audience, Tenure, TenureState};
use std::sync::Arc;
use std::time::Duration;

/// The holds of one lock. They are all on one tenure; those of a kind that shares may be on several.
///
/// | state | `hold` | `kept` | sharers | leads to |
/// | --- | --- | --- | --- | --- |
/// | empty | none | no | none | held, by an acquire on the wire |
/// | held | of the thread that has it | no | none | kept; shared, if its kind shares; empty |
/// | kept | of the thread that released it last | yes | none | held, by the next thread; empty |
/// | shared | of one of the threads that have it, the last that acquired on the wire at first | no | of the others, on its tenure or on one of their own | held, when one is left; empty, by a loss |
///
/// Held and shared last until somebody notices that the tenure is lost, and while its release is under way.
#[derive(Default)]
pub(super) struct Holders {
    hold: Option<Hold>,
    kept: bool,
    /// Only a kind that shares has this, so that the others do not pay for it.
    shared: Option<Box<Shared>>,
    /// How often the tenure was passed on.
    passes: u32,
    /// When the turn began: within it the tenure is kept for running threads.
    turn_since: Option<Moment>,
    /// No other client was told of the last release: the next tenure may be passed on for longer.
    alone: bool,
}

/// What threads that share a tenure have besides the hold of the first one.
#[derive(Default)]
struct Shared {
    sharers: Vec<Hold>,
    open: Option<OpenTenure>,
}

/// The tenure that threads may come to share until then. Its renewals have to give the lease of its first level,
/// because a thread that shares it asks for no lease of its own.
#[derive(Clone, Copy)]
struct OpenTenure {
    serial: u64,
    until: Moment,
    renewed: Option<Lease>,
}

/// While no other process listens, the bounds of passing on are so many times as wide.
const ALONE: u32 = 4;

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.hold.is_none()
    }

    /// Whether the lock is held, kept, or being released: a thread that contended would find it busy. Never of a kind that shares:
    /// a thread that cannot have the tenure gets one of its own.
    pub(super) fn is_occupied(&self) -> bool {
        self.hold.as_ref().filter(|hold| !hold.kind().shared).is_some_and(|hold| {
            matches!(hold.tenure().state(), TenureState::Held | TenureState::Suspect | TenureState::Ended)
        })
    }

    /// All holds, also one whose tenure is kept.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.hold.iter().chain(self.sharers())
    }

    fn sharers(&self) -> &[Hold] {
        self.shared.as_ref().map_or(&[], |shared| &shared.sharers)
    }

    /// The holds that their threads have not released.
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Hold> {
        self.holds().filter(|_| !self.kept)
    }

    /// The released hold whose tenure is kept.
    pub(super) fn kept(&self) -> Option<&Hold> {
        self.hold.as_ref().filter(|_| self.kept)
    }

    fn is_current(&self, hold: &Hold) -> bool {
        self.hold.as_ref().is_some_and(|current| current.is(hold))
    }

    /// A thread acquired the lock on the wire. Earlier holds were taken out by [`empty`](Self::empty), or share the lock.
    pub(super) fn settle(&mut self, hold: &Hold) {
        if let Some(before) = self.hold.replace(hold.clone()) {
            self.shared.get_or_insert_default().sharers.push(before);
        }
        (self.passes, self.turn_since) = (0, None);
    }

    /// Takes out the holds of a tenure that was lost. Returns those that their threads still have to unlock.
    pub(super) fn lose(&mut self, tenure: &Arc<Tenure>) -> Vec<Hold> {
        let is_of = |hold: &Hold| Arc::ptr_eq(hold.tenure(), tenure);
        if !self.holds().any(is_of) {
            return Vec::new();
        }
        let shared = self.shared.take();
        let open = shared.as_ref().and_then(|shared| shared.open).filter(|open| open.serial != tenure.serial());
        let others = shared.map_or_else(Vec::new, |shared| shared.sharers);
        let (lost, mut stay): (Vec<_>, Vec<_>) = self.hold.take().into_iter().chain(others).partition(is_of);
        (self.alone, self.kept, self.hold) = (false, false, stay.pop());
        if self.hold.is_some() {
            self.shared = Some(Box::new(Shared { sharers: stay, open }));
        }
        lost.into_iter().filter(is_owed).collect()
    }

    /// The same for all holds.
    pub(super) fn empty(&mut self) -> impl Iterator<Item = Hold> + use<> {
        self.alone &= self.hold.is_none();
        self.kept = false;
        let sharers = self.shared.take().map_or_else(Vec::new, |shared| shared.sharers);
        self.hold.take().into_iter().chain(sharers).filter(is_owed)
    }

    /// The outermost level of a hold is gone, and with it the tenure. Others that share the tenure may not have noticed yet.
    /// Returns whether the thread of the hold still counted it.
    pub(super) fn clear(&mut self, hold: &Hold) -> bool {
        let was_kept = self.is_current(hold) && self.kept;
        self.shut(Some(hold.tenure()));
        if self.is_current(hold) {
            (self.hold, self.kept) = (self.shared.as_mut().and_then(|shared| shared.sharers.pop()), false);
            self.alone = hold.tenure().audience() == Some(Audience::Nobody);
        }
        self.forget_sharer(|sharer| sharer.is(hold));
        !was_kept
    }

    fn forget_sharer(&mut self, is_it: impl Fn(&Hold) -> bool) {
        if let Some(shared) = &mut self.shared {
            shared.sharers.retain(|sharer| !is_it(sharer));
        }
    }

    /// No thread may come to share the tenure any more; `None`: any tenure.
    pub(super) fn shut(&mut self, tenure: Option<&Arc<Tenure>>) {
        if let Some(shared) = &mut self.shared {
            shared.open.take_if(|open| tenure.is_none_or(|tenure| tenure.serial() == open.serial));
        }
    }
}

/// Whether a thread still has to unlock it.
fn is_owed(hold: &Hold) -> bool {
    hold.count() > 0 && !hold.is_orphan()
}

/// To pass on: one thread after the other has the tenure.
impl Holders {
    /// Whether the tenure can be passed on: it is surely held for long enough, and other processes need not get their turn yet.
    pub(super) fn is_passable(&self, hold: &Hold, bounds: &HandOff, now: Moment, lease: Duration) -> bool {
        let tenure = hold.tenure();
        let is_usual = tenure.renewed_lease().is_none_or(|own| own.span() == lease);
        let is_sure = is_usual && tenure.is_watched() && tenure.state() == TenureState::Held;
        let is_done = tenure.commands_open_for().is_none();
        let left = tenure.deadline().map_or(Duration::ZERO, |deadline| deadline.since(now));
        let lasts = (lease.min(tenure.granted_for()) / 2..=lease).contains(&left);
        let stretch = if self.alone { ALONE } else { 1 };
        let is_early = (self.passes as usize) < bounds.passes.saturating_mul(stretch as usize)
            && now.since(tenure.acquire_sent()) < bounds.within.saturating_mul(stretch);
        self.is_current(hold) && is_sure && is_done && lasts && is_early
    }

    /// The thread of the hold gave it up: the tenure is kept. Returns whether the turn goes on, within which the next thread that
    /// comes takes it.
    pub(super) fn keep(&mut self, hold: &Hold, now: Moment, turn: Duration) -> bool {
        self.passes = self.passes.saturating_add(1);
        hold.close(true);
        self.kept = true;
        let goes_on = now.since(*self.turn_since.get_or_insert(now)) < turn;
        if !goes_on {
            self.turn_since = Some(now);
        }
        goes_on
    }

    /// A thread comes and takes the kept tenure of its kind.
    pub(super) fn take_kept(&mut self, kind: &'static Kind, thread: ThreadId) -> Option<Hold> {
        let last = self.kept().filter(|last| last.is_of_kind(kind) && last.tenure().is_valid())?;
        let next = last.pass_to(thread);
        self.hold = Some(next.clone());
        self.kept = mutant::is(Mutant::GivesTwice);
        Some(next)
    }
}

/// To share: several threads have the tenure, each with a hold of its own.
impl Holders {
    /// Threads that come until then may share the tenure of this hold.
    pub(super) fn open(&mut self, hold: &Hold, until: Moment) {
        if self.is_current(hold) {
            let (serial, renewed) = (hold.tenure().serial(), hold.tenure().renewed_lease());
            self.shared.get_or_insert_default().open = Some(OpenTenure { serial, until, renewed });
        }
    }

    /// A thread comes and shares the tenure that is open.
    pub(super) fn share(&mut self, kind: &'static Kind, thread: ThreadId) -> Option<Hold> {
        let OpenTenure { serial, until, renewed } = self.shared.as_ref()?.open?;
        let is_open = |hold: &&Hold| hold.tenure().serial() == serial && hold.is_of_kind(kind);
        let first = self.in_force().find(is_open)?;
        let gives_enough = first.tenure().is_watched() && first.tenure().renewed_lease() >= renewed;
        if !gives_enough || first.tenure().state() != TenureState::Held || first.tenure().now() >= until {
            return None;
        }
        let next = first.share_with(thread, renewed);
        self.shared.as_mut()?.sharers.push(next.clone());
        Some(next)
    }

    /// The thread of the hold gives it up, and others go on. False for the last one, which is about to end the tenure: from then on
    /// no thread may come to share it.
    ///
    /// False also if the tenure was lost: each of its holders has to be told.
    pub(super) fn leave_or_shut(&mut self, hold: &Hold) -> bool {
        let is_other = |one: &Hold| !one.is(hold) && Arc::ptr_eq(one.tenure(), hold.tenure());
        if !self.holds().any(is_other) {
            self.shut(Some(hold.tenure()));
            return false;
        }
        if !hold.is_valid() || !self.holds().any(|one| one.is(hold)) {
            return false;
        }
        self.take_out(hold);
        hold.part();
        true
    }

    /// Takes a hold out. If it was the first, one of the others takes its place.
    fn take_out(&mut self, hold: &Hold) {
        if self.is_current(hold) {
            self.hold = self.shared.as_mut().and_then(|shared| shared.sharers.pop());
        } else {
            self.forget_sharer(|sharer| sharer.is(hold));
        }
    }

    /// A thread ended: its holds are no longer renewed. A hold whose tenure goes on with another thread is taken out. Any
    /// other stays until its deadline: its clones may be believed until then, and a force unlock of this process has to end that.
    /// This runs in a destructor of the thread, so it neither logs nor allocates.
    pub(super) fn thread_ended(&mut self, thread: ThreadId) {
        self.in_force().filter(|hold| hold.ends_with(thread)).for_each(Hold::orphan);
        let in_the_way =
            |holders: &Self| holders.holds().find(|hold| hold.is_orphan() && holders.goes_on(hold)).cloned();
        while let Some(orphan) = in_the_way(self) {
            self.take_out(&orphan);
        }
    }

    /// Whether a thread that has not ended shares the tenure of this hold.
    fn goes_on(&self, hold: &Hold) -> bool {
        self.holds().any(|other| !other.is_orphan() && Arc::ptr_eq(other.tenure(), hold.tenure()))
    }
}
