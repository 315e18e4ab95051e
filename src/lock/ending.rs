//! How a hold is given up, and how its tenure ends (docs/protocol.md, 4 to 6), the same for every kind.
//!
//! | the tenure is | its word | the map of threads | the watchdog | its key | who is told | by |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | released | `ENDED`, before the release is sent | cleared after the answer, or at its deadline if that comes first | forgets it | freed | nobody | `release_last` |
//! | undecided: its release was refused or not answered | `ENDED` | cleared | forgets it | released by the background each second, or sooner before a short lease ends, until it is surely over | if the background finds it gone: holder, callback, log | `Undecided` |
//! | passed on | stays | the hold of the next thread | goes on | stays | nobody | `pass_on` |
//! | found gone by its release | `ENDED` | cleared | forgets it | is not there | holder, callback, log | `conclude` |
//! | released too late | `LOST`, by its deadline | cleared | forgets it | freed by one attempt, or swept | holder, callback, log | `end` |
//! | lost | `LOST` | out of the way; there until it is unlocked | forgets it | swept after its last open attempt | holder, callback, log | `lost`, in `keeping.rs` |
//! | forced open by this process, before its own release began | `LOST` | as lost | forgets it | freed; swept in case it came back | holder, callback, log | `force_unlock` |
//! | undone: its caller never gets it | `ENDED` | cleared | forgets it | swept at once | nobody | `give_back` |
//! | disbelieved: over when its answer came | `ENDED` | never there | never had it | swept at once | nobody | `hold`, in `engine.rs` |
//! | shut down | `ENDED` | cleared | closes | freed a hundred at a time, or swept | nobody | `Space::close` |
//!
//! Swept means: the sweeper releases it again and again until that succeeds or the last lease has ended; and once more
//! when the last attempt without an answer can no longer be executed.

use super::engine::Engine;
use crate::base::config::Reentry;
use crate::base::error::{Applied, Error, Result};
use crate::base::key::Key;
use crate::base::mutant::{self, Mutant};
use crate::base::say::say;
use crate::base::time::Moment;
use crate::lease::hold::{Hold, HoldState, LostReceiver};
use crate::lease::sweeper::Chore;
use crate::lease::tenure::{Keeper, LossCause, Tenure, TenureState};
use crate::registry::{current_thread, is_part_of_group, registry};
use crate::store::node::Failure;
use crossbeam_channel::RecvTimeoutError;
use std::sync::Arc;

/// How its holder gives a hold up.
impl Engine {
    /// Gives up one level of the current thread's hold.
    pub(crate) fn unlock(&self, resource: &str) -> Result<()> {
        let key = self.space.full_key(resource)?;
        let hold = registry().find(self.ground(), &key, current_thread());
        hold.map_or_else(|| Err(Error::not_held(resource)), |hold| self.release_one(&hold))
    }

    /// Gives up the level that this very hold, of the current thread, was acquired with.
    pub(crate) fn release(&self, hold: &Hold) -> Result<()> {
        self.check_own(hold)?;
        self.release_one(hold)
    }

    /// Refuses a hold of another client, whose registry would never learn of what is done here.
    pub(super) fn check_own(&self, hold: &Hold) -> Result<()> {
        self.space.check_open(hold.resource())?;
        if hold.is_of(self.space.id) {
            return self.check_kind(hold);
        }
        let resource = hold.resource();
        Err(Error::config(format!(
            "this hold of lock {resource:?} is of another client: use the locks that acquired it"
        )))
    }

    fn release_one(&self, hold: &Hold) -> Result<()> {
        self.check_kind(hold)?;
        let is_anothers = self.kind.of_thread && hold.thread() != current_thread();
        if is_anothers || hold.count() == 0 {
            return Err(Error::not_held(hold.resource()));
        }
        if hold.count() > 1 { self.release_level(hold) } else { self.release_last(hold) }
    }

    /// The local count always goes down, whatever becomes of its mirror on the server.
    fn release_level(&self, hold: &Hold) -> Result<()> {
        let left = hold.ascend();
        if hold.state() == HoldState::Lost {
            return Err(Error::lost(hold.resource()));
        }
        self.follow(hold)?;
        if self.space.config.reentry == Reentry::Local {
            return Ok(());
        }
        let patience =
            self.patience(hold.resource()).until(hold.release_by()).until(self.space.one_answer()).taking_no();
        let patience = if hold.is_hasty() { patience.once() } else { patience };
        let release = || patience.persist(|answer_by| self.primitive.release(hold.tenure(), left, answer_by));
        match self.check_in_time(hold).and_then(|()| release()) {
            Ok(true) => Ok(()),
            Ok(false) => {
                hold.tenure().lose();
                self.lost(hold.tenure(), LossCause::Removed);
                Err(Error::lost(hold.resource()))
            }
            Err(error) => {
                let lock = self.whereabouts(hold.tenure());
                say!(warn, "the depth shown for lock {lock} is too high: {error}");
                Ok(())
            }
        }
    }

