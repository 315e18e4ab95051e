//! Which locks others lately wanted. Only those are asked for and released in turn, which costs a little more.

use super::policy::{AGAIN, AMONG_OURS, LATELY, MOST_OURS, MOST_RAISED, NAMES_KEPT};
use crate::base::key::Key;
use crate::base::time::Moment;
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(test)]
mod tests;

/// What this client saw of each lock, by name.
#[derive(Default)]
pub(super) struct Company {
    names: Mutex<HashMap<SmolStr, Seen>>,
    /// Names beyond this number trigger a search for old ones.
    kept: AtomicUsize,
    /// The number of names: at 0 a client that is alone takes no lock here.
    count: AtomicUsize,
}

/// What this client saw of a lock.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// When this client last found the lock busy.
    waited: Option<Moment>,
    /// When a release of this client last told others.
    told: Option<Moment>,
    /// The last ask of a call found neither a subscription confirmed nor a place.
    unheard: bool,
    /// The number of listeners that the last release reached, if none of them waited.
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

    /// Whether others may wait for the lock, or are about to. Beside bystanders: only when foreigners are due.
    fn is_company(&self, now: Moment) -> bool {
        !self.is_over(now) && (self.bystanders.is_none() || self.foreigners.are_awaited(now))
    }

    /// More listeners than the bystanders before: one of them may wait.
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

    /// Whether others may wait for the lock, or are about to.
    pub(super) fn is_expected(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| seen.is_company(now))
    }

    /// Whether this client lately waited for the lock, so most likely has to again.
    pub(super) fn had_to_wait(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| is_late(seen.waited, now))
    }

    /// Counts a release in turn; returns the number before it.
    pub(super) fn count_release(&self, key: &Key, now: Moment) -> u64 {
        let mut count = 0;
        self.note(key, now, |seen| {
            count = seen.releases;
            seen.releases += 1;
        });
        count
    }

    /// This client waits for the lock, or did until now.
    pub(super) fn note_wait(&self, key: &Key, now: Moment) {
        self.note(key, now, |seen| (seen.waited, seen.bystanders) = (Some(now), None));
    }

    /// Whether the last ask of a call found neither a subscription confirmed nor a place.
    pub(super) fn was_unheard(&self, key: &Key) -> bool {
        self.of(key).is_some_and(|seen| seen.unheard)
    }

    /// Whether a call that is about to ask is still unheard. If it `hears`, the lock no longer counts as unheard.
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

    /// A release told `told` others that the lock is free.
    pub(super) fn note_told(&self, key: &Key, now: Moment, told: i64) {
        self.note(key, now, |seen| seen.note_told(told, now));
    }

    /// A release told nobody: this client is alone, as far as it knows.
    pub(super) fn note_alone(&self, key: &Key) {
        if self.count.load(Relaxed) > 0 {
            let mut names = self.names.lock();
            names.remove(key.full());
            self.count.store(names.len(), Relaxed);
        }
    }

    /// A release told `told` others, and the queue was empty. They are bystanders unless foreigners take the turns that are left to them.
    pub(super) fn note_bystanders(&self, key: &Key, now: Moment, told: i64) {
        self.note(key, now, |seen| seen.bystanders = Some(told).filter(|_| !seen.foreigners.are_active()));
    }

    /// Whether the next release leaves the lock to foreigners, if any listen.
    pub(super) fn owes_foreigners(&self, key: &Key, now: Moment) -> bool {
        self.of(key).is_some_and(|seen| seen.foreigners.are_due(now))
    }

    /// A release left the lock to foreigners. `listening`: the number of ours and of foreigners.
    pub(super) fn note_left_to_foreigners(&self, key: &Key, now: Moment, listening: [i64; 2]) {
        self.note(key, now, |seen| {
            seen.told = Some(now);
            seen.foreigners.note_left(now, listening);
        });
    }

    /// A release gave the lock to the first of the queue, or told it.
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

/// Listeners of a lock's channel that are not our clients: JVMs that wait for the lock, or subscribers that never ask for it.
///
/// Foreigners have no place in the queue, and the lock is never free while processes give it to each other. So now and then a release
/// leaves it to them: often while they take such turns, ever more seldom while they do not.
#[derive(Clone, Copy, Default)]
struct Foreigners {
    /// When a turn was last left to foreigners, or one of them was seen to hold the lock.
    since: Option<Moment>,
    /// The number of turns left to foreigners since one of them was seen.
    unused: u32,
    /// The number of ours that listened then. Each of ours leaves turns, but all together no more than one alone would.
    ours: u32,
    /// ours / foreigners, by the same count. While foreigners take their turns, each of them gets as many as if it were alone.
    beside: u32,
    /// The last release in turn was left to foreigners. The next one is for the queue, so that foreigners do not starve it.
    was_last: bool,
}

impl Foreigners {
    /// Whether the next release leaves the lock to them, if any listen.
    fn are_due(&self, now: Moment) -> bool {
        !self.was_last && self.are_awaited(now)
    }

    /// Whether a turn is due, whatever the last one was.
    fn are_awaited(&self, now: Moment) -> bool {
        let pause = match self.unused {
            0 => AMONG_OURS * self.beside.max(1),
            unused => AGAIN * 4_u32.pow((unused - 1).min(MOST_RAISED)) * self.ours.max(1),
        };
        self.since.is_none_or(|since| now.since(since) >= pause)
    }

    /// A turn was left to foreigners.
    fn note_left(&mut self, now: Moment, listening: [i64; 2]) {
        (self.since, self.unused, self.was_last) = (Some(now), self.unused.saturating_add(1), true);
        let [ours, foreigners] = listening.map(|count| u32::try_from(count).unwrap_or(1));
        self.ours = ours.min(MOST_OURS);
        self.beside = self.ours.div_ceil(foreigners.max(1));
    }

    /// The queue was empty, whether foreigners listen or not.
    fn note_no_queue(&mut self, now: Moment) {
        (self.since, self.was_last) = (self.since.or(Some(now)), false);
    }

    /// The last turn was the queue's.
    fn note_queue(&mut self) {
        self.was_last = false;
    }

    /// A foreigner has the lock. If at least as many foreigners wait as ours, they may have the next turn, too.
    fn note_hold(&mut self, now: Moment) {
        (self.since, self.unused) = (Some(now), 0);
        self.was_last = self.was_last && self.beside > 1;
    }

    /// Whether foreigners take the turns that are left to them.
    fn are_active(&self) -> bool {
        self.since.is_some() && self.unused <= 1
    }
}
