//! Which locks others were lately seen to want: only those are asked for and given up in turn, which costs some more.

use super::policy::{AGAIN, AMONG_OURS, LATELY, MOST_OURS, MOST_RAISED, NAMES_KEPT};
use crate::base::key::Key;
use crate::base::time::Moment;
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(test)]
mod tests;

/// The company of each name.
#[derive(Default)]
pub(super) struct Company {
    names: Mutex<HashMap<SmolStr, Seen>>,
    /// Old names are looked for when there are more than that.
    kept: AtomicUsize,
    /// As many as there are names, so that whoever is alone looks at nothing else.
    count: AtomicUsize,
}

/// What this client saw of a lock.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// When it last found the lock busy.
    waited: Option<Moment>,
    /// When it last told others that it had given the lock up.
    told: Option<Moment>,
    /// A call heard nothing when it asked last, and had no place.
    unheard: bool,
    /// So many were told, and none of them waited.
    bystanders: Option<i64>,
    foreigners: Foreigners,
    /// Releases in turn so far.
    releases: u64,
}

fn is_late(seen: Option<Moment>, now: Moment) -> bool {
    seen.is_some_and(|seen| now.since(seen) < LATELY)
}

impl Seen {
    fn is_over(&self, now: Moment) -> bool {
        !is_late(self.waited, now) && !is_late(self.told, now)
    }

    /// Whether others may wait for the lock, or be about to. Beside bystanders it is looked at now and then.
    fn is_company(&self, now: Moment) -> bool {
        !self.is_over(now) && (self.bystanders.is_none() || self.foreigners.are_awaited(now))
    }

    /// More than there were: one of them may wait.
    fn note_told(&mut self, told: i64, now: Moment) {
        if self.bystanders.is_some_and(|known| told > known) {
            self.foreigners = Foreigners::default();
        }
        self.told = Some(now);
        self.bystanders = self.bystanders.filter(|known| told <= *known).map(|_| told);
    }
}

impl Company {
    fn of(&self, key: &Key) -> Option<Seen> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.names.lock().get(key.full()).copied()
    }

    /// Whether others may wait for the lock, or be about to.
    pub(super) fn is_expected(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| seen.is_company(now))
    }

    /// Whether this client had to wait for the lock lately, and most likely has to again.
    pub(super) fn had_to_wait(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| is_late(seen.waited, now))
    }

    /// How many releases in turn there were before this one.
    pub(super) fn count_release(&self, key: &Key, now: Moment) -> u64 {
        let mut count = 0;
        self.note(key, now, |seen| {
            count = seen.releases;
            seen.releases += 1;
        });
        count
    }

    /// It has to wait, or had to until now.
    pub(super) fn note_wait(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| (seen.waited, seen.bystanders) = (Some(now), None));
    }

    /// Whether a call heard nothing when it asked last, and had no place.
    pub(super) fn was_unheard(&self, key: &Key) -> bool {
        self.of(key).is_some_and(|seen| seen.unheard)
    }

    /// Whether a call that is about to ask is still unheard. That it hears is noted.
    pub(super) fn is_unheard(&self, key: &Key, now: Moment, hears: bool) -> bool {
        let was_unheard = self.was_unheard(key);
        if was_unheard && hears {
            self.note(key, now, |seen| seen.unheard = false);
        }
        was_unheard && !hears
    }

    pub(super) fn note_unheard(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| seen.unheard = true);
    }

    /// So many others were told that it is free.
    pub(super) fn note_told(&self, key: &Key, now: Moment, told: i64) {
        self.note(key, now, |seen| seen.note_told(told, now));
    }

    /// Nobody was told: it is alone, as far as it knows.
    pub(super) fn note_alone(&self, key: &Key) {
        if self.count.load(Relaxed) > 0 {
            let mut names = self.names.lock();
            names.remove(key.full());
            self.count.store(names.len(), Relaxed);
        }
    }

    /// So many were told, nobody was in the queue, and no foreigner takes the turns that are left to it.
    pub(super) fn note_bystanders(&self, key: &Key, now: Moment, told: i64) {
        self.note(key, now, |seen| seen.bystanders = Some(told).filter(|_| !seen.foreigners.are_active()));
    }

    /// Whether the turn is to be left to foreigners, if any listen.
    pub(super) fn owes_foreigners(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| seen.foreigners.are_due(now))
    }

    /// The turn was left to them: so many of ours listen, and so many of them.
    pub(super) fn note_left_to_foreigners(&self, key: &Key, now: Moment, listening: [i64; 2]) {
        self.note(key, now, |seen| {
            seen.told = Some(now);
            seen.foreigners.note_left(now, listening);
        });
    }

    /// The first of the queue was given the lock, or told that it is free.
    pub(super) fn note_queue(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| {
            (seen.told, seen.bystanders) = (Some(now), None);
            seen.foreigners.note_queue();
        });
    }

    /// A release in turn found nobody in the queue.
    pub(super) fn note_no_queue(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| seen.foreigners.note_no_queue(now));
    }

    pub(super) fn note_foreign_hold(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| seen.foreigners.note_hold(now));
    }

    fn note(&self, key: &Key, now: Moment, note: impl FnOnce(&mut Seen)) {
        let mut names = self.names.lock();
        note(names.entry(key.shared()).or_default());
        if names.len() > self.kept.load(Relaxed).max(NAMES_KEPT) {
            names.retain(|_, seen| !seen.is_over(now));
            self.kept.store(2 * names.len(), Relaxed);
        }
        self.count.store(names.len(), Relaxed);
    }
}