    /// Whether another thread of this process goes on with the tenure, so that the store need not know.
    pub(super) fn pass_on(&self, hold: &Hold) -> bool {
        let config = &self.space.config;
        let lease = config.watchdog_lease.span();
        (config.hand_off.is_on() || self.kind.shared)
            && registry().pass_on(self.ground(), hold, &config.hand_off, lease)
    }

    fn release_last(&self, hold: &Hold) -> Result<()> {
        if !hold.has_ended_first() {
            if self.pass_on(hold) {
                return Ok(());
            }
            self.end(hold)?;
        }
        let (found, in_doubt) = self.free(&[hold], |answer_by| self.primitive.release(hold.tenure(), 0, answer_by));
        self.conclude(hold, found, in_doubt)
    }

    /// Makes attempts at a final release of these holds until one is answered, no command can keep or make a key of theirs any more, or the
    /// outage budget is over. When nobody believes in a hold any more, others of this process go on. Beside the result it returns whether an
    /// attempt was not answered.
    pub(super) fn free<T>(
        &self,
        holds: &[&Hold],
        mut attempt: impl FnMut(Moment) -> Result<T, Failure>,
    ) -> (Result<T>, bool) {
        let (hold, clock, mut in_doubt) = (holds[0], &self.space.clock, false);
        let ends = clock.now().plus(self.space.config.outage_budget);
        if let Err(error) = self.check_in_time(hold) {
            return (Err(error), in_doubt);
        }
        loop {
            let now = clock.now();
            let believed = |hold: &&&Hold| hold.tenure().believed_until() > now;
            holds.iter().filter(|hold| !believed(hold)).for_each(|hold| self.make_way(hold));
            // Read anew: a renewal that was under way may keep the key for longer.
            let over = || holds.iter().map(|hold| hold.tenure().lease_until()).max().unwrap_or(ends).min(ends);
            let next = holds.iter().filter(believed).map(|hold| hold.tenure().believed_until()).min();
            let limit = over().min(next.unwrap_or(Moment::MAX));
            let patience = self.patience(hold.resource()).until(hold.release_by());
            let patience = if hold.is_hasty() { patience.once() } else { patience.until(limit).taking_no() };
            let last = patience.persist(|answer_by| {
                attempt(answer_by).inspect_err(|failure| in_doubt |= failure.applied() == Applied::Unknown)
            });
            let is_early = clock.now() >= limit && limit < over() && !mutant::is(Mutant::EndsWithBelief);
            if last.is_ok() || hold.is_hasty() || !is_early {
                return (last, in_doubt);
            }
        }
    }

    /// The next of this process may contend, though the release goes on. It is done once.
    fn make_way(&self, hold: &Hold) {
        if hold.leave_once() {
            registry().clear(self.ground(), hold);
        }
    }

    /// Refuses to send a release when the other holds of its group have used up the time that they share.
    ///
    /// # Errors
    /// `Unavailable` past the limit of the hold's release.
    pub(super) fn check_in_time(&self, hold: &Hold) -> Result<()> {
        let limit = hold.release_by();
        if limit == Moment::MAX || self.space.clock.now() < limit {
            return Ok(());
        }
        Err(Error::unavailable(hold.resource(), "others of its group took all the time, it is freed in the background"))
    }

    /// Ends a tenure before its final release is sent: from here on renewals do not count, and the hold is over
    /// whatever the release returns. `Lost` if its deadline had passed.
    pub(super) fn end(&self, hold: &Hold) -> Result<()> {
        let tenure = hold.tenure();
        let valid = if mutant::is(Mutant::EndedThreadsBelieve) { tenure.is_valid() } else { tenure.end() };
        self.space.watchdog.forget(tenure);
        if valid {
            return Ok(());
        }
        if tenure.state() == TenureState::Ended {
            // Another thread's shutdown came first: it released the lock, and nothing was lost.
            self.space.check_not_shut(hold.resource())?;
        }
        self.lost(tenure, tenure.expiry());
        self.bury(hold, false);
        self.release_late(hold);
        Err(Error::lost(hold.resource()))
    }

    /// Ends the hold of a group's member before the others are released: the time that these take is none in which it is lost. One that another
    /// thread waits for is left as it is, since it is passed on.
    ///
    /// # Errors
    /// `Lost`, if its deadline passed before.
    pub(super) fn end_first(&self, hold: &Hold) -> Result<()> {
        let is_last = hold.count() == 1 && hold.thread() == current_thread() && self.check_own(hold).is_ok();
        // A tenure that threads share ends with the last of them, under the lock of their map.
        if is_last
            && !self.kind.shared
            && hold.is_valid()
            && !registry().is_awaited(self.ground(), hold.tenure().key().full())
        {
            self.end(hold)?;
            hold.note_ended();
        }
        Ok(())
    }