/// Others than clients of ours that listen to a lock's channel: JVMs that wait for it, or who never asks for it.
///
/// They have no place in the queue, and the lock is not free while it is given from one process to the next. So a free lock is left to
/// them now and then, which is their turn: each time while they take it, and ever more seldom while they do not.
#[derive(Clone, Copy, Default)]
struct Foreigners {
    /// When the turn was last left to them, or one of them was seen to have the lock.
    since: Option<Moment>,
    /// How often the turn was left to them since one of them was seen.
    unused: u32,
    /// So many of ours listened then. Each of ours leaves turns, and all together no more than one would.
    ours: u32,
    /// So many of ours listened then for each of them. While they take their turns, each of them gets as many as if it were alone.
    beside: u32,
    /// The last release in turn left it to them: the next is for the queue, so that they do not keep it waiting for ever.
    was_last: bool,
}

impl Foreigners {
    /// Whether the turn is to be left to them, if any listen.
    fn are_due(&self, now: Moment) -> bool {
        !self.was_last && self.are_awaited(now)
    }

    /// Whether it is time to look for them.
    fn are_awaited(&self, now: Moment) -> bool {
        let pause = match self.unused {
            0 => AMONG_OURS * self.beside.max(1),
            unused => AGAIN * 4_u32.pow((unused - 1).min(MOST_RAISED)) * self.ours.max(1),
        };
        self.since.is_none_or(|since| now.since(since) >= pause)
    }

    /// The turn was left to them.
    fn note_left(&mut self, now: Moment, listening: [i64; 2]) {
        (self.since, self.unused, self.was_last) = (Some(now), self.unused.saturating_add(1), true);
        let [ours, foreigners] = listening.map(|count| u32::try_from(count).unwrap_or(1));
        self.ours = ours.min(MOST_OURS);
        self.beside = self.ours.div_ceil(foreigners.max(1));
    }

    /// Nobody was in the queue, whoever listens.
    fn note_no_queue(&mut self, now: Moment) {
        (self.since, self.was_last) = (self.since.or(Some(now)), false);
    }

    /// The turn was left to the queue.
    fn note_queue(&mut self) {
        self.was_last = false;
    }

    /// One of them has the lock. Where as many of them wait as of ours, they may have the next turn, too.
    fn note_hold(&mut self, now: Moment) {
        (self.since, self.unused) = (Some(now), 0);
        self.was_last = self.was_last && self.beside > 1;
    }

    /// Whether they take the turn that is left to them.
    fn are_active(&self) -> bool {
        self.since.is_some() && self.unused <= 1
    }
}