    /// What the result of a final release means to its caller (the table of verdicts in docs/protocol.md, 6). `found`: its key was there,
    /// or something explains that it was not. `in_doubt`: whether an attempt was not answered.
    pub(super) fn conclude(&self, hold: &Hold, found: Result<bool>, in_doubt: bool) -> Result<()> {
        let tenure = hold.tenure();
        if found.is_ok() {
            self.note_freed(tenure);
        }
        let result = match found {
            Ok(true) => Ok(()),
            // A store in memory has no lives, and answers at once.
            Ok(false) if !tenure.is_gone() && tenure.is_over() => Ok(()),
            Ok(false) => {
                self.announce(tenure, LossCause::Removed);
                // The registry does not know it any more if it has made way.
                if tenure.announce_once() {
                    self.tell(hold, LossCause::Removed);
                }
                Err(Error::lost(hold.resource()))
            }
            Err(_) if self.space.clock.now() >= tenure.lease_until() && !hold.is_hasty() => Ok(()),
            Err(error) => {
                hold.close_undecided();
                self.decide_later(hold);
                Err(error)
            }
        };
        match &result {
            Ok(()) if in_doubt => self.count(Verdict::Freed),
            Err(Error::Lost { .. }) if in_doubt => self.count(Verdict::Lost),
            Ok(()) | Err(Error::Lost { .. }) => {}
            Err(_) => self.count(Verdict::Unknown),
        }
        self.bury(hold, result.is_ok());
        self.sweep_open(tenure);
        result
    }

    fn count(&self, verdict: Verdict) {
        self.space.counters.meters.doubted(verdict as usize);
    }

    /// The background frees the key, and tells a loss that it finds.
    fn decide_later(&self, hold: &Hold) {
        let Some(engine) = self.strong() else { return };
        let undecided = Undecided { engine, hold: hold.clone() };
        // A shutdown waits for the first attempt.
        self.space.sweeper.run_now(Box::new(undecided));
    }

    /// What becomes of a final release of a group's member that failed with this error: the background may decide it by `limit`. `news` listened
    /// before the release began.
    pub(super) fn decided(&self, hold: &Hold, news: &LostReceiver, limit: Moment, error: Error) -> Result<()> {
        let is_unanswered = matches!(error, Error::OutcomeUnknown { .. } | Error::Unavailable { .. });
        if !is_unanswered || hold.is_hasty() || hold.count() > 0 {
            return Err(error);
        }
        match news.recv_timeout(limit.since(self.space.clock.now())) {
            Ok(_) => Err(Error::lost(hold.resource())),
            // What is given up without an answer, as by a shutdown, is not decided.
            Err(RecvTimeoutError::Disconnected) if hold.is_decided() => Ok(()),
            Err(_) => Err(error),
        }
    }

    /// A master that replaces another may not know of this release, and may still have the mark of a writer that waited.
    pub(super) fn note_freed(&self, tenure: &Arc<Tenure>) {
        if self.health.moves() {
            self.space.recent_releases.note(tenure, self.keeper());
        }
    }

    /// Makes one best-effort release of a tenure that nobody holds any more: its key may still be there.
    fn release_late(&self, hold: &Hold) {
        let tenure = hold.tenure();
        if let Err(error) = self.check_in_time(hold).and_then(|()| self.sweep(tenure)) {
            say!(debug, "lock {}: late release, tried again: {error}", self.whereabouts(tenure));
            self.sweep_now(tenure);
        }
        self.sweep_open(tenure);
    }
}

/// What a release in doubt says in the end.
enum Verdict {
    Freed,
    Lost,
    Unknown,
}

/// A final release that was refused, or not answered while its caller waited (docs/protocol.md, 6, rule 6).
struct Undecided {
    engine: Arc<Engine>,
    hold: Hold,
}

impl Chore for Undecided {
    fn run(&self) -> Result<()> {
        let (space, tenure) = (&self.engine.space, self.hold.tenure());
        if tenure.is_gone() {
            return Ok(());
        }
        let found = self.engine.primitive.release(tenure, 0, space.one_answer());
        found.map_err(|failure| failure.into_error(self.hold.resource()))?;
        self.hold.note_decided();
        self.engine.note_freed(tenure);
        if self.engine.kind.is_of_this_process {
            registry().wake(self.engine.ground(), tenure.key().full());
        }
        Ok(())
    }

    fn until(&self) -> Moment {
        self.hold.tenure().lease_until()
    }

    fn whereabouts(&self) -> String {
        format!("lock {}", self.engine.whereabouts(self.hold.tenure()))
    }
}

/// It was decided, by this or by a sweep of the same tenure, or it is given up: there is no more news.
impl Drop for Undecided {
    fn drop(&mut self) {
        let tenure = self.hold.tenure();
        let is_lost = tenure.is_gone() && !mutant::is(Mutant::TellsNoLateLoss);
        if is_lost && tenure.announce_once() {
            self.engine.tell(&self.hold, LossCause::Removed);
        }
        self.engine.count(if is_lost { Verdict::Lost } else { Verdict::Freed });
        self.hold.hear_no_more();
    }
}

/// How a tenure ends without its holder, and how its remains are swept.
impl Engine {
    /// Undoes an acquire whose caller never gets the hold.
    pub(crate) fn give_back(&self, hold: &Hold) {
        hold.tenure().end();
        self.space.watchdog.forget(hold.tenure());
        self.bury(hold, true);
        self.sweep_now(hold.tenure());
        self.sweep_open(hold.tenure());
    }

    /// Closes the hold of a tenure that ended: nobody finds it, and the next waiter may go.
    fn bury(&self, hold: &Hold, released: bool) {
        hold.close(released);
        self.make_way(hold);
    }

    /// Reports a loss once to the callback, the holders and the log.
    pub(super) fn announce(&self, tenure: &Arc<Tenure>, cause: LossCause) {
        registry().lose(self.ground(), tenure).iter().for_each(|hold| self.tell(hold, cause));
    }

    fn tell(&self, hold: &Hold, cause: LossCause) {
        if is_part_of_group(hold) {
            say!(debug, "lock {} was lost while its group took the others: {cause:?}", self.whereabouts(hold.tenure()));
            return;
        }
        // The callback's queue comes first: a holder that hears of the loss may drop the client at once.
        let lost = hold.loss(cause);
        self.space.report(lost.clone());
        hold.announce(lost);
        say!(warn, "lock {} was lost while held by {}: {cause:?}", self.whereabouts(hold.tenure()), hold.owner());
    }

    /// Frees the lock at the store, and ends at once whatever this process holds or is about to hold. Nobody can tell
    /// which of it came after the force unlock at the store. So none of it is believed, unless the server says that it has it.
    pub(crate) fn force_unlock(&self, resource: &str) -> Result<bool> {
        let key = self.key(resource)?;
        let before = self.believed(&key);
        let result = self.patience(resource).remove(|answer_by| self.primitive.force_unlock(&key, answer_by));
        if !matches!(&result, Err(error) if error.applied() == Applied::No) {
            self.space.note_forced();
            self.end_current(&key, &before, matches!(&result, Ok((_, false))));
        }
        registry().wake(self.ground(), key.full());
        result.map(|(was_locked, _)| was_locked)
    }

    /// Ends the holds that a force unlock freed. A thread may have acquired the lock since, and may even have it before this one is told that it
    /// is freed: whether such a hold is from before or from after, the server knows. If no attempt is open, it is asked. The others end before
    /// that: the answer may take its time.
    fn end_current(&self, key: &Key, before: &[Hold], is_certain: bool) {
        let is_old = |hold: &Hold| before.iter().any(|old| Arc::ptr_eq(old.tenure(), hold.tenure()));
        let stays = |hold: &Hold| is_certain && matches!(self.verify(hold), Ok(true));
        let covered = self.believed(key).into_iter().filter(|hold| key.covers(hold.tenure().key()));
        let (old, new): (Vec<_>, Vec<_>) = covered.partition(is_old);
        for hold in old.iter().chain(new.iter().filter(|hold| !stays(hold))) {
            let tenure = hold.tenure();
            tenure.lose();
            // A tenure that ended has a release of its own under way: a sweep that overtakes it would make that release report a loss.
            if tenure.state() == TenureState::Lost {
                self.lost(tenure, LossCause::Removed);
                self.sweep_now(tenure);
            }
        }
    }

    fn believed(&self, key: &Key) -> Vec<Hold> {
        if self.kind.of_thread {
            return registry().believed(self.ground(), key.full());
        }
        let of_key = |hold: &Hold| hold.is_of_kind(self.kind) && hold.tenure().key().full() == key.full();
        registry().holds(self.ground()).into_iter().filter(of_key).collect()
    }

    /// Sweeps the tenure after the last moment at which an unanswered attempt of it can still be executed.
    pub(super) fn sweep_open(&self, tenure: &Arc<Tenure>) {
        if let Some(due) = tenure.sweep_due() {
            self.sweep_at(tenure, due);
        }
    }

    pub(super) fn sweep_now(&self, tenure: &Arc<Tenure>) {
        self.sweep_at(tenure, self.space.clock.now());
    }

    pub(super) fn sweep_at(&self, tenure: &Arc<Tenure>, due: Moment) {
        if let Some(keeper) = self.strong_keeper() {
            self.space.sweeper.sweep(tenure, keeper, due);
        }
    }
}
